// Planes as matrices: reading codes as values, writing codes back, transposing. Movement and exact widening
// only.
#pragma once
#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "contract/subject.h"
#include "contract/tracer.h"

namespace assay::reference {

template <class T> using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Values = Matrix<float>;   // exact values: every encoding's values are binary32 values (N1.2)
using Bytes = Matrix<uint8_t>;  // codes of 8 bits and less

// One call of Subject::run or Subject::trace.
struct Run {
  const Problem& problem;
  std::span<const ConstBuffer> inputs;
  std::span<const Buffer> outputs;
  int threads = 1;

  const Quantizer& quantizer(Direction d) const { return *problem.quantizer(d); }
  // The plane called `name`, or `<d>.<name>`. Throw std::invalid_argument where there is none, or where its
  // size is wrong.
  const ConstBuffer& input(std::string_view name) const;
  const ConstBuffer& input(Direction d, std::string_view name) const;
  const Buffer& output(std::string_view name) const;
  const Buffer& output(Direction d, std::string_view name) const;
};

// The code at flat index i of a plane, counting padding; of 1, 2 or 4 bytes as the plane's encoding says.
// load: of so many bits where the plane is packed (N6.8); such a plane is stored whole, below.
uint32_t load(const ConstBuffer&, int64_t i);
void store(const Buffer&, int64_t i, uint32_t code);

// Whole planes, padding included, one element for each code of a packed plane. values(): any encoding.
// bytes(): encodings of at most 8 bits.
Values values(const ConstBuffer&, int threads);
Bytes bytes(const ConstBuffer&);
// Writes codes of at most 8 bits to the top left of a plane and 0 to the rest of it (N6.4, N6.8).
void store(const Buffer&, const Bytes&);
// The same with values, to a plane of f32 (N1.3).
void store(const Buffer&, const Values&);

// A one-element f32 plane.
double scalar(const ConstBuffer&);
void store_scalar(const Buffer&, double);  // N1.3

// m transposed, 32x32 tile by tile.
Values transposed(const Values& m, int threads);
Bytes transposed(const Bytes& m, int threads);

}  // namespace assay::reference
