#include "compare/packs/dump.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/places.h"
#include "compare/process/run_in_child.h"
#include "contract/line.h"

namespace assay {

namespace {

using std::string;

using Word = DumpKey::Word;

std::vector<Word> words_of(const string& name) {
  std::vector<Word> out;
  auto kind = [](char c) {
    return c >= '0' && c <= '9' ? 1 : (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ? 2 : 0;
  };
  for (size_t at = 0; at < name.size();) {
    const int k = kind(name[at]);
    size_t end = at;
    while (end < name.size() && kind(name[end]) == k) ++end;
    if (k == 2) {
      Word w{name.substr(at, end - at), 0};
      for (char& c : w.text)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      out.push_back(w);
    } else if (k == 1) {
      Word w{"", 0};
      for (size_t i = at; i < end; ++i)
        w.number = w.number > (std::numeric_limits<uint64_t>::max() - 9) / 10
                       ? w.number
                       : w.number * 10 + static_cast<uint64_t>(name[i] - '0');
      out.push_back(w);
    }
    at = end;
  }
  return out;
}

// Place in a causal list of words, or its end.
int rank(const std::vector<Word>& words,
         std::initializer_list<std::initializer_list<std::string_view>> ranks) {
  int best = static_cast<int>(ranks.size()), i = 0;
  for (const auto& names : ranks) {
    for (const Word& w : words)
      if (std::find(names.begin(), names.end(), w.text) != names.end()) best = std::min(best, i);
    ++i;
  }
  return best;
}

}  // namespace

DumpKey dump_key(const string& name) {
  static const std::set<string, std::less<>> kSteps = {"step", "iter", "iteration"};
  static const std::set<string, std::less<>> kOther = {
      "grad",    "d",   "input",   "x",      "activation", "act",        "weight", "w",
      "output",  "y",   "dy",      "dgrad",  "dx",         "wgrad",      "dw",     "row",
      "rowwise", "col", "colwise", "column", "columnwise", "safetensors"};
  DumpKey key;
  key.name = name;
  const std::vector<Word> words = words_of(name);
  for (size_t i = 0; i < words.size(); ++i) {
    if (kSteps.contains(words[i].text) && i + 1 < words.size() && words[i + 1].text.empty())
      key.step = words[++i].number;
    else if (!kOther.contains(words[i].text)) key.module.push_back(words[i]);
  }
  const bool gradient = rank(words, {{"grad", "d"}}) == 0;
  key.role = rank(words, {{"input", "x", "activation", "act"},
                          {"weight", "w"},
                          {"output", "y"},
                          {"dy"},
                          {"dgrad", "dx"},
                          {"wgrad", "dw"}});
  if (gradient && key.role < 3)
    key.role = key.role == 2 ? 3 : key.role == 0 ? 4 : 5;  // grad_output comes first in the backward pass
  key.direction = rank(words, {{"row", "rowwise"}, {"col", "colwise", "column", "columnwise"}});
  return key;
}

namespace {

// Packs under a path, without the later files of a series.
Result<std::vector<string>> packs_under(const string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) return Error{path + " does not exist", 0, ""};
  if (!fs::is_directory(path, error)) return std::vector<string>{path};
  std::vector<string> out;
  for (auto at = fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (!at->is_regular_file(error) || at->path().extension() != ".safetensors") continue;
    const fs::path stem = at->path().stem();  // "a.1" of a.1.safetensors
    const string number = stem.extension().string();
    const bool later = number.size() > 1 && number.find_first_not_of("0123456789", 1) == string::npos &&
                       fs::exists(at->path().parent_path() / (stem.stem().string() + ".safetensors"), error);
    if (!later) out.push_back(at->path().string());
  }
  if (error) return Error{path + ": " + error.message(), 0, ""};
  if (out.empty()) return Error{path + " holds no *.safetensors", 0, ""};
  return out;
}

}  // namespace

Result<PlaneView> dump_view(const safetensors::Tensor& tensor, const Plane& plane) {
  // 6 codes of 6 bits take 6 bytes where rows are packed with their padding: such bytes are packed, as the
  // plane is (N6.8).
  const bool whole =
      plane.packed && safetensors::bits(tensor.dtype) == 8 && tensor.bytes.size() == plane.bytes();
  const bool bare = plane.layout == ScaleLayout::compact && !(plane.logical == plane.padded) && !whole &&
                    tensor.count() == plane.logical.count();
  if (!bare) return view_plane(tensor, plane);
  Plane unpadded = plane;
  unpadded.padded = plane.logical;
  unpadded.padding = Padding::none;
  unpadded.packed = false;  // rows without their padding code cannot be packed
  return view_plane(tensor, unpadded);
}

Result<PlaneData> dump_plane(const safetensors::Tensor& tensor, const Plane& plane, const PlaneData* like) {
  PlaneData out{plane, {}};
  const auto view = dump_view(tensor, plane);
  if (!view) return view.error();
  if (view->plane.padded == plane.padded) {
    auto bytes = plane_bytes(tensor, plane);
    if (!bytes) return bytes.error();
    out.bytes = std::move(*bytes);
    return out;
  }
  out.bytes = like ? like->bytes : std::vector<std::byte>(plane.bytes());
  for (int64_t r = 0; r < plane.logical.rows; ++r)
    for (int64_t c = 0; c < plane.logical.cols; ++c)
      set_code(plane, out.bytes, index_of(plane, r, c),
               code_at(view->plane, view->bytes, index_of(view->plane, r, c)));
  return out;
}

Result<Dump> read_dump(const std::vector<string>& paths, std::vector<Error>* unread) {
  Dump dump;
  for (const string& path : paths) {
    const auto files = packs_under(path);
    if (!files) return files.error();
    for (const string& file : *files) {
      auto pack = read_pack(file);
      if (!pack && unread && files->size() > 1) {
        unread->push_back(pack.error());
        continue;
      }
      if (!pack) return pack.error();
      dump.packs.push_back(std::make_unique<Pack>(std::move(*pack)));
      for (const PackCase& c : dump.packs.back()->cases)
        dump.cases.push_back({dump_key(file + "/" + c.id), dump.packs.back().get(), &c});
    }
  }
  if (dump.packs.empty() && unread && !unread->empty()) return unread->front();
  std::stable_sort(dump.cases.begin(), dump.cases.end(),
                   [](const DumpCase& a, const DumpCase& b) { return a.key < b.key; });
  return dump;
}

Result<Problem> problem_of(const PackCase& c) {
  if (c.line.empty())
    return Error{"no line says what this case is: metadata \"assay.line." + c.id + "\" is absent", 0, ""};
  auto problem = parse_line(c.line);
  if (!problem) return Error{"its line is invalid: " + problem.error().text(), 0, ""};
  return problem;
}

bool said_by_keys(const string& plane) {
  const string last = plane.substr(plane.rfind('.') + 1);
  return plane.find("given.") != string::npos || plane.ends_with("prior.amax") || last == "noop" ||
         last == "first_dims" || last == "last_dims" || last == "bits" || plane.starts_with("cu_seqlens_");
}

Result<std::vector<PlaneData>> dump_inputs(const PackCase& c, const Problem& problem, Subject& reference) {
  std::vector<PlaneData> given;
  for (const Plane& plane : input_planes(problem)) {
    const PackPlane* recorded = c.find(plane.name);
    if (recorded && recorded->tensor) {
      auto data = dump_plane(*recorded->tensor, plane);
      if (!data) return Error{plane.name + ": " + data.error().text(), 0, ""};
      given.push_back(std::move(*data));
    } else if (!said_by_keys(plane.name) && c.line.find("fill=") == string::npos) {
      return Error{fmt::format("the pack holds no plane {0}, and the line names no fill= to draw it from: "
                               "add a tensor '{1}/{0}'",
                               plane.name, c.id),
                   0, ""};
    }
  }
  return inputs_with(problem, given, reference);
}

}  // namespace assay
