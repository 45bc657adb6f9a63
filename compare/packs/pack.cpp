#include "compare/packs/pack.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/gemm_bounds.h"
#include "compare/packs/token_records.h"
#include "contract/line.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

constexpr std::string_view kLineKey = "assay.line.", kUnpinnedKey = "assay.unpinned.",
                           kDigestKey = "assay.digest.", kSuffix = ".safetensors";

std::string numbered(const std::string& path, size_t n) {
  if (n == 0) return path;
  const bool named = path.ends_with(kSuffix);
  const std::string stem = named ? path.substr(0, path.size() - kSuffix.size()) : path;
  return fmt::format("{}.{}{}", stem, n, kSuffix);
}

std::string note(const safetensors::File& f, const char* key) {
  const std::string* text = f.note(key);
  return text ? *text : std::string{};
}

// Adds what one file holds to the cases.
void collect(const safetensors::File& file, std::map<std::string, PackCase>& cases) {
  auto plane_of =
      [&](std::string_view name) -> PackPlane* {  // "<case>/<plane>"; the case may hold slashes itself
    const size_t slash = name.rfind('/');
    if (slash == std::string_view::npos || slash == 0) return nullptr;
    PackCase& c = cases[std::string(name.substr(0, slash))];
    const std::string_view plane = name.substr(slash + 1);
    for (PackPlane& p : c.planes)
      if (p.name == plane) return &p;
    return &c.planes.emplace_back(PackPlane{std::string(plane), {}, {}});
  };
  for (const safetensors::Tensor& t : file.tensors())
    if (PackPlane* p = plane_of(t.name)) p->tensor = t;
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with(kLineKey)) cases[key.substr(kLineKey.size())].line = value;
    if (key.starts_with(kUnpinnedKey)) cases[key.substr(kUnpinnedKey.size())].unpinned = value;
    if (key.starts_with(kDigestKey))
      if (PackPlane* p = plane_of(std::string_view(key).substr(kDigestKey.size()))) p->digest = value;
  }
  for (const auto& [key, value] : file.metadata())
    if (auto c = cases.find(key); c != cases.end() && c->second.line.empty()) c->second.line = value;
}

bool leaves_bits_open(const Problem& p) {
  return p.as<Attention>() || (p.as<Gemm>() && has_unpinned_bits(*p.as<Gemm>()));
}

// A note that waives the bits of a line all of whose bits are pinned would let a wrong d pass.
std::optional<Error> wrong_waiver(const std::string& path, const PackCase& c) {
  if (c.unpinned.empty()) return {};
  const Result<Problem> p = parse_line(c.line);
  if (!p || leaves_bits_open(*p)) return {};
  return Error{fmt::format("{}: {}{} = '{}' says that bits of this case are not pinned, expected no such "
                           "key: N16.13 pins every bit of '{}'",
                           path, kUnpinnedKey, c.id, c.unpinned, c.line),
               0, "remove the key from the file's metadata: d is then judged bit for bit"};
}

}  // namespace

std::string digest(std::span<const std::byte> bytes) { return sha256(bytes).substr(0, 32); }

std::optional<std::string> unpinned_of(const PackCase& recorded, const Problem& problem) {
  return leaves_bits_open(problem) && !recorded.unpinned.empty() ? std::optional(recorded.unpinned)
                                                                 : std::nullopt;
}

const PackPlane* PackCase::find(std::string_view plane) const {
  for (const PackPlane& p : planes)
    if (p.name == plane) return &p;
  return nullptr;
}

const PackCase* Pack::find(std::string_view id) const {
  for (const PackCase& c : cases)
    if (c.id == id) return &c;
  return nullptr;
}

Result<Pack> read_pack(const std::string& path) {
  Pack pack;
  pack.path = path;
  std::map<std::string, PackCase> cases;
  std::error_code refused;
  for (size_t n = 0; n == 0 || std::filesystem::exists(numbered(path, n), refused); ++n) {
    const std::string name = numbered(path, n);
    Result<safetensors::File> file = safetensors::read(name);
    if (!file) return file.error();
    const std::string form = note(*file, "assay.pack");
    if (!form.empty() && form != std::to_string(kPackVersion))
      return Error{
          fmt::format("{}: the pack has form '{}', but this program reads form {}", name, form, kPackVersion),
          0, "update Assay, or record it again"};
    if (n == 0) {
      pack.subject = note(*file, "assay.subject");
      pack.environment = note(*file, "assay.environment");
      pack.fingerprint = note(*file, "assay.fingerprint");
      pack.kernels = note(*file, "assay.kernels");
      const std::string version = note(*file, "assay.line_version");
      if (!version.empty()) pack.line_version = std::atoi(version.c_str());
    }
    collect(*file, cases);
    pack.files.push_back(std::move(*file));
  }
  for (auto& [id, c] : cases) {
    if (c.planes.empty() && c.line.empty()) continue;
    c.id = id;
    if (auto error = wrong_waiver(path, c)) return *error;
    std::vector<PackCase> more;
    if (auto error = unpack_records(c, more, pack.unpacked)) return *error;
    more.insert(more.begin(), std::move(c));
    for (PackCase& one : more) {
      std::sort(one.planes.begin(), one.planes.end(),
                [](const PackPlane& a, const PackPlane& b) { return a.name < b.name; });
      pack.cases.push_back(std::move(one));
    }
  }
  if (pack.cases.empty())
    return Error{
        fmt::format(
            "{}: no case found: tensors are called <case>/<plane>, with the metadata key assay.line.<case>",
            path),
        0, "docs/packs.md"};
  return pack;
}

Result<PlaneView> view_plane(const safetensors::Tensor& tensor, const Plane& plane) {
  const EncodingInfo& e = info(plane.encoding);
  const int bits = safetensors::bits(tensor.dtype);
  auto refuse = [&] {
    std::string shape;
    for (int64_t n : tensor.shape) shape += (shape.empty() ? "" : "x") + std::to_string(n);
    const Shape whole = plane.padded, bare = plane.logical;
    std::string count = fmt::format("{} elements of {}", whole.count(), e.name),
                hint = fmt::format("shape [{}, {}]", whole.rows, whole.cols);
    if (plane.layout == ScaleLayout::compact && !(whole == bare)) {  // dump_view takes it without its padding
      count += fmt::format(", or {} without the padding,", bare.count());
      hint += fmt::format(", or [{}, {}]", bare.rows, bare.cols);
    }
    return Error{fmt::format("tensor {} is {} [{}], expected {} for plane {}", tensor.name,
                             safetensors::name(tensor.dtype), shape, count, plane.name),
                 0, hint};
  };
  // Its own dtype, or integers of that width: what a producer without the dtype writes.
  using safetensors::Dtype;
  const Dtype d = tensor.dtype;
  const bool integers = d == Dtype::U8 || d == Dtype::I8 || d == Dtype::U16 || d == Dtype::I16 ||
                        d == Dtype::U32 || d == Dtype::I32;
  const bool fits =
      integers || d == safetensors::dtype_of(plane.encoding) || safetensors::name(d) == e.safetensors;
  if (!fits) return refuse();
  PlaneView out{plane, tensor.bytes};
  if (plane.packed) {  // N6.8: as it stands, or a code in each byte
    if (bits <= 8 && tensor.bytes.size() == plane.bytes() &&
        (bits == e.bits || tensor.count() != plane.padded.count()))
      return out;
    if (bits != 8 || tensor.count() != plane.padded.count()) return refuse();
    out.plane.packed = false;
    return out;
  }
  if (tensor.count() == plane.padded.count() && bits == 8 * e.bytes()) return out;
  // Packed, the first code in the lowest bits: as a dtype of so many bits, or as U8 of so many bytes.
  const int64_t count = plane.padded.count(), whole = (count * e.bits + 7) / 8;
  out.plane.packed = e.bits < 8 && e.is_float() &&
                     ((bits == e.bits && tensor.count() == count) || (bits == 8 && tensor.count() == whole));
  return out.plane.packed ? Result<PlaneView>(std::move(out)) : refuse();
}

Result<std::vector<std::byte>> plane_bytes(const safetensors::Tensor& tensor, const Plane& plane) {
  const auto view = view_plane(tensor, plane);
  if (!view) return view.error();
  if (view->plane.packed == plane.packed)
    return std::vector<std::byte>(view->bytes.begin(), view->bytes.end());
  std::vector<std::byte> out(plane.bytes());
  for (int64_t i = 0; i < plane.padded.count(); ++i)
    set_code(plane, out, i, code_at(view->plane, view->bytes, i));
  return out;
}

PackWriter::PackWriter(std::string path, std::string subject, const Environment& environment,
                       std::string fingerprint, std::string kernels)
    : path_(std::move(path)) {
  head_ = {
      {"assay.pack", std::to_string(kPackVersion)},  {"assay.line_version", std::to_string(kLineVersion)},
      {"assay.subject", std::move(subject)},         {"assay.environment", to_text(environment)},
      {"assay.fingerprint", std::move(fingerprint)}, {"assay.kernels", std::move(kernels)}};
  metadata_ = head_;
}

std::optional<Error> PackWriter::add(const Problem& problem, std::span<const RecordedPlane> planes,
                                     const std::string& unpinned) {
  const std::string id = fmt::format("{:06}", cases_);
  const std::string line = to_canonical_line(problem);
  size_t cost = line.size() + unpinned.size() + 64;
  for (const RecordedPlane& p : planes) cost += 200 + (p.bytes ? p.bytes->size() : 0);
  if (bytes_ > 0 && bytes_ + cost > kMaxPackBytes)
    if (auto error = flush()) return error;
  bytes_ += cost;
  metadata_.emplace_back(std::string(kLineKey) + id, line);
  if (!unpinned.empty()) metadata_.emplace_back(std::string(kUnpinnedKey) + id, unpinned);
  for (const RecordedPlane& p : planes) {
    const std::string name = id + "/" + p.plane.name;
    metadata_.emplace_back(std::string(kDigestKey) + name, p.digest);
    if (p.bytes)
      stored_.push_back({name,
                         safetensors::dtype_of(p.plane.encoding),
                         {p.plane.stored().rows, p.plane.stored().cols},
                         *p.bytes});
  }
  ++cases_;
  return {};
}

std::optional<Error> PackWriter::flush() {
  std::vector<safetensors::Tensor> tensors;
  for (const Stored& s : stored_) tensors.push_back({s.name, s.dtype, s.shape, s.bytes});
  std::sort(metadata_.begin(), metadata_.end());
  auto error = safetensors::write(numbered(path_, files_), tensors, metadata_);
  ++files_;
  stored_.clear();
  metadata_ = head_;
  bytes_ = 0;
  return error;
}

std::optional<Error> PackWriter::finish() {
  if (auto error = flush()) return error;
  // A shorter series must not end in files of a longer one.
  std::error_code ignored;
  for (size_t n = files_; std::filesystem::remove(numbered(path_, n), ignored); ++n) {}
  return {};
}

}  // namespace assay
