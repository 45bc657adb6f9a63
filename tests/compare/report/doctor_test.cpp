// Doctor: the facts are there, in both forms; the float probes hold here and see a broken environment.
#include "compare/commands/doctor.h"
#include "compare/report/doctor.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <sstream>

#if defined __x86_64__
#include <xmmintrin.h>
#endif

#include "tests/compare/faulty_subject.h"

namespace assay {
namespace {

std::vector<Subject*> pointers(const Subjects& s) {
  std::vector<Subject*> out;
  for (const auto& p : s.owned) out.push_back(p.get());
  return out;
}
size_t broken_probes() {
  size_t n = 0;
  for (const FloatProbe& p : probe_float_environment()) n += !p.holds;
  return n;
}

TEST(Doctor, SaysWhatThereIs) {
  const Subjects subjects = with_fault(no_fault);
  const auto list = pointers(subjects);
  std::ostringstream text, json_text;
  EXPECT_EQ(run_doctor({}, list, text), 0) << text.str();
  EXPECT_EQ(run_doctor({true}, list, json_text), 0);
  const auto facts = json::parse(json_text.str());
  ASSERT_TRUE(facts) << facts.error().text();
  for (const char* key : {"version", "commit", "compiler", "flags", "build_type", "os", "cpu", "fingerprint"})
    EXPECT_FALSE(facts->text(key).empty()) << key;
  EXPECT_NE(facts->text("flags").find("-ffp-contract=off"), std::string::npos) << facts->text("flags");
  EXPECT_EQ(facts->find("subjects")->array()->size(), list.size());
  EXPECT_EQ(facts->text("fingerprint"), fingerprint(list));
  EXPECT_NE(text.str().find(fingerprint(list)), std::string::npos);
}

TEST(Doctor, ProbesSeeABrokenEnvironment) {
  EXPECT_EQ(broken_probes(), 0u);
  for (int mode : {FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD}) {
    std::fesetround(mode);
    const size_t broken = broken_probes();
    std::fesetround(FE_TONEAREST);
    EXPECT_GE(broken, 2u) << mode;  // the register itself, and what it does
  }
#if defined __x86_64__
  const unsigned before = _mm_getcsr();
  for (unsigned bit : {0x8000u, 0x0040u}) {  // flush to zero, denormals are zero
    _mm_setcsr(before | bit);
    const size_t broken = broken_probes();
    _mm_setcsr(before);
    EXPECT_GE(broken, 1u) << bit;
  }
#endif
  EXPECT_EQ(broken_probes(), 0u);
}

}  // namespace
}  // namespace assay
