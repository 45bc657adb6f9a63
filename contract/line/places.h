// Where a key holds a value: a bare key at 0; a directional key at each direction that has a Quantizer; a
// gemm's key of operands at a, at b and, where c or a bias is drawn, at c; an attention's key of a Quantizer
// at each slot. A place has the prefix that names it in a line.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/line/key.h"

namespace assay::line {

// The prefixes of this Problem's places.
std::span<const std::string_view> places_of(const Problem&);
// Whether the key may be written with the prefix of a place.
bool prefixed(const Key&, const Problem&);
// The places at which the key applies.
std::vector<int> places(const Key&, const Problem&);
// Whether one place, of a direction, an operand or a slot, is among them.
bool applies_at(const Key&, const Problem&, int place);

// A key's functions at a place. The keys of operands see the operand as the line that quantizes it, with its
// own seed; c is drawn by x's fill.
class At {
 public:
  At(const Key&, const Problem&, int place);
  bool applies() const { return key_.applies(seen(), direction_); }
  std::string get() const { return key_.get(seen(), direction_); }
  // What the flavour sets, else the key's own default.
  std::string fallback() const;
  // Into p, which is the Problem of the constructor.
  MaybeError set(Problem& p, std::string_view text);

 private:
  const Problem& seen() const { return viewed_ ? view_ : problem_; }

  const Key& key_;
  const Problem& problem_;
  Direction direction_;
  bool viewed_;
  Side side_{};
  AttentionSlot slot_{};
  Problem view_;
};

}  // namespace assay::line
