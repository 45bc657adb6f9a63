#include "training/attention/core_kernels.h"

#include <string>
#include <string_view>
#include <utility>

#include "contract/f32_text.h"
#include "contract/line.h"
#include "training/base/errors.h"
#include "training/formats/float8.h"
#include "training/formats/mxfp8.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using Tensors = std::array<ArrayPtr, 3>;

constexpr string_view kInputs[] = {"q", "k", "v"};

// ---- tensors as the products read them ----

ArrayPtr permuted(const ArrayPtr& a, std::initializer_list<size_t> order) {
  Dims shape, strides;
  for (const size_t d : order) shape.push_back(a->shape[d]), strides.push_back(a->strides[d]);
  return contiguous(as_strided(a, std::move(shape), std::move(strides), a->offset));
}
ArrayPtr heads_first(const ArrayPtr& sbhd) { return permuted(sbhd, {1, 2, 0, 3}); }
ArrayPtr sequence_first(const ArrayPtr& bhsd) { return permuted(bhsd, {2, 0, 1, 3}); }

// One direction of an MXFP8 tensor whose scales are ordered by (b, h, s), as (s, b, h, d). Data lie in that
// order too, or where they were cast.
ArrayPtr mxfp8_values(Session& session, const MXFP8Storage& s, bool columns, bool data_by_head) {
  MXFP8Storage one = s;
  ArrayPtr& data = columns ? one.columnwise_data : one.rowwise_data;
  (columns ? one.rowwise_data : one.columnwise_data) = nullptr;
  if (!data_by_head) data = heads_first(data);
  return sequence_first(one.dequantize(session));
}

// Values of a tensor of the core, (s, b, h, d) in the nominal dtype. `bhsd`: MXFP8 data lie head by head.
ArrayPtr values_of(Session& session, const Tensorlike& t, bool columns, bool bhsd) {
  if (const ArrayPtr* x = std::get_if<ArrayPtr>(&t)) return contiguous(*x);
  const Storage& s = *std::get<StoragePtr>(t);
  if (const auto* mx = dynamic_cast<const MXFP8Storage*>(&s))
    return mxfp8_values(session, *mx, columns, bhsd);
  Float8Storage alone = dynamic_cast<const Float8Storage&>(s);
  alone.data = contiguous(alone.data);  // may lie among the bytes of others
  return alone.dequantize(session);
}
Tensors values_of(Session& session, const std::array<Tensorlike, 3>& qkv, const string& layout) {
  const bool bhsd = layout.starts_with("bhsd");
  Tensors out;
  for (size_t i = 0; i < out.size(); ++i) out[i] = values_of(session, qkv[i], i == 2, bhsd);
  return out;
}

// ---- the Problem ----

Problem problem_of(const CoreSettings& n, DType dtype, bool backward, const QuantizerPtr& s,
                   const QuantizerPtr& dp) {
  const auto key = [](string_view name, int64_t value) {
    return " " + string(name) + "=" + std::to_string(value);
  };
  string line = "attention identity " + std::to_string(n.q * n.batch) + "x" +
                std::to_string(n.heads * n.depth) + (dtype == DType::float16 ? " f16" : " bf16");
  line += " layout=sbhd" + key("batch", n.batch) + key("heads", n.heads) + key("kv_heads", n.heads) +
          key("kv", n.kv) + key("backward", backward ? 1 : 0) + (n.causal ? " mask=causal" : "");
  if (n.softmax_scale) line += " softmax_scale=" + f32_text(*n.softmax_scale);
  Result<Problem> p = parse_line(line);
  if (!p) throw std::logic_error(p.error().text());
  auto& op = *p->as<Attention>();
  if (s) op.slot(assay::AttentionSlot::s) = *s->line(Direction::row);
  if (dp) op.slot(assay::AttentionSlot::dp) = *dp->line(Direction::row);
  return *p;
}

// The planes of a Problem out of arrays by name; a scale or an amax that is given comes from its slot.
std::vector<PlaneData> inputs_of(const Problem& p, const Tensors& qkv, const ArrayPtr& d_o) {
  std::vector<PlaneData> out;
  for (Plane& plane : input_planes(p)) {
    PlaneData data{std::move(plane), {}};
    const string& name = data.plane.name;
    const auto take = [&](std::span<const std::byte> bytes) {
      data.bytes.assign(bytes.begin(), bytes.end());
    };
    for (size_t i = 0; i < qkv.size(); ++i)
      if (name == kInputs[i]) take(std::as_const(*qkv[i]).bytes());
    if (name == "do") take(std::as_const(*d_o).bytes());
    if (name.find('.') != string::npos) {
      const auto slot = name.starts_with("s.") ? assay::AttentionSlot::s : assay::AttentionSlot::dp;
      const assay::Quantizer& q = p.as<Attention>()->slot(slot);
      const F32Bits given = name.ends_with("given.scale") ? q.scale : q.prior_amax;
      take(std::as_bytes(std::span(&given, 1)));
    }
    out.push_back(std::move(data));
  }
  return out;
}

ArrayPtr plane(const std::vector<PlaneData>& planes, string_view name, Dims shape, DType dtype) {
  return from_bytes(std::move(shape), dtype, find_plane(planes, name)->bytes);
}

// ---- the record ----

void note(GemmRecord& record, const string& name, const ArrayPtr& a) {
  if (!a) return;
  const ArrayPtr dense = contiguous(a);
  const auto bytes = std::as_const(*dense).bytes();
  PlaneData data;
  data.plane.name = name;
  data.plane.encoding = encoding_of(a->dtype);
  data.plane.logical = data.plane.padded = {1, a->count()};
  data.bytes.assign(bytes.begin(), bytes.end());
  record.planes.push_back(std::move(data));
}
void note(GemmRecord& record, const string& name, const Tensorlike& t) {
  if (const ArrayPtr* x = std::get_if<ArrayPtr>(&t)) return note(record, name, *x);
  if (const StoragePtr& s = std::get<StoragePtr>(t))
    for (const Field& f : s->fields()) note(record, name + f.name, *f.slot);
}
template <class Three> void note_qkv(GemmRecord& record, const Three& qkv) {
  for (size_t i = 0; i < 3; ++i) note(record, string(kInputs[i]), Tensorlike(qkv[i]));
}

// ---- one call ----

class Core {
 public:
  Core(Session& session, const CoreSettings& n, std::vector<GemmRecord>& records)
      : session_(session), n_(n), records_(records) {}

  ArrayPtr forward(const Tensors& qkv, const QuantizerPtr& s, GemmRecord record) {
    const DType dtype = qkv[0]->dtype;
    const Problem p = problem_of(n_, dtype, false, s, nullptr);
    const std::vector<PlaneData> made = session_.run(p, inputs_of(p, qkv, nullptr));
    cast_inside("S", s, plane(made, "s", square(), dtype), record);
    const ArrayPtr o = plane(made, "out", tokens(n_.q), dtype);
    finish(std::move(record), "core.fprop", p, o);
    return o;
  }

  Tensors backward(const Tensors& qkv, const ArrayPtr& d_o, const QuantizerPtr& s, const QuantizerPtr& dp,
                   GemmRecord record) {
    const DType dtype = qkv[0]->dtype;
    const Problem p = problem_of(n_, dtype, true, s, dp);
    const std::vector<PlaneData> made = session_.run(p, inputs_of(p, qkv, d_o));
    cast_inside("dP", dp, plane(made, "dp", square(), dtype), record);
    const Tensors out = {plane(made, "grad.q", tokens(n_.q), dtype),
                         plane(made, "grad.k", tokens(n_.kv), dtype),
                         plane(made, "grad.v", tokens(n_.kv), dtype)};
    for (size_t i = 0; i < out.size(); ++i) note(record, "d" + string(kInputs[i]), Tensorlike(out[i]));
    finish(std::move(record), "core.dgrad", p, out[0]);
    return out;
  }

  Tensorlike forward(const ForwardCall& c) {
    GemmRecord record;
    note_qkv(record, c.qkv);
    const ArrayPtr o =
        forward(values_of(session_, {c.qkv[0], c.qkv[1], c.qkv[2]}, c.layout), c.s, std::move(record));
    if (!writes_fp8(c.o)) return o;
    return c.o->quantize(session_, o);
  }

  std::array<Tensorlike, 3> backward(const BackwardCall& c) {
    GemmRecord record;
    note_qkv(record, c.qkv);
    note(record, "o", c.o);
    note(record, "do", c.d_o);
    const Tensors grads = backward(values_of(session_, c.qkv, c.layout),
                                   values_of(session_, c.d_o, false, false), c.s, c.dp, std::move(record));
    if (!writes_fp8(c.dqkv)) return {grads[0], grads[1], grads[2]};
    const PlainQkv plain{"sbhd_sbhd_sbhd", {grads[0], grads[1], grads[2]}};
    const QuantizedQkv made = quantize_qkv(session_, plain, c.dqkv, {true, true});
    return {made.tensors[0], made.tensors[1], made.tensors[2]};
  }

 private:
  Dims square() const { return {n_.batch, n_.heads, n_.q, n_.kv}; }
  Dims tokens(int64_t s) const { return {s, n_.batch, n_.heads, n_.depth}; }
  // Kernels write FP8 by a scale that is there before they begin.
  static bool writes_fp8(const QuantizerPtr& q) { return attention_kind(q) == AttentionKind::delayed; }

  // S and dP are cast within a kernel: the amax goes to the quantizer, the bytes to the record.
  void cast_inside(const string& name, const QuantizerPtr& q, const ArrayPtr& x, GemmRecord& record) {
    if (q) note(record, name, Tensorlike(q->quantize(session_, x)));
    else note(record, name, Tensorlike(x));
  }
  void finish(GemmRecord record, string name, const Problem& p, const ArrayPtr& out) {
    record.name = std::move(name);
    record.line = to_line(p);
    record.out = out;
    records_.push_back(std::move(record));
  }

  Session& session_;
  CoreSettings n_;
  std::vector<GemmRecord>& records_;
};

GemmRecord plain_record(const Tensors& qkv) {
  GemmRecord record;
  note_qkv(record, qkv);
  return record;
}
Tensors dense(const Tensors& t) { return {contiguous(t[0]), contiguous(t[1]), contiguous(t[2])}; }

}  // namespace

AttentionKernels core_kernels(Session& session, const CoreSettings& n, std::vector<GemmRecord>& record) {
  return {[&session, n, &record](const ForwardCall& c) { return Core(session, n, record).forward(c); },
          [&session, n, &record](const BackwardCall& c) { return Core(session, n, record).backward(c); }};
}

ArrayPtr core_forward(Session& session, const CoreSettings& n, const Tensors& qkv,
                      std::vector<GemmRecord>& record) {
  return Core(session, n, record).forward(dense(qkv), nullptr, plain_record(qkv));
}

Tensors core_backward(Session& session, const CoreSettings& n, const Tensors& qkv, const ArrayPtr& d_o,
                      std::vector<GemmRecord>& record) {
  GemmRecord of = plain_record(qkv);
  note(of, "do", Tensorlike(d_o));
  return Core(session, n, record).backward(dense(qkv), d_o, nullptr, nullptr, std::move(of));
}

}  // namespace assay::training
