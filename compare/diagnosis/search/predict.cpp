#include "compare/diagnosis/search/predict.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "compare/diagnosis/library/group_offsets.h"
#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/library/whole_causes.h"
#include "compare/diagnosis/replay/replay.h"
#include "compare/diagnosis/search/member_scopes.h"
#include "compare/process/plain_run.h"
#include "contract/line.h"

namespace assay {

using std::string;

namespace {

// Whether a cause acts on a lane of the case. `where` is what follows its id: "@row", "@after_empty",
// or both.
bool acts_on(const Lane& lane, string where, const Problem& whole) {
  while (!where.empty()) {
    const size_t end = std::min(where.find('@', 1), where.size());
    const string scope = where.substr(1, end - 1);
    const auto* direction = std::ranges::find(kDirections, scope, [](Direction d) { return name_of(d); });
    const bool holds = direction != std::end(kDirections)
                           ? lane.direction == *direction
                           : lane.member && is_in_scope(scope, whole, *lane.member);
    if (!holds) return false;
    where.erase(0, end);
  }
  return true;
}

// The row of an id on one lane; nothing where it does not act there.
std::optional<Hypothesis> row_for(const string& id, const Lane& lane, const Problem& whole) {
  const size_t at = std::min(id.find('@'), id.size());
  const std::optional<Direction> d = lane.direction;
  if (!acts_on(lane, id.substr(at), whole)) return {};
  const string bare = id.substr(0, at);
  const bool moves = lane.problem.as<Swizzle>() && bare.starts_with("layout.");
  const Direction own = lane.problem.row ? Direction::row : Direction::col;
  auto row = d || moves ? hypothesis_named(bare, lane.problem, d.value_or(own)) : std::nullopt;
  if (!d && !moves)
    for (Hypothesis& h : line_hypotheses(lane.problem))
      if (h.id == bare) row = std::move(h);
  // A key may be one that this direction does not have.
  if (row && !row->keys.empty() && !with_keys(lane.problem, row->keys)) return {};
  return row;
}

// What one lane's planes become; nothing where the rows do not apply together.
std::optional<std::vector<PlaneData>> replayed(const Replay& replay, const std::vector<Hypothesis>& rows) {
  std::vector<const Hypothesis*> acting;
  for (const Hypothesis& h : rows) acting.push_back(&h);
  auto planes = replay.run({}, acting);
  if (!planes) return {};
  for (const Hypothesis& h : rows)
    if (!h.layout.empty()) lay_out(h, *planes);
  return planes;
}

// Copies the planes of a lane into those of the case.
void put_into(std::vector<PlaneData>& out, const std::vector<PlaneData>& planes, const Lane& lane) {
  for (const PlaneData& made : planes)
    for (PlaneData& whole : out) {
      if (whole.plane.name != made.plane.name) continue;
      const size_t from = lane.member ? whole.plane.bytes_of(whole.plane.members[*lane.member].offset) : 0;
      std::copy(made.bytes.begin(), made.bytes.end(),
                whole.bytes.begin() + static_cast<std::ptrdiff_t>(from));
    }
}

}  // namespace

std::optional<Problem> columns_of_rows(const Problem& problem) {
  return with_keys(problem, "col_source=row_dequantized");
}

RunLine run_by(Subject& reference) {
  return [&](const Problem& line, const std::vector<PlaneData>& in) -> std::optional<std::vector<PlaneData>> {
    if (validate(line)) return {};
    auto made = plain_run(reference, line, in);
    return made ? std::optional(std::move(*made)) : std::nullopt;
  };
}

Result<std::vector<PlaneData>> predict(const Explanation& e, const Problem& problem,
                                       const std::vector<PlaneData>& inputs, Subject& reference) {
  if (e.ids == std::vector{string(kColumnsOfRows)}) {
    const auto changed = columns_of_rows(problem);
    if (!changed) return Error{"this explanation does not apply to " + to_line(problem), 0, ""};
    return plain_run(reference, *changed, inputs);
  }
  auto out = plain_run(reference, problem, inputs);
  if (!out) return out.error();
  for (const OffsetCause& cause : offset_causes(problem))
    if (e.ids == std::vector{cause.id}) {
      auto moved = moved_scales(cause, problem, *out);
      if (!moved) return Error{"this explanation does not apply to " + to_line(problem), 0, ""};
      return std::move(moved->planes);
    }
  for (const WholeCause& cause : whole_causes(problem))
    if (e.ids == std::vector{cause.id}) {
      auto made = cause.made(problem, inputs, *out, run_by(reference));
      if (!made) return Error{"this explanation does not apply to " + to_line(problem), 0, ""};
      return std::move(*made);
    }
  std::set<string> used;
  // Rows first: columns may be made of them.
  for (const std::optional<Direction> d :
       {std::optional<Direction>{}, std::optional(Direction::row), std::optional(Direction::col)}) {
    auto lanes = lanes_of(problem, inputs, *out, reference);
    if (!lanes) return lanes.error();
    for (Lane& lane : *lanes) {
      if (lane.direction != d) continue;
      const Replay replay(std::move(lane), reference);
      std::vector<Hypothesis> rows;
      for (const string& id : e.ids)
        if (auto row = row_for(id, replay.lane(), problem)) {
          used.insert(id);
          rows.push_back(std::move(*row));
        }
      const auto planes = replayed(replay, rows);
      if (!planes) return Error{"this explanation does not apply to " + to_line(problem), 0, ""};
      put_into(*out, *planes, replay.lane());
    }
  }
  for (const string& id : e.ids)
    if (!used.contains(id)) return Error{"no hypothesis '" + id + "' applies to " + to_line(problem), 0, ""};
  return out;
}

// ---- the subject ------------------------------------------------------------------------------------------

namespace {

class ExplainedSubject final : public Subject {
 public:
  ExplainedSubject(Explanation e, string name, Subject& reference)
      : explanation_(std::move(e)), name_(std::move(name)), reference_(reference) {}
  std::string_view name() const override { return name_; }
  Support supports(const Problem& p) const override { return reference_.supports(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment&) override {
    std::vector<PlaneData> in;
    for (const ConstBuffer& b : inputs) in.push_back({*b.plane, {b.bytes.begin(), b.bytes.end()}});
    const auto planes = predict(explanation_, p, in, reference_);
    if (!planes) throw Unsupported(planes.error().text());
    for (size_t i = 0; i < outputs.size(); ++i)
      std::copy((*planes)[i].bytes.begin(), (*planes)[i].bytes.end(), outputs[i].bytes.begin());
    return {"the reference, with " + explanation_.title, 0};
  }

 private:
  Explanation explanation_;
  string name_;
  Subject& reference_;
};

}  // namespace

std::unique_ptr<Subject> make_explained_subject(Explanation e, std::string name, Subject& reference) {
  return std::make_unique<ExplainedSubject>(std::move(e), std::move(name), reference);
}

}  // namespace assay
