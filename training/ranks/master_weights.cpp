#include "training/ranks/master_weights.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "training/formats/formats.h"
#include "training/formats/kernel_quantizer.h"
#include "training/formats/parts.h"
#include "training/ranks/master_fragments.h"

namespace assay::training {

namespace {

using std::string;

[[noreturn]] void fail_weights(ErrorClass c, const string& what) {
  throw SemanticError(c, "quantize_master_weights: " + what);
}

template <class Q> Q& quantizer_of(Storage& s) { return dynamic_cast<Q&>(*s.quantizer); }

// A plane of one parameter, or of one child of a hybrid, that a fragment goes into.
struct Target {
  StoragePtr storage;
  ArrayPtr master;  // in the nominal dtype; null: none
  std::optional<int64_t> offset;
  ArrayPtr shard;          // null: the storage's own plane
  ArrayPtr shard_columns;  // of MXFP8, which writes both directions at once
  int64_t count() const { return count_of(storage->size()); }
  // Where fragments must lie inside the parameter.
  void check_offset() const {
    if (!master) return;
    if (!offset || *offset < 0) fail_weights(ErrorClass::value_error, "expected a start_offset of 0 and up");
    if (*offset + master->count() > count())
      fail_weights(ErrorClass::value_error,
                   "expected a fragment inside the parameter's " + std::to_string(count()) +
                       " elements, found one whose start_offset and length make an end that "
                       "exceeds them");
  }
  // A start for what slices or hands on a number, which None is not.
  void expect_offset() const {
    if (master && !offset) fail_weights(ErrorClass::type_error, "expected a start_offset, found none");
  }
  // The kernels of block scales take matrices, and nothing that lies outside of the parameter.
  void check_fragment() const {
    if (storage->size().size() != 2)
      fail_weights(ErrorClass::value_error, "expected a parameter that is 2D, found one of " +
                                                std::to_string(storage->size().size()) + " dimensions");
    expect_offset();
    if (master && (*offset < 0 || *offset + master->count() > count()))
      fail_weights(ErrorClass::runtime_error, "expected a fragment inside the parameter's " +
                                                  std::to_string(count()) + " elements, found " +
                                                  std::to_string(master->count()) + " from " +
                                                  std::to_string(*offset));
  }
  Fragment fragment() const { return {master, offset.value_or(0), flattened(storage->size())}; }
};

enum Bucket { kDelayed, kCurrent, kBlock, kMxfp8, kNvfp4, kIdentity, kBuckets };

Bucket bucket_of(const Storage& s) {
  const auto* fp8 = dynamic_cast<const Float8Storage*>(&s);
  if (fp8) return dynamic_cast<const Float8Quantizer*>(s.quantizer.get()) ? kDelayed : kCurrent;
  if (dynamic_cast<const Float8BlockwiseStorage*>(&s)) return kBlock;
  if (dynamic_cast<const MXFP8Storage*>(&s)) return kMxfp8;
  if (dynamic_cast<const NVFP4Storage*>(&s)) return kNvfp4;
  if (dynamic_cast<const IdentityStorage*>(&s)) return kIdentity;
  return kBuckets;
}

// Per-tensor FP8 that lives in its transpose: a fragment's rows are columns of it.
bool is_transpose_alone(const Storage& s) {
  const auto* fp8 = dynamic_cast<const Float8Storage*>(&s);
  return fp8 && !fp8->data && fp8->transpose && !fp8->transpose_invalid;
}

class Batch {
 public:
  Batch(Session& session, ProcessGroup& group, bool manual, const MasterLog& log)
      : session_(session), group_(group), manual_(manual), log_(log) {}
  void run(const std::vector<MasterWeight>& batch);

 private:
  void check(const MasterWeight&) const;
  void route(const MasterWeight&);
  void delayed(std::vector<Target>&);
  void current(std::vector<Target>&);
  void block(std::vector<Target>&);
  void mxfp8(std::vector<Target>&);
  void nvfp4(std::vector<Target>&);
  void identity(std::vector<Target>&);

  void call(json::Value v) const {
    if (log_) log_(std::move(v));
  }
  void reduce(std::vector<F32Bits>& amaxes, const char* dtype);
  void write_fp8(const Target&, std::span<const std::byte> bytes);
  void reset_columns(Storage&) const;
  std::vector<PlaneData> quantized(const ArrayPtr& x, const Quantizer& q, Direction d,
                                   std::optional<F32Bits> amax = std::nullopt);
  ArrayPtr codes(const ArrayPtr& x, const Quantizer& q, Direction d, const ArrayPtr& scale,
                 std::optional<F32Bits> amax = std::nullopt);

  Session& session_;
  ProcessGroup& group_;
  bool manual_;
  const MasterLog& log_;
  std::vector<Target> buckets_[kBuckets];
};

// ---- the batch -------------------------------------------------------------------------

void Batch::check(const MasterWeight& w) const {
  const auto* hybrid = storage_as<HybridStorage>(w.weight);
  const StoragePtr rows = hybrid ? hybrid->rowwise_storage : w.weight,
                   cols = hybrid ? hybrid->columnwise_storage : nullptr;
  for (const StoragePtr& s : {rows, cols})
    if (s && session_.tn_only() && !w.shard.empty() && is_transpose_alone(*s))
      fail_weights(ErrorClass::not_implemented_error,
                   "expected the byte plane of a Float8Tensor beside a shard, found a transpose alone");
  if (!hybrid) return;
  const auto& q = quantizer_of<HybridQuantizer>(*w.weight);
  if (hybrid->columnwise_storage && q.columnwise_source == "rowwise_dequantized")
    fail_weights(
        ErrorClass::not_implemented_error,
        "expected columnwise data made from the original, found a hybrid that makes it from its dequantized "
        "rowwise data");
  const bool both = hybrid->rowwise_storage && hybrid->columnwise_storage;
  if (!both || !w.master || w.shard.size() == 2) return;
  const int64_t count = count_of(w.weight->size());
  if (w.offset != 0 || w.master->count() != count)
    fail_weights(ErrorClass::value_error,
                 "expected all " + std::to_string(count) +
                     " elements for a hybrid with rowwise and columnwise data, found a partial fragment");
}

void Batch::route(const MasterWeight& w) {
  w.weight->init_value = nullptr;
  const ArrayPtr master =
      w.master ? cast(session_, w.master, w.weight->dtype) : nullptr;  // the first of two roundings
  const auto shard = [&](size_t i) { return i < w.shard.size() ? w.shard[i] : nullptr; };
  auto* hybrid = storage_as<HybridStorage>(w.weight);
  if (!hybrid) {
    const Bucket b = bucket_of(*w.weight);
    if (b == kBuckets)
      fail_weights(ErrorClass::value_error, "expected a parameter in a format of a built-in recipe, found " +
                                                with_article(w.weight->class_name()));
    buckets_[b].push_back({w.weight, master, w.offset, shard(0), shard(1)});
    return;
  }
  if (!hybrid->rowwise_storage && !hybrid->columnwise_storage)
    fail_weights(ErrorClass::value_error, "expected a hybrid with a direction, found neither");
  size_t plane = 0;
  for (const auto& [child, direction] :
       {std::pair{hybrid->rowwise_storage, "rowwise"}, std::pair{hybrid->columnwise_storage, "columnwise"}}) {
    if (!child) continue;
    const Bucket b = bucket_of(*child);
    if (b != kDelayed && b != kCurrent && b != kIdentity)
      fail_weights(ErrorClass::not_implemented_error, string("a ") + string(child->class_name()) +
                                                          " as the " + direction +
                                                          " child of a hybrid is not supported");
    buckets_[b].push_back({child, master, w.offset, shard(plane++), nullptr});
  }
}

void Batch::run(const std::vector<MasterWeight>& batch) {
  for (const MasterWeight& w : batch) check(w);
  for (const MasterWeight& w : batch) route(w);
  void (Batch::*const kSteps[])(std::vector<Target>&) = {&Batch::delayed, &Batch::current, &Batch::block,
                                                         &Batch::mxfp8,   &Batch::nvfp4,   &Batch::identity};
  for (size_t b = 0; b < kBuckets; ++b) {
    const auto step = kSteps[b];  // in the call itself g++ 12's check of bounds reads a wrong index
    if (!buckets_[b].empty()) (this->*step)(buckets_[b]);
  }
}

// ---- what the formats share ------------------------------------------------------------

void Batch::reduce(std::vector<F32Bits>& amaxes, const char* dtype) {
  if (group_.all_reduce_max) group_.all_reduce_max(amaxes);
  session_.collectives.push_back({"all_reduce_max", "master weights", group_.name});
  call(json::array({"all_reduce", json::array({static_cast<int64_t>(amaxes.size())}), dtype}));
}

// What is derived from rows is stale now; it goes unless somebody derives it anew by hand.
void Batch::reset_columns(Storage& s) const {
  if (manual_) return;
  if (auto* fp8 = dynamic_cast<Float8Storage*>(&s); fp8 && fp8->data) {
    fp8->transpose = nullptr;
    fp8->transpose_invalid = true;
  }
  if (auto* blocks = dynamic_cast<BlockScaledStorage*>(&s))
    blocks->columnwise_data = blocks->columnwise_scale_inv = nullptr;
}

// Bytes of a fragment into the plane, by Python's slices: whatever lies outside is cut off.
void Batch::write_fp8(const Target& t, std::span<const std::byte> bytes) {
  auto& s = dynamic_cast<Float8Storage&>(*t.storage);
  const auto n = static_cast<int64_t>(bytes.size());
  if (t.shard) {
    if (t.shard->count() != n)
      fail_weights(ErrorClass::runtime_error, "expected a shard of " + std::to_string(n) + " bytes, found " +
                                                  std::to_string(t.shard->count()));
    return kernels::write(t.shard, bytes);
  }
  if (!s.data) {  // element by element into a transpose alone
    const Shape m = flattened(s.size());
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = *t.offset + i;
      s.transpose->bytes()[static_cast<size_t>(at % m.cols * m.rows + at / m.cols)] =
          bytes[static_cast<size_t>(i)];
    }
    return;
  }
  t.expect_offset();
  const int64_t all = t.count();
  const auto place = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + all : i, 0, all); };
  const int64_t first = place(*t.offset), last = std::max(first, place(*t.offset + n));
  if (last - first != n)
    fail_weights(ErrorClass::runtime_error, "expected room for " + std::to_string(n) + " elements, found " +
                                                std::to_string(last - first));
  std::ranges::copy(bytes, s.data->bytes().begin() + first);
}

std::vector<PlaneData> Batch::quantized(const ArrayPtr& x, const Quantizer& q, Direction d,
                                        std::optional<F32Bits> amax) {
  Problem p = d == Direction::row ? kernels::problem_of(*x, q.line(d), std::nullopt)
                                  : kernels::problem_of(*x, std::nullopt, q.line(d));
  std::vector<PlaneData> inputs = {kernels::plane("x", x->bytes())};
  const auto scalar = [&](const char* name, F32Bits bits) {
    inputs.push_back(kernels::plane(plane_name(d, name), std::as_bytes(std::span(&bits, 1))));
  };
  assay::Quantizer& line = *p.quantizer(d);
  if (amax) {
    line.amax = amax;
    scalar("given.amax", *amax);
  }
  if (line.format == FormatId::fp8_delayed) {
    scalar("given.scale", line.scale);
    scalar("prior.amax", line.prior_amax);
  }
  return session_.run(p, inputs);
}

// The codes of a matrix; its scales go into `scale`.
ArrayPtr Batch::codes(const ArrayPtr& x, const Quantizer& q, Direction d, const ArrayPtr& scale,
                      std::optional<F32Bits> amax) {
  const std::vector<PlaneData> made = quantized(x, q, d, amax);
  kernels::write(scale, find_plane(made, plane_name(d, "scale_inv"))->bytes);
  const std::vector<std::byte>& bytes = find_plane(made, plane_name(d, "data"))->bytes;
  return from_bytes({static_cast<int64_t>(bytes.size())}, DType::uint8, bytes);
}

ArrayPtr flat(const ArrayPtr& a, Dims shape) { return view(contiguous(a), std::move(shape)); }

json::Value cast_call(Usages u, const Dims& shape) {
  json::Value dims = json::array();
  for (const int64_t d : shape) dims.push(d);
  return json::array({"quantize", "Float8Quantizer", u.rowwise, u.columnwise, std::move(dims)});
}

// ---- per-tensor FP8 --------------------------------------------------------------------

void Batch::delayed(std::vector<Target>& targets) {
  std::vector<F32Bits> amaxes;
  for (Target& t : targets) {
    const auto& q = quantizer_of<Float8Quantizer>(*t.storage);
    reset_columns(*t.storage);
    if (t.master) {
      t.check_offset();
      const int64_t n = t.master->count();
      const bool scattered = !t.shard && is_transpose_alone(*t.storage);
      if (!scattered || n != 0) call(cast_call(scattered ? Usages{true, false} : q.usages(), {1, n}));
      if (n == 0 && session_.stand_ins && !scattered)
        fail_weights(ErrorClass::runtime_error, "the stand-in of the cast takes no empty fragment");
      const auto made = quantized(flat(t.master, {1, n}), q, Direction::row);
      kernels::write(q.amax, find_plane(made, "row.amax")->bytes);
      write_fp8(t, find_plane(made, "row.data")->bytes);
    }
    amaxes.push_back(kernels::bits_of(*q.amax));
  }
  reduce(amaxes, "float32");
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto& q = quantizer_of<Float8Quantizer>(*targets[i].storage);
    kernels::write(q.amax, std::as_bytes(std::span(&amaxes[i], 1)));
    const auto any = quantized(zeros({1, 1}, targets[i].storage->dtype), q, Direction::row);
    kernels::write(storage_as<Float8Storage>(targets[i].storage)->scale_inv,
                   find_plane(any, "row.scale_inv")->bytes);
  }
}

void Batch::current(std::vector<Target>& targets) {
  const auto& first = quantizer_of<Float8CurrentScalingQuantizer>(*targets.front().storage);
  std::vector<F32Bits> amaxes;
  for (const Target& t : targets) {
    const auto& q = quantizer_of<Float8CurrentScalingQuantizer>(*t.storage);
    if (q.dtype != first.dtype || q.force_pow_2_scales != first.force_pow_2_scales ||
        q.amax_epsilon != first.amax_epsilon)
      fail_weights(ErrorClass::value_error,
                   "expected quantizers of one FP8 dtype, one choice of powers of two and one amax epsilon");
    F32Bits amax = 0;
    if (t.master) {
      call(json::array({"compute_amax"}));
      if (t.master->count() == 0 && session_.stand_ins)
        fail_weights(ErrorClass::runtime_error, "the stand-in of the amax takes no empty fragment");
      if (t.master->count() != 0) {
        const ArrayPtr x = flat(t.master, {1, t.master->count()});
        amax =
            kernels::local_amaxes(session_, kernels::problem_of(*x, q.line(Direction::row), std::nullopt), *x)
                .front();
      }
    }
    amaxes.push_back(amax);
  }
  reduce(amaxes, "float32");
  call(json::array({"compute_scale_and_scale_inv", static_cast<int64_t>(targets.size())}));
  for (size_t i = 0; i < targets.size(); ++i) {
    Storage& s = *targets[i].storage;
    const auto any = quantized(zeros({1, 1}, s.dtype), *s.quantizer, Direction::row, amaxes[i]);
    kernels::write(dynamic_cast<Float8Storage&>(s).scale_inv, find_plane(any, "row.scale_inv")->bytes);
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    const Target& t = targets[i];
    reset_columns(*t.storage);
    if (!t.master) continue;
    if (!t.shard) t.expect_offset();
    const int64_t n = t.master->count();
    const bool scattered = !t.shard && is_transpose_alone(*t.storage);
    if (scattered) t.check_offset();
    if (scattered && n == 0) continue;
    call(scattered ? cast_call({true, false}, {1, n}) : cast_call({true, true}, {n}));
    const auto made = quantized(flat(t.master, {1, n}), *t.storage->quantizer, Direction::row, amaxes[i]);
    write_fp8(t, find_plane(made, "row.data")->bytes);
  }
}

// ---- blocks ----------------------------------------------------------------------------

// Amaxes of 16-bit values as binary32, and back.
std::vector<F32Bits> widened(const std::vector<uint32_t>& bf16) {
  std::vector<F32Bits> out;
  for (const uint32_t b : bf16) out.push_back(b << 16);
  return out;
}
std::vector<uint32_t> narrowed(std::span<const F32Bits> wide) {
  std::vector<uint32_t> out;
  for (const F32Bits w : wide) out.push_back(w >> 16);
  return out;
}

// A fragment of a flat plane of bytes into its place, or into a shard of its own length.
void copy_into_plane(const Array& made, const Target& t, const ArrayPtr& shard, Array& plane) {
  if (!shard) return copy_fragment(made, t.fragment(), plane, t.offset.value_or(0));
  const int64_t n = t.master ? t.master->count() : 0;
  if (shard->count() != n)
    fail_weights(ErrorClass::runtime_error, "expected a shard of " + std::to_string(n) + " bytes, found " +
                                                std::to_string(shard->count()));
  copy_fragment(made, t.fragment(), *shard, 0);
}

void expect_bf16(const Target& t) {
  if (t.storage->dtype != DType::bfloat16)
    fail_weights(ErrorClass::runtime_error,
                 "the kernels of block scales take a nominal dtype of bfloat16, found " +
                     string(name_of(t.storage->dtype)));
}

void Batch::block(std::vector<Target>& targets) {
  std::vector<F32Bits> all;  // of every tile of the padded scales
  std::vector<size_t> starts;
  const auto tile_of = [](const Target& t) {
    return storage_as<Float8BlockwiseStorage>(t.storage)->is_2d ? BlockShape{128, 128} : BlockShape{1, 128};
  };
  const auto call_partial = [&](const char* name, const Target& t) {
    const Shape m = flattened(t.storage->size());
    call(json::array({name, m.rows, m.cols, t.offset.value_or(0), 128}));
  };
  const auto& first = quantizer_of<Float8BlockQuantizer>(*targets.front().storage);
  for (const Target& t : targets) {
    const auto& s = dynamic_cast<Float8BlockwiseStorage&>(*t.storage);
    const auto& q = quantizer_of<Float8BlockQuantizer>(*t.storage);
    if (q.dtype != first.dtype || q.force_pow_2_scales != first.force_pow_2_scales ||
        q.amax_epsilon != first.amax_epsilon)
      fail_weights(ErrorClass::value_error,
                   "expected quantizers of one FP8 dtype, one choice of powers of two and one amax epsilon");
    if (!s.rowwise_scale_inv)
      fail_weights(ErrorClass::attribute_error, "expected rows of a Float8BlockwiseQTensor, found none");
    expect_bf16(t);
    t.check_fragment();
    starts.push_back(all.size());
    if (t.master) call_partial("fp8_block_scaling_compute_partial_amax", t);
    const std::vector<F32Bits> own = widened(block_amaxes(t.fragment(), tile_of(t)));
    all.insert(all.end(), own.begin(), own.end());
    all.resize(starts.back() + static_cast<size_t>(s.rowwise_scale_inv->count()));
  }
  reduce(all, "float32");
  call(json::array({"compute_scale_and_scale_inv", static_cast<int64_t>(targets.size())}));
  for (size_t i = 0; i < targets.size(); ++i) {
    const Target& t = targets[i];
    auto& s = dynamic_cast<Float8BlockwiseStorage&>(*t.storage);
    const Fragment f = t.fragment();
    const size_t tiles = block_amaxes(f, tile_of(t)).size();
    const std::vector<uint32_t> amaxes = narrowed(std::span(all).subspan(starts[i], tiles));
    const ArrayPtr made = codes(standing_for_all(f, tile_of(t), amaxes, s.dtype), *s.quantizer,
                                Direction::row, s.rowwise_scale_inv);
    // Padding has an amax too, of zero, and so the scale of a tile of zeros.
    const ArrayPtr pad = zeros({1, 4}, DType::float32);
    codes(zeros({1, 1}, s.dtype), *s.quantizer, Direction::row, pad);
    const int64_t across = s.rowwise_scale_inv->shape[1],
                  real = s.is_2d ? ceil_div(f.matrix.cols, 128) : f.matrix.rows;
    for (int64_t row = 0; row < s.rowwise_scale_inv->shape[0]; ++row)
      for (int64_t col = real; col < across; ++col)
        std::ranges::copy(pad->bytes().first(4),
                          s.rowwise_scale_inv->bytes().begin() + 4 * (row * across + col));
    reset_columns(s);
    if (!t.master) continue;
    call_partial("fp8_block_scaling_partial_cast", t);
    copy_into_plane(*made, t, t.shard, *s.rowwise_data);
  }
}

void Batch::mxfp8(std::vector<Target>& targets) {
  constexpr BlockShape kRow{1, 32}, kCol{32, 1};
  std::vector<std::vector<F32Bits>> amaxes;  // of rows of every weight, then of columns
  for (const Target& t : targets) {
    const auto& s = dynamic_cast<MXFP8Storage&>(*t.storage);
    if (!s.rowwise_data || !s.columnwise_data)
      fail_weights(ErrorClass::attribute_error, "expected both directions of an MXFP8Tensor, found one");
    expect_bf16(t);
    if (s.element != Encoding::e4m3)
      fail_weights(ErrorClass::not_implemented_error,
                   "the original scales E5M2 by E4M3's largest value here; Assay models E4M3 weights alone");
    t.check_fragment();
    if (t.shard && !t.shard_columns)
      fail_weights(ErrorClass::runtime_error, "expected shards of both directions of an MXFP8Tensor");
  }
  for (const Target& t : targets) {
    const Fragment f = t.fragment();
    if (t.master)
      call(json::array({"mxfp8_scaling_compute_partial_amax", f.matrix.rows, f.matrix.cols, f.offset}));
    amaxes.push_back(widened(block_amaxes(f, kRow)));
  }
  for (const Target& t : targets) amaxes.push_back(widened(block_amaxes(t.fragment(), kCol)));
  // What travels has the sizes of the padded scales.
  std::vector<F32Bits> all;
  std::vector<size_t> starts;
  for (size_t i = 0; i < amaxes.size(); ++i) {
    const auto& s = dynamic_cast<MXFP8Storage&>(*targets[i % targets.size()].storage);
    const ArrayPtr& scale = i < targets.size() ? s.rowwise_scale_inv : s.columnwise_scale_inv;
    starts.push_back(all.size());
    all.insert(all.end(), amaxes[i].begin(), amaxes[i].end());
    all.resize(starts.back() + static_cast<size_t>(scale->count()));
  }
  reduce(all, "bfloat16");
  call(json::array({"compute_scale_inv_e8m0", static_cast<int64_t>(2 * targets.size())}));
  for (size_t i = 0; i < targets.size(); ++i) {
    const Target& t = targets[i];
    auto& s = dynamic_cast<MXFP8Storage&>(*t.storage);
    const Fragment f = t.fragment();
    if (t.master) call(json::array({"mxfp8_scaling_partial_cast", f.matrix.rows, f.matrix.cols, f.offset}));
    const auto of = [&](size_t n) { return narrowed(std::span(all).subspan(starts[n], amaxes[n].size())); };
    const ArrayPtr rows = codes(standing_for_all(f, kRow, of(i), s.dtype), *s.quantizer, Direction::row,
                                s.rowwise_scale_inv),
                   cols = codes(standing_for_all(f, kCol, of(targets.size() + i), s.dtype), *s.quantizer,
                                Direction::col, s.columnwise_scale_inv);
    if (!t.master) continue;
    copy_into_plane(*rows, t, t.shard, *s.rowwise_data);
    copy_into_plane(*cols, t, t.shard_columns, *s.columnwise_data);
  }
}

void Batch::nvfp4(std::vector<Target>& targets) {
  constexpr BlockShape kTile{16, 16};
  for (const Target& t : targets) {
    if (!quantizer_of<NVFP4Quantizer>(*t.storage).with_2d_quantization)
      fail_weights(ErrorClass::value_error, "expected an NVFP4 quantizer with 2D blocks, found 1D ones");
  }
  std::vector<F32Bits> all, global;
  bool any = false, any_amax = false;
  for (const Target& t : targets) {
    if (!dynamic_cast<NVFP4Storage&>(*t.storage).rowwise_scale_inv)
      fail_weights(ErrorClass::runtime_error, "expected rows of an NVFP4Tensor, found none");
    expect_bf16(t);
    t.check_fragment();
    const std::vector<F32Bits> own = widened(block_amaxes(t.fragment(), kTile));
    all.insert(all.end(), own.begin(), own.end());
    global.push_back(own.empty() ? 0 : *std::max_element(own.begin(), own.end()));
    any = any || (t.master && t.master->count() != 0);  // no kernel for empty fragments alone
    any_amax = any_amax || dynamic_cast<NVFP4Storage&>(*t.storage).amax_rowwise;
  }
  if (any) call(json::array({"nvfp4_multi_tensor_compute_partial_amax", 16}));
  reduce(all, "float32");
  reduce(global, "float32");
  call(json::array({"nvfp4_compute_global_scale"}));
  for (const Target& t : targets) reset_columns(*t.storage);
  if (any_amax) call(json::array({"nvfp4_multi_tensor_fused_scale", 16}));
  if (any) call(json::array({"nvfp4_multi_tensor_2d_partial_cast", 16}));
  size_t at = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const Target& t = targets[i];
    auto& s = dynamic_cast<NVFP4Storage&>(*t.storage);
    const Fragment f = t.fragment();
    const size_t tiles = block_amaxes(f, kTile).size();
    const std::vector<uint32_t> amaxes = narrowed(std::span(all).subspan(at, tiles));
    at += tiles;
    const ArrayPtr scale = s.amax_rowwise ? s.rowwise_scale_inv : clone(s.rowwise_scale_inv);
    const ArrayPtr made =
        codes(standing_for_all(f, kTile, amaxes, s.dtype), *s.quantizer, Direction::row, scale, global[i]);
    if (s.amax_rowwise) kernels::write(s.amax_rowwise, std::as_bytes(std::span(&global[i], 1)));
    if (!t.master) continue;
    if (t.shard && t.shard->count() < (f.count() + 1) / 2)
      fail_weights(ErrorClass::runtime_error, "expected a shard of " + std::to_string((f.count() + 1) / 2) +
                                                  " bytes, found " + std::to_string(t.shard->count()));
    copy_nibbles(*made, f, t.shard ? *t.shard : *s.rowwise_data, t.shard ? 0 : f.offset / 2);
  }
}

void Batch::identity(std::vector<Target>& targets) {
  for (const Target& t : targets) {
    if (!t.master) continue;
    t.check_offset();
    Array& to = t.shard ? *t.shard : *dynamic_cast<IdentityStorage&>(*t.storage).hp_data;
    if (t.shard && to.count() < t.master->count())
      fail_weights(ErrorClass::value_error, "expected a shard of " + std::to_string(t.master->count()) +
                                                " elements, found " + std::to_string(to.count()));
    const ArrayPtr values = cast(session_, t.master, to.dtype);
    const int64_t at = t.shard ? 0 : *t.offset * bytes_of(to.dtype);
    std::ranges::copy(values->bytes(), to.bytes().begin() + at);
  }
}

}  // namespace

void quantize_master_weights(Session& session, const std::vector<MasterWeight>& batch, ProcessGroup& group,
                             bool manual, const MasterLog& log) {
  Batch(session, group, manual, log).run(batch);
}

// ---- after a gather --------------------------------------------------------------------

void post_all_gather_processing(Session& session, const std::vector<StoragePtr>& weights) {
  for (const StoragePtr& w : weights) {
    if (auto* fp8 = storage_as<Float8Storage>(w)) {
      if (!fp8->tn_only || !fp8->data) continue;
      fp8->transpose_invalid = true;
      fp8->update_usage(std::nullopt, true);
    } else if (auto* block = storage_as<Float8BlockwiseStorage>(w)) {
      if (!block->is_2d)
        throw SemanticError(ErrorClass::assertion_error,
                            "post_all_gather_processing: expected 2D blocks of a Float8BlockwiseQTensor, "
                            "found vectors, whose columns cannot be derived");
      block->columnwise_data = block->columnwise_scale_inv = nullptr;
      block->update_usage(std::nullopt, true);
    } else if (auto* fp4 = storage_as<NVFP4Storage>(w)) {
      fp4->columnwise_data = fp4->columnwise_scale_inv = nullptr;
      fp4->update_usage(true, true);
    } else if (auto* hybrid = storage_as<HybridStorage>(w)) {
      for (const StoragePtr& child : {hybrid->rowwise_storage, hybrid->columnwise_storage})
        if (child) post_all_gather_processing(session, {child});
    }
  }
}

void replace_raw_data(Storage& s, const ArrayPtr& memory) {
  const auto rebind = [&](ArrayPtr& slot, const char* words) {
    if (!slot)
      throw SemanticError(
          dynamic_cast<IdentityStorage*>(&s) ? ErrorClass::runtime_error : ErrorClass::attribute_error,
          "replace_raw_data: expected rows of a " + string(s.class_name()) + ", found none");
    if (memory->dtype != slot->dtype)
      throw SemanticError(ErrorClass::value_error,
                          string("replace_raw_data: expected data types that agree") + words + ", " +
                              string(name_of(slot->dtype)) + ", found " + string(name_of(memory->dtype)));
    copy_into(*slot, *memory);
    slot = memory;
  };
  if (auto* fp8 = dynamic_cast<Float8Storage*>(&s)) return rebind(fp8->data, " in dtype");
  if (auto* block = dynamic_cast<Float8BlockwiseStorage*>(&s))
    return rebind(block->rowwise_data, " in dtype");
  if (auto* fp4 = dynamic_cast<NVFP4Storage*>(&s)) return rebind(fp4->rowwise_data, "");
  if (auto* identity = dynamic_cast<IdentityStorage*>(&s)) return rebind(identity->hp_data, " in dtype");
  auto* hybrid = dynamic_cast<HybridStorage*>(&s);
  if (hybrid && hybrid->rowwise_storage) return replace_raw_data(*hybrid->rowwise_storage, memory);
  throw SemanticError(
      hybrid || dynamic_cast<MXFP8Storage*>(&s) ? ErrorClass::not_implemented_error : ErrorClass::value_error,
      "replace_raw_data: a " + string(s.class_name()) +
          (hybrid ? " without rowwise data is not supported" : " is not supported"));
}

}  // namespace assay::training
