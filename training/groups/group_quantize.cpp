#include "training/groups/group_quantize.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "training/base/f32.h"
#include "training/formats/formats.h"

namespace assay::training {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw SemanticError(ErrorClass::runtime_error, what); }
void need(bool holds, const char* entry, const std::string& expected, const std::string& found) {
  if (!holds) refuse(std::string(entry) + ": expected " + expected + ", found " + found);
}

// The members of x by the sizes that are given, and what varies.
GroupedLayout layout(const char* entry, const Array& x, int64_t n, const ArrayPtr& first_dims,
                     const ArrayPtr& last_dims) {
  need(x.shape.size() == 2, entry, "a matrix that holds all members",
       "a tensor of " + std::to_string(x.shape.size()) + " dimensions");
  need(n > 0, entry, "at least one member", std::to_string(n));
  GroupedLayout out{n, std::nullopt, std::nullopt, {x.shape[0], x.shape[1]}};
  if (first_dims) out.first_dims = int64_values(*first_dims);
  if (last_dims) out.last_dims = int64_values(*last_dims);
  if (!first_dims && !last_dims)
    need(x.shape[0] % n == 0, entry, "rows that " + std::to_string(n) + " members share evenly",
         std::to_string(x.shape[0]));
  return out;
}

// What the kernels of each format refuse.
void check(const char* entry, const Session& session, const Quantizer& q, const GroupedTensor& g, DType dtype,
           int64_t nvfp4_rows) {
  const auto never = [&](bool bad, const char* what) {
    need(!bad, entry, "no " + std::string(what) + " with " + std::string(q.class_name()), "it");
  };
  if (dynamic_cast<const MXFP8Quantizer*>(&q)) {
    for (const Dims& m : g.tensor_shapes)
      need(m[0] % 32 == 0 && m[1] % 32 == 0, entry, "members of multiples of 32 rows and columns",
           std::to_string(m[0]) + "x" + std::to_string(m[1]));
  } else if (dynamic_cast<const Float8CurrentScalingQuantizer*>(&q)) {
    never(g.varying_both_dims(), "sizes that vary both ways");
  } else if (dynamic_cast<const Float8BlockQuantizer*>(&q)) {
    never(!g.all_same_last_dim(), "last dimensions that vary");
    need(session.arch == Arch::sm90, entry,
         "sm90, the only architecture with the kernel of Float8BlockQuantizer,", "another architecture");
    for (const Dims& m : g.tensor_shapes)
      need(m[0] % 128 == 0, entry, "members of a multiple of 128 rows", std::to_string(m[0]));
  } else if (const auto* fp4 = dynamic_cast<const NVFP4Quantizer*>(&q)) {
    need(fp4->with_rht && fp4->with_post_rht_amax, entry, "NVFP4Quantizer with RHT and the amax after it",
         "one without");
    never(fp4->with_2d_quantization, "2-D blocks");
    never(fp4->nvfp4_use_4over6, "four over six");
    never(!g.all_same_last_dim(), "last dimensions that vary");
    never(fp4->reduction.enabled && fp4->reduction.group, "amax reduction");
    need(session.arch == Arch::sm100 || session.arch == Arch::sm110, entry,
         "sm100 or sm110, which have the kernels of NVFP4 with RHT,", "another architecture");
    need(dtype == DType::bfloat16, entry, "bfloat16 to rotate", std::string(name_of(dtype)));
    for (const Dims& m : g.tensor_shapes)
      need(m[0] % nvfp4_rows == 0 && m[1] % 128 == 0, entry,
           "members of multiples of " + std::to_string(nvfp4_rows) + " rows and 128 columns",
           std::to_string(m[0]) + "x" + std::to_string(m[1]));
  }
}

// The buffer that an output plane belongs to; null for planes that no buffer holds.
ArrayPtr buffer_of(const GroupedTensor& g, const Plane& plane) {
  if (!plane.direction) return nullptr;
  const bool row = plane.direction == Direction::row;
  const std::string stem = plane.name.substr(plane.name.find('.') + 1);
  if (stem == "data") return row ? g.rowwise_data : g.columnwise_data;
  if (stem == "scale_inv" || stem == "scale_gemm") return row ? g.scale_inv : g.columnwise_scale_inv;
  if (stem == "amax") return row || !g.columnwise_amax ? g.amax : g.columnwise_amax;
  if (stem == "scale") return g.scale;
  return nullptr;
}

PlaneData filled(const Plane& plane, std::span<const std::byte> bytes) {
  PlaneData out{plane, std::vector<std::byte>(plane.bytes())};
  std::copy_n(bytes.begin(), std::min(bytes.size(), out.bytes.size()), out.bytes.begin());
  return out;
}

// The planes that `problem` reads, with given amaxes and the flag where it has them.
std::vector<PlaneData> inputs_of(const Problem& problem, const Array& x, std::span<const F32Bits> amaxes) {
  const Split& op = *problem.as<Split>();
  std::vector<PlaneData> out;
  for (const Plane& plane : input_planes(problem)) {
    std::vector<uint32_t> words;
    if (plane.name == "x") {
      out.push_back(filled(plane, x.bytes()));
      continue;
    }
    if (plane.name == "first_dims" || plane.name == "last_dims")
      for (Shape m : op.members)
        words.push_back(static_cast<uint32_t>(plane.name == "first_dims" ? m.rows : m.cols));
    else if (plane.name == "noop") words = {*op.noop};
    else words.assign(amaxes.begin(), amaxes.end());
    out.push_back(filled(plane, std::as_bytes(std::span(words))));
  }
  return out;
}

// Runs the split and moves what it wrote into the group's buffers; what a flag kept, or what stands beyond
// the members, stays.
void run(Session& session, const Problem& problem, const Array& x, GroupedTensor& g,
         std::span<const F32Bits> amaxes = {}) {
  std::vector<PlaneData> keep;
  for (const Plane& plane : output_planes(problem))
    if (const ArrayPtr buffer = buffer_of(g, plane)) keep.push_back(filled(plane, buffer->bytes()));
  for (const PlaneData& made : session.run(problem, inputs_of(problem, x, amaxes), keep)) {
    const ArrayPtr buffer = buffer_of(g, made.plane);
    if (!buffer) continue;
    const size_t used = made.plane.bytes_of(made.plane.logical.cols);
    need(used <= buffer->bytes().size(), "group_quantize",
         "a buffer of " + std::to_string(used) + " bytes for " + made.plane.name,
         std::to_string(buffer->bytes().size()));
    std::copy_n(made.bytes.begin(), used, buffer->bytes().begin());
  }
}

// The group that is written: the caller's, or a new one; either is checked against what the kernels of its
// format take.
GroupedTensorPtr destination(const char* entry, Session& session, const Array& x,
                             const QuantizerPtr& quantizer, int64_t n, const GroupQuantizeOptions& options) {
  const GroupedLayout sizes = layout(entry, x, n, options.first_dims, options.last_dims);
  need(quantizer != nullptr, entry, "a quantizer", "none");
  if (quantizer->custom() || dynamic_cast<const Float8Quantizer*>(quantizer.get()) ||
      quantizer->compatible_recipe() == "CustomRecipe")
    refuse(std::string(entry) +
           ": expected a quantizer of MXFP8, current scaling, blockwise FP8 or NVFP4, found " +
           std::string(quantizer->class_name()));
  GroupedTensorPtr g = options.output;
  if (g) {
    need(g->all_same_shape() && !options.first_dims && !options.last_dims, entry,
         "an output to reuse whose members are all alike", "sizes that vary");
    need(g->num_tensors == n && g->logical_shape == sizes.logical, entry,
         "an output to reuse of the same members", "others");
    need(g->quantizer == quantizer, entry, "an output to reuse that has the same quantizer object",
         "another");
  } else {
    g = make_grouped_tensor(session, sizes, quantizer, x.dtype);
  }
  check(entry, session, *quantizer, *g, x.dtype, options.nvfp4_rows);
  if (const ArrayPtr& offsets = options.tensor_offsets) {
    need(offsets->dtype == DType::int64 && offsets->count() == n + 1, entry,
         "tensor_offsets of " + std::to_string(n + 1) + " int64",
         std::to_string(offsets->count()) + " of " + std::string(name_of(offsets->dtype)));
    g->tensor_offsets = offsets;
  }
  return g;
}

// The split that fills the group; without a direction where there is nothing to do.
Problem split_of(const GroupedTensor& g, const Array& x) {
  Problem p;
  Split op;
  op.vary = g.varying_both_dims() ? Vary::both
            : g.first_dims        ? Vary::first
            : g.last_dims         ? Vary::last
                                  : Vary::none;
  int64_t rows = 0, cols = 0, elements = 0;
  for (const Dims& m : g.tensor_shapes) {
    op.members.push_back({m[0], m[1]});
    rows += m[0], cols += m[1], elements += m[0] * m[1];
  }
  if (elements == 0) return p;
  op.capacity = x.count();
  p.x.source = encoding_of(x.dtype);
  p.x.shape = op.vary == Vary::both   ? Shape{1, elements}
              : op.vary == Vary::last ? Shape{op.members[0].rows, cols}
                                      : Shape{rows, op.members[0].cols};
  if (g.rowwise_data) p.row = g.quantizer->line(Direction::row);
  if (g.columnwise_data) p.col = g.quantizer->line(Direction::col);
  p.op = op;
  return p;
}

// Scales by the amaxes of the reduction's group: a first launch finds this rank's own, a second one scales by
// the group's.
void run_reduced(const char* entry, Session& session, Problem p, const Array& x, GroupedTensor& g,
                 const AmaxReduction& reduction) {
  need(reduction.group != nullptr, entry, "an amax_reduction_group with with_amax_reduction", "none");
  const std::optional<F32Bits> noop = p.as<Split>()->noop;
  Problem find = p;
  find.as<Split>()->noop.reset();
  std::vector<F32Bits> amaxes;
  for (const PlaneData& made : session.run(find, inputs_of(find, x, {})))
    if (made.plane.name.ends_with(".amax") && amaxes.empty())
      amaxes = f32_bits(*from_bytes({g.num_tensors}, DType::float32, made.bytes));
  session.collectives.push_back({"all_reduce_max", session.tensor_name, reduction.group->name});
  if (reduction.group->all_reduce_max) reduction.group->all_reduce_max(amaxes);
  for (Direction d : kDirections)
    if (p.quantizer(d)) p.quantizer(d)->amax = amaxes.front();
  run(session, p, x, g, amaxes);
  if (noop != F32Bits{0x3F800000})
    std::memcpy(g.amax->bytes().data(), amaxes.data(), amaxes.size() * sizeof(F32Bits));
}

GroupedTensorPtr grouped(const char* entry, Session& session, const ArrayPtr& x,
                         const QuantizerPtr& quantizer, int64_t n, const GroupQuantizeOptions& options) {
  const GroupedTensorPtr g = destination(entry, session, *x, quantizer, n, options);
  Problem p = split_of(*g, *x);
  if (!p.row && !p.col) return g;
  const auto* fp4 = dynamic_cast<const NVFP4Quantizer*>(quantizer.get());
  if (!fp4) p.as<Split>()->noop = options.noop;
  g->with_gemm_swizzled_scales = (p.row ? p.row : p.col)->scales == ScaleLayout::gemm;
  if (fp4 && fp4->stochastic_rounding)
    p.rng =
        options.rng ? *options.rng : session.rng.draw("NVFP4Quantizer group", true, static_cast<uint64_t>(n));
  const ArrayPtr source = contiguous(x);
  const AmaxReduction* reduction = quantizer->amax_reduction();
  if (!fp4 && reduction && reduction->enabled) run_reduced(entry, session, p, *source, *g, *reduction);
  else run(session, p, *source, *g);
  g->quantized_tensors = g->split_into_quantized_tensors(session);
  return g;
}

// Moves compact row scales to the layout that GEMMs read, in place.
void swizzle_row_scales(Session& session, MXFP8Storage& storage, const MXFP8Quantizer& quantizer) {
  const Dims m = storage.size();
  Problem p;
  p.op = Swizzle{};
  p.x.shape = {m[0], m[1]};
  p.x.source = Encoding::e8m0;
  p.row = quantizer.line(Direction::row);
  p.row->scales = ScaleLayout::compact;
  const std::span<std::byte> scales = storage.rowwise_scale_inv->bytes();
  const std::vector<PlaneData> moved = session.run(p, {filled(input_planes(p).front(), scales)});
  std::copy_n(moved.front().bytes.begin(), scales.size(), scales.begin());
}

}  // namespace

GroupedTensorPtr group_quantize(Session& session, const ArrayPtr& x, const QuantizerPtr& quantizer,
                                int64_t num_tensors, const GroupQuantizeOptions& options) {
  return grouped("group_quantize", session, x, quantizer, num_tensors, options);
}

std::pair<GroupedTensorPtr, ArrayPtr> bgrad_group_quantize(Session& session, const ArrayPtr& x,
                                                           const QuantizerPtr& quantizer, int64_t num_tensors,
                                                           const ArrayPtr& first_dims) {
  constexpr const char* kEntry = "bgrad_group_quantize";
  const bool mxfp8 = dynamic_cast<const MXFP8Quantizer*>(quantizer.get());
  need(mxfp8 || dynamic_cast<const Float8BlockQuantizer*>(quantizer.get()), kEntry,
       "a quantizer of MXFP8 or blockwise FP8", quantizer ? std::string(quantizer->class_name()) : "none");
  GroupedTensorPtr g = grouped(kEntry, session, x, quantizer, num_tensors, {.first_dims = first_dims});
  const RowSum order = !mxfp8                        ? RowSum::plain
                       : quantizer->columnwise_usage ? RowSum::chunks
                                                     : RowSum::chunks_rowwise_only;
  std::vector<ArrayPtr> sums;
  int64_t row = 0;
  for (const Dims& m : g->tensor_shapes) {
    const ArrayPtr sum = cast(session, sum_rows(session, slice(x, 0, row, row + m[0]), order), x->dtype);
    sums.push_back(view(sum, {1, m[1]}));
    row += m[0];
  }
  return {g, concatenate(sums)};
}

GroupedTensorPtr group_dequantize(Session& session, GroupedTensor& group, DType to) {
  constexpr const char* kEntry = "group_dequantize";
  need(dynamic_cast<const MXFP8Quantizer*>(group.quantizer.get()) ||
           dynamic_cast<const Float8BlockQuantizer*>(group.quantizer.get()),
       kEntry, "a group of MXFP8 or blockwise FP8",
       group.quantizer ? std::string(group.quantizer->class_name()) : "high precision");
  need(group.has_data() != group.has_columnwise_data(), kEntry, "exactly one direction",
       group.has_data() ? "both" : "none");
  GroupedLayout sizes{group.num_tensors, std::nullopt, std::nullopt, group.logical_shape};
  if (group.first_dims) sizes.first_dims = int64_values(*group.first_dims);
  if (group.last_dims) sizes.last_dims = int64_values(*group.last_dims);
  GroupedTensorPtr out = make_grouped_tensor(session, sizes, nullptr, to);
  const std::vector<ArrayPtr> values = group.dequantize(session, to);
  for (size_t i = 0; i < values.size(); ++i)
    copy_into(*values[i], *std::get<ArrayPtr>(out->quantized_tensors[i]));
  return out;
}

ArrayPtr group_requantize_inplace(Session& session, GroupedTensor& group, const QuantizerPtr& quantizer,
                                  DType to, bool return_dequantized) {
  constexpr const char* kEntry = "group_requantize_inplace";
  const auto* came = dynamic_cast<const MXFP8Quantizer*>(group.quantizer.get());
  const auto* wanted = dynamic_cast<const MXFP8Quantizer*>(quantizer.get());
  need(came && wanted, kEntry, "a group and a quantizer of MXFP8",
       !came       ? "another group"
       : quantizer ? std::string(quantizer->class_name())
                   : "no quantizer");
  need(came->dtype == wanted->dtype, kEntry,
       "a quantizer of the group's dtype, " + std::string(info(came->dtype).name) + ",",
       std::string(info(wanted->dtype).name));
  need(group.has_data(), kEntry, "row data", "none");
  if (group.with_gemm_swizzled_scales) {
    need(!return_dequantized, kEntry, "scales in compact format to dequantize rows from", "swizzled ones");
    need(group.has_columnwise_data() || !quantizer->columnwise_usage, kEntry,
         "columns beside swizzled scales, from which they cannot be rebuilt", "none");
    return nullptr;
  }
  need(!group.has_columnwise_data(), kEntry, "rows alone, or a group whose scales are swizzled",
       "compact columns");
  for (const Dims& m : group.tensor_shapes)
    need(m[0] % 128 == 0 && m[1] % 128 == 0, kEntry, "members of multiples of 128 rows and columns",
         std::to_string(m[0]) + "x" + std::to_string(m[1]));

  ArrayPtr rows;
  if (quantizer->columnwise_usage || return_dequantized)
    rows = view(group_dequantize(session, group, to)->rowwise_data,
                {group.logical_shape.rows, group.logical_shape.cols});
  if (quantizer->columnwise_usage) {
    const QuantizerPtr columns = quantizer->copy();
    columns->set_usage(false, true);
    columns->optimize_for_gemm = true;
    const GroupedTensorPtr made =
        group_quantize(session, rows, columns, group.num_tensors,
                       {.first_dims = group.first_dims, .last_dims = group.last_dims});
    group.columnwise_data = made->columnwise_data;
    group.columnwise_scale_inv = made->columnwise_scale_inv;
    group.columnwise_scale_inv_offsets = made->columnwise_scale_inv_offsets;
  }
  for (const Tensorlike& member : group.quantized_tensors) {
    auto& storage = dynamic_cast<MXFP8Storage&>(*std::get<StoragePtr>(member));
    if (count_of(storage.size()) == 0) continue;
    swizzle_row_scales(session, storage, *came);
    group.with_gemm_swizzled_scales = true;  // of members that are all empty there is nothing to move
  }
  group.quantized_tensors = group.split_into_quantized_tensors(session);
  return return_dequantized ? rows : nullptr;
}

}  // namespace assay::training
