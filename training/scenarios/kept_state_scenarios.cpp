// What a step keeps beside its parameters: saved tensors on the CPU, stashes of a recompute, flags, pickled
// quantizers, histories of several groups.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "training/base/data.h"
#include "training/dispatch/in_place.h"
#include "training/dispatch/shapes.h"
#include "training/formats/formats.h"
#include "training/recipes/delayed.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/tables.h"
#include "training/state/offload.h"
#include "training/state/recompute.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

constexpr F32Bits kOne = 0x3F800000, kHalf = 0x3F000000, kTwo = 0x40000000;

constexpr string_view kKinds[] = {"DS",   "CS", "MX",       "BLK1",         "BLK2",     "FP4p",
                                  "FP4w", "ID", "H(MX|MX)", "H(BLK2|BLK2)", "H(ID|MX)", "H(CS|CS)"};

void s51(ScenarioRun& run) {
  for (const string_view kind : kKinds)
    for (const int64_t size : {512, 256})
      for (const Usages present : {kBothUsages, kRowUsage, kColumnUsage}) {
        Session session = run.session();
        const ArrayPtr x = drawn({size, size}, DType::bfloat16, 51);
        const StoragePtr original = quantizer_named(kind, present)->quantize(session, x),
                         want = quantizer_named(kind, present)->quantize(session, clone(x));
        run.about(string(kind) + " " + std::to_string(size) + " " + text(present));
        OffloadedLayer layer;
        const Pushed pushed = layer.push(session, original);
        int64_t large = 0;
        for (const string& name : buffer_names(*original))
          if (const ArrayPtr a = buffer(*original, name); a && a->count() >= kOffloadThreshold) ++large;
        if (auto* h = dynamic_cast<HybridStorage*>(original.get()))
          for (const StoragePtr& child : {h->rowwise_storage, h->columnwise_storage})
            for (const string& name : child ? buffer_names(*child) : std::vector<string>{})
              if (const ArrayPtr a = buffer(*child, name); a && a->count() >= kOffloadThreshold) ++large;
        const bool splits = size == 512;
        run.expect(std::holds_alternative<PushedParts>(pushed) == splits, "it is cut by its logical size");
        if (!dynamic_cast<HybridStorage*>(original.get()))
          run.expect_equal(static_cast<int64_t>(layer.waiting().size()), splits ? large : 0,
                           "parts that move are those of enough elements");
        layer.start_offload();
        layer.release();
        layer.start_reload();
        const StoragePtr back = std::get<StoragePtr>(layer.pop(pushed));
        run.expect_equal(*back, *want, "bytes, class and children");
        run.expect_equal(*original, *want, "the original");
        run.expect((back == original) != splits, "what was cut comes back as another object");
      }
}

// One object that is pushed twice and views of it: what is copied is one tensor.
void moved_views(ScenarioRun& run, Session& session) {
  run.about("views and duplicates");
  const ArrayPtr base = drawn({512, 1024}, DType::bfloat16, 99), turned = transpose(base, 0, 1),
                 part = slice(base, 1, 0, 768);
  OffloadedLayer layer;
  const Pushed first = layer.push(session, base), again = layer.push(session, base),
               marked = layer.push(session, turned, false, {base, true}),
               cut = layer.push(session, part, false, {base, true}),
               whole = layer.push(session, view(base, {1024, 512}), false, {base});
  run.expect_equal(static_cast<int64_t>(layer.waiting().size()), 5, "what waits");
  layer.start_offload();
  run.expect_equal(static_cast<int64_t>(layer.waiting().size()), 1, "what is copied");
  layer.release();
  layer.start_reload();
  const auto back = [&](const Pushed& p) { return std::get<ArrayPtr>(layer.pop(p)); };
  run.expect(back(first) == back(again), "one object comes back for both");
  run.expect_equal(back(marked), turned, "the turned view");
  run.expect_equal(back(cut), part, "the view of a part");
  run.expect(back(cut)->strides == part->strides && share_memory(*back(cut), *back(first)),
             "with its strides, in the base's memory");
  run.expect_equal(back(whole)->shape == Dims{1024, 512}, true, "the view of as many elements");
  OffloadedLayer wrong;
  wrong.push(session, base, false, {nullptr, true});
  run.expect_error(ErrorClass::runtime_error, "a mark without a base", [&] { wrong.start_offload(); },
                   {"view"});
  OffloadedLayer gaps;
  gaps.push(session, part, false, {turned, true});
  run.expect_error(ErrorClass::value_error, "a base with gaps", [&] { gaps.start_offload(); },
                   {"contiguous"});
}

// Buffers on the CPU that are used again look at the shape alone.
void kept_buffers(ScenarioRun& run, Session& session) {
  run.about("kept buffers");
  const auto round = [&](OffloadedLayer& layer, const ArrayPtr& x) {
    const Pushed p = layer.push(session, x);
    layer.start_offload();
    layer.release();
    layer.start_reload();
    const ArrayPtr back = std::get<ArrayPtr>(layer.pop(p));
    layer.release_all();
    return back;
  };
  const ArrayPtr x = drawn({512, 512}, DType::bfloat16, 98), wide = drawn({512, 512}, DType::float32, 97);
  OffloadedLayer kept(true);
  run.expect_equal(round(kept, x), x, "the first time");
  run.expect_equal(round(kept, wide), cast(session, wide, DType::bfloat16), "another dtype is converted");
  run.expect_error(ErrorClass::value_error, "another shape",
                   [&] {
                     round(kept, zeros({256, 1024}, DType::bfloat16));
                   },
                   {"shape"});
  OffloadedLayer anew;
  round(anew, x);
  run.expect_equal(round(anew, wide), wide, "buffers that are not kept");
}

void s99(ScenarioRun& run) {
  for (const auto& [layers, n] : {std::pair<int64_t, int64_t>{3, 1}, {5, 2}, {8, 3}}) {
    const OffloadSchedule s = offload_schedule(layers, n);
    run.about(std::to_string(n) + " of " + std::to_string(layers));
    run.expect_equal(static_cast<int64_t>(s.offloaded.size()), n, "layers that move");
    for (int64_t i = 0; i < n; ++i) {
      run.expect(s.released_at_forward_of.at(layers - n + i) == std::vector{i},
                 "released so that n wait at a time");
      run.expect(s.reload_starts_at_backward_of.at(layers - 1 - n + i) == std::vector{i},
                 "back one layer early");
    }
  }
  Session session = run.session();
  const ArrayPtr x = zeros({512, 512}, DType::bfloat16);
  using Step = void (*)(OffloadedLayer&);
  const Step start = [](OffloadedLayer&l) { l.start_offload(); },
             release = [](OffloadedLayer&l) { l.release(); },
             reload = [](OffloadedLayer&l) { l.start_reload(); };
  const std::pair<string_view, std::vector<Step>> illegal[] = {
      {"reload first", {reload}},
      {"release first", {release}},
      {"started twice", {start, start}},
      {"reload before release", {start, reload}},
      {"reload twice", {start, release, reload, reload}}};
  for (const auto& [what, steps] : illegal)
    run.expect_error(ErrorClass::runtime_error, what,
                     [&, &steps = steps] {
                       OffloadedLayer layer;
                       layer.push(session, x);
                       for (const Step s : steps) s(layer);
                     },
                     {"Invalid state"});
  run.expect_error(ErrorClass::runtime_error, "push after the start",
                   [&] {
                     OffloadedLayer layer;
                     layer.start_offload();
                     layer.push(session, x);
                   },
                   {"Invalid state"});
  run.expect_error(ErrorClass::runtime_error, "pop before the reload",
                   [&] {
                     OffloadedLayer layer;
                     const Pushed p = layer.push(session, x);
                     layer.start_offload();
                     layer.pop(p);
                   },
                   {"Invalid state"});
  OffloadContext context;
  context.enabled = context.debug = true;
  context.model_layers = 3;
  run.expect_error(ErrorClass::runtime_error, "debug mode", [&] { context.checked(session); }, {"debug"});
  moved_views(run, session);
  kept_buffers(run, session);
}

void s103(ScenarioRun& run) {
  for (const string_view kind : kKinds)
    for (const F32Bits flag : {kOne, kHalf, kTwo})
      for (const bool quantized : {false, true}) {
        Session session = run.session();
        const ArrayPtr before = drawn({128, 256}, DType::bfloat16, 103),
                       x = drawn({128, 256}, DType::bfloat16, 104);
        const StoragePtr dst = quantizer_named(kind)->quantize(session, clone(before)),
                         old = quantizer_named(kind)->quantize(session, clone(before));
        const Piece source = quantized ? Piece(quantizer_named("MX")->quantize(session, x)) : Piece(x);
        dispatch::quantize_(session, source, *dst, flag);
        const bool forgets =
            quantized && (kind == "MX" || kind.starts_with("BLK") || kind.starts_with("FP4"));
        const bool identity = kind == "ID", half_identity = kind == "H(ID|MX)";
        run.about(string(kind) + (quantized ? ", quantized source" : ", plain source") + ", flag " +
                  (flag == kOne    ? "1"
                   : flag == kHalf ? "0.5"
                                   : "2"));
        if ((flag == kOne && !forgets) || identity) {
          run.expect_equal(*dst, *old, "nothing changes");
        } else if (half_identity) {
          auto &now = dynamic_cast<HybridStorage&>(*dst), &then = dynamic_cast<HybridStorage&>(*old);
          run.expect_equal(*now.rowwise_storage, *then.rowwise_storage,
                           "Identity takes any flag but zero for set");
          run.expect_different(buffer(*now.columnwise_storage, "_columnwise_data"),
                               buffer(*then.columnwise_storage, "_columnwise_data"), "the kernel does not");
        } else {
          const auto data = [](Storage& s) {
            auto* h = dynamic_cast<HybridStorage*>(&s);
            return *(h && h->rowwise_storage ? *h->rowwise_storage : s).fields().front().slot;
          };
          run.expect_different(data(*dst), data(*old), "the data");
        }
      }
}

void s104(ScenarioRun& run) {
  for (const string_view kind :
       {"CS", "DS", "MX", "FP4p", "FP4w", "H(CS|CS)", "H(MX|MX)", "H(MX|FP4p)", "ID"}) {
    Session session = run.session();
    const StoragePtr s = quantizer_named(kind)->quantize(session, drawn({128, 256}, DType::bfloat16, 104));
    const auto group = std::make_shared<ProcessGroup>();
    group->name = "g";
    set_amax_reduction_group(*s->quantizer, group);
    const StoragePtr back = unpickled(pickled(*s));
    run.about(string(kind));
    const bool fp8 = kind == "CS" || kind == "DS";
    run.expect((back->quantizer == nullptr) == fp8, "per-tensor FP8 alone comes back without a quantizer");
    if (fp8) {
      run.expect_error(ErrorClass::value_error, "quantized anew after a load", [&] {
        dispatch::quantize_(session, drawn({128, 256}, DType::bfloat16, 105), *back);
      });
      continue;
    }
    auto* h = dynamic_cast<HybridQuantizer*>(back->quantizer.get());
    const AmaxReduction* r = back->quantizer->amax_reduction();
    run.expect(h ? !h->amax_reduction_group() : !r || !r->group, "no group survives");
    const bool reduces = kind.find("CS") != kind.npos || kind.find("FP4") != kind.npos;
    run.expect((h ? h->with_amax_reduction() : r && r->enabled) == reduces,
               "the switch survives without its group");
  }
}

DelayedStatePtr delayed_state(Session& session, size_t slots, int length = 4) {
  return RecipeState::create(session,
                             make_recipe("DelayedScaling", json::object({{"amax_history_len", length}})),
                             Mode::forward, slots)
      ->delayed();
}
void fill(const ArrayPtr& a, float value) {
  const std::vector<float> all(static_cast<size_t>(a->count()), value);
  std::ranges::copy(std::as_bytes(std::span(all)), a->bytes().begin());
}
float first(const ArrayPtr& a) {
  float out;
  std::memcpy(&out, a->data(), sizeof out);
  return out;
}

void s110(ScenarioRun& run) {
  Session session = run.session();
  const DelayedStatePtr s = delayed_state(session, 3);
  RecomputeStash stash;
  const auto expect_scale = [&](float want, string_view what) {
    run.expect_equal(static_cast<int64_t>(first(s->scale)), static_cast<int64_t>(want), what);
  };
  for (const float scale : {1.0f, 2.0f}) {  // the forwards of two microbatches
    fill(s->scale, scale);
    fill(s->amax_history, 10 * scale);
    stash.copy(s);
  }
  fill(s->scale, 3);
  fill(s->amax_history, 30);
  for (const float scale : {1.0f, 2.0f}) {
    stash.get(s);
    expect_scale(scale, "each recompute has the scale of its own forward, the oldest first");
    run.expect_equal(static_cast<int64_t>(first(s->amax_history)), static_cast<int64_t>(10 * scale),
                     "its history");
    fill(s->amax_history, 99);  // amaxes that the recompute measures
    stash.restore(s);
    expect_scale(3, "the live scale afterwards");
    run.expect_equal(static_cast<int64_t>(first(s->amax_history)), 30, "measured amaxes are lost");
  }
}

template <class E> bool throws(const std::function<void()>& work) {
  try {
    work();
  } catch (const E&) {
    return true;
  }
  return false;
}

void s111(ScenarioRun& run) {
  Session session = run.session();
  const DelayedStatePtr s = delayed_state(session, 3);
  run.expect(throws<std::out_of_range>([&] { RecomputeStash().get(s); }), "a module that never stashed");
  run.expect(throws<std::out_of_range>([&] { RecomputeStash().restore(s); }), "restored before it was lent");
  run.expect(throws<std::underflow_error>([&] {
               RecomputeStash stash;
               stash.copy(s), stash.get(s), stash.get(s);
             }),
             "one recompute too many");
  run.expect(throws<std::underflow_error>([&] { RecomputePhase().enter(true, true, false); }),
             "a recompute without a first forward");
  RecomputeStash stash;
  stash.copy(nullptr), stash.get(nullptr), stash.restore(nullptr);
  run.expect_equal(static_cast<int64_t>(stash.modules()), 0, "recipes without delayed scaling keep nothing");
}

void s112(ScenarioRun& run) {
  RecomputePhase p;
  p.enter(true, false, true);
  run.expect(p.enabled(true) && !p.enabled(false), "in a region, while quantization is on");
  p.enter(true, false, false);
  p.leave();
  run.expect(!p.in_region(), "an inner region that closes ends the outer one too");
  run.expect_equal(static_cast<int64_t>(p.queue().size()), 2, "a flag for each first forward");
  run.expect(p.enter(true, true, false), "the first recompute takes the oldest flag");
  run.expect(!p.enter(true, true, true), "the second the next");
}

// Two process groups with unlike amaxes: each state takes the maximum of its own group.
void s129(ScenarioRun& run) {
  Session session = run.session();
  const auto group_of = [](string name, F32Bits amax) {
    const auto g = std::make_shared<ProcessGroup>();
    g->name = std::move(name);
    g->size = 2;
    g->all_reduce_max = [amax](std::span<F32Bits> values) {
      for (F32Bits& v : values) v = std::max(v, amax);
    };
    return g;
  };
  constexpr F32Bits kEight = 0x41000000, kHundred = 0x42C80000;
  const DelayedStatePtr a = delayed_state(session, 2, 1), b = delayed_state(session, 2, 1);
  fill(a->amax_history, 2);
  fill(b->amax_history, 4);
  AmaxBuffers buffers;
  buffers.add(a, group_of("first", kEight));
  buffers.add(b, group_of("second", kHundred));
  buffers.reduce_and_update(session, true);
  for (const auto& [state, amax, what] :
       {std::tuple{a, 8.0f, "the first group"}, {b, 100.0f, "the second group"}}) {
    const DelayedStatePtr alone = delayed_state(session, 2, 1);
    fill(alone->amax_history, amax);
    update_amax_and_scale(session, *alone->amax_history, *alone->scale, alone->dtype, alone->settings());
    run.expect_equal(state->scale, alone->scale, what);
  }
}

// Pieces by strides, of unlike numbers of rows and columns.
void s130(ScenarioRun& run) {
  constexpr int64_t kRows = 96, kCols = 160;
  for (const Arch arch : {Arch::sm90, Arch::sm100}) {
    Session session = run.session(arch);
    const StoragePtr whole =
        quantizer_named("CS")->quantize(session, drawn({kRows, kCols}, DType::bfloat16, 130));
    const StoragePtr transpose_alone = whole->make_like();
    if (arch == Arch::sm90) dynamic_cast<Float8Storage&>(*transpose_alone).data = nullptr;
    for (const StoragePtr& operand : {whole, transpose_alone})
      for (const auto& [start, rows] : {std::pair<int64_t, int64_t>{0, 32}, {32, 64}, {80, 16}}) {
        run.about(string(operand == whole ? "both planes" : "a transpose alone") + ", rows " +
                  std::to_string(start) + " to " + std::to_string(start + rows));
        const Piece p = as_strided(session, *operand, {rows, kCols}, {kCols, 1}, start * kCols);
        const StoragePtr* piece = std::get_if<StoragePtr>(&p);
        if (!run.expect(piece != nullptr, "whole rows stay quantized")) continue;
        run.expect((*piece)->size() == Dims{rows, kCols}, "its shape");
        run.expect_equal((*piece)->dequantize(session),
                         contiguous(slice(whole->dequantize(session), 0, start, start + rows)), "its values");
        if (const ArrayPtr t = buffer(**piece, "_transpose"))
          run.expect_equal(contiguous(t),
                           contiguous(slice(buffer(*whole, "_transpose"), 1, start, start + rows)),
                           "its transpose");
      }
  }
}

constexpr Scenario kKeptStateScenarios[] = {
    {"S-51",
     "Saved tensors on the CPU",
     "twelve formats of two sizes, in either direction and both",
     "they are pushed, offloaded, reloaded and popped",
     "large planes move, scales stay, and every byte is as before",
     s51,
     {}},
    {"S-99",
     "Which layer moves when",
     "three models, and illegal orders",
     "layers are scheduled and driven",
     "layers are released and reloaded as scheduled; any other order is an invalid state",
     s99,
     {}},
    {"S-103",
     "A flag, and a quantized source",
     "twelve formats, flags of 1, 0.5 and 2",
     "they are quantized in place",
     "1 changes nothing but where a quantized source makes a format of blocks forget the flag",
     s103,
     {}},
    {"S-104",
     "A checkpoint without its group",
     "tensors whose quantizers reduce over a group",
     "they are stored and loaded",
     "no group comes back, but the switch does; per-tensor FP8 has no quantizer and cannot be quantized anew",
     s104,
     {}},
    {"S-110",
     "Two microbatches recomputed",
     "delayed scaling whose scale changed twice",
     "two forwards are stashed and recomputed",
     "each recompute has its own forward's scale, and leaves no trace",
     s110,
     {}},
    {"S-111",
     "Stashes that are not there",
     "modules that never stashed, or not often enough",
     "they are recomputed and restored",
     "each case raises; recipes without a state keep nothing",
     s111,
     {}},
    {"S-112",
     "Regions within regions",
     "a region within a region",
     "the inner one closes",
     "the outer one is forgotten too, as in the original; first flags leave as they came",
     s112,
     {}},
    {"S-129",
     "Delayed scaling over two groups",
     "two modules of two process groups with unlike amaxes",
     "the groups reduce at the end of a step",
     "each scale is that of its own group's amax",
     s129,
     {}},
    {"S-130",
     "Pieces by strides",
     "per-tensor FP8 of 96 x 160, both planes and a transpose alone",
     "whole rows are taken by their strides",
     "they stay quantized, with the rows' bytes in both planes",
     s130,
     {}},
};

}  // namespace

std::span<const Scenario> kept_state_scenarios() { return kKeptStateScenarios; }

}  // namespace assay::training
