#include "compare/subjects/ptx_texts.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "compare/subjects/ptx_arguments.h"

namespace assay {

namespace {

// The PTX of a launch. `named` is what an error calls it.
Result<std::string> read_text(const std::string& path, const std::string& named) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return Error{named + ", which is a folder; expected a file of PTX text", 0, ""};
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{named + ", which cannot be read; expected a file of PTX text", 0, ""};
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.starts_with("\xEF\xBB\xBF"))
    return Error{
        named +
            ", which begins with a byte order mark, as ptxas does not take it; save it as UTF-8 without one",
        0, ""};
  return text;
}

}  // namespace

Result<Texts> read_texts(const std::string& path, PtxLaunchFile& file) {
  Texts texts;
  for (PtxLaunch& l : file.launches) {
    auto text = read_text(l.ptx, l.called("ptx") + " names " + l.ptx);
    if (!text) return text.error();
    texts[l.ptx] = *text;
    if (auto e = check_text(path, *text, l)) return *e;
  }
  return texts;
}

}  // namespace assay
