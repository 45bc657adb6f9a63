#include "fast/stand_in/kernel_texts.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace assay::stand_in {

namespace {

namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The texts of an architecture, the oldest first: of a unit that was renamed, the newer one counts.
std::vector<fs::path> texts_in(const std::string& folder, std::string_view ending) {
  std::vector<fs::path> found;
  std::error_code absent;
  for (const auto& file : fs::directory_iterator(folder, absent))
    if (file.path().native().ends_with(ending)) found.push_back(file.path());
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    return fs::last_write_time(a) < fs::last_write_time(b);
  });
  return found;
}

// Of the build that made the program, or of the installation that it belongs to (cmake/install.cmake).
std::string folder_of_texts() {
  std::error_code absent;
  if (fs::is_directory(ASSAY_PTX_FOLDER, absent)) return ASSAY_PTX_FOLDER;
  return (fs::read_symlink("/proc/self/exe", absent).parent_path().parent_path() / "share/assay/ptx")
      .string();
}

}  // namespace

KernelTexts::KernelTexts(const std::string& folder, Architecture architecture)
    : architecture_(name(architecture)) {
  // sm_90a is compute_90a in the names that nvcc gives.
  const std::string ending = ".compute_" + architecture_.substr(3) + ".ptx";
  constexpr std::string_view kEntry = ".entry ";
  for (const fs::path& path : texts_in(folder, ending)) {
    const std::string text = read_text(path.string());
    for (size_t at = text.find(kEntry); at != std::string::npos; at = text.find(kEntry, at)) {
      at += kEntry.size();
      text_of_[text.substr(at, text.find_first_of("( \t\n", at) - at)] = path.string();
    }
  }
}

ptx::Module& KernelTexts::module_of(std::string_view entry) {
  const auto found = text_of_.find(entry);
  if (found == text_of_.end())
    throw std::runtime_error("this build has no PTX of the kernel " + std::string(entry) + " for " +
                             architecture_);
  const std::lock_guard lock(reading_);
  auto& module = modules_[found->second];
  if (!module) module = std::make_unique<ptx::Module>(read_text(found->second));
  return *module;
}

std::string KernelTexts::path_of(std::string_view entry) const {
  const auto found = text_of_.find(entry);
  return found == text_of_.end() ? std::string() : found->second;
}

KernelTexts& kernel_texts(Architecture architecture) {
  static std::array<std::unique_ptr<KernelTexts>, kArchitectures.size()> texts;
  static std::mutex finding;
  const std::lock_guard lock(finding);
  auto& slot = texts[static_cast<size_t>(architecture)];
  if (!slot) slot = std::make_unique<KernelTexts>(folder_of_texts(), architecture);
  return *slot;
}

}  // namespace assay::stand_in
