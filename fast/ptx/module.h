// A module of PTX text: its directives, variables and entries (5, 11). Bodies are read when a kernel is first
// asked for (decode.h).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "fast/ptx/kernel.h"
#include "fast/ptx/text.h"
#include "fast/ptx/types.h"

namespace assay::ptx {

struct Parameter {
  std::string name;
  Type type = Type::b32;
  bool pointer = false;      // .ptr
  bool array = false;        // a struct by value: .b8 name[88]
  bool in_register = false;  // of a function alone: .reg
  uint64_t offset = 0, bytes = 0, align = 1;
};

struct Variable {
  std::string name;
  Space space = Space::global;
  Type type = Type::b8;
  uint64_t bytes = 0;  // 0 where the launch gives the size: .extern .shared name[]
  uint64_t align = 1;
  uint64_t address = 0;  // in its space
  bool of_call = false;  // a .param variable of a body: an argument or a result of a call
  bool framed = false;   // of a function that calls itself: the address counts from its frame (frames.h)
};

// A function that kernels call (10, 11.1).
struct Function {
  std::string name;
  std::vector<Parameter> results, parameters;
  bool has_body = false;
  uint64_t address = 0;      // what a register holds that names it; nothing can be loaded there
  bool in_variable = false;  // the initial value of a variable has its address
  size_t body = 0;           // where the text behind its brace begins
  uint32_t line = 0;         // of that place
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;
  uint64_t parameter_bytes = 0;
  std::array<uint32_t, 3> required_block = {},
                          greatest_block = {};  // .reqntid, .maxntid; zeros where they do not stand
  size_t body = 0;                              // where the text behind the head begins
  uint32_t line = 0;                            // of that place
  // "mxfp8_quant(.u64 .ptr in, .u32 rows)": for errors.
  std::string signature() const;
};

class Module {
 public:
  // Fault: text that is no PTX module, with its line. Kernels are not looked into.
  explicit Module(std::string text);
  Module(const Module&) = delete;

  const std::string& version() const { return version_; }
  const std::string& target() const { return target_; }
  std::vector<std::string> entries() const;
  // Fault: there is no entry of the name; the message lists those that there are.
  const Entry& entry(std::string_view name) const;
  // The function of the name, or null.
  const Function* function(std::string_view name) const;
  const std::map<std::string, Function, std::less<>>& functions() const { return functions_; }
  // The kernel, decoded by the first call. Threads may ask at once. Fault: an unknown form or a wrong
  // operand, with its line and text.
  const Kernel& kernel(std::string_view name);

  const std::string& text() const { return text_; }
  const std::map<std::string, Variable, std::less<>>& variables() const { return variables_; }
  // "mxfp8.cu" of `.file 1 "mxfp8.cu"`; the number itself where there is no such line.
  std::string file(uint64_t number) const;

 private:
  class Reader;
  std::string text_, version_, target_;
  std::map<uint64_t, std::string> files_;
  std::map<std::string, Variable, std::less<>>
      variables_;  // of .global and .const: address is that of their storage
  std::vector<std::unique_ptr<std::byte[]>> storage_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, Function, std::less<>> functions_;
  std::map<std::string, std::unique_ptr<Kernel>, std::less<>> kernels_;
  std::mutex decoding_;  // of kernels_
};

// Rounds up to a multiple of a power of two.
constexpr uint64_t align_up(uint64_t n, uint64_t align) { return (n + align - 1) / align * align; }

}  // namespace assay::ptx
