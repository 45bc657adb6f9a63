// The PTX of our own kernels, as nvcc kept it when it compiled them (fast/CMakeLists.txt): one text for each
// unit and architecture, found by the name of an entry.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "contract/subject.h"
#include "fast/ptx/module.h"

namespace assay::stand_in {

class KernelTexts {
 public:
  // Looks for the entries of every text of the architecture in the folder; bodies are read when a kernel is
  // first launched. Texts that cannot be read hold no entries.
  KernelTexts(const std::string& folder, Architecture);

  bool empty() const { return text_of_.empty(); }
  // The module that has the entry. Threads, such as those that are ranks, may ask at once.
  // std::runtime_error: there is none.
  ptx::Module& module_of(std::string_view entry);
  // The path of that module's text; empty where there is none.
  std::string path_of(std::string_view entry) const;

 private:
  std::string architecture_;
  std::map<std::string, std::string, std::less<>> text_of_;                   // entry -> path
  std::map<std::string, std::unique_ptr<ptx::Module>, std::less<>> modules_;  // by path
  std::mutex reading_;                                                        // of modules_
};

// Those of this build, or of the installation (share/assay/ptx beside bin). The first call for an
// architecture looks through the folder.
KernelTexts& kernel_texts(Architecture);

}  // namespace assay::stand_in
