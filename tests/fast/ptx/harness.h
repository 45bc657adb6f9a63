// Small PTX programs for tests: one instruction for every element of some arrays, or a body of one's own.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "fast/ptx/run.h"

namespace assay::ptx {

inline constexpr const char* kHead = ".version 9.0\n.target sm_100a\n.address_size 64\n";

// A column of operands: values of `bits` bits.
struct Column {
  int bits = 32;
  std::vector<uint64_t> values;
};

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// A kernel that runs `instruction` for each element. $d is its destination, $a to $e the sources, %p0 to %p9
// are predicates.
inline std::string program(const std::string& instruction, int out_bits, const std::vector<Column>& sources) {
  static constexpr char kNames[] = "abcde";
  std::string parameters = ".param .u64 out, .param .u32 count", loads,
              body = replaced(instruction, "$d", "%out");
  std::string registers = ".reg .b" + std::to_string(out_bits) + " %out;\n";
  for (size_t k = 0; k < sources.size(); ++k) {
    const std::string name(1, kNames[k]), bits = std::to_string(sources[k].bits),
                                          bytes = std::to_string(sources[k].bits / 8);
    parameters += ", .param .u64 in_" + name;
    registers += ".reg .b" + bits + " %in_" + name + ";\n";
    loads += "ld.param.u64 %at, [in_" + name + "];\nmad.wide.u32 %at, %i, " + bytes + ", %at;\nld.global.b" +
             bits + " %in_" + name + ", [%at];\n";
    body = replaced(body, "$" + name, "%in_" + name);
  }
  return std::string(kHead) + ".visible .entry each(" + parameters +
         ")\n{\n.reg .pred %p<10>;\n.reg .b32 %i, %n, %t, %r<10>;\n.reg .b64 %at, %rd<10>;\n.reg .b16 "
         "%rs<10>;\n" +
         registers +
         "mov.u32 %i, %ctaid.x;\nmov.u32 %n, %ntid.x;\nmov.u32 %t, %tid.x;\nmad.lo.u32 %i, %i, %n, "
         "%t;\nld.param.u32 %n, [count];\n" +
         "setp.ge.u32 %p0, %i, %n;\n@%p0 bra DONE;\n" + loads + body +
         "\nld.param.u64 %at, [out];\nmad.wide.u32 %at, %i, " + std::to_string(out_bits / 8) +
         ", %at;\nst.global.b" + std::to_string(out_bits) + " [%at], %out;\nDONE:\nret;\n}\n";
}

// Calls `f` with a number of the unsigned type that has so many bits.
template <class F> void with_word_of(int bits, F f) {
  switch (bits) {
    case 8: return f(uint8_t{});
    case 16: return f(uint16_t{});
    case 32: return f(uint32_t{});
    case 64: return f(uint64_t{});
    default: FAIL() << "no register has " << bits << " bits";
  }
}

inline std::vector<std::byte> bytes_of(const Column& c) {
  std::vector<std::byte> bytes(c.values.size() * static_cast<size_t>(c.bits / 8));
  with_word_of(c.bits, [&]<class Word>(Word word) {
    for (size_t n = 0; n < c.values.size(); ++n) {
      word = static_cast<Word>(c.values[n]);
      std::memcpy(bytes.data() + n * sizeof(Word), &word, sizeof(Word));
    }
  });
  return bytes;
}

// The parameters of an entry whose pointers and numbers are given in order.
inline std::vector<std::byte> parameters_of(const Entry& e, const std::vector<uint64_t>& values) {
  std::vector<std::byte> out(e.parameter_bytes);
  for (size_t n = 0; n < e.parameters.size(); ++n)
    std::memcpy(out.data() + e.parameters[n].offset, &values[n], e.parameters[n].bytes);
  return out;
}

// What the instruction gives for each element. The columns are equally long.
inline std::vector<uint64_t> evaluate(const std::string& instruction, int out_bits,
                                      const std::vector<Column>& sources) {
  Module module(program(instruction, out_bits, sources));
  const size_t count = sources.front().values.size(), size = static_cast<size_t>(out_bits / 8);
  std::vector<std::byte> out(count * size);
  Memory memory;
  memory.add(out.data(), out.size(), "out");
  std::vector<uint64_t> values = {reinterpret_cast<uint64_t>(out.data()), count};
  std::vector<std::vector<std::byte>> in;
  for (const Column& c : sources) {
    in.push_back(bytes_of(c));
    memory.add(in.back().data(), in.back().size(), "in", false);
    values.push_back(reinterpret_cast<uint64_t>(in.back().data()));
  }
  Launch launch;
  launch.block = {256, 1, 1};
  launch.grid = {static_cast<unsigned>((count + 255) / 256), 1, 1};
  launch.parameters = parameters_of(module.entry("each"), values);
  run(module, "each", launch, memory);
  std::vector<uint64_t> results(count);
  with_word_of(out_bits, [&]<class Word>(Word word) {
    for (size_t n = 0; n < count; ++n) {
      std::memcpy(&word, out.data() + n * sizeof(Word), sizeof(Word));
      results[n] = word;
    }
  });
  return results;
}

// A module with one entry `kernel` of the parameters and the body that are given.
inline std::string kernel_text(const std::string& parameters, const std::string& body) {
  std::string text = kHead;
  text.append(".visible .entry kernel(").append(parameters).append(")\n{\n").append(body).append("\n}\n");
  return text;
}

// The words that a warp stores to `out`, one each lane.
inline std::vector<uint32_t> words_of_warp(const std::string& body, const RunOptions& options) {
  Module m(kernel_text(".param .u64 out", body));
  std::vector<uint32_t> out(kLanes);
  Memory memory;
  memory.add(out.data(), out.size() * 4, "out");
  Launch launch;
  launch.block = {kLanes, 1, 1};
  launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(out.data())});
  run(m, "kernel", launch, memory, options);
  return out;
}

// Pseudo-random bits: the same in every run (splitmix64).
struct Draw {
  uint64_t state = 1;
  uint64_t operator()() {
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
};

}  // namespace assay::ptx
