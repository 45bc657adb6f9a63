// The search begins from what libraries choose: a bug in a library's quantizer is named under that library's
// choices. And codes of six bits that are packed as a library packs them.
#include "compare/diagnosis/search/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compare/diagnosis/report/text.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay {
namespace {

using std::string;

Diagnosis diagnosed(const planes::Case& said, const std::vector<PlaneData>& made) {
  Observation seen{said.problem, "test", said.inputs, made};
  for (size_t i = 0; i < made.size(); ++i) seen.got[i].plane = said.want[i].plane;
  const auto reference = make_reference_subject();
  DiagnoseOptions options;
  options.jobs = 1;
  auto found = diagnose(seen, *reference, options);
  EXPECT_TRUE(found) << (found ? "" : found.error().text());
  return found ? std::move(*found) : Diagnosis{};
}

// The ids of the explanations that make every byte, each joined by " + ".
std::vector<string> exact_ids(const Diagnosis& d) {
  std::vector<string> out;
  for (const Explanation& e : d.explanations) {
    if (!e.exact()) continue;
    string ids;
    for (const string& id : e.ids) ids += (ids.empty() ? "" : " + ") + id;
    out.push_back(ids);
  }
  return out;
}

TEST(Diagnose, ABugUnderTheChoicesOfALibrary) {
  const string line = "quantize nvfp4 64x256 bf16 dir=row fill=ties";
  const planes::Case said(line), made(line + " flavour=vllm.nvfp4 element_ties=zero");
  const Diagnosis d = diagnosed(said, made.want);
  const std::vector<string> ids = exact_ids(d);
  EXPECT_NE(std::ranges::find(ids, "flavour.vllm.nvfp4 + line.element_ties=zero"), ids.end())
      << diagnosis_screen(d);
}

// torchao's pack_uint6: of four codes the upper four bits come first, and the lower two of all four last.
TEST(Diagnose, SixBitCodesAsTorchaoPacksThem) {
  for (const char* element : {"e2m3", "e3m2"}) {
    const planes::Case said(string("quantize mxfp6 32x128 bf16 dir=row packing=packed element=") + element);
    std::vector<PlaneData> made = said.want;
    PlaneData& data = *std::ranges::find(made, "row.data", [](const PlaneData& p) { return p.plane.name; });
    for (size_t at = 0; at + 3 <= data.bytes.size(); at += 3) {
      std::byte* const b = data.bytes.data() + at;
      const uint32_t group =
          static_cast<uint32_t>(b[0]) | static_cast<uint32_t>(b[1]) << 8 | static_cast<uint32_t>(b[2]) << 16;
      const uint32_t first = group & 63, second = group >> 6 & 63, third = group >> 12 & 63,
                     fourth = group >> 18;
      b[0] = static_cast<std::byte>(first >> 2 << 4 | second >> 2);
      b[1] = static_cast<std::byte>(fourth >> 2 << 4 | third >> 2);
      b[2] = static_cast<std::byte>((first & 3) << 6 | (second & 3) << 4 | (fourth & 3) << 2 | (third & 3));
    }
    const Diagnosis d = diagnosed(said, made);
    const std::vector<string> ids = exact_ids(d);
    EXPECT_NE(std::ranges::find(ids, "packing.torchao"), ids.end()) << element << diagnosis_screen(d);
    EXPECT_EQ(d.first, Stage::packing) << element;
  }
}

}  // namespace
}  // namespace assay
