#include "compare/subjects/ptx_expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "contract/line.h"

namespace assay {

namespace {

constexpr WideInt kLeast = std::numeric_limits<int64_t>::min(),
                  kMostSigned = std::numeric_limits<int64_t>::max(),
                  kMostUnsigned = std::numeric_limits<uint64_t>::max();

// A descent over the ranks of the operators.
class Expression {
 public:
  // Values are up to `most`. `syntax_only`: values mean nothing, and none of them is an error.
  Expression(std::string_view text, WideInt most, bool syntax_only, const Lookup& lookup)
      : text_(text), lookup_(lookup), most_(most), syntax_only_(syntax_only) {}
  Result<WideInt> value() {
    const WideInt v = sum();
    skip();
    if (at_ != text_.size()) fail("expected an operator");
    if (error_) return *error_;
    return v;
  }

 private:
  void fail(const std::string& what) {
    if (!error_) error_ = Error{what + " in '" + std::string(text_) + "'", at_ + 1, ""};
  }
  // An error of the values, not of the text.
  WideInt no_value(const std::string& what) {
    if (!syntax_only_) fail(what);
    return 1;
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  WideInt checked(WideInt v) { return v < kLeast || v > most_ ? no_value("more than 64 bits") : v; }
  WideInt times(WideInt a, WideInt b) {
    WideInt v = 0;
    return __builtin_mul_overflow(a, b, &v) ? no_value("more than 64 bits") : checked(v);
  }
  WideInt sum() {
    WideInt v = product();
    while (!error_) {
      if (take('+')) v = checked(v + product());
      else if (take('-')) v = checked(v - product());
      else break;
    }
    return v;
  }
  WideInt product() {
    WideInt v = factor();
    while (!error_) {
      if (take('*')) v = times(v, factor());
      else if (take('/')) v = divided(v, factor(), false);
      else if (take('%')) v = divided(v, factor(), true);
      else break;
    }
    return v;
  }
  WideInt divided(WideInt a, WideInt b, bool rest) {
    if (b == 0) return no_value("division by zero");
    return checked(rest ? a % b : a / b);
  }
  WideInt factor() {
    skip();
    // A bound on nesting: a text of parentheses alone must not use up the stack.
    if (++depth_ > 200) fail("too deep");
    if (error_) return 0;
    const WideInt v = take('-') ? checked(-factor()) : take('(') ? closed(sum()) : word();
    --depth_;
    return v;
  }
  WideInt closed(WideInt v) {
    if (!take(')')) fail("expected ')'");
    return v;
  }
  WideInt word() {
    const size_t from = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    const std::string_view name = text_.substr(from, at_ - from);
    if (name.empty()) return fail("expected a number or a name"), 0;
    if (std::isdigit(static_cast<unsigned char>(name[0]))) {
      uint64_t v = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), v);
      if (error != std::errc() || end != name.data() + name.size())
        fail("'" + std::string(name) + "' is not an integer");
      return checked(v);
    }
    if (take('(')) return call(name);
    const auto v = lookup_(name);
    if (!v) fail("unknown name '" + std::string(name) + "'");
    return v.value_or(0);
  }
  WideInt call(std::string_view name) {
    const WideInt a = sum();
    if (!take(',')) fail("expected ','");
    const WideInt b = closed(sum());
    if (name == "min") return std::min(a, b);
    if (name == "max") return std::max(a, b);
    if (name != "cdiv") fail("unknown function '" + std::string(name) + "'");
    if (b <= 0 || a < 0) return no_value("cdiv of a negative number, or with a divisor that is not positive");
    return error_ ? 0 : a / b + (a % b != 0);
  }

  std::string_view text_;
  const Lookup& lookup_;
  WideInt most_;
  bool syntax_only_;
  size_t at_ = 0;
  int depth_ = 0;
  std::optional<Error> error_;
};

// Whether some line has the name.
bool is_known(std::string_view name) {
  if (name == "rows" || name == "cols") return true;
  const size_t dot = name.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? name : name.substr(dot + 1);
  if (dot != std::string_view::npos && dot > 0)
    for (const std::string_view size : {"rows", "cols", "padded_rows", "padded_cols", "bytes"})
      if (last == size) return true;
  if (name == "rng.seed" || name == "rng.offset" || name == "rng.member") return true;
  return std::any_of(line_keys().begin(), line_keys().end(),
                     [&](const KeyInfo& key) { return key.name == last; });
}

std::optional<Error> out_of(const Bounds& b, std::string_view expression, WideInt v) {
  if (v >= b.least && v <= b.most) return {};
  return Error{"'" + std::string(expression) + "' is " + to_text(v) + ", and " + b.what + " is " +
                   to_text(b.least) + " to " + to_text(b.most),
               0, ""};
}

}  // namespace

std::string to_text(WideInt v) {
  std::string digits;
  for (WideInt rest = v < 0 ? -v : v; rest != 0 || digits.empty(); rest /= 10)
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(rest % 10)));
  return v < 0 ? "-" + digits : digits;
}

Bounds shared_bounds() { return {"a size of shared memory", 0, 0x7FFFFFFF}; }
Bounds map_bounds() { return {"a number of a tensor map", 0, 0xFFFFFFFF}; }
Bounds memory_bounds() { return {"a size of memory", 0, WideInt{1} << 32}; }

Result<int64_t> evaluate(std::string_view expression,
                         const std::function<std::optional<int64_t>(std::string_view)>& lookup) {
  const Lookup wide = [&](std::string_view name) -> std::optional<WideInt> { return lookup(name); };
  const auto v = Expression(expression, kMostSigned, false, wide).value();
  if (!v) return v.error();
  return static_cast<int64_t>(*v);
}

Result<WideInt> evaluate_within(std::string_view expression, const Bounds& bounds, const Lookup& lookup) {
  auto v = Expression(expression, kMostUnsigned, false, lookup).value();
  if (!v) return v;
  if (const auto error = out_of(bounds, expression, *v)) return *error;
  return v;
}

std::optional<Error> check_expression(std::string_view expression, const Bounds& bounds) {
  bool named = false;
  std::string unknown;
  const Lookup lookup = [&](std::string_view name) -> std::optional<WideInt> {
    named = true;
    if (is_known(name)) return 1;
    unknown = name;
    return {};
  };
  const auto read = Expression(expression, kMostUnsigned, true, lookup).value();
  if (!read) {
    Error e = read.error();
    if (!unknown.empty()) e.message += "; the names are " + std::string(kPermittedNames);
    return e;
  }
  if (named) return {};
  const auto v = evaluate_within(expression, bounds, lookup);
  return v ? std::nullopt : std::optional<Error>(v.error());
}

}  // namespace assay
