#include "compare/witness/vectors/checks.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/witness/vectors/planes.h"
#include "compare/witness/vectors/table.h"
#include "compare/witness/vectors/tensor_core.h"
#include "compare/witness/vectors/training.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;
using std::string_view;

Error wrong(string message) { return {std::move(message), 0, ""}; }

// The output plane called so; "row.data[2]" is that of the third member.
std::optional<Plane> output_plane(const Problem& p, string_view name) {
  const auto member = member_of(name);
  const std::vector<Plane> out = output_planes(p);
  const Plane* plane = plane_named(out, name.substr(0, name.find('[')));
  if (!plane || member.has_value() == plane->members.empty()) return {};
  if (!member) return *plane;
  if (*member >= plane->members.size()) return {};
  return member_plane(*plane, *member);
}

// Where a file lies, for lines that take a tensor of it as their x.
struct Place {
  const string &path, &sha256;
};

// Nothing, or what is wrong.
using Trouble = std::optional<Error>;

Trouble set_problem(VectorCheck& check, const string& line) {
  auto problem = parse_line(line);
  if (!problem) return wrong(fmt::format("'{}': {}", line, problem.error().text()));
  check.problem = *problem;
  return {};
}

// "x=~input row.amax=~global_amax": each plane from what stands behind its "=".
Trouble set_inputs(VectorCheck& check, string_view inputs, const string& line, const VectorSource& source,
                   const Place& place) {
  const std::vector<Plane> in = input_planes(check.problem);
  for (string_view rest = inputs; !rest.empty();) {
    const string_view item = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const auto name = source.expand(item.substr(0, item.find('=')), true);
    if (!name) return name.error();
    const Plane* plane = plane_named(in, *name);
    if (!plane) return wrong(fmt::format("'{}' has no input plane {}", line, *name));
    const auto from = source.expand(item.substr(item.find('=') + 1), false);
    if (!from) return from.error();
    auto made = input_plane(*from, source, *plane);
    if (!made) return made.error();
    check.inputs.push_back(std::move(*made));
    if (*name == "x" && !from->starts_with('@') && from->find('[') == string::npos) {
      check.problem.x.fill.kind = FillKind::pack;
      check.problem.x.fill.payload = place.path + "#" + source.own(*from) + "@" + place.sha256;
    }
  }
  return {};
}

// The plane that is compared, and what it must hold.
Trouble set_want(VectorCheck& check, string_view as, const safetensors::Tensor& expected,
                 const string& line) {
  const auto plane = output_plane(check.problem, check.plane);
  if (!plane) return wrong(fmt::format("'{}' has no output plane {}", line, check.plane));
  if (!as.empty()) {
    auto made = converted(as, expected, *plane);
    if (!made) return made.error();
    check.want = std::move(*made);
    return {};
  }
  const Fit fit = fit_of(expected, *plane);
  if (fit == Fit::none) return misfit(expected.name, expected, *plane);
  check.padded = fit == Fit::padded;
  check.want.assign(expected.bytes.begin(), expected.bytes.end());
  return {};
}

Result<VectorCheck> check_of(const VectorRow& row, const VectorSource& source,
                             const safetensors::Tensor& expected, const Captures& captures,
                             const Place& place) {
  VectorCheck check;
  check.tensor = expected.name;
  check.variant = row.variant;
  if (const auto s = captures.find("source_name"); s != captures.end()) check.source = s->second;
  if (const auto c = captures.find("c"); c != captures.end()) check.in_case = c->second;
  const auto line = source.expand(row.line, true);
  if (!line) return line.error();
  if (const Trouble t = set_problem(check, *line)) return *t;
  if (const Trouble t = set_inputs(check, row.inputs, *line, source, place)) return *t;
  const auto name = source.expand(row.plane, true);
  if (!name) return name.error();
  check.plane = *name;
  if (const Trouble t = set_want(check, row.as, expected, *line)) return *t;
  return check;
}

// "amax[{i}]" is about the rows of a tensor, each of its own case.
constexpr string_view kEach = "[{i}]";

}  // namespace

bool known_family(string_view family) {
  if (family == kTensorCoreFamily || is_training_family(family)) return true;
  const auto rows = vector_rows();
  return std::any_of(rows.begin(), rows.end(), [&](const VectorRow& r) { return r.family == family; });
}

Result<std::vector<VectorCheck>> checks_of(string_view family, const safetensors::File& file,
                                           const json::Value& params, string_view tensor, const string& path,
                                           const string& sha256) {
  const safetensors::Tensor* expected = file.find(tensor);
  if (!expected) return wrong(fmt::format("no tensor '{}' in the file", tensor));
  if (family == kTensorCoreFamily && tensor == "d") return tensor_core_checks(file);
  std::vector<VectorCheck> out;
  bool fits = false;
  for (const VectorRow& row : vector_rows()) {
    if (row.family != family) continue;
    string_view pattern = row.tensor;
    const bool each = pattern.ends_with(kEach);
    if (each) pattern.remove_suffix(kEach.size());
    Captures captures;
    if (!match_tensor(pattern, tensor, captures)) continue;
    const VectorSource source(file, params, captures);
    if (!source.holds(row.when)) continue;
    fits = true;
    for (int64_t i = 0, n = !each ? 1 : expected->shape.empty() ? 0 : expected->shape[0]; i < n; ++i) {
      if (each) captures["i"] = std::to_string(i);
      auto check = check_of(row, source, each ? *row_of(*expected, i) : *expected, captures, {path, sha256});
      if (!check) return check.error();
      if (each) check->tensor += fmt::format("[{}]", i);
      out.push_back(std::move(*check));
    }
  }
  if (!fits) return wrong(fmt::format("family {} has no row for a tensor called '{}'", family, tensor));
  return out;
}

}  // namespace assay
