// What can have gone wrong, as data. A hypothesis changes one step of a quantize: a key of its line, an
// element as it is read, the amax of a block or of the tensor, a scale, a code, or the place where things
// are stored. Replaying it on the reference (compare/diagnosis/replay/replay.h) gives the bytes that such a
// defect makes. A defect once found is one row more in the file of its stage (README.md of this folder).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/arithmetic/attention_core.h"
#include "compare/diagnosis/diagnosis.h"
#include "compare/diagnosis/library/matrix.h"
#include "contract/encoding.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"

namespace assay {

// The scales of a direction, one for each line and block along it: codes of its encoding. Of fp8_block they
// are the amaxes that the scales are made of, as F32.
struct ScaleGrid {
  Encoding encoding;
  int64_t lines, blocks;
  std::vector<uint32_t> codes;  // [lines * blocks]
  std::vector<double> amaxes;   // of the blocks, likewise; what scales are made of
  double encode_scale = 1;      // N10.2, of a tensor with one amax
  double tensor_amax = 0;       // ... which is this
  double amax(int64_t line, int64_t block) const { return amaxes[index(line, block)]; }
  uint32_t at(int64_t line, int64_t block) const { return codes[index(line, block)]; }
  size_t index(int64_t line, int64_t block) const { return static_cast<size_t>(line * blocks + block); }
};

// A value that is computed when it is asked for. What it is made of must outlive it.
class Lazy {
 public:
  // Implicit, as a std::function is, but nothing is copied.
  template <class F>
  Lazy(const F& f) : of_(&f), call_([](const void* of) { return (*static_cast<const F*>(of))(); }) {}
  double operator()() const { return call_(of_); }

 private:
  const void* of_;
  double (*call_)(const void*);
};

// One code of the data, about to be stored.
struct CodeView {
  uint32_t code;
  Encoding encoding;
  int64_t i, j, lines, length;  // where its element stands, and how many there are
  double x;                     // the element
  Lazy scaled;                  // the value that was rounded, perhaps NaN
  double factor;                // what the element is multiplied by, or divided by
  bool divides;
  double scale;        // the value of the stored scale
  double tensor_amax;  // of formats that have one
  Lazy block_amax;
  double encode_scale;  // N10.2, of a tensor with one amax
  Lazy own_amax;        // of the tensor, whatever amax is given
  const PlaneData* row_scales =
      nullptr;  // given.scale of every row of the tensor, where each is given its own
};

// What a per-tensor format stores of its scale.
struct TensorScalars {
  float amax = 0, scale = 0, scale_inv = 0;
  float own_amax = 0;  // of the tensor, whatever amax is given or was there before
  uint32_t nan_bits =
      0;  // the largest pattern of any NaN of the tensor, as binary32 without its sign; 0: none
};

struct Hypothesis {
  std::string id;     // "amax.misses_last"; stable, and enough to build it again (hypothesis_named)
  std::string title;  // "the amax of a block misses its last element"
  Stage stage = Stage::code;
  std::string clause;  // that is violated, or that says what is done instead; may be empty

  // What is done, usually one of these.

  // "mx_scale=floor": the direction's line has these keys.
  std::string keys;
  // x is read like this. `widened`: the edit gives F32 codes, whatever x is.
  Matrix::Edit element;
  bool widened = false;
  // The amax of a block, or of a row under row scales (N3.12).
  std::function<double(const BlockView&)> amax;
  // The amax of the tensor, under row scales that of every row; `tensor_part` says of which elements it is.
  std::function<double(const Matrix& x, const Matrix& unrotated)> tensor_amax;
  std::function<bool(int64_t row, int64_t col, Shape of)> tensor_part;
  // The amax of the tensor, which is a member of a split, is the largest of any member.
  bool group_amax = false;
  // Whether the amax plane shows the changed amax too, where there is such a plane.
  bool amax_shown = true;
  // The scale of a block, for the codes and as it is stored, or for one of them.
  std::function<uint32_t(const ScaleGrid&, int64_t line, int64_t block)> scale;
  enum class Use : uint8_t { both, codes, stored } use = Use::both;
  // What is stored of a tensor's scale.
  std::function<void(TensorScalars&)> scalars;
  // Under row scales: the line whose scale_inv is stored at this one.
  std::function<int64_t(int64_t line)> inverse_place;
  // An element's scaled value, which is narrowed to binary32 and cast anew.
  std::function<double(const CodeView&)> scaled;
  // A code of the data.
  std::function<uint32_t(const CodeView&)> code;
  // The codes are those of the line with these keys, the scales are not.
  std::string code_keys;
  // The code of element (i, j) is the one that stands at this place.
  std::function<std::pair<int64_t, int64_t>(int64_t i, int64_t j, int64_t lines, int64_t length)> code_place;
  // Of another op than quantize: its inputs are read like this. False where that changes nothing.
  std::function<bool(const Problem&, std::vector<PlaneData>& inputs)> read;
  // Of another op than quantize: changes its outputs, as the reference made them of these inputs.
  std::function<void(const Problem&, const std::vector<PlaneData>& inputs, std::vector<PlaneData>& made)>
      remake;
  // Of another op than quantize: what comes out, made by runs of the reference on lines of its own.
  std::function<std::optional<std::vector<PlaneData>>(const Problem&, const std::vector<PlaneData>& inputs,
                                                      const RunLine&)>
      rerun;
  // What becomes of four packed codes of 6 bits, the first in the lowest (N6.8), as the little-endian number
  // of three bytes.
  std::function<uint32_t(uint32_t)> packed;
  // A plane holds the other direction's bytes: "data" or "scales" its bytes as they are, "scales:logical"
  // its codes by their places, "scales:transposed" by their exchanged places. "blocks:logical" and
  // "blocks:transposed": both planes of a direction that is quantized as this one is; "blocks:codes": its
  // codes alone.
  std::string of_other;
  // Bits of one code that are inverted where it is stored.
  struct Flip {
    std::string stem;          // of the plane: "data", "scale_inv", "amax"
    int64_t row = 0, col = 0;  // in the plane
    uint32_t mask = 0;
  };
  std::optional<Flip> flip;
  // "<plane stem>:<name>": the place of everything in a plane (compare/diagnosis/patterns/layouts.h).
  std::string layout;

  // A step of an attention (N20).
  std::optional<AttentionChange> attention;

  bool wide = false;       // looks at other blocks than its own: a sample cannot show what it does
  bool named_set = false;  // a flavour: several keys that a known quantizer has together
};

// The rows that can apply to one direction of a quantize, in the order in which equal explanations are
// told. `lane` has only that direction's Quantizer, or both where they draw together.
std::vector<Hypothesis> hypotheses(const Problem& lane, Direction d);
// Rows of any other op: the values of its keys, and what its steps may do wrong.
std::vector<Hypothesis> line_hypotheses(const Problem& problem);
// The row of this id, or the fitted one that search finds ("code.map:7E>7D", "layout.data:transposed").
// Nothing where this lane has no such row.
std::optional<Hypothesis> hypothesis_named(const std::string& id, const Problem& lane, Direction d);

// `problem` with keys set, in one direction or in all that it has. Nothing where the keys do not fit.
std::optional<Problem> with_keys(const Problem& problem, const std::string& keys,
                                 std::optional<Direction> only = {});

}  // namespace assay
