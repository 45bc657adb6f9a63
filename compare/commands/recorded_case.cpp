#include "compare/commands/recorded_case.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "fixtures/files.h"
#include "fixtures/sha256.h"

namespace assay {

using std::string;

namespace {

// The bytes of a pack as a Subject. Its steps are those of the line that explains it, where there is such a
// line.
class Recorded final : public Subject {
 public:
  Recorded(Observation seen, std::vector<PlaneData> want, std::optional<Problem> explained,
           Subject& reference)
      : seen_(std::move(seen)),
        want_(std::move(want)),
        explained_(std::move(explained)),
        reference_(reference) {}
  std::string_view name() const override { return "pack"; }
  Support supports(const Problem&) const override { return {}; }
  Served run(const Problem&, std::span<const ConstBuffer>, std::span<const Buffer> out,
             const Environment&) override {
    for (size_t i = 0; i < out.size(); ++i) {
      const PlaneData* got = find_plane(seen_.got, out[i].plane->name);
      const std::vector<std::byte>& bytes = got ? got->bytes : want_[i].bytes;
      std::copy(bytes.begin(), bytes.end(), out[i].bytes.begin());
    }
    return {"a recording", 0};
  }
  std::vector<TraceStep> trace(const Problem&, std::span<const ConstBuffer> in, Direction d, int64_t r,
                               int64_t c) override {
    return explained_ ? reference_.trace(*explained_, in, d, r, c) : std::vector<TraceStep>{};
  }

 private:
  Observation seen_;
  std::vector<PlaneData> want_;
  std::optional<Problem> explained_;
  Subject& reference_;
};

// The tensor of a pack as a fill.
std::optional<Fill> fill_of(const Pack& pack, const string& tensor) {
  for (size_t n = 0; n < pack.files.size(); ++n)
    if (pack.files[n].find(tensor)) {
      const std::filesystem::path first = pack.path;  // then <stem>.1.safetensors, ...
      const string name = fmt::format("{}.{}.safetensors", first.stem().string(), n);
      const string path = n == 0 ? pack.path : (first.parent_path() / name).string();
      const auto bytes = MappedFile::open(path);
      if (!bytes) return {};
      Fill f;
      f.kind = FillKind::pack;
      f.payload = path + "#" + tensor + "@" + sha256(bytes->bytes());
      return f;
    }
  return {};
}

}  // namespace

bool names_pack(const string& what) {
  std::error_code ignored;
  return std::filesystem::exists(what, ignored) || what.ends_with(".safetensors");
}

void split_case(string& what, string& case_id) {
  std::error_code ignored;
  if (!case_id.empty() || std::filesystem::exists(what, ignored)) return;
  for (size_t at = what.find(':'); at != string::npos; at = what.find(':', at + 1))
    if (std::filesystem::is_regular_file(what.substr(0, at), ignored)) {
      case_id = what.substr(at + 1);
      what.resize(at);
      return;
    }
}

Result<std::vector<const DumpCase*>> cases_named(const Dump& dump, const string& path, const string& id) {
  std::vector<const DumpCase*> out;
  for (const DumpCase& c : dump.cases)
    if (id.empty() || c.recorded->id == id) out.push_back(&c);
  if (!out.empty()) return out;
  if (id.empty()) return Error{path + " holds no case", 0, ""};
  string ids;
  for (size_t i = 0; i < std::min<size_t>(dump.cases.size(), 8); ++i)
    ids += (ids.empty() ? "" : ", ") + dump.cases[i].recorded->id;
  return Error{fmt::format("{} holds no case '{}' (it has {})", path, id, ids), 0, ""};
}

std::optional<Problem> drawn_from(const DumpCase& c, const Problem& problem) {
  const PackPlane* x = c.recorded->find("x");
  if (!x || !x->tensor || problem.as<Split>()) return problem;
  const auto fill = fill_of(*c.pack, c.recorded->id + "/x");
  if (!fill) return {};
  Problem drawn = problem;
  drawn.x.fill = *fill;
  return drawn;
}

std::unique_ptr<Subject> make_recorded_subject(Observation seen, std::vector<PlaneData> want,
                                               std::optional<Problem> explained, Subject& reference) {
  return std::make_unique<Recorded>(std::move(seen), std::move(want), std::move(explained), reference);
}

}  // namespace assay
