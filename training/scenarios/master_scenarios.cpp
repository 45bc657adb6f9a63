// Fragments of masters where they do not simply lie: in a transpose, in shards of their own, outside of the
// parameter; and what FusedAdam makes of states and orders that do not fit.
#include <algorithm>
#include <string>

#include "training/base/data.h"
#include "training/formats/formats.h"
#include "training/ranks/master_weights.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/tables.h"
#include "training/state/fused_adam.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr int64_t kRows = 128, kCols = 256, kElements = kRows * kCols;
constexpr F32Bits kQuarter = 0x3E800000;

StoragePtr matrix_of(Session& session, string_view kind, Usages usages = kBothUsages) {
  return quantizer_named(kind, usages)->quantize(session, drawn({kRows, kCols}, DType::bfloat16, 4));
}
ArrayPtr whole_master() { return drawn({kRows, kCols}, DType::float32, 148); }
MasterWeight fragment_of(const StoragePtr& s, int64_t from, int64_t n) {
  return {s, clone(slice(view(whole_master(), {kElements}), 0, from, from + n)), from, {}};
}

// A group whose other ranks hold what is left of the master of one parameter: every amax is the whole's.
struct OfTheWhole {
  OfTheWhole(ScenarioRun& run, Arch arch, string_view kind, Usages usages) {
    Session other = run.session(arch);
    const StoragePtr twin = matrix_of(other, kind, usages);
    ProcessGroup alone{.name = "dp", .size = 1, .rank = 0, .all_reduce_max = {}, .all_gather = {}};
    alone.all_reduce_max = [&](std::span<F32Bits> a) { seen.emplace_back(a.begin(), a.end()); };
    quantize_master_weights(other, {fragment_of(twin, 0, kElements)}, alone);
    group.all_reduce_max = [this](std::span<F32Bits> a) {
      const std::vector<F32Bits>& all = seen.at(at++);
      for (size_t i = 0; i < a.size(); ++i) a[i] = std::max(a[i], all.at(i));
    };
  }
  ProcessGroup group{.name = "dp", .size = 2, .rank = 0, .all_reduce_max = {}, .all_gather = {}};
  std::vector<std::vector<F32Bits>> seen;
  size_t at = 0;
};

// Per-tensor FP8 whose rows were dropped: what is left of it is its transpose.
StoragePtr transpose_of(Session& session, string_view kind) {
  const StoragePtr s = matrix_of(session, kind);
  s->update_usage(false, true);
  return s;
}

// The rows of the fragment are columns of the plane: everything else of it stays.
void into_a_transpose(ScenarioRun& run, string_view kind, int64_t from, int64_t n) {
  run.about(string(kind) + ", a transpose alone, from " + std::to_string(from));
  Session session = run.session(Arch::sm90);
  const StoragePtr s = transpose_of(session, kind);
  const ArrayPtr before = clone(buffer(*s, "_transpose"));
  OfTheWhole others(run, Arch::sm90, kind, kBothUsages);
  json::Value calls = json::array();
  quantize_master_weights(session, {fragment_of(s, from, n)}, others.group, false,
                          [&](json::Value v) { calls.push(std::move(v)); });
  const StoragePtr want =
      quantizer_named(kind)->quantize(session, cast(session, whole_master(), DType::bfloat16));
  const ArrayPtr expected = clone(buffer(*want, "_transpose"));
  for (int64_t i = 0; i < kElements; ++i) {
    const auto at = static_cast<size_t>(i % kCols * kRows + i / kCols);
    if (i < from || i >= from + n) expected->bytes()[at] = std::as_const(*before).bytes()[at];
  }
  run.expect_equal(buffer(*s, "_transpose"), expected, "the transpose");
  run.expect(!buffer(*s, "_data"), "no rows appear");
  run.expect_equal(buffer(*s, "_scale_inv"), buffer(*want, "_scale_inv"), "the scale");
  const json::Value cast_of_rows =
      json::array({"quantize", "Float8Quantizer", true, false, json::array({1, n})});
  run.expect(std::find(calls.array()->begin(), calls.array()->end(), cast_of_rows) != calls.array()->end(),
             "one cast of rows");
}

// The same fragment into the parameter and into shards of its length.
void into_shards(ScenarioRun& run, string_view kind, int64_t from, int64_t n) {
  run.about(string(kind) + ", a shard from " + std::to_string(from));
  Session session = run.session();
  const StoragePtr plain = matrix_of(session, kind), sharded = matrix_of(session, kind);
  OfTheWhole others(run, Arch::sm100, kind, kBothUsages);
  quantize_master_weights(session, {fragment_of(plain, from, n)}, others.group);
  others.at = 0;
  const bool fp4 = kind == "FP4w", identity = kind == "ID";
  MasterWeight w = fragment_of(sharded, from, n);
  w.shard = {zeros({fp4 ? n / 2 : n}, identity ? DType::bfloat16 : DType::uint8)};
  if (kind == "MX") w.shard.push_back(zeros({n}, DType::uint8));
  const auto plane = [&](Storage& s, bool rows) {
    const string_view name = identity                           ? "_hp_data"
                             : dynamic_cast<Float8Storage*>(&s) ? "_data"
                             : rows                             ? "_rowwise_data"
                                                                : "_columnwise_data";
    const ArrayPtr a = buffer(s, name);
    return clone(view(a, {a->count()}));
  };
  const ArrayPtr kept = plane(*sharded, true);
  quantize_master_weights(session, {w}, others.group);
  const int64_t first = fp4 ? from / 2 : from, count = w.shard[0]->count();
  for (size_t i = 0; i < w.shard.size(); ++i)
    run.expect_equal(w.shard[i], clone(slice(plane(*plain, i == 0), 0, first, first + count)),
                     i == 0 ? "bytes of rows" : "bytes of columns");
  run.expect_equal(plane(*sharded, true), kept, "the parameter's own rows");
  w.shard[0] = zeros({1}, w.shard[0]->dtype);
  others.at = 0;
  run.expect_error(identity ? ErrorClass::value_error : ErrorClass::runtime_error,
                   "a shard that is too short", [&] { quantize_master_weights(session, {w}, others.group); },
                   {"shard"});
}

void s148(ScenarioRun& run) {
  for (const auto& [from, n] : {std::pair<int64_t, int64_t>{0, kElements / 2},
                                {kElements / 2, kElements / 2},
                                {300, 77},
                                {0, kElements}})
    for (const string_view kind : {"DS", "CS"}) into_a_transpose(run, kind, from, n);
  for (const string_view kind : {"DS", "CS", "BLK2", "MX", "FP4w", "ID"}) into_shards(run, kind, 1000, 2000);

  run.about("a transpose beside a shard");
  Session session = run.session(Arch::sm90);
  ProcessGroup alone{.name = "dp", .size = 1, .rank = 0, .all_reduce_max = {}, .all_gather = {}};
  session.stand_ins = true;  // no kernel makes columns alone here
  const StoragePtr h = matrix_of(session, "H(CS|CS)", kColumnUsage);
  h->init_value = zeros({1}, DType::float32);
  MasterWeight w = fragment_of(h, 0, 64);
  w.shard = {zeros({64}, DType::uint8)};
  run.expect_error(ErrorClass::not_implemented_error, "refused before anything happens",
                   [&] { quantize_master_weights(session, {w}, alone); }, {"transpose"});
  run.expect(h->init_value != nullptr, "the initial value is kept");
}

void refuse_fragments(ScenarioRun& run) {
  ProcessGroup alone{.name = "dp", .size = 1, .rank = 0, .all_reduce_max = {}, .all_gather = {}};
  for (const string_view kind : {"BLK2", "MX", "FP4w"}) {
    run.about(string(kind));
    Session session = run.session();
    const StoragePtr s = matrix_of(session, kind), before = clone(*s);
    for (const int64_t offset : {int64_t{-1}, kElements - 50}) {
      MasterWeight w = fragment_of(s, 0, 100);
      w.offset = offset;
      run.expect_error(ErrorClass::runtime_error, "outside of the parameter",
                       [&] { quantize_master_weights(session, {w}, alone); }, {"inside"});
    }
    MasterWeight w = fragment_of(s, 0, 100);
    w.offset.reset();
    run.expect_error(ErrorClass::type_error, "no start",
                     [&] { quantize_master_weights(session, {w}, alone); }, {"start_offset"});
    run.expect_equal(*s, *before, "no byte moves");
  }
  run.about("a bad start of a delayed parameter");
  Session session = run.session(Arch::sm90);
  const StoragePtr ds = matrix_of(session, "DS");
  MasterWeight w = fragment_of(ds, 0, 100);
  w.offset = kElements;
  run.expect_error(ErrorClass::value_error, "refused", [&] { quantize_master_weights(session, {w}, alone); },
                   {"exceeds"});
  run.expect(!ds->present().columnwise, "its transpose is dropped all the same");
  run.about("an empty fragment of NVFP4");
  const StoragePtr fp4 = matrix_of(session, "FP4w");
  std::vector<string> calls;
  quantize_master_weights(session, {fragment_of(fp4, 0, 0)}, alone, false,
                          [&](json::Value v) { calls.push_back(*(*v.array())[0].string()); });
  run.expect_equal(
      calls, {"all_reduce", "all_reduce", "nvfp4_compute_global_scale", "nvfp4_multi_tensor_fused_scale"},
      "neither amaxes nor codes");
  run.about("raw data of a tensor without rows");
  for (const string_view kind : {"BLK2", "FP4p"}) {
    const StoragePtr s = matrix_of(session, kind, kColumnUsage);
    run.expect_error(ErrorClass::attribute_error, kind,
                     [&] { replace_raw_data(*s, zeros({kElements}, DType::uint8)); }, {"rows"});
  }
}

TrainedPtr trained(const Piece& value, DType grad) {
  const auto p = std::make_shared<Trained>();
  p->value = value;
  p->grad = drawn(p->shape(), grad, 9);
  return p;
}

void s149(ScenarioRun& run) {
  refuse_fragments(run);
  Session session = run.session();
  run.about("remainders without masters");
  AdamOptions o;
  o.lr = kQuarter;
  o.capturable = o.store_param_remainders = true;
  run.expect(!FusedAdam(session, {}, o).stores_remainders(), "are off before capturable mode looks at them");
  o.master_weights = true;
  run.expect_error(ErrorClass::runtime_error, "with masters", [&] { FusedAdam(session, {}, o); },
                   {"Capturable"});

  run.about("the first parameter that cannot be updated ends the step");
  o.store_param_remainders = false;
  const TrainedPtr quantized = trained(matrix_of(session, "MX"), DType::bfloat16),
                   later = trained(drawn({32, 32}, DType::float32, 5), DType::float32);
  FusedAdam graph(session, {{{quantized, later}, 0}}, o);
  run.expect_error(ErrorClass::runtime_error, "capturable", [&] { graph.step(); }, {"capturable"});
  run.expect(graph.states(quantized) && !graph.states(later), "parameters behind it have no states yet");

  run.about("a checkpoint without masters");
  o.capturable = false;
  AdamOptions bare = o;
  bare.master_weights = false;
  const TrainedPtr half = trained(drawn({32, 32}, DType::bfloat16, 6), DType::bfloat16),
                   full = trained(drawn({32, 32}, DType::float32, 7), DType::float32);
  FusedAdam without(session, {{{half, full}, 0}}, bare);
  without.step();
  const FusedAdam::Saved saved = without.state_dict();
  FusedAdam with(session, {{{half, full}, 0}}, o);
  with.load_state_dict(saved);
  run.expect_error(ErrorClass::key_error, "a step of a bf16 parameter", [&] { with.step(); },
                   {"master_param"});
  full->grad = drawn({32, 32}, DType::float32, 8);
  half->grad = nullptr;
  const ArrayPtr before = clone(std::get<ArrayPtr>(full->value));
  with.step();
  run.expect_different(std::get<ArrayPtr>(full->value), before, "an f32 parameter needs none");
  FusedAdam other(session, {{{half}, 0}}, o);
  run.expect_error(ErrorClass::value_error, "another number of parameters",
                   [&] { other.load_state_dict(saved); }, {"parameters"});
}

// clang-format off
const Scenario kMasterScenarios[] = {
    {"S-148", "Masters into transposes and shards",
     "fragments of a master, a parameter that is a transpose alone, shards of the fragment's length",
     "quantize_master_weights casts them", "each byte lands where the whole's cast has it, and no other moves", s148, {}},
    {"S-149", "Masters and states that do not fit",
     "fragments outside of a parameter, empty ones, tensors without rows, checkpoints without masters", "they are used",
     "each raises as in the original, after what the original has done by then", s149, {}},
};
// clang-format on

}  // namespace

std::span<const Scenario> master_scenarios() { return kMasterScenarios; }

}  // namespace assay::training
