// The bytes of a checkpoint's extra state: Python's pickle format, protocol 4, as far as that state needs it,
// and a scan of any pickle's opcodes that executes nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace assay::training::pickle {

struct Value;
struct Entry;
using Items = std::vector<Value>;
struct List {
  Items items;
};
struct Tuple {
  Items items;
};
struct Dict {
  std::vector<Entry> items;  // in order
  const Value* find(const std::string& key) const;
};
// A call of a global: "module.name"(arguments). Read back it stays this description; nothing is called.
struct Object {
  std::string module, name;
  Items arguments;
};
using Bytes = std::vector<std::byte>;
struct Value {
  std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, List, Tuple, Dict, Object> is;
  template <class T> const T* as() const { return std::get_if<T>(&is); }
};
// Of a dict.
struct Entry {
  std::string key;
  Value value;
};

Bytes dumps(const Value&);

// Thrown where bytes are no pickle, end early, or hold what dumps does not write.
struct Unreadable : std::runtime_error {
  using std::runtime_error::runtime_error;
};
Value loads(std::span<const std::byte>);

// What the opcodes say of a pickle of any protocol. Throws Unreadable where an opcode is unknown, an argument
// is cut off, or the end mark is missing.
struct Scan {
  std::vector<std::string> strings;  // in order, as far as they are written out
  std::vector<std::string> globals;  // "module name"
};
Scan scan(std::span<const std::byte>);

}  // namespace assay::training::pickle
