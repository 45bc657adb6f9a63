// Parameters that FSDP2 shards: what a shard sends, the whole tensor that is built and refreshed from it, and
// which of the original's gaps are reproduced.
#include <algorithm>

#include "training/base/data.h"
#include "training/dispatch/in_place.h"
#include "training/dispatch/shapes.h"
#include "training/formats/formats.h"
#include "training/ranks/fsdp.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using enum TrainingState;

constexpr F32Bits k64 = 0x42800000;

// Normal data with 16 at the first element of each of `n` shards: one largest magnitude for all.
ArrayPtr planted(const Dims& shape, int64_t n, uint64_t seed) {
  const ArrayPtr x = drawn(shape, DType::bfloat16, seed);
  constexpr uint16_t kSixteen = 0x4180;
  for (int64_t i = 0; i < n; ++i)
    std::ranges::copy(std::as_bytes(std::span(&kSixteen, 1)), x->bytes().begin() + i * x->count() / n * 2);
  return x;
}

ArrayPtr part(const ArrayPtr& x, int64_t i, int64_t n) {
  const int64_t rows = x->shape[0] / n;
  return clone(slice(x, 0, i * rows, (i + 1) * rows));
}

// The shards of one parameter, and the gathers of all ranks as the first one sees them.
struct Parameter {
  Session& session;
  std::vector<StoragePtr> shards;
  FsdpSent sent;
  StoragePtr whole;
  Parameter(Session& session, string_view kind, const ArrayPtr& x, int64_t n) : session(session) {
    for (int64_t i = 0; i < n; ++i) shards.push_back(quantizer_named(kind)->quantize(session, part(x, i, n)));
  }
  void refresh(const ArrayPtr& x) {
    const auto n = static_cast<int64_t>(shards.size());
    for (int64_t i = 0; i < n; ++i)
      dispatch::quantize_(session, part(x, i, n), *shards[static_cast<size_t>(i)]);
  }
  StoragePtr gather(bool reshard, TrainingState state) {
    std::vector<FsdpSent> all;
    for (const StoragePtr& s : shards)
      all.push_back(fsdp_pre_all_gather(*s, nullptr, ParamGroup{reshard, state}));
    sent = all.front();
    std::vector<ArrayPtr> gathered;
    for (size_t b = 0; b < sent.buffers.size(); ++b) {
      std::vector<ArrayPtr> parts;
      for (const FsdpSent& one : all) parts.push_back(one.buffers[b]);
      gathered.push_back(concatenate(parts));
    }
    return whole = fsdp_post_all_gather(*shards.front(), sent, gathered, DType::bfloat16, whole);
  }
};

string named(string_view kind, const Dims& shape, int64_t n) {
  return string(kind) + " " + std::to_string(shape[0]) + "x" + std::to_string(shape[1]) + " in " +
         std::to_string(n);
}

void s61(ScenarioRun& run) {
  const std::pair<Dims, int64_t> cases[] = {
      {{256, 384}, 2}, {{512, 160}, 4}, {{192, 160}, 2}, {{384, 256}, 3}};
  for (const Arch arch : {Arch::sm100, Arch::sm90})
    for (const auto& [shape, n] : cases)
      for (const string_view kind : {"DS", "CS", "MX", "BLK2", "FP4w", "ID"}) {
        if (kind == "BLK2" && shape[0] / n % 128 != 0) continue;
        Session session = run.session(arch);
        const ArrayPtr x = planted(shape, n, 61);
        Parameter p(session, kind, x, n);
        const StoragePtr whole = p.gather(false, forward);
        expect_part(run, *whole, *quantizer_named(kind)->quantize(session, x), named(kind, shape, n));
      }
  Session session = run.session();
  Parameter p(session, "MX", planted({192, 160}, 2, 61), 2);
  p.gather(false, forward);
  run.expect_equal(p.sent.buffers.at(1)->shape[0], 96, "row scales that a shard of 96 rows sends");
  run.expect_equal(p.sent.buffers.at(3)->shape[0], 3, "column scales that it sends");
}

void s62(ScenarioRun& run) {
  Session session = run.session();
  const auto pre = [&](const StoragePtr& s) {
    return fsdp_pre_all_gather(*s, nullptr, ParamGroup{false, forward});
  };
  const auto allocated = [&](string_view kind, const Dims& shape) {
    return quantizer_named(kind)->make_empty(session, shape, DType::bfloat16);
  };
  run.expect_error(ErrorClass::runtime_error, "a hybrid's blockwise shard of 192 rows",
                   [&] {
                     pre(allocated("H(BLK2|BLK2)", {192, 256}));
                   },
                   {"128"});
  run.expect_equal(pre(allocated("BLK2", {192, 256})).buffers.at(1)->shape[0], 2,
                   "scale rows that a vanilla shard of 192 rows sends unchecked");
  run.expect_error(ErrorClass::not_implemented_error, "vectors of 128",
                   [&] {
                     pre(allocated("BLK1", {256, 256}));
                   },
                   {"2D"});
  const StoragePtr swizzled = allocated("MX", {256, 256});
  dynamic_cast<MXFP8Storage&>(*swizzled).with_gemm_swizzled_scales = true;
  run.expect_error(ErrorClass::not_implemented_error, "swizzled scales", [&] { pre(swizzled); }, {"compact"});
  for (const int64_t rows : {24, 8})
    run.expect_error(ErrorClass::assertion_error, "NVFP4 of " + std::to_string(rows) + " rows",
                     [&] {
                       pre(allocated("FP4w", {rows, 256}));
                     },
                     {"multiple"});
  run.expect_error(ErrorClass::assertion_error, "columns of a 1-D NVFP4 quantizer",
                   [&] {
                     pre(allocated("FP4p", {32, 256}));
                   },
                   {"2D"});
  run.expect_error(ErrorClass::not_implemented_error, "an NVFP4 child",
                   [&] {
                     pre(allocated("H(MX|FP4p)", {256, 256}));
                   },
                   {"columnwise", "NVFP4"});
  const auto light = hybrid_named("H(MX|MX)");
  light->rowwise_quantizer->internal = true;
  run.expect_error(ErrorClass::not_implemented_error, "a light child",
                   [&] {
                     pre(light->make_empty(session, {256, 256}, DType::bfloat16));
                   },
                   {"rowwise"});
  run.expect_error(ErrorClass::runtime_error, "a buffer too few", [&] {
    const StoragePtr s = allocated("H(MX|MX)", {256, 256});
    FsdpSent sent = pre(s);
    sent.buffers.pop_back();
    fsdp_post_all_gather(*s, sent, sent.buffers, DType::bfloat16);
  });
  run.expect_error(ErrorClass::runtime_error, "no parameter group",
                   [&] {
                     fsdp_pre_all_gather(*allocated("MX", {256, 256}), nullptr, std::nullopt);
                   },
                   {"reshard_after_forward"});
}

void s63(ScenarioRun& run) {
  const Dims shape = {256, 384};
  for (const bool clears : {false, true}) {
    Session session = run.session(Arch::sm90);
    Parameter p(session, "CS", planted(shape, 2, 63), 2);
    for (uint64_t step = 0; step < 3; ++step) {
      run.about("CS, " + string(clears ? "cleared" : "never cleared") + ", iteration " +
                std::to_string(step));
      const ArrayPtr x = planted(shape, 2, 63 + step);
      p.refresh(x);
      const StoragePtr whole = p.gather(false, forward), want = quantizer_named("CS")->quantize(session, x);
      run.expect_equal(buffer(*whole, "_data"), buffer(*want, "_data"), "rows");
      run.expect(buffer(*whole, "_scale_inv") == buffer(*p.shards.front(), "_scale_inv"),
                 "the scale is the shard's very object");
      if (step == 0 || clears)
        run.expect_equal(buffer(*whole, "_transpose"), buffer(*want, "_transpose"), "transpose");
      else
        run.expect_different(buffer(*whole, "_transpose"), buffer(*want, "_transpose"),
                             "the transpose of the iteration before, still marked valid");
      if (clears) clear_columns(*whole);
    }
  }
  for (const auto& [kind, arch] : {std::pair<string_view, Arch>{"H(CS|MX)", Arch::sm90},
                                   {"H(CS|CS)", Arch::sm100},
                                   {"MX", Arch::sm100},
                                   {"BLK2", Arch::sm100},
                                   {"FP4w", Arch::sm100}}) {
    Session session = run.session(arch);
    Parameter p(session, kind, planted(shape, 2, 63), 2);
    for (uint64_t step = 0; step < 3; ++step) {
      run.about(string(kind) + ", iteration " + std::to_string(step));
      const ArrayPtr x = planted(shape, 2, 63 + step);
      p.refresh(x);
      const StoragePtr before = p.whole, whole = p.gather(false, forward);
      run.expect(step == 0 || whole == before, "the object of the first gather comes back");
      expect_part(run, *whole, *quantizer_named(kind)->quantize(session, x), "nothing is stale");
    }
  }
}

void s86(ScenarioRun& run) {
  for (const string_view kind : {"CS", "MX", "BLK2", "FP4w"})
    for (const Usages own : {kRowUsage, kBothUsages})
      for (const bool reshard : {true, false})
        for (const TrainingState state : {forward, pre_backward, post_backward, idle}) {
          Session session = run.session();
          const StoragePtr shard = quantizer_named(kind)->quantize(session, planted({256, 384}, 1, 86));
          shard->quantizer->set_usage(own.rowwise, own.columnwise);
          const FsdpSent sent = fsdp_pre_all_gather(*shard, nullptr, ParamGroup{reshard, state});
          run.about(string(kind) + ", own usages " + text(own) + (reshard ? ", resharded" : ", kept"));
          const bool backward = state == pre_backward;
          const bool by_state = reshard && kind != "FP4w";
          const Usages want = by_state ? Usages{!backward, backward} : Usages{true, own.columnwise};
          run.expect_equal(text(sent.usages), text(want), "usages of the gathered object");
          run.expect_equal(text(shard->quantizer->usages()), text(own), "usages of the shard's quantizer");
          const bool pairs = kind == "MX" && want.rowwise && want.columnwise;
          run.expect_equal(static_cast<int64_t>(sent.buffers.size()),
                           kind == "CS" ? 1
                           : pairs      ? 4
                                        : 2,
                           "buffers sent");
        }
}

void s87(ScenarioRun& run) {
  struct Case {
    string_view kind;
    Arch arch;
    std::vector<string> forward, backward;
  };
  const std::vector<string> mx_row = {"_rowwise_data", "_rowwise_scale_inv"},
                            mx_col = {"_columnwise_data", "_columnwise_scale_inv"};
  const Case cases[] = {{"CS", Arch::sm90, {"_data", "_scale_inv"}, {"_transpose", "_scale_inv"}},
                        {"CS", Arch::sm100, {"_data", "_scale_inv"}, {"_data", "_scale_inv"}},
                        {"MX", Arch::sm100, mx_row, mx_col},
                        {"BLK2", Arch::sm100, mx_row, mx_col}};
  for (const Case& c : cases) {
    Session session = run.session(c.arch);
    const ArrayPtr x = planted({256, 384}, 2, 87);
    Parameter p(session, c.kind, x, 2);
    const StoragePtr want = quantizer_named(c.kind)->quantize(session, x);
    for (const TrainingState state : {forward, pre_backward, forward}) {
      const StoragePtr whole = p.gather(true, state);
      run.about(string(c.kind) + (state == forward ? " forward" : " backward"));
      run.expect_equal(buffer_names(*whole), state == forward ? c.forward : c.backward, "buffers held");
      expect_part(run, *whole, *want, "bytes");
    }
  }
  Session session = run.session();
  Parameter p(session, "FP4w", planted({256, 384}, 2, 87), 2);
  for (const TrainingState state : {forward, pre_backward, forward})
    run.expect_equal(static_cast<int64_t>(buffer_names(*p.gather(true, state)).size()), 6,
                     "NVFP4 holds both directions throughout");
}

void s88(ScenarioRun& run) {
  const std::pair<string_view, int> cases[] = {
      {"CS", 1}, {"FP4w", 1}, {"MX", 0}, {"BLK2", 0}, {"H(CS|CS)", 2}};
  for (const auto& [kind, want] : cases) {
    Session session = run.session();
    int calls = 0;
    const auto mesh = std::make_shared<ProcessGroup>();
    mesh->name = "fsdp";
    mesh->size = 2;
    mesh->all_reduce_max = [&](std::span<F32Bits> amaxes) {
      ++calls;
      for (F32Bits& a : amaxes) a = std::max(a, k64);
    };
    const StoragePtr shard = quantizer_named(kind)->quantize(session, planted({128, 256}, 1, 88));
    fsdp_pre_all_gather(*shard, mesh, ParamGroup{});
    const ArrayPtr x = planted({128, 256}, 1, 89), largest = clone(x);
    constexpr uint16_t kPeak = 0x4280;
    std::ranges::copy(std::as_bytes(std::span(&kPeak, 1)), largest->bytes().begin());
    dispatch::quantize_(session, x, *shard);
    run.about(kind == "H(CS|CS)" ? "H(CS|CS)" : string(kind));
    run.expect_equal(calls, want, "reductions");
    const StoragePtr other = quantizer_named(kind)->quantize(session, largest);
    for (const string_view name : {"_scale_inv", "_amax_rowwise", "_amax_columnwise"})
      if (const ArrayPtr a = buffer(*shard, name)) run.expect_equal(a, buffer(*other, name), name);
    const bool hybrid = kind == "H(CS|CS)";
    if (AmaxReduction* r = shard->quantizer->amax_reduction())
      run.expect(!r->enabled && !r->group, "the tensor's quantizer learns of no group");
    run.expect((shard->amax_reduction_group != nullptr) == (want > 0 && !hybrid), "who holds the group");
  }
}

void s89(ScenarioRun& run) {
  for (const string_view kind : {"H(MX|MX)", "H(CS|CS)", "ID"}) {
    Session session = run.session();
    const ArrayPtr first = planted({128, 256}, 1, 90);
    const StoragePtr s = quantizer_named(kind)->quantize(session, clone(first)),
                     want = quantizer_named(kind)->quantize(session, clone(first));
    dispatch::set_data(session, planted({128, 256}, 1, 91), *s);
    run.expect_equal(*s, *want, string(kind) + " after its data was assigned: not a byte");
  }
  Session session = run.session();
  const StoragePtr h = quantizer_named("H(MX|MX)")->quantize(session, planted({128, 256}, 1, 90));
  for (const Dims& shape : {Dims{128, 256}, Dims{2, 64, 256}}) {
    const StoragePtr by_method = std::get<StoragePtr>(dispatch::method_view(session, h, shape)),
                     by_operation = std::get<StoragePtr>(dispatch::view(session, h, shape));
    run.expect_equal(by_method->class_name(), "HybridQuantizedTensorStorage", "the method view");
    run.expect_equal(by_operation->class_name(), "HybridQuantizedTensor", "the operation view");
    run.expect(by_operation->size() == shape, "its shape");
  }
}

void s90(ScenarioRun& run) {
  const std::optional<DType> own[] = {std::nullopt, DType::float32, DType::bfloat16};
  for (const auto& q : own)
    for (const DType parameter : {DType::float32, DType::bfloat16})
      for (const DType payload : {DType::float32, DType::bfloat16}) {
        IdentityStorage shard(zeros({4, 8}, payload));
        shard.keep(std::make_shared<IdentityQuantizer>(q));
        const DType logical = q.value_or(parameter);
        run.about("quantizer " + string(q ? name_of(*q) : "none") + ", parameter " +
                  string(name_of(parameter)) + ", payload " + string(name_of(payload)));
        const auto gather = [&] {
          const FsdpSent sent = fsdp_pre_all_gather(shard, nullptr, ParamGroup{});
          return fsdp_post_all_gather(shard, sent, sent.buffers, parameter);
        };
        if (payload != logical)
          run.expect_error(ErrorClass::runtime_error, "a payload of another dtype", gather, {"dtype"});
        else run.expect_equal(name_of(gather()->dtype), name_of(logical), "the nominal dtype");
      }
}

constexpr Scenario kFsdpScenarios[] = {
    {"S-61",
     "A gathered parameter is the whole one quantized",
     "shards of four shapes in six formats, with equal largest magnitudes",
     "every rank sends, and the concatenation is put together",
     "every buffer is that of the whole tensor quantized; padding of scales stays behind",
     s61,
     {}},
    {"S-62",
     "What no gather takes",
     "shards of odd rows, 1-D blocks, swizzled scales, NVFP4 and light children",
     "they are asked to send",
     "each is refused by its class of error; what the original lets pass, passes",
     s62,
     {}},
    {"S-63",
     "The second and third gather",
     "one parameter over three updates, columns cleared or not",
     "it is refreshed and gathered into the same object",
     "per-tensor FP8 keeps a stale transpose unless columns are cleared after use; hybrids never do",
     s63,
     {}},
    {"S-86",
     "Usages by state and resharding",
     "four formats, row and both usages, four training states",
     "the shard sends",
     "usages and buffers follow the table, and the shard's quantizer stays as it was",
     s86,
     {}},
    {"S-87",
     "Forward, backward, forward",
     "one resharded parameter",
     "it is gathered in three states",
     "it holds what each pass needs and nothing else; NVFP4 holds both directions throughout",
     s87,
     {}},
    {"S-88",
     "One scale for shards of unlike amax",
     "a shard whose group's largest magnitude is 64",
     "it is refreshed after a gather has noted the mesh",
     "per-tensor formats take the group's amax, one reduction each, a hybrid one per child; blocks take none",
     s88,
     {}},
    {"S-89",
     "Data assigned, and views",
     "Hybrid and Identity tensors",
     "plain data is assigned, and they are viewed",
     "no byte changes, as in the original; the method view gives a light storage, the operation a tensor",
     s89,
     {}},
    {"S-90",
     "The dtype of an Identity parameter",
     "quantizer, parameter and payload dtypes",
     "it is gathered",
     "it raises exactly where the payload is not the quantizer's dtype, or the parameter's where that is "
     "open",
     s90,
     {}},
};

}  // namespace

std::span<const Scenario> fsdp_scenarios() { return kFsdpScenarios; }

}  // namespace assay::training
