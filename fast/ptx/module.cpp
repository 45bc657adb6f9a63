#include "fast/ptx/module.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "fast/ptx/decode.h"

namespace assay::ptx {

std::string Entry::signature() const {
  std::string out = name + "(";
  for (const Parameter& p : parameters) {
    if (&p != &parameters.front()) out += ", ";
    out += "." + std::string(info(p.type).name) + (p.pointer ? " .ptr" : "") + " " + p.name;
    if (p.array) out += "[" + std::to_string(p.bytes / static_cast<uint64_t>(info(p.type).bytes())) + "]";
  }
  out += ")";
  if (required_block[0])
    out += " .reqntid " + std::to_string(required_block[0]) + ", " + std::to_string(required_block[1]) +
           ", " + std::to_string(required_block[2]);
  return out;
}

// Reads the module's own level, from directive to directive.
class Module::Reader {
 public:
  explicit Reader(Module& module) : m_(module), lexer_(module.text_) { advance(); }

  void read() {
    while (!now_.text.empty()) directive();
    if (m_.version_.empty()) fail("the text is no PTX module: it has no .version");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_at(now_.line, what); }
  void advance() { now_ = lexer_.next(); }
  bool is(std::string_view word) const { return now_.text == word; }
  std::string_view take() {
    if (now_.text.empty()) fail("the text ends too early");
    const std::string_view word = now_.text;
    advance();
    return word;
  }
  void need(std::string_view word) {
    if (!is(word)) fail("expected '" + std::string(word) + "', found '" + std::string(now_.text) + "'");
    advance();
  }
  uint64_t number() {
    const uint32_t line = now_.line;
    try {
      return parse_number(take()).bits;
    } catch (const Fault& e) {
      fail_at(line, e.what());
    }
  }
  void skip_line() {
    for (const uint32_t line = now_.line; !now_.text.empty() && now_.line == line;) advance();
  }
  void skip_to(std::string_view word) {
    while (!is(word)) take();
    advance();
  }
  // Passes over { ... }, with what is nested in it.
  void skip_braces() {
    if (!is("{")) need("{");
    lexer_.skip_body();
    advance();
  }

  void directive() {
    const std::string_view word = now_.text;
    if (word == ".version" || word == ".target") {
      const uint32_t line = now_.line;
      advance();
      std::string& to = word == ".version" ? m_.version_ : m_.target_;
      while (!now_.text.empty() && now_.line == line) to += take();
    } else if (word == ".address_size") {
      advance();
      if (number() != 64) fail(".address_size must be 64");
    } else if (word == ".file") {
      advance();
      const uint64_t n = number();
      const std::string_view name = take();
      m_.files_[n] = name.size() > 2 && name[0] == '"' ? name.substr(1, name.size() - 2) : name;
      while (is(",")) advance(), take();
    } else if (word == ".section") {
      advance();
      while (!is("{")) take();
      skip_braces();
    } else if (word == ".alias" || word == ".pragma") {
      skip_to(";");
    } else if (word == ";") {
      advance();
    } else {
      declaration();
    }
  }

  // An entry, a function or a variable, with its linking directives.
  void declaration() {
    while (is(".visible") || is(".extern") || is(".weak") || is(".common")) advance();
    if (is(".entry")) return advance(), entry();
    if (is(".func")) return function();
    if (is(".global") || is(".const") || is(".shared")) return variable();
    fail("'" + std::string(now_.text) + "' is no directive of a module that is understood");
  }

  // A declaration, or a definition, whose body is read where a kernel calls it.
  void function() {
    advance();
    Function f;
    if (is("(")) f.results = parameters_of_function();
    f.name = take();
    if (is("(")) f.parameters = parameters_of_function();
    while (!is("{") && !is(";")) take();  // .noreturn and the like
    f.has_body = is("{");
    f.body = lexer_.position();
    f.line = lexer_.line();
    if (f.has_body) skip_braces();
    else advance();
    f.address = kFunctions + 16 * (m_.functions_.size() + 1);
    Function& known = m_.functions_[f.name];
    if (known.address) f.address = known.address, f.in_variable = known.in_variable;
    if (known.has_body && f.has_body) fail("there are two functions '" + f.name + "'");
    if (!known.has_body) known = std::move(f);
  }
  std::vector<Parameter> parameters_of_function() {
    std::vector<Parameter> out;
    need("(");
    while (!is(")")) {
      if (is(".reg")) {
        Parameter p;
        p.in_register = true;
        while (now_.text.starts_with('.')) take();
        p.name = take();
        out.push_back(std::move(p));
      } else {
        uint64_t top = 0;
        out.push_back(parameter(top));
      }
      if (!is(")")) need(",");
    }
    need(")");
    return out;
  }

  void entry() {
    Entry e;
    e.name = take();
    if (is("(")) {
      advance();
      while (!is(")")) {
        e.parameters.push_back(parameter(e.parameter_bytes));
        if (!is(")")) need(",");
      }
      advance();
    }
    while (!is("{")) tuning(e);
    // The token `{` has been read; the decoder begins behind it.
    e.body = lexer_.position();
    e.line = lexer_.line();
    skip_braces();
    const std::string name = e.name;
    if (!m_.entries_.emplace(name, std::move(e)).second) fail("there are two entries '" + name + "'");
  }

  Parameter parameter(uint64_t& top) {
    Parameter p;
    need(".param");
    while (now_.text.substr(0, 1) == ".") {
      const std::string_view word = take();
      if (word == ".align") {
        const uint64_t align = number();
        if (!p.pointer) p.align = align;  // behind .ptr it is that of what is pointed to
      } else if (word == ".ptr") {
        p.pointer = true;
      } else if (const auto type = type_named(word.substr(1))) {
        p.type = *type;
      } else if (word != ".global" && word != ".shared" && word != ".local" && word != ".const") {
        fail("'" + std::string(word) + "' is no part of a parameter that is understood");
      }
    }
    p.name = take();
    const auto size = static_cast<uint64_t>(info(p.type).bytes());
    p.bytes = size;
    if (is("[")) {
      advance();
      p.array = true;
      const uint64_t count = number();
      p.bytes = count > kMostParameterBytes ? 0 : size * count;
      need("]");
    }
    p.align = std::max(p.align, size);
    if (p.bytes == 0 || p.bytes > kMostParameterBytes || (p.align & (p.align - 1)) || p.align > 128)
      fail("parameter '" + p.name + "' has no size or alignment that an entry may have");
    top = align_up(top, p.align);
    p.offset = top;
    top += p.bytes;
    return p;
  }

  // .maxntid, .reqntid and what else tunes an entry (11.4).
  void tuning(Entry& e) {
    const std::string_view word = take();
    if (word == ".maxntid" || word == ".reqntid") {
      auto& to = word == ".maxntid" ? e.greatest_block : e.required_block;
      to = {1, 1, 1};
      for (size_t n = 0; n < 3; ++n) {
        to[n] = static_cast<uint32_t>(number());
        if (!is(",")) break;
        advance();
      }
    } else if (word == ".pragma") {
      skip_to(";");
    } else if (word == ".minnctapersm" || word == ".maxnreg" || word == ".maxclusterrank" ||
               word == ".maxnctapersm") {
      number();
    } else if (word == ".reqnctapercluster") {
      do {
        if (is(",")) advance();
        if (number() > 1) fail("clusters of more than one block are not understood");
      } while (is(","));
    } else if (word != ".noreturn" && word != ".explicitcluster" && word != ".blocksareclusters") {
      fail("'" + std::string(word) + "' is no directive of an entry that is understood");
    }
  }

  void variable() {
    Variable v;
    const std::string_view space = take();
    v.space = space == ".shared" ? Space::shared : space == ".const" ? Space::constant : Space::global;
    while (now_.text.substr(0, 1) == ".") {
      const std::string_view word = take();
      if (word == ".align") v.align = alignment();
      else if (const auto type = type_named(word.substr(1))) v.type = *type;
      else if (word != ".attribute")
        fail("'" + std::string(word) + "' is no part of a variable that is understood");
    }
    v.name = take();
    const auto size = static_cast<uint64_t>(info(v.type).bytes());
    v.align = std::max({v.align, size, uint64_t{1}});
    v.bytes = size;
    while (is("[")) {
      advance();
      const uint64_t count = is("]") ? 0 : number();
      if (count > kMostVariableBytes)
        fail("variable '" + v.name + "' is larger than " + std::to_string(kMostVariableBytes) + " bytes");
      v.bytes *= count;
      need("]");
      if (v.bytes > kMostVariableBytes)
        fail("variable '" + v.name + "' is larger than " + std::to_string(kMostVariableBytes) + " bytes");
    }
    if (v.space != Space::shared) place(v, size);
    if (is("=")) initialise(v, size);
    need(";");
    m_.variables_[v.name] = v;
  }

  uint64_t alignment() {
    const uint64_t align = number();
    if (!std::has_single_bit(align) || align > kMostAlign) fail("an alignment is no power of two up to 1024");
    return align;
  }

  void place(Variable& v, uint64_t size) {
    v.align = std::max<uint64_t>(v.align, 256);
    placed_ += v.bytes;
    if (placed_ > kMostVariableBytes)
      fail("the variables of the module take more than " + std::to_string(kMostVariableBytes >> 20) +
           " MiB up to '" + v.name + "'");
    m_.storage_.push_back(std::make_unique<std::byte[]>(v.bytes + size + v.align));
    v.address = align_up(reinterpret_cast<uint64_t>(m_.storage_.back().get()), v.align);
  }

  // Numbers, and addresses of variables that stand before (5.4.4).
  void initialise(Variable& v, uint64_t size) {
    if (v.space == Space::shared) fail("a shared variable has no initial value");
    uint64_t at = 0;
    int depth = 0;
    do {
      advance();
      while (is("{")) ++depth, advance();
      if (at + size > v.bytes) fail("too many initial values of '" + v.name + "'");
      const uint64_t value = initial_value();
      std::memcpy(reinterpret_cast<void*>(v.address + at), &value, std::min<uint64_t>(size, sizeof value));
      at += size;
      while (is("}")) --depth, advance();
    } while (is(","));
    if (depth != 0) fail("the initial values of '" + v.name + "' do not end");
  }

  uint64_t initial_value() {
    const bool negative = is("-");
    if (negative) advance();
    if (begins_number(now_.text)) {
      const uint64_t value = number();
      return negative ? 0 - value : value;
    }
    const bool generic = is("generic");
    if (generic) advance(), need("(");
    const auto found = m_.variables_.find(now_.text);
    const auto function = m_.functions_.find(now_.text);
    if (found == m_.variables_.end() && function == m_.functions_.end())
      fail("no variable '" + std::string(now_.text) + "' stands before");
    const bool of_variable = found != m_.variables_.end();
    if (!of_variable) function->second.in_variable = true;
    uint64_t value = of_variable ? found->second.address : function->second.address;
    advance();
    if (generic) need(")");
    if (is("+")) advance(), value += number();
    return value;
  }

  static constexpr uint64_t kMostParameterBytes = 32764, kMostVariableBytes = uint64_t{1} << 25,
                            kMostAlign = 1024, kFunctions = 0x7D0000000000;
  uint64_t placed_ = 0;  // bytes of variables in global and constant memory
  Module& m_;
  Lexer lexer_;
  Token now_;
};

Module::Module(std::string text) : text_(std::move(text)) { Reader(*this).read(); }

std::vector<std::string> Module::entries() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const Entry& Module::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found != entries_.end()) return found->second;
  std::string known;
  for (const auto& [other, entry] : entries_) known += (known.empty() ? "" : ", ") + other;
  throw Fault("the module has no entry '" + std::string(name) + "'; it has " +
              (known.empty() ? "none" : known));
}

const Function* Module::function(std::string_view name) const {
  const auto found = functions_.find(name);
  return found == functions_.end() ? nullptr : &found->second;
}

const Kernel& Module::kernel(std::string_view name) {
  const Entry& e = entry(name);
  const std::lock_guard lock(decoding_);
  auto& slot = kernels_[e.name];
  if (!slot) slot = std::make_unique<Kernel>(decode(*this, e));
  return *slot;
}

std::string Module::file(uint64_t number) const {
  const auto found = files_.find(number);
  return found == files_.end() ? "file " + std::to_string(number) : found->second;
}

}  // namespace assay::ptx
