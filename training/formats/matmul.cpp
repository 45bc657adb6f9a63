#include "training/formats/matmul.h"

#include <span>
#include <utility>

#include "contract/line.h"
#include "contract/planes.h"
#include "contract/words.h"
#include "training/formats/formats.h"

namespace assay::training {
namespace {

// One operand in the direction that its GEMM reads: settings that decode it, its plane bytes by stem, and its
// matrix as stored before any turn.
struct Selected {
  Operand operand;
  std::vector<std::pair<std::string_view, ArrayPtr>> planes;  // "amax", "scale_inv", "data"
  Shape matrix;
  std::string scaling_mode;  // empty for plain tensors
};

[[noreturn]] void missing(std::string_view who, Direction d, std::string_view found) {
  throw SemanticError(ErrorClass::runtime_error,
                      "GEMM operand '" + std::string(who) + "' needs " +
                          (d == Direction::row ? "rowwise" : "columnwise") + " data, but " +
                          std::string(found) +
                          " holds none; ask for that usage before quantizing, or call update_usage");
}

ArrayPtr present(const ArrayPtr& buffer, std::string_view who, Direction d, const Storage& storage) {
  if (!buffer) missing(who, d, storage.class_name());
  return contiguous(buffer);
}

Selected select_plain(const ArrayPtr& x) {
  Selected s;
  s.operand.quantizer.format = FormatId::identity;
  s.operand.source = s.operand.quantizer.element = encoding_of(x->dtype);
  s.matrix = flattened(x->shape);
  s.planes = {{"data", contiguous(x)}};
  return s;
}

Selected select_per_tensor(const Float8Storage& f, Direction d, std::string_view who) {
  Selected s;
  s.operand.quantizer.format = FormatId::fp8_current;
  s.operand.quantizer.element = f.fp8_dtype;
  s.scaling_mode = "per-tensor";
  const bool turn = d == Direction::col && !f.tn_only;  // one byte plane serves both directions
  ArrayPtr data = present(d == Direction::row || turn ? f.data
                          : f.transpose_invalid       ? nullptr
                                                      : f.transpose,
                          who, d, f);
  if (turn)
    data =
        contiguous(transpose(view(data, {flattened(data->shape).rows, flattened(data->shape).cols}), 0, 1));
  s.planes = {{"scale_inv", f.scale_inv}, {"data", data}};
  return s;
}

Selected select_blocks(const BlockScaledStorage& b, Direction d, std::string_view who) {
  if (b.with_gemm_swizzled_scales)
    throw SemanticError(
        ErrorClass::not_implemented_error,
        "GEMM operand '" + std::string(who) +
            "' has swizzled scales; expected compact ones: quantize with optimize_for_gemm off");
  const auto buffer = [&](const ArrayPtr& r, const ArrayPtr& c) {
    return present(d == Direction::row ? r : c, who, d, b);
  };
  Selected s;
  assay::Quantizer& q = s.operand.quantizer;
  q.element = b.element;
  if (const auto* n = dynamic_cast<const NVFP4Storage*>(&b)) {
    q.format = FormatId::nvfp4;
    q.block = Block::b1x16;  // columns of square blocks store a scale for each 16 too (N10.14)
    q.row_scaled = n->row_scaled;
    q.four_over_six = n->use_4over6 ? FourOverSix::mae : FourOverSix::off;
    q.e4m3_max = n->e4m3_max == 256 ? E4m3Max::m256 : E4m3Max::m448;
    s.scaling_mode = "NVFP4";
    s.planes.push_back({"amax", buffer(n->amax_rowwise, n->amax_columnwise)});
  } else if (const auto* f = dynamic_cast<const Float8BlockwiseStorage*>(&b)) {
    q.format = FormatId::fp8_block;
    q.block = f->is_2d ? Block::b128x128 : Block::b1x128;
    s.scaling_mode = f->is_2d ? "blocks of 128x128" : "blocks of 1x128";
  } else if (const auto* m = dynamic_cast<const MxStorage*>(&b)) {
    q = m->settings.line();
    s.scaling_mode = upper(info(q.format).name);
  } else {
    q.format = FormatId::mxfp8;
    q.block = Block::b1x32;
    s.scaling_mode = "MXFP8";
  }
  s.planes.push_back({"scale_inv", buffer(b.rowwise_scale_inv, b.columnwise_scale_inv)});
  s.planes.push_back({"data", buffer(b.rowwise_data, b.columnwise_data)});
  return s;
}

Selected select(Session& session, const Tensorlike& tensor, Direction d, std::string_view who) {
  if (const ArrayPtr* x = std::get_if<ArrayPtr>(&tensor)) return select_plain(*x);
  const StoragePtr& storage = std::get<StoragePtr>(tensor);
  if (auto* h = dynamic_cast<HybridStorage*>(storage.get())) {
    const StoragePtr& child = d == Direction::row ? h->rowwise_storage : h->columnwise_storage;
    if (!child) missing(who, d, h->class_name());
    return select(session, child, d, who);
  }
  const auto* per_tensor = dynamic_cast<const Float8Storage*>(storage.get());
  const auto* blocks = dynamic_cast<const BlockScaledStorage*>(storage.get());
  if (!per_tensor && !blocks) return select_plain(storage->dequantize(session));
  Selected s = per_tensor ? select_per_tensor(*per_tensor, d, who) : select_blocks(*blocks, d, who);
  s.operand.source = Encoding::bf16;  // what was quantized does not matter to its codes
  s.matrix = flattened(storage->size());
  return s;
}

void expect_together(const Selected& a, const Selected& b, const GemmOptions& o) {
  const std::string where = "GEMM " + o.name + " of '" + o.a + "' and '" + o.b + "': ";
  const auto blocks = [](const Selected& s) { return s.operand.quantizer.format == FormatId::fp8_block; };
  const auto square = [](const Selected& s) { return s.operand.quantizer.block == Block::b128x128; };
  if (a.scaling_mode != b.scaling_mode && !(blocks(a) && blocks(b))) {
    const auto mode = [](const Selected& s) {
      return s.scaling_mode.empty() ? std::string("none (a plain tensor)") : s.scaling_mode;
    };
    throw SemanticError(ErrorClass::runtime_error,
                        where + "expected operands of one scaling_mode, found " + mode(a) + " and " +
                            mode(b) + "; let both roles of this GEMM return quantizers of one format");
  }
  if (blocks(a) && square(a) && square(b))
    throw SemanticError(ErrorClass::runtime_error,
                        where + "two operands of 128x128 blocks have no kernel; one of them needs 1x128");
  if (a.operand.quantizer.element == Encoding::e5m2 && b.operand.quantizer.element == Encoding::e5m2)
    throw SemanticError(ErrorClass::runtime_error,
                        where + "E5M2 times E5M2 has no kernel; one of them must be E4M3");
  if (a.scaling_mode.empty() && a.operand.source != b.operand.source)
    throw SemanticError(ErrorClass::runtime_error, where + "expected plain operands of one dtype, found " +
                                                       std::string(info(a.operand.source).name) + " and " +
                                                       std::string(info(b.operand.source).name));
}

GemmSum sum_of(GemmModel model, const Selected& a, bool split) {
  if (model == GemmModel::exact) return GemmSum::exact;
  if (model == GemmModel::f32_sequential) return GemmSum::f32_sequential;
  if (a.operand.quantizer.format == FormatId::identity)
    return a.operand.source == Encoding::f32 ? GemmSum::hopper_tf32 : GemmSum::hopper_f16;
  return split ? GemmSum::hopper_fp8_split : GemmSum::hopper_fp8_fast;
}

// The planes that the Problem reads: of the operands, the bias, and what the result is added to.
std::vector<PlaneData> inputs_of(const Problem& p, const Selected& a, const Selected& b,
                                 const GemmOptions& o) {
  std::vector<PlaneData> inputs;
  for (Plane& plane : input_planes(p)) {
    const bool of_operand = plane.name.size() > 2 && plane.name[1] == '.';
    ArrayPtr from = plane.name == "bias" ? o.bias : o.accumulate_into;
    if (of_operand)
      for (const auto& [stem, buffer] : plane.name[0] == 'a' ? a.planes : b.planes)
        if (plane.name.substr(2) == stem) from = buffer;
    const std::span<const std::byte> bytes = std::as_const(*contiguous(from)).bytes();
    if (bytes.size() != plane.bytes())
      throw SemanticError(ErrorClass::runtime_error,
                          "GEMM " + o.name + ": expected " + std::to_string(plane.bytes()) + " bytes of " +
                              plane.name + ", found " + std::to_string(bytes.size()));
    inputs.push_back({std::move(plane), {bytes.begin(), bytes.end()}});
  }
  return inputs;
}

bool native(const Quantizer& q) {
  return !q.custom() && q.class_name() != "HybridQuantizer" && q.class_name() != "IdentityQuantizer";
}

}  // namespace

bool absent(const Tensorlike& t) {
  return std::visit([](const auto& p) { return p == nullptr; }, t);
}
Dims shape_of(const Tensorlike& t) {
  if (const ArrayPtr* x = std::get_if<ArrayPtr>(&t)) return (*x)->shape;
  return std::get<StoragePtr>(t)->size();
}
DType dtype_of(const Tensorlike& t) {
  return std::visit([](const auto& p) { return p->dtype; }, t);
}
ArrayPtr plain(Session& session, const Tensorlike& t, DType to) {
  if (const ArrayPtr* x = std::get_if<ArrayPtr>(&t)) return cast(session, *x, to);
  return std::get<StoragePtr>(t)->dequantize(session, to);
}

bool forces_split_accumulator(const Tensorlike& A, const Tensorlike& B) {
  const auto blocks = [](const Tensorlike& t) {
    const StoragePtr* s = std::get_if<StoragePtr>(&t);
    if (!s || !*s) return false;
    if (auto* h = dynamic_cast<HybridStorage*>(s->get())) {
      const auto of = [](const StoragePtr& child) {
        return dynamic_cast<Float8BlockwiseStorage*>(child.get()) != nullptr;
      };
      return of(h->rowwise_storage) || of(h->columnwise_storage);
    }
    return dynamic_cast<Float8BlockwiseStorage*>(s->get()) != nullptr;
  };
  return blocks(A) || blocks(B);
}

Tensorlike general_gemm(Session& session, const Tensorlike& A, const Tensorlike& B, GemmOp layout,
                        const GemmOptions& o) {
  if (o.out_quantizer && !native(*o.out_quantizer))
    throw SemanticError(ErrorClass::not_implemented_error,
                        "GEMM " + o.name + ": its output cannot be quantized by " +
                            std::string(o.out_quantizer->class_name()) +
                            "; the role of this boundary needs a native quantizer");
  Problem p;
  Gemm gemm;
  gemm.op = layout;
  const Direction da = gemm.direction(Side::a), db = gemm.direction(Side::b);
  const Selected a = select(session, A, da, o.a), b = select(session, B, db, o.b);
  expect_together(a, b, o);
  const int64_t m = da == Direction::row ? a.matrix.rows : a.matrix.cols,
                ka = da == Direction::row ? a.matrix.cols : a.matrix.rows;
  const int64_t n = db == Direction::row ? b.matrix.rows : b.matrix.cols,
                kb = db == Direction::row ? b.matrix.cols : b.matrix.rows;
  if (ka != kb)
    throw SemanticError(ErrorClass::runtime_error, "GEMM " + o.name + ": '" + o.a + "' sums over " +
                                                       std::to_string(ka) + " elements and '" + o.b +
                                                       "' over " + std::to_string(kb));
  const bool row_scaled = a.operand.quantizer.row_scaled || b.operand.quantizer.row_scaled;
  if (row_scaled && o.out_quantizer)
    throw SemanticError(ErrorClass::runtime_error,
                        "GEMM " + o.name + ": operands with row_scaled_nvfp4 give no quantized output");
  gemm.k = ka;
  gemm.a = a.operand;
  gemm.b = b.operand;
  gemm.sum = sum_of(session.gemm_model, a, o.use_split_accumulator || forces_split_accumulator(A, B));
  if (o.bias) gemm.bias = encoding_of(o.bias->dtype);
  if (o.accumulate_into) gemm.beta = 0x3F800000;
  // Delayed scaling quantizes the binary32 accumulator; every other output quantizer reads a rounded result
  // (TE csrc/extensions/gemm.cpp).
  const DType out =
      o.out_quantizer && o.out_quantizer->class_name() == "Float8Quantizer" ? DType::float32 : o.out_dtype;
  p.x = {{n, m}, encoding_of(out), {}};
  p.op = gemm;

  std::vector<PlaneData> inputs = inputs_of(p, a, b, o);
  const std::vector<PlaneData> outputs = session.run(p, inputs);

  Dims shape = db == Direction::row ? shape_of(B) : Dims{n, m};
  shape.back() = m;
  ArrayPtr d = from_bytes(shape, out, find_plane(outputs, "d")->bytes);
  if (o.record) {
    const auto side = [](const std::string& who, Direction dir) {
      return who + (dir == Direction::row ? ".row" : ".col");
    };
    o.record->push_back({o.name, side(o.a, da), side(o.b, db), to_line(p), std::move(inputs), d});
  }
  if (o.accumulate_into) {
    copy_into(*view(d, o.accumulate_into->shape), *o.accumulate_into);
    return o.accumulate_into;
  }
  if (!o.out_quantizer) return d;
  StoragePtr quantized = o.out_quantizer->quantize(session, d);
  quantized->dtype = o.out_dtype;
  return quantized;
}

}  // namespace assay::training
