// S-13 to S-19: the contract that every quantizer keeps, and what its tensors do with directions that exist
// or do not.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "training/base/data.h"
#include "training/formats/float8.h"
#include "training/formats/hybrid.h"
#include "training/formats/ops.h"
#include "training/formats/shapes.h"
#include "training/recipes/delayed.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using enum ErrorClass;

constexpr F32Bits kOne = 0x3F800000;

string dims(const Dims& shape) {
  string out;
  for (int64_t d : shape) out += (out.empty() ? "" : "x") + std::to_string(d);
  return out;
}
string arch_text(Arch arch) { return arch == Arch::sm90 ? "sm90" : "sm100"; }

// A format at a shape, and the buffers that each direction has there: sizes known from outside (TE
// tensor/*.py), not computed.
struct Golden {
  string_view format;
  Arch arch;
  Dims shape;
  std::vector<BufferShape> row, col;
};
const std::vector<Golden>& golden() {
  constexpr DType f32 = DType::float32;
  static const std::vector<Golden> kRows = {
      {"CS",
       Arch::sm90,
       {256, 384},
       {{"_data", {256, 384}}, {"_scale_inv", {1}, f32}},
       {{"_transpose", {384, 256}}, {"_scale_inv", {1}, f32}}},
      {"CS",
       Arch::sm100,
       {256, 384},
       {{"_data", {256, 384}}, {"_scale_inv", {1}, f32}},
       {{"_data", {256, 384}}, {"_scale_inv", {1}, f32}}},
      {"CS",
       Arch::sm90,
       {2, 24, 40},
       {{"_data", {2, 24, 40}}, {"_scale_inv", {1}, f32}},
       {{"_transpose", {40, 2, 24}}, {"_scale_inv", {1}, f32}}},
      {"DS",
       Arch::sm90,
       {48, 80},
       {{"_data", {48, 80}}, {"_scale_inv", {1}, f32}},
       {{"_transpose", {80, 48}}, {"_scale_inv", {1}, f32}}},
      {"DS",
       Arch::sm100,
       {48, 80},
       {{"_data", {48, 80}}, {"_scale_inv", {1}, f32}},
       {{"_data", {48, 80}}, {"_scale_inv", {1}, f32}}},
      {"MX",
       Arch::sm100,
       {96, 160},
       {{"_rowwise_data", {96, 160}}, {"_rowwise_scale_inv", {128, 8}}},
       {{"_columnwise_data", {96, 160}}, {"_columnwise_scale_inv", {4, 256}}}},
      {"MX",
       Arch::sm100,
       {256, 384},
       {{"_rowwise_data", {256, 384}}, {"_rowwise_scale_inv", {256, 12}}},
       {{"_columnwise_data", {256, 384}}, {"_columnwise_scale_inv", {8, 384}}}},
      {"MX",
       Arch::sm100,
       {2, 32, 64},
       {{"_rowwise_data", {2, 32, 64}}, {"_rowwise_scale_inv", {128, 4}}},
       {{"_columnwise_data", {2, 32, 64}}, {"_columnwise_scale_inv", {4, 128}}}},
      {"BLK1",
       Arch::sm100,
       {256, 384},
       {{"_rowwise_data", {256, 384}}, {"_rowwise_scale_inv", {3, 256}, f32}},
       {{"_columnwise_data", {384, 256}}, {"_columnwise_scale_inv", {2, 384}, f32}}},
      {"BLK1",
       Arch::sm90,
       {198, 130},
       {{"_rowwise_data", {198, 130}}, {"_rowwise_scale_inv", {2, 200}, f32}},
       {{"_columnwise_data", {130, 198}}, {"_columnwise_scale_inv", {2, 132}, f32}}},
      {"BLK1",
       Arch::sm100,
       {2, 128, 384},
       {{"_rowwise_data", {2, 128, 384}}, {"_rowwise_scale_inv", {3, 256}, f32}},
       {{"_columnwise_data", {384, 2, 128}}, {"_columnwise_scale_inv", {2, 384}, f32}}},
      {"BLK2",
       Arch::sm100,
       {256, 384},
       {{"_rowwise_data", {256, 384}}, {"_rowwise_scale_inv", {2, 4}, f32}},
       {{"_columnwise_data", {384, 256}}, {"_columnwise_scale_inv", {3, 4}, f32}}},
      {"FP4p",
       Arch::sm100,
       {48, 80},
       {{"_rowwise_data", {48, 40}}, {"_rowwise_scale_inv", {128, 8}}, {"_amax_rowwise", {1}, f32}},
       {{"_columnwise_data", {80, 24}}, {"_columnwise_scale_inv", {128, 4}}, {"_amax_columnwise", {1}, f32}}},
      {"FP4p",
       Arch::sm100,
       {256, 384},
       {{"_rowwise_data", {256, 192}}, {"_rowwise_scale_inv", {256, 24}}, {"_amax_rowwise", {1}, f32}},
       {{"_columnwise_data", {384, 128}},
        {"_columnwise_scale_inv", {384, 16}},
        {"_amax_columnwise", {1}, f32}}},
      {"FP4p",
       Arch::sm100,
       {2, 64, 160},
       {{"_rowwise_data", {2, 64, 80}}, {"_rowwise_scale_inv", {128, 12}}, {"_amax_rowwise", {1}, f32}},
       {{"_columnwise_data", {160, 64}},
        {"_columnwise_scale_inv", {256, 8}},
        {"_amax_columnwise", {1}, f32}}},
      {"FP4w",
       Arch::sm100,
       {48, 80},
       {{"_rowwise_data", {48, 40}}, {"_rowwise_scale_inv", {128, 8}}, {"_amax_rowwise", {1}, f32}},
       {{"_columnwise_data", {80, 24}}, {"_columnwise_scale_inv", {128, 4}}, {"_amax_columnwise", {1}, f32}}},
      {"FP4i",
       Arch::sm100,
       {64, 128},
       {{"_rowwise_data", {64, 64}}, {"_rowwise_scale_inv", {128, 8}}, {"_amax_rowwise", {1}, f32}},
       {{"_columnwise_data", {128, 32}},
        {"_columnwise_scale_inv", {128, 4}},
        {"_amax_columnwise", {1}, f32}}},
      {"FP4rs",
       Arch::sm100,
       {256, 384},
       {{"_rowwise_data", {256, 192}}, {"_rowwise_scale_inv", {256, 24}}, {"_amax_rowwise", {256}, f32}},
       {{"_columnwise_data", {384, 128}},
        {"_columnwise_scale_inv", {384, 16}},
        {"_amax_columnwise", {384}, f32}}},
      {"MX6",
       Arch::sm100,
       {96, 160},
       {{"_rowwise_data", {96, 160}}, {"_rowwise_scale_inv", {128, 8}}},
       {{"_columnwise_data", {160, 96}}, {"_columnwise_scale_inv", {256, 4}}}},
      {"MX6P",
       Arch::sm100,
       {96, 160},
       {{"_rowwise_data", {96, 120}}, {"_rowwise_scale_inv", {128, 8}}},
       {{"_columnwise_data", {160, 72}}, {"_columnwise_scale_inv", {256, 4}}}},
      {"MX4",
       Arch::sm100,
       {2, 32, 64},
       {{"_rowwise_data", {2, 32, 32}}, {"_rowwise_scale_inv", {128, 4}}},
       {{"_columnwise_data", {64, 2, 16}}, {"_columnwise_scale_inv", {128, 4}}}},
      {"ID",
       Arch::sm100,
       {48, 80},
       {{"_hp_data", {48, 80}, DType::bfloat16}},
       {{"_hp_data", {48, 80}, DType::bfloat16}}},
  };
  return kRows;
}

constexpr Usages kDirections3[] = {kBothUsages, kRowUsage, kColumnUsage};

// Why a class refuses these usages; nothing where it takes them.
std::optional<ErrorClass> refusal(const Golden& g, Usages u) {
  if (u.rowwise) return std::nullopt;
  if ((g.format == "CS" || g.format == "DS") && g.arch == Arch::sm90)
    return not_implemented_error;  // kernels write a transpose only beside the rows
  if (g.format == "FP4rs") return runtime_error;
  return std::nullopt;
}

string where(const Golden& g, Usages u) {
  return string(g.format) + " " + dims(g.shape) + " " + arch_text(g.arch) + " " + text(u);
}

// S-13

void expect_buffers(ScenarioRun& run, Storage& s, const Golden& g, Usages u) {
  std::vector<BufferShape> wanted = u.rowwise ? g.row : std::vector<BufferShape>{};
  if (u.columnwise)
    for (const BufferShape& b : g.col)
      if (std::find(wanted.begin(), wanted.end(), b) == wanted.end()) wanted.push_back(b);
  for (const Field& f : s.fields()) {
    const auto at =
        std::find_if(wanted.begin(), wanted.end(), [&](const BufferShape& b) { return b.name == f.name; });
    if (!run.expect(!*f.slot == (at == wanted.end()), f.name, at == wanted.end() ? "absent" : "present",
                    *f.slot ? "present" : "absent") ||
        !*f.slot)
      continue;
    run.expect_equal(name_of((*f.slot)->dtype), name_of(at->dtype), f.name + ": dtype");
    run.expect_equal(dims((*f.slot)->shape), dims(at->shape), f.name + ": shape");
  }
}

void each_direction_has_its_buffers(ScenarioRun& run) {
  for (const Golden& g : golden()) {
    Session session = run.session(g.arch), other = run.session_on(run.reference, g.arch);
    const ArrayPtr x = gradient(g.shape, DType::bfloat16, 13);
    const StoragePtr whole = quantizer_named(g.format)->quantize(session, x);
    for (const Usages u : kDirections3) {
      run.about(where(g, u));
      const QuantizerPtr q = quantizer_named(g.format, u);
      if (const auto error = refusal(g, u)) {
        run.expect_error(*error, "quantize", [&] { q->quantize(session, x); });
        continue;
      }
      const StoragePtr s = q->quantize(session, x);
      expect_buffers(run, *s, g, u);
      expect_part(run, *s, *whole, "as beside the other direction");
      run.expect_equal(*s, *quantizer_named(g.format, u)->quantize(other, x), "as the reference has it");
    }
  }
  // Only columns are rotated, and their amax is that of the rotated tensor.
  run.about("FP4i and FP4p");
  Session session = run.session();
  const ArrayPtr x = gradient({64, 128}, DType::bfloat16, 13);
  const StoragePtr rotated = quantizer_named("FP4i")->quantize(session, x),
                   plain = quantizer_named("FP4p")->quantize(session, x);
  expect_part(run, *quantizer_named("FP4i", kRowUsage)->quantize(session, x), *plain, "rows");
  for (const string_view name : {"_columnwise_data", "_columnwise_scale_inv", "_amax_columnwise"})
    run.expect_different(buffer(*rotated, name), buffer(*plain, name), name);
}

// S-14

std::vector<const std::byte*> addresses(Storage& s) {
  std::vector<const std::byte*> out;
  for (const Field& f : s.fields()) out.push_back(*f.slot ? (*f.slot)->data() : nullptr);
  return out;
}

void empty_then_update_is_quantize(ScenarioRun& run) {
  for (const Golden& g : golden()) {
    if (g.format.starts_with("FP4") && g.shape.size() != 2)
      continue;  // columns keep the leading dimensions that Python allocates, and kernels make without
    Session session = run.session(g.arch);
    const ArrayPtr x = gradient(g.shape, DType::bfloat16, 14),
                   next = drawn(g.shape, DType::bfloat16, 15, FillKind::wide);
    for (const Usages u : kDirections3) {
      if (refusal(g, u)) continue;
      run.about(where(g, u));
      const QuantizerPtr q = quantizer_named(g.format, u);
      const StoragePtr s = q->make_empty(session, g.shape, DType::bfloat16);
      q->update_quantized(session, x, *s);
      run.expect_equal(*s, *quantizer_named(g.format, u)->quantize(session, x),
                       "make_empty, then update_quantized");
      const auto before = addresses(*s);
      q->update_quantized(session, next, *s);
      run.expect(addresses(*s) == before, "addresses of the buffers after another update", "the same",
                 "others");
      run.expect_equal(*s, *quantizer_named(g.format, u)->quantize(session, next), "after another update");
      if (g.format != "ID")
        run.expect(s->quantizer != q, "the tensor's quantizer", "a copy", "the caller's own");
    }
  }
}

// S-15

// Flags, and whether the kernels look past them: exactly 1.0 alone stops those.
struct Flag {
  string_view name;
  F32Bits bits;
  bool stops_kernels, stops_identity;
};
constexpr Flag kFlags[] = {{"1", kOne, true, true},
                           {"0", 0, false, false},
                           {"-0", 0x80000000, false, false},
                           {"2", 0x40000000, false, true},
                           {"-1", 0xBF800000, false, true},
                           {"1 + ulp", 0x3F800001, false, true},
                           {"1 - ulp", 0x3F7FFFFF, false, true},
                           {"the least subnormal", 1, false, true},
                           {"NaN", 0x7FC00000, false, true}};

void noop_stops_at_one(ScenarioRun& run) {
  struct Row {
    string_view format;
    Arch arch;
    Dims shape;
  };
  const Row rows[] = {
      {"CS", Arch::sm90, {48, 80}},     {"CS", Arch::sm100, {48, 80}},    {"DS", Arch::sm90, {48, 80}},
      {"DS", Arch::sm100, {48, 80}},    {"MX", Arch::sm100, {64, 96}},    {"MX6P", Arch::sm100, {64, 96}},
      {"BLK1", Arch::sm100, {64, 130}}, {"BLK2", Arch::sm100, {64, 130}}, {"FP4p", Arch::sm100, {64, 96}},
      {"FP4w", Arch::sm100, {48, 80}},  {"FP4i", Arch::sm100, {48, 80}},  {"FP4i", Arch::sm100, {64, 128}},
      {"FP4g", Arch::sm100, {48, 80}},  {"FP4rs", Arch::sm100, {64, 96}}, {"ID", Arch::sm100, {48, 80}}};
  for (const Row& row : rows)
    for (const Flag& flag : kFlags) {
      run.about(string(row.format) + " " + dims(row.shape) + " " + arch_text(row.arch) + " flag " +
                string(flag.name));
      Session session = run.session(row.arch);
      const ArrayPtr x = gradient(row.shape, DType::bfloat16, 15),
                     next = drawn(row.shape, DType::bfloat16, 16, FillKind::wide);
      const QuantizerPtr q = quantizer_named(row.format), fresh = quantizer_named(row.format);
      const StoragePtr s = q->quantize(session, clone(x)),
                       old = clone(*s);  // of a copy: Identity writes into what it aliases
      session.rng.reseed(3);
      q->update_quantized(session, next, *s, flag.bits);
      session.rng.reseed(3);
      const bool stops = row.format == "ID" ? flag.stops_identity : flag.stops_kernels;
      const StoragePtr made = fresh->quantize(session, stops ? x : next);
      run.expect_equal(*s, stops ? *old : *made, stops ? "left alone" : "refreshed");
      if (const auto* delayed = dynamic_cast<const Float8Quantizer*>(q.get()); delayed && stops)
        run.expect_equal(delayed->amax, dynamic_cast<Float8Quantizer&>(*fresh).amax, "the recorded amax");
    }
}

// What the original's RHT kernels, which take no flag, do all the same.
void noop_under_te(ScenarioRun& run) {
  const auto frozen = [&](string_view format, const Dims& shape, bool data, bool amax) {
    run.about(string(format) + " " + dims(shape) + " flavour=te");
    Session session = run.session();
    session.flavour = Flavour::te;
    const ArrayPtr x = gradient(shape, DType::bfloat16, 15),
                   next = drawn(shape, DType::bfloat16, 16, FillKind::wide);
    const QuantizerPtr q = quantizer_named(format);
    const StoragePtr s = q->quantize(session, x), old = clone(*s), made = q->quantize(session, next);
    q->update_quantized(session, next, *s, kOne);
    for (const string& name : buffer_names(*s)) {
      const bool stays = name.starts_with("_amax") ? amax : data;
      run.expect_equal(buffer(*s, name), buffer(stays ? *old : *made, name),
                       name + (stays ? " left alone" : " refreshed"));
      run.expect_different(buffer(*old, name), buffer(*made, name), name + " of the two inputs");
    }
  };
  frozen("MX", {64, 96}, true, true);
  frozen("BLK1", {64, 130}, true, true);
  frozen("FP4p", {64, 96}, true, true);
  frozen("FP4w", {48, 80}, true, true);
  frozen("FP4i", {48, 80}, true, false);  // amaxes are taken before a kernel looks at the flag
  frozen("FP4i", {64, 80}, true, false);
  frozen("FP4i", {64, 128}, false, false);  // the fused kernel
}

void noop(ScenarioRun& run) {
  noop_stops_at_one(run);
  noop_under_te(run);
}

// S-16

void requantization_is_safe_where_it_says_so(ScenarioRun& run) {
  struct Row {
    string_view format;
    bool safe;
  };
  constexpr Row kRows[] = {
      {"CS", true},         {"MX6", true},         {"MX", true},          {"BLK1", true},
      {"BLK2", true},       {"ID", true},          {"FP4p", true},        {"FP4w", true},
      {"FP4i", true},       {"FP4rs", true},       {"FP4g", false},       {"DS", false},
      {"H(MX|FP4p)", true}, {"H(MX|FP4g)", false}, {"H(FP4g|MX)", false}, {"H(DS|MX)", false}};
  const ArrayPtr x = gradient({64, 128}, DType::bfloat16, 16);
  for (const Row& row : kRows) {
    run.about(row.format.data());
    const QuantizerPtr q = quantizer_named(row.format);
    run.expect_equal(int64_t{q->is_requantization_safe()}, int64_t{row.safe}, "is_requantization_safe");
    Session session = run.session();
    const StoragePtr first = q->quantize(session, x);
    session.rng.draw("something else");
    const StoragePtr second = q->quantize(session, x);
    if (row.safe) run.expect_equal(*second, *first, "quantized again, after an unrelated draw");
    if (row.format.find("FP4g") == string_view::npos) continue;
    const string part = row.format == "H(MX|FP4g)"   ? "_columnwise_storage."
                        : row.format == "H(FP4g|MX)" ? "_rowwise_storage."
                                                     : "";
    const string data = part == "_columnwise_storage." ? "_columnwise_data" : "_rowwise_data";
    run.expect_different(buffer(*second, part + data), buffer(*first, part + data),
                         "quantized again: " + part + data);
    session.rng.reseed(0);
    run.expect_equal(*q->quantize(session, x), *first,
                     "quantized again from the same state of the generator");
  }
  run.about("DS before and after an update of its history");
  Session session = run.session();
  const auto recipe = std::make_shared<DelayedScaling>();
  recipe->amax_history_len = 4;
  const RecipeStatePtr state = RecipeState::create(session, recipe, Mode::forward, 3);
  const QuantizerPtr q = state->make_quantizers(session).front();
  const StoragePtr first = q->quantize(session, x);
  run.expect_equal(*q->quantize(session, x), *first, "quantized again within the step");
  DelayedScalingRecipeState& delayed = *state->delayed();
  update_amax_and_scale(session, *delayed.amax_history, *delayed.scale, delayed.dtype, delayed.settings());
  const StoragePtr second = q->quantize(session, x);
  run.expect_different(buffer(*second, "_data"), buffer(*first, "_data"), "_data in the next step");
  run.expect_different(buffer(*second, "_scale_inv"), buffer(*first, "_scale_inv"),
                       "_scale_inv in the next step");
}

// S-17

ArrayPtr turned_over(const ArrayPtr& matrix) { return contiguous(transpose(matrix, 0, 1)); }

void dequantize_reads_what_exists(ScenarioRun& run) {
  const Dims shape{96, 160};
  const ArrayPtr x = gradient(shape, DType::bfloat16, 17);
  Session session = run.session();
  const auto values = [&](string_view format, Usages u) {
    return quantizer_named(format, u)->quantize(session, x)->dequantize(session);
  };

  for (const string_view format : {"CS", "DS", "MX", "MX6", "MX6P", "MX4", "BLK1", "BLK2", "FP4p", "FP4w",
                                   "FP4i", "FP4rs", "ID", "H(MX|BLK1)", "H(BLK1|FP4p)"}) {
    run.about(string(format));
    const StoragePtr s = quantizer_named(format)->quantize(session, x);
    const ArrayPtr got = s->dequantize(session);
    run.expect_equal(got, values(format, kRowUsage), "both directions: from the rows");
    run.expect_equal(name_of(got->dtype), "bfloat16", "nominal dtype");
    const ArrayPtr wide = s->dequantize(session, DType::float32);
    run.expect_equal(name_of(wide->dtype), "float32", "the dtype asked for");
    run.expect_equal(got, cast(session, wide, DType::bfloat16), "rounded from binary32");
    // Neither the caller's quantizer nor the tensor's own says what can be read.
    s->quantizer->set_usage(false, false);
    run.expect_equal(s->dequantize(session), got, "its quantizer's usages off");
    s->quantizer = nullptr;
    run.expect_equal(s->dequantize(session), got, "without a quantizer");
  }

  // Columns alone. Blocks of columns are blocks of rows of the turned tensor.
  for (const string_view format : {"MX", "MX6P", "MX4", "BLK1"}) {
    run.about(string(format) + " columns alone");
    const ArrayPtr columns = values(format, kColumnUsage);
    const ArrayPtr rows_of_turned =
        quantizer_named(format, kRowUsage)->quantize(session, turned_over(x))->dequantize(session);
    run.expect_equal(columns, turned_over(rows_of_turned), "as rows of the turned tensor");
    run.expect_different(columns, values(format, kRowUsage), "columns and rows");
  }
  run.about("columns alone");
  run.expect_equal(values("BLK2", kColumnUsage), values("BLK2", kRowUsage),
                   "BLK2, whose tiles both directions share");
  run.expect_equal(values("H(MX|BLK1)", kColumnUsage), values("BLK1", kColumnUsage),
                   "H(MX|BLK1) as its columns");
  for (const string_view format : {"FP4p", "FP4w", "FP4i", "H(MX|FP4p)"})
    run.expect_error(not_implemented_error, string(format), [&] { values(format, kColumnUsage); });
  {
    Session hopper = run.session(Arch::sm90);
    const StoragePtr s = quantizer_named("CS")->quantize(hopper, x);
    const ArrayPtr before = s->dequantize(hopper);
    s->update_usage(false, true);
    run.expect_equal(buffer_names(*s), {"_transpose", "_scale_inv"}, "CS on sm90: buffers");
    run.expect_equal(s->dequantize(hopper), before, "CS on sm90: from the transpose");
    dynamic_cast<Float8Storage&>(*s).transpose_invalid = true;
    run.expect_error(runtime_error, "CS on sm90: from a stale transpose", [&] { s->dequantize(hopper); });
  }

  // Nothing left.
  constexpr std::pair<string_view, ErrorClass> kNothing[] = {
      {"CS", runtime_error}, {"MX", runtime_error}, {"BLK1", assertion_error},
      {"FP4p", value_error}, {"ID", runtime_error}, {"H(MX|CS)", runtime_error}};
  for (const auto& [format, error] : kNothing) {
    run.about(string(format) + " without buffers");
    const StoragePtr s = quantizer_named(format)->quantize(session, x);
    if (format.starts_with("H")) s->update_usage(false, false);
    else s->prepare_for_saving();
    run.expect_error(error, "dequantize", [&] { s->dequantize(session); });
  }

  // Values that the codes hold exactly come back as they were.
  const ArrayPtr exact = drawn(shape, DType::bfloat16, 18, FillKind::exact_sums);
  for (const string_view format : {"MX", "BLK1", "BLK2", "ID"})
    for (const Usages u : kDirections3) {
      run.about(string(format) + " " + text(u) + " of small integers");
      run.expect_equal(quantizer_named(format, u)->quantize(session, exact)->dequantize(session), exact,
                       "dequantized");
    }
  run.about("ID");
  const StoragePtr identity = quantizer_named("ID")->quantize(session, x);
  run.expect(identity->dequantize(session)->data() == x->data(), "the payload itself", "the same memory",
             "a copy");
}

// S-18

// The requests of update_usage, row before column: leave alone, demand, drop.
constexpr string_view kRequests[] = {"--", "-T", "-F", "T-", "TT", "TF", "F-", "FT", "FF"};
std::optional<bool> request(char c) { return c == '-' ? std::nullopt : std::optional(c == 'T'); }

// What exists after each request on a tensor that has `present`; behind "!" what an error leaves behind.
struct UsageRow {
  string_view format;
  Arch arch;
  string_view present;
  ErrorClass error;
  std::array<string_view, 9> after;
};
constexpr UsageRow kUsageRows[] = {
    // one byte plane for both directions
    {"CS", Arch::sm100, "TT", runtime_error, {"TT", "TT", "TT", "TT", "TT", "TT", "TT", "TT", "TT"}},
    {"CS", Arch::sm100, "FF", runtime_error, {"FF", "!FF", "FF", "!FF", "!FF", "!FF", "FF", "!FF", "FF"}},
    // columns from rows, never the other way
    {"CS", Arch::sm90, "TT", runtime_error, {"TT", "TT", "TF", "TT", "TT", "TF", "FT", "FT", "FF"}},
    {"CS", Arch::sm90, "TF", runtime_error, {"TF", "TT", "TF", "TF", "TT", "TF", "FF", "FT", "FF"}},
    {"CS", Arch::sm90, "FT", runtime_error, {"FT", "FT", "FF", "!FT", "!FT", "!FT", "FT", "FT", "FF"}},
    {"CS", Arch::sm90, "FF", runtime_error, {"FF", "!FF", "FF", "!FF", "!FF", "!FF", "FF", "!FF", "FF"}},
    // rows are dropped before columns are missed
    {"MX", Arch::sm100, "TT", runtime_error, {"TT", "TT", "TF", "TT", "TT", "TF", "FT", "FT", "FF"}},
    {"MX", Arch::sm100, "TF", runtime_error, {"TF", "!TF", "TF", "TF", "!TF", "TF", "FF", "!FF", "FF"}},
    {"MX", Arch::sm100, "FT", runtime_error, {"FT", "FT", "FF", "!FT", "!FT", "!FT", "FT", "FT", "FF"}},
    {"MX", Arch::sm100, "FF", runtime_error, {"FF", "!FF", "FF", "!FF", "!FF", "!FF", "FF", "!FF", "FF"}},
    // one direction has to stay
    {"BLK1", Arch::sm100, "TT", assertion_error, {"TT", "TT", "TF", "TT", "TT", "TF", "FT", "FT", "!TT"}},
    {"BLK1", Arch::sm100, "TF", assertion_error, {"TF", "!TF", "TF", "TF", "!TF", "TF", "!TF", "!TF", "!TF"}},
    {"BLK1", Arch::sm100, "FT", assertion_error, {"FT", "FT", "!FT", "!FT", "!FT", "!FT", "FT", "FT", "!FT"}},
    // square tiles yield columns where both directions are wanted
    {"BLK2", Arch::sm100, "TT", assertion_error, {"TT", "TT", "TF", "TT", "TT", "TF", "FT", "FT", "!TT"}},
    {"BLK2", Arch::sm100, "TF", assertion_error, {"TF", "TT", "TF", "TF", "TT", "TF", "!TF", "!TF", "!TF"}},
    {"BLK2", Arch::sm100, "FT", assertion_error, {"FT", "FT", "!FT", "!FT", "!FT", "!FT", "FT", "FT", "!FT"}},
    {"FP4p", Arch::sm100, "TT", runtime_error, {"TT", "TT", "TF", "TT", "TT", "TF", "FT", "FT", "FF"}},
    {"FP4p", Arch::sm100, "TF", runtime_error, {"TF", "!TF", "TF", "TF", "!TF", "TF", "FF", "!FF", "FF"}},
    {"FP4p", Arch::sm100, "FT", runtime_error, {"FT", "FT", "FF", "!FT", "!FT", "!FT", "FT", "FT", "FF"}},
    {"FP4w", Arch::sm100, "TF", runtime_error, {"TF", "TT", "TF", "TF", "TT", "TF", "FF", "!FF", "FF"}},
    {"FP4w", Arch::sm100, "FT", runtime_error, {"FT", "FT", "FF", "!FT", "!FT", "!FT", "FT", "FT", "FF"}},
    // one buffer, whatever is asked
    {"ID", Arch::sm100, "TT", runtime_error, {"TT", "TT", "TT", "TT", "TT", "TT", "TT", "TT", "TT"}},
    // all or nothing
    {"H(MX|FP4p)", Arch::sm100, "TT", runtime_error, {"TT", "TT", "TF", "TT", "TT", "TF", "FT", "FT", "FF"}},
    {"H(MX|FP4p)",
     Arch::sm100,
     "TF",
     runtime_error,
     {"TF", "!TF", "TF", "TF", "!TF", "TF", "FF", "!TF", "FF"}},
    {"H(MX|FP4p)",
     Arch::sm100,
     "FT",
     runtime_error,
     {"FT", "FT", "FF", "!FT", "!FT", "!FT", "FT", "FT", "FF"}},
    {"H(BLK2|BLK2)",
     Arch::sm100,
     "TF",
     runtime_error,
     {"TF", "!TF", "TF", "TF", "!TF", "TF", "FF", "!TF", "FF"}},
};

// `whole`'s format with just these directions.
StoragePtr with_directions(Session& session, const UsageRow& row, const ArrayPtr& x) {
  const Usages present = usages_of(row.present);
  if (row.format != "CS" && present != kNoUsage)
    return quantizer_named(row.format, present)->quantize(session, x);
  const StoragePtr s = quantizer_named(row.format)->quantize(session, x);
  if (present == kNoUsage) s->prepare_for_saving();
  else s->update_usage(present.rowwise, present.columnwise);
  return s;
}

void update_usage_table(ScenarioRun& run) {
  const ArrayPtr x = gradient({160, 144}, DType::bfloat16, 18),
                 blocks32 = gradient({64, 96}, DType::bfloat16, 18);
  for (const UsageRow& row : kUsageRows) {
    Session session = run.session(row.arch);
    const bool mx = row.format.find("MX") != string_view::npos;
    const ArrayPtr& input = mx ? blocks32 : x;
    const StoragePtr whole = quantizer_named(row.format)->quantize(session, input);
    for (size_t i = 0; i < std::size(kRequests); ++i) {
      run.about(string(row.format) + " " + arch_text(row.arch) + " has " + string(row.present) +
                ", asked for " + string(kRequests[i]));
      const StoragePtr s = with_directions(session, row, input);
      const bool raises = row.after[i].starts_with("!");
      const auto ask = [&] { s->update_usage(request(kRequests[i][0]), request(kRequests[i][1])); };
      if (raises) run.expect_error(row.error, "update_usage", ask);
      else ask();
      run.expect_equal(text(s->present()), row.after[i].substr(raises ? 1 : 0), "directions afterwards");
      // What is there, kept or made anew, is what quantization would have made.
      if (s->present() != kNoUsage) expect_part(run, *s, *whole, "as quantized");
    }
  }
}

void synthesised_columns(ScenarioRun& run) {
  struct Row {
    string_view format;
    Arch arch;
    Dims shape;
  };
  const Row rows[] = {{"CS", Arch::sm90, {48, 80}},      {"CS", Arch::sm90, {2, 24, 40}},
                      {"BLK2", Arch::sm100, {256, 384}}, {"BLK2", Arch::sm100, {200, 144}},
                      {"BLK2", Arch::sm90, {130, 700}},  {"FP4w", Arch::sm100, {48, 80}},
                      {"FP4w", Arch::sm100, {256, 384}}, {"FP4w", Arch::sm100, {160, 144}}};
  for (const Row& row : rows) {
    run.about(string(row.format) + " " + dims(row.shape));
    Session session = run.session(row.arch);
    const ArrayPtr x = gradient(row.shape, DType::bfloat16, 19);
    const StoragePtr whole = quantizer_named(row.format)->quantize(session, x),
                     s = quantizer_named(row.format, kRowUsage)->quantize(session, x);
    const size_t launches = session.launches.size();
    s->update_usage(true, true);
    run.expect_equal(*s, *whole, "columns from rows");
    run.expect_equal(static_cast<int64_t>(session.launches.size() - launches), 0, "quantizations that took");
  }
}

void update_usage(ScenarioRun& run) {
  update_usage_table(run);
  synthesised_columns(run);
}

// S-19

void results_keep_a_quantizer_of_their_own(ScenarioRun& run) {
  const ArrayPtr x = gradient({64, 96}, DType::bfloat16, 19),
                 next = drawn({64, 96}, DType::bfloat16, 20, FillKind::wide);
  for (const string_view format : {"CS", "DS", "MX", "BLK1", "BLK2", "FP4p", "FP4i", "FP4rs", "ID",
                                   "H(MX|FP4p)", "H(CS|CS)", "H(FP4p|BLK1;rwdq)"}) {
    run.about(string(format));
    Session session = run.session();
    const QuantizerPtr q = quantizer_named(format);
    const json::Value settings = q->describe();
    const StoragePtr s = q->quantize(session, clone(x)), before = clone(*s);
    run.expect(s->quantizer && s->quantizer != q, "the result's quantizer", "a copy",
               s->quantizer ? "the caller's own" : "none");
    run.expect_equal(s->quantizer->describe(), settings, "the copy's settings");
    q->set_usage(false, false);
    q->internal = true;
    run.expect_equal(*s, *before, "buffers after the caller changed its usages");
    run.expect_equal(s->quantizer->describe(), settings,
                     "the copy's settings after the caller changed its own");
    // The tensor refreshes itself by its own settings.
    s->quantizer->update_quantized(session, next, *s);
    run.expect_equal(*s, *quantizer_named(format)->quantize(session, next), "refreshed by its own quantizer");
    // Into an existing tensor: that one comes back, and keeps the quantizer that it has.
    const QuantizerPtr own = s->quantizer, other = quantizer_named(format);
    const StoragePtr out = other->quantize(session, clone(x), s);
    run.expect(out == s && s->quantizer == own, "quantize into an existing tensor",
               "that tensor with its quantizer", "others");
    run.expect_equal(*s, *before, "buffers of the existing tensor");
  }

  const auto group = std::make_shared<ProcessGroup>();
  group->name = "tp0";
  group->size = 2;
  group->all_reduce_max = [](std::span<F32Bits> amaxes) {
    for (F32Bits& a : amaxes) a = std::max<F32Bits>(a, std::bit_cast<F32Bits>(4096.0f));
  };
  for (const string_view format : {"CS", "FP4p", "FP4i", "H(CS|FP4p)", "H(MX|CS)"}) {
    run.about(string(format) + " with an amax group");
    Session session = run.session();
    const QuantizerPtr q = quantizer_named(format);
    set_amax_reduction_group(*q, group);
    const StoragePtr s = q->quantize(session, x);
    const int64_t reductions = static_cast<int64_t>(session.collectives.size());
    run.expect(reductions > 0, "reductions of the quantize", "some", "none");
    std::vector<const Quantizer*> kept = {s->quantizer.get()};
    if (const auto* h = dynamic_cast<const HybridStorage*>(s.get())) {
      const auto& pair = dynamic_cast<const HybridQuantizer&>(*s->quantizer);
      kept = {pair.rowwise_quantizer.get(), pair.columnwise_quantizer.get(),
              h->rowwise_storage->quantizer.get(), h->columnwise_storage->quantizer.get()};
      run.expect(!pair.with_amax_reduction() && !pair.amax_reduction_group(), "the copy's reduction", "off",
                 "on");
    }
    for (const Quantizer* k : kept) {
      const AmaxReduction* r = const_cast<Quantizer*>(k)->amax_reduction();
      run.expect(!r || (!r->enabled && !r->group), "group of the result's " + string(k->class_name()), "none",
                 "the caller's");
    }
    s->quantizer->update_quantized(session, x, *s);
    run.expect_equal(static_cast<int64_t>(session.collectives.size()), reductions,
                     "reductions after the tensor refreshed itself");
    run.expect_equal(*s, *quantizer_named(format)->quantize(session, x), "refreshed without the group");
    q->quantize(session, x);
    run.expect_equal(static_cast<int64_t>(session.collectives.size()), 2 * reductions,
                     "reductions after the caller quantized again");
  }
}

const Scenario kQuantizerScenarios[] = {
    {"S-13", "Each direction has its buffers, whichever others are made",
     "every format and usages TT, TF, FT at shapes with whole and partial blocks", "a tensor is quantized",
     "its buffers, dtypes and shapes are the known ones; bytes are the reference's and do not depend on the "
     "other direction; refused usages raise",
     each_direction_has_its_buffers, ""},
    {"S-14", "make_empty and an update are a quantize", "every format, usages and shape",
     "an empty tensor is refreshed twice",
     "it holds what quantize makes, padding included, and its buffers stay where they are",
     empty_then_update_is_quantize, ""},
    {"S-15", "A noop flag of exactly 1 changes nothing", "a quantized tensor of every format",
     "it is refreshed under flags of 1, 0 and others",
     "1 leaves every buffer, Identity takes any flag but zero for one, all else refreshes; flavour=te "
     "freezes what each kernel of the original does",
     noop, ""},
    {"S-16", "Requantization is safe where the predicate says so", "every format's is_requantization_safe",
     "a tensor is quantized twice with other draws between, or a new history",
     "safe ones repeat their bytes, stochastic and delayed ones do not",
     requantization_is_safe_where_it_says_so, ""},
    {"S-17", "Dequantize reads what exists", "every format with rows, columns, both or nothing",
     "it is dequantized, with its quantizer's usages on, off, or without one",
     "rows come first, columns serve where the class can read them, and no quantizer has a say",
     dequantize_reads_what_exists, ""},
    {"S-18", "update_usage, every request on every state", "every class with each set of directions",
     "each of nine requests is made",
     "directions afterwards and errors are the class's; what is made from rows is what quantization makes",
     update_usage, ""},
    {"S-19", "A result keeps its own quantizer", "every format, and amax groups",
     "the caller changes its quantizer after a quantize",
     "the result and its copy do not follow, and the copy has no amax group",
     results_keep_a_quantizer_of_their_own, ""},
};

}  // namespace

std::span<const Scenario> quantizer_scenarios() { return kQuantizerScenarios; }

}  // namespace assay::training
