#include "training/formats/ops.h"

#include <algorithm>
#include <typeinfo>

#include "training/formats/formats.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

using std::string;

constexpr int64_t kMxBlock = 32;

size_t dimension(const Storage& s, int64_t dim) {
  const auto rank = static_cast<int64_t>(s.size().size());
  const int64_t d = dim < 0 ? dim + rank : dim;
  if (d < 0 || d >= rank)
    fail(ErrorClass::value_error,
         "expected a dimension of " + std::to_string(rank) + ", found " + std::to_string(dim));
  return static_cast<size_t>(d);
}

bool is_light(const StoragePtr& child) { return child && !child->is_tensor; }

Dims row_major(const Dims& shape) { return empty(shape, DType::uint8)->strides; }

// Both planes of a per-tensor FP8 tensor between start and end of logical dimension `dim`; a transpose has
// the last one in front.
StoragePtr cut(const Float8Storage& s, size_t dim, int64_t start, int64_t end) {
  const size_t rank = s.size().size();
  auto out = std::dynamic_pointer_cast<Float8Storage>(s.make_like());
  if (s.data) out->data = slice(s.data, dim, start, end);
  if (s.transpose) out->transpose = slice(s.transpose, dim + 1 == rank ? 0 : dim + 1, start, end);
  return out;
}
StoragePtr cut(const IdentityStorage& s, size_t dim, int64_t start, int64_t end) {
  auto out = std::dynamic_pointer_cast<IdentityStorage>(s.make_like());
  out->hp_data = slice(s.hp_data, dim, start, end);
  return out;
}

// Rows [start, end) of a compact scale, in a buffer of its own where a multiple of `grain` needs padding.
ArrayPtr scale_rows(const ArrayPtr& scale, int64_t start, int64_t end, int64_t grain) {
  const ArrayPtr rows = slice(scale, 0, start, end);
  const int64_t padded = round_up(end - start, grain);
  return padded == end - start ? rows : padded_with_zeros(rows, {padded, scale->shape[1]});
}

// Dim 0 between start and end, whose rows are multiples of a block's.
StoragePtr cut_rows(const MXFP8Storage& s, int64_t start, int64_t end, int64_t rows_each) {
  auto out = std::dynamic_pointer_cast<MXFP8Storage>(s.make_like());
  const int64_t from = start * rows_each, to = end * rows_each;
  if (s.rowwise_data) {
    out->rowwise_data = slice(s.rowwise_data, 0, start, end);
    out->rowwise_scale_inv = scale_rows(s.rowwise_scale_inv, from, to, 128);
  }
  if (s.columnwise_data) {
    out->columnwise_data = slice(s.columnwise_data, 0, start, end);
    out->columnwise_scale_inv = scale_rows(s.columnwise_scale_inv, from / kMxBlock, to / kMxBlock, 4);
  }
  return out;
}

// Starts and ends of pieces of `size` in `count`.
std::vector<std::pair<int64_t, int64_t>> chunks(int64_t count, int64_t size) {
  if (size <= 0)
    fail(ErrorClass::value_error, "split: expected a positive size, found " + std::to_string(size));
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t at = 0; at < count; at += size) out.emplace_back(at, std::min(at + size, count));
  return out;
}

// A hybrid of one piece of each child, or nothing where a child gave a plain tensor.
StoragePtr joined(const HybridStorage& h, const std::optional<Piece>& row, const std::optional<Piece>& col) {
  for (const auto* p : {&row, &col})
    if (*p && !std::holds_alternative<StoragePtr>(**p)) return nullptr;
  auto out = std::dynamic_pointer_cast<HybridStorage>(h.make_like());
  if (row) out->rowwise_storage = std::get<StoragePtr>(*row);
  if (col) out->columnwise_storage = std::get<StoragePtr>(*col);
  return out;
}

std::vector<Piece> split_hybrid(Session& session, HybridStorage& h, int64_t size) {
  std::vector<Piece> rows, cols, out;
  if (h.rowwise_storage) rows = split(session, *h.rowwise_storage, size, 0);
  if (h.columnwise_storage) cols = split(session, *h.columnwise_storage, size, 0);
  for (size_t i = 0; i < std::max(rows.size(), cols.size()); ++i) {
    const StoragePtr piece = joined(h, rows.empty() ? std::nullopt : std::optional(rows[i]),
                                    cols.empty() ? std::nullopt : std::optional(cols[i]));
    if (!piece)
      fail(ErrorClass::not_implemented_error,
           "split: expected children of a HybridQuantizedTensor that cut their bytes, found one that cannot; "
           "split into multiples of 32 rows, or dequantize first");
    out.push_back(piece);
  }
  return out;
}

void zero(Storage& s) {
  for (const Field& f : s.fields())
    if (*f.slot) *f.slot = zeros((*f.slot)->shape, (*f.slot)->dtype);
}

// The original sizes these scales without padding where it zeroes a tensor.
void drop_scale_padding(MXFP8Storage& s) {
  const Shape m = flattened(s.size());
  if (s.rowwise_scale_inv) s.rowwise_scale_inv = zeros({m.rows, m.cols / kMxBlock}, DType::uint8);
  if (s.columnwise_scale_inv) s.columnwise_scale_inv = zeros({m.rows / kMxBlock, m.cols}, DType::uint8);
}

bool is_training_dtype(DType t) { return t == DType::float32 || t == DType::float16 || t == DType::bfloat16; }

// Every buffer copied, whatever the class says of a clone.
StoragePtr copy_of(const Storage& s) {
  const StoragePtr out = s.make_like();
  for (const Field& f : out->fields())
    if (*f.slot) *f.slot = clone(*f.slot);
  return out;
}

// As a checkpoint has it: no live group, and of per-tensor FP8 neither quantizer nor a transpose that data
// can remake.
void strip(Storage& s) {
  if (s.quantizer) s.quantizer = exported(*s.quantizer);
  if (auto* fp8 = dynamic_cast<Float8Storage*>(&s)) {
    fp8->quantizer = nullptr;
    if (fp8->data) {
      fp8->transpose = nullptr;
      fp8->transpose_invalid = true;
    }
  }
  if (auto* h = dynamic_cast<HybridStorage*>(&s))
    for (const StoragePtr& child : {h->rowwise_storage, h->columnwise_storage})
      if (child) strip(*child);
}

}  // namespace

StoragePtr detach(const Storage& s) {
  if (const auto* h = dynamic_cast<const HybridStorage*>(&s);
      h && (is_light(h->rowwise_storage) || is_light(h->columnwise_storage)))
    fail(ErrorClass::not_implemented_error,
         "detach: expected tensors inside a HybridQuantizedTensor, found a light storage; make its "
         "quantizers not internal");
  return s.make_like();
}

StoragePtr clone(const Storage& s) {
  if (const auto* fp4 = dynamic_cast<const NVFP4Storage*>(&s); fp4 && !fp4->rowwise_data)
    fail(ErrorClass::assertion_error,
         "clone: expected row-wise data of an NVFP4Tensor, found none; keep the rows");
  return copy_of(s);
}

StoragePtr contiguous(const StoragePtr& s) {
  if (const auto* h = dynamic_cast<const HybridStorage*>(s.get())) {
    for (const StoragePtr& child : {h->rowwise_storage, h->columnwise_storage}) {
      if (is_light(child))
        fail(ErrorClass::value_error,
             "contiguous: expected tensors inside a HybridQuantizedTensor, found a light storage");
      if (child) contiguous(child);
    }
    return s;
  }
  const auto* block = dynamic_cast<const Float8BlockwiseStorage*>(s.get());
  if (block && !block->rowwise_data)
    fail(ErrorClass::value_error, "contiguous: expected a Float8BlockwiseQTensor with its rows, found none");
  for (const Field& f : s->fields())
    if (*f.slot && !(*f.slot)->contiguous())
      fail(ErrorClass::value_error,
           "contiguous: expected buffers without gaps, found " + f.name + " with strides");
  return s;
}

std::vector<Piece> split(Session& session, Storage& s, int64_t size, int64_t dim) {
  const Dims shape = s.size();
  const size_t d = dimension(s, dim);
  const auto parts = chunks(shape[d], size);
  std::vector<Piece> out;
  if (auto* h = dynamic_cast<HybridStorage*>(&s); h && d == 0) return split_hybrid(session, *h, size);
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(&s)) {
    for (const auto& [start, end] : parts) out.push_back(cut(*fp8, d, start, end));
    return out;
  }
  if (const auto* identity = dynamic_cast<const IdentityStorage*>(&s)) {
    for (const auto& [start, end] : parts) out.push_back(cut(*identity, d, start, end));
    return out;
  }
  if (const auto* mx = dynamic_cast<const MXFP8Storage*>(&s)) {
    const int64_t rows_each = count_of(Dims(shape.begin() + 1, shape.end())) / shape.back();
    if (d == 0 && shape.size() > 1 && shape[0] % size == 0 && size * rows_each % kMxBlock == 0 &&
        !mx->with_gemm_swizzled_scales) {
      for (const auto& [start, end] : parts) out.push_back(cut_rows(*mx, start, end, rows_each));
      return out;
    }
  }
  const ArrayPtr plain = s.dequantize(session);
  for (const auto& [start, end] : parts) out.push_back(slice(plain, d, start, end));
  return out;
}

Piece slice(Session& session, Storage& s, int64_t dim, int64_t start, int64_t end) {
  const size_t d = dimension(s, dim);
  if (start == 0 && end == s.size()[d]) return s.make_like();
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(&s)) return cut(*fp8, d, start, end);
  if (const auto* identity = dynamic_cast<const IdentityStorage*>(&s)) return cut(*identity, d, start, end);
  if (auto* h = dynamic_cast<HybridStorage*>(&s)) {
    const auto of = [&](const StoragePtr& child) {
      return child ? std::optional(slice(session, *child, dim, start, end)) : std::nullopt;
    };
    if (const StoragePtr both = joined(*h, of(h->rowwise_storage), of(h->columnwise_storage))) return both;
  }
  return slice(s.dequantize(session), d, start, end);
}

Piece as_strided(Session& session, Storage& s, const Dims& shape, const Dims& strides,
                 std::optional<int64_t> offset) {
  const Dims now = s.size();
  const auto* identity = dynamic_cast<const IdentityStorage*>(&s);
  if (identity) {
    auto out = std::dynamic_pointer_cast<IdentityStorage>(s.make_like());
    out->hp_data = as_strided(identity->hp_data, shape, strides, offset);
    return out;
  }
  const int64_t at = offset.value_or(0);
  if (shape == now && strides == row_major(now) && at == 0) return s.make_like();
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(&s)) {
    const int64_t row = now.empty() ? 1 : row_major(now)[0];
    const bool whole_rows = !now.empty() && shape.size() == now.size() && strides == row_major(now) &&
                            std::equal(shape.begin() + 1, shape.end(), now.begin() + 1) && at % row == 0 &&
                            at / row + shape[0] <= now[0];
    if (whole_rows) return cut(*fp8, 0, at / row, at / row + shape[0]);
    if (fp8->data) {
      auto out = std::dynamic_pointer_cast<Float8Storage>(s.make_like());
      out->data = as_strided(fp8->data, shape, strides, fp8->data->offset + at);
      out->transpose = nullptr;
      out->transpose_invalid = true;
      return out;
    }
  }
  if (auto* h = dynamic_cast<HybridStorage*>(&s)) {
    const auto of = [&](const StoragePtr& child) {
      return child ? std::optional(as_strided(session, *child, shape, strides, offset)) : std::nullopt;
    };
    if (const StoragePtr both = joined(*h, of(h->rowwise_storage), of(h->columnwise_storage))) return both;
  }
  return as_strided(s.dequantize(session), shape, strides, at);
}

StoragePtr new_zeros(Session& session, const Storage& like, const Dims& shape, std::optional<DType> dtype) {
  const Usages present = like.present();
  const auto* h = dynamic_cast<const HybridStorage*>(&like);
  if (h && !present.rowwise && !present.columnwise)
    fail(ErrorClass::runtime_error,
         "new_zeros: expected a HybridQuantizedTensor with a direction, found neither");
  if (!like.quantizer)
    fail(ErrorClass::runtime_error,
         "new_zeros: expected a " + string(like.class_name()) + " with its quantizer, found none");
  const DType nominal = dtype.value_or(like.dtype);
  const auto takes = [&](const Storage& s) {
    return is_training_dtype(nominal) || dynamic_cast<const IdentityStorage*>(&s) != nullptr;
  };
  const bool allowed = !h ? takes(like)
                          : (!h->rowwise_storage || takes(*h->rowwise_storage)) &&
                                (!h->columnwise_storage || takes(*h->columnwise_storage));
  if (!allowed)
    fail(ErrorClass::type_error,
         "new_zeros: expected float32, float16 or bfloat16, found " + string(name_of(nominal)));
  const QuantizerPtr q = like.quantizer->copy();
  q->set_usage(present.rowwise, present.columnwise);
  const StoragePtr out = q->make_empty(session, shape, nominal);
  zero(*out);
  if (auto* mx = dynamic_cast<MXFP8Storage*>(out.get())) drop_scale_padding(*mx);
  return out;
}

void copy_into(Session& session, Storage& src, Storage& dst) {
  const Storage &from = src, &to = dst;
  if (typeid(from) == typeid(to)) {  // the light class or not
    dst.copy_from_storage(src);
    if (auto* fp8 = dynamic_cast<Float8Storage*>(&dst);
        fp8 && fp8->transpose)  // one that was not copied is stale now
      fp8->transpose_invalid = !dynamic_cast<Float8Storage&>(src).has_transpose();
    return;
  }
  copy_into(session, src.dequantize(session), dst);
}

void copy_into(Session& session, const ArrayPtr& src, Storage& dst) { refresh(session, src, dst); }

void refresh(Session& session, const ArrayPtr& src, Storage& dst, std::optional<F32Bits> noop) {
  if (!dst.quantizer)
    fail(ErrorClass::runtime_error, "copy: expected a " + string(dst.class_name()) +
                                        " with its quantizer, found none; quantize it anew");
  QuantizerPtr q = dst.quantizer;
  if (dst.amax_reduction_group) {
    q = q->copy();
    set_amax_reduction_group(*q, dst.amax_reduction_group);
  }
  q->update_quantized(session, src, dst, noop);
}

void note_fsdp_group(Storage& s, const GroupPtr& mesh) {
  if (dynamic_cast<HybridStorage*>(&s)) set_amax_reduction_group(*s.quantizer, mesh);
  else if (s.quantizer && s.quantizer->amax_reduction()) s.amax_reduction_group = mesh;
}

Pickled pickled(const Storage& s) {
  const StoragePtr own = copy_of(s);
  strip(*own);
  Pickled out{{}, own->quantizer, own->dtype, s.size(), own};
  for (const Field& f : own->fields()) out.fields.emplace_back(f.name, *f.slot);
  own->prepare_for_saving();
  return out;
}

StoragePtr unpickled(const Pickled& p) {
  const StoragePtr out = p.husk->make_like();
  const std::vector<Field> fields = out->fields();
  for (size_t i = 0; i < fields.size(); ++i)
    if (p.fields[i].second) *fields[i].slot = clone(p.fields[i].second);
  return out;
}

HybridGather fsdp_pre_all_gather(HybridStorage& shard, const GroupPtr& mesh) {
  if (mesh) note_fsdp_group(shard, mesh);
  HybridGather out;
  // Both children are asked before either gives anything.
  const auto expect_fields = [](const StoragePtr& child, const char* direction) {
    if (!child) return;
    if (!is_light(child)) try {
        child->fsdp_buffer_fields();
        return;
      } catch (const SemanticError&) {}
    fail(ErrorClass::not_implemented_error,
         string("fsdp: expected a ") + direction +
             " tensor with fsdp_buffer_fields in a hybrid parameter, found a " + string(child->class_name()) +
             "; NVFP4, whose columnwise data cannot be dequantized, vectors of blockwise FP8 and light "
             "storages "
             "cannot be gathered");
  };
  expect_fields(shard.rowwise_storage, "rowwise");
  expect_fields(shard.columnwise_storage, "columnwise");
  const auto take = [&](const StoragePtr& child, json::Value& meta) {
    if (!child) return;
    Extracted e = child->fsdp_extract_buffers();
    out.buffers.insert(out.buffers.end(), e.buffers.begin(), e.buffers.end());
    meta = std::move(e.meta);
  };
  take(shard.rowwise_storage, out.row_meta);
  out.row_buffers = out.buffers.size();
  take(shard.columnwise_storage, out.col_meta);
  return out;
}

std::shared_ptr<HybridStorage> fsdp_post_all_gather(HybridStorage& shard, const HybridGather& sent,
                                                    const std::vector<ArrayPtr>& gathered,
                                                    std::shared_ptr<HybridStorage> out) {
  if (gathered.size() != sent.buffers.size())
    fail(ErrorClass::runtime_error, "fsdp: expected " + std::to_string(sent.buffers.size()) +
                                        " gathered buffers for a hybrid parameter, found " +
                                        std::to_string(gathered.size()));
  if (!out) out = std::dynamic_pointer_cast<HybridStorage>(shard.make_like());
  const auto parent = std::dynamic_pointer_cast<HybridQuantizer>(shard.quantizer);
  const auto middle = gathered.begin() + static_cast<std::ptrdiff_t>(sent.row_buffers);
  const auto put = [](const StoragePtr& child, const Quantizer& q, const std::vector<ArrayPtr>& buffers,
                      const json::Value& meta) {
    if (!child) return;
    child->fsdp_assign_gathered(buffers, meta);
    child->update_usage(q.rowwise_usage, q.columnwise_usage);
  };
  put(out->rowwise_storage, *parent->rowwise_quantizer, {gathered.begin(), middle}, sent.row_meta);
  put(out->columnwise_storage, *parent->columnwise_quantizer, {middle, gathered.end()}, sent.col_meta);
  return out;
}

std::shared_ptr<IdentityStorage> fsdp_post_all_gather(const IdentityStorage& shard,
                                                      const std::vector<ArrayPtr>& gathered, DType parameter,
                                                      std::shared_ptr<IdentityStorage> out) {
  if (gathered.size() != 1)
    fail(ErrorClass::value_error,
         "fsdp: expected 1 gathered buffer for an IdentityTensor, found " + std::to_string(gathered.size()));
  const auto* q = dynamic_cast<const IdentityQuantizer*>(shard.quantizer.get());
  const DType logical = q && q->dtype ? *q->dtype : parameter;
  if (gathered[0]->dtype != logical)
    fail(ErrorClass::runtime_error, "fsdp: expected a gathered payload of " + string(name_of(logical)) +
                                        ", the dtype of the " + (q && q->dtype ? "quantizer" : "parameter") +
                                        ", for an IdentityTensor, found " +
                                        string(name_of(gathered[0]->dtype)) +
                                        "; cast the shards, or name their dtype in IdentityQuantizer");
  if (!out) out = std::dynamic_pointer_cast<IdentityStorage>(shard.make_like());
  out->hp_data = gathered[0];
  out->dtype = logical;
  return out;
}

}  // namespace assay::training
