// Wire: values as bytes that another process reads again. One function per type both writes and reads it:
//
//   void wire(Wire& w, Rank& r) { w(r.scale, r.codes, r.trace); }
//
// Numbers, enums, text, JSON, arrays and containers of them have one here, quantized tensors in
// training/formats/wire.h. Arrays that share memory, or are the same object, do so again after they were
// read.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fixtures/json.h"
#include "training/base/array.h"

namespace assay::training {

class Wire {
 public:
  Wire() = default;  // writes
  explicit Wire(std::span<const std::byte> read)
      : reading_(true), left_(read) {}  // reads; `read` outlives it

  bool reading() const { return reading_; }
  // Each of them, in order. Reading throws std::runtime_error where the bytes end too early.
  template <class... Values> void operator()(Values&... values) {
    (static_cast<void>(wire(*this, values)), ...);
  }
  // `bytes` themselves, as many as there are.
  void raw(std::span<std::byte> bytes);
  // A number of elements.
  size_t count(size_t n);
  // What was written.
  const std::vector<std::byte>& bytes() const { return written_; }

 private:
  friend void wire(Wire&, ArrayPtr&);
  bool reading_ = false;
  std::span<const std::byte> left_;
  std::vector<std::byte> written_;
  // Objects by the number under which they travelled first.
  std::vector<ArrayPtr> arrays_;
  std::vector<std::shared_ptr<std::vector<std::byte>>> memories_;
};

template <class T>
requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void wire(Wire& w, T& value) {
  w.raw(std::as_writable_bytes(std::span(&value, 1)));
}
void wire(Wire&, std::string&);
void wire(Wire&, std::vector<std::byte>&);
void wire(Wire&, json::Value&);
void wire(Wire&, ArrayPtr&);  // may be null

template <class A, class B> void wire(Wire& w, std::pair<A, B>& p) { w(p.first, p.second); }
template <class T> void wire(Wire& w, std::optional<T>& o) {
  bool there = o.has_value();
  w(there);
  if (there && !o) o.emplace();
  if (!there) o.reset();
  if (o) w(*o);
}
template <class T> void wire(Wire& w, std::vector<T>& list) {
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no elements to refer to: take another type");
  list.resize(w.count(list.size()));
  for (T& element : list) w(element);
}
template <class T, size_t n> void wire(Wire& w, std::array<T, n>& list) {
  for (T& element : list) w(element);
}
template <class T, size_t n> void wire(Wire& w, T (&list)[n]) {
  for (T& element : list) w(element);
}
template <class K, class V> void wire(Wire& w, std::map<K, V>& m) {
  std::vector<std::pair<K, V>> list(m.begin(), m.end());
  w(list);
  if (w.reading()) m = {list.begin(), list.end()};
}

}  // namespace assay::training
