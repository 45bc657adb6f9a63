// Values that may be an error instead. Standard-library stand-in for std::expected (C++23).
#pragma once
#include <cstddef>
#include <string>
#include <utility>
#include <variant>

namespace assay {

// What went wrong, where, and what to type instead.
struct Error {
  std::string message;  // what was expected and what was found
  size_t column = 0;    // 1-based column in the text that was read; 0 where there is no text
  std::string hint;     // the nearest valid word, or what to type next; may be empty

  // One line for a terminal: "column 14: unknown key 'filll' (did you mean 'fill'?)".
  std::string text() const {
    std::string out = column ? "column " + std::to_string(column) + ": " : std::string{};
    out += message;
    if (!hint.empty()) out += " (" + hint + ")";
    return out;
  }
};

// Either a T or an Error. `if (r) use(*r); else report(r.error());`
template <class T> class Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}
  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace assay
