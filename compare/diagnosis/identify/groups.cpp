#include "compare/diagnosis/identify/groups.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compare/arithmetic/codes.h"
#include "compare/packs/tiled_case.h"

namespace assay::identifying {

namespace {

using std::string;

// "step12", "iter_3".
bool is_step(const string& part) {
  return (part.starts_with("step") || part.starts_with("iter")) &&
         part.find_first_of("0123456789") != string::npos &&
         part.find_first_not_of("0123456789_", 4) == string::npos;
}

// The module of "step12/blocks.0.fc1/weight": the name without its step and its role.
string module_of(const string& id) {
  static const std::set<string, std::less<>> kRoles = {
      "input", "x",          "weight", "w",           "output", "y",   "grad_output",
      "dy",    "grad_input", "dx",     "grad_weight", "dw",     "row", "col"};
  string out;
  for (size_t at = 0; at <= id.size();) {
    const size_t end = std::min(id.find('/', at), id.size());
    const string part = id.substr(at, end - at);
    if (!is_step(part) && !kRoles.contains(part)) out += (out.empty() ? "" : "/") + part;
    at = end + 1;
  }
  return out.empty() ? id : out;
}

// A group with nothing in it but what its cases have in common.
Group empty_group(const DumpCase& c, const Problem* problem, std::optional<Direction> side) {
  Group out;
  out.module = module_of(c.recorded->id);
  out.pack = c.pack->path.substr(c.pack->path.rfind('/') + 1);
  if (!c.pack->fingerprint.empty()) out.pack += " (" + c.pack->fingerprint + ")";
  const Quantizer* q = nullptr;
  if (problem) {
    const auto& quantizer = side ? problem->quantizer(*side) : problem->row ? problem->row : problem->col;
    if (quantizer) q = &*quantizer;
  }
  out.formats = q ? string(info(q->format).name) : "?";
  if (q) out.format = q->format;
  out.side = side;
  return out;
}

// The group among `groups` that the case belongs to, which is added where there is none. One program may have
// written several packs: then its fingerprint is theirs.
Group& group_for(std::vector<Group>& groups, Group like, const string& fingerprint) {
  const auto same = [&](const Group& g) {
    const bool same_pack =
        g.pack == like.pack || (!fingerprint.empty() && g.pack.ends_with("(" + fingerprint + ")"));
    return g.module == like.module && g.formats == like.formats && g.side == like.side && same_pack;
  };
  const auto at = std::find_if(groups.begin(), groups.end(), same);
  return at != groups.end() ? *at : groups.emplace_back(std::move(like));
}

// Why a case of this problem has no choices, or nothing.
string not_judged(const Problem& p) {
  if (p.as<Quantize>() || p.as<Split>()) return "";
  return "a " + string(op_name(p)) + " has no choices; identify takes quantize and split";
}

// Puts the case into a group: among those that are judged, or with why it is not.
void add_case(Group& group, const DumpCase& c, const Result<Problem>& problem, Subject& reference) {
  const auto skip = [&](const string& why) { group.missing.push_back(c.recorded->id + ": " + why); };
  if (!problem) return skip(problem.error().text());
  if (const string why = not_judged(*problem); !why.empty()) return skip(why);
  auto inputs = dump_inputs(*c.recorded, *problem, reference);
  if (!inputs) return skip(inputs.error().text());
  for (const Plane& plane : output_planes(*problem))
    if (!c.recorded->find(plane.name) && (!group.side || plane.direction == group.side))
      group.absent.insert(plane.name);
  group.cases.push_back({&c, *problem, std::move(*inputs)});
}

// The extreme elements of x, whose codes are of type T, as an x of kExtremes.
constexpr Shape kExtremes{16, 16};  // a shape that every format has
template <class T> PlaneData extremes_of(const PlaneData& x) {
  const EncodingInfo& e = info(x.plane.encoding);
  const auto sign = static_cast<T>(uint32_t{1} << (e.bits - 1));
  T most[2] = {0, static_cast<T>(sign)}, infinite[2] = {0, 0}, nan = 0;
  for (size_t i = 0; i < static_cast<size_t>(x.plane.logical.count()); ++i) {
    T code;
    std::memcpy(&code, x.bytes.data() + i * sizeof code, sizeof code);
    const auto magnitude = static_cast<T>(code & ~sign);
    const bool negative = magnitude != code;
    if (magnitude < e.infinity) most[negative] = std::max(most[negative], code);
    else (magnitude == e.infinity ? infinite[negative] : nan) = code;
  }
  PlaneData out{x.plane, {}};
  out.plane.logical = out.plane.padded = kExtremes;
  out.bytes.resize(out.plane.bytes());
  int64_t at = 0;
  for (const T code : {most[0], most[1], infinite[0], infinite[1], nan})
    set_code(out.plane, out.bytes, at++, code);
  return out;
}
std::optional<PlaneData> extremes_of(const PlaneData& x) {
  if (x.plane.encoding == Encoding::f32) return extremes_of<uint32_t>(x);
  if (x.plane.encoding == Encoding::bf16 || x.plane.encoding == Encoding::f16)
    return extremes_of<uint16_t>(x);
  return {};
}

// What a sample of the case needs beside its parts. False: it cannot be sampled.
bool add_extremes(const Case& c, const Tiling& tiling, std::optional<PlaneData>& extremes) {
  bool needed = false;
  for (const Direction d : kDirections) {
    if (!tiling.needs_amax(d)) continue;
    if (!c.problem.quantizer(d)->rht) needed = true;
    else if (const PackPlane* amax = c.dump->recorded->find(plane_name(d, "amax")); !amax || !amax->tensor)
      return false;
  }
  if (needed) extremes = extremes_of(*find_plane(c.inputs, "x"));
  return !needed || extremes.has_value();
}

}  // namespace

std::vector<Group> groups_of(const Dump& dump, const string& filter, Subject& reference) {
  std::vector<Group> out;
  for (const DumpCase& c : dump.cases) {
    if (!filter.empty() && c.where().find(filter) == string::npos) continue;
    const auto problem = problem_of(*c.recorded);
    const bool pair = problem && problem->row && problem->col && problem->row->format != problem->col->format;
    std::vector<std::optional<Direction>> sides{std::nullopt};
    if (pair) sides = {Direction::row, Direction::col};
    for (const auto& side : sides) {
      Group like = empty_group(c, problem ? &*problem : nullptr, side);
      add_case(group_for(out, std::move(like), c.pack->fingerprint), c, problem, reference);
    }
  }
  return out;
}

std::optional<Group> sample_of(const Group& group, int64_t large, Subject& reference) {
  constexpr int64_t kElements = int64_t{1} << 16;  // of a part
  Group out{group.module, group.pack, group.formats, group.format, group.side, {}, {}, {}};
  bool any = false;
  for (const Case& c : group.cases) {
    const size_t before = out.cases.size();
    const auto tiling = c.problem.x.shape.count() >= large
                            ? tiling_of_case(*c.dump->recorded, c.problem, kElements)
                            : Result<Tiling>(Error{"it is small", 0, ""});
    std::optional<PlaneData> extremes;
    if (tiling && add_extremes(c, *tiling, extremes))
      for (const size_t i : std::set<size_t>{0, tiling->tiles.size() / 2, tiling->tiles.size() - 1}) {
        auto part = planes_of_tile(*c.dump->recorded, *tiling, tiling->tiles[i], reference);
        if (!part) continue;
        out.cases.push_back(
            {c.dump, c.problem, std::move(part->inputs), tiling->tiles[i], std::move(part->got), extremes});
        any = true;
      }
    if (out.cases.size() == before) out.cases.push_back(c);
  }
  return any ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace assay::identifying
