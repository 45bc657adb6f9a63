#include "python/given.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "compare/arithmetic/places.h"
#include "compare/packs/dump.h"
#include "compare/process/run_in_child.h"
#include "contract/planes.h"
#include "contract/words.h"
#include "python/line.h"
#include "python/subjects.h"

namespace assay::python {

namespace {

using std::string;

// Whether a subject can read the tensor where it lies.
bool lies_right(const safetensors::Tensor& t, const Plane& plane) {
  const size_t element = static_cast<size_t>(info(plane.encoding).bytes());
  return !plane.packed && t.dtype == safetensors::dtype_of(plane.encoding) &&
         t.count() == plane.padded.count() && t.bytes.size() == plane.bytes() &&
         reinterpret_cast<uintptr_t>(t.bytes.data()) % element == 0;
}

PlaneData copied(const safetensors::Tensor& t, const Plane& plane) {
  auto data = dump_plane(t, plane);
  if (!data) throw Failure("plane", data.error(), plane.name);
  return std::move(*data);
}

}  // namespace

GivenCase::GivenCase(const string& line, const std::vector<GivenPlane>& planes, const CaseSettings& settings)
    : problem(problem_of_line(line)), reference(python::reference()) {
  recorded.id = settings.subject;
  recorded.line = line;
  recorded.unpinned = settings.unpinned;
  for (const GivenPlane& g : planes) {
    const auto dtype = safetensors::dtype_named(g.dtype);
    if (!dtype) throw Failure("plane", {"'" + g.dtype + "' is not a dtype of safetensors", 0, ""}, g.name);
    recorded.planes.push_back({g.name, safetensors::Tensor{g.name, *dtype, g.shape, g.bytes}, ""});
  }
  std::sort(recorded.planes.begin(), recorded.planes.end(),
            [](const PackPlane& a, const PackPlane& b) { return a.name < b.name; });
  environment.threads = settings.threads > 0
                            ? settings.threads
                            : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (const Support s = reference->supports(problem); !s.yes)
    throw Failure("run", {"the reference does not run this line: " + s.why, 0, ""});
}

Inputs::Inputs(const GivenCase& c) : planes_(input_planes(c.problem)) {
  const bool drawn = c.recorded.planes.empty() || c.recorded.line.find("fill=") != string::npos;
  bool missing = false;
  for (const Plane& plane : planes_) {
    if (c.recorded.find(plane.name)) continue;
    missing = true;
    if (!drawn && !said_by_keys(plane.name))
      throw Failure("plane",
                    {"expected the input plane " + plane.name +
                         ", found none, and the line has no fill= to draw it from",
                     0, "pass it"},
                    plane.name);
  }
  std::vector<PlaneData> made;
  if (missing) {
    Problem keys = c.problem;
    if (c.recorded.find("x")) {  // which is then not drawn
      keys.x.fill = Fill{};
      keys.x.fill.kind = FillKind::zeros;
    }
    auto all = make_inputs(keys, *c.reference);
    if (!all) throw Failure("run", all.error());
    made = std::move(*all);
  }
  own_.reserve(planes_.size());  // views_ point into it
  for (const Plane& plane : planes_) {
    const PackPlane* given = c.recorded.find(plane.name);
    if (given && lies_right(*given->tensor, plane)) {
      views_.push_back({&plane, given->tensor->bytes});
      continue;
    }
    if (given) {
      own_.push_back(copied(*given->tensor, plane));
    } else {
      const auto at = std::find_if(made.begin(), made.end(),
                                   [&](const PlaneData& d) { return d.plane.name == plane.name; });
      own_.push_back(std::move(*at));
    }
    views_.push_back({&plane, own_.back().bytes});
  }
}

std::vector<PlaneData> Inputs::copies() const {
  std::vector<PlaneData> out;
  for (const ConstBuffer& v : views_) out.push_back({*v.plane, {v.bytes.begin(), v.bytes.end()}});
  return out;
}

std::vector<PlaneData> wanted(const GivenCase& c, const Inputs& inputs) {
  std::vector<PlaneData> out;
  std::vector<Buffer> to;
  for (Plane& plane : output_planes(c.problem)) {
    const size_t bytes = plane.bytes();
    out.push_back({std::move(plane), std::vector<std::byte>(bytes)});
  }
  for (PlaneData& p : out) to.push_back({&p.plane, p.bytes});
  try {
    c.reference->run(c.problem, inputs.views(), to, c.environment);
  } catch (const std::exception& e) {
    throw Failure("run", {string("the reference: ") + e.what(), 0, ""});
  }
  for (PlaneData& p : out) clear_spare(p);
  return out;
}

std::vector<PlaneData> given_outputs(const GivenCase& c) {
  std::vector<PlaneData> out;
  for (const Plane& plane : output_planes(c.problem))
    if (const PackPlane* given = c.recorded.find(plane.name)) out.push_back(copied(*given->tensor, plane));
  return out;
}

}  // namespace assay::python
