// What can have gone wrong, as data. A hypothesis changes one step of a quantize: a key of its line, an element as it is read, the amax of a block or of the tensor, a scale, a code, or
// the place where things are stored. Replaying it on the reference (compare/diagnosis/replay/replay.h) gives the bytes that such a defect makes. A defect once found is one row more, in hypotheses.cpp.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compare/diagnosis/diagnosis.h"

namespace assay {

// x as one direction sees it: lines, and along each the contracted dimension, in which blocks lie. Element (i, j) is x(i, j) for rows and x(j, i) for columns.
class Matrix {
 public:
  // Of another matrix: the code that stands at (i, j) instead.
  using Edit = std::function<uint32_t(const Matrix& under, int64_t i, int64_t j)>;

  // What is pointed to must outlive this.
  Matrix(const PlaneData& x, Direction d);
  Matrix(const Matrix& under, const Edit& edit, Encoding encoding);

  int64_t lines() const { return lines_; }
  int64_t length() const { return length_; }
  Encoding encoding() const { return encoding_; }
  uint32_t code(int64_t i, int64_t j) const { return edit_ ? (*edit_)(*under_, i, j) : stored(i, j); }
  double value(int64_t i, int64_t j) const;
  // max |x| over the part of these lines and places that exists, from 0; a NaN is skipped.
  double amax(int64_t i0, int64_t i1, int64_t j0, int64_t j1) const;
  double amax() const { return amax(0, lines_, 0, length_); }
  // x before any edit.
  const Matrix& source() const { return under_ ? under_->source() : *this; }

 private:
  uint32_t stored(int64_t i, int64_t j) const;

  const std::byte* bytes_ = nullptr;
  const Matrix* under_ = nullptr;
  const Edit* edit_ = nullptr;
  Encoding encoding_;
  int64_t lines_, length_, line_step_ = 0, step_ = 0;
};

// The code of `e` (f32, bf16, f16) nearest to v, ties to even; beyond the largest: infinity.
uint32_t nearest_code(Encoding e, double v);
// The same toward zero.
uint32_t truncated_code(Encoding e, double v);

// One block: the places [j0, j1) of the lines [i0, i1) of what is quantized, cut off at the edge of the tensor.
struct BlockView {
  const Matrix& x;               // rotated, where the line rotates
  const Matrix& unrotated;
  int64_t i0, i1, j0, j1;
  int64_t height, length;        // of a whole block
  double amax() const { return x.amax(i0, i1, j0, j1); }
};

// The scales of a direction, one for each line and block along it: codes of its encoding. fp8_block: the amaxes that they are made of, as F32.
struct ScaleGrid {
  Encoding encoding;
  int64_t lines, blocks;
  std::vector<uint32_t> codes;   // [lines * blocks]
  std::vector<double> amaxes;    // of the blocks, likewise; what scales are made of
  double encode_scale = 1;       // N10.2, of a tensor with one amax
  double tensor_amax = 0;        // ... which is this
  double amax(int64_t line, int64_t block) const { return amaxes[static_cast<size_t>(line * blocks + block)]; }
  uint32_t at(int64_t line, int64_t block) const { return codes[static_cast<size_t>(line * blocks + block)]; }
};

// A value that is worked out when it is asked for. What it is made of must outlive it.
class Lazy {
 public:
  template <class F>
  Lazy(const F& f) : of_(&f), call_([](const void* of) { return (*static_cast<const F*>(of))(); }) {}   // implicit, as of a std::function, but nothing is kept
  double operator()() const { return call_(of_); }

 private:
  const void* of_;
  double (*call_)(const void*);
};

// One code of the data, about to be stored.
struct CodeView {
  uint32_t code;
  Encoding encoding;
  int64_t i, j, lines, length;               // where its element stands, and how many there are
  double x;                                  // the element
  Lazy scaled;                               // the value that was rounded; NaN where it is none
  double factor;                             // what the element is multiplied by, or divided by
  bool divides;
  double scale;                              // the value of the stored scale
  double tensor_amax;                        // of formats that have one
  Lazy block_amax;
  double encode_scale;                       // N10.2, of a tensor with one amax
};

// The code nearest to v, ties to even; beyond the largest: the largest; of NaN the encoding's.
uint32_t element_code(Encoding e, double v);
// One byte of Philox4x32 (N12.1), by key and counter.
struct PhiloxWords {
  uint32_t word[4];
};
PhiloxWords philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high, int rounds);

// What a per-tensor format stores of its scale.
struct TensorScalars {
  float amax = 0, scale = 0, scale_inv = 0;
};

struct Hypothesis {
  std::string id;               // "amax.misses_last"; stable, and enough to build it again (hypothesis_named)
  std::string title;            // "the amax of a block misses its last element"
  Stage stage = Stage::code;
  std::string clause;           // that is violated, or that says what is done instead; may be empty

  // What is done: usually one of these.
  std::string keys;                                                                   // "mx_scale=floor": the direction's line has these keys
  Matrix::Edit element;                                                               // x is read like this
  bool widened = false;                                                               // ... and `element` gives F32 codes, whatever x is
  std::function<double(const BlockView&)> amax;                                       // the amax of a block, of a row under row scales (N3.12)
  std::function<double(const Matrix& x, const Matrix& unrotated)> tensor_amax;        // the amax of the tensor; under row scales that of every row
  std::function<bool(int64_t row, int64_t col, Shape of)> tensor_part;                // ... is that of these elements
  bool amax_shown = true;                                                             // ... which the amax plane shows too, where there is one
  std::function<uint32_t(const ScaleGrid&, int64_t line, int64_t block)> scale;       // the scale of a block
  enum class Use : uint8_t { both, codes, stored } use = Use::both;                   // ... for the codes and as it is stored, or for one of them
  std::function<void(TensorScalars&)> scalars;                                        // what is stored of a tensor's scale
  std::function<double(const CodeView&)> scaled;                                      // an element's scaled value, which is narrowed to binary32 and cast anew
  std::function<uint32_t(const CodeView&)> code;                                      // a code of the data
  std::string code_keys;                                                              // codes are those of the line with these keys, scales are not
  std::function<std::pair<int64_t, int64_t>(int64_t i, int64_t j, int64_t lines, int64_t length)> code_place;   // the code of this element stands at (i, j) instead
  std::string of_other;                                                               // this plane, "data" or "scales", holds the other direction's bytes; "scales:logical", "scales:transposed": its codes by their places, or by those exchanged; "blocks:...": both, of a direction that is quantized as this one is, "blocks:codes": its codes alone
  std::string layout;                                                                 // "<plane stem>:<name>": the place of everything in a plane (compare/diagnosis/patterns/layouts.h)

  bool wide = false;            // looks at other blocks than its own: a sample cannot show what it does
  bool named_set = false;       // a flavour: several keys that somebody's quantizer has together
};

// The rows that can apply to one direction of a quantize, `lane` (only that direction's Quantizer, or both where they draw together). In the order in which equal explanations are told.
std::vector<Hypothesis> hypotheses(const Problem& lane, Direction d);
// Of any other op: the values of its keys, as data of lines alone.
std::vector<Hypothesis> line_hypotheses(const Problem& problem);
// The row of this id, those among them that search finds by fitting ("code.map:7E>7D", "layout.data:transposed"). Nothing where there is none for this lane.
std::optional<Hypothesis> hypothesis_named(const std::string& id, const Problem& lane, Direction d);

// `problem` with keys set, in one direction or in all that it has. Nothing where the keys do not fit.
std::optional<Problem> with_keys(const Problem& problem, const std::string& keys, std::optional<Direction> only = {});

}  // namespace assay
