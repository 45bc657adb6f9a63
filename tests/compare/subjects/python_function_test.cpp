#include "compare/subjects/python_function.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "contract/line.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// ASSAY_PYTHON is a script, as long as one lives.
class Interpreters {
 public:
  explicit Interpreters(const std::string& script) {
    const std::string path = (fs::temp_directory_path() / "interpreter").string();
    std::ofstream(path) << script;
    fs::permissions(path, fs::perms::owner_all);
    setenv("ASSAY_PYTHON", path.c_str(), 1);
  }
  ~Interpreters() { unsetenv("ASSAY_PYTHON"); }
};

TEST(PythonFunction, AnInterpreterThatNeverAnswersIsGivenUp) {
  // The one stands still, and the other works: no limit of processor time ends that soon.
  for (const char* script :
       {"#!/bin/sh\nexec sleep 20\n", "#!/bin/sh\nfor i in 1 2 3 4 5; do sleep 4; done\n"}) {
    const Interpreters hangs(script);
    const auto start = std::chrono::steady_clock::now();
    const auto subject = make_python_subject("kernels:mxfp8", "", 0.5);
    ASSERT_TRUE(subject);
    const Support here = (*subject)->present();
    EXPECT_FALSE(here.yes);
    EXPECT_NE(here.why.find("did not say within 0.5 s that it has imported kernels:mxfp8"), std::string::npos)
        << here.why;
    EXPECT_THROW((void)(*subject)->supports(*parse_line("quantize mxfp8 1x32 bf16")), std::runtime_error);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  }
}

TEST(PythonFunction, OneThatAnswersInPiecesIsHeard) {
  const Interpreters speaks("#!/bin/sh\nprintf '{\"status\":'; sleep 0.2; echo '\"ok\"}'; read line\n");
  EXPECT_TRUE((*make_python_subject("kernels:mxfp8", "", 10))->present().yes);
}

// What the subject throws at the first question; empty: nothing.
std::string trouble_of(const std::string& script) {
  const Interpreters speaks(script);
  try {
    (void)(*make_python_subject("kernels:mxfp8", "", 10))->supports(*parse_line("quantize mxfp8 1x32 bf16"));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

TEST(PythonFunction, AnAnswerOfAnotherFormIsAnError) {
  const std::string ok = "echo '{\"status\": \"ok\"}'; read line; ";
  const std::string said = "the interpreter answered ";
  for (const std::string& before : {std::string("#!/bin/sh\n"), "#!/bin/sh\n" + ok}) {
    EXPECT_EQ(trouble_of(before + "echo hello"), said + "what is not JSON: hello");
    for (const char* none : {"{}", "[]", "7", R"({"status": "raised"})", R"({"status": 3, "why": ""})"})
      EXPECT_EQ(trouble_of(before + "echo '" + none + "'"), said + R"(neither "ok" nor a reason: )" + none);
    EXPECT_EQ(trouble_of(before + "exec yes ' ' | tr -d '\\n'"),
              said + "a line of more than 1 MiB: " + std::string(200, ' '));
  }
  EXPECT_EQ(trouble_of("#!/bin/sh\n" + ok + ok), "");
}

}  // namespace
}  // namespace assay
