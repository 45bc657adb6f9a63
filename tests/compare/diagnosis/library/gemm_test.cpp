// Every cause of a gemm: operands whose bytes are put elsewhere by the loops of this file, or results that
// are finished by binary32 arithmetic of C++. The reference runs what was changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/process/plain_run.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using std::string;

// A plane of bytes with its pitch, as it was and as it is.
struct Bytes {
  std::vector<std::byte> before;
  std::vector<std::byte>& now;
  int64_t rows, cols, pitch;
  Bytes(std::vector<PlaneData>& inputs, const string& name) : Bytes(plane(inputs, name)) {}
  std::byte was(int64_t r, int64_t c) const { return before[static_cast<size_t>(r * pitch + c)]; }
  template <class F> void each(F f) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) now[static_cast<size_t>(r * pitch + c)] = f(r, c);
  }

 private:
  explicit Bytes(PlaneData& p)
      : before(p.bytes),
        now(p.bytes),
        rows(p.plane.logical.rows),
        cols(p.plane.logical.cols),
        pitch(p.plane.padded.cols) {}
  static PlaneData& plane(std::vector<PlaneData>& inputs, const string& name) {
    for (PlaneData& p : inputs)
      if (p.plane.name == name) return p;
    throw std::runtime_error("no plane " + name);
  }
};

using Planes = std::vector<PlaneData>;
using Change = std::function<void(Planes&)>;
using Move = std::byte (*)(const Bytes&, int64_t r, int64_t c);
Change moved(const char* name, Move move) {
  return [=](Planes& in) {
    Bytes b(in, name);
    b.each([&](int64_t r, int64_t c) { return move(b, r, c); });
  };
}
// Gives a plane the bytes of another as long.
Change copied(const char* to, const char* from) {
  return [=](Planes& in) { Bytes(in, to).now = Bytes(in, from).before; };
}
Change set_to(const char* name, float v) {
  return [=](Planes& in) {
    Bytes b(in, name);
    std::memcpy(b.now.data(), &v, sizeof v);
  };
}
// The element across the diagonal of its 2x2, where it is off it.
std::byte across_pairs(const Bytes& b, int64_t r, int64_t c) {
  return r % 2 == c % 2 ? b.was(r, c) : b.was(r + (r % 2 ? -1 : 1), c + (c % 2 ? -1 : 1));
}
void cut_at_32(Planes& in) {
  for (const char* name : {"a.data", "b.data"}) {
    Bytes b(in, name);
    b.each([&](int64_t r, int64_t c) { return c < 32 ? b.was(r, c) : std::byte{0}; });
  }
}

struct Row {
  const char *id, *line;
  Change change;
};

constexpr const char *kMx = "gemm a=mxfp8 b=mxfp8 24x24x160", *kCut = "gemm a=mxfp8 b=mxfp8 24x24x168",
                     *kNvfp4 = "gemm a=nvfp4 b=nvfp4 24x24x80",
                     *kFp8 = "gemm a=fp8_current b=fp8_current 24x40x64 op=NN";

std::vector<Row> rows() {
  return {
      {"a.scales_next", kMx,
       moved("a.scale_inv", [](const Bytes& b, int64_t r, int64_t c) { return b.was(r, c + 1); })},
      {"b.scales_next_half", kMx,
       moved("b.scale_inv",
             [](const Bytes& b, int64_t r, int64_t c) { return b.was(r, c < b.cols / 2 ? c : c + 1); })},
      {"b.scales_previous", kMx,
       moved("b.scale_inv", [](const Bytes& b, int64_t r, int64_t c) { return b.was(r, c ? c - 1 : 0); })},
      {"a.scales_first_block", kNvfp4,
       moved("a.scale_inv", [](const Bytes& b, int64_t r, int64_t) { return b.was(r, 0); })},
      {"b.scales_first_line", kMx,
       moved("b.scale_inv", [](const Bytes& b, int64_t, int64_t c) { return b.was(0, c); })},
      {"a.scales_crossed", kMx,
       moved("a.scale_inv",
             [](const Bytes& b, int64_t r, int64_t c) {
               const int64_t n = c * b.rows + r;
               return b.was(n / b.cols, n % b.cols);
             })},
      {"a.scales_unpadded", kMx,
       moved("a.scale_inv", [](const Bytes& b, int64_t r,
                               int64_t c) { return b.before[static_cast<size_t>(r * b.cols + c)]; })},
      {"b.scales_left_out", kMx,
       moved("b.scale_inv", [](const Bytes&, int64_t, int64_t) { return std::byte{127}; })},
      {"b.scales_left_out_at_end", kCut,
       moved("b.scale_inv", [](const Bytes& b, int64_t r,
                               int64_t c) { return c == b.cols - 1 ? std::byte{127} : b.was(r, c); })},
      {"a.scales_inverted", kMx,
       moved("a.scale_inv",
             [](const Bytes& b, int64_t r, int64_t c) {
               return static_cast<std::byte>(254 - std::to_integer<int>(b.was(r, c)));
             })},
      {"a.scales_of_other", kMx, copied("a.scale_inv", "b.scale_inv")},
      {"b.amax_left_out", kNvfp4, set_to("b.amax", 6 * 448)},
      {"b.amax_of_other", kNvfp4, copied("b.amax", "a.amax")},
      {"a.pairs_transposed", kFp8, moved("a.data", across_pairs)},
      {"b.nibbles_swapped", kNvfp4,
       [](Planes& in) {
         for (std::byte& b : Bytes(in, "b.data").now) b = b << 4 | b >> 4;
       }},
      {"k_cut=32", "gemm a=fp8_current b=fp8_delayed 24x24x50", cut_at_32},
  };
}

// ---- operands of F32 whose elements lose bits ------------------------------------------------------------

// An element to so many bits behind the first one. `to_whole` makes a whole number of steps of it.
float in_fewer_bits(float v, int bits, float (*to_whole)(float)) {
  if (v == 0 || !std::isfinite(v)) return v;
  const int step = std::max(std::ilogb(v), -126) - bits;
  return std::ldexp(to_whole(std::ldexp(v, -step)), step);
}
struct Fewer {
  const char* id;
  int bits;
  float (*to_whole)(float);
};
constexpr Fewer kFewer[] = {
    {"tf32_cut", 10, std::trunc}, {"tf32_rounded", 10, std::nearbyint}, {"tf32_rounded_away", 10, std::round},
    {"bf16_cut", 7, std::trunc},  {"bf16_rounded", 7, std::nearbyint},
};
constexpr const char* kF32 = "gemm a=identity b=identity 24x20x32 f32 a.fill=edges out=f32";

// Every third element is a tie, of which every second one is odd.
void put_ties(std::vector<std::byte>& bytes, int bits) {
  for (size_t i = 0; i < bytes.size() / 4; i += 3) {
    uint32_t code;
    std::memcpy(&code, bytes.data() + 4 * i, 4);
    const uint32_t half = 1u << (22 - bits);
    code = (code & ~(2 * half - 1)) | half;
    std::memcpy(bytes.data() + 4 * i, &code, 4);
  }
}

// bf16 as it is stored, ties to even.
uint16_t bf16_code(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
float wide(const PlaneData& p, int64_t n) {
  uint16_t code;
  std::memcpy(&code, p.bytes.data() + 2 * n, sizeof code);
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}

// What the last step does, to a result that is bf16 already.
struct Late {
  const char *id, *line, *before;  // before: the line without that step
  float (*last)(float d, float other);
  const char* other = nullptr;  // plane; one value for each column, or for each element
  bool then_bias = false;       // the bias is added after that, as it should be
};
const Late kLate[] = {
    {"bias_after_cast", "gemm a=mxfp8 b=mxfp8 24x40x96 bias=bf16", "gemm a=mxfp8 b=mxfp8 24x40x96",
     [](float d, float bias) { return d + bias; }, "bias"},
    {"c_after_cast", "gemm a=mxfp8 b=mxfp8 24x40x96 beta=0.3", "gemm a=mxfp8 b=mxfp8 24x40x96",
     [](float d, float c) { return d + 0.3f * c; }, "c"},
    {"bias_after_cast", "gemm a=mxfp8 b=mxfp8 24x40x96 beta=0.3 bias=bf16",
     "gemm a=mxfp8 b=mxfp8 24x40x96 beta=0.3", [](float d, float bias) { return d + bias; }, "bias"},
    {"c_after_cast", "gemm a=mxfp8 b=mxfp8 24x40x96 beta=0.3 bias=bf16", "gemm a=mxfp8 b=mxfp8 24x40x96",
     [](float d, float c) { return d + 0.3f * c; }, "c", true},
    {"alpha_after_cast", "gemm a=mxfp8 b=mxfp8 24x40x96 alpha=0.3", "gemm a=mxfp8 b=mxfp8 24x40x96",
     [](float d, float) { return 0.3f * d; }},
    {"alpha_left_out", "gemm a=mxfp8 b=mxfp8 24x40x96 alpha=0.3", "gemm a=mxfp8 b=mxfp8 24x40x96",
     [](float d, float) { return d; }},
    {"c_left_out", "gemm a=mxfp8 b=mxfp8 24x40x96 beta=0.3", "gemm a=mxfp8 b=mxfp8 24x40x96",
     [](float d, float) { return d; }},
    {"beta_left_out", "gemm a=mxfp8 b=mxfp8 24x40x96 beta=0.3", "gemm a=mxfp8 b=mxfp8 24x40x96 beta=1",
     [](float d, float) { return d; }},
};

Planes run(const Problem& p, const Planes& inputs) {
  const auto made = plain_run(*make_reference_subject(), p, inputs);
  if (!made) throw std::runtime_error(made.error().text());
  return *made;
}

void expect_named(const string& id, const planes::Case& c, Planes got) {
  const auto d =
      diagnose(Observation{c.problem, "test", c.inputs, std::move(got)}, *make_reference_subject(), {});
  ASSERT_TRUE(d) << id;
  bool named = false;
  for (const Explanation& e : d->explanations) named |= e.exact() && e.ids == std::vector{"gemm." + id};
  EXPECT_TRUE(named) << id << '\n' << diagnosis_screen(*d);
}

TEST(GemmCauses, OfOperandsAreNamed) {
  for (const Row& row : rows()) {
    const planes::Case c(row.line);
    Planes changed = c.inputs;
    row.change(changed);
    expect_named(row.id, c, run(c.problem, changed));
  }
}

TEST(GemmCauses, OfBothOperandsAreNamed) {
  const planes::Case c("gemm a=fp8_current b=fp8_current 24x40x64 op=NT");
  Planes changed = c.inputs;
  for (const char* name : {"a.data", "b.data"}) moved(name, across_pairs)(changed);
  expect_named("both.pairs_transposed", c, run(c.problem, changed));
}

TEST(GemmCauses, OfElementsInFewerBitsAreNamed) {
  for (const Fewer& fewer : kFewer) {
    planes::Case c(kF32);
    for (const char* name : {"a.data", "b.data"}) put_ties(Bytes(c.inputs, name).now, fewer.bits);
    c.want = run(c.problem, c.inputs);
    for (const string side : {"a", "b", "both"}) {
      Planes changed = c.inputs;
      for (const string operand : {"a", "b"}) {
        if (side != "both" && side != operand) continue;
        std::vector<std::byte>& bytes = Bytes(changed, operand + ".data").now;
        for (size_t i = 0; i < bytes.size() / 4; ++i) {
          float v;
          std::memcpy(&v, bytes.data() + 4 * i, 4);
          v = in_fewer_bits(v, fewer.bits, fewer.to_whole);
          std::memcpy(bytes.data() + 4 * i, &v, 4);
        }
      }
      expect_named(side + "." + fewer.id, c, run(c.problem, changed));
    }
  }
}

TEST(GemmCauses, OfTheEpilogueAreNamed) {
  for (const Late& late : kLate) {
    const planes::Case c(late.line);
    Planes got = run(*parse_line(late.before), c.inputs);
    PlaneData& d = got.front();
    const PlaneData* other = late.other ? find_plane(c.inputs, late.other) : nullptr;
    const PlaneData* bias = late.then_bias ? find_plane(c.inputs, "bias") : nullptr;
    for (int64_t n = 0; n < d.plane.logical.count(); ++n) {
      const int64_t column = n % d.plane.logical.cols;
      const int64_t at = other && other->plane.logical.rows == 1 ? column : n;
      const float v = late.last(wide(d, n), other ? wide(*other, at) : 0);
      const uint16_t code = bf16_code(bias ? v + wide(*bias, column) : v);
      std::memcpy(d.bytes.data() + 2 * n, &code, sizeof code);
    }
    expect_named(late.id, c, std::move(got));
  }
}

// Those that are made by runs of other lines are in gemm_sums_test.cpp.
TEST(GemmCauses, NoneIsLeftOut) {
  std::set<string> known, tried;
  const auto bare = [](string id) {
    for (const char* side : {"a.", "b.", "both."})
      if (id.starts_with(side)) id.erase(0, string(side).size());
    return id.substr(0, id.find('='));
  };
  for (const char* line :
       {kMx, kCut, kNvfp4, kFp8, kF32, "gemm a=fp8_current b=fp8_delayed 24x24x50",
        "gemm a=mxfp8 b=mxfp8 24x40x96 alpha=0.3", "gemm a=mxfp8 b=mxfp8 24x40x96 beta=0.3",
        "gemm a=mxfp8 b=mxfp8 24x40x96 bias=bf16"})
    for (const Hypothesis& h : line_hypotheses(*parse_line(line)))
      if (h.id.starts_with("gemm.") && (!h.rerun || h.id.ends_with("_after_cast")))
        known.insert(bare(h.id.substr(5)));
  for (const Row& row : rows()) tried.insert(bare(row.id));
  for (const Late& late : kLate) tried.insert(bare(late.id));
  for (const Fewer& fewer : kFewer) tried.insert(fewer.id);
  EXPECT_EQ(known, tried);
}

}  // namespace
}  // namespace assay
