#include "tests/fuzz/scratch.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace assay::fuzz {

namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "assay_fuzz_XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

std::string written(const std::string& name, std::string_view bytes) {
  static const Folder folder;
  const std::string path = (folder.path() / name).string();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
  return path;
}

}  // namespace assay::fuzz
