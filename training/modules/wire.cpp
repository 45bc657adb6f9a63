#include "training/modules/wire.h"

namespace assay::training {

void wire(Wire& w, RolePtr& role) {
  bool there = role != nullptr;
  w(there);
  QuantizerRole value = role ? *role : QuantizerRole{};
  if (there) w(value.module_type, value.tensor_type, value.name);
  if (w.reading()) role = there ? std::make_shared<const QuantizerRole>(value) : nullptr;
}
void wire(Wire& w, Shape& s) { w(s.rows, s.cols); }
void wire(Wire& w, PlaneData& d) {
  Plane& p = d.plane;
  w(p.name, p.part, p.encoding, p.logical, p.padded, p.layout, p.padding, p.direction, p.transposed, p.packed,
    d.bytes);
}
void wire(Wire& w, NamedUsages& u) { w(u.name, u.usages); }
void wire(Wire& w, CacheEvent& e) { w(e.weight, e.what); }
void wire(Wire& w, RngDraw& d) { w(d.who, d.offset, d.used); }

void wire(Wire& w, Collective& c) { w(c.what, c.who, c.group); }
void wire(Wire& w, NamedArray& a) { w(a.name, a.array); }
void wire(Wire& w, GemmRecord& g) { w(g.name, g.a, g.b, g.line, g.planes, g.out); }
void wire(Wire& w, StepRecord& r) {
  w(r.forward_roles, r.backward_roles, r.forward_quantizers, r.backward_quantizers, r.gemms, r.outputs,
    r.usages, r.cache, r.draws, r.rng_offset, r.collectives, r.warnings);
}

}  // namespace assay::training
