// Attention's core: the recipes that it works by, the quantizers that it reads, how Q, K and V are packed,
// who casts what around the kernels, and the casts of the emulation.
#include <algorithm>
#include <bit>
#include <cstring>

#include "training/attention/emulation.h"
#include "training/attention/fused_flow.h"
#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/formats/formats.h"
#include "training/modules/attention.h"
#include "training/recipes/delayed.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

RecipePtr attention_recipe(string_view class_name, json::Value fields = json::object()) {
  fields.set("fp8_dpa", true);
  return make_recipe(class_name, fields);
}

DotProductAttention core_under(Session& session, const RecipePtr& recipe, AttentionSwitches switches = {}) {
  DotProductAttention core(session, "core");
  core.switches = std::move(switches);
  core.init_fp8_metadata(session, {recipe});
  return core;
}

// "CS:HYBRID DS:E4M3".
string recipes_text(const std::vector<RecipePtr>& all) {
  string out;
  for (const RecipePtr& r : all)
    out += (out.empty() ? "" : " ") + string(r->class_name()) + ":" + string(name_of(r->fp8_format));
  return out;
}

// "forward QKV O S, backward dQKV dO dP" by class; none for a slot that the core drops.
string core_text(const AttentionQuantizers& q) {
  string out;
  for (const AttentionSlot& slot : attention_slots()) {
    const QuantizerPtr& p = q.*slot.member;
    out += (out.empty() ? "" : " ") + string(p ? p->class_name() : "none");
  }
  return out;
}

string history_text(const RecipeStatePtr& state) {
  const DelayedStatePtr d = state->delayed();
  return d ? std::to_string(d->amax_history->shape[0]) + "x" + std::to_string(d->amax_history->shape[1])
           : "none";
}

// ---- S-114

struct LocalRow {
  string_view recipe, switched, format, recipes, inner, outer, forward, backward;
};
constexpr string_view kDs = "Float8Quantizer", kCs = "Float8CurrentScalingQuantizer", kMx = "MXFP8Quantizer";
constexpr LocalRow kLocalRows[] = {
    {"DelayedScaling", "", "HYBRID", "DelayedScaling:HYBRID", kDs, kDs, "16x9", "16x6"},
    {"Float8CurrentScaling", "", "HYBRID", "Float8CurrentScaling:HYBRID DelayedScaling:HYBRID", kDs, kCs,
     "1x3", "1x2"},
    {"MXFP8BlockScaling", "", "E4M3", "MXFP8BlockScaling:E4M3", "none", kMx, "none", "none"},
    {"Float8CurrentScaling", "DelayedScaling", "E4M3", "DelayedScaling:E4M3", kDs, kDs, "1x9", "1x6"},
    {"MXFP8BlockScaling", "DelayedScaling", "E4M3", "DelayedScaling:E4M3", kDs, kDs, "1x9", "1x6"},
    {"NVFP4BlockScaling", "DelayedScaling", "E4M3", "DelayedScaling:HYBRID", kDs, kDs, "1x9", "1x6"},
    {"DelayedScaling", "Float8CurrentScaling", "HYBRID", "Float8CurrentScaling:HYBRID DelayedScaling:HYBRID",
     kDs, kCs, "16x3", "16x2"},
    {"MXFP8BlockScaling", "Float8CurrentScaling", "E4M3", "Float8CurrentScaling:E4M3 DelayedScaling:E4M3",
     kDs, kCs, "1x3", "1x2"},
    {"NVFP4BlockScaling", "Float8CurrentScaling", "E4M3", "Float8CurrentScaling:HYBRID DelayedScaling:HYBRID",
     kDs, kCs, "1x3", "1x2"},
    {"DelayedScaling", "MXFP8BlockScaling", "HYBRID", "MXFP8BlockScaling:HYBRID", "none", kMx, "none",
     "none"},
    {"NVFP4BlockScaling", "MXFP8BlockScaling", "E4M3", "MXFP8BlockScaling:HYBRID", "none", kMx, "none",
     "none"},
    {"Float8CurrentScaling", "something else", "HYBRID", "Float8CurrentScaling:HYBRID", kCs, kCs, "none",
     "none"},
};

void s114(ScenarioRun& run) {
  for (const LocalRow& row : kLocalRows) {
    Session session = run.session();
    run.about(string(row.recipe) + " with the switch '" + string(row.switched) + "'");
    json::Value fields = json::object({{"fp8_format", row.format}});
    if (row.recipe == "DelayedScaling") fields.set("amax_history_len", 16);
    const RecipePtr user = attention_recipe(row.recipe, fields);
    AttentionSwitches switches;
    switches.recipe = row.switched;
    DotProductAttention core = core_under(session, user, switches);
    run.expect_equal(recipes_text(core.local_recipes()), row.recipes, "local recipes");
    run.expect(core.state.recipe == core.local_recipes().back(), "the module's recipe is the last of them");
    const AttentionQuantizers q = core.quantizers();
    string want;
    for (const AttentionSlot& slot : attention_slots())
      want += (want.empty() ? "" : " ") + string(slot.inner ? row.inner : row.outer);
    run.expect_equal(core_text(q), want, "QKV, O, S, dQKV, dO, dP");
    run.expect_equal(history_text(core.state.state(Mode::forward)), row.forward, "history forward");
    run.expect_equal(history_text(core.state.state(Mode::backward)), row.backward, "history backward");
    run.expect(user->fp8_dpa, "the user's switch stays");
  }
  Session session = run.session();
  run.about("the switch 'F16'");
  const RecipePtr user = attention_recipe("Float8CurrentScaling");
  AttentionSwitches off;
  off.recipe = "F16";
  const DotProductAttention core = core_under(session, user, off);
  run.expect(core.state.recipe == user && !user->fp8_dpa && !user->fp8_mha,
             "quantized attention is turned off in the user's object");
  run.about("NVFP4 without a switch");
  DotProductAttention nvfp4 = core_under(session, attention_recipe("NVFP4BlockScaling"));
  run.expect_error(ErrorClass::type_error, "the core refuses it", [&] { nvfp4.quantizers(); }, {"slot QKV"});
  run.about("a kept state");
  DotProductAttention kept = core_under(session, attention_recipe("DelayedScaling"));
  session.warnings.clear();
  kept.init_fp8_metadata(session, {attention_recipe("Float8CurrentScaling")});
  run.expect_equal(string(kept.quantizers().qkv->class_name()), kDs,
                   "delayed scaling stays after current scaling, whose last recipe is delayed too");
  run.expect_equal(static_cast<int64_t>(session.warnings.size()), 0, "warnings");
  AttentionSwitches longer;
  DotProductAttention pair = core_under(session, attention_recipe("Float8CurrentScaling"));
  pair.switches.amax_history_len = 4;
  pair.init_fp8_metadata(session, {attention_recipe("Float8CurrentScaling")});
  run.expect_error(ErrorClass::index_error, "a pair whose history grew has the last group's quantizers alone",
                   [&] { pair.quantizers(); });
}

// ---- S-115

void s115(ScenarioRun& run) {
  constexpr string_view kKinds[] = {"DS", "CS", "MX", "BLK1", "FP4p", "ID", "H(CS|CS)", ""};
  for (const string_view base : {"CS", "DS", "MX"})
    for (const AttentionSlot& replaced : attention_slots())
      for (const string_view kind : kKinds) {
        run.about(string(base) + " with " + string(kind.empty() ? "nothing" : kind) + " in slot " +
                  string(replaced.tensor));
        std::vector<QuantizerPtr> forward(9), backward(6);
        for (QuantizerPtr& q : forward) q = quantizer_named(base);
        for (QuantizerPtr& q : backward) q = quantizer_named(base);
        QuantizerPtr& one = (replaced.mode == Mode::forward ? forward : backward)[replaced.slot];
        one = kind.empty() ? nullptr : quantizer_named(kind);
        const bool mxfp8 = (replaced.tensor == "QKV" ? kind : base) == "MX";
        const bool taken = kind == "DS" || kind == "CS" || kind == "MX" || (replaced.inner && mxfp8);
        const auto read = [&] { return attention_quantizers(forward, backward, "core"); };
        if (kind.empty() || !taken) {
          run.expect_error(kind.empty() ? ErrorClass::attribute_error : ErrorClass::type_error, "refused",
                           [&] { read(); });
          continue;
        }
        const AttentionQuantizers q = read();
        run.expect_equal(text(q.qkv->usages()), mxfp8 ? "TT" : "TF", "usages of QKV");
        run.expect(mxfp8 ? !q.s && !q.dp : q.s->internal && q.dp->internal, "S and dP stay within the core");
        run.expect(q.qkv->optimize_for_gemm == mxfp8 && q.do_->optimize_for_gemm == mxfp8,
                   "QKV and dO have scales as GEMMs read them under MXFP8 alone");
      }
}

// ---- packing

constexpr int64_t kB = 2, kS = 128, kH = 2, kD = 64;

PlainQkv plain_sbhd(int64_t kv_heads = kH) {
  const auto one = [](int64_t heads, uint64_t seed) {
    return drawn({kS, kB, heads, kD}, DType::bfloat16, seed);
  };
  return {"sbhd_sbhd_sbhd", {one(kH, 1), one(kv_heads, 2), one(kv_heads, 3)}};
}
ArrayPtr times(const ArrayPtr& x, int exponent) {  // exact: an exponent moved
  const ArrayPtr out = clone(x);
  const std::span<std::byte> bytes = out->bytes();
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, &bytes[i], sizeof bits);
    if (bits & 0x7F80) bits = static_cast<uint16_t>(bits + (exponent << 7));
    std::memcpy(&bytes[i], &bits, sizeof bits);
  }
  return out;
}
const Float8Storage& fp8(const StoragePtr& s) { return dynamic_cast<const Float8Storage&>(*s); }

void s120(ScenarioRun& run) {
  Session session = run.session();
  const PlainQkv x = plain_sbhd();
  PlainQkv large = x;
  large.buffers[2] = times(x.buffers[2], 8);
  const QuantizerPtr q = quantizer_named("CS", kRowUsage);
  const QuantizedQkv a = quantize_qkv(session, x, q, {true, false});
  const QuantizedQkv b = quantize_qkv(session, large, q, {true, false});
  run.expect(fp8(a.tensors[0]).scale_inv == fp8(a.tensors[2]).scale_inv, "Q and V have the very same scale");
  run.expect_different(fp8(b.tensors[0]).data, fp8(a.tensors[0]).data, "bytes of Q after V grew by 256");
  // The same bytes as one cast of all three in whatever layout.
  const ArrayPtr flat[] = {view(x.buffers[0], {kS * kB * kH * kD}), view(x.buffers[1], {kS * kB * kH * kD}),
                           view(x.buffers[2], {kS * kB * kH * kD})};
  const StoragePtr whole = q->quantize(session, concatenate(flat));
  for (int64_t i = 0; i < 3; ++i)
    run.expect_equal(
        view(fp8(a.tensors[static_cast<size_t>(i)]).data, {kS * kB * kH * kD}),
        contiguous(slice(fp8(whole).data, 0, i * kS * kB * kH * kD, (i + 1) * kS * kB * kH * kD)),
        "tensor " + std::to_string(i) + " of one cast");
  const ArrayPtr packed = drawn({kS, kB, 3, kH, kD}, DType::bfloat16, 4);
  const QuantizedQkv c = quantize_qkv(session, {"sb3hd", {packed}}, q, {true, false});
  run.expect(share_memory(*fp8(c.tensors[0]).data, *fp8(c.tensors[1]).data),
             "tensors of a packed layout are views of one buffer");
}

string casts_text(const std::vector<string>& casts) {
  string out;
  for (const string& c : casts) out += (out.empty() ? "" : " ") + c;
  return out.empty() ? "none" : out;
}
CastLog usages_into(std::vector<string>& casts) {
  return [&casts](const Quantizer& q, const Dims&) { casts.push_back(text(q.usages())); };
}

void s123(ScenarioRun& run) {
  Session session = run.session();
  const QuantizerPtr q = quantizer_named("MX");
  constexpr std::pair<PackedFor, string_view> kDirections[] = {
      {{true, false}, "TF TF FT"}, {{false, true}, "TT TT TF"}, {{true, true}, "TT TT TT"}};
  for (const auto& [used, want] : kDirections) {
    std::vector<string> casts;
    const QuantizedQkv fast = quantize_qkv(session, plain_sbhd(), q, used, usages_into(casts));
    run.expect_equal(casts_text(casts), want, "directions of Q, K, V");
    run.expect_equal(fast.layout, "sbhd_sbhd_sbhd", "data stay where they are");
  }
  // Rows are blocks along d either way: the same scales in the same order, and the same bytes.
  const PlainQkv x = plain_sbhd();
  const QuantizedQkv fast = quantize_qkv(session, x, q, {true, true});
  const QuantizedQkv slow = quantize_qkv(session, x, q, {true, true}, {}, true);
  run.expect_equal(buffer(*fast.tensors[0], "_rowwise_scale_inv"),
                   buffer(*slow.tensors[0], "_rowwise_scale_inv"),
                   "row scales, reordered after the cast and before");
  run.expect_equal(slow.layout, "bhsd_bhsd_bhsd", "the slow way's layout");
  for (const auto& [s, d, want] : {std::tuple{128, 128, ""},
                                   {256, 128, ""},
                                   {64, 128, "128"},
                                   {160, 64, "128"},
                                   {128, 16, "32"},
                                   {128, 32, "view"},
                                   {128, 64, "view"}}) {
    const auto one = [&, s = s, d = d] { return drawn({1, s, 1, d}, DType::bfloat16, 5); };
    const auto pack = [&] {
      quantize_qkv(session, {"bshd_bshd_bshd", {one(), one(), one()}}, q, {true, true});
    };
    const string what = "bshd with s " + std::to_string(s) + " and h d " + std::to_string(d);
    if (string_view(want).empty()) {
      pack();
      run.expect(true, what);
    } else {
      run.expect_error(string_view(want) == "view" ? ErrorClass::runtime_error : ErrorClass::assertion_error,
                       what, pack, {want});
    }
  }
  const ArrayPtr t = drawn({256, 2, 64}, DType::bfloat16, 6);
  run.expect_error(ErrorClass::assertion_error, "thd",
                   [&] {
                     quantize_qkv(session, {"thd_thd_thd", {t, t, t}}, q, {true, true});
                   },
                   {"bshd/sbhd"});
}

// ---- S-121, S-122

// Kernels that give O and the gradients as the fused ones do, of data that do not matter, and note how S was
// to be read.
AttentionKernels kernels_for(Session& session, const Dims& shape, std::vector<F32Bits>* scales_of_s) {
  const auto tensor = [&session, shape](const QuantizerPtr& q) -> Tensorlike {
    const ArrayPtr plain = drawn(shape, DType::bfloat16, 8);
    if (attention_kind(q) != AttentionKind::delayed) return plain;
    return q->quantize(session, plain);
  };
  const auto note = [scales_of_s](const QuantizerPtr& s) {
    const auto* delayed = dynamic_cast<const Float8Quantizer*>(s.get());
    if (delayed && scales_of_s) scales_of_s->push_back(f32_bits(*delayed->scale).at(0));
  };
  return {[=](const ForwardCall& c) { return note(c.s), tensor(c.o); },
          [=](const BackwardCall& c) {
            note(c.s);
            return std::array<Tensorlike, 3>{tensor(c.dqkv), tensor(c.dqkv), tensor(c.dqkv)};
          }};
}

bool is_fp8(const Tensorlike& t) { return std::holds_alternative<StoragePtr>(t); }

void flow(ScenarioRun& run, string_view recipe, const FusedOptions& o, bool input_fp8) {
  Session session = run.session();
  DotProductAttention core = core_under(session, attention_recipe(recipe));
  const AttentionQuantizers q = core.quantizers();
  const PlainQkv plain = plain_sbhd();
  const AttentionInput in =
      input_fp8 ? AttentionInput(quantize_qkv(session, plain, q.qkv, {true, true})) : AttentionInput(plain);
  std::vector<string> forward, backward;
  const AttentionKernels kernels = kernels_for(session, plain.buffers[0]->shape, nullptr);
  const FusedForward done = fused_forward(session, in, q, o, kernels, usages_into(forward));
  const auto gradients =
      fused_backward(session, *done.saved, drawn(plain.buffers[0]->shape, DType::bfloat16, 7), o, kernels,
                     usages_into(backward));
  const bool b = o.switches.fp8_backward, mxfp8 = recipe == "MXFP8BlockScaling",
             delayed = recipe == "DelayedScaling";
  const bool fp8_o_saved = b && !mxfp8 && (delayed || !o.switches.o_in_16_bits);
  const int64_t of_o = !delayed && (o.fp8_output || fp8_o_saved) ? 1 : 0;
  run.expect_equal(static_cast<int64_t>(forward.size()),
                   (input_fp8 ? 0
                    : mxfp8   ? 3
                              : 1) +
                       of_o,
                   "casts of forward");
  run.expect(is_fp8(done.out) == o.fp8_output, "O as it was asked for");
  const SavedAttention& saved = *done.saved;
  run.expect((saved.qkv_fp8[0] != nullptr) == b && (saved.qkv[2] != nullptr) == !b, "Q, K, V saved once");
  run.expect((saved.o_fp8 != nullptr) == fp8_o_saved && (saved.o != nullptr) == !fp8_o_saved, "O saved once");
  const bool keeps = b && input_fp8 && !o.gradient_in_16_bits;
  run.expect_equal(static_cast<int64_t>(backward.size()), (b ? 1 : 0) + (keeps && !delayed ? 1 : 0),
                   "casts of backward");
  run.expect(is_fp8(gradients[1]) == keeps, "gradients go back as Q, K, V came");
}

void s121(ScenarioRun& run) {
  for (const string_view recipe : {"DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling"})
    for (int bits = 0; bits < 32; ++bits) {
      const auto on = [&](int bit) { return (bits >> bit & 1) != 0; };
      FusedOptions o;
      o.o_format = "sbhd";
      o.switches.fp8_backward = on(0);
      o.switches.o_in_16_bits = on(1);
      o.fp8_output = on(2);
      o.gradient_in_16_bits = on(3);
      const bool input_fp8 = on(4);
      if (input_fp8 && recipe == "MXFP8BlockScaling") continue;  // no neighbour hands MXFP8 over
      run.about(string(recipe) + ", B " + std::to_string(on(0)) + ", C " + std::to_string(on(1)) +
                (on(2) ? ", FP8 out" : "") + (on(3) ? ", 16-bit gradient" : "") + (on(4) ? ", FP8 in" : ""));
      flow(run, recipe, o, input_fp8);
    }
}

void s122(ScenarioRun& run) {
  Session session = run.session();
  DotProductAttention core = core_under(session, attention_recipe("DelayedScaling"));
  const AttentionQuantizers q = core.quantizers();
  const PlainQkv plain = plain_sbhd();
  std::vector<F32Bits> scales;
  const AttentionKernels kernels = kernels_for(session, plain.buffers[0]->shape, &scales);
  FusedOptions o;
  o.o_format = "sbhd";
  const FusedForward done = fused_forward(session, plain, q, o, kernels);
  const DelayedStatePtr state = core.state.state(Mode::forward)->delayed();
  constexpr float kOther = 7;
  const std::vector<float> changed(static_cast<size_t>(state->scale->count()), kOther);
  std::ranges::copy(std::as_bytes(std::span(changed)), state->scale->bytes().begin());
  fused_backward(session, *done.saved, drawn(plain.buffers[0]->shape, DType::bfloat16, 7), o, kernels);
  run.expect_equal(static_cast<int64_t>(scales.size()), 2, "calls of the kernels");
  run.expect_equal(static_cast<int64_t>(scales.back()), static_cast<int64_t>(scales.front()),
                   "backward reads S by forward's scale");
  run.expect_equal(static_cast<int64_t>(f32_bits(*dynamic_cast<const Float8Quantizer&>(*q.s).scale).at(0)),
                   static_cast<int64_t>(std::bit_cast<F32Bits>(kOther)), "the module's own has the new one");
}

// ---- the emulation

std::vector<ArrayPtr> drawn_for(string_view tensor, const EmulationShape& n, uint64_t seed) {
  std::vector<ArrayPtr> out;
  for (const Dims& shape : emulation_shapes(tensor, n)) out.push_back(drawn(shape, DType::bfloat16, seed++));
  return out;
}

void s117(ScenarioRun& run) {
  constexpr EmulationShape kShapes[] = {{1, 1, 4, 4, 4}, {1, 2, 2, 6, 8}, {1, 2, 8, 8, 16}};
  for (const string_view format : {"HYBRID", "E4M3"})
    for (const EmulationShape& n : kShapes) {
      Session session = run.session(), other = run.session_on(run.reference);
      const auto emulation_on = [&](Session& s, string_view recipe) {
        return Emulation(
            core_under(s, attention_recipe(recipe, json::object({{"fp8_format", format}}))).quantizers());
      };
      for (const string_view recipe : {"DelayedScaling", "Float8CurrentScaling"}) {
        const Emulation e = emulation_on(session, recipe), on_reference = emulation_on(other, recipe);
        string order;
        for (const EmulationStage& stage : emulation_stages()) {
          const std::vector<ArrayPtr> in = drawn_for(stage.tensor, n, 30);
          run.about(string(recipe) + " " + string(format) + ", step " + string(stage.tensor));
          const std::vector<ArrayPtr> out = e.pass(session, stage, in, [&](const Quantizer&, const Dims&) {
            order += string(stage.tensor) + " ";
          });
          const std::vector<ArrayPtr> want = on_reference.pass(other, stage, in);
          for (size_t i = 0; i < out.size(); ++i) {
            run.expect_equal(out[i], want[i], "as on the reference");
            if (!stage.casts) run.expect_equal(out[i], in[i], "passed on unchanged");
          }
          if (stage.casts) run.expect_different(out[0], in[0], "rounded to the grid");
        }
        run.about(string(recipe) + " " + string(format));
        run.expect_equal(order, "QKV S O dO dP dQKV ", "casts in order");
      }
    }
}

void s119(ScenarioRun& run) {
  Session session = run.session();
  DotProductAttention core = core_under(session, attention_recipe("Float8CurrentScaling"));
  const AttentionQuantizers q = core.quantizers();
  const Emulation e(q);
  for (const EmulationStage& stage : emulation_stages())
    e.pass(session, stage, drawn_for(stage.tensor, {1, 2, 8, 8, 16}, 40));
  for (const QuantizerPtr& p : {q.s, q.dp})
    run.expect_equal(static_cast<int64_t>(f32_bits(*dynamic_cast<const Float8Quantizer&>(*p).amax).at(0)), 0,
                     "amax of the state's S and dP after the emulation");
  run.expect_equal(e.quantizer("S")->class_name(), kCs, "S of the emulation");
  run.expect_equal(q.s->class_name(), kDs, "S of the fused path");
}

void s124(ScenarioRun& run) {
  constexpr float kFirst = 0.5F, kSecond = 0.25F;
  const auto steps = [&](const RecipePtr& recipe, size_t slot) {
    Session session = run.session();
    DotProductAttention core = core_under(session, recipe);
    const AttentionQuantizers q = core.quantizers();
    AmaxBuffers histories;
    histories.add(core.state.state(Mode::forward));
    std::vector<F32Bits> scales;
    for (const float amax : {kFirst, kSecond}) {
      q.s->quantize(session, f32_array({1, 1}, std::vector<float>{amax}));
      histories.reduce_and_update(session, true);
      scales.push_back(f32_bits(*core.state.state(Mode::forward)->delayed()->scale).at(slot));
    }
    return scales;
  };
  const auto expect = [&](const std::vector<F32Bits>& got, float second, float third, string_view what) {
    run.about(string(what));
    const auto as_float = [](F32Bits b) { return std::to_string(std::bit_cast<float>(b)); };
    run.expect_equal(as_float(got.at(0)), std::to_string(448 / second), "scale of S in the second step");
    run.expect_equal(as_float(got.at(1)), std::to_string(448 / third), "scale of S in the third step");
  };
  constexpr size_t kOfAll = 8, kOfLastGroup = 2;
  expect(steps(attention_recipe("Float8CurrentScaling"), kOfLastGroup), kFirst, kSecond,
         "length 1, the most recent");
  expect(steps(attention_recipe("DelayedScaling", json::object({{"amax_history_len", 16}})), kOfAll), kFirst,
         kFirst, "length 16, the largest");
}

void s125(ScenarioRun& run) {
  Session session = run.session();
  DotProductAttention core = core_under(session, attention_recipe("Float8CurrentScaling"));
  const AttentionQuantizers q = core.quantizers();
  int64_t elements = 0;
  quantize_qkv(session, plain_sbhd(1), q.qkv, {true, false},
               [&](const Quantizer&, const Dims& shape) { elements = count_of(shape); });
  run.expect_equal(elements, kS * kB * kD * (kH + 2), "elements of the fused path's cast: K and V once");
  // Two heads of opposite sign: what is left of their sum is finer than their grid.
  const EmulationShape n{1, 2, 4, 4, 8};
  std::vector<ArrayPtr> gradients = drawn_for("dQKV", n, 50);
  const auto set = [&](int64_t head, uint16_t bits) {
    const ArrayPtr one = slice(gradients[1], 2, head, head + 1);
    std::memcpy(gradients[1]->memory->data() + one->offset * 2, &bits, sizeof bits);
  };
  set(0, 0x4220), set(1, 0xC21F);  // 40 and -39.75
  const Emulation e(q);
  const auto stage = std::ranges::find_if(
      emulation_stages(), [](const EmulationStage& s) { return s.tensor == "dQKV" && s.casts; });
  const ArrayPtr after = sum_repeated_heads(session, e.pass(session, *stage, gradients).at(1), 1);
  const ArrayPtr before = sum_repeated_heads(session, gradients[1], 1);
  run.expect_equal(after->shape[2], 1, "heads after the sum");
  run.expect_different(slice(view(after, {after->count()}), 0, 0, 1),
                       slice(view(before, {before->count()}), 0, 0, 1),
                       "the group's sum of cast heads is not that of the heads");
}

constexpr Scenario kAttentionScenarios[] = {
    {"S-114",
     "The recipes that attention works by",
     "recipes and switches of section 'attention' of docs/training.md",
     "a core is built",
     "local recipes, classes, FP8 types, histories; F16 changes the user's object",
     s114,
     {}},
    {"S-115",
     "What the core takes in its slots",
     "each of six slots replaced by each of eight kinds",
     "the core asks for its quantizers",
     "usages are set, or the error names the slot",
     s115,
     {}},
    {"S-117",
     "Emulation step by step",
     "delayed and current scaling, HYBRID and E4M3, three shapes",
     "every step is passed in order",
     "casts QKV S O dO dP dQKV, bytes as on the reference",
     s117,
     {}},
    {"S-119",
     "S and dP of the emulation under current scaling",
     "a pair of recipes",
     "the emulation runs forward and backward",
     "the state's S and dP are untouched; the fused path reads them",
     s119,
     {}},
    {"S-120",
     "One scale for Q, K and V",
     "V grown by 256",
     "they are packed and cast",
     "bytes of Q change; the three share a scale object",
     s120,
     {}},
    {"S-121",
     "Casts and saved tensors of the fused path",
     "delayed, current and MXFP8, both switches, FP8 in and out, 16-bit gradients",
     "one step runs",
     "each tensor is cast where it must be and saved once",
     s121,
     {}},
    {"S-122",
     "The scale of S between forward and backward",
     "delayed scaling",
     "amaxes are updated between the two",
     "backward reads S by the scale that forward had",
     s122,
     {}},
    {"S-123",
     "Packing of MXFP8",
     "layouts, sizes and uses",
     "Q, K, V are packed",
     "directions by use; errors of sizes; scales in the order of heads",
     s123,
     {}},
    {"S-124",
     "The scale of S over steps",
     "a history of 1 and of 16",
     "two steps run",
     "448 over the last amax, or over the largest",
     s124,
     {}},
    {"S-125",
     "Casts of grouped heads",
     "two heads of Q to one of K and V",
     "they are cast on both paths",
     "fused: K and V once; emulation: heads apart, summed after the cast",
     s125,
     {}},
};

}  // namespace

std::span<const Scenario> attention_scenarios() { return kAttentionScenarios; }

}  // namespace assay::training
