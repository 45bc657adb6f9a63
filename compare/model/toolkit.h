// The programs behind the PTX: ptxas of the CUDA toolkit, and nvdisasm of the toolkit or of PyPI. Neither
// needs a GPU, and the model does without either and says so.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "compare/model/occupancy.h"
#include "compare/model/sass.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay::model {

// The nvdisasm that serves where CUDA has none, as pip takes it. ci/model_counts reads it here.
inline constexpr std::string_view kNvdisasmRelease = "nvidia-cuda-nvdisasm==13.5.37";

// What became of one kernel.
struct Machine {
  Compiled compiled;
  std::optional<Sass> sass;
  std::string no_sass;  // why there is none
};

class Toolkit {
 public:
  // Paths; an empty one is looked for in PATH, then in the folders of the CUDA toolkit (CUDA_HOME, CUDA_PATH,
  // /usr/local/cuda).
  Toolkit(const std::string& ptxas, const std::string& nvdisasm);

  // "13.0.88"; empty where the program is absent.
  const std::string& ptxas_version() const { return ptxas_version_; }
  const std::string& nvdisasm_version() const { return nvdisasm_version_; }
  // Why there is no ptxas, and what to type; empty where there is one.
  const std::string& missing() const { return missing_; }

  // Compiles one entry of the text at `path` for an architecture; remembered. Error: no ptxas, no such entry,
  // or what ptxas said.
  const Result<Machine>& machine(const std::string& path, const std::string& entry, Architecture);

 private:
  Result<Machine> compile(const std::string& path, const std::string& entry, Architecture) const;
  std::string ptxas_, nvdisasm_, ptxas_version_, nvdisasm_version_, missing_;
  std::map<std::pair<std::string, Architecture>, Result<Machine>> known_;
};

// What `ptxas -v` said of a kernel. Error: it said nothing of registers.
Result<Compiled> read_resources(const std::string& text);

}  // namespace assay::model
