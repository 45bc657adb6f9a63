// Acceptor: what `assay check` may ask about a large recorded tensor before the reference looks at it. It
// says which blocks it does not know; only the reference can fail a case. Of a case that the reference failed
// it may count what differs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "contract/subject.h"

namespace assay {

// A matrix where its bytes lie; `stride` bytes lie between the starts of neighbouring rows.
struct StridedBytes {
  const std::byte* first = nullptr;
  size_t stride = 0;
};

// A block, by its place among the blocks of a direction: (row, number of the block in that row), or (number
// of the block in that column, column). Where a tensor has one scale its blocks are pieces of kAcceptedPiece.
struct BlockPlace {
  uint32_t row = 0, col = 0;
};
inline constexpr int64_t kAcceptedPiece = 32;  // elements

// A block that an acceptor does not know to be right, and what it saw there.
struct DoubtfulBlock : BlockPlace {
  // It holds a NaN, an infinity, a subnormal code or a code of the largest magnitude: only the reference can
  // say what differs.
  bool special = false;
  bool scale = false;  // the scale is not the one that it makes
  int differ = 0;      // codes that are not those that it makes
  int first = 0;       // of a block down a column: the first of these, counted from the block's first element
};

class Acceptor {
 public:
  virtual ~Acceptor() = default;

  // The instruction set that it uses, for the verdict: "AVX2".
  virtual std::string_view target() const = 0;
  // Hash of its source text: a certificate of other sources says nothing.
  virtual std::string_view sources() const = 0;
  // Those of this machine that it uses only where they are named to use_certified().
  virtual std::vector<std::string_view> uncertified() const = 0;
  // From here on uses the best instruction set that needs no certificate or has one.
  virtual void use_certified(const std::set<std::string, std::less<>>& certified) = 0;

  // Whether it takes this line: where not, why.
  virtual Support accepts(const Problem&) const = 0;
  // The blocks of direction d that it does not know to be right, of a line that it takes: those that differ,
  // and the special ones. Every other block has the right codes and the right scale, bit for bit. x has the
  // shape of p's x; data and scales are laid out as the planes are, compactly. `scales` is empty where the
  // tensor has one scale, whose amax p gives.
  virtual std::vector<DoubtfulBlock> unknown(const Problem& p, Direction d, StridedBytes x, StridedBytes data,
                                             StridedBytes scales) = 0;
};

}  // namespace assay
