#include "training/groups/split_quantize.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <string_view>
#include <typeinfo>

#include "training/base/f32.h"
#include "training/formats/formats.h"
#include "training/groups/group_quantize.h"

namespace assay::training {

namespace {

using std::string;

[[noreturn]] void value_error(const string& what) { throw SemanticError(ErrorClass::value_error, what); }

// Exactly one of the classes, as the original asks: a subclass takes the Python route.
template <class... Classes> bool is_exactly(const Quantizer& q) {
  return ((typeid(q) == typeid(Classes)) || ...);
}
bool native(const Quantizer& q) {
  return is_exactly<Float8Quantizer, Float8CurrentScalingQuantizer, MXFP8Quantizer, Float8BlockQuantizer,
                    NVFP4Quantizer>(q);
}
bool fuses_bias_gradient(const Quantizer& q) {
  return is_exactly<Float8Quantizer, Float8CurrentScalingQuantizer, MXFP8Quantizer>(q);
}

bool is_identity(const Quantizer& q) { return dynamic_cast<const IdentityQuantizer*>(&q) != nullptr; }
const HybridQuantizer* as_hybrid(const Quantizer* q) { return dynamic_cast<const HybridQuantizer*>(q); }

std::vector<ArrayPtr> parts(const ArrayPtr& x, const std::vector<int64_t>& splits) {
  const int64_t rows = x->shape.empty() ? 0 : x->shape[0],
                all = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  if (rows != all)
    throw SemanticError(ErrorClass::runtime_error, "split: expected splits that add up to the " +
                                                       std::to_string(rows) + " rows of the tensor, found " +
                                                       std::to_string(all));
  std::vector<ArrayPtr> out;
  int64_t at = 0;
  for (int64_t s : splits) {
    out.push_back(slice(x, 0, at, at + s));
    at += s;
  }
  return out;
}

// One direction of all experts, or all of a plain one.
std::vector<StoragePtr> quantized(Session& session, const ArrayPtr& x, const std::vector<int64_t>& splits,
                                  const std::vector<QuantizerPtr>& quantizers, const SplitOptions& options,
                                  const SplitEntries& entries) {
  if (!quantizers.empty() && native(*quantizers[0]))
    return entries.bulk(session, x, splits, quantizers, options.disable_bulk_allocation);
  const std::vector<ArrayPtr> pieces = parts(x, splits);
  std::vector<StoragePtr> out;
  for (size_t i = 0; i < pieces.size(); ++i) out.push_back(quantizers[i]->quantize(session, pieces[i]));
  return out;
}

std::vector<Tensorlike> hybrid(Session& session, const ArrayPtr& x, const std::vector<int64_t>& splits,
                               const std::vector<QuantizerPtr>& quantizers, const SplitOptions& options,
                               const SplitEntries& entries) {
  const HybridQuantizer& first = *as_hybrid(quantizers[0].get());  // usages and source are expert 0's
  std::vector<QuantizerPtr> rows, cols;
  for (const QuantizerPtr& q : quantizers) {
    const HybridQuantizer* one = as_hybrid(q.get());
    if (!one)
      value_error("split_quantize: expected hybrid quantizers for all experts as for the first, found " +
                  string(q ? q->class_name() : "None"));
    rows.push_back(one->rowwise_quantizer);
    cols.push_back(one->columnwise_quantizer);
  }
  const bool from_rows = first.columnwise_usage && first.columnwise_source == "rowwise_dequantized";
  std::vector<StoragePtr> row(splits.size()), col(splits.size());
  if (first.rowwise_usage || from_rows) row = quantized(session, x, splits, rows, options, entries);
  if (first.columnwise_usage) {
    ArrayPtr source = x;
    if (from_rows && !splits.empty()) {
      std::vector<ArrayPtr> values;
      for (const StoragePtr& r : row) values.push_back(r->dequantize(session, x->dtype));
      source = concatenate(values);
    }
    col = quantized(session, source, splits, cols, options, entries);
  }
  std::vector<Tensorlike> out;
  for (size_t i = 0; i < splits.size(); ++i) {
    auto both = std::make_shared<HybridStorage>(first.rowwise_usage ? row[i] : nullptr, col[i], quantizers[i],
                                                x->dtype);
    both->is_tensor = false;
    out.emplace_back(StoragePtr(both));
  }
  return out;
}

// The settings of NVFP4 splits that are served as one list, null where each is quantized as alone.
// RuntimeError for what no list can have, with RHT or without, on any architecture (TE
// csrc/extensions/cast.cpp split_quantize_nvfp4_impl).
const NVFP4Quantizer* listed_nvfp4(const ArrayPtr& x, const std::vector<QuantizerPtr>& quantizers,
                                   bool disable_bulk_allocation) {
  const auto as_fp4 = [](const QuantizerPtr& q) { return dynamic_cast<const NVFP4Quantizer*>(q.get()); };
  const bool all = std::all_of(quantizers.begin(), quantizers.end(), [&](const QuantizerPtr& q) {
    return as_fp4(q) && !as_fp4(q)->row_scaled_nvfp4;
  });
  if (!all || disable_bulk_allocation || x->count() == 0 || flattened(x->shape).cols % 128 != 0)
    return nullptr;
  const NVFP4Quantizer& q = *as_fp4(quantizers[0]);
  const auto never = [](bool bad, const char* what) {
    if (bad)
      throw SemanticError(ErrorClass::runtime_error,
                          string("split_quantize: expected NVFP4 splits without ") + what +
                              ", found it; turn it off, or disable bulk allocation");
  };
  never(q.with_2d_quantization, "2-D blocks");
  never(q.reduction.enabled, "amax reduction");
  never(q.nvfp4_use_4over6 && q.with_rht, "RHT under four over six");
  never(q.nvfp4_use_4over6 && q.stochastic_rounding, "stochastic rounding under four over six");
  never(q.with_rht && x->dtype != DType::bfloat16, "RHT of anything but bfloat16");
  return &q;
}

// All splits in one launch. Splits of multiples of 128 rows share one state of the generator between the
// directions, others have a second one for the columns.
std::vector<StoragePtr> fused(Session& session, const ArrayPtr& x, const std::vector<int64_t>& splits,
                              const std::vector<QuantizerPtr>& quantizers) {
  const auto& q = static_cast<const NVFP4Quantizer&>(*quantizers[0]);
  const int64_t n = static_cast<int64_t>(splits.size());
  const auto draw = [&](const char* who) { return session.rng.draw(who, true, static_cast<uint64_t>(n)); };
  const bool aligned = std::all_of(splits.begin(), splits.end(), [](int64_t s) { return s % 128 == 0; });
  GroupQuantizeOptions options{.first_dims = int64_array(splits), .nvfp4_rows = 64};
  const ArrayPtr matrix = view(contiguous(x), {flattened(x->shape).rows, flattened(x->shape).cols});
  GroupedTensorPtr rows, cols;
  if (q.stochastic_rounding) options.rng = draw("NVFP4Quantizer split");
  if (q.stochastic_rounding && !aligned && q.rowwise_usage && q.columnwise_usage) {
    const QuantizerPtr row_only = q.copy(), col_only = q.copy();
    row_only->set_usage(true, false);
    col_only->set_usage(false, true);
    rows = group_quantize(session, matrix, row_only, n, options);
    options.rng = draw("NVFP4Quantizer split columns");
    cols = group_quantize(session, matrix, col_only, n, options);
  } else {
    rows = cols = group_quantize(session, matrix, quantizers[0], n, options);
  }
  std::vector<StoragePtr> out;
  for (size_t i = 0; i < splits.size(); ++i) {
    const StoragePtr member = std::get<StoragePtr>(rows->quantized_tensors[i]),
                     of_cols = std::get<StoragePtr>(cols->quantized_tensors[i]);
    for (size_t f = 0; f < member->fields().size(); ++f)
      if (ArrayPtr& slot = *member->fields()[f].slot; !slot) slot = *of_cols->fields()[f].slot;
    member->keep(quantizers[i]);
    out.push_back(member);
  }
  return out;
}

// Lays the members' buffers of one kind one after the other in memory that they share.
void share_buffers(std::vector<StoragePtr>& members) {
  if (members.empty()) return;
  const size_t kinds = members[0]->fields().size();
  for (size_t k = 0; k < kinds; ++k) {
    std::vector<ArrayPtr> flat;
    for (const StoragePtr& m : members)
      if (const ArrayPtr buffer = *m->fields()[k].slot)
        flat.push_back(view(contiguous(buffer), {buffer->count()}));
    if (flat.size() != members.size()) continue;
    const ArrayPtr whole = concatenate(flat);
    int64_t at = 0;
    for (const StoragePtr& m : members) {
      ArrayPtr& slot = *m->fields()[k].slot;
      const int64_t count = slot->count();
      slot = view(slice(whole, 0, at, at + count), slot->shape);
      at += count;
    }
  }
}

// What tells two backends of one class apart. Classes without value fields compare by their dtype alone:
// scales may differ between experts.
json::Value settings_of(const Quantizer& q) {
  std::vector<string> fields = q.value_fields();
  if (fields.empty()) fields = {"dtype"};
  constexpr std::array<std::string_view, 4> kIgnored = {"rowwise_usage", "columnwise_usage", "internal",
                                                        "optimize_for_gemm"};
  const json::Value all = q.describe();
  json::Value out = json::object();
  for (const string& f : fields)
    if (const json::Value* v = all.find(f);
        v && std::find(kIgnored.begin(), kIgnored.end(), f) == kIgnored.end())
      out.set(f, *v);
  return out;
}

struct Backend {
  std::string_view direction;  // "plain", "rowwise", "columnwise": as the messages say
  const Quantizer* quantizer;
};
std::vector<Backend> backends(const Quantizer& q) {
  const HybridQuantizer* h = as_hybrid(&q);
  if (!h) return {{"plain", &q}};
  return {{"rowwise", h->rowwise_quantizer.get()}, {"columnwise", h->columnwise_quantizer.get()}};
}

}  // namespace

SplitEntries::SplitEntries() : bulk(bulk_quantize), bgrad(bgrad_quantize) {}

std::vector<StoragePtr> bulk_quantize(Session& session, const ArrayPtr& x, const std::vector<int64_t>& splits,
                                      const std::vector<QuantizerPtr>& quantizers,
                                      bool disable_bulk_allocation) {
  const std::vector<ArrayPtr> pieces = parts(x, splits);
  std::vector<StoragePtr> out;
  if (pieces.empty()) return out;
  const Quantizer& first = *quantizers[0];
  const NVFP4Quantizer* listed = listed_nvfp4(x, quantizers, disable_bulk_allocation);
  const bool one_launch =
      listed && listed->with_rht && (session.arch == Arch::sm100 || session.arch == Arch::sm110);
  if (one_launch) {
    out = fused(session, x, splits, quantizers);
  } else {
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (listed && listed->stochastic_rounding && !listed->with_rht && pieces[i]->count() == 0)
        session.rng.draw("NVFP4Quantizer empty split", false);  // a loop draws before it looks
      out.push_back(quantizers[i]->quantize(session, pieces[i]));
    }
  }
  const bool shares =
      !disable_bulk_allocation && is_exactly<MXFP8Quantizer, Float8BlockQuantizer, NVFP4Quantizer>(first);
  if (shares && !one_launch) share_buffers(out);
  return out;
}

ArrayPtr fused_bias_gradient(Session& session, const ArrayPtr& x, const Quantizer& quantizer) {
  const bool columns = quantizer.columnwise_usage, mxfp8 = is_exactly<MXFP8Quantizer>(quantizer);
  // Rows alone of delayed scaling are summed by its kernel from sm100 on; with columns the order follows the
  // number of multiprocessors, which no line knows.
  const bool delayed_rows = is_exactly<Float8Quantizer>(quantizer) && !columns && session.arch != Arch::sm90;
  const RowSum order = mxfp8 && !columns       ? RowSum::chunks_rowwise_only
                       : mxfp8 || delayed_rows ? RowSum::chunks
                                               : RowSum::plain;
  return cast(session, sum_rows(session, x, order), x->dtype);
}

std::pair<StoragePtr, ArrayPtr> bgrad_quantize(Session& session, const ArrayPtr& x,
                                               const QuantizerPtr& quantizer) {
  return {quantizer->quantize(session, x), fused_bias_gradient(session, x, *quantizer)};
}

SplitResult split_quantize(Session& session, const ArrayPtr& x, const std::vector<int64_t>& splits,
                           const std::vector<QuantizerPtr>& quantizers, const SplitOptions& options,
                           const SplitEntries& entries) {
  if (quantizers.size() != splits.size())
    value_error("split_quantize: expected a quantizer for each of " + std::to_string(splits.size()) +
                " splits, found " + std::to_string(quantizers.size()));
  SplitResult out;
  if (splits.empty()) return out;
  const Quantizer* first = options.with_quantized_output ? quantizers[0].get() : nullptr;
  if (first && options.bias_gradient && fuses_bias_gradient(*first)) {
    const std::vector<ArrayPtr> pieces = parts(x, splits);
    for (size_t i = 0; i < pieces.size(); ++i) {
      auto [storage, gradient] = entries.bgrad(session, pieces[i], quantizers[i]);
      out.outputs.emplace_back(std::move(storage));
      out.bias_gradients.push_back(std::move(gradient));
    }
    return out;
  }
  if (options.bias_gradient)
    for (const ArrayPtr& piece : parts(x, splits))
      out.bias_gradients.push_back(cast(session, sum_rows(session, piece, RowSum::plain), x->dtype));
  const auto* identity =
      first && is_exactly<IdentityQuantizer>(*first) ? static_cast<const IdentityQuantizer*>(first) : nullptr;
  if (!first ||
      (identity && identity->dtype.value_or(options.activation_dtype) == options.activation_dtype)) {
    for (const ArrayPtr& piece : parts(cast(session, x, options.activation_dtype), splits))
      out.outputs.emplace_back(piece);
  } else if (as_hybrid(first)) {
    out.outputs = hybrid(session, x, splits, quantizers, options, entries);
  } else {
    const ArrayPtr source = native(*first) ? x : cast(session, x, options.activation_dtype);
    for (StoragePtr& s : quantized(session, source, splits, quantizers, options, entries))
      out.outputs.emplace_back(std::move(s));
  }
  return out;
}

void validate_split_quantizers(const std::vector<QuantizerPtr>& quantizers) {
  const auto all_agree = [&](auto&& property) {
    return std::all_of(quantizers.begin(), quantizers.end(), [&](const QuantizerPtr& q) {
      return property(q.get()) == property(quantizers[0].get());
    });
  };
  if (quantizers.empty()) return;
  if (!all_agree([](const Quantizer* q) { return q == nullptr; }))
    value_error(
        "experts' quantizers: found None and concrete ones for one tensor; return a quantizer for every "
        "expert or for none");
  if (!quantizers[0]) return;
  if (!all_agree([](const Quantizer* q) { return as_hybrid(q) != nullptr; }))
    value_error(
        "experts' quantizers: found HybridQuantizer and non-hybrid ones for one tensor; return one kind for "
        "every expert");
  if (!all_agree([](const Quantizer* q) { return identity_directions(q); }))
    value_error(
        "experts' quantizers: found Identity-backed and quantized ones for one direction; return one kind "
        "for every expert");
  const std::vector<Backend> wanted = backends(*quantizers[0]);
  for (size_t d = 0; d < wanted.size(); ++d)
    for (size_t i = 1; i < quantizers.size(); ++i) {
      const Quantizer &a = *wanted[d].quantizer, &b = *backends(*quantizers[i])[d].quantizer;
      const string where = "experts' " + string(wanted[d].direction) + " quantizers: ";
      if (typeid(a) != typeid(b))
        value_error(where + "expected one family for all, found the families " + string(a.class_name()) +
                    " and, of expert " + std::to_string(i) + ", " + string(b.class_name()));
      if (settings_of(a) != settings_of(b))
        value_error(where + "expected one configuration for all, found the configurations " +
                    json::dump(settings_of(a)) + " and, of expert " + std::to_string(i) + ", " +
                    json::dump(settings_of(b)));
    }
  if (as_hybrid(quantizers[0].get()) &&
      !all_agree([](const Quantizer* q) { return std::string_view(as_hybrid(q)->columnwise_source); }))
    value_error(
        "experts' quantizers: expected one columnwise_source for all, found original and "
        "rowwise_dequantized");
}

Usages identity_directions(const Quantizer* quantizer) {
  if (!quantizer) return {};
  if (const HybridQuantizer* h = as_hybrid(quantizer))
    return {is_identity(*h->rowwise_quantizer), is_identity(*h->columnwise_quantizer)};
  return {is_identity(*quantizer), is_identity(*quantizer)};
}

bool uses_identity(const Quantizer* quantizer) {
  const Usages u = identity_directions(quantizer);
  return u.rowwise || u.columnwise;
}

}  // namespace assay::training
