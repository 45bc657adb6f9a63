// Tests of causes: what came is diagnosed, and an exact explanation of one id is demanded.
#pragma once
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compare/diagnosis/report/text.h"
#include "compare/diagnosis/search/diagnose.h"
#include "compare/diagnosis/search/predict.h"
#include "tests/compare/diagnosis/planes.h"

namespace assay::named {

using Planes = std::vector<PlaneData>;

inline PlaneData& called(Planes& planes, const std::string& name) {
  if (PlaneData* found = find_plane(planes, name)) return *found;
  throw std::runtime_error("no plane " + name);
}

inline Diagnosis diagnosed(const planes::Case& c, Planes got) {
  auto d = diagnose(Observation{c.problem, "test", c.inputs, std::move(got)}, *make_reference_subject(), {});
  EXPECT_TRUE(d);
  return d ? std::move(*d) : Diagnosis{};
}

// The exact explanation of that id says the same bytes once more.
inline void expect_named(const std::string& id, const planes::Case& c, Planes got) {
  const Diagnosis d = diagnosed(c, got);
  const Explanation* named = nullptr;
  for (const Explanation& e : d.explanations)
    if (e.exact() && e.ids == std::vector{id}) named = &e;
  ASSERT_TRUE(named) << id << '\n' << diagnosis_screen(d);
  const auto again = predict(*named, c.problem, c.inputs, *make_reference_subject());
  ASSERT_TRUE(again) << id;
  for (const PlaneData& plane : *again) {
    const PlaneData& came = called(got, plane.plane.name);
    const std::vector<Member>& members = plane.plane.members;
    if (members.empty()) {
      EXPECT_EQ(plane.bytes, came.bytes) << id << ' ' << plane.plane.name;
      continue;
    }
    // A kernel may leave anything where no member was written.
    if (id.starts_with("split.scale_offsets") && plane.plane.name.find(".scale_") != std::string::npos)
      continue;
    for (const Member& m : members) {
      const size_t end = plane.plane.bytes_of(m.offset + m.padded.count());
      for (size_t i = plane.plane.bytes_of(m.offset); i < end; ++i)
        ASSERT_EQ(plane.bytes[i], came.bytes[i]) << id << ' ' << plane.plane.name << ' ' << i;
    }
  }
}

}  // namespace assay::named
