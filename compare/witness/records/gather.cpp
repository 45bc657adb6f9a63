// Records of gathers along the first dimension: virtual ranks gather shards of one seeded tensor, and what
// rank 0 did and got is the `then`.
#include <algorithm>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "compare/witness/records/state_kinds.h"
#include "training/base/data.h"
#include "training/base/ranks.h"
#include "training/formats/formats.h"
#include "training/formats/parts.h"
#include "training/ranks/gather.h"

namespace assay {

namespace {

using namespace training;  // NOLINT: this file speaks of nothing else
using std::string;

struct Case {
  int ranks = 2;
  int64_t rows = 0, cols = 0;
  bool outlier = false, amax_group = false, async = false, plain = true;
  size_t dimensions = 2;
  Usages asked, present;
  string kind;
};

Case case_in(const Given& given) {
  Case c;
  c.ranks = static_cast<int>(given.number("ranks", 2, 8));
  c.rows = given.number("rows_per_rank", 4, 1024);
  c.cols = given.number("cols", 16, 1024);
  c.outlier = given.flag("outlier_on_last_rank");
  c.amax_group = given.flag("amax_group");
  c.async = given.flag("async_op");
  c.plain = given.word("input", {"plain", "quantized"}) == "plain";
  c.dimensions = given.count("ndim", 2);
  c.asked = given.usages("q");
  c.present = given.has("present") ? usages_in(given) : Usages{true, true};
  c.kind = given.text("kind");
  if (c.kind != "none") quantizer_of_kind(given.at("kind", ""));
  return c;
}

void set_bf16(const ArrayPtr& x, int64_t row, uint16_t bits) {
  const auto at = x->bytes().subspan(static_cast<size_t>(row * x->shape[1]) * 2, 2);
  std::ranges::copy(std::as_bytes(std::span(&bits, 1)), at.begin());
}

// [ranks * rows, cols]: normal data, 16 in the first row of every shard, and the outlier in the very last
// row.
ArrayPtr whole_of(const Case& c) {
  constexpr uint16_t kSixteen = 0x4180, kThousand = 0x447A;
  const ArrayPtr x = drawn({c.ranks * c.rows, c.cols}, DType::bfloat16, 21);
  for (int64_t r = 0; r < c.ranks; ++r) set_bf16(x, r * c.rows, kSixteen);
  if (c.outlier) set_bf16(x, c.ranks * c.rows - 1, kThousand);
  return x;
}

ArrayPtr with_leading(const ArrayPtr& x, const Case& c) {
  return c.dimensions == 3 ? view(x, {x->shape[0] / 4, 4, x->shape[1]}) : x;
}

QuantizerPtr quantizer_of(const Case& c, Usages usages, const GroupPtr& group) {
  if (c.kind == "none") return nullptr;
  const QuantizerPtr q = quantizer_of_kind(c.kind, "given.kind");
  q->set_usage(usages.rowwise, usages.columnwise);
  if (c.amax_group) set_amax_reduction_group(*q, group);
  return q;
}

// What a quantize of `q` calls: itself, or the children of a hybrid in the directions that it wants. Identity
// calls no kernel.
void note_quantize(json::Value& calls, const training::Quantizer& q, const Dims& shape) {
  if (const auto* h = dynamic_cast<const HybridQuantizer*>(&q)) {
    if (h->rowwise_usage) note_quantize(calls, *h->rowwise_quantizer, shape);
    if (h->columnwise_usage) note_quantize(calls, *h->columnwise_quantizer, shape);
  } else if (!dynamic_cast<const IdentityQuantizer*>(&q)) {
    calls.push(json::array({q.class_name(), q.rowwise_usage, q.columnwise_usage, shown(shape)}));
  }
}

// The elements of a scale buffer that belong to real blocks; all of another buffer.
ArrayPtr real_part(std::string_view kind, std::string_view name, const ArrayPtr& a, Shape m) {
  const bool row = name == "_rowwise_scale_inv", col = name == "_columnwise_scale_inv";
  const auto corner = [&](int64_t rows, int64_t cols) { return slice(slice(a, 0, 0, rows), 1, 0, cols); };
  if (kind == "MXFP8Tensor" && row) return corner(m.rows, ceil_div(m.cols, 32));
  if (kind == "MXFP8Tensor" && col) return corner(ceil_div(m.rows, 32), m.cols);
  if (kind == "NVFP4Tensor" && row) return corner(m.rows, ceil_div(m.cols, 16));
  if (kind == "NVFP4Tensor" && col) return corner(m.cols, ceil_div(m.rows, 16));
  return a;
}

// By name, equality of every buffer that the result has to those of `whole`.
void compare_buffers(json::Value& out, const string& prefix, Storage& got, Storage& whole, Shape m) {
  auto* h = dynamic_cast<HybridStorage*>(&got);
  if (h) {
    auto& other = dynamic_cast<HybridStorage&>(whole);
    if (h->rowwise_storage) compare_buffers(out, "row.", *h->rowwise_storage, *other.rowwise_storage, m);
    if (h->columnwise_storage)
      compare_buffers(out, "col.", *h->columnwise_storage, *other.columnwise_storage, m);
    return;
  }
  const std::vector<Field> theirs = whole.fields();
  size_t i = 0;
  for (const Field& f : got.fields()) {
    const ArrayPtr& want = *theirs[i++].slot;
    if (!*f.slot) continue;
    const auto part = [&](const ArrayPtr& a) { return real_part(got.class_name(), f.name, a, m); };
    out.set(prefix + f.name,
            want && (*f.slot)->shape == want->shape && equal_bytes(*part(*f.slot), *part(want)));
  }
}

// The whole tensor quantized at once, in the directions that were asked for; per-tensor FP8 has its rows in
// any case.
json::Value equality(Session& session, const Case& c, const Piece& got, const ArrayPtr& whole) {
  if (const ArrayPtr* plain = std::get_if<ArrayPtr>(&got)) return equal_bytes(**plain, *whole);
  const StoragePtr& s = std::get<StoragePtr>(got);
  const QuantizerPtr q = quantizer_of_kind(c.kind, "given.kind");
  const bool fp8 = dynamic_cast<const Float8Storage*>(s.get()) != nullptr;
  q->set_usage(c.asked.rowwise || fp8, c.asked.columnwise);
  const StoragePtr want = q->quantize(session, whole);
  json::Value out = json::object();
  compare_buffers(out, "", *s, *want, flattened(whole->shape));
  return out;
}

json::Value warnings_shown(const Session& session) {
  constexpr std::pair<std::string_view, std::string_view> kTags[] = {
      {"get the shape", "attempting_to_get_shape_of_nvfp_tensor_w"},
      {"Cannot quantize", "high_precision_gather"},
      {"no gather supports", "unsupported_gather"},
      {"matching usages", "usages_do_not_match"}};
  json::Value out = json::array();
  for (const auto& [words, tag] : kTags) {
    const auto has_words = [&words = words](const Warning& w) { return w.text.find(words) != string::npos; };
    if (std::any_of(session.warnings.begin(), session.warnings.end(), has_words))
      out.push("UserWarning:" + string(tag));
  }
  return out;
}

json::Value gathered(Session& session, const Case& c, int rank, const GroupPtr& group) {
  const ArrayPtr all = whole_of(c);
  const ArrayPtr own = with_leading(clone(slice(all, 0, rank * c.rows, (rank + 1) * c.rows)), c);
  Piece shard = own;
  if (!c.plain && c.kind != "none") shard = quantizer_of(c, c.present, group)->quantize(session, own);
  session.warnings.clear();
  json::Value collectives = json::array(), calls = json::array();
  const auto logging = std::make_shared<ProcessGroup>(*group);
  logging->all_reduce_max = [&, reduce = group->all_reduce_max](std::span<F32Bits> amaxes) {
    collectives.push(json::array({"all_reduce", json::array({1})}));  // of both directions one, as one call
    reduce(amaxes);
  };
  const GatherLog log{
      [&](std::string_view what, const Array* sent, bool async) {
        json::Value one = json::array({what});
        if (sent) one.push(shown(sent->shape)), one.push(name_of(sent->dtype));
        if (what != "coalesce_end") one.push(async);
        collectives.push(std::move(one));
      },
      [&](const training::Quantizer& q, const Dims& shape) { note_quantize(calls, q, shape); }};
  const QuantizerPtr q = quantizer_of(c, c.asked, logging);
  json::Value out = outcome(
      [&] {
        const Gathered g = gather_along_first_dim(session, shard, *logging, q, c.async, log);
        const StoragePtr* s = std::get_if<StoragePtr>(&g.tensor);
        json::Value result, after;
        if (s) result = buffers_shown(*s);
        else
          result = json::object({{"class", "Tensor"},
                                 {"shape", shown(std::get<ArrayPtr>(g.tensor)->shape)},
                                 {"dtype", name_of(std::get<ArrayPtr>(g.tensor)->dtype)}});
        if (q) after = json::array({q->rowwise_usage, q->columnwise_usage});
        const DType dtype = s ? (*s)->dtype : std::get<ArrayPtr>(g.tensor)->dtype;
        json::Value then = json::object({{"collectives", collectives}, {"quantize_calls", calls}});
        then.set("handle", g.handle.empty() ? json::Value() : json::Value(g.handle));
        then.set("result", std::move(result));
        then.set("equal_to_quantization_of_whole", equality(session, c, g.tensor, with_leading(all, c)));
        then.set("quantizer_usages_after", std::move(after));
        then.set("dtype", name_of(dtype));
        return then;
      },
      [](const SemanticError& e) { return failed(e, {}); });
  out.set("warnings", warnings_shown(session));
  return out;
}

}  // namespace

json::Value witness_gather(std::string_view group, const Given& given, Subject& subject) {
  if (group != "gather") refuse_word("group", group, {"gather"});
  const Case c = case_in(given);
  json::Value out;
  run_ranks(c.ranks, "tp", [&](int rank, const GroupPtr& ranks) {
    Session session = session_of(given, subject);
    json::Value mine = gathered(session, c, rank, ranks);
    if (rank == 0) out = std::move(mine);
  });
  return out;
}

}  // namespace assay
