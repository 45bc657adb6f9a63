#include "python/subjects.h"

#include "compare/commands/simd_certificate.h"
#include "fast/subject_simd.h"
#include "reference/subject.h"

std::unique_ptr<assay::Subject> assay::python::reference() { return make_reference_subject(); }

assay::Acceptor* assay::python::acceptor() {
  static const std::unique_ptr<Subject> simd = make_simd_subject();
  static Acceptor* const found = [] {
    auto* const a = simd->present().yes ? dynamic_cast<Acceptor*>(simd.get()) : nullptr;
    if (a) a->use_certified(certified_targets(simd_certificate_path(), *a));
    return a;
  }();
  return found;
}
