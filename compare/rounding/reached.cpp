#include "compare/rounding/reached.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>

#include "compare/process/interrupt.h"
#include "compare/process/pool.h"
#include "compare/rounding/cases.h"
#include "compare/rounding/predicates.h"
#include "contract/tracer.h"
#include "fixtures/inputs.h"
#include "fixtures/json.h"

namespace assay::rounding {

namespace {

std::vector<int64_t>& of_unit(Reached& reached, const std::string& unit) {
  std::vector<int64_t>& out = reached[unit];
  if (out.empty()) out.assign(cases().size(), -1);
  return out;
}

// N6.7: a flag of 1 leaves everything as it was, and nothing happens.
bool writes(const Lane& lane) { return !predicates::flag_of_one(lane); }

// The cases that are still to be found in one lane, by the place of a step in an element's list: elements of
// a lane have the same steps nearly always, so that their names are compared once.
class Pending {
 public:
  Pending(const Lane& lane, const Keys& keys, std::vector<int64_t>& first, int64_t line)
      : lane_(lane), first_(first), line_(line) {
    const Unit& unit = unit_of(lane);
    for (size_t i = 0; i < cases().size(); ++i) {
      const Case& c = cases()[i];
      if (first[i] >= 0 || !applies(c, unit) || !keys.meet(c.keys)) continue;
      if (!c.of_lane) open_.push_back(i);
      else if (c.of_lane(lane) && (writes(lane) || c.of_lane == predicates::flag_of_one)) first[i] = line;
    }
  }
  bool any() const { return !open_.empty(); }
  // Whether a case asks for more of the line than what decides the steps.
  bool asks_for_more() const {
    return std::any_of(open_.begin(), open_.end(), [](size_t i) { return !decides_steps(cases()[i].keys); });
  }

  void look(const std::vector<TraceStep>& steps, int64_t col) {
    if (places_.size() < steps.size()) places_.resize(steps.size());
    uint32_t before = info(Encoding::f32).nan;
    size_t found = 0;
    for (size_t at = 0; at < steps.size(); ++at) {
      const TraceStep& self = steps[at];
      Place& place = places_[at];
      if (place.what != self.what) take(place, self.what);
      const Moment moment(lane_, self, before);
      if (!place.moments.empty() && place.seen.is_new(self.bits, before))
        found += settle(place.moments, [&](const Case& c) { return c.of_moment(moment); });
      if (!place.steps.empty()) {
        const Step step(moment, steps, col);
        found += settle(place.steps, [&](const Case& c) { return c.of_step(step); });
      }
      if (self.encoding == Encoding::f32) before = self.bits;
    }
    if (found > 0) std::erase_if(open_, [&](size_t i) { return first_[i] >= 0; });
  }

 private:
  // Which values a place has had of late: predicates of a Moment say the same of the same values.
  class Seen {
   public:
    bool is_new(uint32_t bits, uint32_t before) {
      const uint64_t key = uint64_t{bits} << 32 | before;
      if (keys_.empty()) keys_.assign(kSize, ~key);
      uint64_t& known = keys_[key * 0x9E3779B97F4A7C15u >> (64 - kBits)];
      return known != key && ((known = key), true);
    }

   private:
    static constexpr int kBits = 12;
    static constexpr size_t kSize = size_t{1} << kBits;
    std::vector<uint64_t> keys_;
  };
  struct Place {
    std::string what;
    std::vector<size_t> moments, steps;  // cases
    Seen seen;
  };
  void take(Place& place, const std::string& what) const {
    place = {what, {}, {}, {}};
    for (size_t i : open_)
      if (names_step(cases()[i].step, what))
        (cases()[i].of_moment ? place.moments : place.steps).push_back(i);
  }
  template <class Holds> size_t settle(std::vector<size_t>& open, Holds holds) {
    return std::erase_if(open, [&](size_t i) {
      if (first_[i] < 0 && !holds(cases()[i])) return false;
      if (first_[i] < 0) first_[i] = line_;
      return true;
    });
  }

  const Lane& lane_;
  std::vector<int64_t>& first_;
  int64_t line_;
  std::vector<size_t> open_;
  std::vector<Place> places_;
};

// The elements that a tracer is asked about.
Shape traced(const Lane& lane) {
  const Problem& p = lane.problem;
  Shape s = p.x.shape;
  if (p.as<Update>()) s.rows = 1;  // the slots
  if (p.as<ScaleChain>() && p.row && p.row->format == FormatId::nvfp4) s.cols = std::min<int64_t>(s.cols, 1);
  if (p.as<Philox>() || p.as<Swizzle>() || p.as<ScaleState>() || !writes(lane)) s = {0, 0};  // no steps
  return s;
}

void look_at_elements(Pending& pending, const Lane& lane, Tracing& reference) {
  const Shape shape = traced(lane);
  const std::vector<ConstBuffer> inputs = views(lane.inputs);
  const Tracer trace = reference.tracer(lane.problem, inputs, lane.direction);
  for (int64_t row = 0; row < shape.rows; ++row)
    for (int64_t col = 0; col < shape.cols; ++col) {
      pending.look(trace(row, col), col);
      if (!pending.any()) return;
    }
}

}  // namespace

std::optional<Error> Walk::add(int64_t index, const Problem& p) {
  Tracing* tracing = dynamic_cast<Tracing*>(&reference_);
  if (!tracing)
    return Error{std::string(reference_.name()) + " does not report the steps of every element", 0, ""};
  const auto inputs = make_inputs(p, reference_);
  if (!inputs) return inputs.error();
  try {
    const bool directed = p.row || p.col;
    for (Direction d : kDirections) {
      if (directed ? !p.quantizer(d) : d == Direction::col) continue;
      const Lane lane{p, *inputs, d, directed};
      const std::string& unit = unit_of(lane).name;
      if (unit.find(only_) == std::string::npos) continue;
      const Keys keys(lane);
      Pending pending(lane, keys, of_unit(reached_, unit), index);
      if (!pending.any() || traced(lane).count() == 0) continue;
      if (!traced_.insert(keys.of_steps(lane)).second && !pending.asks_for_more()) continue;
      look_at_elements(pending, lane, *tracing);
    }
  } catch (const std::exception& e) {
    return Error{e.what(), 0, ""};
  }
  return {};
}

namespace {

// What a task sends: the cases that its lines are the first of this worker to reach, and their errors.
json::Value as_json(const Reached& reached, int64_t from, int64_t to,
                    const std::vector<std::pair<size_t, std::string>>& errors) {
  json::Value units = json::object(), failed = json::array();
  for (const auto& [unit, first] : reached) {
    json::Value list = json::array();
    for (size_t i = 0; i < first.size(); ++i)
      if (first[i] >= from && first[i] < to) {
        list.push(static_cast<int64_t>(i));
        list.push(first[i]);
      }
    if (!list.array()->empty()) units.set(unit, std::move(list));
  }
  for (const auto& [line, why] : errors) failed.push(json::object({{"line", line}, {"why", why}}));
  return json::object({{"units", std::move(units)}, {"errors", std::move(failed)}});
}

void merge(ReachedByLines& all, const json::Value& part) {
  for (const auto& [unit, list] : *part.find("units")->object()) {
    std::vector<int64_t>& first = of_unit(all.reached, unit);
    const auto& numbers = *list.array();
    for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
      int64_t& known = first[static_cast<size_t>(*numbers[i].to_int())];
      const int64_t line = *numbers[i + 1].to_int();
      if (known < 0 || line < known) known = line;
    }
  }
  for (const json::Value& e : *part.find("errors")->array())
    all.errors.emplace_back(static_cast<size_t>(*e.find("line")->to_int()), std::string(e.text("why")));
}

// Of few elements first, so that a large line is traced only for what no small one reaches.
std::vector<size_t> smallest_first(const std::vector<Problem>& lines) {
  std::vector<size_t> order(lines.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lines[a].x.shape.count() < lines[b].x.shape.count(); });
  return order;
}

// The lines of a part of the order; lines are numbered by their place in it. Workers start from what the
// parts before reached.
void look_at_part(ReachedByLines& out, const std::vector<Problem>& lines, std::span<const size_t> part,
                  Subject& reference, const ReachOptions& options) {
  constexpr size_t kLinesOfTask = 16;
  constexpr double kLongest = 3600;
  const size_t before = out.looked_at;
  Walk walk(reference, options.only, out.reached);
  TaskHooks hooks;
  hooks.task = [&](size_t task) {
    const size_t from = task * kLinesOfTask, to = std::min(part.size(), from + kLinesOfTask);
    std::vector<std::pair<size_t, std::string>> errors;
    for (size_t i = from; i < to; ++i)
      if (const auto error = walk.add(static_cast<int64_t>(before + i), lines[part[i]]))
        errors.emplace_back(part[i], error->text());
    return json::dump(as_json(walk.reached(), static_cast<int64_t>(before + from),
                              static_cast<int64_t>(before + to), errors));
  };
  hooks.crashed = [](const std::string& why) -> std::string {
    throw std::runtime_error("a worker of the coverage ended: " + why);
  };
  hooks.result = [&](size_t task, const std::string& text) {
    merge(out, *json::parse(text));
    out.looked_at = before + std::min(part.size(), (task + 1) * kLinesOfTask);
    if (options.on_progress) options.on_progress(out.looked_at, lines.size());
    return true;
  };
  run_tasks((part.size() + kLinesOfTask - 1) / kLinesOfTask, options.jobs, kLongest, std::move(hooks));
}

}  // namespace

ReachedByLines reach(const std::vector<Problem>& lines, Subject& reference, const ReachOptions& options) {
  constexpr size_t kLinesOfPart = 1024;
  const std::vector<size_t> order = smallest_first(lines);
  ReachedByLines out;
  for (size_t from = 0; from < order.size() && out.looked_at == from && !interrupted(); from += kLinesOfPart)
    look_at_part(out, lines, std::span(order).subspan(from, std::min(kLinesOfPart, order.size() - from)),
                 reference, options);
  for (auto& [unit, first] : out.reached)
    for (int64_t& line : first)
      if (line >= 0) line = static_cast<int64_t>(order[static_cast<size_t>(line)]);
  return out;
}

}  // namespace assay::rounding
