// Gathers of quantized tensors over ranks: what travels, in which order, and when the bytes are those of the
// whole tensor.
#include <algorithm>

#include "training/base/data.h"
#include "training/base/ranks.h"
#include "training/formats/formats.h"
#include "training/formats/wire.h"
#include "training/ranks/gather.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

struct Setting {
  string_view kind;
  int ranks = 2;
  int64_t rows = 64, cols = 256;
  Usages asked = {true, true}, present = {true, true};
  bool quantized = true, group = false, outlier = false;
  Arch arch = Arch::sm100;
};

// What rank 0 did and got.
struct Outcome {
  StoragePtr tensor, shard;
  std::vector<string> collectives;
  Warnings warnings;
  Usages after;
};
void wire(Wire& w, Outcome& o) { w(o.tensor, o.shard, o.collectives, o.warnings, o.after); }

ArrayPtr whole_of(const Setting& s) {
  const ArrayPtr x = drawn({s.ranks * s.rows, s.cols}, DType::bfloat16, 66);
  const auto set = [&](int64_t row, uint16_t bits) {
    std::ranges::copy(std::as_bytes(std::span(&bits, 1)), x->bytes().begin() + row * s.cols * 2);
  };
  for (int64_t r = 0; r < s.ranks; ++r) set(r * s.rows, 0x4180);  // 16
  if (s.outlier) set(s.ranks * s.rows - 1, 0x447A);               // 1000
  return x;
}

string shape_text(const Dims& shape) {
  string out;
  for (const int64_t d : shape) out += (out.empty() ? "" : "x") + std::to_string(d);
  return out;
}

Outcome gathered(ScenarioRun& run, const Setting& s) {
  Outcome out;
  run_ranks(
      s.ranks, "tp",
      [&](int rank, const GroupPtr& group) {
        Session session = run.session(s.arch);
        const ArrayPtr own = clone(slice(whole_of(s), 0, rank * s.rows, (rank + 1) * s.rows));
        const QuantizerPtr q = quantizer_named(s.kind, s.present);
        if (s.group) set_amax_reduction_group(*q, group);
        Piece shard = own;
        if (s.quantized) shard = q->quantize(session, own);
        std::vector<string> seen;
        const GatherLog log{
            [&](string_view what, const Array* sent, bool) {
              seen.push_back(sent ? string(name_of(sent->dtype)) + " " + shape_text(sent->shape)
                                  : string(what));
            },
            {}};
        q->set_usage(s.asked.rowwise, s.asked.columnwise);
        const Gathered g = gather_along_first_dim(session, shard, *group, q, false, log);
        if (rank != 0) return;
        out = {std::get<StoragePtr>(g.tensor), s.quantized ? std::get<StoragePtr>(shard) : nullptr, seen,
               session.warnings, q->usages()};
      },
      of_rank(0, out));
  return out;
}

// Every buffer that `got` has is that of `x` quantized in the directions asked for, real scales compared.
bool is_whole(ScenarioRun& run, const Setting& s, Storage& got, const ArrayPtr& x, string_view what) {
  Session session = run.session(s.arch);
  const QuantizerPtr q = quantizer_named(s.kind, s.asked);
  if (dynamic_cast<Float8Storage*>(&got)) q->set_usage(true, s.asked.columnwise);
  const StoragePtr want = q->quantize(session, x);
  const Shape m = flattened(x->shape);
  bool equal = true;
  for (const string& name : buffer_names(got)) {
    ArrayPtr a = buffer(got, name), b = buffer(*want, name);
    const bool scale = name.ends_with("wise_scale_inv"), row = name.starts_with("_row");
    const int64_t block = dynamic_cast<MXFP8Storage*>(&got) ? 32 : dynamic_cast<NVFP4Storage*>(&got) ? 16 : 0;
    if (scale && block && b) {
      const bool mx = block == 32;
      const int64_t rows = row  ? m.rows
                           : mx ? m.rows / block
                                : m.cols,
                    cols = row  ? m.cols / block
                           : mx ? m.cols
                                : m.rows / block;
      a = contiguous(slice(slice(a, 0, 0, rows), 1, 0, cols));
      b = contiguous(slice(slice(b, 0, 0, rows), 1, 0, cols));
    }
    equal = run.expect_equal(a, b, string(what) + ": " + name) && equal;
  }
  return equal;
}

void s66(ScenarioRun& run) {
  for (const int ranks : {2, 3})
    for (const auto& [kind, rows] : {std::pair<string_view, int64_t>{"CS", 64},
                                     {"FP4p", 64},
                                     {"FP4w", 64},
                                     {"MX", 64},
                                     {"MX", 128},
                                     {"BLK1", 128}})
      for (const Usages asked : {kRowUsage, kColumnUsage, kBothUsages}) {
        const Setting s{
            .kind = kind, .ranks = ranks, .rows = rows, .asked = asked, .group = true, .outlier = true};
        run.about(string(kind) + " " + std::to_string(rows) + " rows on " + std::to_string(ranks) +
                  " ranks, " + text(asked));
        const Outcome o = gathered(run, s);
        is_whole(run, s, *o.tensor, whole_of(s), "gathered");
        run.expect(o.warnings.empty(), "without a warning");
      }
  for (const string_view kind : {"FP4p", "MX"}) {  // 24 rows: no format of blocks takes a shard of them
    const Setting s{.kind = kind, .ranks = 4, .rows = 24, .cols = 64, .quantized = false};
    const Outcome o = gathered(run, s);
    run.about(string(kind) + " of 24 rows");
    run.expect_equal(o.collectives, {"bfloat16 24x64"}, "it travels in high precision");
    is_whole(run, s, *o.tensor, whole_of(s), "quantized as a whole");
  }
  for (const string_view kind : {"MX6P", "MX4"})
    for (const Usages asked : {kRowUsage, kColumnUsage, kBothUsages}) {
      const Setting s{.kind = kind, .rows = 32, .asked = asked, .quantized = false};
      const Outcome o = gathered(run, s);
      run.about(string(kind) + ", which a user brought, " + text(asked));
      run.expect_equal(o.collectives, {"bfloat16 32x256"}, "it travels in high precision");
      run.expect_equal(static_cast<int64_t>(o.warnings.size()), 1, "warnings");
      is_whole(run, s, *o.tensor, whole_of(s), "quantized as a whole");
    }
}

void s105(ScenarioRun& run) {
  struct Case {
    string_view kind;
    int64_t rows;
    std::vector<string> row, col;
  };
  const Case cases[] = {
      {"MX", 64, {"uint8 64x8", "uint8 64x256"}, {"uint8 2x256", "uint8 64x256"}},
      {"BLK1", 128, {"float32 2x128", "uint8 128x256"}, {"float32 1x256", "uint8 256x128"}},
      {"FP4p", 64, {"uint8 64x16", "uint8 64x128"}, {"uint8 256x4", "uint8 256x32"}},
  };
  for (const Case& c : cases)
    for (const Usages asked : {kRowUsage, kColumnUsage, kBothUsages}) {
      const Outcome o = gathered(run, {.kind = c.kind, .rows = c.rows, .asked = asked});
      std::vector<string> want = {"coalesce_begin"};
      if (asked.rowwise) want.insert(want.end(), c.row.begin(), c.row.end());
      if (asked.columnwise) want.insert(want.end(), c.col.begin(), c.col.end());
      want.push_back("coalesce_end");
      run.about(string(c.kind) + " " + text(asked));
      run.expect_equal(o.collectives, want, "scales before data, rows before columns");
      run.expect_equal(text(o.after), text(asked), "the quantizer's usages afterwards");
    }
  for (const Arch arch : {Arch::sm90, Arch::sm100})
    for (const Usages asked : {kRowUsage, kColumnUsage}) {
      const Outcome o = gathered(run, {.kind = "CS", .asked = asked, .quantized = false, .arch = arch});
      run.about("CS " + text(asked));
      run.expect_equal(o.collectives, {"uint8 64x256"}, "rows alone travel");
      run.expect_equal(text(o.after), text(asked), "the quantizer's usages afterwards");
      const bool transposes = arch == Arch::sm90 && asked.columnwise;
      run.expect((buffer(*o.tensor, "_transpose") != nullptr) == transposes,
                 "a transpose is made where columns need one");
      run.expect(buffer(*o.tensor, "_data") != nullptr, "the plane stays");
    }
  const Outcome o = gathered(run, {.kind = "CS", .asked = kRowUsage});
  run.expect(buffer(*o.tensor, "_scale_inv") == buffer(*o.shard, "_scale_inv"),
             "the scale is the local shard's very object");
  const Outcome block = gathered(run, {.kind = "BLK2", .rows = 128});
  run.expect_equal(block.collectives, {"bfloat16 128x256"}, "square blocks travel in high precision");
  run.expect_equal(gathered(run, {.kind = "H(MX|MX)"}).collectives, {"bfloat16 64x256"}, "a hybrid too");
}

void s106(ScenarioRun& run) {
  for (const auto& [kind, rows] : {std::pair<string_view, int64_t>{"MX", 64}, {"BLK1", 128}})
    for (const bool rows_present : {true, false}) {
      const Setting s{.kind = kind,
                      .rows = rows,
                      .asked = rows_present ? kColumnUsage : kRowUsage,
                      .present = rows_present ? kRowUsage : kColumnUsage};
      const Outcome o = gathered(run, s);
      run.about(string(kind) + (rows_present ? " with rows alone" : " with columns alone"));
      run.expect_equal(static_cast<int64_t>(o.warnings.size()), 1, "one warning");
      Session session = run.session();
      std::vector<ArrayPtr> parts;
      const ArrayPtr x = whole_of(s);
      for (int64_t r = 0; r < s.ranks; ++r)
        parts.push_back(quantizer_named(kind, s.present)
                            ->quantize(session, clone(slice(x, 0, r * rows, (r + 1) * rows)))
                            ->dequantize(session));
      is_whole(run, s, *o.tensor, concatenate(parts), "made from the other direction, dequantized");
    }
  run.expect_error(ErrorClass::not_implemented_error, "NVFP4 with columns alone, rows asked",
                   [&] { gathered(run, {.kind = "FP4p", .asked = kRowUsage, .present = kColumnUsage}); });
  run.expect_error(ErrorClass::type_error, "NVFP4 with rows alone, columns asked",
                   [&] { gathered(run, {.kind = "FP4p", .asked = kColumnUsage, .present = kRowUsage}); });
}

void s107(ScenarioRun& run) {
  for (const string_view kind : {"CS", "FP4p"})
    for (const bool group : {true, false}) {
      const Setting s{.kind = kind, .ranks = 3, .asked = kRowUsage, .group = group, .outlier = true};
      const Outcome o = gathered(run, s);
      run.about(string(kind) + (group ? " with a group" : " without a group"));
      if (group) {
        is_whole(run, s, *o.tensor, whole_of(s), "one scale for all");
        continue;
      }
      Session session = run.session();
      const StoragePtr want = quantizer_named(kind, kRowUsage)->quantize(session, whole_of(s));
      const string_view data = kind == "CS" ? "_data" : "_rowwise_data";
      run.expect_different(buffer(*o.tensor, data), buffer(*want, data), "bytes of several scales under one");
    }
}

void s109(ScenarioRun& run) {
  const Setting dropped_row{.kind = "H(MX|MX)", .asked = kColumnUsage, .present = kColumnUsage};
  const Setting dropped_col{.kind = "H(MX|MX)", .asked = kColumnUsage, .present = kRowUsage};
  Session session = run.session();
  for (const Setting& s : {dropped_row, dropped_col}) {
    const ArrayPtr x = whole_of(s);
    std::vector<ArrayPtr> parts;
    for (int64_t r = 0; r < s.ranks; ++r)
      parts.push_back(quantizer_named(s.kind, s.present)
                          ->quantize(session, clone(slice(x, 0, r * s.rows, (r + 1) * s.rows)))
                          ->dequantize(session));
    const ArrayPtr travelled = concatenate(parts);
    const StoragePtr want = quantizer_named("H(MX|MX)", kColumnUsage)->quantize(session, travelled);
    const Outcome o = gathered(run, s);
    run.about(s.present.rowwise ? "the column dropped" : "the row dropped");
    run.expect_equal(*o.tensor, *want, "columns of what travelled");
    const StoragePtr vanilla = quantizer_named("MX", kColumnUsage)->quantize(session, x);
    const auto values = [&](Storage& t) { return t.dequantize(session); };
    if (s.present.columnwise)
      run.expect_equal(values(*o.tensor), values(*vanilla), "the values of the vanilla columns");
    else run.expect_different(values(*o.tensor), values(*vanilla), "not those of the vanilla columns");
  }
}

constexpr Scenario kGatherScenarios[] = {
    {"S-66",
     "A gather of quantized shards is the whole tensor quantized",
     "shards of per-tensor FP8 and NVFP4 with one amax, of MXFP8 and 1-D blocks, on two and three ranks",
     "they are gathered in either direction and in both",
     "every buffer is that of the whole tensor; shards that cannot be quantized, and formats that users "
     "bring, travel in high precision",
     s66,
     {},
     4},
    {"S-105",
     "What travels, in which order",
     "rows, columns and both of five formats",
     "two ranks gather",
     "scales go before data and rows before columns, in one coalesced group; usages are as before",
     s105,
     {},
     2},
    {"S-106",
     "A shard that lacks the direction",
     "MXFP8, 1-D blocks and NVFP4 with one direction",
     "the other one is asked for",
     "a warning, and the columns of the dequantized rows or the reverse; NVFP4 fails both ways",
     s106,
     {},
     2},
    {"S-107",
     "An outlier on one rank of a gather",
     "three shards of which the last holds 1000",
     "they are quantized with and without a group and gathered",
     "with the group the bytes are the whole tensor's; without it codes of other scales come under one",
     s107,
     {},
     3},
    {"S-109",
     "Hybrid MXFP8 that kept one direction",
     "an input with its row or its column dropped",
     "columns are gathered again",
     "they are the columns of what travelled: vanilla's values from columns, others from rows",
     s109,
     {},
     2},
};

}  // namespace

std::span<const Scenario> gather_scenarios() { return kGatherScenarios; }

}  // namespace assay::training
