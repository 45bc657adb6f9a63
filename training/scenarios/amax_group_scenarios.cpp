// Amaxes of several ranks: when they are reduced, over which group, who may know of it afterwards, and which
// formats have nothing to reduce.
#include <array>

#include "training/base/data.h"
#include "training/base/ranks.h"
#include "training/formats/formats.h"
#include "training/formats/observer.h"
#include "training/formats/ops.h"
#include "training/formats/wire.h"
#include "training/modules/linear.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr int64_t kRows = 64, kIn = 96, kOut = 32;
constexpr F32Bits k1000 = 0x447A0000, k64 = 0x42800000;

// A group whose other ranks all have this amax. It gathers nothing: modules compute what this rank has.
GroupPtr others(string name, F32Bits amax, int* calls = nullptr) {
  const auto group = std::make_shared<ProcessGroup>();
  group->name = std::move(name);
  group->size = 2;
  group->all_reduce_max = [amax, calls](std::span<F32Bits> values) {
    for (F32Bits& v : values) v = std::max(v, amax);
    if (calls) ++*calls;
  };
  return group;
}

std::vector<string> trace(const Session& session, size_t from = 0) {
  std::vector<string> out;
  for (size_t i = from; i < session.collectives.size(); ++i)
    if (const Collective& c = session.collectives[i]; c.what == "all_reduce_max")
      out.push_back(c.who + ":" + c.group);
  return out;
}

LinearSettings linear(ParallelMode mode, bool sequence_parallel, bool save_original_input = false) {
  return {.name = "l",
          .in_features = kIn,
          .out_features = kOut,
          .bias = false,
          .parallel_mode = mode,
          .sequence_parallel = sequence_parallel,
          .save_original_input = save_original_input};
}
std::unique_ptr<Linear> filled(Session& session, const LinearSettings& settings) {
  auto out = std::make_unique<Linear>(session, settings);
  fill_parameters(*out, 11);
  return out;
}

const GemmRecord* last_gemm(const StepRecord& record, string_view name) {
  for (size_t i = record.gemms.size(); i-- > 0;)
    if (record.gemms[i].name == name) return &record.gemms[i];
  return nullptr;
}
// An input plane of the last GEMM of that name, "b.scale_inv" of "fprop"; null where there is none.
ArrayPtr plane_of(const StepRecord& record, string_view gemm, string_view plane) {
  const GemmRecord* g = last_gemm(record, gemm);
  const PlaneData* p = g ? find_plane(g->planes, plane) : nullptr;
  return p ? from_bytes({static_cast<int64_t>(p->bytes.size())}, DType::uint8, p->bytes) : nullptr;
}
void expect_equal_planes(ScenarioRun& run, const StepRecord& got, const StepRecord& want, string_view gemm,
                         const string& what) {
  for (const PlaneData& p : last_gemm(want, gemm)->planes)
    run.expect_equal(plane_of(got, gemm, p.plane.name), plane_of(want, gemm, p.plane.name),
                     what + ": " + p.plane.name + " of " + string(gemm));
}

ArrayPtr bytes_of_bits(F32Bits bits) {
  return from_bytes({4}, DType::uint8, std::as_bytes(std::span(&bits, 1)));
}
ArrayPtr as_bytes(const ArrayPtr& x) {
  return from_bytes({x->count() * bytes_of(x->dtype)}, DType::uint8, contiguous(x)->bytes());
}

// --- S-56 ---

struct Interleaved {
  string_view name;
  RecipePtr recipe;
  ParallelMode mode;
  bool save_original_input;
  std::vector<string> trace;
};
std::vector<Interleaved> interleavings() {
  const RecipePtr cs = make_recipe("Float8CurrentScaling"),
                  fp4 =
                      make_recipe("NVFP4BlockScaling", json::object({{"disable_stochastic_rounding", true}})),
                  hybrid = custom_recipe("hybrid_fp8_current");
  const std::vector<string> again = {"input:G1", "input:G2", "input:G2", "input:G1"},
                            once = {"input:G1", "input:G2"}, grads = {"grad_output:G2", "grad_output:G1"};
  return {
      {"current scaling, input quantized again in backward", cs, ParallelMode::column, true, again},
      {"current scaling", cs, ParallelMode::column, false, once},
      {"NVFP4, input quantized again in backward", fp4, ParallelMode::column, true, again},
      {"H(CS|CS), input quantized again in backward", hybrid, ParallelMode::column, true, again},
      {"current scaling", cs, ParallelMode::row, false, grads},
      {"NVFP4", fp4, ParallelMode::row, false, grads},
  };
}

void s56(ScenarioRun& run) {
  const ArrayPtr x = drawn({kRows, kIn}, DType::bfloat16, 1),
                 dy = gradient({kRows, kOut}, DType::bfloat16, 2);
  const GroupPtr g1 = others("G1", 0x46000000),
                 g2 = others("G2", 0x47000000);  // 2^13 and 2^15, larger than everything here
  for (const Interleaved& row : interleavings()) {
    run.about(string(row.name) + (row.mode == ParallelMode::column ? ", column parallel" : ", row parallel"));
    const auto options = [&](const GroupPtr& group) {
      StepOptions o = under(row.recipe);
      o.tp_group = group;
      return o;
    };
    const LinearSettings settings = linear(row.mode, true, row.save_original_input);
    const auto alone = [&](const GroupPtr& group, StepRecord& forward) {
      Session session = run.session();
      const auto module = filled(session, settings);
      const Forward f = module->forward(session, x, options(group));
      forward = module->record;
      f.backward(session, dy);
      return module->record;
    };
    StepRecord forward1, forward2;
    const StepRecord alone1 = alone(g1, forward1), alone2 = alone(g2, forward2);

    Session session = run.session();
    const auto module = filled(session, settings);
    const Forward first = module->forward(session, x, options(g1));
    const StepRecord of_first = module->record;
    const Forward second = module->forward(session, x, options(g2));
    const StepRecord of_second = module->record;
    second.backward(session, dy);
    const StepRecord backward2 = module->record;
    first.backward(session, dy);
    run.expect_equal(trace(session), row.trace, "reductions");
    expect_equal_planes(run, of_first, forward1, "fprop", "the first forward against one of G1 alone");
    expect_equal_planes(run, of_second, forward2, "fprop", "the second forward against one of G2 alone");
    for (const char* gemm : {"dgrad", "wgrad"}) {
      expect_equal_planes(run, backward2, alone2, gemm, "the first backward against one of G2 alone");
      expect_equal_planes(run, module->record, alone1, gemm, "the last backward against one of G1 alone");
      run.expect_equal(last_gemm(module->record, gemm)->out, last_gemm(alone1, gemm)->out,
                       string("the result of ") + gemm + " in the last backward");
    }
    const bool nvfp4 = row.recipe->nvfp4();
    const char* reduced = row.mode == ParallelMode::row ? "dgrad" : "fprop";
    const char* plane = nvfp4 ? "b.amax" : "b.scale_inv";
    run.expect_different(plane_of(alone1, reduced, plane), plane_of(alone2, reduced, plane),
                         "a scale of G1 and of G2");
    if (nvfp4) run.expect_equal(plane_of(alone1, reduced, plane), bytes_of_bits(0x46000000), "G1's amax");
  }
}

// --- S-57 ---

// "NVFP4Quantizer reduces over G1": every quantizer within that reduces or has a group.
void list_groups(const Quantizer& q, std::vector<string>& out) {
  if (const auto* h = dynamic_cast<const HybridQuantizer*>(&q)) {
    list_groups(*h->rowwise_quantizer, out);
    list_groups(*h->columnwise_quantizer, out);
    return;
  }
  const AmaxReduction* r = const_cast<Quantizer&>(q).amax_reduction();
  if (r && (r->enabled || r->group))
    out.push_back(string(q.class_name()) + (r->enabled ? " reduces over " : " holds ") +
                  (r->group ? r->group->name : "nothing"));
}
void list_groups(const Storage& s, std::vector<string>& out) {
  if (s.quantizer) list_groups(*s.quantizer, out);
  if (s.amax_reduction_group)
    out.push_back(string(s.class_name()) + " holds " + s.amax_reduction_group->name);
  const auto* h = dynamic_cast<const HybridStorage*>(&s);
  for (const StoragePtr& child : {h ? h->rowwise_storage : nullptr, h ? h->columnwise_storage : nullptr})
    if (child) list_groups(*child, out);
}
template <class T> std::vector<string> groups(const T& of) {
  std::vector<string> out;
  list_groups(of, out);
  return out;
}

void s57(ScenarioRun& run) {
  const ArrayPtr x = drawn({64, 128}, DType::bfloat16, 3), other = gradient({64, 128}, DType::bfloat16, 4);
  const GroupPtr group = others("G1", k1000);
  std::vector<std::pair<string, QuantizerPtr>> quantizers;
  for (const char* name : {"CS", "FP4p", "FP4i", "H(CS|FP4p)", "H(MX|CS)"})
    quantizers.emplace_back(name, quantizer_named(name));
  quantizers.emplace_back("H(CS|H(CS|FP4p))", std::make_shared<HybridQuantizer>(
                                                  quantizer_named("CS"), quantizer_named("H(CS|FP4p)")));
  for (const auto& [name, owner] : quantizers) {
    run.about(name);
    Session session = run.session();
    Quantizer& q = *owner;
    set_amax_reduction_group(q, group);
    const std::vector<string> before = groups(q);
    const StoragePtr made = q.quantize(session, x);
    run.expect(!trace(session).empty(), "the amax is reduced");
    run.expect_equal(groups(*made), {}, "groups that the result carries");
    run.expect_equal(groups(q), before, "groups of the caller's quantizer");
    run.expect(made->quantizer.get() != &q, "the result keeps its own quantizer");

    // What the result's own quantizer does later is this rank's business alone.
    const size_t reductions = session.collectives.size();
    made->quantizer->update_quantized(session, other, *made);
    run.expect_equal(trace(session, reductions), {}, "reductions when the result is refreshed");
    q.quantize(session, x, made);
    run.expect_equal(groups(*made), {}, "groups that a refreshed result carries");
    run.expect(!trace(session, reductions).empty(), "refreshing by the caller's quantizer reduces");

    run.expect_equal(groups(*unpickled(pickled(*made))), {}, "groups in a checkpoint");
    const QuantizerPtr serialised = exported(q);
    bool holds = false;
    for (const string& g : groups(*serialised)) holds |= g.find("G1") != string::npos;
    run.expect(!holds, "a serialised quantizer holds no group");
    run.expect_equal(groups(q), before, "groups of the quantizer that was serialised");

    const QuantizerPtr twin = q.copy();
    run.expect_equal(groups(*twin), before, "groups of a copy");
    if (q.value_fields().empty()) {
      run.expect(equal(q, q) && !equal(q, *twin), "hybrids compare by identity, whatever they hold");
      continue;
    }
    run.expect_error(ErrorClass::type_error, "hash with a live group", [&] { hash(q); }, {"G1"});
    run.expect_error(ErrorClass::type_error, "comparison with a live group", [&] { equal(q, *twin); },
                     {"G1"});
    set_amax_reduction_group(q, nullptr);
    set_amax_reduction_group(*twin, nullptr);
    run.expect(equal(q, *twin) && hash(q) == hash(*twin),
               "without groups equal values are equal, and hash alike");
  }
}

// --- S-58 ---

struct Parameterised {
  string_view quantizer;
  int64_t reductions;  // in one refresh
};
constexpr Parameterised kParameters[] = {
    {"CS", 1}, {"FP4p", 1}, {"FP4w", 1}, {"H(CS|CS)", 2}, {"H(MX|CS)", 1}};

// Rank `rank` of two's part of a buffer of the whole tensor: rows of row-major planes, columns of turned
// ones, and tensor-wide ones as they are. Padding is left out.
ArrayPtr shard_of(const ArrayPtr& whole, const string& field, const Storage& storage, int rank) {
  if (whole->count() == 1) return whole;
  const bool turned =
      field.find("_columnwise") != string::npos && dynamic_cast<const NVFP4Storage*>(&storage);
  const bool scale = field.find("scale_inv") != string::npos;
  const bool mx_columns = field.find("_columnwise") != string::npos && !turned;
  const int64_t block = !scale || (!turned && !mx_columns) ? 1 : turned ? 16 : 32;
  const int64_t each = kRows / block / (turned && !scale ? 2 : 1);
  return contiguous(slice(whole, turned ? 1 : 0, rank * each, (rank + 1) * each));
}
// Every buffer of a shard against the same part of the whole tensor.
void expect_shard(ScenarioRun& run, Storage& shard, Storage& whole, int rank, const string& what) {
  if (auto* h = dynamic_cast<HybridStorage*>(&shard)) {
    auto& w = dynamic_cast<HybridStorage&>(whole);
    expect_shard(run, *h->rowwise_storage, *w.rowwise_storage, rank, what + ": rows");
    expect_shard(run, *h->columnwise_storage, *w.columnwise_storage, rank, what + ": columns");
    return;
  }
  const std::vector<Field> got = shard.fields(), want = whole.fields();
  for (size_t i = 0; i < got.size(); ++i) {
    if (!*want[i].slot) continue;
    const ArrayPtr part = shard_of(*want[i].slot, want[i].name, whole, rank), mine = *got[i].slot;
    ArrayPtr own = mine;  // a shard's scales have padding of their own
    for (size_t d = 0; own && d < own->shape.size(); ++d)
      if (own->shape[d] > part->shape[d]) own = slice(own, d, 0, part->shape[d]);
    run.expect_equal(own ? contiguous(own) : nullptr, part, what + ": " + got[i].name);
  }
}

struct Shards {
  std::vector<StoragePtr> parts = std::vector<StoragePtr>(2);
  std::vector<std::vector<string>> trace = std::vector<std::vector<string>>(2), own = trace, callers = trace;
};
// Two ranks refresh their shards of a parameter from `master` in place; `meshed`: after FSDP2 has noted its
// group.
Shards refreshed(ScenarioRun& run, string_view quantizer, const ArrayPtr& master, bool meshed) {
  Shards out;
  run_ranks(
      2, "F",
      [&](int rank, const GroupPtr& group) {
        Session session = run.session();
        const QuantizerPtr q = quantizer_named(quantizer);
        const StoragePtr shard = q->quantize(session, drawn({kRows, kIn}, DType::bfloat16, 5));
        if (meshed) note_fsdp_group(*shard, group);
        refresh(session, slice(master, 0, rank * kRows, (rank + 1) * kRows), *shard);
        const auto at = static_cast<size_t>(rank);
        out.trace[at] = training::trace(session);
        out.own[at] = groups(*shard->quantizer);
        out.callers[at] = groups(*q);
        out.parts[at] = shard;
      },
      shared(out.parts, out.trace, out.own, out.callers));
  return out;
}

void s58(ScenarioRun& run) {
  const ArrayPtr master = concatenate(
      std::array{drawn({kRows, kIn}, DType::bfloat16, 6), gradient({kRows, kIn}, DType::bfloat16, 7)});
  for (const Parameterised& row : kParameters) {
    run.about(string(row.quantizer));
    Session session = run.session();
    const StoragePtr whole = quantizer_named(row.quantizer)->quantize(session, master);
    const Shards meshed = refreshed(run, row.quantizer, master, true),
                 apart = refreshed(run, row.quantizer, master, false);
    const bool hybrid = dynamic_cast<HybridStorage*>(whole.get()) != nullptr;
    for (size_t rank = 0; rank < 2; ++rank) {
      const string who = "rank " + std::to_string(rank);
      run.expect_equal(static_cast<int64_t>(meshed.trace[rank].size()), row.reductions, who + ": reductions");
      run.expect_equal(static_cast<int64_t>(apart.trace[rank].size()), 0,
                       who + ": reductions without a group");
      expect_shard(run, *meshed.parts[rank], *whole, static_cast<int>(rank), who);
      run.expect_equal(meshed.callers[rank], {}, who + ": groups of the caller's quantizer");
      // A hybrid keeps the group on its own quantizer; the other classes on the tensor, whose quantizer never
      // learns of it.
      run.expect_equal(static_cast<int64_t>(meshed.own[rank].size()), hybrid ? row.reductions : 0,
                       who + ": groups of the parameter's own quantizer");
      run.expect_equal(int64_t{meshed.parts[rank]->amax_reduction_group != nullptr}, int64_t{!hybrid},
                       who + ": groups of the tensor");
    }
    const auto scales = [&](const Shards& s, size_t rank) {  // of the tensor: the last buffer of one element
      ArrayPtr out;
      for (const Field& f : s.parts[rank]->fields())
        if (*f.slot && (*f.slot)->count() == 1) out = *f.slot;
      return out;
    };
    run.expect_equal(scales(meshed, 0), scales(meshed, 1), "both ranks' scale");
    run.expect_different(scales(apart, 0), scales(apart, 1), "both ranks' scale without a group");
  }
}

// --- S-59 ---

struct Rank {
  ArrayPtr input_scale, grad_scale, input_codes, grad_codes, out, wgrad;
  std::vector<string> trace;
};
void wire(Wire& w, Rank& r) {
  w(r.input_scale, r.grad_scale, r.input_codes, r.grad_codes, r.out, r.wgrad, r.trace);
}
enum class Meeting { nothing, amaxes, tensors };  // what the ranks exchange
// One step of a parallel linear on each of two ranks, the last of which has an outlier in its input and its
// gradient.
std::vector<Rank> steps(ScenarioRun& run, const RecipePtr& recipe, const LinearSettings& settings,
                        const std::vector<ArrayPtr>& x, const std::vector<ArrayPtr>& dy, Meeting meeting) {
  std::vector<Rank> out(2);
  run_ranks(
      2, "TP",
      [&](int rank, const GroupPtr& whole) {
        const auto at = static_cast<size_t>(rank);
        Session session = run.session();
        const auto module = filled(session, settings);
        const auto group = std::make_shared<ProcessGroup>(*whole);
        if (meeting == Meeting::amaxes) group->all_gather = nullptr;
        StepOptions options = under(recipe);
        if (meeting != Meeting::nothing) options.tp_group = group;
        const StepRecord& r = module->step(session, x[at], dy[at], options);
        out[at] = {plane_of(r, "fprop", "b.scale_inv"),
                   plane_of(r, "dgrad", "b.scale_inv"),
                   plane_of(r, "fprop", "b.data"),
                   plane_of(r, "dgrad", "b.data"),
                   last_gemm(r, "fprop")->out,
                   last_gemm(r, "wgrad")->out,
                   trace(session)};
      },
      shared(out));
  return out;
}

void s59(ScenarioRun& run) {
  const std::vector<ArrayPtr> x = {drawn({kRows, kIn}, DType::bfloat16, 1),
                                   gradient({kRows, kIn}, DType::bfloat16, 2)};
  const std::vector<ArrayPtr> dy = {drawn({kRows, kOut}, DType::bfloat16, 3),
                                    gradient({kRows, kOut}, DType::bfloat16, 4)};
  const std::vector<ArrayPtr> both_dy = {gradient({2 * kRows, kOut}, DType::bfloat16, 5),
                                         gradient({2 * kRows, kOut}, DType::bfloat16, 6)};
  for (const auto& [name, recipe, grads] :
       {std::tuple{"current scaling", make_recipe("Float8CurrentScaling"), Encoding::e5m2},
        {"H(CS|CS)", RecipePtr(custom_recipe("hybrid_fp8_current")), Encoding::e5m2}})
    for (const ParallelMode mode : {ParallelMode::column, ParallelMode::row})
      for (const bool sequence : {true, false}) {
        const bool column = mode == ParallelMode::column;
        run.about(string(name) + (column ? ", column parallel" : ", row parallel") +
                  (sequence ? ", sequence parallel" : ""));
        const std::vector<Rank> shared = steps(run, recipe, linear(mode, sequence), x, dy, Meeting::amaxes),
                                apart = steps(run, recipe, linear(mode, sequence), x, dy, Meeting::nothing);
        for (size_t rank = 0; rank < 2; ++rank) {
          run.expect_equal(static_cast<int64_t>(apart[rank].trace.size()), 0, "reductions without a group");
          run.expect(!sequence == shared[rank].trace.empty(),
                     "only sequence parallel tensors are shards of one tensor");
          for (const string& r : shared[rank].trace)
            run.expect_equal(r, column ? "input:TP" : "grad_output:TP", "what is reduced");
        }
        const auto scale = [&](const Rank& r, bool input) { return input ? r.input_scale : r.grad_scale; };
        for (const bool input : {true, false}) {
          const string which = input ? "input" : "grad_output";
          run.expect_different(scale(apart[0], input), scale(apart[1], input),
                               which + ": scales without a group");
          if (!sequence || input != column) {
            for (size_t rank = 0; rank < 2; ++rank)
              run.expect_equal(scale(shared[rank], input), scale(apart[rank], input),
                               which + ": a scale that is not shared");
            continue;
          }
          Session session = run.session();
          const auto q = std::make_shared<Float8CurrentScalingQuantizer>(input ? Encoding::e4m3 : grads);
          const StoragePtr whole = q->quantize(session, concatenate(input ? x : dy));
          const auto& fp8 = dynamic_cast<const Float8Storage&>(*whole);
          for (size_t rank = 0; rank < 2; ++rank) {
            run.expect_equal(scale(shared[rank], input), as_bytes(fp8.scale_inv),
                             which + ": a rank's scale against the whole tensor's");
            const auto r = static_cast<int64_t>(rank);
            run.expect_equal(input ? shared[rank].input_codes : shared[rank].grad_codes,
                             as_bytes(slice(fp8.data, 0, r * kRows, (r + 1) * kRows)),
                             which + ": a rank's codes against the whole tensor's");
          }
        }
        if (!column || !sequence) continue;
        // With shards gathered each rank computes what one process computes of the whole input.
        const std::vector<Rank> gathered =
            steps(run, recipe, linear(mode, true), x, both_dy, Meeting::tensors);
        for (size_t rank = 0; rank < 2; ++rank) {
          Session session = run.session();
          const auto module = filled(session, linear(ParallelMode::none, false));
          const StepRecord& r = module->step(session, concatenate(x), both_dy[rank], under(recipe));
          run.expect_equal(gathered[rank].out, last_gemm(r, "fprop")->out, "the output of gathered shards");
          run.expect_equal(gathered[rank].wgrad, last_gemm(r, "wgrad")->out, "the wgrad of gathered shards");
        }
      }
}

// --- S-60 ---

void s60(ScenarioRun& run) {
  const ArrayPtr x = drawn({kRows, kIn}, DType::bfloat16, 1),
                 dy = gradient({kRows, kOut}, DType::bfloat16, 2);
  int calls = 0;
  const GroupPtr group = others("G1", k64, &calls);
  const auto step = [&](const RecipePtr& recipe, bool with_group, ParallelMode mode, StepRecord& record) {
    Session session = run.session();
    const auto module = filled(session, linear(mode, true));
    StepOptions options = under(recipe);
    if (with_group) options.tp_group = group;
    record = module->step(session, x, dy, options);
  };
  for (const auto& [name, recipe] : {std::pair{"MXFP8", make_recipe("MXFP8BlockScaling")},
                                     {"blocks", make_recipe("Float8BlockScaling")},
                                     {"Identity", RecipePtr(custom_recipe("high_precision_factory"))},
                                     {"H(MX|MX)", RecipePtr(custom_recipe("hybrid_mxfp8"))}})
    for (const ParallelMode mode : {ParallelMode::column, ParallelMode::row}) {
      run.about(string(name) + (mode == ParallelMode::column ? ", column parallel" : ", row parallel"));
      StepRecord with, without;
      step(recipe, true, mode, with);
      step(recipe, false, mode, without);
      run.expect_equal(calls, 0, "reductions");
      run.expect_equal(static_cast<int64_t>(with.collectives.size()), 0, "collectives");
      for (size_t i = 0; i < without.outputs.size(); ++i)
        run.expect_equal(with.outputs[i].array, without.outputs[i].array, without.outputs[i].name);
    }
  for (const char* name : {"MX", "BLK1", "BLK2", "ID"}) {
    run.about(name);
    const QuantizerPtr q = quantizer_named(name);
    set_amax_reduction_group(*q, group);
    run.expect(q->amax_reduction() == nullptr, "it has no group to set");
  }

  run.about("row-scaled NVFP4");
  const QuantizerPtr rows = quantizer_named("FP4rs");
  Session session = run.session();
  set_amax_reduction_group(*rows, group);
  run.expect_error(ErrorClass::runtime_error, "quantize with a group", [&] { rows->quantize(session, x); },
                   {"row_scaled_nvfp4", "amax reduction"});
  set_amax_reduction_group(*rows, nullptr);
  run.expect_equal(text(rows->quantize(session, x)->present()), "TT", "directions of a result without one");
  const QuantizerPtr observed = std::make_shared<ObserverQuantizer>(rows, [](const Observation&) {});
  set_amax_reduction_group(*observed, group);
  run.expect_error(ErrorClass::runtime_error, "quantize under an observer",
                   [&] { observed->quantize(session, x); }, {"amax reduction"});

  const RecipePtr hybrid = custom_recipe("nvfp4_row_scaled_fwd_high_precision_bwd_factory");
  StepRecord record;
  run.about("a hybrid with row-scaled NVFP4 in its rows");
  run.expect_error(ErrorClass::runtime_error, "column parallel with a group",
                   [&] { step(hybrid, true, ParallelMode::column, record); }, {"amax reduction"});
  step(hybrid, false, ParallelMode::column, record);
  run.expect_equal(static_cast<int64_t>(record.outputs.size()), 3, "outputs without a group");
  step(hybrid, true, ParallelMode::row, record);
  run.expect_equal(static_cast<int64_t>(record.outputs.size()), 3,
                   "outputs, row parallel: its gradients have nothing to reduce");
  run.expect_equal(calls, 0, "reductions");
}

constexpr Scenario kAmaxGroupScenarios[] = {
    {"S-56",
     "Two groups, one module",
     "a linear that is used with two tensor parallel groups",
     "both forwards run, then their backwards in reverse order",
     "every quantize reduces over its own group, and each backward reads what one with its group alone reads",
     s56,
     {}},
    {"S-57",
     "A result knows no group",
     "a quantizer that reduces amaxes over a group",
     "it quantizes, is copied, serialised, compared and hashed",
     "no result and no checkpoint carries the group, the quantizer keeps it, and comparing or hashing it "
     "raises",
     s57,
     {}},
    {"S-58",
     "FSDP2 refreshes shards in place",
     "two shards of unlike amax",
     "a gather has noted the group, and new masters are written",
     "both shards are those of the whole tensor quantized; quantizers stay as they were, but for a hybrid's "
     "own",
     s58,
     {},
     2},
    {"S-59",
     "An outlier on the last rank",
     "shards of which the last holds 1000",
     "a linear runs on two ranks, with and without a group",
     "sequence parallel tensors share one scale, that of the whole tensor; without the reduction they do not",
     s59,
     {},
     2},
    {"S-60",
     "Formats without a shared amax",
     "MXFP8, blockwise FP8, Identity and row-scaled NVFP4",
     "a group is set",
     "blocks and Identity never reduce and keep their bytes; row-scaled NVFP4 raises, within a hybrid too",
     s60,
     {}},
};

}  // namespace

std::span<const Scenario> amax_group_scenarios() { return kAmaxGroupScenarios; }

}  // namespace assay::training
