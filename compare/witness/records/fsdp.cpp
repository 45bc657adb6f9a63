// Records of FSDP2's hooks: one process holds every shard of a seeded tensor, calls the hooks as FSDP2 does,
// and shows what was sent, built and refreshed.
#include <algorithm>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "compare/witness/records/state_kinds.h"
#include "training/base/data.h"
#include "training/dispatch/in_place.h"
#include "training/formats/formats.h"
#include "training/formats/parts.h"
#include "training/ranks/fsdp.h"

namespace assay {

namespace {

using namespace training;  // NOLINT: this file speaks of nothing else
using std::string;

GroupPtr mesh_of_one() {
  const auto group = std::make_shared<ProcessGroup>();
  group->name = "fsdp";
  return group;
}

ParamGroup group_in(const Given& given) {
  static constexpr std::pair<std::string_view, TrainingState> kStates[] = {
      {"IDLE", TrainingState::idle},
      {"FORWARD", TrainingState::forward},
      {"PRE_BACKWARD", TrainingState::pre_backward},
      {"POST_BACKWARD", TrainingState::post_backward}};
  return {given.flag("reshard"), given.row("state", kStates).second};
}

// Normal data with 16 in the first row of each of `shards` equal parts, so that amaxes agree.
// Rows and columns of a tensor that is cut into so many shards, none of them empty.
Dims shape_in(const Given& given, int64_t shards = 1) {
  const Given shape = given.at("shape", "a shape");
  const Shape m = shape.matrix();
  if (m.rows < shards || m.cols < 1)
    shape.refuse("[rows, columns] with at least " + std::to_string(shards) + " rows and a column");
  return {m.rows, m.cols};
}

ArrayPtr data_of(const Dims& shape, int64_t shards, uint64_t seed) {
  const ArrayPtr x = drawn(shape, DType::bfloat16, seed);
  constexpr uint16_t kSixteen = 0x4180;
  const int64_t step = x->count() / shards;
  for (int64_t i = 0; i < shards; ++i)
    std::ranges::copy(std::as_bytes(std::span(&kSixteen, 1)), x->bytes().begin() + i * step * 2);
  return x;
}

StoragePtr shard_of(Session& session, const Given& given, Usages present, const Dims& shape) {
  const QuantizerPtr q = quantizer_of_kind(given.at("kind", "a kind of tensor"));
  q->set_usage(present.rowwise, present.columnwise);
  return q->quantize(session, data_of(shape, 1, 31));
}

json::Value class_of(const StoragePtr& s) { return s ? json::Value(s->class_name()) : json::Value(); }
json::Value tensor_shown(const ArrayPtr& a) {
  return a ? json::Value("tensor[" + std::to_string(a->count()) + "]") : json::Value();
}

// The types of what stays on the rank, as the original's tuple has them.
json::Value metadata(Storage& shard, const FsdpSent& sent) {
  const Usages u = sent.usages;
  if (const auto* h = dynamic_cast<const HybridStorage*>(&shard))
    return json::array({sent.hybrid.row_buffers, sent.hybrid.row_meta, sent.hybrid.col_meta,
                        class_of(h->rowwise_storage), class_of(h->columnwise_storage), "HybridQuantizer"});
  if (dynamic_cast<const Float8Storage*>(&shard))
    return json::array({tensor_shown(sent.scale_inv), u.rowwise, u.columnwise, "DType"});
  if (dynamic_cast<const MXFP8Storage*>(&shard)) return json::array({"DType", u.rowwise, u.columnwise});
  if (const auto* block = dynamic_cast<const Float8BlockwiseStorage*>(&shard))
    return json::array({"DType", block->is_2d, u.rowwise, u.columnwise});
  if (const auto* fp4 = dynamic_cast<const NVFP4Storage*>(&shard))
    return json::array({"DType", u.columnwise, tensor_shown(sent.amax_rowwise),
                        tensor_shown(sent.amax_columnwise), fp4->row_scaled, fp4->use_4over6, fp4->e4m3_max,
                        shard.size().back()});
  return json::array({shard.quantizer ? shard.quantizer->class_name() : "None"});
}

// The name of the shard's buffer that is this very object, or null.
json::Value same_object(Storage& shard, const ArrayPtr& a) {
  for (const auto& [name, buffer] : named_buffers(shard))
    if (buffer == a) return name;
  return {};
}

json::Value failed_with_words(const SemanticError& e) {
  return failed(e, {"2D", "rowwise", "fsdp_buffer_fields", "columnwise", "NVFP4"});
}

json::Value pre(const Given& given, Session& session) {
  const StoragePtr shard = shard_of(session, given, usages_in(given), shape_in(given));
  return outcome(
      [&] {
        const FsdpSent sent =
            fsdp_pre_all_gather(*shard, given.flag("mesh") ? mesh_of_one() : nullptr, group_in(given));
        json::Value buffers = json::array();
        for (const ArrayPtr& a : sent.buffers) {
          json::Value one = json::object({{"same_object_as", same_object(*shard, a)}});
          if (a) one.set("shape", shown(a->shape)), one.set("dtype", name_of(a->dtype));
          buffers.push(std::move(one));
        }
        json::Value on, has;
        if (auto* h = dynamic_cast<HybridQuantizer*>(shard->quantizer.get()))
          on = h->with_amax_reduction(), has = h->amax_reduction_group() != nullptr;
        else if (const AmaxReduction* r = shard->quantizer->amax_reduction())
          on = r->enabled, has = r->group != nullptr;
        return json::object({{"sent", std::move(buffers)},
                             {"metadata", metadata(*shard, sent)},
                             {"group", json::object({{"on_tensor", shard->amax_reduction_group != nullptr},
                                                     {"quantizer_switch", std::move(on)},
                                                     {"quantizer_group", std::move(has)}})}});
      },
      failed_with_words);
}

json::Value pre_quantizer_usage(const Given& given, Session& session) {
  const StoragePtr shard = shard_of(session, given, usages_in(given), shape_in(given));
  const Usages q = given.usages("q");
  shard->quantizer->set_usage(q.rowwise, q.columnwise);
  return outcome([&] {
    const FsdpSent sent = fsdp_pre_all_gather(*shard, mesh_of_one(), group_in(given));
    const Usages after = shard->quantizer->usages();
    return json::object(
        {{"sent", list_of(sent.buffers, [&](const ArrayPtr& a) { return same_object(*shard, a); })},
         {"metadata", metadata(*shard, sent)},
         {"quantizer_usages_after", json::array({after.rowwise, after.columnwise})}});
  });
}

json::Value no_param_group(const Given& given, Session& session) {
  const StoragePtr shard = shard_of(session, given, {true, given.text("kind") != "FP4p"}, {256, 384});
  return outcome([&] { return fsdp_pre_all_gather(*shard, mesh_of_one(), std::nullopt).buffers.size(); },
                 [](const SemanticError& e) { return failed(e, {"reshard_after_forward"}); });
}

json::Value swizzled(const Given& given, Session& session) {
  const StoragePtr shard = shard_of(session, given, {true, true}, {256, 384});
  auto* blocks = dynamic_cast<BlockScaledStorage*>(shard.get());
  if (!blocks) given.at("kind", "").refuse("a kind with block scales, which alone can be swizzled");
  blocks->with_gemm_swizzled_scales = true;
  return outcome([&] { return fsdp_pre_all_gather(*shard, mesh_of_one(), ParamGroup{}).buffers.size(); },
                 [](const SemanticError& e) { return failed(e, {"compact"}); });
}

json::Value rows(const Given& given, Session& session) {
  const QuantizerPtr q = quantizer_of_kind(given.at("kind", "a kind of tensor"));
  q->set_usage(true, given.flag("column_usage"));
  // Allocated, not quantized: some of these shapes no kernel takes.
  const StoragePtr shard = q->make_empty(session, shape_in(given), DType::bfloat16);
  return outcome(
      [&] {
        return list_of(fsdp_pre_all_gather(*shard, mesh_of_one(), group_in(given)).buffers,
                       [](const ArrayPtr& a) { return shape_of(a); });
      },
      [](const SemanticError& e) {
        return failed(e, {"128", "multiple", "aligned"});
      });
}

// The parts of a sharded tensor, as every rank would hold one.
struct Sharded {
  std::vector<StoragePtr> shards;
  FsdpSent sent;  // of the first shard, whose rank looks on
  std::vector<ArrayPtr> gather(const ParamGroup& group) {
    std::vector<FsdpSent> all;
    for (const StoragePtr& s : shards) all.push_back(fsdp_pre_all_gather(*s, mesh_of_one(), group));
    sent = all.front();
    std::vector<ArrayPtr> out;
    for (size_t b = 0; b < sent.buffers.size(); ++b) {
      std::vector<ArrayPtr> parts;
      for (const FsdpSent& one : all) parts.push_back(one.buffers.at(b));
      out.push_back(concatenate(parts));
    }
    return out;
  }
};

ArrayPtr part_of(const ArrayPtr& x, int64_t i, int64_t n) {
  const int64_t rows = x->shape[0] / n;
  return clone(slice(x, 0, i * rows, (i + 1) * rows));
}

// The elements of a scale buffer that belong to real blocks; all of another buffer.
ArrayPtr real_part(Storage& s, std::string_view name, const ArrayPtr& a, Shape m) {
  const bool row = name.ends_with("_rowwise_scale_inv"), col = name.ends_with("_columnwise_scale_inv");
  const auto corner = [&](int64_t r, int64_t c) { return slice(slice(a, 0, 0, r), 1, 0, c); };
  if (!row && !col) return a;
  if (dynamic_cast<MXFP8Storage*>(&s))
    return row ? corner(m.rows, ceil_div(m.cols, 32)) : corner(ceil_div(m.rows, 32), m.cols);
  if (dynamic_cast<NVFP4Storage*>(&s))
    return row ? corner(m.rows, ceil_div(m.cols, 16)) : corner(m.cols, ceil_div(m.rows, 16));
  const Shape tiles{ceil_div(m.rows, 128), ceil_div(m.cols, 128)};
  return row ? corner(tiles.rows, tiles.cols) : corner(tiles.cols, tiles.rows);
}

void compare_to(json::Value& out, const string& prefix, Storage& got, Storage& want, Shape m) {
  if (auto* h = dynamic_cast<HybridStorage*>(&got)) {
    auto& other = dynamic_cast<HybridStorage&>(want);
    if (h->rowwise_storage) compare_to(out, "row.", *h->rowwise_storage, *other.rowwise_storage, m);
    if (h->columnwise_storage) compare_to(out, "col.", *h->columnwise_storage, *other.columnwise_storage, m);
    return;
  }
  const std::vector<Field> theirs = want.fields();
  size_t i = 0;
  for (const Field& f : got.fields()) {
    const ArrayPtr& other = *theirs[i++].slot;
    if (!*f.slot) continue;
    out.set(prefix + f.name,
            other && (*f.slot)->shape == other->shape &&
                equal_bytes(*real_part(got, f.name, *f.slot, m), *real_part(got, f.name, other, m)));
  }
}

json::Value equal_to_full(Session& session, const Given& given, const StoragePtr& got,
                          const ArrayPtr& whole) {
  const QuantizerPtr q = quantizer_of_kind(given.at("kind", "a kind of tensor"));
  const Usages u = got->quantizer->usages();
  q->set_usage(u.rowwise, u.columnwise);
  json::Value out = json::object();
  compare_to(out, "", *got, *q->quantize(session, whole), flattened(whole->shape));
  return out;
}

json::Value shares_scale(const StoragePtr& got, const StoragePtr& shard) {
  const auto *a = dynamic_cast<const Float8Storage*>(got.get()),
             *b = dynamic_cast<const Float8Storage*>(shard.get());
  return a && b ? json::Value(a->scale_inv == b->scale_inv) : json::Value();
}

json::Value post(const Given& given, Session& session) {
  const int64_t n = given.number("shards", 1, 16);
  const Dims shape = shape_in(given, n);
  const ParamGroup group = group_in(given);
  return outcome(
      [&] {
        const ArrayPtr first = data_of(shape, n, 31), other = data_of(shape, n, 32);
        Sharded all;
        for (int64_t i = 0; i < n; ++i) {
          const QuantizerPtr q = quantizer_of_kind(given.at("kind", "a kind of tensor"));
          all.shards.push_back(q->quantize(session, part_of(first, i, n)));
        }
        std::vector<ArrayPtr> gathered = all.gather(group);
        const StoragePtr& mine = all.shards.front();
        const StoragePtr out = fsdp_post_all_gather(*mine, all.sent, gathered, DType::bfloat16);
        const auto usages = [&] {
          const Usages u = out->quantizer->usages();
          return json::array({u.rowwise, u.columnwise});
        };
        json::Value one =
            json::object({{"out", buffers_shown(out)},
                          {"equal_to_full", equal_to_full(session, given, out, first)},
                          {"usages", usages()},
                          {"shares_scale", shares_scale(out, mine)},
                          {"returned_inner_is_gathered", true},  // what comes back is the argument
                          {"quantizer_is_copy", out->quantizer != mine->quantizer},
                          {"outer_shape", shown(out->size())},
                          {"dtype", name_of(out->dtype)},
                          {"requires_grad", false}});  // tensors here take part in no graph
        for (int64_t i = 0; i < n; ++i)
          dispatch::quantize_(session, part_of(other, i, n), *all.shards[static_cast<size_t>(i)]);
        gathered = all.gather(group);
        const StoragePtr again = fsdp_post_all_gather(*mine, all.sent, gathered, DType::bfloat16, out);
        json::Value two = json::object({{"same_object", again == out},
                                        {"out", buffers_shown(again)},
                                        {"equal_to_full", equal_to_full(session, given, again, other)},
                                        {"usages", usages()},
                                        {"shares_scale", shares_scale(again, mine)}});
        return json::object({{"first", std::move(one)}, {"second", std::move(two)}});
      },
      failed_with_words);
}

json::Value alternate(const Given& given, Session& session) {
  const Dims shape = {256, 384};
  static constexpr std::pair<std::string_view, TrainingState> kStates[] = {
      {"IDLE", TrainingState::idle},
      {"FORWARD", TrainingState::forward},
      {"PRE_BACKWARD", TrainingState::pre_backward},
      {"POST_BACKWARD", TrainingState::post_backward}};
  return outcome([&] {
    Sharded all;
    const ArrayPtr x = data_of(shape, 2, 31);
    for (int64_t i = 0; i < 2; ++i)
      all.shards.push_back(
          quantizer_of_kind(given.at("kind", "a kind of tensor"))->quantize(session, part_of(x, i, 2)));
    StoragePtr out;
    json::Value steps = json::array();
    for (const Given& state : given.items("sequence", "an array of training states")) {
      const std::vector<ArrayPtr> gathered = all.gather({true, state.row(kStates).second});
      out = fsdp_post_all_gather(*all.shards.front(), all.sent, gathered, DType::bfloat16, out);
      std::vector<string> held;
      for (const auto& [name, buffer] : named_buffers(*out)) held.push_back(name);
      std::sort(held.begin(), held.end());
      const Usages u = out->quantizer->usages(), own = all.shards.front()->quantizer->usages();
      steps.push(json::object({{"held", shown(held)},
                               {"usages", json::array({u.rowwise, u.columnwise})},
                               {"shard_quantizer_usages", json::array({own.rowwise, own.columnwise})}}));
    }
    return steps;
  });
}

json::Value cleared(const Given& given, Session& session) {
  const StoragePtr weight = shard_of(session, given, {true, true}, {128, 256});
  return outcome([&] {
    clear_columns(*weight);
    return buffers_shown(weight);
  });
}

json::Value identity_dtype(const Given& given, Session& session) {
  const Given own = given.at("quantizer_dtype", "a dtype or null");
  IdentityQuantizer q(own.is_null() ? std::nullopt : std::optional(own.dtype()));
  const DType parameter = given.at("param_dtype", "a dtype").dtype(),
              given_dtype = given.at("input_dtype", "a dtype").dtype();
  return outcome(
      [&] {
        const StoragePtr shard = q.copy()->quantize(session, zeros({4, 8}, given_dtype));
        const FsdpSent sent = fsdp_pre_all_gather(*shard, mesh_of_one(), ParamGroup{});
        return json::object(
            {{"dtype", name_of(fsdp_post_all_gather(*shard, sent, sent.buffers, parameter)->dtype)}});
      },
      [](const SemanticError& e) { return failed(e, {"dtype"}); });
}

// A shard whose own amax is 16 in a group whose largest is 64: which per-tensor values become the group's.
json::Value refreshed(const Given& given, Session& session) {
  constexpr F32Bits kSixtyFour = 0x42800000;
  int reductions = 0;
  const auto group = mesh_of_one();
  group->size = 2;
  group->all_reduce_max = [&](std::span<F32Bits> amaxes) {
    ++reductions;
    for (F32Bits& a : amaxes) a = std::max(a, kSixtyFour);
  };
  const StoragePtr shard = shard_of(session, given, {true, true}, {128, 256});
  const bool setter = given.word("via", {"quantize_", "data_setter"}) == "data_setter";
  return outcome([&] {
    fsdp_pre_all_gather(*shard, group, ParamGroup{});
    const ArrayPtr x = data_of({128, 256}, 1, 33);
    if (setter) dispatch::set_data(session, x, *shard);
    else dispatch::quantize_(session, x, *shard);
    ArrayPtr largest = clone(x);
    constexpr uint16_t kPeak = 0x4280;  // 64
    std::ranges::copy(std::as_bytes(std::span(&kPeak, 1)), largest->bytes().begin());
    const StoragePtr want = quantizer_of_kind(given.at("kind", ""))->quantize(session, largest);
    json::Value equal = json::object();
    const auto theirs = named_buffers(*want);
    size_t i = 0;
    for (const auto& [name, buffer] : named_buffers(*shard)) {
      const ArrayPtr& other = theirs.at(i++).second;
      const bool per_tensor = buffer->dtype == DType::float32 && buffer->count() == 1;
      if (per_tensor) equal.set(name, equal_bytes(*buffer, *other));
    }
    json::Value on;
    bool has = false;
    if (auto* h = dynamic_cast<HybridQuantizer*>(shard->quantizer.get()))
      on = h->with_amax_reduction(), has = h->amax_reduction_group() != nullptr;
    else if (const AmaxReduction* r = shard->quantizer->amax_reduction())
      on = r->enabled, has = r->group != nullptr;
    return json::object({{"reductions", reductions},
                         {"per_tensor_values_equal_to_group_maximum", std::move(equal)},
                         {"quantizer_switch_after", std::move(on)},
                         {"quantizer_has_group_after", has},
                         {"tensor_keeps_group", shard->amax_reduction_group != nullptr}});
  });
}

struct Group {
  std::string_view name;
  json::Value (*then)(const Given& given, Session& session);
};
constexpr Group kGroups[] = {
    {"pre", pre},
    {"pre_quantizer_usage", pre_quantizer_usage},
    {"no_param_group", no_param_group},
    {"swizzled", swizzled},
    {"rows", rows},
    {"post", post},
    {"alternate", alternate},
    {"clear_columns", cleared},
    {"identity_dtype", identity_dtype},
    {"refresh", refreshed},
};

}  // namespace

json::Value witness_fsdp(std::string_view group, const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  return row_called(kGroups, group, "group")->then(given, session);
}

}  // namespace assay
