// Prints a digest of what the vectorised method makes of fixed inputs, a line for each kind, on the first of
// its instruction sets or on the one that is named. ci/neon compares the lines of two processors. Needs
// nothing but fast/simd.
#include <cstdio>
#include <cstring>
#include <string>

#include "fast/simd/simd.h"

namespace {

using namespace assay::simd;

class Digest {
 public:
  void add(const void* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      state_ = (state_ ^ static_cast<const uint8_t*>(bytes)[i]) * 0x100000001B3;
      state_ ^= state_ >> 29;
    }
  }
  void print(const char* what) const {
    std::printf("%-40s %016llx\n", what, static_cast<unsigned long long>(state_));
  }

 private:
  uint64_t state_ = 0xCBF29CE484222325;
};

// Every pattern of 16 bits; of binary32 those that end in 000, 001 or FFF: every point where a cast changes,
// with both neighbours.
std::vector<std::byte> patterns(Source source) {
  std::vector<std::byte> out;
  const auto put = [&](uint32_t bits, size_t bytes) {
    const size_t at = out.size();
    out.resize(at + bytes);
    std::memcpy(out.data() + at, &bits, bytes);
  };
  for (uint32_t i = 0; source != Source::f32 && i < 1 << 16; ++i) put(i, 2);
  for (uint32_t i = 0; source == Source::f32 && i < 1 << 20; ++i)
    for (const uint32_t low : {0x000u, 0x001u, 0xFFFu}) put(i << 12 | low, 4);
  return out;
}

// Numbers of neighbouring binades, and any pattern in every 61st place.
std::vector<std::byte> tensor(Source source, int64_t count) {
  const size_t width = source == Source::f32 ? 4 : 2;
  const uint32_t middle = source == Source::f16 ? 0x3000 : 0x3C00;
  std::vector<std::byte> out(static_cast<size_t>(count) * width);
  uint64_t state = 7;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const auto random = static_cast<uint32_t>(state >> 32);
    uint32_t bits = i % 61 == 0 ? random >> 16 : (middle | (random >> 16 & 0x83FF));
    if (source == Source::f32) bits = bits << 16 | (random & 0xFFFF);
    std::memcpy(out.data() + static_cast<size_t>(i) * width, &bits, width);
  }
  return out;
}

void quantized(Source source, Element element, bool columns, Digest& planes, Digest& answers) {
  constexpr int64_t kRows = 133, kCols = 871;
  const size_t width = source == Source::f32 ? 4 : 2;
  const auto x = tensor(source, kRows * kCols);
  const Rectangle rectangle{source, {x.data(), kCols * width}, kRows, kCols};
  const Mx format{element, columns};
  std::vector<std::byte> data(kRows * kCols), scales(kRows * kCols);
  quantize(format, rectangle, {data.data(), kCols}, {scales.data(), kCols});
  planes.add(data.data(), data.size());
  planes.add(scales.data(), scales.size());
  for (size_t i = 0; i < data.size(); i += 977) data[i] ^= std::byte{1};
  std::vector<Block> unknown;
  accept(format, rectangle, {data.data(), kCols}, {scales.data(), kCols}, unknown);
  for (const Block& b : unknown) answers.add(&b, sizeof b);
}

void quantized_nvfp4(Source source, bool columns, Digest& planes, Digest& answers) {
  constexpr int64_t kRows = 133, kCols = 231, kBytes = 128;  // of a stored row of either direction, at most
  const size_t width = source == Source::f32 ? 4 : 2;
  const auto x = tensor(source, kRows * kCols);
  const Rectangle rectangle{source, {x.data(), kCols * width}, kRows, kCols};
  const Nvfp4 format{columns, 0x40490FDB};
  std::vector<std::byte> data(kCols * kBytes), scales(kCols * kBytes);
  quantize(format, rectangle, {data.data(), kBytes}, {scales.data(), kBytes});
  planes.add(data.data(), data.size());
  planes.add(scales.data(), scales.size());
  for (size_t i = 0; i < data.size(); i += 977) data[i] ^= std::byte{1};
  std::vector<Block> unknown;
  accept(format, rectangle, {data.data(), kBytes}, {scales.data(), kBytes}, unknown);
  for (const Block& b : unknown) answers.add(&b, sizeof b);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && !use_target(argv[1])) {
    std::fprintf(stderr, "digests: this processor does not have %s\n", argv[1]);
    return 2;
  }
  std::fprintf(stderr, "%s\n", std::string(target_in_use()).c_str());
  Digest casts, scales, planes, answers;
  for (const Source source : {Source::bf16, Source::f16, Source::f32})
    for (const bool columns : {false, true}) quantized_nvfp4(source, columns, planes, answers);
  for (const Element element : {Element::e4m3, Element::e5m2}) {
    for (const Source source : {Source::bf16, Source::f16, Source::f32}) {
      const auto x = patterns(source);
      std::vector<std::byte> y(x.size() / (source == Source::f32 ? 4 : 2));
      cast(source, element, x.data(), y.data(), static_cast<int64_t>(y.size()));
      casts.add(y.data(), y.size());
      for (const bool columns : {false, true}) quantized(source, element, columns, planes, answers);
    }
    const auto amaxes = patterns(Source::f32);
    std::vector<uint32_t> bits(amaxes.size() / 4);
    std::memcpy(bits.data(), amaxes.data(), amaxes.size());
    std::vector<uint8_t> out(bits.size());
    mx_scales(element, bits.data(), out.data(), static_cast<int64_t>(out.size()));
    scales.add(out.data(), out.size());
  }
  casts.print("casts");
  scales.print("scales");
  planes.print("codes and scales of tensors");
  answers.print("blocks that are not known");
  return 0;
}
