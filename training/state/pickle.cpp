#include "training/state/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

namespace assay::training::pickle {

namespace {

using std::string;

enum Op : unsigned char {
  kMark = '(',
  kStop = '.',
  kNone = 'N',
  kTrue = 0x88,
  kFalse = 0x89,
  kInt = 'J',
  kLong = 0x8A,
  kFloat = 'G',
  kString = 'X',
  kBytes = 'B',
  kEmptyList = ']',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItems = 'u',
  kTuple = 't',
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kProto = 0x80
};

// ---- writing ---------------------------------------------------------------------------

struct Writer {
  Bytes out;
  void op(unsigned char c) { out.push_back(std::byte{c}); }
  template <class T> void little(T v) {
    for (size_t i = 0; i < sizeof v; ++i) out.push_back(static_cast<std::byte>(v >> (8 * i) & 0xFF));
  }
  void text(const string& s) {
    op(kString);
    little(static_cast<uint32_t>(s.size()));
    for (const char c : s) out.push_back(static_cast<std::byte>(c));
  }
  void all(const Items& items) {
    for (const Value& v : items) write(v);
  }
  void write(const Value& v) { std::visit(*this, v.is); }

  void operator()(std::monostate) { op(kNone); }
  void operator()(bool b) { op(b ? kTrue : kFalse); }
  void operator()(int64_t i) {
    if (i == static_cast<int32_t>(i)) {
      op(kInt);
      return little(static_cast<uint32_t>(static_cast<int32_t>(i)));
    }
    op(kLong);
    op(8);
    little(static_cast<uint64_t>(i));
  }
  void operator()(double d) {
    op(kFloat);
    const auto bits = std::bit_cast<uint64_t>(d);
    for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<std::byte>(bits >> shift & 0xFF));
  }
  void operator()(const string& s) { text(s); }
  void operator()(const Bytes& b) {
    op(kBytes);
    little(static_cast<uint32_t>(b.size()));
    out.insert(out.end(), b.begin(), b.end());
  }
  void operator()(const List& l) {
    op(kEmptyList);
    op(kMark);
    all(l.items);
    op(kAppends);
  }
  void operator()(const Tuple& t) {
    op(kMark);
    all(t.items);
    op(kTuple);
  }
  void operator()(const Dict& d) {
    op(kEmptyDict);
    op(kMark);
    for (const auto& [key, value] : d.items) text(key), write(value);
    op(kSetItems);
  }
  void operator()(const Object& o) {
    text(o.module);
    text(o.name);
    op(kStackGlobal);
    (*this)(Tuple{o.arguments});
    op(kReduce);
  }
};

// ---- reading ---------------------------------------------------------------------------

struct Reader {
  std::span<const std::byte> bytes;
  size_t at = 0;

  std::span<const std::byte> take(uint64_t n) {
    if (n > bytes.size() - at) throw Unreadable("a pickle ends inside an argument");
    const auto part = bytes.subspan(at, static_cast<size_t>(n));
    at += static_cast<size_t>(n);
    return part;
  }
  unsigned char byte() { return std::to_integer<unsigned char>(take(1)[0]); }
  uint64_t little(size_t n) {
    uint64_t v = 0;
    const auto part = take(n);
    for (size_t i = 0; i < n; ++i) v |= std::to_integer<uint64_t>(part[i]) << (8 * i);
    return v;
  }
  string text(uint64_t n) {
    const auto part = take(n);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  string line() {
    string out;
    for (char c = static_cast<char>(byte()); c != '\n'; c = static_cast<char>(byte())) out += c;
    return out;
  }
};

// The bytes that follow an opcode: how many, or how many bytes of length stand before them, or lines of text.
enum class Argument : uint8_t { none, fixed, counted, lines };
struct Form {
  Argument kind;
  size_t n;
};
const std::map<unsigned char, Form>& forms() {
  static const std::map<unsigned char, Form> table = [] {
    std::map<unsigned char, Form> t;
    for (const unsigned char c : string("(.012NQRabdel}st)]uo")) t[c] = {Argument::none, 0};
    for (const int c : {0x81, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8F, 0x90, 0x91, 0x92, 0x93, 0x94, 0x97, 0x98})
      t[static_cast<unsigned char>(c)] = {Argument::none, 0};
    for (const auto& [c, n] : std::initializer_list<std::pair<int, size_t>>{{0x80, 1},
                                                                            {'K', 1},
                                                                            {'M', 2},
                                                                            {'J', 4},
                                                                            {'G', 8},
                                                                            {'h', 1},
                                                                            {'j', 4},
                                                                            {'q', 1},
                                                                            {'r', 4},
                                                                            {0x82, 1},
                                                                            {0x83, 2},
                                                                            {0x84, 4},
                                                                            {0x95, 8}})
      t[static_cast<unsigned char>(c)] = {Argument::fixed, n};
    for (const auto& [c, n] : std::initializer_list<std::pair<int, size_t>>{{'U', 1},
                                                                            {'T', 4},
                                                                            {'X', 4},
                                                                            {0x8C, 1},
                                                                            {0x8D, 8},
                                                                            {'B', 4},
                                                                            {'C', 1},
                                                                            {0x8E, 8},
                                                                            {0x96, 8},
                                                                            {0x8A, 1},
                                                                            {0x8B, 4}})
      t[static_cast<unsigned char>(c)] = {Argument::counted, n};
    for (const unsigned char c : string("IFLSVgpP")) t[c] = {Argument::lines, 1};
    for (const unsigned char c : string("ci")) t[c] = {Argument::lines, 2};
    return t;
  }();
  return table;
}

bool is_text(unsigned char op) { return op == 'X' || op == 0x8C || op == 0x8D || op == 'U' || op == 'T'; }

class Machine {
 public:
  explicit Machine(std::span<const std::byte> bytes) : in_{bytes} {}
  Value run() {
    if (in_.byte() != kProto || in_.byte() != 4) throw Unreadable("expected a pickle of protocol 4");
    for (unsigned char op = in_.byte(); op != kStop; op = in_.byte()) step(op);
    return pop();
  }

 private:
  Value pop() {
    if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size()))
      throw Unreadable("a pickle takes more than it has");
    Value v = std::move(stack_.back());
    stack_.pop_back();
    return v;
  }
  Items since_mark() {
    if (marks_.empty()) throw Unreadable("a pickle closes what it has not opened");
    Items out(std::make_move_iterator(stack_.begin() + static_cast<ptrdiff_t>(marks_.back())),
              std::make_move_iterator(stack_.end()));
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  template <class T> T& top() {
    if (stack_.empty() || !std::get_if<T>(&stack_.back().is))
      throw Unreadable("a pickle fills what is not there");
    return std::get<T>(stack_.back().is);
  }
  template <class T> T popped() {
    Value v = pop();
    T* t = std::get_if<T>(&v.is);
    if (!t) throw Unreadable("a pickle has another type than its opcode needs");
    return std::move(*t);
  }
  void push(Value v) { stack_.push_back(std::move(v)); }

  void step(unsigned char op) {
    switch (op) {
      case kNone: return push({std::monostate{}});
      case kTrue: return push({true});
      case kFalse: return push({false});
      case kInt: return push({int64_t{static_cast<int32_t>(in_.little(4))}});
      case kLong:
        if (in_.byte() != 8) throw Unreadable("an integer of another length than 8 bytes");
        return push({static_cast<int64_t>(in_.little(8))});
      case kFloat: {
        uint64_t bits = 0;
        for (const std::byte b : in_.take(8)) bits = bits << 8 | std::to_integer<uint64_t>(b);
        return push({std::bit_cast<double>(bits)});
      }
      case kString: return push({in_.text(in_.little(4))});
      case kBytes: {
        const auto part = in_.take(in_.little(4));
        return push({Bytes(part.begin(), part.end())});
      }
      case kMark: return marks_.push_back(stack_.size());
      case kEmptyList: return push({List{}});
      case kEmptyDict: return push({Dict{}});
      case kTuple: return push({Tuple{since_mark()}});
      case kAppends: {
        Items items = since_mark();
        auto& list = top<List>().items;
        list.insert(list.end(), items.begin(), items.end());
        return;
      }
      case kSetItems: return set_items();
      case kStackGlobal: {
        string name = popped<string>(), module = popped<string>();
        return push({Object{std::move(module), std::move(name), {}}});
      }
      case kReduce: {
        Tuple arguments = popped<Tuple>();
        top<Object>().arguments = std::move(arguments.items);
        return;
      }
      default: throw Unreadable("an opcode that extra states do not have");
    }
  }
  void set_items() {
    Items items = since_mark();
    if (items.size() % 2 != 0) throw Unreadable("a dictionary with a key and no value");
    Dict& dict = top<Dict>();
    for (size_t i = 0; i < items.size(); i += 2) {
      const string* key = items[i].as<string>();
      if (!key) throw Unreadable("a key that is no string");
      dict.items.push_back({*key, std::move(items[i + 1])});
    }
  }

  Reader in_;
  Items stack_;
  std::vector<size_t> marks_;
};

}  // namespace

const Value* Dict::find(const string& key) const {
  for (const auto& [k, v] : items)
    if (k == key) return &v;
  return nullptr;
}

namespace {

// What stands between the quotes of a line; a pickle's other strings have none.
string unquoted(const string& line) {
  if (line.size() < 2 || line.front() != line.back() || (line.front() != '\'' && line.front() != '"'))
    throw Unreadable("a string without quotes");
  return line.substr(1, line.size() - 2);
}

}  // namespace

Bytes dumps(const Value& v) {
  Writer w;
  w.op(kProto);
  w.op(4);
  w.write(v);
  w.op(kStop);
  return std::move(w.out);
}

Value loads(std::span<const std::byte> bytes) { return Machine(bytes).run(); }

Scan scan(std::span<const std::byte> bytes) {
  Scan out;
  Reader in{bytes};
  for (;;) {
    const unsigned char op = in.byte();
    if (op == kStop) return out;
    const auto form = forms().find(op);
    if (form == forms().end()) throw Unreadable("an unknown opcode");
    const auto [kind, n] = form->second;
    if (kind == Argument::fixed) in.take(n);
    if (kind == Argument::counted) {
      const string body = in.text(in.little(n));
      if (is_text(op)) out.strings.push_back(body);
    }
    if (kind == Argument::lines) {
      std::vector<string> lines;
      for (size_t i = 0; i < n; ++i) lines.push_back(in.line());
      if (op == kGlobal) out.globals.push_back(lines[0] + " " + lines[1]);  // not of an instance, 'i'
      else if (op == 'V') out.strings.push_back(lines[0]);
      else if (op == 'S') out.strings.push_back(unquoted(lines[0]));
    }
    if (op == kStackGlobal) {
      const bool named = out.strings.size() >= 2;
      out.globals.push_back(named ? out.strings[out.strings.size() - 2] + " " + out.strings.back() : "");
    }
  }
}

}  // namespace assay::training::pickle
