#include "compare/diagnosis/replay/whole_tensor.h"

#include <algorithm>
#include <cmath>

#include "compare/arithmetic/factors.h"
#include "compare/diagnosis/replay/planes.h"
#include "compare/diagnosis/replay/window.h"
#include "compare/process/plain_run.h"
#include "contract/line.h"

namespace assay {

std::optional<std::vector<PlaneData>> WholeTensor::execute(const Problem& p,
                                                           const std::vector<PlaneData>& inputs) const {
  if (validate(p)) return {};
  ++runs_;
  auto made = plain_run(reference_, p, inputs);
  if (!made) return {};
  return std::move(*made);
}

const PlaneData* WholeTensor::given_amax() const {
  return find_plane(lane_.inputs, plane_name(direction(), "given.amax"));
}

const PlaneData& WholeTensor::rotated() const {
  std::call_once(rotated_once_, [&] {
    Problem p = lane_.problem;
    p.row.reset();
    p.op = Hadamard{};
    const auto planes = execute(p, lane_.inputs);
    if (planes) rotated_ = planes->front();
  });
  return rotated_;
}

double WholeTensor::amax() const {
  std::call_once(amax_once_, [&] {
    amax_ = quantizer().rht ? Matrix(rotated(), Direction::row).amax() : Matrix(x(), direction()).amax();
  });
  return amax_;
}

std::vector<WholeTensor::Element> WholeTensor::largest_elements(const Matrix& x) {
  constexpr size_t kLargest = 256;
  std::vector<Element> heap;  // the least on top
  const auto above = [](const Element& a, const Element& b) { return a.magnitude > b.magnitude; };
  for (int64_t i = 0; i < x.lines(); ++i)
    for (int64_t j = 0; j < x.length(); ++j) {
      const double v = std::fabs(x.value(i, j));
      if (std::isnan(v) || (heap.size() == kLargest && v <= heap.front().magnitude)) continue;
      if (heap.size() == kLargest) std::pop_heap(heap.begin(), heap.end(), above), heap.pop_back();
      heap.push_back({v, i, j});
      std::push_heap(heap.begin(), heap.end(), above);
    }
  std::sort_heap(heap.begin(), heap.end(), above);
  return heap;
}

// The largest elements stand in a list, so that most parts of a tensor are known without looking at all of
// it.
double WholeTensor::amax_of_part(const Matrix& x, const std::function<bool(int64_t, int64_t, Shape)>& in,
                                 bool edited) const {
  const Shape shape = lane_.problem.x.shape;
  const bool rows = direction() == Direction::row;
  const auto inside = [&](int64_t i, int64_t j) { return rows ? in(i, j, shape) : in(j, i, shape); };
  if (!edited) {
    std::call_once(largest_once_, [&] { largest_ = largest_elements(x); });
    for (const Element& e : largest_)
      if (inside(e.i, e.j)) return e.magnitude;
  }
  double out = 0;
  for (int64_t i = 0; i < x.lines(); ++i)
    for (int64_t j = 0; j < x.length(); ++j)
      if (const double v = std::fabs(x.value(i, j)); v > out && inside(i, j)) out = v;
  return out;
}

const std::vector<double>& WholeTensor::block_amaxes() const {
  std::call_once(blocks_once_, [&] {
    const Quantizer& q = quantizer();
    const Matrix of = q.rht ? Matrix(rotated(), Direction::row) : Matrix(x(), direction());
    const int64_t n = length_of(q.block), height = is_square(q.block) ? n : 1;
    for (int64_t i = 0; i < of.lines(); i += height)
      for (int64_t j = 0; j < of.length(); j += n) block_amaxes_.push_back(of.amax(i, i + height, j, j + n));
  });
  return block_amaxes_;
}

void WholeTensor::make_scales() const {
  std::call_once(scales_once_, [&] {
    const Matrix seen(x(), direction());
    const std::optional<Matrix> turned =
        quantizer().rht ? std::optional<Matrix>(std::in_place, rotated(), Direction::row) : std::nullopt;
    const Selection all = all_of(seen);
    const Window window{*this, all, lane_.problem, direction(), {}, &seen, turned ? &*turned : &seen};
    auto planes = execute(lane_.problem, lane_.inputs);
    const PlaneData* plane = planes ? window.scales_in(*planes) : nullptr;
    if (!plane || !info(quantizer().format).has_blocks()) return;
    scale_amaxes_ = window.grid_of_amaxes(nullptr, seen);
    scales_ = window.grid_of(*plane);
    scales_.amaxes = scale_amaxes_.amaxes;
    if (quantizer().format == FormatId::nvfp4 && !quantizer().row_scaled) {
      const PlaneData* given = given_amax();
      scales_.tensor_amax = given ? static_cast<double>(scalar_of(*given)) : amax();
      scales_.encode_scale =
          encode_scale(quantizer(), static_cast<float>(scales_.tensor_amax), lane_.problem.x.source);
    }
  });
}

const ScaleGrid& WholeTensor::scales() const {
  make_scales();
  return scales_;
}

const ScaleGrid& WholeTensor::scale_amaxes() const {
  make_scales();
  return scale_amaxes_;
}

const std::optional<std::vector<PlaneData>>& WholeTensor::of_other() const {
  std::call_once(other_once_, [&] {
    if (!lane_.other) return;
    Problem p = lane_.problem;
    p.quantizer(direction()).reset();
    p.quantizer(other_than(direction())) = lane_.other;
    of_other_ = execute(p, lane_.inputs);
  });
  return of_other_;
}

namespace {

// The input plane of this name of the line, with the codes of the transpose of `given`.
PlaneData turned(const PlaneData& given, const Problem& p, const std::string& name) {
  const std::vector<Plane> planes = input_planes(p);
  PlaneData out;
  out.plane = *std::find_if(planes.begin(), planes.end(), [&](const Plane& x) { return x.name == name; });
  out.bytes.resize(out.plane.bytes());
  take_codes(given, out, true);
  return out;
}

}  // namespace

const std::optional<std::vector<PlaneData>>& WholeTensor::across() const {
  std::call_once(across_once_, [&] {
    const Direction d = direction(), other = other_than(d);
    Problem p = lane_.problem;
    p.quantizer(other) = p.quantizer(d);
    p.quantizer(d).reset();
    std::vector<PlaneData> inputs;
    for (PlaneData data : lane_.inputs) {
      if (data.plane.direction == d) {
        const std::string name = plane_name(other, data.plane.name.substr(data.plane.name.find('.') + 1));
        if (data.plane.logical.count() == 1) data.plane.name = name;
        else if (is_square(quantizer().block)) data = turned(data, p, name);
        else return;  // what is given for blocks is not known for blocks along the other axis
      }
      inputs.push_back(std::move(data));
    }
    across_ = execute(p, inputs);
  });
  return across_;
}

}  // namespace assay
