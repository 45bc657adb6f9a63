// How the quantizers of C++ kernels make bytes: settings, usages and architecture become one Problem (two where each direction has a random state of its own), and its
// output planes fill the buffers of a storage. Making a new tensor and refreshing one in place are the same act on an empty and on a filled storage
// (TE csrc/quantizer.cpp).
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "training/formats/quantizer.h"
#include "training/formats/storage.h"
#include "training/formats/shapes.h"

namespace assay::training {

namespace {

using enum ErrorClass;
using assay::Direction;
using std::string;

constexpr F32Bits kOne = 0x3F800000;

[[noreturn]] void fail(ErrorClass c, const Quantizer& q, const string& what) { throw SemanticError(c, string(q.class_name()) + ": " + what); }

string text(const Dims& shape) {
  string out;
  for (int64_t d : shape) out += (out.empty() ? "" : "x") + std::to_string(d);
  return out.empty() ? "a scalar" : out;
}

// Scalars in arrays and planes.

F32Bits bits_of(std::span<const std::byte> bytes) {
  F32Bits out = 0;
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}
F32Bits bits_of(const Array& scalar) { return bits_of(scalar.bytes()); }

PlaneData plane(string name, std::span<const std::byte> bytes) {
  PlaneData out;
  out.plane.name = std::move(name);
  out.bytes.assign(bytes.begin(), bytes.end());
  return out;
}
PlaneData plane(string name, F32Bits bits) { return plane(std::move(name), std::as_bytes(std::span(&bits, 1))); }

// Problems.

// x and what the quantizers were given.
std::vector<PlaneData> inputs_of(const Problem& p, const Array& x) {
  std::vector<PlaneData> in = {plane("x", x.bytes())};
  for (Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    const assay::Quantizer& q = *p.quantizer(d);
    if (q.amax) in.push_back(plane(plane_name(d, "given.amax"), *q.amax));
    if (q.format != FormatId::fp8_delayed) continue;
    in.push_back(plane(plane_name(d, "given.scale"), q.scale));
    in.push_back(plane(plane_name(d, "prior.amax"), q.prior_amax));
  }
  if (const auto noop = noop_of(p)) in.push_back(plane("noop", *noop));
  return in;
}

Problem problem_of(const Array& x, const std::optional<assay::Quantizer>& row, const std::optional<assay::Quantizer>& col) {
  Problem p;
  p.x = {flattened(x.shape), encoding_of(x.dtype), {}};
  p.row = row;
  p.col = col;
  p.op = Quantize{};
  return p;
}

// The amaxes that this rank finds by itself in the directions of `p`, row before column.
std::vector<F32Bits> local_amaxes(Session& session, Problem p, const Array& x) {
  p.op = Quantize{};
  for (Direction d : kDirections)
    if (p.quantizer(d)) p.quantizer(d)->round = Round::rne, p.quantizer(d)->amax.reset();   // no amax depends on a draw
  std::vector<F32Bits> out;
  const std::vector<PlaneData> planes = session.run(p, inputs_of(p, x));
  for (Direction d : kDirections)
    if (p.quantizer(d)) out.push_back(bits_of(find_plane(planes, plane_name(d, "amax"))->bytes));
  return out;
}

// One amax for each direction, or one for both.
void give_amaxes(Problem& p, std::span<const F32Bits> amaxes) {
  size_t at = 0;
  for (Direction d : kDirections)
    if (p.quantizer(d)) p.quantizer(d)->amax = amaxes[std::min(at++, amaxes.size() - 1)];
}

// Replaces the amaxes by the group's. A reduction is a collective of all ranks, so it happens whatever x holds.
void reduce_amaxes(Session& session, const Quantizer& q, const AmaxReduction& reduction, Problem& p, const Array& x) {
  if (!reduction.enabled && !reduction.local) return;
  if (reduction.enabled && !reduction.group) fail(runtime_error, q, "with_amax_reduction is on without an amax_reduction_group; set the group or call set_amax_reduction_group");
  Problem own = p;
  if (p.row && info(p.row->format).per_tensor_fp8()) own.col.reset();   // one amax serves both of its planes
  std::vector<F32Bits> amaxes = reduction.local ? std::vector<F32Bits>{*reduction.local} : local_amaxes(session, own, x);
  if (reduction.enabled) {
    if (reduction.group->all_reduce_max) reduction.group->all_reduce_max(amaxes);
    session.collectives.push_back({"all_reduce_max", session.tensor_name, reduction.group->name});
  }
  give_amaxes(p, amaxes);
}

// Buffers.

ArrayPtr& slot(Storage& s, std::string_view name) {
  for (const Field& f : s.fields())
    if (f.name == name) return *f.slot;
  throw std::logic_error(string(s.class_name()) + " has no buffer " + string(name));
}

// The buffer that holds an output plane ("row.scale_inv"), or "" for a plane that no tensor keeps.
string buffer_of(const Storage& s, const Plane& p) {
  const bool row = p.direction == Direction::row;
  const std::string_view stem = std::string_view(p.name).substr(p.name.find('.') + 1);
  const bool scale = stem == "scale_inv" || stem == "scale_gemm";
  if (dynamic_cast<const Float8Storage*>(&s)) return stem == "data" ? row ? "_data" : "_transpose" : scale ? "_scale_inv" : "";
  if (stem == "amax") return row ? "_amax_rowwise" : "_amax_columnwise";
  return string(row ? "_rowwise" : "_columnwise") + (scale ? "_scale_inv" : "_data");
}

ArrayPtr kept_by(Storage& s, const Plane& p) {
  const string name = buffer_of(s, p);
  return name.empty() ? nullptr : slot(s, name);
}

// Buffers that are wanted exist afterwards, others do not; one of the right size stays where it is, as others may hold it.
void coerce(Session& session, Storage& s, const std::vector<BufferShape>& wanted) {
  for (const Field& f : s.fields()) {
    const auto at = std::find_if(wanted.begin(), wanted.end(), [&](const BufferShape& b) { return b.name == f.name; });
    if (at == wanted.end()) f.slot->reset();
    else if (!*f.slot || (*f.slot)->dtype != at->dtype || (*f.slot)->count() != count_of(at->shape)) *f.slot = empty(at->shape, at->dtype, std::byte{session.environment.poison});
  }
}

void write(const ArrayPtr& to, std::span<const std::byte> bytes) {
  if (static_cast<size_t>(to->count() * training::bytes_of(to->dtype)) != bytes.size())
    throw std::logic_error("expected a buffer of " + std::to_string(bytes.size()) + " bytes for a plane, found " + text(to->shape) + " of " + string(name_of(to->dtype)));
  if (!to->contiguous()) return copy_into(*from_bytes(to->shape, to->dtype, bytes), *to);
  std::ranges::copy(bytes, to->bytes().begin());
}

// Runs `p` and fills the buffers; under a noop flag of 1 they keep what they hold. Returns the planes for what else they say.
std::vector<PlaneData> run_into(Session& session, const Problem& p, const Array& x, Storage& s, std::vector<PlaneData> keep = {}) {
  if (noop_of(p)) {
    for (const Plane& out : output_planes(p))
      if (const ArrayPtr to = kept_by(s, out)) keep.push_back(plane(out.name, contiguous(to)->bytes()));
  }
  std::vector<PlaneData> planes = session.run(p, inputs_of(p, x), keep);
  for (const PlaneData& d : planes)
    if (const ArrayPtr to = kept_by(s, d.plane)) write(to, d.bytes);
  return planes;
}

// `dst` as the tensor class that the original's update demands, and of x's shape.
template <class S>
S& destination(const Quantizer& q, Storage& dst, const ArrayPtr& x, ErrorClass otherwise, std::string_view wanted) {
  S* s = dynamic_cast<S*>(&dst);
  if (!s || !s->is_tensor) fail(otherwise, q, "update_quantized: expected a " + string(wanted) + ", found a " + string(dst.class_name()));
  if (!(flattened(s->size()) == flattened(x->shape))) fail(runtime_error, q, "update_quantized: expected a source of shape " + text(s->size()) + ", found " + text(x->shape));
  return *s;
}

// A storage of class S without buffers.
template <class S, class... Args>
std::shared_ptr<S> bare(const Quantizer& q, DType dtype, Args... args) {
  auto s = std::make_shared<S>(args...);
  s->dtype = dtype;
  s->is_tensor = !q.internal;
  return s;
}

// Uninitialised buffers as TE's Python allocates them.
StoragePtr allocate(Session& session, const Quantizer& q, const std::shared_ptr<Storage>& s, const Dims& shape, DType dtype) {
  coerce(session, *s, allocated(q, shape, q.usages(), dtype, session.tn_only()));
  s->quantizer = q.copy();
  return s;
}

// Per-tensor FP8.

// The planes that exist: where GEMMs read either layout, the one of the rows serves both directions.
Usages planes_of(const Session& session, Usages u) { return session.tn_only() ? u : Usages{true, false}; }

void check_columns_alone(const Session& session, const Quantizer& q) {
  if (session.tn_only() && q.columnwise_usage && !q.rowwise_usage)   // exclusion E8
    fail(not_implemented_error, q, "columns alone: per-tensor FP8 kernels write a transpose only beside the rows; turn rowwise usage on, or run on an architecture that needs no transpose");
}

void fill_per_tensor(Session& session, const Quantizer& q, const AmaxReduction* reduction, const ArrayPtr& given, Float8Storage& s, std::optional<F32Bits> noop, const ArrayPtr& amax) {
  check_columns_alone(session, q);
  const ArrayPtr x = contiguous(given);
  coerce(session, s, allocated(q, x->shape, q.usages(), x->dtype, session.tn_only()));
  s.transpose_invalid = !s.transpose;
  const Usages planes = planes_of(session, q.usages());
  if (!planes.rowwise) return;
  Problem p = problem_of(*x, q.line(Direction::row), planes.columnwise ? q.line(Direction::col) : std::nullopt);
  if (reduction) reduce_amaxes(session, q, *reduction, p, *x);
  p.op = Quantize{noop};
  std::vector<PlaneData> keep;
  if (amax && noop)
    for (Direction d : kDirections)
      if (p.quantizer(d)) keep.push_back(plane(plane_name(d, "amax"), amax->bytes()));
  const std::vector<PlaneData> out = run_into(session, p, *x, s, std::move(keep));
  if (amax) write(amax, find_plane(out, "row.amax")->bytes);
}

// Formats of blocks.

void fill_blocks(Session& session, const Quantizer& q, const ArrayPtr& given, BlockScaledStorage& s, std::optional<F32Bits> noop) {
  const ArrayPtr x = contiguous(given);
  coerce(session, s, allocated(q, x->shape, q.usages(), x->dtype, session.tn_only()));
  if (!q.rowwise_usage && !q.columnwise_usage) return;
  Problem p = problem_of(*x, q.rowwise_usage ? q.line(Direction::row) : std::nullopt, q.columnwise_usage ? q.line(Direction::col) : std::nullopt);
  p.op = Quantize{noop};
  run_into(session, p, *x, s);
}

void check_mxfp8(const Quantizer& q, const Dims& shape) {
  const Shape m = flattened(shape);
  if (m.rows % 32 != 0 || m.cols % 32 != 0) fail(runtime_error, q, "expected multiples of 32 rows and columns, found " + text(shape) + "; pad the tensor");
}

// NVFP4.

// The fused RHT kernel: one random state serves both directions within it.
bool fused(const Session& session, const Array& x) {
  const Shape s = flattened(x.shape);
  return x.dtype == DType::bfloat16 && s.rows % 64 == 0 && s.cols % 128 == 0 && (session.arch == Arch::sm100 || session.arch == Arch::sm110);
}

void check_nvfp4(const NVFP4Quantizer& q, const Array& x) {
  const Shape m = flattened(x.shape);
  if (m.rows % 16 != 0 || m.cols % 16 != 0) fail(runtime_error, q, "expected multiples of 16 rows and columns, found " + text(x.shape) + "; pad the tensor");
  if (q.with_rht && x.dtype != DType::bfloat16) fail(runtime_error, q, "with_rht rotates bfloat16, found " + string(name_of(x.dtype)) + "; cast the tensor");
  if (q.with_rht && !q.with_post_rht_amax) fail(runtime_error, q, "with_rht needs the amax of the rotated tensor; set with_post_rht_amax");
  if (!q.row_scaled_nvfp4) return;
  if (q.with_rht || q.with_2d_quantization || q.stochastic_rounding || q.reduction.enabled)
    fail(runtime_error, q, "row_scaled_nvfp4 goes with no RHT, no 2D blocks, no stochastic rounding and no amax reduction; turn them off");
  if (!q.rowwise_usage) fail(runtime_error, q, "row_scaled_nvfp4 needs rowwise usage");
  if (q.columnwise_usage && (x.dtype != DType::bfloat16 || m.rows % 32 != 0 || m.cols % 32 != 0 || q.nvfp4_use_4over6))
    fail(runtime_error, q, "columns of row_scaled_nvfp4 need bfloat16, multiples of 32 rows and columns, and no four-over-six, found " + string(name_of(x.dtype)) + " " + text(x.shape));
}

// The C++ allocation, which differs from the Python one in columns: always a matrix, and an amax for each of them where rows have one each.
std::vector<BufferShape> nvfp4_buffers(const NVFP4Quantizer& q, const Dims& shape) {
  std::vector<BufferShape> out = allocated(q, shape, q.usages(), DType::bfloat16, false);
  const Shape m = flattened(shape);
  for (BufferShape& b : out) {
    if (b.name == "_columnwise_data") b.shape = {m.cols, m.rows / 2};
    if (b.name == "_amax_columnwise" && q.row_scaled_nvfp4) b.shape = {m.cols};
  }
  return out;
}

void fill_nvfp4(Session& session, const NVFP4Quantizer& q, const ArrayPtr& given, NVFP4Storage& s, std::optional<F32Bits> noop) {
  const ArrayPtr x = contiguous(given);
  check_nvfp4(q, *x);
  coerce(session, s, nvfp4_buffers(q, x->shape));
  if (x->count() == 0 || (!q.rowwise_usage && !q.columnwise_usage)) return;   // before any state is drawn
  Problem p = problem_of(*x, q.rowwise_usage ? q.line(Direction::row) : std::nullopt, q.columnwise_usage ? q.line(Direction::col) : std::nullopt);
  reduce_amaxes(session, q, q.reduction, p, *x);

  // Columns that are a launch of their own draw a state of their own, and the first one is drawn even where there are no rows to use it.
  const bool own_state = q.stochastic_rounding && q.with_rht && q.columnwise_usage && !fused(session, *x);
  Rng columns;
  if (q.stochastic_rounding) p.rng = session.rng.draw("NVFP4Quantizer", q.rowwise_usage || !own_state);
  if (own_state) columns = session.rng.draw("NVFP4Quantizer columns");

  // TE's RHT kernels take no flag: the fused one quantizes all the same, and the others have overwritten the amaxes before a kernel looks at it.
  const bool frozen = noop == kOne, blind = frozen && q.with_rht && session.flavour == Flavour::te;
  if (blind && !q.reduction.enabled) give_amaxes(p, local_amaxes(session, p, *x));
  if (!frozen || blind) {   // a given amax is an input, which no plane brings back
    for (Direction d : kDirections)
      if (p.quantizer(d) && p.quantizer(d)->amax) write(slot(s, d == Direction::row ? "_amax_rowwise" : "_amax_columnwise"), std::as_bytes(std::span(&*p.quantizer(d)->amax, 1)));
  }
  if (blind && !fused(session, *x)) return;
  p.op = Quantize{blind ? std::nullopt : noop};
  // TE's fused RHT kernel serves rows alone too, with its own draws and special values; a Problem names it by the columns that it would rotate.
  if (session.flavour == Flavour::te && q.with_rht && !p.col && fused(session, *x)) {
    p.col = q.line(Direction::col);
    p.col->amax = p.row->amax;
  }
  if (!own_state) {
    run_into(session, p, *x, s);
    return;
  }
  // A Problem has one state, so each direction runs alone; its bytes do not depend on the other one.
  if (p.row) {
    Problem rows = p;
    rows.col.reset();
    run_into(session, rows, *x, s);
  }
  p.row.reset();
  p.rng = columns;
  run_into(session, p, *x, s);
}

}  // namespace

// Float8Quantizer

std::optional<assay::Quantizer> Float8Quantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::fp8_delayed;
  q.element = dtype;
  q.scale = bits_of(*scale);
  q.prior_amax = bits_of(*amax);
  return q;
}

StoragePtr Float8Quantizer::make_empty(Session& session, const Dims& shape, DType nominal) const {
  auto s = bare<Float8Storage>(*this, nominal, session.tn_only());
  s->fp8_dtype = dtype;
  return allocate(session, *this, s, shape, nominal);
}

StoragePtr Float8Quantizer::quantize_impl(Session& session, const ArrayPtr& x) {
  auto s = bare<Float8Storage>(*this, x->dtype, session.tn_only());
  s->fp8_dtype = dtype;
  fill_per_tensor(session, *this, nullptr, x, *s, std::nullopt, amax);
  return s;
}

void Float8Quantizer::update_quantized(Session& session, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) {
  auto& s = destination<Float8Storage>(*this, dst, x, value_error, "Float8Tensor");
  fill_per_tensor(session, *this, nullptr, x, s, noop, amax);
  s.fp8_dtype = dtype;
}

// The larger of -min and max, which is not the amax that quantize records: NaN wins, and of a tensor of zeros it is -0. Written over, not accumulated.
void Float8Quantizer::calibrate(Session& session, const ArrayPtr& x) {
  constexpr F32Bits kNan = 0x7FC00000, kSign = 0x80000000;
  const ArrayPtr plain = contiguous(cast(session, x, DType::float32));
  std::vector<F32Bits> bits(static_cast<size_t>(plain->count()));
  if (bits.empty()) throw SemanticError(ErrorClass::runtime_error, "calibrate: expected a tensor with elements, found none");
  std::memcpy(bits.data(), plain->bytes().data(), bits.size() * sizeof(F32Bits));
  F32Bits low = bits[0], high = bits[0];
  bool nan = false;
  for (const F32Bits b : bits) {
    const float v = std::bit_cast<float>(b);
    nan = nan || v != v;
    if (v < std::bit_cast<float>(low)) low = b;
    if (v > std::bit_cast<float>(high)) high = b;
  }
  low ^= kSign;
  const F32Bits found = nan ? kNan : std::bit_cast<float>(high) > std::bit_cast<float>(low) ? high : low;
  write(amax, std::as_bytes(std::span(&found, 1)));
}

// Float8CurrentScalingQuantizer

std::optional<assay::Quantizer> Float8CurrentScalingQuantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::fp8_current;
  q.element = dtype;
  q.pow2 = force_pow_2_scales;
  q.eps = amax_epsilon;
  return q;
}

StoragePtr Float8CurrentScalingQuantizer::make_empty(Session& session, const Dims& shape, DType nominal) const {
  auto s = bare<Float8Storage>(*this, nominal, session.tn_only());
  s->fp8_dtype = dtype;
  return allocate(session, *this, s, shape, nominal);
}

StoragePtr Float8CurrentScalingQuantizer::quantize_impl(Session& session, const ArrayPtr& x) {
  auto s = bare<Float8Storage>(*this, x->dtype, session.tn_only());
  s->fp8_dtype = dtype;
  fill_per_tensor(session, *this, &reduction, x, *s, std::nullopt, nullptr);
  return s;
}

void Float8CurrentScalingQuantizer::update_quantized(Session& session, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) {
  auto& s = destination<Float8Storage>(*this, dst, x, value_error, "Float8Tensor");
  fill_per_tensor(session, *this, &reduction, x, s, noop, nullptr);
  s.fp8_dtype = dtype;
}

// Float8BlockQuantizer

std::optional<assay::Quantizer> Float8BlockQuantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::fp8_block;
  q.element = dtype;
  q.block = block_scaling_dim == 2 ? Block::b128x128 : Block::b1x128;
  q.pow2 = force_pow_2_scales;
  q.eps = amax_epsilon;
  return q;
}

StoragePtr Float8BlockQuantizer::make_empty(Session& session, const Dims& shape, DType nominal) const {
  auto s = bare<Float8BlockwiseStorage>(*this, nominal);
  s->element = dtype;
  s->is_2d = block_scaling_dim == 2;
  return allocate(session, *this, s, shape, nominal);
}

StoragePtr Float8BlockQuantizer::quantize_impl(Session& session, const ArrayPtr& x) {
  auto s = bare<Float8BlockwiseStorage>(*this, x->dtype);
  s->element = dtype;
  s->is_2d = block_scaling_dim == 2;
  fill_blocks(session, *this, x, *s, std::nullopt);
  return s;
}

void Float8BlockQuantizer::update_quantized(Session& session, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) {
  auto& s = destination<Float8BlockwiseStorage>(*this, dst, x, assertion_error, "Float8BlockwiseQTensor");
  fill_blocks(session, *this, x, s, noop);
  s.element = dtype;
}

// MXFP8Quantizer

std::optional<assay::Quantizer> MXFP8Quantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::mxfp8;
  q.element = dtype;
  q.block = with_2d_quantization ? Block::b32x32 : Block::b1x32;
  q.scales = optimize_for_gemm ? ScaleLayout::gemm : ScaleLayout::compact;
  return q;
}

StoragePtr MXFP8Quantizer::make_empty(Session& session, const Dims& shape, DType nominal) const {
  auto s = bare<MXFP8Storage>(*this, nominal);
  s->element = dtype;
  s->with_gemm_swizzled_scales = optimize_for_gemm;
  return allocate(session, *this, s, shape, nominal);
}

StoragePtr MXFP8Quantizer::quantize_impl(Session& session, const ArrayPtr& x) {
  check_mxfp8(*this, x->shape);
  auto s = bare<MXFP8Storage>(*this, x->dtype);
  s->element = dtype;
  s->with_gemm_swizzled_scales = optimize_for_gemm;
  fill_blocks(session, *this, x, *s, std::nullopt);
  return s;
}

void MXFP8Quantizer::update_quantized(Session& session, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) {
  auto& s = destination<MXFP8Storage>(*this, dst, x, assertion_error, "MXFP8Tensor");
  check_mxfp8(*this, x->shape);
  fill_blocks(session, *this, x, s, noop);
  s.element = dtype;
  s.with_gemm_swizzled_scales = optimize_for_gemm;
}

// NVFP4Quantizer

std::optional<assay::Quantizer> NVFP4Quantizer::line(Direction d) const {
  assay::Quantizer q;
  q.format = FormatId::nvfp4;
  q.element = Encoding::e2m1;
  q.block = with_2d_quantization ? Block::b16x16 : Block::b1x16;
  q.round = stochastic_rounding ? Round::sr : Round::rne;
  q.rht = with_rht && d == Direction::col;
  if (q.rht) q.sign_mask = rht_matrix_random_sign_mask_t;
  if (nvfp4_use_4over6) {
    q.four_over_six = nvfp4_4over6_err_mode == "MSE" ? FourOverSix::mse : FourOverSix::mae;
    q.e4m3_max = nvfp4_e4m3_max == 256 ? E4m3Max::m256 : E4m3Max::m448;
  }
  q.row_scaled = row_scaled_nvfp4;
  return q;   // compact scales whatever optimize_for_gemm says: TE's NVFP4 quantizer does not swizzle
}

namespace {
std::shared_ptr<NVFP4Storage> bare_nvfp4(const NVFP4Quantizer& q, DType nominal) {
  auto s = bare<NVFP4Storage>(q, nominal);
  s->row_scaled = q.row_scaled_nvfp4;
  s->use_4over6 = q.nvfp4_use_4over6;
  s->e4m3_max = q.nvfp4_e4m3_max;
  return s;
}
}  // namespace

StoragePtr NVFP4Quantizer::make_empty(Session& session, const Dims& shape, DType nominal) const { return allocate(session, *this, bare_nvfp4(*this, nominal), shape, nominal); }

StoragePtr NVFP4Quantizer::quantize_impl(Session& session, const ArrayPtr& x) {
  auto s = bare_nvfp4(*this, x->dtype);
  fill_nvfp4(session, *this, x, *s, std::nullopt);
  return s;
}

void NVFP4Quantizer::update_quantized(Session& session, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) {
  auto& s = destination<NVFP4Storage>(*this, dst, x, assertion_error, "NVFP4Tensor");
  fill_nvfp4(session, *this, x, s, noop);
  s.row_scaled = row_scaled_nvfp4;
  s.use_4over6 = nvfp4_use_4over6;
  s.e4m3_max = nvfp4_e4m3_max;
}

// IdentityQuantizer

std::optional<assay::Quantizer> IdentityQuantizer::line(Direction) const {
  assay::Quantizer q;
  q.format = FormatId::identity;
  q.element = encoding_of(dtype.value_or(DType::bfloat16));
  return q;
}

StoragePtr IdentityQuantizer::make_empty(Session& session, const Dims& shape, DType nominal) const {
  auto s = bare<IdentityStorage>(*this, dtype.value_or(nominal));
  return allocate(session, *this, s, shape, nominal);
}

StoragePtr IdentityQuantizer::quantize_impl(Session& session, const ArrayPtr& x) {
  auto s = bare<IdentityStorage>(*this, dtype.value_or(x->dtype));
  s->hp_data = std::make_shared<Array>(*cast(session, x, s->dtype));   // another handle to the same memory, as detach gives
  return s;
}

void IdentityQuantizer::update_quantized(Session& session, const ArrayPtr& x, Storage& dst, std::optional<F32Bits> noop) {
  auto* s = dynamic_cast<IdentityStorage*>(&dst);
  if (!s) fail(value_error, *this, "update_quantized: expected an identity tensor, found a " + string(dst.class_name()));
  const ArrayPtr source = cast(session, x, dtype.value_or(x->dtype));
  const bool frozen = noop && (*noop & 0x7FFFFFFF) != 0;   // any flag but zero, unlike the kernels
  if (!frozen) {
    if (s->hp_data && s->hp_data->shape == source->shape && s->hp_data->dtype == source->dtype) copy_into(*source, *s->hp_data);
    else s->hp_data = std::make_shared<Array>(*source);
  }
  if (s->hp_data) s->dtype = s->hp_data->dtype;
}

}  // namespace assay::training
