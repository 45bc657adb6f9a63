#include "fast/ptx/decode.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "fast/ptx/arrivals.h"
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
    body();
    Instruction end;
    end.flow = Flow::exit;
    end.kind = Class::control;
    end.opcode = opcode("exit");
    k_.code.push_back(end);
    Arrivals arrivals(k_, names_);
    for (const size_t copy : copies_) arrivals.make(copy);
    resolve_jumps();
    names_.set_dynamic_base(align_up(k_.static_shared, 16));
    return std::move(k_);
  }

 private:
  using Label = std::pair<size_t, std::string>;  // a scope and a name in it
  // From behind the brace of a body to the one that ends it.
  void body() {
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
  }
  // Functions are read anew in place of each call: what calls call, and call again, is bounded here.
  void advance() {
    if (++words_ > kMostWords + m_.text().size()) too_long();
    now_ = std::exchange(next_, lexer_.next());
  }
  [[noreturn]] static void too_long() { throw Fault("the body is too long, with the functions it calls"); }
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
    if (next_.text == ":") return label();
    if (now_.text.starts_with('.')) return directive();
    instruction();
  }

  // A place of the body, or the name of what .branchtargets lists (9.7.12.4).
  void label() {
    const Label here{scopes_.back(), std::string(take())};
    need(":");
    if (!labels_.try_emplace(here, static_cast<uint32_t>(k_.code.size())).second)
      throw Fault("label '" + here.second + "' stands twice");
    if (!is(".branchtargets")) return;
    advance();
    auto& targets = targets_[here];
    do {
      if (is(",")) advance();
      targets.emplace_back(take());
    } while (is(","));
    need(";");
  }

  void directive() {
    const uint32_t line = now_.line;
    const std::string_view word = take();
    if (word == ".reg") return registers(take_type());
    // No blank need stand before the type: .reg.b64 x;
    if (word.starts_with(".reg.")) return registers(type_of(word.substr(4)));
    if (word == ".shared") return variable(Space::shared);
    if (word == ".local") return variable(Space::local);
    if (word == ".loc") return location(line);
    if (word == ".param") return variable(Space::param);
    if (word == ".pragma" || word == ".callprototype" || word == ".calltargets") {
      while (take() != ";") {}
      return;
    }
    throw Fault("'" + std::string(word) + "' is no directive of a body that is understood");
  }

  Type take_type() { return type_of(take()); }
  static Type type_of(std::string_view word) {
    const auto type = word.front() == '.' ? type_named(word.substr(1)) : std::nullopt;
    if (!type) throw Fault("'" + std::string(word) + "' is no type");
    return *type;
  }
  uint64_t take_number() { return parse_number(take()).bits; }

  // .reg .b32 %r<100>, x;
  void registers(Type type) {
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
      names_.declare_row(type, name, count);
    } while (is(","));
    need(";");
  }

  void place(Variable& v, uint64_t& top) {
    top = align_up(top, v.align);
    v.address = top;
    top += v.bytes;
    if (top > kMostBytes) throw Fault("variable '" + v.name + "' is too large");
  }
  // What a call is given and gives is memory of the lane (5.1.6.2).
  void variable(Space space) {
    Variable v;
    v.of_call = space == Space::param;
    v.space = v.of_call ? Space::local : space;
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
      const auto r = names_.find_register(take());
      if (!r || !r->predicate()) throw Fault("a guard must be a predicate");
      i.guard = r->place;
    }
    i.opcode = opcode(take());
    if (k_.opcodes[i.opcode].row->form == Form::call) return call(i);
    std::vector<Operand> operands;
    while (!is(";")) {
      operands.push_back(operand());
      if (is(",")) advance();
      else if (!is(";")) throw Fault("expected ',' or ';', found '" + std::string(now_.text) + "'");
    }
    advance();
    if (k_.opcodes[i.opcode].first() == Type::b128) return in_halves(i, operands);
    const Opcode& op = k_.opcodes[i.opcode];
    if (op.row->form == Form::bra)
      jumps_.push_back({k_.code.size(), {scopes_.back(), Binder::label(operands)}});
    else binder_.bind(op, operands, i);
    if (op.row->form == Form::brx_idx) {
      i.code = static_cast<uint32_t>(indexed_.size());
      indexed_.push_back({k_.code.size(), {scopes_.back(), operands[1].text}});
    }
    choose(op, i);
    if (op.row->kind == Class::copy) copy(i);
    if (op.row->form == Form::ret && !calls_.empty()) jump(i, calls_.back().end);
    else add(i);
  }
  // Instructions of 128 bits are those of their two halves.
  void in_halves(const Instruction& begun, std::vector<Operand> operands) {
    const Opcode op = k_.opcodes[begun.opcode];
    if (operands.size() != 2)
      throw Fault("'" + op.text + "' takes 2 operands, not " + std::to_string(operands.size()));
    const auto add_as = [&](const std::string& text, const std::vector<Operand>& of_it) {
      Instruction i = begun;
      i.opcode = static_cast<uint32_t>(k_.opcodes.size());
      k_.opcodes.push_back(understand(text));
      k_.opcodes.back().text = op.text;
      binder_.bind(k_.opcodes[i.opcode], of_it, i);
      choose(k_.opcodes[i.opcode], i);
      add(i);
    };
    if (op.row->form != Form::mov_b128) {
      operands[op.row->kind == Class::load ? 0 : 1] = halves(operands[op.row->kind == Class::load ? 0 : 1]);
      const size_t type = op.text.find(".b128");
      return add_as(op.text.substr(0, type) + ".v2.b64" + op.text.substr(type + 5), operands);
    }
    const Operand to = halves(operands[0]), from = halves(operands[1]);
    for (size_t n = 0; n < 2; ++n) add_as("mov.b64", {to.parts[n], from.parts[n]});
  }
  static Operand halves(const Operand& o) {
    if (o.what == Operand::What::vector && o.parts.size() == 2) return o;
    if (o.what != Operand::What::reg || o.reg.type != Type::b128)
      throw Fault("'" + o.text + "' is neither a register of 128 bits nor two of 64 in braces");
    Operand both, half = o;
    both.what = Operand::What::vector;
    half.reg.type = Type::b64;
    both.parts.push_back(half);
    half.reg.place += 2 * kLanes;
    both.parts.push_back(half);
    return both;
  }
  // A copy keeps its two addresses in registers that its arrival reads.
  void copy(Instruction& i) {
    if (copies_.size() == kMostCopies)
      throw Fault("the body has too many copies, with the functions it calls");
    copies_.push_back(k_.code.size());
    if (k_.opcodes[i.opcode].has("bulk")) return;
    if (i.code != 16 && (k_.opcodes[i.opcode].has("cg") || (i.code != 4 && i.code != 8)))
      throw Fault("'" + k_.opcodes[i.opcode].text + "' does not copy " + std::to_string(i.code) + " bytes");
    i.destinations = 2;
    i.d[0] = names_.unnamed(true), i.d[1] = names_.unnamed(true);
  }
  void add(const Instruction& i) {
    if (k_.code.size() == kMostInstructions + m_.text().size() / 4) too_long();
    k_.code.push_back(i);
  }
  void jump(Instruction i, const Label& to) {
    i.flow = Flow::branch;
    jumps_.push_back({k_.code.size(), to});
    add(i);
  }

  // 9.7.12.5: (results), name, (arguments). The body of the function follows in place of the call, each time
  // with registers and variables of its own; its parameters are the variables that the call names.
  void call(Instruction i) {
    const std::vector<std::string> results = is("(") ? names_in_parentheses() : std::vector<std::string>{};
    if (is(",")) advance();
    const std::string name(take());
    if (find(name)) throw Fault("a call of the function in a register ('" + name + "') is not understood");
    if (is(",")) advance();
    const std::vector<std::string> arguments = is("(") ? names_in_parentheses() : std::vector<std::string>{};
    need(";");
    const Function* f = m_.function(name);
    if (!f) throw Fault("there is no function '" + name + "'");
    if (!f->has_body) return call_of_library(i, name, arguments);
    for (const Call& c : calls_)
      if (c.function == f) throw Fault("'" + name + "' calls itself, which is not understood");
    if (calls_.size() == kMostNested) throw Fault("too many calls within calls");

    names_.open();
    bind_parameters(*f, f->results, results);
    bind_parameters(*f, f->parameters, arguments);
    const Label end{parents_.size(), " end of " + name};  // a blank: no label of the text
    parents_.push_back(scopes_.back());
    choose(k_.opcodes[i.opcode], i);
    if (i.has_guard) i.guard_inverted = !i.guard_inverted, jump(i, end);
    else add(i);
    calls_.push_back({f, end});
    const Lexer text = std::exchange(lexer_, Lexer(m_.text(), f->body, f->line));
    const Token now = now_, next = next_;
    const uint32_t source = source_;
    advance(), advance();
    body();
    lexer_ = text, now_ = now, next_ = next, source_ = source;
    labels_[end] = static_cast<uint32_t>(k_.code.size());
    calls_.pop_back();
    names_.close();
  }
  std::vector<std::string> names_in_parentheses() {
    std::vector<std::string> out;
    need("(");
    while (!is(")")) {
      out.emplace_back(take());
      if (!is(")")) need(",");
    }
    need(")");
    return out;
  }
  void bind_parameters(const Function& f, const std::vector<Parameter>& parameters,
                       const std::vector<std::string>& given) {
    if (parameters.size() != given.size())
      throw Fault("'" + f.name + "' has " + std::to_string(parameters.size()) +
                  " parameters or results, not " + std::to_string(given.size()));
    for (size_t n = 0; n < given.size(); ++n) {
      if (parameters[n].in_register)
        throw Fault("'" + f.name + "' takes its parameter '" + parameters[n].name +
                    "' in a register, which is not understood");
      const Variable* v = names_.find_variable(given[n]);
      if (!v || !v->of_call) throw Fault("'" + given[n] + "' is no .param variable of this body");
      if (v->bytes != parameters[n].bytes)
        throw Fault("'" + given[n] + "' has " + std::to_string(v->bytes) + " bytes, '" + parameters[n].name +
                    "' of '" + f.name + "' has " + std::to_string(parameters[n].bytes));
      Variable own = *v;
      own.name = parameters[n].name;
      names_.declare(own);
    }
  }
  // Functions of the CUDA runtime on the device, which no module defines.
  void call_of_library(Instruction i, const std::string& name, const std::vector<std::string>& arguments) {
    choose(k_.opcodes[i.opcode], i);
    if (name == "vprintf") return add(i);  // it prints nothing here
    if (name != "__assertfail") throw Fault("'" + name + "' has no body in this module");
    const Variable* message = arguments.empty() ? nullptr : names_.find_variable(arguments.front());
    if (!message || !message->of_call || message->bytes != 8)
      throw Fault("'__assertfail' needs the address of its message first");
    i.flow = Flow::trap;
    i.offset = static_cast<int64_t>(message->address);
    add(i);
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
    else if (const auto r = find(word)) o.what = Operand::What::reg, o.reg = *r;
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
  std::optional<Register> find(std::string_view word) {
    if (const auto r = names_.find_register(word)) return r;
    const Register* special = names_.find_special(word);
    return special ? std::optional(*special) : std::nullopt;
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
  // [base], [base+8], [base+-8], [16], [map, {x, y}]
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
    if (is(",")) {
      advance();
      o.parts = vector().parts;
    }
    need("]");
    o.address = true;
    return o;
  }

  // What a table has under a label, which the scope or one around it declares.
  template <class T> const T& find_label(const std::map<Label, T>& table, Label label, size_t instruction) {
    auto found = table.find(label);
    while (found == table.end() && (label.first = parents_[label.first]) != kNoScope)
      found = table.find(label);
    if (found == table.end()) fail_at(k_.code[instruction].line, "there is no label '" + label.second + "'");
    return found->second;
  }
  void resolve_jumps() {
    for (const Jump& jump : jumps_)
      k_.code[jump.instruction].target = find_label(labels_, jump.to, jump.instruction);
    for (const Jump& jump : indexed_) {
      auto& places = k_.tables.emplace_back();
      for (const std::string& name : find_label(targets_, jump.to, jump.instruction))
        places.push_back(find_label(labels_, {jump.to.first, name}, jump.instruction));
    }
  }

  static constexpr size_t kNoScope = ~size_t{0};
  static constexpr uint64_t kMostRegisters = 1u << 20, kMostBytes = 1u << 24, kMostAlign = 1024,
                            kMostWords = 1u << 20, kMostInstructions = 1u << 18, kMostCopies = 1u << 13,
                            kMostNested = 64;
  struct Jump {
    size_t instruction;
    Label to;
  };
  struct Call {
    const Function* function;
    Label end;
  };
  const Module& m_;
  Lexer lexer_;
  Token now_, next_;
  Kernel k_;
  Names names_;
  Binder binder_;
  std::vector<size_t> scopes_, parents_;  // open scopes; the parent of each scope there was
  std::map<Label, uint32_t> labels_;
  std::map<Label, std::vector<std::string>> targets_;  // what .branchtargets lists
  std::vector<Jump> jumps_, indexed_;                  // to a label; by a list of labels
  std::vector<size_t> copies_;                         // instructions
  std::vector<Call> calls_;                            // whose bodies are being read
  std::unordered_map<std::string, uint32_t> opcode_index_;
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> source_index_;
  uint32_t source_ = 0;
  uint64_t words_ = 0;  // that were read, of functions at each of their calls
};

}  // namespace

Kernel decode(const Module& module, const Entry& entry) { return Decoder(module, entry).read(); }

}  // namespace assay::ptx
