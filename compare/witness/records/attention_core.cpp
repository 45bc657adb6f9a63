// Records of attention's core: how Q, K and V are packed for a cast, who casts what around the fused kernels,
// and the steps of the emulation. The kernels of these records were stand-ins that count, and so they are
// here.
#include <algorithm>
#include <cstring>
#include <string>

#include "compare/witness/records/attention.h"
#include "compare/witness/records/shown.h"
#include "compare/witness/records/state_kinds.h"
#include "training/attention/emulation.h"
#include "training/attention/fused_flow.h"
#include "training/base/data.h"
#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"
#include "training/modules/attention.h"
#include "training/recipes/delayed.h"

namespace assay {

using namespace training;
using std::string;
using std::string_view;

namespace {

// Every sweep of the recording process that does not name its sizes had these.
struct QkvSizes {
  int64_t b = 2, s = 128, h = 2, d = 64;
};

PlainQkv plain_qkv(const Given& layout, const QkvSizes& n) {
  PlainQkv out{layout.text(), {}};
  Dims shape;
  const auto finish = [&] {
    if (shape.empty()) layout.refuse("a layout of Q, K and V");
    out.buffers.push_back(drawn(shape, DType::bfloat16, out.buffers.size() + 1));
    shape.clear();
  };
  const std::pair<char, int64_t> sizes[] = {{'b', n.b}, {'s', n.s}, {'t', n.b * n.s}, {'h', n.h},
                                            {'d', n.d}, {'2', 2},   {'3', 3}};
  for (const char c : out.layout) {
    const auto size = std::find_if(std::begin(sizes), std::end(sizes), [&](auto& s) { return s.first == c; });
    if (size != std::end(sizes) && shape.size() < 5) shape.push_back(size->second);
    else if (c == '_' && out.buffers.size() < 3) finish();
    else layout.refuse("a layout of Q, K and V");
  }
  finish();
  split_qkv(out);  // throws where it is no layout
  return out;
}

CastLog into(json::Value& casts) {
  return [&casts](const training::Quantizer& q, const Dims& shape) {
    casts.push(json::array({q.class_name(), q.rowwise_usage, q.columnwise_usage, shown(shape)}));
  };
}

json::Value held_by(Storage& s) {
  std::vector<string> names;
  for (const auto& [name, buffer] : named_buffers(s)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return shown(names);
}

json::Value combined_shown(const QuantizedQkv& got, json::Value casts) {
  json::Value swizzled = json::array(), scale_shapes = json::array();
  for (const StoragePtr& t : got.tensors) {
    const auto* m = dynamic_cast<const MXFP8Storage*>(t.get());
    swizzled.push(m ? json::Value(m->with_gemm_swizzled_scales) : json::Value());
    json::Value shapes = json::object();
    for (const auto& [name, buffer] : named_buffers(*t))
      if (m && name.ends_with("_scale_inv")) shapes.set(name, shown(buffer->shape));
    scale_shapes.push(std::move(shapes));
  }
  const auto scale_of = [](const StoragePtr& t) {
    const auto* fp8 = dynamic_cast<const Float8Storage*>(t.get());
    return fp8 ? fp8->scale_inv : nullptr;
  };
  const ArrayPtr scale = scale_of(got.tensors[0]);
  return json::object(
      {{"casts", std::move(casts)},
       {"layout_out", got.layout},
       {"scale_format", got.scale_format ? json::Value(*got.scale_format) : json::Value()},
       {"classes", list_of(got.tensors, [](const StoragePtr& t) { return json::Value(t->class_name()); })},
       {"shapes", list_of(got.tensors, [](const StoragePtr& t) { return shown(t->size()); })},
       {"held", list_of(got.tensors, [](const StoragePtr& t) { return held_by(*t); })},
       {"one_scale_tensor", scale && scale == scale_of(got.tensors[1]) && scale == scale_of(got.tensors[2])},
       {"swizzled", std::move(swizzled)},
       {"scale_shapes", std::move(scale_shapes)}});
}

json::Value combine(const Given& given, Session& session) {
  const PlainQkv x = plain_qkv(given.at("layout", "a layout"), {});
  given.word("kind", {"CS", "DS", "MX"});
  const QuantizerPtr q = quantizer_of_kind(given.at("kind", "a kind"));
  q->set_usage(true, false);
  const PackedFor used{given.flag("used_in_forward"), given.flag("used_in_backward")};
  json::Value casts = json::array();
  return outcome(
      [&] {
        const QuantizedQkv got = quantize_qkv(session, x, q, used, into(casts));
        return combined_shown(got, std::move(casts));
      },
      [](const SemanticError& e) {
        return failed(e, {"bshd/sbhd", "128"});
      });
}

json::Value combine_shapes(const QkvSizes& n, const Given& layout, Session& session) {
  const PlainQkv x = plain_qkv(layout, n);
  const QuantizedQkv got = quantize_qkv(session, x, quantizer_of_kind("MX", "given.kind"), {true, true});
  return list_of(got.tensors, [](const StoragePtr& t) { return shown(t->size()); });
}

json::Value combine_mx_dims(const Given& given, Session& session) {
  const json::Value layout("bshd_bshd_bshd");
  const QkvSizes n{1, given.number("s", 1), 1, given.number("d", 1)};
  return outcome([&] { return combine_shapes(n, Given(layout), session); },
                 [](const SemanticError& e) {
                   return failed(e, {"128", "32"});
                 });
}

json::Value combine_mx_heads(const Given& given, Session& session) {
  const QkvSizes n{1, 128, given.number("heads", 1), given.number("d", 1)};
  given.word("layout", {"bshd_bshd_bshd", "sbhd_sbhd_sbhd"});
  return outcome([&] { return combine_shapes(n, given.at("layout", "a layout"), session); });
}

// ---- the fused kernels

json::Value class_of(const Tensorlike& t) {
  const StoragePtr* s = std::get_if<StoragePtr>(&t);
  if (s) return *s ? json::Value((*s)->class_name()) : json::Value();
  return std::get<ArrayPtr>(t) ? json::Value("Tensor") : json::Value();
}
json::Value class_of(const QuantizerPtr& q) { return q ? json::Value(q->class_name()) : json::Value(); }
json::Value text_or_null(const std::optional<string>& s) { return s ? json::Value(*s) : json::Value(); }
json::Value classes_of_each(const std::array<Tensorlike, 3>& t) {
  return list_of(t, [](const Tensorlike& one) { return class_of(one); });
}

float value_of(const ArrayPtr& scalar) {
  float out = 0;
  std::memcpy(&out, scalar->bytes().data(), sizeof out);
  return out;
}
json::Value scale_of(const QuantizerPtr& q) {
  const auto* delayed = dynamic_cast<const Float8Quantizer*>(q.get());
  return delayed ? json::Value(static_cast<double>(value_of(delayed->scale))) : json::Value();
}

// The stand-ins: they note what they are handed, and give tensors of the classes that the kernels would.
AttentionKernels counting_kernels(Session& session, const Dims& shape, json::Value& forward,
                                  json::Value& backward) {
  constexpr int kFp8Backend = 2;
  const auto tensor = [&session, shape](const QuantizerPtr& q) -> Tensorlike {
    const ArrayPtr plain = drawn(shape, DType::bfloat16, 9);
    if (attention_kind(q) != AttentionKind::delayed) return plain;
    return q->quantize(session, plain);
  };
  return {[=, &forward](const ForwardCall& c) {
            forward = json::object({{"q", class_of(Tensorlike(c.qkv[0]))},
                                    {"k", class_of(Tensorlike(c.qkv[1]))},
                                    {"v", class_of(Tensorlike(c.qkv[2]))},
                                    {"backend", kFp8Backend},
                                    {"S_quantizer", class_of(c.s)},
                                    {"O_quantizer", class_of(c.o)},
                                    {"layout", c.layout},
                                    {"o_format", c.o_format},
                                    {"scale_format", text_or_null(c.scale_format)}});
            return tensor(c.o);
          },
          [=, &backward](const BackwardCall& c) {
            // Softmax statistics and random state, and the 16-bit dO where there is one.
            const int auxiliary = c.d_o_in_16_bits ? 3 : 2;
            backward = json::object({{"q", class_of(c.qkv[0])},
                                     {"o", class_of(c.o)},
                                     {"do", class_of(c.d_o)},
                                     {"aux_count", auxiliary},
                                     {"S_quantizer", class_of(c.s)},
                                     {"dP_quantizer", class_of(c.dp)},
                                     {"dQKV_quantizer", class_of(c.dqkv)},
                                     {"S_scale", scale_of(c.s)},
                                     {"layout", c.layout},
                                     {"dqkv_layout", c.dqkv_layout},
                                     {"scale_format", text_or_null(c.scale_format)},
                                     {"do_scale_format", text_or_null(c.do_scale_format)}});
            return std::array<Tensorlike, 3>{tensor(c.dqkv), tensor(c.dqkv), tensor(c.dqkv)};
          }};
}

json::Value saved_shown(const SavedAttention& s) {
  json::Value out = json::object();
  constexpr string_view kNames[] = {"q", "k", "v"};
  for (size_t i = 0; i < 3; ++i) {
    out.set(string(kNames[i]) + "_fp8", class_of(Tensorlike(s.qkv_fp8[i])));
    out.set(string(kNames[i]), class_of(Tensorlike(s.qkv[i])));
  }
  out.set("o_fp8", class_of(Tensorlike(s.o_fp8)));
  out.set("o", class_of(Tensorlike(s.o)));
  return out;
}

json::Value kernel_flow(const Given& given, Session& session) {
  const json::Value layout("bshd_bshd_bshd");
  const PlainQkv plain = plain_qkv(Given(layout), {});
  FusedOptions o;
  o.training = given.flag("training");
  o.fp8_output = given.flag("fp8_output");
  o.gradient_in_16_bits = given.flag("bf16_backward");
  o.switches.fp8_backward = given.flag("fp8_backward");
  o.switches.o_in_16_bits = given.flag("o_in_f16");
  const bool input_fp8 = given.flag("input_fp8");
  return outcome([&] {
    DotProductAttention dpa(session, "core");
    dpa.init_fp8_metadata(session, {attention_recipe_in(given, true)});
    const AttentionQuantizers q = dpa.quantizers();
    const AttentionInput in =
        input_fp8 ? AttentionInput(quantize_qkv(session, plain, q.qkv, {true, true})) : AttentionInput(plain);
    json::Value forward, backward, casts = json::array();
    const Dims shape = plain.buffers[0]->shape;
    const AttentionKernels kernels = counting_kernels(session, shape, forward, backward);
    const FusedForward done = fused_forward(session, in, q, o, kernels, into(casts));
    json::Value out = json::object(
        {{"returned", class_of(done.out)}, {"casts_forward", std::move(casts)}, {"forward", forward}});
    if (!done.saved) return out;
    out.set("saved", saved_shown(*done.saved));
    out.set("backward_in_fp8", done.saved->backward_in_fp8);
    out.set("layout_for_backward", done.saved->layout);
    casts = json::array();
    const Tensorlike d_o = drawn(shape, DType::bfloat16, 11);
    const auto gradients = fused_backward(session, *done.saved, d_o, o, kernels, into(casts));
    out.set("casts_backward", std::move(casts));
    out.set("backward", std::move(backward));
    out.set("gradient", classes_of_each(gradients));
    return out;
  });
}

// ---- the emulation

// bfloat16 words in hex, row-major, of a tensor of `shape`.
ArrayPtr words_in(const Given& text, const Dims& shape) {
  constexpr size_t kDigits = 4;
  const string& digits = text.text();
  if (digits.size() != kDigits * static_cast<size_t>(count_of(shape)) ||
      digits.find_first_not_of("0123456789abcdef") != string::npos)
    text.refuse("four hexadecimal digits for each of " + std::to_string(count_of(shape)) + " elements");
  std::vector<uint16_t> words;
  for (size_t at = 0; at < digits.size(); at += kDigits)
    words.push_back(static_cast<uint16_t>(std::stoul(digits.substr(at, kDigits), nullptr, 16)));
  return from_bytes(shape, DType::bfloat16, std::as_bytes(std::span(words)));
}
json::Value words_shown(const ArrayPtr& x) {
  constexpr string_view kHex = "0123456789abcdef";
  const std::span<const std::byte> bytes = std::as_const(*x).bytes();
  string out;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2)
    for (const std::byte b : {bytes[i + 1], bytes[i]})
      out += kHex[std::to_integer<size_t>(b >> 4)], out += kHex[std::to_integer<size_t>(b & std::byte{15})];
  return out;
}

struct EmulationCase {
  EmulationShape n;
  int64_t groups = 1;
  bool fp8_output = false;
  ArrayPtr q, k, v, d_o;        // as recorded
  std::vector<Given> recorded;  // stages
};

EmulationCase emulation_case(const Given& given) {
  EmulationCase c;
  const std::vector<int64_t> heads = given.at("heads", "two numbers").numbers(1);
  if (heads.size() != 2 || heads[0] % heads[1] != 0)
    given.at("heads", "").refuse("the heads of Q and those of K, which divide them");
  c.n = {1, heads[0], given.number("sq", 1), given.number("sk", 1), given.number("d", 1)};
  c.groups = heads[1];
  c.fp8_output = given.flag("fp8_output");
  given.word("mask", {"no_mask", "causal"});
  given.number("seed");
  const Given ok = given.at("recorded", "what was recorded").at("ok", "stages");
  const Dims kv = {c.n.sk, c.n.b, c.groups, c.n.d};
  c.q = words_in(ok.at("q", "bfloat16 words"), {c.n.sq, c.n.b, c.n.h, c.n.d});
  c.k = words_in(ok.at("k", "bfloat16 words"), kv);
  c.v = words_in(ok.at("v", "bfloat16 words"), kv);
  c.d_o = words_in(ok.at("do", "bfloat16 words"), {c.n.sq, c.n.b, c.n.h * c.n.d});
  c.recorded = ok.items("stages", "an array of stages");
  return c;
}

// What passes a step that casts: what this layer makes itself where it can, else what was recorded between
// this step and the one before, which a product or a softmax made.
std::vector<ArrayPtr> stage_input(const EmulationCase& c, const EmulationStage& stage, size_t at) {
  if (stage.tensor == "QKV") return {c.q, repeat_heads(c.k, c.n.h), repeat_heads(c.v, c.n.h)};
  if (stage.tensor == "dO") return {c.d_o};
  if (at >= c.recorded.size()) throw std::invalid_argument("given.recorded.ok.stages: too few stages");
  const std::vector<Dims> shapes = emulation_shapes(stage.tensor, c.n);
  const std::vector<Given> in = c.recorded[at].items("in", "an array of tensors");
  if (in.size() != shapes.size()) c.recorded[at].refuse(std::to_string(shapes.size()) + " tensors in 'in'");
  std::vector<ArrayPtr> out;
  for (size_t i = 0; i < in.size(); ++i) out.push_back(words_in(in[i], shapes[i]));
  return out;
}

json::Value amax_of(const QuantizerPtr& q) {
  const auto* delayed = dynamic_cast<const Float8Quantizer*>(q.get());
  return delayed ? json::Value(static_cast<double>(value_of(delayed->amax))) : json::Value();
}

void set_scales(const ModuleState& state, const Given& given) {
  const auto scale = given.at("start_scale", "a number").value().to_double();
  if (!scale || !(*scale > 0)) given.at("start_scale", "").refuse("a positive number");
  const auto bits = std::bit_cast<F32Bits>(static_cast<float>(*scale));
  for (const Mode mode : {Mode::forward, Mode::backward})
    if (const DelayedStatePtr d = state.state(mode)->delayed()) {
      const std::vector<F32Bits> all(static_cast<size_t>(d->scale->count()), bits);
      std::ranges::copy(std::as_bytes(std::span(all)), d->scale->bytes().begin());
    }
}

json::Value stages_shown(Session& session, const EmulationCase& c, const Emulation& e,
                         std::vector<ArrayPtr>& o, std::vector<ArrayPtr>& gradients) {
  const auto words = [](const std::vector<ArrayPtr>& list) { return list_of(list, words_shown); };
  json::Value out = json::array();
  size_t at = 0;
  for (const EmulationStage& stage : emulation_stages()) {
    const bool backward = stage.direction == Mode::backward;
    if (backward && c.fp8_output) break;  // the recording process went no further
    const QuantizerPtr& q = e.quantizer(stage.tensor);
    json::Value one = json::object(
        {{"name", stage.tensor},
         {"direction", backward ? "bwd" : "fwd"},
         {"quantizer", class_of(q)},
         {"shapes", list_of(emulation_shapes(stage.tensor, c.n), [](const Dims& d) { return shown(d); })}});
    int casts = 0;
    if (stage.casts) {
      const std::vector<ArrayPtr> in = stage_input(c, stage, at);
      std::vector<ArrayPtr> passed =
          e.pass(session, stage, in, [&](const training::Quantizer&, const Dims&) { ++casts; });
      one.set("in", words(in));
      one.set("out", words(passed));
      if (stage.tensor == "O") o = std::move(passed);
      else if (stage.tensor == "dQKV") gradients = std::move(passed);
    }
    one.set("casts", casts);
    one.set("amax_after", amax_of(q));
    out.push(std::move(one));
    ++at;
  }
  return out;
}

json::Value emulation(const Given& given, Session& session) {
  const EmulationCase c = emulation_case(given);
  return outcome([&] {
    DotProductAttention dpa(session, "core");
    dpa.init_fp8_metadata(session, {attention_recipe_in(given, true)});
    set_scales(dpa.state, given);
    const Emulation e(dpa.quantizers());
    std::vector<ArrayPtr> o, gradients;
    json::Value out = json::object({{"q", words_shown(c.q)},
                                    {"k", words_shown(c.k)},
                                    {"v", words_shown(c.v)},
                                    {"do", words_shown(c.d_o)}});
    out.set("stages", stages_shown(session, c, e, o, gradients));
    const Tensorlike returned =
        c.fp8_output ? Tensorlike(e.quantized_output(session, o.at(0))) : Tensorlike(o.at(0));
    out.set("output_class", class_of(returned));
    out.set("output", c.fp8_output ? json::Value() : words_shown(o.at(0)));
    if (gradients.empty()) {
      out.set("gradients", nullptr);
      out.set("gradients_exist", nullptr);
      return out;
    }
    for (size_t i = 1; i < gradients.size(); ++i)
      gradients[i] = sum_repeated_heads(session, gradients[i], c.groups);
    out.set("gradients", list_of(gradients, words_shown));
    out.set("gradients_exist", true);
    return out;
  });
}

}  // namespace

std::optional<json::Value> witness_attention_core(string_view group, const Given& given, Session& session) {
  if (group == "combine") return combine(given, session);
  if (group == "combine_mx_dims") return combine_mx_dims(given, session);
  if (group == "combine_mx_heads") return combine_mx_heads(given, session);
  if (group == "kernel_flow") return kernel_flow(given, session);
  if (group == "emulation") return emulation(given, session);
  return std::nullopt;
}

}  // namespace assay
