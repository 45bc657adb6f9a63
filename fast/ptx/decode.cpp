#include "fast/ptx/decode.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "fast/ptx/arrivals.h"
#include "fast/ptx/bind.h"
#include "fast/ptx/call_graph.h"
#include "fast/ptx/choose.h"
#include "fast/ptx/clocks.h"
#include "fast/ptx/frames.h"
#include "fast/ptx/module.h"
#include "fast/ptx/operands.h"
#include "fast/ptx/parts.h"
#include "fast/ptx/registers.h"

namespace assay::ptx {

namespace {

// Reads the body of an entry, statement by statement (4.2, 4.3).
class Decoder : OperandReader {
 public:
  Decoder(const Module& module, const Entry& entry)
      : OperandReader(Lexer(module.text(), entry.body, entry.line), names_,
                      kFewWords + kWordsOfByte * module.text().size()),
        m_(module),
        names_(k_),
        binder_(k_, names_),
        graph_(module, entry),
        frames_(k_, names_, binder_) {
    k_.name = entry.name;
    open_scope();
    // Module variables lie around the body; shared ones come first in shared memory.
    for (const auto& [name, v] : m_.variables()) {
      Variable own = v;
      if (own.space == Space::shared && own.bytes) place(own, k_.static_shared);
      names_.declare(own);
    }
    for (const auto& [name, f] : m_.functions())
      if (f.has_body) names_.declare({name, Space::constant, Type::b8, 0, 1, f.address});
    for (const Parameter& p : entry.parameters)
      names_.declare({p.name, Space::param, p.type, p.bytes, p.align, p.offset});
    functions_that_call_themselves(entry.line);
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
    measure_stretches();
    names_.set_dynamic_base(align_up(k_.static_shared, 16));
    frames_.end();
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
    if (is(".callprototype")) return prototype(here);
    if (!is(".branchtargets") && !is(".calltargets")) return;
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
    if (word == ".pragma") {
      while (take() != ";") {}
      return;
    }
    throw Fault("'" + std::string(word) + "' is no directive of a body that is understood");
  }

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
      if (count > kMostRegisters)
        throw Fault("'" + name + "' has " + std::to_string(count) + " registers, and a kernel has at most " +
                    std::to_string(kMostRegisters));
      names_.declare_row(type, name, count);
    } while (is(","));
    need(";");
  }

  [[noreturn]] static void too_large(const Variable& v) {
    throw Fault("variable '" + v.name + "' goes beyond the " + std::to_string(kMostBytes) +
                " bytes that a kernel may have");
  }
  void place(Variable& v, uint64_t& top) {
    top = align_up(top, v.align);
    v.address = top;
    top += v.bytes;
    if (top > kMostBytes) too_large(v);
  }
  // What a call is given and gives is memory of the lane (5.1.6.2).
  void variable(Space space) {
    Variable v;
    v.of_call = space == Space::param;
    v.space = v.of_call ? Space::local : space;
    while (now_.text.starts_with('.')) {
      if (!is(".align")) {
        v.type = take_type();
        continue;
      }
      advance();
      v.align = take_number();
      if (!std::has_single_bit(v.align) || v.align > kMostAlign)
        throw Fault("an alignment is no power of two up to 1024");
    }
    v.name = take();
    const auto size = static_cast<uint64_t>(info(v.type).bytes());
    v.bytes = size;
    while (is("[")) {
      advance();
      const uint64_t count = take_number();
      if (count > kMostBytes) too_large(v);
      v.bytes *= count;
      need("]");
    }
    v.align = std::max<uint64_t>({v.align, size, 1});
    if (v.bytes > kMostBytes) too_large(v);
    v.framed = frame_ && space != Space::shared;
    place(v, v.framed ? frame_->top : space == Space::shared ? k_.static_shared : k_.local_bytes);
    if (v.framed && v.align > 16)
      throw Fault("an alignment of more than 16 bytes is not understood in a function that calls itself");
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
    if (const auto parts = parts_of(k_.opcodes[i.opcode], operands, names_)) return add_parts(i, *parts);
    const Opcode& op = k_.opcodes[i.opcode];
    for (Operand& o : operands)
      if (const Variable* v =
              o.what == Operand::What::symbol && !o.address ? names_.find_variable(o.text) : nullptr;
          v && v->framed)
        o = frames_.address_of(i, *v, o.displacement);
    if (op.row->form == Form::bra)
      jumps_.push_back({k_.code.size(), {scopes_.back(), Binder::label(operands)}});
    else binder_.bind(op, operands, i);
    if (op.row->form == Form::brx_idx) {
      i.code = static_cast<uint32_t>(indexed_.size());
      indexed_.push_back({k_.code.size(), {scopes_.back(), operands[1].text}});
    }
    choose(op, i);
    read_clocks(op, i);
    if (op.row->kind == Class::copy || (i.handler && i.meeting)) copy(i);
    if (op.row->form == Form::ret && !ends_.empty()) jump(i, ends_.back());
    else add(i);
  }
  // Each mov takes the count of its own moment.
  void read_clocks(const Opcode& op, Instruction& i) const {
    for (unsigned k = 0; k < i.sources; ++k) {
      const Clock* clock = i.predicate_s >> k & 1 ? nullptr : names_.clock_at(i.s[k]);
      if (!clock) continue;
      if (op.row->form != Form::mov || i.destinations != 1 || i.width)
        throw Fault("'" + op.text + "' reads a clock, which is understood of mov to one register alone");
      i.handler = &read_clock;
      i.code = clock->shift;
    }
  }
  // Reports have the text of the instruction that the parts stand for.
  void add_parts(const Instruction& whole, const std::vector<Part>& parts) {
    const std::string text = k_.opcodes[whole.opcode].text;
    for (const Part& p : parts) {
      Instruction i = whole;
      i.opcode = static_cast<uint32_t>(k_.opcodes.size());
      k_.opcodes.push_back(understand(p.opcode));
      k_.opcodes.back().text = text;
      binder_.bind(k_.opcodes[i.opcode], p.operands, i);
      choose(k_.opcodes[i.opcode], i);
      add(i);
    }
  }
  // A copy keeps its two addresses in registers that its arrival reads. A product of wgmma arrives like one.
  void copy(Instruction& i) {
    if (frame_) throw Fault("a copy that arrives later is not understood in a function that calls itself");
    if (copies_.size() == kMostCopies)
      throw Fault("the body has too many copies, with the functions it calls");
    copies_.push_back(k_.code.size());
    if (i.meeting) tiles_ += k_.products[i.target].tiles;
    if (i.meeting || k_.opcodes[i.opcode].has("bulk")) return;
    if (i.code != 16 && (k_.opcodes[i.opcode].has("cg") || (i.code != 4 && i.code != 8)))
      throw Fault("'" + k_.opcodes[i.opcode].text + "' does not copy " + std::to_string(i.code) + " bytes");
    i.destinations = 2;
    i.d[0] = names_.unnamed(true), i.d[1] = names_.unnamed(true);
  }
  void add(const Instruction& i) {
    if (k_.code.size() + tiles_ >= kMostInstructions + m_.text().size() / 4) too_long();
    k_.code.push_back(i);
  }
  void jump(Instruction i, const Label& to) {
    i.flow = Flow::branch;
    jumps_.push_back({k_.code.size(), to});
    add(i);
  }

  struct Call {
    std::vector<std::string> results, arguments;
    std::string list;  // the label of a prototype or of a list of functions
  };
  using Prototype = std::pair<std::vector<uint64_t>, std::vector<uint64_t>>;  // bytes of results, parameters
  // 9.7.12.5: (results), name or register, (arguments), and for a register a prototype or a list of
  // functions.
  void call(Instruction i) {
    Call c;
    if (is("(")) c.results = names_in_parentheses();
    if (is(",")) advance();
    const std::string name(take());
    if (is(",")) advance();
    if (is("(")) c.arguments = names_in_parentheses();
    if (is(",")) advance();
    if (!is(";")) c.list = take();
    need(";");
    const auto through = find(name);
    const Function* f = through ? nullptr : m_.function(name);
    if (!through && !f) throw Fault("there is no function '" + name + "'");
    if (f && !f->has_body) return call_of_library(i, name, c.arguments);
    choose(k_.opcodes[i.opcode], i);
    const Label end = unwritten_label("end of " + name);
    if (i.has_guard) {
      Instruction skip = i;
      skip.guard_inverted = !skip.guard_inverted;
      jump(skip, end);
      i.has_guard = false;
    } else {
      add(i);
    }
    if (f) call_function(i, *f, c);
    else call_through(i, *through, c);
    place_label(end);
  }
  // Labels that no text has: their names begin with a blank.
  Label unwritten_label(const std::string& name) {
    const Label l{parents_.size(), " " + name};
    parents_.push_back(scopes_.back());
    return l;
  }
  void place_label(const Label& l) { labels_[l] = static_cast<uint32_t>(k_.code.size()); }

  void call_function(const Instruction& i, const Function& f, const Call& c) {
    check_parameters(f, f.results, c.results);
    check_parameters(f, f.parameters, c.arguments);
    if (Frame* to = frames_.of(&f)) {
      frames_.enter(i, *to, frame_, c.arguments);
      jump(i, {to->scope, kEnter});
      auto& places = targets_[{to->scope, kReturns}];
      places.push_back(" " + std::to_string(places.size()));
      place_label({to->scope, places.back()});
      return frames_.come_back(i, *to, frame_, c.results);
    }
    // The body of the function follows in place of the call, each time with registers and variables of its
    // own; its parameters are the variables that the call names.
    if (ends_.size() == kMostNested) throw Fault("too many calls within calls");
    names_.open();
    bind_parameters(f.results, c.results);
    bind_parameters(f.parameters, c.arguments);
    const Label end = unwritten_label("end of " + f.name);
    body_of(f, end);
    place_label(end);
    names_.close();
  }
  void body_of(const Function& f, const Label& end) {
    ends_.push_back(end);
    const State here = read_at(Lexer(m_.text(), f.body, f.line));
    const uint32_t source = source_;
    body();
    source_ = source;
    go_on_at(here);
    ends_.pop_back();
  }

  // Each function that the register may name in its turn: those of .calltargets, or those with the parameters
  // of .callprototype whose address something takes.
  void call_through(const Instruction& i, const Register& through, const Call& c) {
    if (through.bits() != 64) throw Fault("a call goes through a register of 64 bits");
    const Label end = unwritten_label("behind the call");
    bool any = false;
    for (const Function* f : functions_of(c)) {
      any = true;
      const Label other = unwritten_label("another function");
      Operand address;
      address.what = Operand::What::number;
      address.number.bits = f->address;
      const Operand answer = Frames::operand(Type::pred, frames_.answer());
      add(frames_.make(i, "setp.ne.u64", {answer, Frames::operand(Type::b64, through.place), address}));
      Instruction skip = i;
      skip.opcode = opcode("bra");
      skip.has_guard = true, skip.guard = frames_.answer(), skip.guard_inverted = false;
      jump(skip, other);
      call_function(i, *f, c);
      jump(i, end);
      place_label(other);
    }
    if (!any) throw Fault("no function whose address is taken has the parameters of '" + c.list + "'");
    frames_.trap(i, CallTrap::no_function, {through.place}, kUnused);
    place_label(end);
  }
  std::vector<const Function*> functions_of(const Call& c) {
    const size_t here = k_.code.size() - 1;
    std::vector<const Function*> out;
    if (const auto* names = look_for(targets_, {scopes_.back(), c.list})) {
      for (const std::string& name : *names) {
        out.push_back(m_.function(name));
        if (!out.back() || !out.back()->has_body)
          throw Fault("there is no function '" + name + "' with a body");
      }
      return out;
    }
    const Prototype& p = find_label(prototypes_, {scopes_.back(), c.list}, here);
    for (const Function* f : graph_.taken())
      if (sizes_of(f->results) == p.first && sizes_of(f->parameters) == p.second) out.push_back(f);
    std::sort(out.begin(), out.end(), [](const auto* a, const auto* b) { return a->address < b->address; });
    return out;
  }
  static std::vector<uint64_t> sizes_of(const std::vector<Parameter>& parameters) {
    std::vector<uint64_t> out;
    for (const Parameter& p : parameters) out.push_back(p.bytes);
    return out;
  }
  // .callprototype (.param .b32 _) _ (.param .align 8 .b8 _[16]);
  void prototype(const Label& here) {
    advance();
    Prototype& p = prototypes_[here];
    if (is("(")) p.first = sizes_in_parentheses();
    take();
    if (is("(")) p.second = sizes_in_parentheses();
    while (take() != ";") {}
  }

  // They stand before the kernel's own body, so that lanes which are in one come back before others go on.
  void functions_that_call_themselves(uint32_t line) {
    const auto& functions = graph_.recursive();
    if (functions.empty()) return;
    frames_.begin(functions, line);
    Instruction begin;
    begin.line = line;
    begin.opcode = opcode("bra");
    choose(k_.opcodes[begin.opcode], begin);
    const Label own = unwritten_label("body of the kernel");
    jump(begin, own);
    for (const Function* f : functions) {
      frames_.of(f)->scope = unwritten_label(f->name).first;
      targets_[{frames_.of(f)->scope, kReturns}] = {};
    }
    for (const Function* f : functions) {
      Instruction call = begin;
      call.line = f->line;
      call.opcode = opcode("call");
      frame_ = frames_.of(f);
      names_.list_in(&frame_->registers);
      const Label start{frame_->scope, " body"}, end{frame_->scope, " end"};
      place_label(start);
      names_.open();
      for (const auto* variables : {&frame_->results, &frame_->parameters})
        for (const Variable& v : *variables) names_.declare(v);
      body_of(*f, end);
      names_.close();
      names_.list_in(nullptr);
      place_label(end);
      frames_.restore(call, *frame_);
      Operand list;
      list.what = Operand::What::symbol;
      Instruction back = frames_.make(call, "brx.idx", {Frames::operand(Type::b32, frames_.back()), list});
      back.code = static_cast<uint32_t>(indexed_.size());
      indexed_.push_back({k_.code.size(), {frame_->scope, kReturns}});
      add(back);
      place_label({frame_->scope, kEnter});
      frames_.keep(call, *frame_);
      jump(call, start);
      frame_ = nullptr;
    }
    place_label(own);
  }

  void check_parameters(const Function& f, const std::vector<Parameter>& parameters,
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
    }
  }
  void bind_parameters(const std::vector<Parameter>& parameters, const std::vector<std::string>& given) {
    for (size_t n = 0; n < given.size(); ++n) {
      Variable own = *names_.find_variable(given[n]);
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
    if (message->framed) i.s[i.sources++] = names_.frame;
    add(i);
  }

  // What a table has under a label, which the scope or one around it declares.
  template <class T> const T* look_for(const std::map<Label, T>& table, Label label) const {
    auto found = table.find(label);
    while (found == table.end() && (label.first = parents_[label.first]) != kNoScope)
      found = table.find(label);
    return found == table.end() ? nullptr : &found->second;
  }
  template <class T>
  const T& find_label(const std::map<Label, T>& table, const Label& label, size_t instruction) {
    const T* found = look_for(table, label);
    if (!found) fail_at(k_.code[instruction].line, "there is no label '" + label.second + "'");
    return *found;
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

  // Of instructions without a guard that neither branch nor wait, nor are counted whether counters are asked
  // for or not, nor ask for the count.
  void measure_stretches() {
    uint32_t behind = 0;
    for (auto i = k_.code.rbegin(); i != k_.code.rend(); ++i)
      i->stretch = behind =
          i->flow == Flow::plain && !i->has_guard && !i->unpinned && i->handler != &read_clock ? behind + 1
                                                                                               : 0;
  }

  static constexpr size_t kNoScope = ~size_t{0};
  static constexpr uint64_t kMostRegisters = 1u << 20, kMostBytes = 1u << 24, kMostAlign = 1024,
                            kMostInstructions = 1u << 18, kMostCopies = 1u << 13, kMostNested = 64;
  // Where a function is called, its body is read once more. Each function that calls the next one twice
  // doubles what there is to read, so a few kilobytes took seconds. Real kernels stay far below this many
  // words.
  static constexpr uint64_t kFewWords = 1u << 12, kWordsOfByte = 8;
  struct Jump {
    size_t instruction;
    Label to;
  };
  static constexpr const char *kEnter = " enter", *kReturns = " returns";
  const Module& m_;
  Kernel k_;
  Names names_;
  Binder binder_;
  CallGraph graph_;
  Frames frames_;
  Frame* frame_ = nullptr;                // of the function that calls itself whose body is being read
  std::vector<size_t> scopes_, parents_;  // open scopes; the parent of each scope there was
  std::map<Label, uint32_t> labels_;
  std::map<Label, std::vector<std::string>> targets_;  // what .branchtargets lists
  std::vector<Jump> jumps_, indexed_;                  // to a label; by a list of labels
  std::vector<size_t> copies_;                         // instructions, products of wgmma among them
  size_t tiles_ = 0;                                   // instructions that carry those out
  std::map<Label, Prototype> prototypes_;
  std::vector<Label> ends_;  // of the functions whose bodies are being read
  std::unordered_map<std::string, uint32_t> opcode_index_;
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> source_index_;
  uint32_t source_ = 0;
};

}  // namespace

Kernel decode(const Module& module, const Entry& entry) { return Decoder(module, entry).read(); }

}  // namespace assay::ptx
