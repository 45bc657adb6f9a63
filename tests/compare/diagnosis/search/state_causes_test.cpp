// explain names what goes wrong in the update of delayed scaling (N4) and in the scaled states of an
// optimizer (N19.6). The mistakes are made here, by loops of their own in binary32, not the library's.
#include "compare/diagnosis/search/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/report/text.h"
#include "contract/line.h"
#include "reference/subject.h"

namespace assay {
namespace {

using std::string;
using Floats = std::vector<float>;

Subject& reference() {
  static const std::unique_ptr<Subject> subject = make_reference_subject();
  return *subject;
}

Floats floats_of(const PlaneData& p) {
  Floats out(p.bytes.size() / sizeof(float));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = std::bit_cast<float>(code_at(Encoding::f32, p.bytes, static_cast<int64_t>(i)));
  return out;
}
void set_floats(PlaneData& p, const Floats& values) {
  for (size_t i = 0; i < values.size(); ++i)
    set_code(Encoding::f32, p.bytes, static_cast<int64_t>(i), std::bit_cast<uint32_t>(values[i]));
}

// A case as it came from somewhere: right at first.
struct Case {
  explicit Case(const string& line) {
    const auto p = parse_line(line);
    EXPECT_TRUE(p) << (p ? "" : p.error().text());
    seen.problem = *p;
    seen.subject = "test";
    seen.inputs = *make_inputs(*p, reference());
    make();
  }
  void make() {
    seen.got.clear();
    std::vector<Buffer> buffers;
    for (const Plane& plane : output_planes(seen.problem))
      seen.got.push_back({plane, std::vector<std::byte>(plane.bytes())});
    for (PlaneData& data : seen.got) buffers.push_back({&data.plane, data.bytes});
    reference().run(seen.problem, views(seen.inputs), buffers, {});
  }
  PlaneData& of(std::vector<PlaneData>& planes, const string& name) const {
    return *std::find_if(planes.begin(), planes.end(),
                         [&](const PlaneData& p) { return p.plane.name == name; });
  }
  PlaneData& input(const string& name) { return of(seen.inputs, name); }
  PlaneData& got(const string& name) { return of(seen.got, name); }
  Observation seen;
};

// The rows of exact explanations, and none of something else.
void expect_named(const Case& c, const string& id, const string& about) {
  DiagnoseOptions options;
  options.jobs = 1;
  const auto d = diagnose(c.seen, reference(), options);
  ASSERT_TRUE(d) << about << d.error().text();
  EXPECT_TRUE(d->confidence == Confidence::certain || d->confidence == Confidence::equivalent)
      << about << "\n"
      << diagnosis_screen(*d);
  bool named = false;
  for (const Explanation& e : d->explanations) named |= e.exact() && e.ids == std::vector<string>{id};
  EXPECT_TRUE(named) << about << "\n" << diagnosis_screen(*d);
}

// ---- update ----------------------------------------------------------------------------------

// N4 with one mistake, slot by slot; rule=bulk, algo=max unless `recent`.
struct FaultyUpdate {
  string mistake;
  bool recent = false;
  int margin = 0;

  void slot(Floats& h, float reduced, float& scale, float all) const {
    const bool takes_reduced = reduced != 0 && mistake != "reduced_missed";
    const float last = takes_reduced ? reduced : h[0];
    Floats window(h.begin() + 1, h.end());
    if (mistake == "oldest_missed") window.erase(window.begin());
    if (mistake != "before_latest") window.push_back(last);
    float amax = 0;
    for (const float a : window)
      if (a > amax) amax = a;
    if (recent) amax = window.back();
    if (last == 0 && !recent && mistake != "before_latest") amax = 0;
    if (mistake == "one_for_all") amax = all;
    if (last != 0 || mistake == "rolled_at_zero") turn(h, last);
    rescale(amax, scale);
  }
  void turn(Floats& h, float last) const {
    const Floats old = h;
    const size_t n = h.size();
    for (size_t i = 1; i < n; ++i)
      h[i] = mistake == "rolled_backwards" ? (i == 1 ? last : old[i - 1])
             : mistake == "not_rolled"     ? old[i]
             : i + 1 < n                   ? old[i + 1]
                                           : last;
    h[0] = mistake == "not_cleared" ? old[1] : mistake == "latest_stays" ? last : 0;
  }
  void rescale(float amax, float& scale) const {
    const float most = mistake == "max_240" ? 240.0f : 448.0f;
    const float old = scale;
    const int m = mistake == "margin_missing" ? 0 : mistake == "margin_negated" ? -margin : margin;
    if (std::isfinite(amax) && amax > 0) scale = std::ldexp(most, -m) / amax;
    else if (amax == 0 && mistake == "zero_gives_most") scale = std::numeric_limits<float>::max();
    else if (std::isinf(amax) && mistake == "infinite_gives_zero") scale = 0;
    else if (mistake == "odd_gives_one" || (amax == 0 && mistake == "zero_gives_one")) scale = 1;
    if (std::isinf(scale) && mistake != "infinite_stays") scale = std::numeric_limits<float>::max();
    if (mistake == "scale_kept") scale = old;
    if (mistake == "scale_inverted") scale = 1 / scale;
    if (mistake == "power_of_two") {
      int exponent = 0;
      if (std::frexp(scale, &exponent) > 0) scale = std::ldexp(1.0f, exponent - 1);
    }
  }
};

// Histories with the values at which rules part.
Floats edged(Floats h, size_t slots) {
  const size_t length = h.size() / slots;
  for (float& v : h) v = std::fabs(v) + 0.125f;
  const auto at = [&](size_t row, size_t slot) -> float& { return h[row * slots + slot]; };
  at(0, 0) = 0;                                       // nothing came
  for (size_t r = 0; r < length; ++r) at(r, 1) = 0;   // nothing ever came
  at(0, 2) = std::numeric_limits<float>::infinity();  // an overflow
  at(0, 3) = std::numeric_limits<float>::quiet_NaN();
  for (size_t r = 0; r < length; ++r) at(r, 4) = 0x1p-130f;  // 448 over it is infinite
  at(1, 5) = 100;                                            // the oldest is the largest
  at(length - 1, 6) = 200;                                   // the newest before the latest is
  at(0, 7) = 300;                                            // the latest is
  return h;
}

void update_names(const string& line, const std::vector<const char*>& mistakes, bool recent, int margin) {
  for (const char* mistake : mistakes) {
    Case c(line);
    const size_t slots = static_cast<size_t>(c.seen.problem.x.shape.cols);
    Floats history = edged(floats_of(c.input("history")), slots), scale = floats_of(c.input("scale"));
    for (float& s : scale) s = std::fabs(s) + 3;
    set_floats(c.input("history"), history);
    set_floats(c.input("scale"), scale);
    Floats reduced(slots, 0.0f);
    if (c.seen.problem.as<Update>()->reduction) {
      for (size_t i = 8; i < slots; i += 2) reduced[i] = 500.0f + static_cast<float>(i);
      set_floats(c.input("reduced"), reduced);
    }
    c.make();
    const FaultyUpdate faulty{mistake, recent, margin};
    const FaultyUpdate right{"", recent, margin};
    for (const FaultyUpdate& f : {right, faulty}) {
      Floats next = history, scales = scale;
      float all = 0;
      for (size_t i = 0; i < slots; ++i)
        if (history[i] != 0)
          for (size_t r = 0; r < history.size() / slots; ++r)
            if (const float a = history[r * slots + i]; a > all) all = a;
      for (size_t i = 0; i < slots; ++i) {
        Floats h;
        for (size_t r = 0; r < history.size() / slots; ++r) h.push_back(history[r * slots + i]);
        f.slot(h, reduced[i], scales[i], all);
        for (size_t r = 0; r < h.size(); ++r) next[r * slots + i] = h[r];
      }
      if (f.mistake.empty()) {  // the loops here are those of N4 where they make no mistake
        PlaneData made = c.got("next.history"), made_scale = c.got("next.scale");
        set_floats(made, next);
        set_floats(made_scale, scales);
        EXPECT_EQ(made.bytes, c.got("next.history").bytes) << line;
        EXPECT_EQ(made_scale.bytes, c.got("next.scale").bytes) << line;
      } else {
        set_floats(c.got("next.history"), next);
        set_floats(c.got("next.scale"), scales);
      }
    }
    expect_named(c, string("update.") + mistake, line + ", " + mistake);
  }
}

TEST(DiagnoseStates, UpdatesOfDelayedScaling) {
  update_names("update fp8_delayed 8x24 f32 margin=2 seed=3",
               {"rolled_backwards", "not_rolled", "rolled_at_zero", "not_cleared", "latest_stays",
                "before_latest", "oldest_missed", "scale_kept", "scale_inverted", "power_of_two", "max_240",
                "zero_gives_one", "zero_gives_most", "infinite_gives_zero", "odd_gives_one", "infinite_stays",
                "margin_missing", "margin_negated"},
               false, 2);
  update_names("update fp8_delayed 8x24 f32 algo=most_recent seed=4", {"before_latest", "rolled_backwards"},
               true, 0);
  update_names("update fp8_delayed 8x24 f32 reduction=1 seed=5", {"reduced_missed", "not_cleared"}, false, 0);
}

// The largest amax of all slots cannot be infinite here, or no scale would change.
TEST(DiagnoseStates, OneScaleForAllSlots) {
  Case c("update fp8_delayed 4x8 f32 seed=9");
  Floats history = floats_of(c.input("history"));
  for (float& v : history) v = std::fabs(v) + 0.125f;
  set_floats(c.input("history"), history);
  c.make();
  Floats scales = floats_of(c.got("next.scale"));
  const float least = *std::min_element(scales.begin(), scales.end());
  set_floats(c.got("next.scale"), Floats(scales.size(), least));
  expect_named(c, "update.one_for_all", "one scale");
}

TEST(DiagnoseStates, KeysOfUpdatesAreNamedAsSuch) {
  for (const auto& [keys, id] : {std::pair{"algo=most_recent", "line.algo=most_recent"},
                                 std::pair{"element=e5m2", "line.element=e5m2"}}) {
    Case c("update fp8_delayed 8x24 f32 seed=3");
    Case other(string("update fp8_delayed 8x24 f32 seed=3 ") + keys);
    for (size_t i = 0; i < c.seen.got.size(); ++i) c.seen.got[i].bytes = other.seen.got[i].bytes;
    expect_named(c, id, keys);
  }
}

// ---- scaled states ---------------------------------------------------------------------------

uint32_t stored(bool half, float v) {
  return half ? nearest_code(Encoding::f16, static_cast<double>(v))
              : element_code(Encoding::e4m3, static_cast<double>(v));
}

// N19.6 with one mistake.
void store_with(Case& c, const string& mistake, bool half) {
  const Floats x = floats_of(c.input("x"));
  const size_t cols = static_cast<size_t>(c.seen.problem.x.shape.cols);
  float amax = 0, most = half ? 32752.0f : 448.0f;
  for (size_t i = 0; i < (mistake == "amax_of_first_row" ? cols : x.size()); ++i) {
    const float v = mistake == "signed_amax" ? x[i] : std::fabs(x[i]);
    if (v > amax || (std::isnan(v) && mistake != "nan_ignored")) amax = v;
  }
  if (mistake == "max_65504") most = 65504;
  if (mistake == "max_240") most = 240;
  float scale = amax / most;
  if (mistake == "power_of_two") {
    int exponent = 0;
    const float fraction = std::frexp(scale, &exponent);
    scale = std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
  }
  float multiplier = half && !(scale > 0) ? 0 : 1 / scale;
  if (mistake == "unscaled" || (mistake == "zero_guarded" && amax == 0)) scale = multiplier = 1;
  for (size_t i = 0; i < x.size(); ++i)
    set_code(c.got("y").plane, c.got("y").bytes, static_cast<int64_t>(i),
             stored(half, mistake == "divided" ? x[i] / scale : x[i] * multiplier));
  set_floats(c.got("scale"), {mistake == "scale_inverted" ? multiplier : scale});
  set_floats(c.got("multiplier"), {multiplier});
}

TEST(DiagnoseStates, ScaledStates) {
  for (const bool half : {true, false})
    for (const string mistake : {"", "signed_amax", "amax_of_first_row", "unscaled", "power_of_two",
                                 "divided", "scale_inverted", "max_65504", "max_240", "zero_guarded"}) {
      if (mistake == "max_65504" && !half) continue;
      if (mistake == "max_240" && half) continue;
      if (mistake == "divided" && !half) continue;  // E4M3 shows the last bit of a product too seldom
      const string line = string("scale_state ") + (half ? "f16" : "e4m3") +
                          (mistake == "divided" ? " 512x256" : " 24x64") + " f32 seed=6";
      Case c(line);
      Floats x = floats_of(c.input("x"));
      if (mistake == "zero_guarded") std::fill(x.begin(), x.end(), 0.0f);
      else x[x.size() - 3] = -77.7f;  // the largest magnitude is negative, and in the last row
      set_floats(c.input("x"), x);
      c.make();
      const std::vector<PlaneData> right = c.seen.got;
      store_with(c, mistake, half);
      if (!mistake.empty()) {
        expect_named(c, "state." + mistake, line + ", " + mistake);
        continue;
      }
      for (size_t i = 0; i < right.size(); ++i) EXPECT_EQ(c.seen.got[i].bytes, right[i].bytes) << line;
    }
}

TEST(DiagnoseStates, NaNOfAState) {
  Case c("scale_state f16 8x32 f32 seed=6");
  Floats x = floats_of(c.input("x"));
  x[40] = std::numeric_limits<float>::quiet_NaN();
  set_floats(c.input("x"), x);
  c.make();
  store_with(c, "nan_ignored", true);
  expect_named(c, "state.nan_ignored", "a NaN");
}

TEST(DiagnoseStates, ScaledStatesReadBack) {
  for (const string mistake : {"read_divided", "read_unscaled", "read_bf16"}) {
    Case c("scale_state f16 8x32 f16 inverse=1 seed=6");
    set_floats(c.input("scale"), {0.37f});
    c.make();
    Floats y;
    for (int64_t i = 0; i < 8 * 32; ++i) {
      const float v =
          static_cast<float>(value_of(Encoding::f16, code_at(Encoding::f16, c.input("x").bytes, i)));
      const float product = v * 0.37f;
      y.push_back(mistake == "read_divided"    ? v / 0.37f
                  : mistake == "read_unscaled" ? v
                                               : static_cast<float>(bf16_of(static_cast<double>(product))));
    }
    set_floats(c.got("y"), y);
    expect_named(c, "state." + mistake, mistake);
  }
}

}  // namespace
}  // namespace assay
