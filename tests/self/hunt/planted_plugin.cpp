// A plugin that is the reference with the bug that PLANTED_BUG names (tests/self/hunt/bugs.h).
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "contract/assay_plugin.h"
#include "contract/line.h"
#include "reference/subject.h"
#include "tests/self/hunt/bugs.h"

namespace {

using namespace assay;

const planted::Bug& bug() { return *planted::find_bug(PLANTED_BUG); }

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
  Environment alone;
  alone.threads = 1;
  make_reference_subject()->run(bug().read(*problem), from, to, alone);
  if (bug().spoil && noop_of(*problem) != F32Bits{0x3F800000}) bug().spoil(*problem, to);
  return {};
}

}  // namespace

extern "C" uint32_t assay_plugin_abi() { return ASSAY_PLUGIN_ABI; }
extern "C" const char* assay_plugin_name() { return "planted " PLANTED_BUG; }

extern "C" int assay_plugin_supports(const char* line, char* why, size_t why_bytes) {
  const auto p = parse_line(line);
  const bool own = p && op_name(*p) == bug().op && (!p->row || p->row->format == bug().format) &&
                   (!p->col || p->col->format == bug().format);
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
