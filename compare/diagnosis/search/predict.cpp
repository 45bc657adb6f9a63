#include "compare/diagnosis/search/predict.h"

#include <algorithm>
#include <set>

#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/replay/replay.h"
#include "contract/line.h"

namespace assay {

using std::string;

Result<std::vector<PlaneData>> predict(const Explanation& e, const Problem& problem, const std::vector<PlaneData>& inputs, Subject& reference) {
  std::vector<PlaneData> out;
  for (const Plane& plane : output_planes(problem)) out.push_back({plane, std::vector<std::byte>(plane.bytes())});
  std::vector<Buffer> buffers;
  for (PlaneData& data : out) buffers.push_back({&data.plane, data.bytes});
  try {
    reference.run(problem, views(inputs), buffers, Environment{});
  } catch (const std::exception& error) {
    return Error{string("the reference: ") + error.what(), 0, ""};
  }
  std::set<string> used;
  // Rows first: columns may be made of them.
  for (const std::optional<Direction> d : {std::optional<Direction>{}, std::optional(Direction::row), std::optional(Direction::col)}) {
    auto lanes = lanes_of(problem, inputs, out, reference);
    if (!lanes) return lanes.error();
    for (Lane& lane : *lanes) {
      if (lane.direction != d) continue;
      const Replay replay(std::move(lane), reference);
      std::vector<Hypothesis> rows;
      for (const string& id : e.ids) {
        const size_t at = id.find('@');
        if (at != string::npos && (!d || id.substr(at + 1) != name_of(*d))) continue;
        const string bare = id.substr(0, at);
        auto row = d ? hypothesis_named(bare, replay.lane().problem, *d) : std::nullopt;
        if (!d)
          for (Hypothesis& h : line_hypotheses(replay.lane().problem))
            if (h.id == bare) row = std::move(h);
        if (!row) continue;
        if (!row->keys.empty() && !with_keys(replay.lane().problem, row->keys)) continue;   // a key that this direction does not have
        used.insert(id);
        rows.push_back(std::move(*row));
      }
      std::vector<const Hypothesis*> acting;
      for (const Hypothesis& h : rows) acting.push_back(&h);
      auto planes = replay.run({}, acting);
      if (!planes) return Error{"this explanation does not apply to " + to_line(problem), 0, ""};
      for (const Hypothesis& h : rows)
        if (!h.layout.empty()) lay_out(h, *planes);
      for (const PlaneData& made : *planes)
        for (PlaneData& whole : out)
          if (whole.plane.name == made.plane.name) {
            const size_t from = replay.lane().member ? whole.plane.bytes_of(whole.plane.members[*replay.lane().member].offset) : 0;
            std::copy(made.bytes.begin(), made.bytes.end(), whole.bytes.begin() + static_cast<std::ptrdiff_t>(from));
          }
    }
  }
  for (const string& id : e.ids)
    if (!used.contains(id)) return Error{"no hypothesis '" + id + "' applies to " + to_line(problem), 0, ""};
  return out;
}

namespace {

class ExplainedSubject final : public Subject {
 public:
  ExplainedSubject(Explanation e, string name, Subject& reference) : explanation_(std::move(e)), name_(std::move(name)), reference_(reference) {}
  std::string_view name() const override { return name_; }
  Support supports(const Problem& p) const override { return reference_.supports(p); }
  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs, const Environment&) override {
    std::vector<PlaneData> in;
    for (const ConstBuffer& b : inputs) in.push_back({*b.plane, {b.bytes.begin(), b.bytes.end()}});
    const auto planes = predict(explanation_, p, in, reference_);
    if (!planes) throw Unsupported(planes.error().text());
    for (size_t i = 0; i < outputs.size(); ++i) std::copy((*planes)[i].bytes.begin(), (*planes)[i].bytes.end(), outputs[i].bytes.begin());
    return {"the reference, with " + explanation_.title, 0};
  }

 private:
  Explanation explanation_;
  string name_;
  Subject& reference_;
};

}  // namespace

std::unique_ptr<Subject> make_explained_subject(Explanation e, std::string name, Subject& reference) { return std::make_unique<ExplainedSubject>(std::move(e), std::move(name), reference); }

}  // namespace assay
