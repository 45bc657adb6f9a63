#include "training/base/session.h"

#include <algorithm>
#include <cstddef>
#include <exception>

#include "contract/dispatch.h"
#include "contract/line.h"

namespace assay::training {

namespace {

[[noreturn]] void refuse(const std::string& line, const std::string& why) {
  throw SemanticError(ErrorClass::runtime_error, line + ": " + why);
}

// Under flavour te, the Numerics of the kernel that TransformerEngine selects on the session's architecture.
Problem flavoured(const Problem& problem, const Session& session) {
  Problem p = problem;
  if (session.flavour != Flavour::te || !(p.as<Quantize>() || p.as<Swizzle>() || p.as<Split>())) return p;
  if (p.as<Split>() && draws(p))
    return p;  // N8.7: the draws of grouped kernels are not modelled, the logical mapping stays
  p.flavour = Flavour::te;
  p.arch = session.arch;
  const TeKernel kernel = te_kernel(p);
  if (!kernel.rejected.empty()) refuse(to_line(p), kernel.rejected);
  if (p.row) p.row->numerics = kernel.row;
  if (p.col) p.col->numerics = kernel.col;
  for (Direction d : kDirections)
    if (session.adjust && p.quantizer(d)) session.adjust(p.quantizer(d)->numerics);
  if (session.adjust)
    p.flavour = Flavour::assay;  // the line's Numerics are no longer what that flavour selects
  return p;
}

}  // namespace

Rng RngLedger::draw(std::string who, bool used, uint64_t states) {
  const Rng state{seed, inject ? inject() : offset, 0};
  draws.push_back({std::move(who), state.offset, used});
  offset += kPhiloxStep * states;
  return state;
}

std::vector<PlaneData> Session::run(const Problem& problem, const std::vector<PlaneData>& inputs,
                                    const std::vector<PlaneData>& keep) {
  const Problem p = flavoured(problem, *this);
  const std::string line = to_line(p);
  if (const auto error = validate(p)) refuse(line, error->text());
  if (const Support s = subject.supports(p); !s.yes)
    refuse(line, std::string(subject.name()) + " does not run it: " + s.why);

  const std::vector<Plane> wanted = input_planes(p);
  std::vector<ConstBuffer> in;
  for (const Plane& plane : wanted) {
    const PlaneData* data = find_plane(inputs, plane.name);
    if (!data || data->bytes.size() != plane.bytes())
      throw std::logic_error(line + ": expected " + std::to_string(plane.bytes()) + " bytes for the plane " +
                             plane.name + ", found " + (data ? std::to_string(data->bytes.size()) : "none"));
    in.push_back({&plane, data->bytes});
  }
  std::vector<PlaneData> out;
  for (Plane& plane : output_planes(p)) {
    const PlaneData* start = find_plane(keep, plane.name);
    const size_t bytes = plane.bytes();
    if (start && start->bytes.size() != bytes)
      throw std::logic_error(line + ": expected " + std::to_string(bytes) + " bytes to keep of the plane " +
                             plane.name + ", found " + std::to_string(start->bytes.size()));
    std::vector<std::byte> initial =
        start ? start->bytes : std::vector<std::byte>(bytes, std::byte{environment.poison});
    out.push_back({std::move(plane), std::move(initial)});
  }
  std::vector<Buffer> buffers;
  for (PlaneData& d : out) buffers.push_back({&d.plane, d.bytes});
  Environment promised = environment;  // vectors are aligned as the allocator does, whatever was asked for
  promised.alignment = std::min<int>(promised.alignment, alignof(std::max_align_t));
  try {
    subject.run(p, in, buffers, promised);
  } catch (const std::exception& e) {
    refuse(line, std::string(subject.name()) + " failed: " + e.what());
  }
  launches.push_back(line);
  return out;
}

ArrayPtr cast(Session& session, const ArrayPtr& x, DType to) {
  if (x->dtype == to) return x;
  Problem p;
  p.x = {flattened(x->shape), encoding_of(x->dtype), {}};
  p.op = Cast{encoding_of(to), Round::rne, Overflow::nosat, {}};
  const ArrayPtr source = contiguous(x);
  PlaneData plane;
  plane.plane.name = "x";
  plane.bytes.assign(source->bytes().begin(), source->bytes().end());
  return from_bytes(x->shape, to, session.run(p, {std::move(plane)}).front().bytes);
}

}  // namespace assay::training
