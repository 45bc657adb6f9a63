#include "training/attention/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "training/base/errors.h"
#include "training/formats/formats.h"

namespace assay::training {
namespace {

std::string words_of(const std::vector<QuantizerPtr>& forward, const std::vector<QuantizerPtr>& backward) {
  try {
    attention_quantizers(forward, backward, "dpa");
  } catch (const SemanticError& e) {
    return e.what();
  }
  return "none";
}

std::vector<QuantizerPtr> list(size_t n) {
  std::vector<QuantizerPtr> out;
  for (size_t i = 0; i < n; ++i) out.push_back(std::make_shared<Float8CurrentScalingQuantizer>());
  return out;
}

TEST(AttentionSlots, AMissingQuantizerIsNamedByItsPlace) {
  EXPECT_EQ(words_of(list(9), list(6)), "none");
  EXPECT_NE(words_of({}, {}).find("expected a quantizer in slot"), std::string::npos);
  for (const AttentionSlot& slot : attention_slots()) {
    std::vector<QuantizerPtr> forward = list(9), backward = list(6);
    const bool first = slot.mode == Mode::forward;
    const std::string list_of_slot = first ? " of the forward list, found " : " of the backward list, found ";
    std::vector<QuantizerPtr>& own = first ? forward : backward;
    own[slot.slot] = nullptr;
    EXPECT_NE(words_of(forward, backward)
                  .find("expected a quantizer at " + std::to_string(slot.slot) + list_of_slot + "none"),
              std::string::npos)
        << slot.tensor;
    own.resize(slot.slot);
    if (own.empty()) continue;
    // Another slot behind the end may be read first.
    EXPECT_THAT(words_of(forward, backward),
                testing::ContainsRegex("expected a quantizer at [0-9]+" + list_of_slot + "a list of " +
                                       std::to_string(slot.slot)));
  }
}

TEST(AttentionSlots, OfSeveralMissingQuantizersTheFirstThatIsReadIsNamed) {
  std::vector<QuantizerPtr> forward = list(9), backward = list(6);
  for (const std::string_view tensor : {"dQKV", "dP", "dO", "O", "S", "QKV"}) {  // from the last that is read
    const AttentionSlot& slot = attention_slot(tensor);
    const bool first = slot.mode == Mode::forward;
    (first ? forward : backward)[slot.slot] = nullptr;
    EXPECT_NE(words_of(forward, backward)
                  .find("expected a quantizer at " + std::to_string(slot.slot) + " of the " +
                        (first ? "forward" : "backward") + " list, found none"),
              std::string::npos)
        << tensor;
  }
}

}  // namespace
}  // namespace assay::training
