#include "training/formats/kernel_quantizer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "training/formats/float8.h"

namespace assay::training::kernels {

using enum ErrorClass;
using assay::Direction;
using std::string;

namespace {

F32Bits word_of(std::span<const std::byte> bytes) {
  F32Bits out = 0;
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}
PlaneData scalar_plane(string name, F32Bits bits) {
  return plane(std::move(name), std::as_bytes(std::span(&bits, 1)));
}

// x and what the lines of the quantizers say was given.
std::vector<PlaneData> inputs_of(const Problem& p, const Array& x) {
  std::vector<PlaneData> in = {plane("x", x.bytes())};
  for (Direction d : kDirections) {
    if (!p.quantizer(d)) continue;
    const assay::Quantizer& q = *p.quantizer(d);
    if (q.amax) in.push_back(scalar_plane(plane_name(d, "given.amax"), *q.amax));
    if (q.format != FormatId::fp8_delayed) continue;
    in.push_back(scalar_plane(plane_name(d, "given.scale"), q.scale));
    in.push_back(scalar_plane(plane_name(d, "prior.amax"), q.prior_amax));
  }
  if (const auto noop = noop_of(p)) in.push_back(scalar_plane("noop", *noop));
  return in;
}

// The buffer that holds an output plane ("row.scale_inv"), or "" for a plane that no tensor keeps.
string buffer_of(const Storage& s, const Plane& p) {
  const bool row = p.direction == Direction::row;
  const std::string_view stem = std::string_view(p.name).substr(p.name.find('.') + 1);
  const bool scale = stem == "scale_inv" || stem == "scale_gemm";
  if (dynamic_cast<const Float8Storage*>(&s))
    return stem == "data" ? row ? "_data" : "_transpose" : scale ? "_scale_inv" : "";
  if (stem == "amax") return row ? "_amax_rowwise" : "_amax_columnwise";
  return string(row ? "_rowwise" : "_columnwise") + (scale ? "_scale_inv" : "_data");
}

ArrayPtr kept_by(Storage& s, const Plane& p) {
  const string name = buffer_of(s, p);
  return name.empty() ? nullptr : slot(s, name);
}

}  // namespace

void fail(ErrorClass c, const Quantizer& q, const string& what) {
  throw SemanticError(c, string(q.class_name()) + ": " + what);
}

string text(const Dims& shape) {
  string out;
  for (int64_t d : shape) out += (out.empty() ? "" : "x") + std::to_string(d);
  return out.empty() ? "a scalar" : out;
}

F32Bits bits_of(const Array& scalar) { return word_of(scalar.bytes()); }

PlaneData plane(string name, std::span<const std::byte> bytes) {
  PlaneData out;
  out.plane.name = std::move(name);
  out.bytes.assign(bytes.begin(), bytes.end());
  return out;
}

Problem problem_of(const Array& x, const std::optional<assay::Quantizer>& row,
                   const std::optional<assay::Quantizer>& col) {
  Problem p;
  p.x = {flattened(x.shape), encoding_of(x.dtype), {}};
  p.row = row;
  p.col = col;
  p.op = Quantize{};
  return p;
}

Problem problem_of(const Array& x, const Quantizer& q) {
  return problem_of(x, q.rowwise_usage ? q.line(Direction::row) : std::nullopt,
                    q.columnwise_usage ? q.line(Direction::col) : std::nullopt);
}

std::vector<F32Bits> local_amaxes(Session& session, Problem p, const Array& x) {
  p.op = Quantize{};
  for (Direction d : kDirections)
    if (p.quantizer(d))
      p.quantizer(d)->round = Round::rne, p.quantizer(d)->amax.reset();  // no amax depends on a draw
  std::vector<F32Bits> out;
  const std::vector<PlaneData> planes = session.run(p, inputs_of(p, x));
  for (Direction d : kDirections)
    if (p.quantizer(d)) out.push_back(word_of(find_plane(planes, plane_name(d, "amax"))->bytes));
  return out;
}

void give_amaxes(Problem& p, std::span<const F32Bits> amaxes) {
  size_t at = 0;
  for (Direction d : kDirections)
    if (p.quantizer(d)) p.quantizer(d)->amax = amaxes[std::min(at++, amaxes.size() - 1)];
}

void reduce_amaxes(Session& session, const Quantizer& q, const AmaxReduction& reduction, Problem& p,
                   const Array& x) {
  if (!reduction.enabled && !reduction.local) return;
  if (reduction.enabled && !reduction.group)
    fail(runtime_error, q,
         "with_amax_reduction is on without an amax_reduction_group; set the group or call "
         "set_amax_reduction_group");
  Problem own = p;
  if (p.row && info(p.row->format).per_tensor_fp8()) own.col.reset();  // one amax serves both of its planes
  std::vector<F32Bits> amaxes =
      reduction.local ? std::vector<F32Bits>{*reduction.local} : local_amaxes(session, own, x);
  if (reduction.enabled) {
    if (reduction.group->all_reduce_max) reduction.group->all_reduce_max(amaxes);
    session.collectives.push_back({"all_reduce_max", session.tensor_name, reduction.group->name});
  }
  give_amaxes(p, amaxes);
}

ArrayPtr& slot(Storage& s, std::string_view name) {
  for (const Field& f : s.fields())
    if (f.name == name) return *f.slot;
  throw std::logic_error(string(s.class_name()) + " has no buffer " + string(name));
}

void coerce(Session& session, Storage& s, const std::vector<BufferShape>& wanted) {
  for (const Field& f : s.fields()) {
    const auto at =
        std::find_if(wanted.begin(), wanted.end(), [&](const BufferShape& b) { return b.name == f.name; });
    if (at == wanted.end()) f.slot->reset();
    else if (!*f.slot || (*f.slot)->dtype != at->dtype || (*f.slot)->count() != count_of(at->shape))
      *f.slot = empty(at->shape, at->dtype, std::byte{session.environment.poison});
  }
}

void write(const ArrayPtr& to, std::span<const std::byte> bytes) {
  if (static_cast<size_t>(to->count() * training::bytes_of(to->dtype)) != bytes.size())
    throw std::logic_error("expected a buffer of " + std::to_string(bytes.size()) +
                           " bytes for a plane, found " + text(to->shape) + " of " +
                           string(name_of(to->dtype)));
  if (!to->contiguous()) return copy_into(*from_bytes(to->shape, to->dtype, bytes), *to);
  std::ranges::copy(bytes, to->bytes().begin());
}

std::vector<PlaneData> run_into(Session& session, const Problem& p, const Array& x, Storage& s,
                                std::vector<PlaneData> keep) {
  if (noop_of(p)) {
    for (const Plane& out : output_planes(p))
      if (const ArrayPtr to = kept_by(s, out)) keep.push_back(plane(out.name, contiguous(to)->bytes()));
  }
  std::vector<PlaneData> planes = session.run(p, inputs_of(p, x), keep);
  for (const PlaneData& d : planes)
    if (const ArrayPtr to = kept_by(s, d.plane)) write(to, d.bytes);
  return planes;
}

void fill_blocks(Session& session, const Quantizer& q, const ArrayPtr& given, Storage& s,
                 std::optional<F32Bits> noop) {
  const ArrayPtr x = contiguous(given);
  coerce(session, s, allocated(q, x->shape, q.usages(), x->dtype, session.tn_only()));
  if (!q.rowwise_usage && !q.columnwise_usage) return;
  Problem p = problem_of(*x, q);
  p.op = Quantize{noop};
  run_into(session, p, *x, s);
}

StoragePtr allocate(Session& session, const Quantizer& q, const StoragePtr& s, const Dims& shape,
                    DType dtype) {
  coerce(session, *s, allocated(q, shape, q.usages(), dtype, session.tn_only()));
  s->quantizer = q.copy();
  return s;
}

void check_destination(const Quantizer& q, const Storage& dst, bool of_this_class, std::string_view wanted,
                       ErrorClass otherwise, const ArrayPtr& x) {
  if (!of_this_class || !dst.is_tensor)
    fail(otherwise, q,
         "update_quantized: expected a " + string(wanted) + ", found a " + string(dst.class_name()));
  if (flattened(dst.size()) != flattened(x->shape))
    fail(runtime_error, q,
         "update_quantized: expected a source of shape " + text(dst.size()) + ", found " + text(x->shape));
}

}  // namespace assay::training::kernels
