// One direction of one tensor: its planes as they came and as they should be, and the hypotheses about it.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compare/diagnosis/library/hypotheses.h"
#include "compare/diagnosis/replay/replay.h"
#include "contract/planes.h"
#include "fixtures/inputs.h"

namespace assay::cause {

using Ids = std::vector<std::string>;  // of hypotheses, in the order in which they act

// Whether an id holds a number that was fitted to this tensor ("tensor_scale.is=3F800000,3F800000").
bool holds_number(const std::string& id);

// One plane of a lane: as it came, as it should be.
struct JudgedPlane {
  size_t index = 0;  // among the lane's output planes
  PlaneData got, want;
  int64_t of = 0, differ = 0;
  bool is_data() const { return want.plane.name.ends_with(".data"); }
  bool is_scalar() const { return want.plane.padded == Shape{1, 1}; }
  std::string stem() const {
    return want.plane.name.substr(want.plane.name.find('.') + 1);
  }  // "data", "scale_inv"
  void count();
};

struct JudgedLane {
  std::deque<Hypothesis> library;
  std::unordered_map<std::string, const Hypothesis*> by_id;
  std::unique_ptr<Replay> replay;
  std::vector<JudgedPlane> judged;  // the planes that came
  const Lane& lane() const { return replay->lane(); }
  // Of a lane with a direction: its quantizer, how many lines it has and how many elements each, and whether
  // the lines are the rows of what is stored.
  const Quantizer& quantizer() const;
  int64_t lines() const;
  int64_t length() const;
  bool as_seen() const;
  bool differs() const;
  const JudgedPlane* find(std::string_view stem) const;
  // The row of this id, which is looked up by name and kept where the library has none. Nothing where this
  // lane cannot have it.
  const Hypothesis* row(const std::string& id, const std::string& title = "");
  std::optional<std::vector<const Hypothesis*>> rows(const Ids& ids) const;
  // Two rows of the library in the order in which they act: by stage, and within a stage as the library has
  // them, where what replaces a value comes after what makes it.
  Ids in_order(const Hypothesis& a, const Hypothesis& b) const;
};

}  // namespace assay::cause
