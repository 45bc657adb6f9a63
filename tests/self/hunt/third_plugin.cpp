// A plugin that is the reference with the bug that THIRD_BUG names (tests/self/hunt/third_bugs.h).
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "contract/assay_plugin.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/self/hunt/third_bugs.h"

namespace {

using namespace assay;

constexpr F32Bits kOne = 0x3F800000;

const third::Bug& bug() { return *third::find_bug(THIRD_BUG); }

const assay_plane* find_plane(std::span<const assay_plane> planes, const Plane& p) {
  const auto it = std::find_if(planes.begin(), planes.end(), [&](const assay_plane& q) {
    return p.name == q.name && p.bytes() == q.bytes;
  });
  return it == planes.end() ? nullptr : &*it;
}

std::string run(const char* line, std::span<const assay_plane> inputs, std::span<const assay_plane> outputs) {
  const auto problem = parse_line(line);
  if (!problem) return problem.error().text();
  const std::vector<Plane> in = input_planes(*problem), out = output_planes(*problem);
  std::vector<ConstBuffer> from;
  std::vector<Buffer> to;
  for (const Plane& p : in) {
    const assay_plane* q = find_plane(inputs, p);
    if (!q) return "no plane " + p.name + " of this line's size";
    from.push_back({&p, {static_cast<const std::byte*>(q->data), q->bytes}});
  }
  for (const Plane& p : out) {
    const assay_plane* q = find_plane(outputs, p);
    if (!q) return "no plane " + p.name + " of this line's size";
    to.push_back({&p, {static_cast<std::byte*>(q->data), q->bytes}});
  }
  const third::Call call{*problem, from, to};
  if (noop_of(*problem) == kOne) call.right();  // every output stays as it was
  else bug().run(call);
  return {};
}

}  // namespace

extern "C" uint32_t assay_plugin_abi() { return ASSAY_PLUGIN_ABI; }
extern "C" const char* assay_plugin_name() { return "planted " THIRD_BUG; }

extern "C" int assay_plugin_supports(const char* line, char* why, size_t why_bytes) {
  const auto p = parse_line(line);
  const bool own = p && (bug().op.empty() || op_name(*p) == bug().op) && bug().takes(*p);
  std::snprintf(why, why_bytes, "%s", "this kernel is of one op and format");
  return own && make_reference_subject()->supports(*p).yes;
}

extern "C" int assay_plugin_run(const char* line, const assay_plane* inputs, size_t input_count,
                                const assay_plane* outputs, size_t output_count, char* message,
                                size_t message_bytes) {
  try {
    const std::string error = run(line, {inputs, input_count}, {outputs, output_count});
    std::snprintf(message, message_bytes, "%s", error.c_str());
    return error.empty() ? 0 : 1;
  } catch (const std::exception& e) {
    std::snprintf(message, message_bytes, "%s", e.what());
    return 1;
  }
}
