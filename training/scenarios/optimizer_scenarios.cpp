// Optimizer steps and masters: what FusedAdam updates, in which order, what it keeps, and what ranks make of
// fragments of a master.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/base/ranks.h"
#include "training/dispatch/in_place.h"
#include "training/formats/formats.h"
#include "training/ranks/master_weights.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/tables.h"
#include "training/state/fused_adam.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr F32Bits kEighth = 0x3E000000;
constexpr int64_t kSide = 128, kAll = kSide * kSide;

TrainedPtr plain(DType dtype, uint64_t seed) {
  const auto p = std::make_shared<Trained>();
  p->value = drawn({32, 32}, dtype, seed);
  p->grad = drawn({32, 32}, dtype, seed + 50);
  return p;
}
TrainedPtr quantized(Session& session, string_view kind, uint64_t seed) {
  const auto p = std::make_shared<Trained>();
  p->value = quantizer_named(kind)->quantize(session, drawn({kSide, kSide}, DType::bfloat16, seed));
  p->grad = drawn({kSide, kSide}, DType::bfloat16, seed + 50);
  return p;
}

AdamOptions with_masters() {
  AdamOptions o;
  o.lr = kEighth;
  o.master_weights = true;
  return o;
}

ArrayPtr scalar(float v) { return f32_array({1}, std::vector<float>{v}); }
ArrayPtr filled(const Dims& shape, float v) {
  return f32_array(shape, std::vector<float>(static_cast<size_t>(count_of(shape)), v));
}
Storage& storage_of(const TrainedPtr& p) { return *p->quantized(); }

// ---- FusedAdam -------------------------------------------------------------------------

void s47(ScenarioRun& run) {
  for (const string_view kind : {"CS", "MX", "BLK2", "FP4w", "H(MX|MX)"}) {
    run.about(string(kind));
    Session session = run.session();
    const TrainedPtr p = quantized(session, kind, 47);
    FusedAdam adam(session, {{{p}, 0}}, with_masters());
    for (uint64_t step = 1; step <= 5; ++step) {
      p->grad = drawn({kSide, kSide}, DType::bfloat16, 470 + step);
      adam.step();
      const ArrayPtr master = adam.states(p)->master->plain;
      const StoragePtr want = quantizer_named(kind)->quantize(session, master);
      for (const string& name : buffer_names(*want))
        run.expect_equal(buffer(storage_of(p), name), buffer(*want, name), name);
    }
    run.expect_equal(adam.groups()[0].step, 5, "step");
  }
}

void s48(ScenarioRun& run) {
  Session session = run.session();
  std::vector<string> order;
  const AdamLog log{[&](const AdamLaunch& l) { order.push_back(l.kernel + std::to_string(l.lists.size())); },
                    [&](const Quantizer&) { order.push_back("quantize"); }};
  const TrainedPtr full = plain(DType::float32, 1), half = plain(DType::bfloat16, 2),
                   fp8 = quantized(session, "DS", 3), mx = quantized(session, "MX", 4);
  FusedAdam adam(session, {{{full, mx, fp8, half}, 0}, {{}, 0}}, with_masters(), log);
  adam.step();
  run.expect_equal(order,
                   {"adam5",
                    "adam_fp8"
                    "8",
                    "adam4", "quantize"},
                   "16-bit, FP8, then f32 kernels, and the write-back last");
  run.expect_equal(adam.groups()[1].step, 1, "an empty group counts");
  const ArrayPtr before = drawn({32, 32}, DType::float32, 1);
  run.expect_equal(adam.states(full)->master->plain, before, "the master of an f32 parameter stays");
  run.expect_different(std::get<ArrayPtr>(full->value), before, "an f32 parameter is updated itself");
  run.expect_equal(std::get<ArrayPtr>(half->value),
                   cast(session, adam.states(half)->master->plain, DType::bfloat16),
                   "a bf16 parameter is its master rounded");

  run.about("no gradient");
  const TrainedPtr none = quantized(session, "MX", 5);
  none->grad = nullptr;
  const StoragePtr kept = clone(storage_of(none));
  FusedAdam idle(session, {{{none}, 0}}, with_masters());
  idle.step();
  run.expect(idle.states(none) != nullptr && idle.states(none)->master, "states are there all the same");
  run.expect_equal(storage_of(none), *kept, "no byte moves");

  run.about("refusals");
  for (const string_view kind : {"CS", "MX", "BLK1", "FP4p", "ID", "H(MX|CS)"}) {
    FusedAdam bare(session, {{{quantized(session, kind, 6)}, 0}}, AdamOptions{});
    run.expect_error(ErrorClass::runtime_error, kind, [&] { bare.step(); }, {"master_weights"});
    run.expect_equal(bare.groups()[0].step, 1, "step has advanced");
  }
  AdamOptions capturable = with_masters();
  capturable.capturable = true;
  FusedAdam graph(session, {{{quantized(session, "DS", 7)}, 0}}, capturable);
  run.expect_error(ErrorClass::runtime_error, "capturable", [&] { graph.step(); }, {"capturable"});
  FusedAdam two(session, {{{plain(DType::bfloat16, 8), plain(DType::float16, 9)}, 0}}, with_masters());
  run.expect_error(ErrorClass::runtime_error, "two half precisions", [&] { two.step(); }, {"mix"});
}

void s52(ScenarioRun& run) {
  for (const string_view kind : {"CS", "MX", "BLK2"}) {
    run.about(string(kind));
    Session session = run.session();
    const auto steps = [&](FusedAdam& adam, const TrainedPtr& p, uint64_t first, uint64_t last) {
      for (uint64_t n = first; n <= last; ++n) {
        p->grad = drawn({kSide, kSide}, DType::bfloat16, 520 + n);
        adam.step();
      }
    };
    const TrainedPtr whole = quantized(session, kind, 52);
    FusedAdam uninterrupted(session, {{{whole}, 0}}, with_masters());
    steps(uninterrupted, whole, 1, 4);
    const TrainedPtr first = quantized(session, kind, 52), second = quantized(session, kind, 53);
    FusedAdam before(session, {{{first}, 0}}, with_masters()),
        after(session, {{{second}, 0}}, with_masters());
    steps(before, first, 1, 2);
    dispatch::copy_(session, std::get<StoragePtr>(first->value), std::get<StoragePtr>(second->value));
    after.load_state_dict(before.state_dict());
    steps(after, second, 3, 4);
    for (const string& name : buffer_names(storage_of(whole)))
      run.expect_equal(buffer(storage_of(second), name), buffer(storage_of(whole), name), name);
    run.expect_equal(after.states(second)->exp_avg_sq.plain, uninterrupted.states(whole)->exp_avg_sq.plain,
                     "exp_avg_sq");
    run.expect_equal(after.groups()[0].step, 4, "step");
  }
}

void s92(ScenarioRun& run) {
  Session session = run.session();
  const TrainedPtr p = quantized(session, "DS", 92);
  const StoragePtr before = clone(storage_of(p));
  FusedAdam adam(session, {{{p}, 0}}, AdamOptions{});
  adam.step();
  run.expect_equal(storage_of(p), *before, "nothing is updated, and nothing says so");
  run.expect_equal(adam.groups()[0].step, 1, "step");
}

void s93(ScenarioRun& run) {
  Session session = run.session(Arch::sm90);
  const TrainedPtr p = quantized(session, "DS", 93);
  auto& s = dynamic_cast<Float8Storage&>(storage_of(p));
  const ArrayPtr data = clone(s.data), transpose = clone(s.transpose), scale_inv = clone(s.scale_inv);
  const auto& q = dynamic_cast<const Float8Quantizer&>(*s.quantizer);
  copy_into(*scalar(1000), *q.amax);
  FusedAdam adam(session, {{{p}, 0}}, with_masters());
  adam.step();
  run.expect_different(s.data, data, "rows are new");
  run.expect_equal(s.transpose, transpose, "the transpose is old");
  run.expect(s.has_transpose(), "and still marked valid");
  run.expect_equal(s.scale_inv, scale_inv, "scale_inv of the same scale");
  run.expect_equal(q.amax, scalar(1000), "the amax is raised, never lowered");
  const auto fresh =
      std::dynamic_pointer_cast<Float8Storage>(q.copy()->quantize(session, adam.states(p)->master->plain));
  run.expect_equal(s.data, fresh->data, "bytes by the present scale");
}

void s97(ScenarioRun& run) {
  Session session = run.session();
  AdamOptions o = with_masters();
  o.exp_avg_dtype = "float16";
  o.exp_avg_sq_dtype = "uint8";
  const TrainedPtr p = plain(DType::float32, 97);
  p->grad = filled({32, 32}, 1);
  FusedAdam adam(session, {{{p}, 0}}, o);
  adam.step();
  const AdamStates& s = *adam.states(p);
  // m = fl(0.1), and scale = fl(m / 32752); the stored value is the largest, 32752.
  const F32Bits tenth = std::bit_cast<F32Bits>(1.0f - 0.9f);
  run.expect_equal(s.exp_avg.scale, scalar(std::bit_cast<float>(tenth) / 32752.0f), "scale of f16");
  const std::vector<uint16_t> most(32 * 32, 0x77FF);
  run.expect_equal(s.exp_avg.plain, from_bytes({32, 32}, DType::float16, std::as_bytes(std::span(most))),
                   "what is stored");
  run.expect_equal(s.exp_avg_sq.dtype(), "Float8Tensor", "class of the FP8 state");
  const std::vector<uint8_t> largest(32 * 32, 0x7E);
  run.expect_equal(s.exp_avg_sq.fp8->data,
                   from_bytes({32, 32}, DType::uint8, std::as_bytes(std::span(largest))), "FP8 codes");
  run.about("zeros");
  const TrainedPtr still = plain(DType::float32, 98);
  still->grad = zeros({32, 32}, DType::float32);
  FusedAdam idle(session, {{{still}, 0}}, o);
  idle.step();
  run.expect_equal(idle.states(still)->exp_avg.scale, scalar(0), "the scale of zeros");
  run.expect_equal(idle.states(still)->exp_avg.plain, zeros({32, 32}, DType::float16), "zeros stay zeros");
}

void s98(ScenarioRun& run) {
  const std::vector<uint16_t> one = {0x3F80}, low = {0x8000};
  const ArrayPtr parameter = from_bytes({1}, DType::bfloat16, std::as_bytes(std::span(one))),
                 remainder = from_bytes({1}, DType::int16, std::as_bytes(std::span(low)));
  const ArrayPtr master = joined_remainder(*parameter, *remainder);
  run.expect_equal(static_cast<int64_t>(f32_bits(*master)[0]), 0x3F7F8000, "the f32 value");
  const SplitMaster again = split_remainder(*master);
  run.expect_equal(again.parameter, parameter, "the parameter again");
  run.expect_equal(again.remainder, remainder, "the remainder again");
  Session session = run.session();
  AdamOptions o = with_masters();
  o.store_param_remainders = true;
  o.lr = 0;
  const TrainedPtr p = plain(DType::bfloat16, 98);
  const ArrayPtr before = clone(std::get<ArrayPtr>(p->value));
  FusedAdam adam(session, {{{p}, 0}}, o);
  adam.step();
  run.expect_equal(std::get<ArrayPtr>(p->value), before, "a step of no length keeps the parameter");
  run.expect_equal(adam.states(p)->master->plain, zeros({32, 32}, DType::int16), "and its remainder");
  run.expect_equal(adam.states(p)->master->dtype(), "int16", "dtype of the remainder");
}

void s128(ScenarioRun& run) {
  for (const string_view kind : {"MX", "CS"}) {
    run.about(string(kind));
    Session session = run.session();
    AdamOptions o = with_masters();
    o.store_param_remainders = true;
    const TrainedPtr p = quantized(session, kind, 128);
    const StoragePtr before = clone(storage_of(p));
    FusedAdam adam(session, {{{p}, 0}}, o);
    run.expect_error(ErrorClass::runtime_error, "the kernel refuses int16", [&] { adam.step(); }, {"int16"});
    run.expect_equal(adam.states(p)->master->plain, zeros({kSide, kSide}, DType::int16), "the master");
    run.expect_equal(storage_of(p), *before, "no byte moves");
    run.expect_equal(adam.groups()[0].step, 1, "step has advanced");
  }
  run.about("FP8 moments of zeros");
  Session session = run.session();
  AdamOptions o = with_masters();
  o.exp_avg_dtype = "uint8";
  const TrainedPtr p = plain(DType::float32, 129);
  p->grad = zeros({32, 32}, DType::float32);
  FusedAdam adam(session, {{{p}, 0}}, o);
  adam.step();
  const std::vector<uint8_t> nan(32 * 32, 0x7F);
  run.expect_equal(adam.states(p)->exp_avg.fp8->data,
                   from_bytes({32, 32}, DType::uint8, std::as_bytes(std::span(nan))), "NaN bytes");
}

// ---- masters ---------------------------------------------------------------------------

MasterWeight master_of(const StoragePtr& s, const ArrayPtr& whole, int64_t from, int64_t n) {
  s->init_value = scalar(1);
  return {s, clone(slice(view(whole, {kAll}), 0, from, from + n)), from, {}};
}

StoragePtr weight(Session& session, string_view kind, uint64_t seed) {
  return quantizer_named(kind)->quantize(session, drawn({kSide, kSide}, DType::bfloat16, seed));
}

std::vector<string> names_of_calls(const json::Value& calls) {
  std::vector<string> out;
  for (const json::Value& c : *calls.array()) out.push_back(*(*c.array())[0].string());
  return out;
}

void s49(ScenarioRun& run) {
  const ArrayPtr whole = drawn({kSide, kSide}, DType::float32, 49);
  for (const string_view kind : {"DS", "CS", "BLK2", "BLK1", "MX", "FP4w", "ID"})
    for (const auto& [from, n] :
         {std::pair<int64_t, int64_t>{0, kAll / 2}, {kAll / 2, kAll / 2}, {36, 100}, {0, kAll}}) {
      run.about(string(kind) + " from " + std::to_string(from));
      Session session = run.session();
      const StoragePtr s = weight(session, kind, 4);
      const auto rows = [&](Storage& of) {
        return dynamic_cast<Float8Storage*>(&of)     ? buffer(of, "_data")
               : dynamic_cast<IdentityStorage*>(&of) ? buffer(of, "_hp_data")
                                                     : buffer(of, "_rowwise_data");
      };
      const ArrayPtr before = clone(rows(*s));
      // The other ranks have the rest, so all agree about what the whole tensor's amaxes are.
      const MasterWeight own = master_of(s, whole, from, n);
      std::vector<F32Bits> all_amaxes;
      ProcessGroup group{.name = "dp", .size = 2, .rank = 0, .all_reduce_max = {}, .all_gather = {}};
      std::vector<std::vector<F32Bits>> seen;
      {  // what the whole master contributes, in the order of the collectives
        Session other = run.session();
        const StoragePtr twin = weight(other, kind, 4);
        group.all_reduce_max = [&](std::span<F32Bits> a) { seen.emplace_back(a.begin(), a.end()); };
        quantize_master_weights(other, {master_of(twin, whole, 0, kAll)}, group);
      }
      size_t at = 0;
      group.all_reduce_max = [&](std::span<F32Bits> a) {
        run.expect_equal(static_cast<int64_t>(a.size()), static_cast<int64_t>(seen.at(at).size()),
                         "every rank reduces as many amaxes");
        for (size_t i = 0; i < a.size(); ++i) a[i] = std::max(a[i], seen[at][i]);
        ++at;
      };
      quantize_master_weights(session, {own}, group);
      run.expect(s->init_value == nullptr, "the preserved initial value is gone");
      QuantizerPtr q = quantizer_named(kind, kRowUsage);
      const StoragePtr want = q->quantize(session, cast(session, whole, DType::bfloat16));
      const ArrayPtr got = rows(*s), full = rows(*want);
      const int64_t per_byte = kind == "FP4w" ? 2 : 1, width = kind == "ID" ? 2 : 1;
      const auto part = [&](const ArrayPtr& a, int64_t first, int64_t count) {
        const auto bytes = a->bytes().subspan(static_cast<size_t>(first * width / per_byte),
                                              static_cast<size_t>(count * width / per_byte));
        return from_bytes({static_cast<int64_t>(bytes.size())}, DType::uint8, bytes);
      };
      run.expect_equal(part(got, from, n), part(full, from, n), "bytes of the fragment");
      run.expect_equal(part(got, 0, from), part(before, 0, from), "bytes before it");
      run.expect_equal(part(got, from + n, kAll - from - n), part(before, from + n, kAll - from - n),
                       "bytes after it");
      if (kind == "MX" || kind == "FP4w")
        run.expect_equal(buffer(*s, "_rowwise_scale_inv"), buffer(*want, "_rowwise_scale_inv"), "scales");
    }
}

void s94(ScenarioRun& run) {
  Session session = run.session();
  // 2.0078125 is no bf16 value: it rounds to 2, and so the scale is another.
  std::vector<float> values(static_cast<size_t>(kAll), 0.5f);
  values[0] = 2.0078125f;
  const ArrayPtr whole = f32_array({kSide, kSide}, values);
  const StoragePtr by_master = weight(session, "CS", 94), by_adam = weight(session, "CS", 94);
  ProcessGroup alone{.name = "dp", .size = 1, .rank = 0, .all_reduce_max = {}, .all_gather = {}};
  quantize_master_weights(session, {master_of(by_master, whole, 0, kAll)}, alone);
  dispatch::quantize_(session, whole, *by_adam);
  const StoragePtr rounded = quantizer_named("CS")->quantize(session, cast(session, whole, DType::bfloat16)),
                   direct = quantizer_named("CS")->quantize(session, whole);
  for (const string& name : {string("_data"), string("_scale_inv")}) {
    run.expect_equal(buffer(*by_master, name), buffer(*rounded, name), "masters: " + name);
    run.expect_equal(buffer(*by_adam, name), buffer(*direct, name), "FusedAdam: " + name);
  }
  run.expect_different(buffer(*by_master, "_scale_inv"), buffer(*by_adam, "_scale_inv"), "the two routes");
}

void s95(ScenarioRun& run) {
  const ArrayPtr whole = drawn({kSide, kSide}, DType::float32, 95);
  ProcessGroup alone{.name = "dp", .size = 1, .rank = 0, .all_reduce_max = {}, .all_gather = {}};
  {
    run.about("[CS, ID with a bad offset]");
    Session session = run.session();
    const StoragePtr cs = weight(session, "CS", 1), id = weight(session, "ID", 2);
    const ArrayPtr before = clone(buffer(*cs, "_data")), kept = clone(buffer(*id, "_hp_data"));
    MasterWeight bad = master_of(id, whole, 0, kAll);
    bad.offset = 5;
    json::Value calls = json::array();
    run.expect_error(ErrorClass::value_error, "an end beyond the parameter",
                     [&] {
                       quantize_master_weights(session, {bad, master_of(cs, whole, 0, kAll)}, alone, false,
                                               [&](json::Value v) { calls.push(std::move(v)); });
                     },
                     {"start_offset", "exceeds"});
    run.expect_different(buffer(*cs, "_data"), before, "the earlier bucket is written");
    run.expect_equal(buffer(*id, "_hp_data"), kept, "the later one is not");
    run.expect_equal(names_of_calls(calls),
                     {"compute_amax", "all_reduce", "compute_scale_and_scale_inv", "quantize"}, "kernels");
  }
  for (const auto& [kind, cleared] :
       {std::pair<string_view, bool>{"H(MX|MX)", true}, {"H(CS|CS;rwdq)", false}}) {
    run.about("[CS, " + string(kind) + "]");
    Session session = run.session();
    const StoragePtr cs = weight(session, "CS", 1), h = weight(session, kind, 2);
    const ArrayPtr before = clone(buffer(*cs, "_data"));
    run.expect_error(ErrorClass::not_implemented_error, "refused",
                     [&] {
                       quantize_master_weights(
                           session, {master_of(cs, whole, 0, kAll), master_of(h, whole, 0, kAll)}, alone);
                     },
                     {"rowwise"});
    run.expect_equal(buffer(*cs, "_data"), before, "no byte is written");
    run.expect((cs->init_value == nullptr) == cleared, "the initial value of the first");
    run.expect((h->init_value == nullptr) == cleared, "the initial value of the refused one");
  }
}

void s96(ScenarioRun& run) {
  for (const std::pair<string_view, int64_t>& row :
       {std::pair<string_view, int64_t>{"CS", 0}, {"CS", 1}, {"DS", 0}, {"DS", 1}}) {
    const string_view kind = row.first;
    const int64_t larger = row.second;
    run.about(string(kind) + ", the larger amax on rank " + std::to_string(larger));
    std::vector<float> values(static_cast<size_t>(kAll), 0.25f);
    values[static_cast<size_t>((1 - larger) * kAll / 2)] = 1;
    values[static_cast<size_t>(larger * kAll / 2)] = 8;
    const ArrayPtr whole = f32_array({kSide, kSide}, values);
    ArrayPtr parts[2], scales[2], amaxes[2];
    run_ranks(
        2, "dp",
        [&](int rank, const GroupPtr& group) {
          Session session = run.session();
          const StoragePtr s = weight(session, kind, 96);
          quantize_master_weights(session, {master_of(s, whole, rank * kAll / 2, kAll / 2)}, *group);
          parts[rank] =
              clone(slice(view(buffer(*s, "_data"), {kAll}), 0, rank * kAll / 2, (rank + 1) * kAll / 2));
          scales[rank] = clone(buffer(*s, "_scale_inv"));
          if (const auto* q = dynamic_cast<const Float8Quantizer*>(s->quantizer.get()))
            amaxes[rank] = clone(q->amax);
        },
        shared(parts, scales, amaxes));
    Session session = run.session();
    const StoragePtr want =
        quantizer_named(kind, kRowUsage)->quantize(session, cast(session, whole, DType::bfloat16));
    run.expect_equal(concatenate(std::vector<ArrayPtr>{parts[0], parts[1]}),
                     clone(view(buffer(*want, "_data"), {kAll})), "joined bytes");
    run.expect_equal(scales[0], scales[1], "one scale on both ranks");
    run.expect_equal(scales[0], buffer(*want, "_scale_inv"), "that of the whole");
    if (amaxes[0])
      run.expect_equal(f32_bits(*amaxes[0]) == f32_bits(*amaxes[1]), true, "one amax on both ranks");
  }
}

// clang-format off
const Scenario kOptimizerScenarios[] = {
    {"S-47", "FusedAdam writes back what it has",
     "quantized parameters with masters in f32", "five steps are made",
     "every buffer is a fresh quantization of the f32 master after every step", s47, {}},
    {"S-48", "Which kernel updates which parameter",
     "parameters in f32, bf16, FP8 and MXFP8, an empty group, one without a gradient", "FusedAdam steps",
     "kernels run in their order; masters of f32 parameters stay; what has no route is refused after step has advanced", s48, {}},
    {"S-49", "Fragments of a master",
     "two halves, a piece in the middle, and all of a flat master", "it is cast into a parameter of each format",
     "the fragment has the bytes that the whole tensor would have there, and nothing else moves", s49, {}},
    {"S-52", "Resumed is uninterrupted",
     "two steps, a state dict, a load into another optimizer", "two more steps are made",
     "parameters, moments and step are those of four steps in a row", s52, {}},
    {"S-92", "A delayed parameter without a master",
     "per-tensor FP8 with delayed scaling, masters off", "FusedAdam steps",
     "no byte moves and nothing is raised, as in the original", s92, {}},
    {"S-93", "A stale transpose after FusedAdam",
     "per-tensor FP8 with delayed scaling and a transpose", "FusedAdam steps",
     "rows are new, the transpose is old and still valid; the amax is raised", s93, {}},
    {"S-94", "Two roundings or one",
     "a master that is no bf16 value", "it is quantized by FusedAdam and by quantize_master_weights",
     "the first quantizes the master, the second the master rounded to bf16", s94, {}},
    {"S-95", "Refusals of quantize_master_weights",
     "batches of which one weight is refused", "they are quantized",
     "earlier buckets are written; refusals of the first pass leave initial values, those of the second clear them", s95, {}},
    {"S-96", "Halves of a weight on two ranks",
     "amax 1 on one rank and 8 on the other", "each casts its half",
     "both use the scale of the whole, and the joined bytes are its cast", s96, {}, 2},
    {"S-97", "States in f16 and FP8",
     "moments stored in f16 and FP8", "one step is made",
     "the scale is amax / 32752 or amax / 448, and zeros have the scale 0", s97, {}},
    {"S-98", "Remainders of parameters",
     "bf16 1.0 with the remainder -32768", "they are joined and split",
     "the master is 3F7F8000, and a step without change keeps the pair", s98, {}},
    {"S-128", "What no kernel takes, and NaN",
     "remainders of quantized bf16 parameters; FP8 moments of zeros", "FusedAdam steps",
     "the step raises and moves nothing; the FP8 state is NaN, as in the original", s128, {}},
};
// clang-format on

}  // namespace

std::span<const Scenario> optimizer_scenarios() { return kOptimizerScenarios; }

}  // namespace assay::training
