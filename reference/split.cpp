#include "reference/split.h"

#include <list>
#include <memory>

namespace assay::reference {

namespace {

// Member m of a split as a line of its own. `problem` must outlive it.
class MemberLine {
 public:
  MemberLine(const Run& split, size_t m, const Problem& problem)
      : problem_(problem), threads_(split.threads) {
    const auto part = [&](const auto& whole) {
      auto own = whole;
      if (whole.plane->members.empty()) return own;  // the noop flag is everybody's
      own.plane = &planes_.emplace_back(member_plane(*whole.plane, m));
      own.bytes =
          whole.bytes.subspan(whole.plane->bytes_of(whole.plane->members[m].offset), own.plane->bytes());
      return own;
    };
    for (const ConstBuffer& b : split.inputs) inputs_.push_back(part(b));
    for (const Buffer& b : split.outputs) outputs_.push_back(part(b));
  }
  Run run() const { return {problem_, inputs_, outputs_, threads_}; }

 private:
  const Problem& problem_;
  int threads_;
  std::list<Plane> planes_;  // buffers point to them
  std::vector<ConstBuffer> inputs_;
  std::vector<Buffer> outputs_;
};

// N14.3: before each member the sum of those before it, and behind the last the sum of all. The first is 0.
template <class SizeOf>
void store_offsets(const Buffer& offsets, const std::vector<Problem>& members, SizeOf size_of) {
  int64_t before = 0;
  for (size_t m = 0; m <= members.size(); ++m) {
    store(offsets, static_cast<int64_t>(m), static_cast<uint32_t>(before));
    if (m < members.size()) before += size_of(members[m]);
  }
}

}  // namespace

void split(const Run& run, const std::function<void(const Run&)>& quantize) {
  const std::vector<Problem> members = member_problems(run.problem);
  store_offsets(run.output("offsets"), members, [](const Problem& m) { return m.x.shape.count(); });
  for (Direction d : kDirections)
    if (run.problem.quantizer(d) && info(run.quantizer(d).format).has_blocks())
      store_offsets(run.output(d, "scale_offsets"), members, [&](const Problem& m) {
        return geometry(*m.quantizer(d), m.x.shape, d).scale_padded.count();
      });
  for (size_t m = 0; m < members.size(); ++m) quantize(MemberLine(run, m, members[m]).run());
}

Tracer trace_split(const Run& run, const std::function<Tracer(const Run&)>& trace) {
  struct Member {
    Member(const Run& run, size_t m, const Problem& problem) : line(run, m, problem) {}
    MemberLine line;
    Tracer steps;
  };
  const auto problems = std::make_shared<const std::vector<Problem>>(member_problems(run.problem));
  const auto members = std::make_shared<std::list<Member>>();
  for (size_t m = 0; m < problems->size(); ++m) {
    Member& member = members->emplace_back(run, m, (*problems)[m]);
    member.steps = trace(member.line.run());
  }
  return [problems, members, cols = run.problem.x.shape.cols](int64_t row, int64_t col) {
    int64_t left = row * cols + col;  // N14.1: elements in x before this one
    auto member = members->begin();
    for (const Problem& p : *problems) {
      const Shape shape = p.x.shape;
      if (left < shape.count()) return member->steps(left / shape.cols, left % shape.cols);
      left -= shape.count();
      ++member;
    }
    return std::vector<TraceStep>{};
  };
}

}  // namespace assay::reference
