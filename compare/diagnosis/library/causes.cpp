#include "compare/diagnosis/library/causes.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/diagnosis/library/group_offsets.h"
#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/library/whole_causes.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;

// Lines that between them reach every row: shapes with tails, both kinds of blocks, what draws, what
// rotates, what is given.
constexpr const char* kLines[] = {
    "quantize {} 200x200 bf16",
    "quantize {} 200x200 f32",
    "quantize {} 200x200 f16",
    "quantize {} 200x200 bf16 element=e5m2",
    "quantize {} 200x200 bf16 block=16x16",
    "quantize {} 200x200 bf16 block=32x32",
    "quantize {} 200x200 bf16 block=128x128",
    "quantize {} 200x264 bf16 pow2=0 eps=1e-6",
    "quantize {} 208x208 bf16 col.rht=1",
    "quantize {} 200x200 bf16 round=sr rng=7,3,0",
    "quantize {} 200x200 bf16 row_scaled=1",
    "quantize {} 1x16400 bf16 row_scaled=1",
    "quantize {} 200x200 bf16 amax=3",
    "quantize {} 200x200 bf16 element=e3m2 packing=packed",
};

// Lines of other ops, and quantizes with causes of the whole line, likewise.
constexpr const char* kOtherLines[] = {
    "quantize mxfp8 64x64 bf16",
    "quantize nvfp4/mxfp8 64x64 bf16 col_source=row_dequantized",
    "split mxfp8 320x128 bf16 groups=100,130,90",
    "split fp8_delayed 32x96 bf16 vary=last groups=32,64",
    "split fp8_delayed 96x32 bf16 groups=32,64",
    "gemm a=nvfp4 b=nvfp4 40x40x80",
    "gemm a=mxfp8 b=mxfp8 40x40x168",
    "gemm a=fp8_current b=fp8_current 40x40x100 op=NT alpha=0.5",
    "gemm a=fp8_current b=fp8_current 40x40x64 beta=0.5",
    "gemm a=fp8_current b=fp8_current 40x40x64 bias=bf16",
    "gemm a=identity b=identity 40x40x150 bf16 alpha=0.5 beta=0.5 bias=bf16",
    "gemm a=identity b=identity 40x40x64 f32",
    "attention fp8_delayed 24x96 bf16 heads=4 kv_heads=2 mask=causal backward=1",
    "attention identity 24x64 bf16 heads=4 kv_heads=2 codes=e4m3",
    "attention identity 24x64 bf16 softmax_scale=3",
    "attention identity 24x192 bf16 heads=24 kv_heads=4",
    "attention identity 24x64 bf16 window=3,5 dropout=0.5 backward=1",
    "attention identity 32x64 bf16 batch=2 kv=24 lengths=10,16 kv_lengths=24,17 mask=causal_bottom_right",
    "dequantize mxfp8 200x200 bf16 dir=row",
    "dequantize mxfp8 200x200 bf16 dir=row scales=gemm",
    "dequantize nvfp4 200x200 bf16 dir=row",
    "dequantize fp8_current 200x200 bf16 dir=row",
    "cast e4m3 16x64 f32",
    "cast bf16 16x64 f32",
    "cast f32 16x64 bf16",
    "scale_chain fp8_current 16x64 f32",
    "scale_chain fp8_current 16x64 f32 scale_order=decode_first",
    "scale_chain mxfp8 16x64 f32",
    "swizzle mxfp8 256x256 e8m0 dir=row inverse=1",
    "hadamard nvfp4 64x48 bf16",
    "update fp8_delayed 16x5 f32 reduction=1 margin=2",
    "scale_state f16 8x16 f32",
    "scale_state e4m3 8x16 f32",
    "scale_state e4m3 8x16 e4m3 inverse=1",
    "adam bf16 8x16 bf16 moments=f32 step=3 decay=0.1",
};

struct Row {
  string title, clause;
  std::vector<string> formats;  // or ops
  std::vector<string> ids;      // that differ by a number
};

string escaped(const string& text) {  // letter by letter: g++ 12 warns falsely of string::insert
  string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

// "amax.misses_index=7" as "amax.misses_index=N": rows that differ by a number at the end alone stand once.
string without_number(const string& id) {
  constexpr std::string_view kDigits = "0123456789", kNumber = "0123456789ABCDEFabcdefx.,/+-";
  const size_t equals = id.rfind('=');
  if (equals == string::npos) return id;
  const string number = id.substr(equals + 1);
  const size_t first = number.starts_with('+') || number.starts_with('-') ? 1 : 0;
  const bool is_number = first < number.size() && kDigits.find(number[first]) != std::string_view::npos;
  return is_number && number.find_first_not_of(kNumber, first) == string::npos ? id.substr(0, equals) + "=N"
                                                                               : id;
}

// By the id without its number, in the library's order.
using StageRows = std::map<Stage, std::vector<std::pair<string, Row>>>;

template <class T> void add_once(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

// The rows of one direction that change its line.
void add_lane(StageRows& stages, const Problem& lane, Direction d, std::string_view format) {
  for (const Hypothesis& h : hypotheses(lane, d)) {
    if (!h.keys.empty() && !h.element)
      if (const auto changed = with_keys(lane, h.keys); !changed || *changed == lane) continue;
    const string name = h.id.starts_with("line.") || h.named_set ? h.id : without_number(h.id);
    auto& rows = stages[h.stage];
    auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.first == name; });
    if (row == rows.end()) row = rows.insert(rows.end(), {name, Row{h.title, h.clause, {}, {}}});
    add_once(row->second.ids, h.id);
    add_once(row->second.formats, string(format));
  }
}

StageRows rows_of(std::optional<FormatId> only) {
  StageRows stages;
  for (const FormatInfo& f : kFormats) {
    if (only && f.id != *only) continue;
    for (const char* form : kLines) {
      const auto p = parse_line(fmt::format(fmt::runtime(form), f.name));
      if (!p) continue;
      for (const Direction d : kDirections) {
        if (!p->quantizer(d)) continue;
        Problem lane = *p;
        lane.quantizer(d == Direction::row ? Direction::col : Direction::row).reset();
        add_lane(stages, lane, d, f.name);
      }
    }
  }
  return stages;
}

// The rows of other ops, without the values of their keys, which are tried for each word of each key. Those
// of operand b and of both operands of a gemm are the ones of operand a.
std::vector<std::pair<string, Row>> rows_of_others() {
  std::vector<std::pair<string, Row>> rows;
  const auto add = [&](const Problem& p, const string& id, const string& title, const string& clause) {
    const string name = without_number(id);
    auto row = std::ranges::find(rows, name, [](const auto& r) { return r.first; });
    if (row == rows.end()) row = rows.insert(rows.end(), {name, Row{title, clause, {}, {}}});
    add_once(row->second.ids, id);
    add_once(row->second.formats, string(op_name(p)));
  };
  for (const char* line : kOtherLines) {
    const auto p = parse_line(line);
    if (!p) continue;
    for (const OffsetCause& cause : offset_causes(*p))
      if (cause.shown) add(*p, cause.id, cause.title, "N14.3");
    for (const WholeCause& cause : whole_causes(*p)) add(*p, cause.id, cause.title, cause.clause);
    if (p->as<Split>() || p->as<Quantize>()) continue;  // the rest is of members and directions
    for (const Hypothesis& h : line_hypotheses(*p))
      if (!h.id.starts_with("line.") && !h.id.starts_with("gemm.b.") && !h.id.starts_with("gemm.both."))
        add(*p, h.id, h.title, h.clause);
  }
  return rows;
}

string formats_text(const Row& row, std::optional<FormatId> only) {
  if (only) return string(info(*only).name);
  return row.formats.size() + 1 >= kFormats.size() ? "all" : fmt::format("{}", fmt::join(row.formats, " "));
}

}  // namespace

string causes_page(std::optional<FormatId> only) {
  string out;
  for (const auto& [stage, rows] : rows_of(only)) {
    out += fmt::format("## {}\n\n| name | what is done | formats | clause |\n| --- | --- | --- | --- |\n",
                       name_of(stage));
    for (const auto& [name, row] : rows) {
      const string more = row.ids.size() > 1 ? fmt::format(" (and {} more)", row.ids.size() - 1) : "";
      out += fmt::format("| `{}` | {}{} | {} | {} |\n", name, escaped(row.title), more,
                         formats_text(row, only), row.clause);
    }
    out += "\n";
  }
  if (only) return out;
  out +=
      "## whole tensors, and other ops\n\n| name | what is done | op | clause |\n| --- | --- | --- | --- |\n";
  for (const auto& [name, row] : rows_of_others()) {
    const string more = row.ids.size() > 1 ? fmt::format(" (and {} more)", row.ids.size() - 1) : "";
    out += fmt::format("| `{}` | {}{} | {} | {} |\n", name, escaped(row.title), more,
                       fmt::join(row.formats, " "), row.clause);
  }
  return out + "\n";
}

}  // namespace assay
