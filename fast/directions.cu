#include "fast/directions.h"

#include <stdexcept>

#include "fast/move/direction.cuh"

namespace assay::ASSAY_FAST_NAMESPACE {

namespace {

constexpr bool every_format_has_a_lane() {
  for (const FormatInfo& format : kFormats) {
    int lanes = 0;
#define FAMILY(name, Lane) lanes += format.family == Family::name;
#include "fast/families.def"
#undef FAMILY
    if (lanes != 1) return false;
  }
  return true;
}
static_assert(every_format_has_a_lane(),
              "the family of each row of contract/formats.def has one row in fast/families.def");

}  // namespace

std::string launch_directions(const Job& job, const Read& read) {
  const Problem& p = job.problem;
  if (!p.row) return launch_with_row<NoDirection>(job, read);
  switch (info(p.row->format).family) {
#define FAMILY(name, Lane) \
  case Family::name:       \
    return launch_with_row<Lane>(job, read);
#include "fast/families.def"
#undef FAMILY
  }
  throw std::runtime_error("no direction lane for " + std::string(info(p.row->format).name));
}

std::string quantize_directions(const Job& job) {
  const Problem& p = job.problem;
  Read read;
  read.x = job.input<void>("x");
  read.noop = job.input("noop");
  read.source = p.x.source;
  read.shape = p.x.shape;
  read.member = p.rng.member;
  read.grid = Extent{p.x.shape.rows, p.x.shape.cols}.tiles();
  return launch_directions(job, read);
}

}  // namespace assay::ASSAY_FAST_NAMESPACE
