// What two routes through a cell left behind, compared: the first difference in the order in which one thing
// explains the next.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/modules/step.h"
#include "training/parity/cell.h"

namespace assay::training {

struct Difference {
  std::string what, expected, found;  // "fprop: b.data"; vanilla's and hybrid's, on one line each
};
using Found = std::optional<Difference>;

// Bytes of one thing, hybrid's and vanilla's: the first byte that differs. Adds them to `compared`.
Found compare_bytes(const std::string& what, const std::vector<std::byte>& got,
                    const std::vector<std::byte>& want, int64_t& compared);

// The hybrid step against those of the vanilla routes of fprop, dgrad and wgrad, which may be the same one.
// Adds the bytes that were looked at to `compared`. `states_given`: both routes were handed their random
// states.
Found compare_steps(const Cell&, const StepRecord& hybrid, const std::array<StepRecord, 3>& vanilla,
                    bool states_given, int64_t& compared);

}  // namespace assay::training
