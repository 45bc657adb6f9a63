#include "python/subjects.h"

#include "compare/commands/simd_certificate.h"
#include "fast/subject_simd.h"
#include "reference/subject.h"

std::unique_ptr<assay::Subject> assay::python::reference() { return make_reference_subject(); }

assay::Subject* assay::python::vectorised() {
  static const std::unique_ptr<Subject> simd = make_simd_subject();
  static Subject* const found = [] {
    if (!simd->present().yes) return static_cast<Subject*>(nullptr);
    if (auto* const a = dynamic_cast<Acceptor*>(simd.get()))
      a->use_certified(certified_targets(simd_certificate_path(), *a));
    return simd.get();
  }();
  return found;
}

assay::Acceptor* assay::python::acceptor() { return dynamic_cast<Acceptor*>(vectorised()); }
