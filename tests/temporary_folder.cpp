// Part of every test program: what its tests leave in the temporary folder goes into one folder, which ends
// with the program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace assay {
namespace {

// Made when the first test begins: a program that only lists its tests, or that runs none, leaves nothing.
class TemporaryFolder final : public testing::Environment {
 public:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "assay_tests_XXXXXX").string();
    if (!::mkdtemp(name.data())) return;
    path_ = name;
    owner_ = ::getpid();
    for (Variable& v : variables_) v.set(name);
  }
  void TearDown() override {
    std::error_code ignored;
    if (path_.empty() || ::getpid() != owner_) return;  // workers are forks
    std::filesystem::remove_all(path_, ignored);
    for (Variable& v : variables_) v.restore();  // --gtest_repeat makes another folder
  }

 private:
  struct Variable {
    const char* name;
    std::optional<std::string> before = {};

    void set(const std::string& value) {
      if (const char* old = std::getenv(name)) before = old;
      ::setenv(name, value.c_str(), 1);
    }
    void restore() const {
      if (before) ::setenv(name, before->c_str(), 1);
      else ::unsetenv(name);
    }
  };

  std::filesystem::path path_;
  pid_t owner_ = 0;
  // Of std::filesystem::temp_directory_path and of testing::TempDir.
  Variable variables_[2] = {{"TMPDIR"}, {"TEST_TMPDIR"}};
};

[[maybe_unused]] const testing::Environment* const folder =
    testing::AddGlobalTestEnvironment(new TemporaryFolder);

}  // namespace
}  // namespace assay
