// What a format does in each op. formats/<name>.cpp defines one constant, assay::reference::formats::<name>,
// and tells the format's whole story from top to bottom; the table over contract/formats.def is in
// subject.cpp.
#pragma once
#include "reference/tensor.h"

namespace assay::reference {

struct Format {
  // Writes the direction's output planes, in full.
  void (*quantize)(const Run&, Direction) = nullptr;
  // Writes y from the direction's planes.
  void (*dequantize)(const Run&, Direction) = nullptr;
  // Writes the chain's planes from x. Null: the format has no chain from amax to scale.
  void (*scale_chain)(const Run&) = nullptr;
  // Scales from compact to GEMM layout, or back. Null: they are moved and keep their bytes (N6.3).
  void (*swizzle)(const Run&, Direction) = nullptr;
  // One delayed-scaling update. Null: the format keeps no history.
  void (*update)(const Run&) = nullptr;
  // The steps that lead to each element: of quantize and dequantize in the given direction at (row, col) of
  // the tensor, of scale_chain at (row, col) of x, of update for slot `col`. What the run refers to must
  // outlive the tracer.
  Tracer (*trace)(const Run&, Direction) = nullptr;
};

namespace formats {
#define FORMAT(name, ...) extern const Format name;
#include "contract/formats.def"
#undef FORMAT
}  // namespace formats

}  // namespace assay::reference
