#include "fast/ptx/decode.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "fast/ptx/bind.h"
#include "fast/ptx/choose.h"
#include "fast/ptx/module.h"
#include "fast/ptx/registers.h"

namespace assay::ptx {

namespace {

// Reads the body of an entry, statement by statement (4.2, 4.3).
class Decoder {
 public:
  Decoder(const Module& module, const Entry& entry)
      : m_(module), lexer_(module.text(), entry.body, entry.line), names_(k_), binder_(k_, names_) {
    k_.name = entry.name;
    advance(), advance();
    open_scope();
    // Module variables lie around the body; shared ones come first in shared memory.
    for (const auto& [name, v] : m_.variables()) {
      Variable own = v;
      if (own.space == Space::shared && own.bytes) place(own, k_.static_shared);
      names_.declare(own);
    }
    for (const Parameter& p : entry.parameters)
      names_.declare({p.name, Space::param, p.type, p.bytes, p.align, p.offset});
  }

  Kernel read() {
    open_scope();
    const size_t outer = scopes_.size() - 1;
    while (scopes_.size() > outer) {
      const uint32_t line = now_.line;
      try {
        statement();
      } catch (const Fault& e) {
        if (std::string_view(e.what()).starts_with("PTX line")) throw;
        fail_at(line, e.what());
      }
    }
    Instruction end;
    end.flow = Flow::exit;
    end.kind = Class::control;
    end.opcode = opcode("exit");
    k_.code.push_back(end);
    resolve_jumps();
    names_.set_dynamic_base(align_up(k_.static_shared, 16));
    return std::move(k_);
  }

 private:
  void advance() { now_ = std::exchange(next_, lexer_.next()); }
  bool is(std::string_view word) const { return now_.text == word; }
  std::string_view take() {
    if (now_.text.empty()) fail_at(now_.line, "the text ends inside a body");
    const std::string_view word = now_.text;
    advance();
    return word;
  }
  void need(std::string_view word) {
    if (!is(word))
      throw Fault("expected '" + std::string(word) + "', found '" + std::string(now_.text) + "'");
    advance();
  }
  void open_scope() {
    names_.open();
    scopes_.push_back(parents_.size());
    parents_.push_back(scopes_.size() > 1 ? scopes_[scopes_.size() - 2] : kNoScope);
  }
  void close_scope() {
    names_.close();
    scopes_.pop_back();
  }

  void statement() {
    if (now_.text.empty()) throw Fault("the text ends inside a body");
    if (is("{")) return advance(), open_scope();
    if (is("}")) {
      close_scope();
      // Behind the body's own brace may stand the end of the text.
      return advance();
    }
    if (is(";")) return advance();
    if (next_.text == ":") {
      if (!labels_
               .try_emplace({scopes_.back(), std::string(now_.text)}, static_cast<uint32_t>(k_.code.size()))
               .second)
        throw Fault("label '" + std::string(now_.text) + "' stands twice");
      return advance(), advance();
    }
    if (now_.text.starts_with('.')) return directive();
    instruction();
  }

  void directive() {
    const uint32_t line = now_.line;
    const std::string_view word = take();
    if (word == ".reg") return registers();
    if (word == ".shared") return variable(Space::shared);
    if (word == ".local") return variable(Space::local);
    if (word == ".loc") return location(line);
    if (word == ".pragma") {
      while (take() != ";") {}
      return;
    }
    if (word == ".param") throw Fault("calls of functions are not understood");
    throw Fault("'" + std::string(word) + "' is no directive of a body that is understood");
  }

  Type take_type() {
    const std::string_view word = take();
    const auto type = word.front() == '.' ? type_named(word.substr(1)) : std::nullopt;
    if (!type) throw Fault("'" + std::string(word) + "' is no type");
    return *type;
  }
  uint64_t take_number() { return parse_number(take()).bits; }

  // .reg .b32 %r<100>, x;
  void registers() {
    const Type type = take_type();
    do {
      if (is(",")) advance();
      const std::string name(take());
      if (!is("<")) {
        names_.declare(type, name);
        continue;
      }
      advance();
      const uint64_t count = take_number();
      need(">");
      if (count > kMostRegisters) throw Fault("too many registers");
      for (uint64_t n = 0; n < count; ++n) names_.declare(type, name + std::to_string(n));
    } while (is(","));
    need(";");
  }

  void place(Variable& v, uint64_t& top) {
    top = align_up(top, v.align);
    v.address = top;
    top += v.bytes;
    if (top > kMostBytes) throw Fault("variable '" + v.name + "' is too large");
  }
  void variable(Space space) {
    Variable v;
    v.space = space;
    while (now_.text.starts_with('.')) {
      if (is(".align")) advance(), v.align = take_number();
      else v.type = take_type();
    }
    v.name = take();
    const auto size = static_cast<uint64_t>(info(v.type).bytes());
    v.bytes = size;
    while (is("[")) {
      advance();
      const uint64_t count = take_number();
      if (count > kMostBytes) throw Fault("variable '" + v.name + "' is too large");
      v.bytes *= count;
      need("]");
    }
    v.align = std::max<uint64_t>({v.align, size, 1});
    if (v.align & (v.align - 1) || v.align > kMostAlign)
      throw Fault("an alignment is no power of two up to 1024");
    if (v.bytes > kMostBytes) throw Fault("variable '" + v.name + "' is too large");
    place(v, space == Space::shared ? k_.static_shared : k_.local_bytes);
    names_.declare(v);
    need(";");
  }

  // .loc file line column, function_name label, inlined_at file line column
  void location(uint32_t line) {
    const uint64_t file = take_number();
    const auto source = static_cast<uint32_t>(take_number());
    std::optional<std::pair<uint64_t, uint32_t>> outer;
    while (!now_.text.empty() && now_.line == line)
      if (take() == "inlined_at" && now_.line == line) {
        const uint64_t outer_file = take_number();
        outer = {outer_file, static_cast<uint32_t>(take_number())};
      }
    // Of inlined code the place that called it is told: that is a line which its author knows.
    source_ = outer ? source_line(outer->first, outer->second) : source_line(file, source);
    if (outer) source_index_[{file, source}] = source_;
  }
  uint32_t source_line(uint64_t file, uint32_t line) {
    const auto [found, fresh] =
        source_index_.try_emplace({file, line}, static_cast<uint32_t>(k_.sources.size() + 1));
    if (fresh) k_.sources.push_back({m_.file(file), line});
    return found->second;
  }

  uint32_t opcode(std::string_view text) {
    const auto found = opcode_index_.find(std::string(text));
    if (found != opcode_index_.end()) return found->second;
    k_.opcodes.push_back(understand(text));
    const auto index = static_cast<uint32_t>(k_.opcodes.size() - 1);
    opcode_index_.emplace(text, index);
    return index;
  }

  void instruction() {
    Instruction i;
    i.line = now_.line;
    i.source = source_;
    if (is("@")) {
      advance();
      i.has_guard = true;
      if (is("!")) advance(), i.guard_inverted = true;
      const Register* r = names_.find_register(take());
      if (!r || !r->predicate()) throw Fault("a guard must be a predicate");
      i.guard = r->place;
    }
    i.opcode = opcode(take());
    std::vector<Operand> operands;
    while (!is(";")) {
      operands.push_back(operand());
      if (is(",")) advance();
      else if (!is(";")) throw Fault("expected ',' or ';', found '" + std::string(now_.text) + "'");
    }
    advance();
    const Opcode& op = k_.opcodes[i.opcode];
    if (op.row->form == Form::bra)
      jumps_.push_back({k_.code.size(), scopes_.back(), Binder::label(operands)});
    else binder_.bind(op, operands, i);
    choose(op, i);
    k_.code.push_back(i);
  }

  // One operand, with what stands behind its bar (6.4).
  Operand operand() {
    Operand o = single();
    if (is("|")) {
      advance();
      o.parts.push_back(single());
      o.barred = true;
    }
    return o;
  }
  Operand single() {
    if (is("{")) return vector();
    if (is("[")) return address();
    Operand o;
    bool negative = false;
    if (is("-")) advance(), negative = true;
    if (is("!")) advance(), o.inverted = true;
    const std::string_view word = take();
    if (!is_word(word)) throw Fault("expected an operand, found '" + std::string(word) + "'");
    o.text = word;
    if (begins_number(word)) {
      o.what = Operand::What::number;
      o.number = parse_number(word);
      if (negative) negate(o.number);
      return o;
    }
    if (negative) throw Fault("only a number may be negative");
    if (word == "_") o.what = Operand::What::sink;
    else if (word == "WARP_SZ") o.what = Operand::What::number, o.number = {Number::Form::integer, kLanes};
    else if (const Register* r = find(word)) o.what = Operand::What::reg, o.reg = *r;
    else o.what = Operand::What::symbol;
    if (o.what == Operand::What::symbol && is("+"))
      advance(), o.displacement = static_cast<int64_t>(take_number());
    return o;
  }
  static bool is_word(std::string_view word) {
    const char c = word.front();
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%' || c == '.';
  }
  const Register* find(std::string_view word) {
    const Register* r = names_.find_register(word);
    return r ? r : names_.find_special(word);
  }
  static void negate(Number& n) {
    if (n.form == Number::Form::integer) n.bits = 0 - n.bits;
    else n.bits ^= n.form == Number::Form::binary32 ? 0x80000000ull : 0x8000000000000000ull;
  }
  Operand vector() {
    Operand o;
    o.what = Operand::What::vector;
    o.text = "{";
    need("{");
    do {
      if (is(",")) advance();
      o.parts.push_back(single());
    } while (is(","));
    need("}");
    return o;
  }
  // [base], [base+8], [base+-8], [16]
  Operand address() {
    Operand o;
    need("[");
    o = single();
    if (o.what == Operand::What::number) {
      o.displacement = static_cast<int64_t>(o.number.bits);
      o.number = {};
    } else if (o.what != Operand::What::reg && o.what != Operand::What::symbol) {
      throw Fault("'" + o.text + "' is no address");
    }
    while (is("+") || is("-")) {
      bool negative = take() == "-";
      if (is("-")) advance(), negative = !negative;
      const auto step = static_cast<int64_t>(take_number());
      o.displacement += negative ? -step : step;
    }
    need("]");
    o.address = true;
    return o;
  }

  void resolve_jumps() {
    for (const Jump& jump : jumps_) {
      size_t scope = jump.scope;
      auto found = labels_.find({scope, jump.label});
      while (found == labels_.end() && (scope = parents_[scope]) != kNoScope)
        found = labels_.find({scope, jump.label});
      if (found == labels_.end())
        fail_at(k_.code[jump.instruction].line, "there is no label '" + jump.label + "'");
      k_.code[jump.instruction].target = found->second;
    }
  }

  static constexpr size_t kNoScope = ~size_t{0};
  static constexpr uint64_t kMostRegisters = 1u << 20, kMostBytes = 1u << 24, kMostAlign = 1024;
  struct Jump {
    size_t instruction, scope;
    std::string label;
  };
  const Module& m_;
  Lexer lexer_;
  Token now_, next_;
  Kernel k_;
  Names names_;
  Binder binder_;
  std::vector<size_t> scopes_, parents_;  // open scopes; the parent of each scope there was
  std::map<std::pair<size_t, std::string>, uint32_t> labels_;
  std::vector<Jump> jumps_;
  std::unordered_map<std::string, uint32_t> opcode_index_;
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> source_index_;
  uint32_t source_ = 0;
};

}  // namespace

Kernel decode(const Module& module, const Entry& entry) { return Decoder(module, entry).read(); }

}  // namespace assay::ptx
