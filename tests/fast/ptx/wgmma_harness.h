// One wgmma of a warpgroup, for tests: matrices of codes go into shared memory as a descriptor says, or into
// registers, and the accumulators come out as a matrix.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {

inline constexpr unsigned kProductRows = 64, kTileBytes = 32768;

struct ProductType {
  const char* a;
  const char* b;
  unsigned bits;
  unsigned k() const { return 256 / bits; }
  unsigned bytes() const { return bits / 8; }
};

// How a matrix lies in shared memory: bytes of the swizzled stretch, or 0; whether lines are neighbours.
struct Lay {
  unsigned swizzle = 0;
  bool along_lines = false;
};

// The matrix [lines, k] of codes as it must lie, written down from the pictures of core matrices: eight rows
// of 16 bytes, or of the swizzled stretch, whose units of 16 bytes change places by the row. Behind each
// other lie first the core matrices along a line, then those across. Returns the image and the descriptor's
// two offsets.
struct Image {
  std::vector<uint8_t> bytes;
  unsigned leading = 0, stride = 0;
};
inline Image image_of(const ProductType& t, const Lay& lay, const std::vector<uint32_t>& codes,
                      unsigned lines) {
  const unsigned size = t.bytes(), row_bytes = lay.swizzle ? lay.swizzle : 16, units = row_bytes / 16;
  const unsigned rows = lay.along_lines ? t.k() : lines, length = (lay.along_lines ? lines : t.k()) * size;
  const unsigned across = (rows + 7) / 8, along = (length + row_bytes - 1) / row_bytes;
  const unsigned core = 8 * row_bytes;
  Image out;
  out.bytes.resize(size_t{across} * along * core);
  // Distances of neighbouring core matrices.
  const unsigned next_along = core, next_across = core * along;
  const bool k_has_leading = !lay.swizzle || !lay.along_lines;
  if (lay.along_lines == false) out.leading = lay.swizzle ? 16 : next_along, out.stride = next_across;
  else if (!k_has_leading) out.leading = next_along, out.stride = next_across;
  else out.stride = next_along, out.leading = next_across;
  for (unsigned line = 0; line < lines; ++line)
    for (unsigned k = 0; k < t.k(); ++k) {
      const unsigned row = lay.along_lines ? k : line, at = (lay.along_lines ? line : k) * size;
      const unsigned unit = at % row_bytes / 16;
      // 128: by the row; 64: by the pair of rows; 32: by the four.
      const unsigned moved = units == 1 ? 0 : unit ^ row % 8 * row_bytes / 128 % units;
      const unsigned where = row / 8 * next_across + at / row_bytes * next_along + row % 8 * row_bytes +
                             (units == 1 ? 0 : moved * 16) + at % 16;
      std::memcpy(out.bytes.data() + where, &codes[size_t{line} * t.k() + k], size);
    }
  return out;
}

inline uint64_t descriptor_of(const Image& image, const Lay& lay, unsigned start) {
  const uint64_t mode = lay.swizzle == 128 ? 1 : lay.swizzle == 64 ? 2 : lay.swizzle == 32 ? 3 : 0;
  return uint64_t{start >> 4} | uint64_t{image.leading >> 4} << 16 | uint64_t{image.stride >> 4} << 32 |
         mode << 62;
}

struct ProductCase {
  ProductType type{"bf16", "bf16", 16};
  unsigned columns = 64;
  bool a_in_registers = false, adds = true;
  Lay a_lay, b_lay;
  int a_sign = 1, b_sign = 1;
  std::vector<uint32_t> a, b, c;  // codes [64, k], [columns, k]; bits of binary32 [64, columns]
  std::string opcode() const {
    return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k" + std::to_string(type.k()) +
           ".f32." + type.a + "." + type.b;
  }
};

// Row and column of accumulator n of a thread, and of element n of its fragment of A, as the figures of
// 9.7.15.5.1.1 give them.
inline std::pair<unsigned, unsigned> place_of_sum(unsigned thread, unsigned n) {
  return {thread / 32 * 16 + thread % 32 / 4 + (n & 2 ? 8 : 0), n / 4 * 8 + thread % 4 * 2 + n % 2};
}
inline std::pair<unsigned, unsigned> place_of_a(const ProductType& t, unsigned thread, unsigned n) {
  const unsigned each = 32 / t.bits, word = n / each;
  return {thread / 32 * 16 + thread % 32 / 4 + (word & 1 ? 8 : 0),
          word / 2 * 4 * each + thread % 4 * each + n % each};
}

// The text of the kernel. `$fences`, `$product` and `$waits` stand where a test may put others; %rd2 and %rd3
// are the descriptors, %p0 is scale-d, %r0 the thread, %r7 the shared memory.
inline std::string product_text(const ProductCase& x, const std::string& body) {
  const unsigned sums = x.columns / 2;
  std::string list, loads, stores;
  for (unsigned n = 0; n < sums; ++n) {
    const std::string r = "%f" + std::to_string(n), at = std::to_string(4 * n);
    list += (n ? ", " : "") + r;
    loads += "ld.global.b32 " + r + ", [%rd5+" + at + "];\n";
    stores += "st.global.b32 [%rd6+" + at + "], " + r + ";\n";
  }
  std::string numbers = std::to_string(x.a_sign) + ", " + std::to_string(x.b_sign);
  if (x.type.bits == 16 && !x.a_in_registers) numbers += x.a_lay.along_lines ? ", 1" : ", 0";
  if (x.type.bits == 16) numbers += x.b_lay.along_lines ? ", 1" : ", 0";
  const std::string product = x.opcode() + " {" + list + "}, " +
                              (x.a_in_registers ? "{%a0, %a1, %a2, %a3}" : "%rd2") + ", %rd3, %p0, " +
                              numbers + ";\n";
  const std::string begin =
      ".reg .pred %p<4>;\n.reg .b32 %r<12>, %a<4>;\n.reg .f32 %f<" + std::to_string(sums) +
      ">;\n.reg .b64 %rd<12>;\n"
      "ld.param.u64 %rd0, [image];\nld.param.u64 %rd1, [sums];\nld.param.u64 %rd2, [a];\nld.param.u64 %rd3, "
      "[b];\nld.param.u64 %rd4, [fragments];\nld.param.u64 %rd6, [out];\nld.param.u32 %r1, [adds];\n"
      "setp.ne.u32 %p0, %r1, 0;\nmov.u32 %r0, %tid.x;\nmov.u32 %r7, tile;\n"
      // A descriptor holds an address in units of 16 bytes; a device need not begin the tile at 0.
      "shr.u32 %r2, %r7, 4;\ncvt.u64.u32 %rd8, %r2;\nadd.u64 %rd2, %rd2, %rd8;\nadd.u64 %rd3, %rd3, "
      "%rd8;\nmad.wide.u32 %rd5, %r0, " +
      std::to_string(4 * sums) + ", %rd1;\nmad.wide.u32 %rd6, %r0, " + std::to_string(4 * sums) +
      ", %rd6;\nmad.wide.u32 %rd4, %r0, 16, %rd4;\nld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%rd4];\n" + loads +
      // The image, 16 bytes of each thread at a time.
      "mov.u32 %r2, %r0;\nCOPY:\nmul.wide.u32 %rd7, %r2, 16;\nadd.u64 %rd7, %rd7, %rd0;\nshl.b32 %r3, %r2, "
      "4;\nadd.u32 %r3, %r3, %r7;\nld.global.v4.b32 {%r8, %r9, %r10, %r11}, [%rd7];\nst.shared.v4.b32 [%r3], "
      "{%r8, %r9, %r10, %r11};\nadd.u32 %r2, %r2, 128;\nsetp.lt.u32 %p1, %r2, " +
      std::to_string(2 * kTileBytes / 16) + ";\n@%p1 bra COPY;\n";
  std::string text = begin + body;
  text = replaced(text, "$product", product);
  text = replaced(text, "$store", stores);
  std::string module = kernel_text(
      ".param .u64 image, .param .u64 sums, .param .u64 a, .param .u64 b, .param .u64 fragments, .param .u64 "
      "out, "
      ".param .u32 adds",
      text + "ret;");
  return replaced(module, ".visible .entry",
                  ".shared .align 1024 .b8 tile[" + std::to_string(2 * kTileBytes) + "];\n.visible .entry");
}

inline constexpr const char* kPlainProduct =
    "fence.proxy.async;\nbar.sync 0;\nwgmma.fence.sync.aligned;\n$product"
    "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n$store";

// The accumulators [64, columns] behind the body.
inline std::vector<uint32_t> product_of(const ProductCase& x, const std::string& body = kPlainProduct,
                                        RunOptions options = {},
                                        const std::function<void(Module&, Launch&, Memory&)>& more = {}) {
  const ProductType& t = x.type;
  std::vector<uint8_t> image(2 * kTileBytes);
  const auto put = [&](const std::vector<uint32_t>& codes, const Lay& lay, unsigned lines, unsigned start) {
    const Image made = image_of(t, lay, codes, lines);
    std::copy(made.bytes.begin(), made.bytes.end(), image.begin() + start);
    return descriptor_of(made, lay, start);
  };
  const uint64_t a = x.a_in_registers ? 0 : put(x.a, x.a_lay, kProductRows, 0),
                 b = put(x.b, x.b_lay, x.columns, kTileBytes);
  const unsigned sums = x.columns / 2;
  std::vector<uint32_t> fragments(128 * 4), c(size_t{128} * sums), d(size_t{128} * sums);
  for (unsigned thread = 0; thread < 128; ++thread) {
    for (unsigned n = 0; x.a_in_registers && n < 4 * 32 / t.bits; ++n) {
      const auto [row, k] = place_of_a(t, thread, n);
      fragments[4 * thread + n * t.bits / 32] |= x.a[size_t{row} * t.k() + k] << (n * t.bits % 32);
    }
    for (unsigned n = 0; n < sums; ++n) {
      const auto [row, column] = place_of_sum(thread, n);
      c[size_t{thread} * sums + n] = x.c[size_t{row} * x.columns + column];
    }
  }
  Module module(product_text(x, body));
  Memory memory;
  memory.add(image.data(), image.size(), "image", false);
  memory.add(c.data(), c.size() * 4, "sums", false);
  memory.add(fragments.data(), fragments.size() * 4, "fragments", false);
  memory.add(d.data(), d.size() * 4, "out", true, false);
  Launch launch;
  launch.block = {128, 1, 1};
  launch.parameters = parameters_of(
      module.entry("kernel"),
      {reinterpret_cast<uint64_t>(image.data()), reinterpret_cast<uint64_t>(c.data()), a, b,
       reinterpret_cast<uint64_t>(fragments.data()), reinterpret_cast<uint64_t>(d.data()), x.adds});
  if (more) more(module, launch, memory);
  else run(module, "kernel", launch, memory, options);
  std::vector<uint32_t> out(size_t{kProductRows} * x.columns);
  for (unsigned thread = 0; thread < 128; ++thread)
    for (unsigned n = 0; n < sums; ++n) {
      const auto [row, column] = place_of_sum(thread, n);
      out[size_t{row} * x.columns + column] = d[size_t{thread} * sums + n];
    }
  return out;
}

}  // namespace assay::ptx
