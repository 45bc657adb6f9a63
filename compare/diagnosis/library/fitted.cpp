// Rows that search makes by fitting numbers to the bytes, and that their ids are enough to build again.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/encode.h"
#include "compare/diagnosis/library/fitted_forms.h"
#include "compare/diagnosis/library/rows.h"
#include "compare/diagnosis/patterns/layouts.h"

namespace assay {

Hypothesis fitted::row_of(const std::string& id, Stage stage, const char* clause, std::string title) {
  Hypothesis h;
  h.id = id;
  h.title = std::move(title);
  h.stage = stage;
  h.clause = clause;
  return h;
}

namespace {

using std::string;
using enum Stage;
using fitted::Form;
using fitted::row_of;

uint32_t hex(const string& text) { return static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 16)); }

// "code.map:7E>7D,FE>FD": these codes of the data are replaced by those.
std::optional<Hypothesis> mapped(const string& id, const Problem&, Direction) {
  const string pairs = id.substr(id.find(':') + 1);
  std::map<uint32_t, uint32_t> map;
  for (size_t at = 0; at < pairs.size();) {
    const size_t end = std::min(pairs.find(',', at), pairs.size()), arrow = pairs.find('>', at);
    const auto code = [&](size_t from, size_t to) {
      return static_cast<uint32_t>(std::stoul(pairs.substr(from, to - from), nullptr, 16));
    };
    if (arrow < end) map[code(at, arrow)] = code(arrow + 1, end);
    at = end + 1;
  }
  Hypothesis h = row_of(id, code, "N2.1", "codes are replaced by others: " + pairs);
  h.code = [map](const CodeView& c) {
    const auto found = map.find(c.code);
    return found == map.end() ? c.code : found->second;
  };
  return h;
}

// "code.column_repeats:31/32": the codes of this column of each 32 of x are those of the column before;
// _ahead: of the column after; likewise row.
std::optional<Hypothesis> repeated(const string& id, const Problem&, Direction d) {
  const size_t colon = id.find(':');
  const bool columns = id.starts_with("code.column"), ahead = id.substr(0, colon).ends_with("_ahead");
  long k = 0, of = 0;
  if (std::sscanf(id.c_str() + colon, ":%ld/%ld", &k, &of) != 2 || of < 1) return {};
  const char* what = columns ? "column" : "row";
  Hypothesis h = row_of(id, code, "N6.1",
                        fmt::format("the codes of {} {} of each {} are those of the {} {} it", what, k, of,
                                    what, ahead ? "after" : "before"));
  h.wide = true;
  const bool along = columns == (d == Direction::row);  // places change, not lines
  h.code_place = [=](int64_t i, int64_t j, int64_t lines, int64_t length) -> std::pair<int64_t, int64_t> {
    const int64_t at = along ? j : i, n = along ? length : lines;
    const int64_t other = at % of == k ? std::clamp<int64_t>(at + (ahead ? 1 : -1), 0, n - 1) : at;
    return along ? std::pair{i, other} : std::pair{other, j};
  };
  return h;
}

// "code.rows_rotated:1": each row of codes stands one further on, and the last one first; likewise columns.
std::optional<Hypothesis> rotated_places(const string& id, const Problem&, Direction d) {
  const bool columns = id.starts_with("code.column");
  long k = 0;
  if (std::sscanf(id.c_str() + id.find(':'), ":%ld", &k) != 1) return {};
  Hypothesis h = row_of(id, layout, "N6.1",
                        fmt::format("{}s of codes are shifted {} {}, with wraparound",
                                    columns ? "column" : "row", std::abs(k), k > 0 ? "later" : "earlier"));
  h.wide = true;
  const bool along = columns == (d == Direction::row);
  h.code_place = [=](int64_t i, int64_t j, int64_t lines, int64_t length) -> std::pair<int64_t, int64_t> {
    const int64_t at = along ? j : i, n = along ? length : lines, other = ((at - k) % n + n) % n;
    return along ? std::pair{i, other} : std::pair{other, j};
  };
  return h;
}

// ---- regions ----

// Rows [r0, r1) and columns [c0, c1) of x.
struct Rectangle {
  Direction d;
  int64_t r0 = 0, r1 = 0, c0 = 0, c1 = 0;
  bool holds(int64_t i, int64_t j) const {
    const int64_t r = d == Direction::row ? i : j, c = d == Direction::row ? j : i;
    return r >= r0 && r < r1 && c >= c0 && c < c1;
  }
  string text() const { return fmt::format("rows {}..{}, columns {}..{}", r0, r1 - 1, c0, c1 - 1); }
};
// Of "...:32-64,0-32".
std::optional<Rectangle> part_of(const string& id, Direction d) {
  const size_t colon = id.find(':');
  Rectangle p{d};
  if (colon == string::npos ||
      std::sscanf(id.c_str() + colon, ":%ld-%ld,%ld-%ld", &p.r0, &p.r1, &p.c0, &p.c1) != 4)
    return {};
  return p;
}

// "input.zero:32-64,0-32": this part of x is read as zeros; "input.above:" as the rows before it, as many;
// "input.left:" as the columns before it.
std::optional<Hypothesis> read_part(const string& id, const Problem&, Direction d) {
  const auto part = part_of(id, d);
  if (!part) return {};
  const int64_t up = id.starts_with("input.above:") ? part->r1 - part->r0 : 0,
                left = id.starts_with("input.left:") ? part->c1 - part->c0 : 0;
  const bool zeros = id.starts_with("input.zero:");
  if (up > part->r0 || left > part->c0 || (!zeros && up == 0 && left == 0)) return {};
  Hypothesis h = row_of(id, input, "N1.2",
                        fmt::format("x is read as {} in {}",
                                    up     ? "the rows before"
                                    : left ? "the columns before"
                                           : "zeros",
                                    part->text()));
  h.element = [=, part = *part](const Matrix& x, int64_t i, int64_t j) {
    if (!part.holds(i, j)) return x.code(i, j);
    if (zeros) return 0u;
    return d == Direction::row ? x.code(i - up, j - left) : x.code(i - left, j - up);
  };
  return h;
}

// "code.zero:32-64,0-32": the codes of this part are 0; "code.is=CD:": they are CD.
std::optional<Hypothesis> coded_part(const string& id, const Problem&, Direction d) {
  const auto part = part_of(id, d);
  if (!part) return {};
  const string constant = id.starts_with("code.zero:") ? "0" : id.substr(8, id.find(':') - 8);
  const char* why = constant == "0" ? "" : ", as in memory that was not written";
  Hypothesis h = row_of(id, code, "N2.1", fmt::format("codes are {} in {}{}", constant, part->text(), why));
  h.code = [part = *part, all = hex(constant)](const CodeView& c) {
    return part.holds(c.i, c.j) ? all : c.code;
  };
  return h;
}

// "output.zero:32-64,0-32": the codes of this part and the scales of its blocks are 0.
std::optional<Hypothesis> unwritten_part(const string& id, const Problem& lane, Direction d) {
  const auto part = part_of(id, d);
  const Quantizer& q = *lane.quantizer(d);
  if (!part || !info(q.format).has_blocks()) return {};
  Hypothesis h = row_of(id, block_scale, "N2.1",
                        "codes and scales are 0, as if nothing was written, in " + part->text());
  h.wide = true;
  h.use = Hypothesis::Use::stored;
  h.scale = [part = *part, n = length_of(q.block)](const ScaleGrid& s, int64_t i, int64_t b) {
    return part.holds(i, b * n) ? 0 : s.at(i, b);
  };
  h.code = [part = *part](const CodeView& c) { return part.holds(c.i, c.j) ? 0 : c.code; };
  return h;
}

// ---- the tensor's own numbers ----
// One number is fitted to one number. That does not tell what made it, so two rows are offered and neither is
// certain.

// The number after the '=' of an id, as F32 bits.
double number_of(const string& id) { return value_of(Encoding::f32, hex(id.substr(id.find('=') + 1))); }

std::optional<Hypothesis> amax_at_least(const string& id, const Problem&, Direction) {
  const double came = number_of(id);
  Hypothesis h = row_of(id, amax, "N3.1",
                        fmt::format("the tensor's amax is at least {}, as if a slot was not reset", came));
  h.tensor_amax = [=](const Matrix& x, const Matrix&) { return std::max(x.amax(), came); };
  return h;
}

std::optional<Hypothesis> amax_at_most(const string& id, const Problem&, Direction) {
  const double came = number_of(id);
  Hypothesis h =
      row_of(id, amax, "N3.1", fmt::format("the tensor's amax is at most {}, as if it saturated", came));
  h.tensor_amax = [=](const Matrix& x, const Matrix&) { return std::min(x.amax(), came); };
  return h;
}

std::optional<Hypothesis> amax_is(const string& id, const Problem&, Direction) {
  const double came = number_of(id);
  Hypothesis h = row_of(id, amax, "N3.1",
                        fmt::format("the tensor's amax is {} and not its largest magnitude: another "
                                    "tensor's, a norm, a part's, or memory that was not written",
                                    came));
  h.tensor_amax = [=](const Matrix&, const Matrix&) { return came; };
  return h;
}

// The texts of "<scale>,<scale_inv>" after the '=' of an id. Nothing where there is no comma, or where the
// line has no scale of the tensor.
struct ScaleTexts {
  string scale, inverse;
};
std::optional<ScaleTexts> scale_texts(const string& id, const Problem& lane, Direction d) {
  const string numbers = id.substr(id.find('=') + 1);
  const size_t comma = numbers.find(',');
  if (comma == string::npos || !info(lane.quantizer(d)->format).per_tensor_fp8()) return {};
  return ScaleTexts{numbers.substr(0, comma), numbers.substr(comma + 1)};
}

// "tensor_scale.is=<scale>,<scale_inv>": codes follow what came (Search::try_tensor_values).
std::optional<Hypothesis> scale_is(const string& id, const Problem& lane, Direction d) {
  const auto texts = scale_texts(id, lane, d);
  if (!texts) return {};
  const double scale = value_of(Encoding::f32, hex(texts->scale)),
               inverse = value_of(Encoding::f32, hex(texts->inverse));
  Hypothesis h = row_of(
      id, tensor_scale, "N3.3",
      fmt::format("the scale is {}, not this tensor's (stale, or the next step's), and every code follows it",
                  scale));
  h.scalars = [=](TensorScalars& s) {
    s.scale = static_cast<float>(scale);
    s.scale_inv = static_cast<float>(inverse);
  };
  h.scaled = [=](const CodeView& c) { return c.divides ? c.x / inverse : c.x * scale; };
  return h;
}

// "tensor_scale.times=<factor of scale>,<factor of scale_inv>", as bits of binary64.
std::optional<Hypothesis> scale_times(const string& id, const Problem& lane, Direction d) {
  const auto texts = scale_texts(id, lane, d);
  if (!texts) return {};
  const auto number = [](const string& text) {
    return std::bit_cast<double>(uint64_t{std::strtoull(text.c_str(), nullptr, 16)});
  };
  const double scale = number(texts->scale), inverse = number(texts->inverse);
  Hypothesis h = row_of(id, tensor_scale, "N3.3",
                        fmt::format("the scale is {} times what it should be (rounded, or made by another "
                                    "rule), and every code follows it",
                                    scale));
  h.scalars = [=](TensorScalars& s) {
    s.scale = static_cast<float>(static_cast<double>(s.scale) * scale);
    s.scale_inv = static_cast<float>(static_cast<double>(s.scale_inv) * inverse);
  };
  h.scaled = [=](const CodeView& c) {
    return c.divides ? c.x / f32_of(c.factor * inverse) : c.x * f32_of(c.factor * scale);
  };
  return h;
}

// "layout.data:transposed" (compare/diagnosis/patterns/layouts.h).
std::optional<Hypothesis> laid_out(const string& id, const Problem& lane, Direction) {
  const string how = id.substr(string("layout.").size()), stem = how.substr(0, how.find(':'));
  string title = "the place of codes: " + how;
  if (stem.size() < how.size())
    for (const Plane& plane : output_planes(lane)) {
      if (!plane.name.ends_with("." + stem)) continue;
      const auto fit = layout_named(how.substr(stem.size() + 1), plane);
      if (!fit) return {};
      title = fmt::format("{}: {}", stem, fit->description);
    }
  Hypothesis h =
      row_of(id, how.find(":nibbles") != string::npos ? packing : layout, "N6.1", std::move(title));
  h.layout = how;
  return h;
}

constexpr Form kForms[] = {
    {"code.map:", mapped},
    {"input.zero:", read_part},
    {"input.above:", read_part},
    {"input.left:", read_part},
    {"code.zero:", coded_part},
    {"code.is=", coded_part},
    {"output.zero:", unwritten_part},
    {"input.rotated:", also_rotated},
    {"code.column_repeats:", repeated},
    {"code.column_ahead:", repeated},
    {"code.row_repeats:", repeated},
    {"code.row_ahead:", repeated},
    {"code.rows_rotated:", rotated_places},
    {"code.columns_rotated:", rotated_places},
    {"tensor_amax.at_least=", amax_at_least},
    {"tensor_amax.at_most=", amax_at_most},
    {"tensor_amax.is=", amax_is},
    {"tensor_scale.is=", scale_is},
    {"tensor_scale.times=", scale_times},
    {"layout.", laid_out},
};

}  // namespace

Fitted fitted_row(const string& id, const Problem& lane, Direction d) {
  const auto in = [&](const auto& forms) -> std::optional<Fitted> {
    for (const Form& form : forms)
      if (id.starts_with(form.prefix)) return Fitted{true, form.row(id, lane, d)};
    return {};
  };
  if (auto row = in(kForms)) return std::move(*row);
  if (auto row = in(fitted::scale_forms())) return std::move(*row);
  if (auto row = in(fitted::region_forms())) return std::move(*row);
  if (auto row = in(fitted::flip_forms())) return std::move(*row);
  return {};
}

}  // namespace assay
