// Moments of an optimizer that are stored with a scale (N19.6, N19.7): what is stored where a step of that is
// done another way.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using Planes = std::vector<PlaneData>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A state about to be stored: its values, and what N19.6 makes of them. A row changes the latter.
struct State {
  Encoding to = Encoding::f16;
  Shape shape;
  std::vector<double> x;
  double amax = 0, scale = 0, multiplier = 0;
  bool half() const { return to == Encoding::f16; }
  double most() const { return half() ? 32752 : 448; }
  // Scale and multiplier of an amax, of the largest stored value.
  void rescale(double from_amax, double to_most) {
    scale = f32_of(from_amax / to_most);
    multiplier = half() && !(scale > 0) ? 0 : f32_of(1 / scale);
  }
};

double amax_of(const State& s, size_t count) {
  double out = 0;
  for (size_t i = 0; i < count; ++i)
    out = std::isnan(out) || std::isnan(s.x[i]) ? kNaN : std::max(out, std::fabs(s.x[i]));
  return out;
}

uint32_t stored(const State& s, double v) {
  return s.half() ? nearest_code(Encoding::f16, v) : element_code(Encoding::e4m3, v);
}

PlaneData& named(Planes& planes, std::string_view name) {
  return *std::find_if(planes.begin(), planes.end(),
                       [&](const PlaneData& p) { return p.plane.name == name; });
}
void put(PlaneData& plane, size_t i, uint32_t code) {
  set_code(plane.plane, plane.bytes, static_cast<int64_t>(i), code);
}
std::vector<double> values_of(const PlaneData& plane) {
  std::vector<double> out;
  for (int64_t i = 0; i < plane.plane.logical.count(); ++i)
    out.push_back(value_of(plane.plane.encoding, code_at(plane.plane, plane.bytes, i)));
  return out;
}

State state_of(const Problem& p, const Planes& inputs) {
  State s;
  s.to = p.as<ScaleState>()->to;
  s.shape = p.x.shape;
  s.x = values_of(*find_plane(inputs, "x"));
  s.amax = amax_of(s, s.x.size());
  s.rescale(s.amax, s.most());
  return s;
}

// Stores the state by its scale and multiplier; `divides`: elements are divided by the scale.
void store(const State& s, Planes& made, bool divides = false) {
  put(named(made, "scale"), 0, nearest_code(Encoding::f32, s.scale));
  put(named(made, "multiplier"), 0, nearest_code(Encoding::f32, s.multiplier));
  for (size_t i = 0; i < s.x.size(); ++i)
    put(named(made, "y"), i, stored(s, f32_of(divides ? s.x[i] / s.scale : s.x[i] * s.multiplier)));
}

struct StateRow {
  const char *id, *title;
  void (*change)(State&);
};

constexpr StateRow kStateRows[] = {
    {"max_65504", "the amax is mapped to the largest number of binary16, not to half of it",
     [](State& s) {
       if (s.half()) s.rescale(s.amax, 65504);
     }},
    {"max_240", "the amax is mapped to 240, as for E4M3 without infinities and -0",
     [](State& s) {
       if (!s.half()) s.rescale(s.amax, 240);
     }},
    {"signed_amax", "the amax is the largest value, not the largest magnitude",
     [](State& s) {
       double most = 0;
       for (const double v : s.x) most = std::isnan(v) ? most : std::max(most, v);
       s.rescale(most, s.most());
     }},
    {"amax_of_first_row", "the amax is that of the first row",
     [](State& s) {
       s.rescale(amax_of(s, std::min(s.x.size(), static_cast<size_t>(s.shape.cols))), s.most());
     }},
    {"nan_ignored", "a NaN takes no part in the amax",
     [](State& s) {
       double most = 0;
       for (const double v : s.x) most = std::isnan(v) ? most : std::max(most, std::fabs(v));
       s.rescale(most, s.most());
     }},
    {"zero_guarded", "a state of zeros has the scale 1",
     [](State& s) {
       if (s.amax == 0) s.scale = s.multiplier = 1;
     }},
    {"unscaled", "the state is stored without a scale", [](State& s) { s.scale = s.multiplier = 1; }},
    {"power_of_two", "the scale is rounded up to a power of two",
     [](State& s) {
       if (std::isfinite(s.scale) && s.scale > 0)
         s.scale = std::exp2(std::ceil(std::log2(s.scale))), s.multiplier = 1 / s.scale;
     }},
};

void add_rows_of_reading(const std::function<Hypothesis&(const char*, const char*, const char*)>& add) {
  const auto reread = [](double (*f)(double value, double scale)) {
    return [f](const Problem&, const Planes& inputs, Planes& made) {
      const double scale = values_of(*find_plane(inputs, "scale")).front();
      const std::vector<double> x = values_of(*find_plane(inputs, "x"));
      for (size_t i = 0; i < x.size(); ++i)
        put(named(made, "y"), i, nearest_code(Encoding::f32, f32_of(f(x[i], scale))));
    };
  };
  add("read_divided", "a state that is read is divided by its scale", "N19.7").remake =
      reread([](double v, double s) { return v / s; });
  add("read_unscaled", "a state is read without its scale", "N19.7").remake =
      reread([](double v, double) { return v; });
  add("read_bf16", "a state that is read is rounded to bfloat16", "N19.7").remake =
      reread([](double v, double s) { return bf16_of(f32_of(v * s)); });
}

}  // namespace

std::vector<Hypothesis> scale_state_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  const ScaleState* op = problem.as<ScaleState>();
  if (!op) return out;
  const auto add = [&](const char* id, const char* title, const char* clause) -> Hypothesis& {
    Hypothesis h;
    h.id = std::string("state.") + id;
    h.title = title;
    h.stage = Stage::tensor_scale;
    h.clause = clause;
    out.push_back(std::move(h));
    return out.back();
  };
  if (op->inverse) {
    add_rows_of_reading(add);
    return out;
  }
  for (const StateRow& r : kStateRows)
    add(r.id, r.title, "N19.6").remake = [change = r.change](const Problem& p, const Planes& inputs,
                                                             Planes& made) {
      State s = state_of(p, inputs);
      change(s);
      store(s, made);
    };
  add("divided", "elements are divided by the scale, not multiplied by its reciprocal", "N19.6").remake =
      [](const Problem& p, const Planes& inputs, Planes& made) { store(state_of(p, inputs), made, true); };
  add("scale_inverted", "the multiplier is stored as the scale", "N19.6").remake =
      [](const Problem&, const Planes&, Planes& made) {
        named(made, "scale").bytes = named(made, "multiplier").bytes;
      };
  return out;
}

}  // namespace assay
