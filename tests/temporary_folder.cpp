// Part of every test program: what its tests leave in the temporary folder goes into one folder, which ends
// with the program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace assay {
namespace {

class TemporaryFolder final : public testing::Environment {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "assay_tests_XXXXXX").string();
    if (!::mkdtemp(name.data())) return;
    path_ = name;
    ::setenv("TMPDIR", name.c_str(), 1);       // std::filesystem::temp_directory_path
    ::setenv("TEST_TMPDIR", name.c_str(), 1);  // testing::TempDir
  }
  void TearDown() override {
    std::error_code ignored;
    if (!path_.empty() && ::getpid() == owner_) std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::filesystem::path path_;
  const pid_t owner_ = ::getpid();  // workers are forks
};

[[maybe_unused]] const testing::Environment* const folder =
    testing::AddGlobalTestEnvironment(new TemporaryFolder);

}  // namespace
}  // namespace assay
