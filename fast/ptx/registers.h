// The register file of a kernel while it is decoded: names in nested scopes, numbers and special registers as
// registers of their own.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fast/ptx/clocks.h"
#include "fast/ptx/kernel.h"
#include "fast/ptx/module.h"

namespace assay::ptx {

// One of 128 bits is two of 64 behind each other, the lower half first.
struct Register {
  Type type = Type::b32;
  uint32_t place = 0;  // in words, or the index of a predicate
  bool predicate() const { return type == Type::pred; }
  int bits() const { return info(type).bits; }
  bool wide() const { return bits() > 32; }
};

// Names of registers and variables, with the scopes of a body (4.4, 9.7.12.1).
class Names {
 public:
  explicit Names(Kernel& kernel);
  void open() { scopes_.emplace_back(); }
  void close() { scopes_.pop_back(); }

  // Fault: the type has no register, or too many registers are asked for.
  void declare(Type type, std::string_view name) { declare(type, name, 1, false); }
  // `count` registers: name0, name1, ... They take no memory for each until the kernel runs.
  void declare_row(Type type, std::string_view name, uint64_t count) { declare(type, name, count, true); }
  void declare(Variable v) { scopes_.back().variables[v.name] = std::move(v); }
  std::optional<Register> find_register(std::string_view name) const;
  const Variable* find_variable(std::string_view name) const;
  // The register that holds a special register of this name ("%tid.x"), or null.
  const Register* find_special(std::string_view name);
  // Which clock a register stands for, if it does.
  const Clock* clock_at(uint32_t place) const {
    const auto found = clocks_.find(place);
    return found == clocks_.end() ? nullptr : &found->second;
  }

  // A register that the text does not name.
  uint32_t unnamed(bool wide) { return allocate(wide); }
  uint32_t unnamed_predicate() { return k_.predicates++; }
  // A register whose value is told later, by the number that is returned with it.
  std::pair<uint32_t, size_t> later_constant() {
    const uint32_t place = allocate(true);
    k_.constants.push_back({place, true, 0});
    return {place, k_.constants.size() - 1};
  }
  // From now on every register that is declared is also put here; null ends it.
  void list_in(std::vector<Register>* declared) { declared_ = declared; }
  // The register of the address of the frame (frames.h), or kUnused.
  uint32_t frame = kUnused;
  // A register of a constant value. Equal values share one.
  uint32_t constant(uint64_t value, bool wide);
  // The address of memory that the launch adds, `offset` bytes into it; it is known when all variables are.
  uint32_t dynamic_address(uint64_t offset, bool wide);
  void set_dynamic_base(uint64_t base);
  // Where results go that `_` takes: eight bytes a lane, or a predicate.
  uint32_t sink();
  uint32_t predicate_sink();

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  template <class T> using Table = std::unordered_map<std::string, T, Hash, std::equal_to<>>;
  // Registers of one declaration, behind each other; a row is found by the part of its names before the
  // number.
  struct Declared {
    Register first;
    uint64_t count = 1;
    Register at(uint64_t number) const;
  };
  struct Scope {
    Table<Declared> single, rows;
    Table<Variable> variables;
    std::optional<Register> find(std::string_view name) const;
  };
  void declare(Type, std::string_view name, uint64_t count, bool row);
  uint32_t allocate(bool wide);

  Kernel& k_;
  std::vector<Scope> scopes_;
  std::map<std::pair<uint64_t, bool>, uint32_t> constants_;
  std::map<std::pair<uint64_t, bool>, size_t> dynamic_;  // places in Kernel::constants
  Table<Register> specials_;
  std::map<uint32_t, Clock> clocks_;  // by the places of their registers
  uint32_t sink_ = kUnused, predicate_sink_ = kUnused;
  std::vector<Register>* declared_ = nullptr;
};

}  // namespace assay::ptx
