// The faulty quantizer as a plugin, to try `assay explain` by hand: `ASSAY_FAULT=c_rz assay explain 'quantize
// mxfp8 64x256 bf16' --plugin <build>/plugins/libfaulty_quantizer.so`. ASSAY_FAULT holds names of
// switches.def joined by '+'; without it nothing is wrong.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "contract/assay_plugin.h"
#include "contract/line.h"
#include "tests/self/diagnosis/faulty_quantizer.h"

namespace {

using namespace assay;

std::optional<Switches> chosen() {
  const char* text = std::getenv("ASSAY_FAULT");
  return parse_switches(text ? text : "none");
}

std::string run(const char* line, std::span<const assay_plane> inputs, std::span<const assay_plane> outputs) {
  const auto problem = parse_line(line);
  if (!problem) return problem.error().text();
  const auto pointer = [](std::span<const assay_plane> planes, const Plane& p) {
    const auto it = std::find_if(planes.begin(), planes.end(), [&](const assay_plane& q) {
      return p.name == q.name && p.bytes() == q.bytes;
    });
    return it == planes.end() ? nullptr : &*it;
  };
  const std::vector<Plane> in = input_planes(*problem), out = output_planes(*problem);
  std::vector<ConstBuffer> from;
  std::vector<Buffer> to;
  for (const Plane& p : in)
    if (const assay_plane* q = pointer(inputs, p))
      from.push_back({&p, {static_cast<const std::byte*>(q->data), q->bytes}});
    else return "no plane " + p.name + " of this line's size";
  for (const Plane& p : out)
    if (const assay_plane* q = pointer(outputs, p))
      to.push_back({&p, {static_cast<std::byte*>(q->data), q->bytes}});
    else return "no plane " + p.name + " of this line's size";
  make_faulty_quantizer(*chosen())->run(*problem, from, to, Environment{});
  return {};
}

}  // namespace

extern "C" uint32_t assay_plugin_abi() { return ASSAY_PLUGIN_ABI; }
extern "C" const char* assay_plugin_name() { return "faulty quantizer"; }

extern "C" int assay_plugin_supports(const char* line, char* why, size_t why_bytes) {
  if (!chosen())
    return std::snprintf(why, why_bytes,
                         "ASSAY_FAULT holds a word that is no switch of tests/self/diagnosis/switches.def"),
           0;
  const auto p = parse_line(line);
  const Support s = p ? make_faulty_quantizer({})->supports(*p) : Support{false, p.error().text()};
  std::snprintf(why, why_bytes, "%s", s.why.c_str());
  return s.yes;
}

extern "C" int assay_plugin_run(const char* line, const assay_plane* inputs, size_t input_count,
                                const assay_plane* outputs, size_t output_count, char* message,
                                size_t message_bytes) {
  std::string wrong;
  try {
    wrong = run(line, {inputs, input_count}, {outputs, output_count});
  } catch (const std::exception& e) {
    wrong = e.what();
  }
  std::snprintf(message, message_bytes, "%s", wrong.c_str());
  return wrong.empty() ? 0 : 1;
}
