// wmma.load and wmma.store (9.7.14.4.3, 9.7.14.4.4) beside wmma.mma: products of matrices that lie in memory
// by rows or by columns, and what is wrong with an address or a warp.
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr unsigned kSize = 16;  // rows, columns and products

// Where a matrix lies: whether its rows lie side by side, and from line to line so many elements.
struct Lay {
  bool rows = true;
  unsigned stride = kSize;
  size_t at(unsigned row, unsigned column) const {
    return rows ? size_t{row} * stride + column : size_t{column} * stride + row;
  }
  size_t elements() const { return size_t{stride} * kSize; }
  std::string word() const { return rows ? "row" : "col"; }
  // The operand may be absent where it says nothing.
  std::string operand() const { return stride == kSize ? "" : ", " + std::to_string(stride); }
};
struct Lays {
  Lay a, b, c, d;
};

struct Buffers {
  std::vector<uint16_t> a, b;
  std::vector<uint32_t> c, d;
};

uint16_t bf16(int v) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16); }

const char* const kRegisters =
    ".reg .pred %p;\n.reg .b64 %rd<8>;\n.reg .b32 %a<4>, %b<4>, %t, %u, %n<4>;\n.reg .f32 %c<8>, %d<8>;\n"
    ".shared .align 16 .b8 tile[2048];\n"
    "ld.param.u64 %rd0, [d];\nld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\nld.param.u64 %rd3, [c];\n"
    "mov.u32 %t, %tid.x;\n";
const std::string kA = "{%a0, %a1, %a2, %a3}", kB = "{%b0, %b1, %b2, %b3}",
                  kC = "{%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7}",
                  kD = "{%d0, %d1, %d2, %d3, %d4, %d5, %d6, %d7}";

// Words of A go into shared memory, two columns of lanes at a time.
std::string into_shared(size_t bytes) {
  std::string out =
      "shl.b32 %t, %t, 2;\nmov.u32 %u, tile;\nadd.u32 %u, %u, %t;\ncvt.u64.u32 %rd5, %t;\nadd.u64 "
      "%rd5, %rd5, %rd1;\n";
  for (size_t at = 0; at < bytes; at += 128)
    out += "ld.global.b32 %n0, [%rd5+" + std::to_string(at) + "];\nst.shared.b32 [%u+" + std::to_string(at) +
           "], %n0;\n";
  return out + "bar.warp.sync -1;\n";
}

// How A is reached: its space and its address.
enum class From { global, generic, shared, shared_symbol, shared_generic };

std::string body_of(const Lays& l, From from) {
  std::string body = kRegisters, space = ".global", address = "%rd1";
  if (from == From::generic) space = "";
  if (from >= From::shared) body += into_shared(2 * l.a.elements());
  if (from == From::shared) space = ".shared::cta", address = "%u", body += "mov.u32 %u, tile;\n";
  if (from == From::shared_symbol) space = ".shared", address = "tile";
  if (from == From::shared_generic)
    space = "", address = "%rd6", body += "mov.u64 %rd6, tile;\ncvta.shared.u64 %rd6, %rd6;\n";
  body += "wmma.load.a.sync.aligned." + l.a.word() + ".m16n16k16" + space + ".bf16 " + kA + ", [" + address +
          "]" + l.a.operand() + ";\n";
  // The stride in a register, the address with a displacement.
  body += "mov.u32 %n1, " + std::to_string(l.b.stride) + ";\nadd.u64 %rd2, %rd2, 64;\n";
  body += "wmma.load.b.sync.aligned." + l.b.word() + ".m16n16k16.global.bf16 " + kB + ", [%rd2+-64], %n1;\n";
  body += "wmma.load.c.sync.aligned." + l.c.word() + ".m16n16k16.global.f32 " + kC + ", [%rd3]" +
          l.c.operand() + ";\n";
  body += "wmma.mma.sync.aligned." + l.a.word() + "." + l.b.word() + ".m16n16k16.f32.bf16.bf16.f32 " + kD +
          ", " + kA + ", " + kB + ", " + kC + ";\n";
  body += "wmma.store.d.sync.aligned." + l.d.word() + ".m16n16k16.global.f32 [%rd0], " + kD + l.d.operand() +
          ";\nret;";
  return body;
}

void execute(const std::string& body, Buffers& x, unsigned order = 0) {
  Module module(kernel_text(".param .u64 d, .param .u64 a, .param .u64 b, .param .u64 c", body));
  Memory memory;
  memory.add(x.d.data(), x.d.size() * 4, "d", true, false);
  memory.add(x.a.data(), x.a.size() * 2, "a", false);
  memory.add(x.b.data(), x.b.size() * 2, "b", false);
  memory.add(x.c.data(), x.c.size() * 4, "c", false);
  Launch launch;
  launch.block = {32, 1, 1};
  std::vector<uint64_t> addresses = {reinterpret_cast<uint64_t>(x.d.data())};
  for (const void* p : {static_cast<const void*>(x.a.data()), static_cast<const void*>(x.b.data()),
                        static_cast<const void*>(x.c.data())})
    addresses.push_back(reinterpret_cast<uint64_t>(p));
  launch.parameters = parameters_of(module.entry("kernel"), addresses);
  RunOptions options;
  options.check = true, options.order = order;
  run(module, "kernel", launch, memory, options);
}

Buffers buffers_of(const Lays& l) {
  Draw draw;
  const auto small = [&] { return static_cast<int>(draw() % 17) - 8; };
  Buffers x;
  x.a.resize(l.a.elements()), x.b.resize(l.b.elements());
  x.c.resize(l.c.elements()), x.d.assign(l.d.elements(), 0xAAAAAAAA);
  for (auto* v : {&x.a, &x.b})
    for (uint16_t& e : *v) e = bf16(small());
  for (uint32_t& e : x.c) e = std::bit_cast<uint32_t>(static_cast<float>(small()));
  return x;
}
float widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

TEST(PtxWmma, ProductsOfMatricesInMemoryByRowsAndByColumns) {
  const From kFrom[] = {From::global, From::generic, From::shared, From::shared_symbol, From::shared_generic};
  for (unsigned n = 0; n < 32; ++n) {
    const auto lay = [&](unsigned bit, unsigned stride) { return Lay{(n >> bit & 1) != 0, stride}; };
    const Lays l = n & 16 ? Lays{lay(0, 24), lay(1, 40), lay(2, 20), lay(3, 36)}
                          : Lays{lay(0, 16), lay(1, 16), lay(2, 16), lay(3, 16)};
    for (const From from : kFrom) {
      Buffers x = buffers_of(l);
      ASSERT_NO_THROW(execute(body_of(l, from), x, n % 4)) << body_of(l, from);
      std::vector<uint32_t> want(l.d.elements(), 0xAAAAAAAA);
      for (unsigned row = 0; row < kSize; ++row)
        for (unsigned column = 0; column < kSize; ++column) {
          float sum = std::bit_cast<float>(x.c[l.c.at(row, column)]);
          for (unsigned k = 0; k < kSize; ++k)
            sum += widened(x.a[l.a.at(row, k)]) * widened(x.b[l.b.at(k, column)]);
          want[l.d.at(row, column)] = std::bit_cast<uint32_t>(sum);
        }
      ASSERT_EQ(x.d, want) << body_of(l, from);
    }
  }
}

// What TransformerEngine's Hadamard kernels do: A as it comes goes out as D in pairs of 16 bits.
TEST(PtxWmma, PairsOf16BitsAreStoredAsTheyWereLoaded) {
  for (unsigned n = 0; n < 4; ++n) {
    const Lay in{(n & 1) != 0, 24}, out{(n & 2) != 0, 48};
    Buffers x = buffers_of({in, {}, {}, {true, out.stride / 2}});
    execute(std::string(kRegisters) + "wmma.load.a.sync.aligned." + in.word() + ".m16n16k16.global.bf16 " +
                kA + ", [%rd1], 24;\nwmma.store.d.sync.aligned." + out.word() +
                ".m16n16k16.global.f16 [%rd0], " + kA + ", 48;\nret;",
            x);
    std::vector<uint16_t> want(2 * x.d.size(), 0xAAAA), got(want.size());
    std::memcpy(got.data(), x.d.data(), 4 * x.d.size());
    for (unsigned row = 0; row < kSize; ++row)
      for (unsigned column = 0; column < kSize; ++column) want[out.at(row, column)] = x.a[in.at(row, column)];
    EXPECT_EQ(got, want) << in.word() << " to " << out.word();
  }
}

std::string error_of(const std::string& statements, const Lays& l = {}) {
  Buffers x = buffers_of(l);
  try {
    execute(std::string(kRegisters) + statements + "\nret;", x, 1);
  } catch (const Fault& e) {
    return e.what();
  }
  return "";
}

TEST(PtxWmma, WhatIsWrongIsNamedWithItsText) {
  const std::string load = "wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 ",
                    store = "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 ";
  const struct {
    std::string text, has;
  } kWrong[] = {
      {load + kA + ", [%rd1+2];", "no multiple of them"},
      {load + kA + ", [%rd1+32];", "'a' (512 bytes)"},
      {load + kA + ", [%rd1], 24;", "'a' (512 bytes)"},
      {load + "{%a0, %a1}, [%rd1];", "needs 4 registers in braces"},
      {load + kA + ", %rd1;", "needs an address in brackets"},
      {load + kA + ", [%rd1], 8;", "a stride of 8 elements"},
      {load + kA + ", [%rd1], 20;", "a multiple of 16 bytes"},
      {load + kA + ";", "takes 2 or 3 operands, not 1"},
      {"wmma.load.c.sync.aligned.row.m16n16k16.global.f32 " + kA + ", [%rd3];",
       "needs 8 registers in braces"},
      {"setp.lt.u32 %p, %t, 16;\n@%p " + load + kA + ", [%rd1];", ".aligned asks for all of it"},
      {store + "[%rd1], " + kC + ";", "which is an input"},
      {store + "[%rd0], " + kC + ";", "a register that nothing was written to"},
      {"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16.f16.f32 " + kD + ", " + kA + ", " + kB + ", " + kC +
           ";",
       "unsupported form"},
      {"wmma.load.a.sync.aligned.row.m32n8k16.global.bf16 " + kA + ", [%rd1];", "unsupported form"},
  };
  for (const auto& w : kWrong) {
    const std::string error = error_of(w.text);
    EXPECT_NE(error, "") << w.text;
    EXPECT_NE(error.find(w.has), std::string::npos) << w.text << "\n" << error;
    EXPECT_NE(error.find("wmma."), std::string::npos) << w.text << "\n" << error;
  }
}

}  // namespace
}  // namespace assay::ptx
