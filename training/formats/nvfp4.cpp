// NVFP4 (TE tensor/storage/nvfp4_tensor_storage.py, tensor/nvfp4_tensor.py, csrc/quantizer.cpp).
#include "training/formats/nvfp4.h"

#include <cstddef>
#include <span>
#include <utility>

#include "contract/words.h"
#include "training/formats/describe.h"
#include "training/formats/partial_blocks.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"

namespace assay::training {

using namespace kernels;
using enum ErrorClass;
using assay::Direction;
using std::string;

namespace {

constexpr int64_t kBlock = 16;
constexpr F32Bits kOne = 0x3F800000;  // of a noop flag: nothing is to be written

assay::Quantizer settings(const NVFP4Storage& s) {
  assay::Quantizer q;
  q.format = FormatId::nvfp4;
  q.element = s.element;
  q.block = Block::b1x16;  // square blocks repeat their scale, so that either kind reads alike
  q.row_scaled = s.row_scaled;
  q.four_over_six =
      s.use_4over6 ? FourOverSix::mae : FourOverSix::off;  // which error chose a scale does not show in it
  q.e4m3_max = s.e4m3_max == 256 ? E4m3Max::m256 : E4m3Max::m448;
  return q;
}

// Packed codes [rows, cols] turned to [cols, rows]: the code of even index is in the low half of a byte.
ArrayPtr swapped_codes(const ArrayPtr& packed_rows, int64_t rows, int64_t cols) {
  const ArrayPtr from = contiguous(packed_rows), out = zeros({cols, rows / 2}, DType::uint8);
  const auto codes = std::as_const(*from).bytes();
  const auto to = out->bytes();
  const auto at = [](int64_t byte) { return static_cast<size_t>(byte); };
  for (int64_t r = 0; r < rows / 2 * 2; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const std::byte code = codes[at(r * (cols / 2) + c / 2)] >> (c % 2 ? 4 : 0) & std::byte{0xF};
      to[at(c * (rows / 2) + r / 2)] |= code << (r % 2 ? 4 : 0);
    }
  return out;
}

// Scales of 16 x 16 tiles, repeated for the 16 rows of a tile, as columns have them: column c takes of each
// tile row the scale of its own tile.
void swap_tile_scales(const Array& rows, Array& columns, Shape matrix) {
  const auto from = rows.bytes();
  const auto to = columns.bytes();
  for (int64_t c = 0; c < matrix.cols; ++c)
    for (int64_t tile = 0; tile < ceil_div(matrix.rows, kBlock); ++tile)
      to[static_cast<size_t>(c * columns.shape[1] + tile)] =
          from[static_cast<size_t>(tile * kBlock * rows.shape[1] + c / kBlock)];
}

// The fused RHT kernel: one random state serves both directions within it.
bool fused(const Session& session, const Array& x) {
  const Shape s = flattened(x.shape);
  return x.dtype == DType::bfloat16 && s.rows % 64 == 0 && s.cols % 128 == 0 &&
         (session.arch == Arch::sm100 || session.arch == Arch::sm110);
}

void check_nvfp4(const NVFP4Quantizer& q, const Array& x) {
  const Shape m = flattened(x.shape);
  if (m.rows % 16 != 0 || m.cols % 16 != 0)
    fail(runtime_error, q,
         "expected multiples of 16 rows and columns, found " + text(x.shape) + "; pad the tensor");
  if (q.with_rht && x.dtype != DType::bfloat16)
    fail(runtime_error, q,
         "with_rht rotates bfloat16, found " + string(name_of(x.dtype)) + "; cast the tensor");
  if (q.with_rht && !q.with_post_rht_amax)
    fail(runtime_error, q, "with_rht needs the amax of the rotated tensor; set with_post_rht_amax");
  if (!q.row_scaled_nvfp4) return;
  if (q.with_rht || q.with_2d_quantization || q.stochastic_rounding || q.reduction.enabled)
    fail(runtime_error, q,
         "row_scaled_nvfp4 goes with no RHT, no 2D blocks, no stochastic rounding and no amax reduction; "
         "turn them off");
  if (!q.rowwise_usage) fail(runtime_error, q, "row_scaled_nvfp4 needs rowwise usage");
  if (q.columnwise_usage &&
      (x.dtype != DType::bfloat16 || m.rows % 32 != 0 || m.cols % 32 != 0 || q.nvfp4_use_4over6))
    fail(runtime_error, q,
         "columns of row_scaled_nvfp4 need bfloat16, multiples of 32 rows and columns, and no four-over-six, "
         "found " +
             string(name_of(x.dtype)) + " " + text(x.shape));
}

// The C++ allocation, which differs from the Python one in columns: always a matrix, and an amax for each of
// them where rows have one each.
std::vector<BufferShape> nvfp4_buffers(const NVFP4Quantizer& q, const Dims& shape) {
  std::vector<BufferShape> out = allocated(q, shape, q.usages(), DType::bfloat16, false);
  const Shape m = flattened(shape);
  for (BufferShape& b : out) {
    if (b.name == "_columnwise_data") b.shape = {m.cols, m.rows / 2};
    if (b.name == "_amax_columnwise" && q.row_scaled_nvfp4) b.shape = {m.cols};
  }
  return out;
}

// A given amax is an input, which no plane brings back.
void store_given_amaxes(const Problem& p, Storage& s) {
  for (Direction d : kDirections) {
    if (!p.quantizer(d) || !p.quantizer(d)->amax) continue;
    const F32Bits amax = *p.quantizer(d)->amax;
    write(slot(s, d == Direction::row ? "_amax_rowwise" : "_amax_columnwise"),
          std::as_bytes(std::span(&amax, 1)));
  }
}

// A Problem has one state, so each direction runs alone; its bytes do not depend on the other one.
void run_apart(Session& session, Problem p, const Rng& columns, const Array& x, Storage& s) {
  if (p.row) {
    Problem rows = p;
    rows.col.reset();
    run_into(session, rows, x, s);
  }
  p.row.reset();
  p.rng = columns;
  run_into(session, p, x, s);
}

}  // namespace

// NVFP4Quantizer

void NVFP4Quantizer::set_4over6(bool use, const std::string& err_mode, int e4m3_max) {
  const std::string mode = upper(err_mode);
  if (mode != "MAE" && mode != "MSE")
    throw SemanticError(value_error, "nvfp4_4over6_err_mode: expected MAE or MSE, found " + err_mode);
  if (use && e4m3_max != 448 && e4m3_max != 256)
    throw SemanticError(value_error,
                        "nvfp4_e4m3_max: expected 448 or 256, found " + std::to_string(e4m3_max));
  nvfp4_use_4over6 = use;
  nvfp4_4over6_err_mode = mode;
  nvfp4_e4m3_max = use ? e4m3_max : 448;
}

json::Value NVFP4Quantizer::describe() const {
  return described(*this, {{"dtype", "E2M1"},
                           {"nvfp4_4over6_err_mode", nvfp4_4over6_err_mode},
                           {"nvfp4_e4m3_max", nvfp4_e4m3_max},
                           {"nvfp4_use_4over6", nvfp4_use_4over6},
                           {"rht_matrix_random_sign_mask_t", int64_t{rht_matrix_random_sign_mask_t}},
                           {"row_scaled_nvfp4", row_scaled_nvfp4},
                           {"stochastic_rounding", stochastic_rounding},
                           {"with_2d_quantization", with_2d_quantization},
                           {"with_post_rht_amax", with_post_rht_amax},
                           {"with_rht", with_rht},
                           {"with_amax_reduction", reduction.enabled},
                           {"amax_reduction_group", shown_group(reduction.group)}});
}

bool NVFP4Quantizer::is_quantizable(const Dims& shape) const {
  return !row_scaled_nvfp4 && multiples_of(shape, 16);
}

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
  return q;  // compact scales whatever optimize_for_gemm says: TE's NVFP4 quantizer does not swizzle
}

void NVFP4Quantizer::stamp(NVFP4Storage& s) const {
  s.row_scaled = row_scaled_nvfp4;
  s.use_4over6 = nvfp4_use_4over6;
  s.e4m3_max = nvfp4_e4m3_max;
}

void NVFP4Quantizer::fill(Session& session, const ArrayPtr& given, NVFP4Storage& s,
                          std::optional<F32Bits> noop) {
  const ArrayPtr x = contiguous(given);
  if (is_for_stand_ins(session, *x, kBlock, noop)) {
    NVFP4Storage padded;
    return fill_from_padded(session, *this, x, kBlock, s, padded,
                            [&](const ArrayPtr& whole) { fill(session, whole, padded, std::nullopt); });
  }
  check_nvfp4(*this, *x);
  coerce(session, s, nvfp4_buffers(*this, x->shape));
  if (x->count() == 0 || (!rowwise_usage && !columnwise_usage)) return;  // before any state is drawn
  Problem p = problem_of(*x, *this);
  reduce_amaxes(session, *this, reduction, p, *x);

  // Columns that are a launch of their own draw a state of their own, and the first one is drawn even where
  // there are no rows to use it.
  const bool own_state = stochastic_rounding && with_rht && columnwise_usage && !fused(session, *x);
  Rng columns;
  if (stochastic_rounding) p.rng = session.rng.draw("NVFP4Quantizer", rowwise_usage || !own_state);
  if (own_state) columns = session.rng.draw("NVFP4Quantizer columns");

  // TE's RHT kernels take no flag: the fused one quantizes all the same, and the others have overwritten the
  // amaxes before a kernel looks at it.
  const bool frozen = noop == kOne, blind = frozen && with_rht && session.flavour == Flavour::te;
  if (blind && !reduction.enabled) give_amaxes(p, local_amaxes(session, p, *x));
  if (!frozen || blind) store_given_amaxes(p, s);
  if (blind && !fused(session, *x)) return;
  p.op = Quantize{blind ? std::nullopt : noop};
  // TE's fused RHT kernel serves rows alone too, with its own draws and special values; a Problem names it by
  // the columns that it would rotate.
  if (session.flavour == Flavour::te && with_rht && !p.col && fused(session, *x)) {
    p.col = line(Direction::col);
    p.col->amax = p.row->amax;
  }
  if (own_state) run_apart(session, p, columns, *x, s);
  else run_into(session, p, *x, s);
}

// NVFP4Storage

std::vector<Field> NVFP4Storage::fields() {
  std::vector<Field> out = BlockScaledStorage::fields();
  out.push_back({"_amax_rowwise", &amax_rowwise});
  out.push_back({"_amax_columnwise", &amax_columnwise});
  return out;
}

Usages NVFP4Storage::get_usages() const {
  if (!is_tensor)
    throw SemanticError(
        ErrorClass::not_implemented_error,
        "get_usages: expected an NVFP4Tensor, found the light storage, which does not answer");
  return present();
}

Dims NVFP4Storage::size() const {
  if (!rowwise_data && !columnwise_data) nothing_left(ErrorClass::runtime_error, "size");
  Dims codes = (rowwise_data ? rowwise_data : columnwise_data)->shape;
  if (!codes.empty()) codes.back() *= 2;
  return rowwise_data ? codes : turned_back(codes);
}

void NVFP4Storage::update_usage(std::optional<bool> rowwise, std::optional<bool> columnwise) {
  const Usages wanted = BlockScaledStorage::wanted(rowwise, columnwise);
  const bool has_rows = rowwise_data && rowwise_scale_inv && amax_rowwise;
  if (wanted.rowwise && wanted.columnwise) {
    if (!has_rows)
      raise_runtime_error(
          "update_usage: expected rowwise data, scales and amax of an NVFP4Tensor that shall be columnwise "
          "too, found one missing");
    if (!columnwise_data || !columnwise_scale_inv) {
      const auto line = quantizer ? quantizer->line(Direction::row) : std::nullopt;
      if (!line || !is_square(line->block))
        raise_runtime_error(
            "update_usage: expected columnwise data of an NVFP4Tensor, or a quantizer of square blocks to "
            "make them with, found neither");
      create_columnwise();
    }
    if (!amax_columnwise)
      raise_runtime_error("update_usage: expected the columnwise amax of an NVFP4Tensor, found none");
    return;
  }
  const auto settle = [](bool keep, std::initializer_list<ArrayPtr*> buffers, const char* direction) {
    for (ArrayPtr* b : buffers) {
      if (!keep) {
        *b = nullptr;
      } else if (!*b) {
        string what = "update_usage: expected an NVFP4Tensor with ";
        what.append(direction).append(
            " data, scales and amax, found one missing; quantize it with that usage");
        raise_runtime_error(what);
      }
    }
  };
  settle(wanted.rowwise, {&rowwise_data, &rowwise_scale_inv, &amax_rowwise}, "row-wise");
  settle(wanted.columnwise, {&columnwise_data, &columnwise_scale_inv, &amax_columnwise}, "column-wise");
}

void NVFP4Storage::create_columnwise() {
  const Dims logical = size();
  const Shape matrix = flattened(logical);
  const ArrayPtr codes = swapped_codes(rowwise_data, matrix.rows, matrix.cols);
  if (columnwise_data && columnwise_data->shape == codes->shape) copy_into(*codes, *columnwise_data);
  else columnwise_data = codes;
  if (!columnwise_scale_inv)
    columnwise_scale_inv = zeros(scale_shape(settings(*this), logical, Direction::col), DType::uint8);
  swap_tile_scales(*contiguous(rowwise_scale_inv), *columnwise_scale_inv, matrix);
  if (amax_columnwise) copy_into(*amax_rowwise, *amax_columnwise);
  else amax_columnwise = clone(amax_rowwise);
}

ArrayPtr NVFP4Storage::dequantize(Session& session, std::optional<DType> to) {
  if (!rowwise_data && columnwise_data)
    throw SemanticError(ErrorClass::not_implemented_error,
                        "dequantize: expected row-wise data of an NVFP4Tensor, found only column-wise ones, "
                        "which the original cannot dequantize; keep the rows");
  if (!rowwise_data) nothing_left(ErrorClass::value_error, "dequantize");
  assay::Quantizer q = settings(*this);
  q.scales = with_gemm_swizzled_scales ? ScaleLayout::gemm : ScaleLayout::compact;
  return dequantized(session, q, Direction::row, size(), to.value_or(dtype),
                     {rowwise_data, rowwise_scale_inv, amax_rowwise});
}

StoragePtr NVFP4Storage::view(const Dims& shape) {
  const Dims now = size();
  if (shape == now) return make_like();
  const Dims wanted = resolved(shape, count_of(now));
  if (wanted.empty() || wanted.back() != now.back())
    raise_runtime_error("view: expected a shape of an NVFP4Tensor that keeps the inner dimension of " +
                        std::to_string(now.back()));
  auto out = another(*this);
  const Shape matrix = flattened(wanted);
  if (rowwise_data) out->rowwise_data = training::view(rowwise_data, packed(wanted, element));
  if (columnwise_data)
    out->columnwise_data = training::view(
        columnwise_data, {matrix.cols, matrix.rows / 2});  // columns know no leading dimensions
  return out;
}

void NVFP4Storage::expect_same_settings(const Storage& from) const {
  const auto& other = static_cast<const NVFP4Storage&>(from);
  expect_same(element == other.element, kNames.light, "FP4 dtype");
  expect_same(with_gemm_swizzled_scales == other.with_gemm_swizzled_scales, kNames.light, "scale layout");
  expect_same(row_scaled == other.row_scaled, kNames.light, "kind of tensor scale");
  expect_same(use_4over6 == other.use_4over6 && e4m3_max == other.e4m3_max, kNames.light,
              "four-over-six setting");
}

std::vector<string> NVFP4Storage::fsdp_buffer_fields() const {
  throw SemanticError(ErrorClass::not_implemented_error,
                      "fsdp: expected a format that gathers its shards, found NVFP4 inside another storage, "
                      "which no gather supports");
}

}  // namespace assay::training
