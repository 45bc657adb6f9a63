// A file that cannot be written is refused before anything is run.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "compare/commands/certify.h"
#include "compare/commands/count.h"
#include "compare/commands/flavours.h"
#include "compare/commands/model.h"
#include "tests/compare/ended.h"
#include "tests/compare/fakes.h"
#include "tests/compare/interrupting.h"

namespace assay {
namespace {

const std::string kNowhere = testing::TempDir() + "assay_no_such_folder/out.json";

std::string refusal(const std::string& option) {
  return "assay: " + option + ": cannot write " + kNowhere +
         ": No such file or directory (expected a file in a folder that exists, or a device)\n";
}

// Interprets kernels, and says that one was run.
class Ran final : public ForwardingSubject {
 public:
  Ran() : ForwardingSubject(make_reference_subject(), "ran") {}
  bool interprets() const override { return true; }
  std::vector<LaunchCounts> count(const Problem&, std::span<const ConstBuffer>, const Environment&) override {
    throw std::runtime_error("it was run");
  }
};

TEST(Outputs, CountAndModelRefuseBeforeTheRun) {
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  subjects.owned.push_back(std::make_unique<Ran>());
  CountOptions options;
  options.problem = fakes::problem("quantize mxfp8 64x64 bf16 dir=row");
  options.subject = "ran";
  for (const bool html : {false, true}) {
    options.json = html ? "" : kNowhere;
    options.html = html ? kNowhere : "";
    std::ostringstream out, err;
    EXPECT_EQ(run_count(options, subjects, out, err), 2);
    EXPECT_EQ(err.str(), refusal(html ? "--html" : "--json"));
  }
  ModelCommand command;
  command.problems = {options.problem};
  command.subject = "ran";
  command.html = kNowhere;
  std::ostringstream out, err;
  EXPECT_EQ(run_model(command, subjects, out, err), 2);
  EXPECT_EQ(err.str(), refusal("--html"));
}

TEST(Outputs, FlavoursAndCertifyRefuseBeforeTheRun) {
  Subjects subjects;
  subjects.owned.push_back(std::make_unique<fakes::Interrupting>("reference", 0));
  FlavoursOptions flavours;
  flavours.format = "mxfp4";
  flavours.measure = true;
  flavours.json = kNowhere;
  const Ended measured =
      of_files([&](std::FILE* out, std::FILE* err) { return run_flavours(flavours, subjects, out, err); });
  EXPECT_EQ(measured.status, 2);
  EXPECT_EQ(measured.out, "");
  EXPECT_EQ(measured.err, refusal("--json"));
  CertifyOptions certify;
  certify.extent = CertifyExtent::quick;
  certify.output = kNowhere;
  const Ended certified =
      of_files([&](std::FILE* out, std::FILE* err) { return run_certify(certify, subjects, out, err); });
  EXPECT_EQ(certified.status, 2);
  EXPECT_EQ(certified.err, refusal("--output"));
  EXPECT_EQ(static_cast<fakes::Interrupting&>(subjects.reference()).runs(), 0);
}

}  // namespace
}  // namespace assay
