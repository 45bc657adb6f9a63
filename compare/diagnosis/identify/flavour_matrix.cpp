#include "compare/diagnosis/identify/flavour_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/equal_bytes.h"
#include "compare/process/guarded_run.h"
#include "compare/process/interrupt.h"
#include "contract/line.h"
#include "fixtures/inputs.h"

namespace assay {

namespace {

using std::string;
using std::string_view;

// The tensors of a format: one line, or one for each seed. Scales of whole tensors need many tensors.
struct Sample {
  string fill;
  int seeds;
  string line;
};
std::vector<Sample> samples_of(FormatId format) {
  std::vector<Sample> out;
  const bool tensor = info(format).blocks == "tensor" || format == FormatId::nvfp4;
  for (const char* fill : {"normal", "wide"}) {
    const string scale =
        format == FormatId::fp8_delayed ? string(" scale=") + (string(fill) == "normal" ? "64" : "0.25") : "";
    out.push_back({fill, tensor ? 256 : 1,
                   fmt::format("quantize {} {} bf16 dir=row{} fill={} seed=", info(format).name,
                               tensor ? "64x64" : "1024x1024", scale, fill)});
  }
  return out;
}

using Planes = std::vector<PlaneData>;

int64_t differing(const PlaneData& a, const PlaneData& b, int64_t& of) {
  int64_t n = 0;
  of += a.plane.logical.count();
  for (int64_t r = 0; r < a.plane.logical.rows; ++r)
    for (int64_t c = 0; c < a.plane.logical.cols; ++c) {
      const int64_t at = index_of(a.plane, r, c);
      n += code_at(a.plane, a.bytes, at) != code_at(b.plane, b.bytes, at);
    }
  return n;
}

void add_difference(const Planes& a, const Planes& b, Apart& out) {
  for (const PlaneData& plane : a) {
    const PlaneData* other = find_plane(b, plane.plane.name);
    if (!other) continue;
    const bool same = equal_bytes(plane.bytes, other->bytes);
    const string_view stem = string_view(plane.plane.name).substr(plane.plane.name.find('.') + 1);
    if (stem != "data" && stem != "scale_inv") continue;
    int64_t& of = stem == "data" ? out.codes_of : out.scales_of;
    int64_t& n = stem == "data" ? out.codes : out.scales;
    if (same) of += plane.plane.logical.count();
    else n += differing(plane, *other, of);
  }
}

// The given number in the meaning that the choice has for it: a decode scale where the line has an encode
// scale (N17.5), a power of two; and P where the line has the tensor's own amax (N17.8).
void give_as_read(Problem& p, std::vector<PlaneData>& inputs) {
  Quantizer& q = *p.row;
  if (q.format == FormatId::fp8_delayed && q.numerics.scale_order != ScaleOrder::encode_first)
    for (PlaneData& plane : inputs)
      if (plane.plane.name == "row.given.scale")
        set_code(Encoding::f32, plane.bytes, 0,
                 std::bit_cast<uint32_t>(1 / std::bit_cast<float>(code_at(Encoding::f32, plane.bytes, 0))));
  if (q.format != FormatId::nvfp4 || q.numerics.nvfp4_scale != Nvfp4Scale::given_product) return;
  const PlaneData& x = *find_plane(inputs, "x");
  double amax = 0;
  for (int64_t i = 0; i < x.plane.logical.count(); ++i)
    amax = std::max(amax, std::fabs(value_of(x.plane.encoding, code_at(x.plane, x.bytes, i))));
  q.amax = std::bit_cast<uint32_t>(static_cast<float>(amax / 2688));
  for (const Plane& plane : input_planes(p))
    if (plane.name == "row.given.amax") {
      inputs.push_back({plane, std::vector<std::byte>(plane.bytes())});
      set_code(Encoding::f32, inputs.back().bytes, 0, *q.amax);
    }
}

// What each choice makes of one tensor.
Result<std::vector<Planes>> made_by(const std::vector<Choice>& choices, const string& line,
                                    Subject& reference, const Environment& environment) {
  const auto base = parse_line(line);
  if (!base) return base.error();
  const auto inputs = make_inputs(*base, reference);
  if (!inputs) return inputs.error();
  std::vector<Planes> out;
  for (const Choice& choice : choices) {
    if (interrupted()) return Error{"interrupted", 0, ""};
    auto problem = with_choice(*base, choice.keys);
    if (!problem) return problem.error();
    std::vector<PlaneData> given = *inputs;
    give_as_read(*problem, given);
    if (const Support support = reference.supports(*problem); !support.yes)
      return Error{to_line(*problem) + ": " + support.why, 0, ""};
    Execution run = execute(reference, *problem, given, environment);
    if (run.error) return Error{to_line(*problem) + ": " + *run.error, 0, ""};
    out.push_back(std::move(run.planes));
  }
  return out;
}

Result<FillMatrix> measure(const Sample& sample, const std::vector<Choice>& choices, Subject& reference,
                           const Environment& environment) {
  const size_t n = choices.size();
  const string seeds = sample.seeds == 1 ? string("1") : fmt::format("{{1..{}}}", sample.seeds);
  FillMatrix out{sample.fill, sample.line + seeds, std::vector(n, std::vector<Apart>(n))};
  for (int seed = 1; seed <= sample.seeds; ++seed) {
    const auto made = made_by(choices, sample.line + std::to_string(seed), reference, environment);
    if (!made) return made.error();
    for (size_t a = 0; a < n; ++a)
      for (size_t b = a + 1; b < n; ++b) add_difference((*made)[a], (*made)[b], out.apart[a][b]);
  }
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < a; ++b) out.apart[a][b] = out.apart[b][a];
  return out;
}

// The other default of formats that have two.
string other_default(FormatId format) {
  return format == FormatId::fp8_block ? "pow2=0" : format == FormatId::fp8_current ? "pow2=1" : "";
}

}  // namespace

Result<FlavourMatrix> measure_flavours(FormatId format, Subject& reference, int jobs) {
  FlavourMatrix out{format, choices_of(format), {}, samples_of(format).size()};
  if (const string other = other_default(format); !other.empty())
    out.choices.insert(out.choices.begin() + 1, {other, other});
  Environment environment;
  environment.threads = std::max(1, jobs);
  for (const Sample& sample : samples_of(format)) {
    auto matrix = measure(sample, out.choices, reference, environment);
    if (!matrix && interrupted()) return out;
    if (!matrix) return matrix.error();
    out.fills.push_back(std::move(*matrix));
  }
  return out;
}

}  // namespace assay
