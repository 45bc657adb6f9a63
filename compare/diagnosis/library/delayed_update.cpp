// The update of delayed scaling (N4): what becomes of a history and a scale where a step of it is done
// another way.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/rows.h"

namespace assay {

namespace {

using Planes = std::vector<PlaneData>;

// One slot: a column of the planes. history[0] is the current amax, history[1] the oldest, the last the
// newest.
struct Slot {
  std::vector<uint32_t> history;  // F32 codes, as they were
  uint32_t latest = 0;            // N4.1
  double old_scale = 0;
  std::vector<uint32_t> next_history;
  double scale = 0;  // as the update makes it; a row changes this and next_history
};

double number(uint32_t code) { return value_of(Encoding::f32, code); }
uint32_t code_of(double v) { return nearest_code(Encoding::f32, v); }

class Slots {
 public:
  Slots(const Problem& p, const Planes& inputs, Planes& made) : made_(made) {
    const Shape shape = p.x.shape;
    const auto at = [](const PlaneData& plane, int64_t i) { return code_at(plane.plane, plane.bytes, i); };
    const PlaneData &history = *find_plane(inputs, "history"), &scale = *find_plane(inputs, "scale");
    const PlaneData* reduced = find_plane(inputs, "reduced");
    for (int64_t c = 0; c < shape.cols; ++c) {
      Slot s;
      for (int64_t r = 0; r < shape.rows; ++r) {
        s.history.push_back(at(history, r * shape.cols + c));
        s.next_history.push_back(at(*find_plane(made, "next.history"), r * shape.cols + c));
      }
      s.latest = s.history.front();
      if (reduced && number(at(*reduced, c)) != 0) s.latest = at(*reduced, c);
      s.old_scale = number(at(scale, c));
      s.scale = number(at(*find_plane(made, "next.scale"), c));
      slots.push_back(std::move(s));
    }
  }
  void write() const {
    const auto set = [&](const char* name, int64_t i, uint32_t code) {
      for (PlaneData& plane : made_)
        if (plane.plane.name == name) set_code(plane.plane, plane.bytes, i, code);
    };
    for (size_t c = 0; c < slots.size(); ++c) {
      for (size_t r = 0; r < slots[c].history.size(); ++r)
        set("next.history", static_cast<int64_t>(r * slots.size() + c), slots[c].next_history[r]);
      set("next.scale", static_cast<int64_t>(c), code_of(slots[c].scale));
    }
  }
  std::vector<Slot> slots;

 private:
  Planes& made_;
};

// N4.3
bool rolls(const Problem& p, const Slot& s) {
  return p.as<Update>()->rule != UpdateRule::bulk || number(s.latest) != 0;
}

// The amax that a scale is made of: all of the window, or the latest alone (N4.2 to N4.5).
double largest(const Problem& p, const std::vector<uint32_t>& amaxes) {
  double out = 0;
  for (const uint32_t a : amaxes) {
    const double v = number(a);
    if (std::isnan(v) && p.as<Update>()->rule == UpdateRule::unfused) return v;
    if (v > out) out = v;
  }
  return out;
}
double amax_of(const Problem& p, const Slot& s) {
  const Update& op = *p.as<Update>();
  const double last = number(s.latest);
  if (op.algo == AmaxAlgo::most_recent) return last;
  if (!rolls(p, s)) return 0;
  std::vector<uint32_t> window(s.history.begin() + 1, s.history.end());
  window.push_back(s.latest);
  return largest(p, window);
}
// N4.5 to N4.7 for an amax, with the largest element value `most`.
double scale_of(const Problem& p, double amax, double old_scale, double most) {
  const Update& op = *p.as<Update>();
  const bool unfused = op.rule == UpdateRule::unfused;
  double s = old_scale;
  if (std::isfinite(amax) && amax > 0) {
    const auto less_margin = [&](double v) { return f32_of(std::ldexp(v, -op.margin)); };
    s = unfused ? less_margin(f32_of(f32_of(1 / amax) * most)) : f32_of(less_margin(most) / amax);
  }
  if (std::isinf(s) && (s > 0 || !unfused)) s = std::numeric_limits<float>::max();
  return s;
}
double most_of(const Problem& p) { return p.row->element == Encoding::e5m2 ? 57344 : 448; }
double rescaled(const Problem& p, const Slot& s, double amax) {
  return scale_of(p, amax, s.old_scale, most_of(p));
}

// N4.2
void roll(Slot& s) {
  s.next_history.assign(s.history.begin() + 1, s.history.end());
  s.next_history.push_back(s.latest);
  s.next_history[0] = 0;
}

using OfSlot = void (*)(const Problem&, Slot&);
struct SlotRow {
  const char *id, *title, *clause;
  OfSlot change;
};

constexpr SlotRow kSlotRows[] = {
    {"rolled_backwards", "the history rolls the wrong way: the newest amax stands where the oldest is read",
     "N4.2",
     [](const Problem& p, Slot& s) {
       if (!rolls(p, s)) return;
       for (size_t i = 2; i < s.history.size(); ++i) s.next_history[i] = s.history[i - 1];
       if (s.history.size() > 1) s.next_history[1] = s.latest;
       s.next_history[0] = 0;
     }},
    {"not_rolled", "the history does not roll: the latest amax is cleared and not kept", "N4.2",
     [](const Problem& p, Slot& s) {
       if (!rolls(p, s)) return;
       s.next_history = s.history;
       s.next_history[0] = 0;
     }},
    {"rolled_at_zero", "the history rolls although the latest amax is 0", "N4.3",
     [](const Problem& p, Slot& s) {
       if (!rolls(p, s)) roll(s);
     }},
    {"not_cleared", "the current amax is not cleared after the roll: the oldest one stays there", "N4.2",
     [](const Problem& p, Slot& s) {
       if (rolls(p, s)) s.next_history[0] = s.history.size() > 1 ? s.history[1] : s.latest;
     }},
    {"latest_stays", "the current amax is not cleared: the latest one stays there", "N4.2",
     [](const Problem& p, Slot& s) {
       if (rolls(p, s)) s.next_history[0] = s.latest;
     }},
    {"before_latest", "the scale is updated before the latest amax is in the history", "N4.2",
     [](const Problem& p, Slot& s) {
       const bool recent = p.as<Update>()->algo == AmaxAlgo::most_recent;
       const std::vector<uint32_t> before(s.history.begin() + 1, s.history.end());
       const double amax = before.empty() ? 0 : recent ? number(before.back()) : largest(p, before);
       s.scale = rescaled(p, s, amax);
     }},
    {"oldest_missed", "the window misses its oldest amax", "N4.2",
     [](const Problem& p, Slot& s) {
       if (p.as<Update>()->algo == AmaxAlgo::most_recent || s.history.size() < 2) return;
       std::vector<uint32_t> window(s.history.begin() + 2, s.history.end());
       window.push_back(s.latest);
       s.scale = rescaled(p, s, rolls(p, s) ? largest(p, window) : 0);
     }},
    {"reduced_missed", "the amax of this rank alone is taken, not the reduced one", "N4.1",
     [](const Problem& p, Slot& s) {
       s.latest = s.history.front();
       s.scale = rescaled(p, s, amax_of(p, s));
       if (rolls(p, s)) roll(s);
       else s.next_history = s.history;
     }},
    {"scale_of_own",
     "the scale is made of the amax of this rank alone, and only the history has the reduced one", "N4.1",
     [](const Problem& p, Slot& s) {
       Slot own = s;
       own.latest = s.history.front();
       s.scale = rescaled(p, own, amax_of(p, own));
     }},
    {"scale_kept", "the scale is never updated", "N4.6",
     [](const Problem&, Slot& s) { s.scale = s.old_scale; }},
    {"scale_inverted", "the inverse of the scale is stored", "N4.6",
     [](const Problem&, Slot& s) { s.scale = f32_of(1 / s.scale); }},
    {"power_of_two", "the scale is rounded down to a power of two", "N4.6",
     [](const Problem&, Slot& s) {
       if (std::isfinite(s.scale) && s.scale > 0) s.scale = std::exp2(std::floor(std::log2(s.scale)));
     }},
    {"max_240", "the largest element value is taken to be 240, as that of E4M3 without infinities and -0",
     "N4.6", [](const Problem& p, Slot& s) { s.scale = scale_of(p, amax_of(p, s), s.old_scale, 240); }},
    {"zero_gives_one", "an amax of 0 gives the scale 1, where the old scale stays", "N4.6",
     [](const Problem& p, Slot& s) {
       if (amax_of(p, s) == 0) s.scale = 1;
     }},
    {"zero_gives_most", "an amax of 0 is divided by, where the old scale stays", "N4.6",
     [](const Problem& p, Slot& s) {
       if (amax_of(p, s) == 0) s.scale = std::numeric_limits<float>::max();
     }},
    {"infinite_gives_zero", "an infinite amax is divided by, where the old scale stays", "N4.6",
     [](const Problem& p, Slot& s) {
       if (std::isinf(amax_of(p, s))) s.scale = 0;
     }},
    {"odd_gives_one", "an amax that is 0 or not finite gives the scale 1, where the old scale stays", "N4.6",
     [](const Problem& p, Slot& s) {
       if (const double amax = amax_of(p, s); !std::isfinite(amax) || amax <= 0) s.scale = 1;
     }},
    {"infinite_stays", "an infinite scale stays, where it becomes the largest number", "N4.7",
     [](const Problem& p, Slot& s) {
       const double amax = amax_of(p, s);
       const bool kept = !std::isfinite(amax) || amax <= 0;
       if (s.scale == std::numeric_limits<float>::max() && (!kept || std::isinf(s.old_scale)))
         s.scale = std::numeric_limits<double>::infinity();
     }},
};

}  // namespace

std::vector<Hypothesis> update_hypotheses(const Problem& problem) {
  std::vector<Hypothesis> out;
  const Update* op = problem.as<Update>();
  if (!op) return out;
  const auto add = [&](const std::string& id, std::string title, const char* clause) -> Hypothesis& {
    Hypothesis h;
    h.id = "update." + id;
    h.title = std::move(title);
    h.stage = Stage::tensor_scale;
    h.clause = clause;
    out.push_back(std::move(h));
    return out.back();
  };
  if (op->margin != 0) {
    add("margin_missing", "the margin is left out", "N4.6").keys = "margin=0";
    add("margin_negated", "the margin has the other sign", "N4.6").keys =
        fmt::format("margin={}", -op->margin);
  }
  for (const SlotRow& r : kSlotRows)
    add(r.id, r.title, r.clause).remake = [change = r.change](const Problem& p, const Planes& inputs,
                                                              Planes& made) {
      Slots all(p, inputs, made);
      for (Slot& s : all.slots) change(p, s);
      all.write();
    };
  add("one_for_all", "all slots are scaled by the largest amax of any", "N4.2").remake =
      [](const Problem& p, const Planes& inputs, Planes& made) {
        Slots all(p, inputs, made);
        double amax = 0;
        for (const Slot& s : all.slots)
          if (const double own = amax_of(p, s); own > amax) amax = own;
        for (Slot& s : all.slots) s.scale = rescaled(p, s, amax);
        all.write();
      };
  return out;
}

}  // namespace assay
