#include "compare/packs/pack.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/arithmetic/gemm_bounds.h"
#include "contract/line.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

constexpr std::string_view kLineKey = "assay.line.", kUnpinnedKey = "assay.unpinned.", kDigestKey = "assay.digest.", kSuffix = ".safetensors";

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
  auto plane_of = [&](std::string_view name) -> PackPlane* {   // "<case>/<plane>"; the case may hold slashes itself
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

bool leaves_bits_open(const Problem& p) { return p.as<Gemm>() && has_unpinned_bits(*p.as<Gemm>()); }

// A note that waives the bits of a line all of whose bits are pinned would let a wrong d pass.
std::optional<Error> wrong_waiver(const std::string& path, const PackCase& c) {
  if (c.unpinned.empty()) return {};
  const Result<Problem> p = parse_line(c.line);
  if (!p || leaves_bits_open(*p)) return {};
  return Error{fmt::format("{}: {}{} = '{}' says that bits of this case are not pinned, expected no such key: N16.13 leaves none open of '{}'", path, kUnpinnedKey, c.id, c.unpinned, c.line), 0,
               "remove the key from the file's metadata: d is then judged bit for bit"};
}

}  // namespace

std::string digest(std::span<const std::byte> bytes) { return sha256(bytes).substr(0, 32); }

std::optional<std::string> unpinned_of(const PackCase& recorded, const Problem& problem) {
  return leaves_bits_open(problem) && !recorded.unpinned.empty() ? std::optional(recorded.unpinned) : std::nullopt;
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
  for (size_t n = 0; n == 0 || std::filesystem::exists(numbered(path, n)); ++n) {
    const std::string name = numbered(path, n);
    Result<safetensors::File> file = safetensors::read(name);
    if (!file) return file.error();
    const std::string form = note(*file, "assay.pack");
    if (!form.empty() && form != std::to_string(kPackVersion))
      return Error{fmt::format("{}: a pack of form '{}', this program reads form {}", name, form, kPackVersion), 0, "update Assay, or record it again"};
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
    std::sort(c.planes.begin(), c.planes.end(), [](const PackPlane& a, const PackPlane& b) { return a.name < b.name; });
    pack.cases.push_back(std::move(c));
  }
  if (pack.cases.empty())
    return Error{fmt::format("{}: no case found: tensors are called <case>/<plane>, with the metadata key assay.line.<case>", path), 0, "docs/packs.md"};
  return pack;
}

Result<std::vector<std::byte>> plane_bytes(const safetensors::Tensor& tensor, const Plane& plane) {
  const EncodingInfo& e = info(plane.encoding);
  const int bits = safetensors::bits(tensor.dtype);
  auto refuse = [&] {
    std::string shape;
    for (int64_t n : tensor.shape) shape += (shape.empty() ? "" : "x") + std::to_string(n);
    return Error{fmt::format("tensor {} is {} [{}], expected {} elements of {} for plane {}", tensor.name, safetensors::name(tensor.dtype), shape,
                             plane.padded.count(), e.name, plane.name),
                 0, fmt::format("shape [{}, {}]", plane.padded.rows, plane.padded.cols)};
  };
  // Its own dtype, or integers of that width: what a producer without the dtype writes.
  using safetensors::Dtype;
  const Dtype d = tensor.dtype;
  const bool integers = d == Dtype::U8 || d == Dtype::I8 || d == Dtype::U16 || d == Dtype::I16 || d == Dtype::U32 || d == Dtype::I32;
  const bool fits = integers || d == safetensors::dtype_of(plane.encoding) || safetensors::name(d) == e.safetensors;
  if (!fits) return refuse();
  if (plane.packed) {                                                     // N6.8: as it stands, or a code in each byte
    if (bits <= 8 && tensor.bytes.size() == plane.bytes() && (bits == 4 || tensor.count() != plane.padded.count()))
      return std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end());
    if (bits != 8 || tensor.count() != plane.padded.count()) return refuse();
    std::vector<std::byte> out(plane.bytes());
    for (int64_t i = 0; i < plane.padded.count(); ++i) set_code(plane, out, i, code_at(plane.encoding, tensor.bytes, i));
    return out;
  }
  if (tensor.count() == plane.padded.count() && bits == 8 * e.bytes()) return std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end());
  // Packed: two codes a byte, the first in the low half. As F4, or as U8 of half as many elements.
  const bool packed = e.bits == 4 && ((bits == 4 && tensor.count() == plane.padded.count()) || (bits == 8 && tensor.count() == (plane.padded.count() + 1) / 2));
  if (!packed) return refuse();
  std::vector<std::byte> out(plane.bytes());
  for (size_t i = 0; i < out.size(); ++i) out[i] = (tensor.bytes[i / 2] >> (i % 2 * 4)) & std::byte{0xF};
  return out;
}

PackWriter::PackWriter(std::string path, std::string subject, const Environment& environment, std::string fingerprint, std::string kernels) : path_(std::move(path)) {
  head_ = {{"assay.pack", std::to_string(kPackVersion)}, {"assay.line_version", std::to_string(kLineVersion)}, {"assay.subject", std::move(subject)},
           {"assay.environment", to_text(environment)}, {"assay.fingerprint", std::move(fingerprint)}, {"assay.kernels", std::move(kernels)}};
  metadata_ = head_;
}

std::optional<Error> PackWriter::add(const Problem& problem, std::span<const RecordedPlane> planes, const std::string& unpinned) {
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
    if (p.bytes) stored_.push_back({name, safetensors::dtype_of(p.plane.encoding), {p.plane.padded.rows, p.plane.packed ? p.plane.padded.cols / 2 : p.plane.padded.cols}, *p.bytes});
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

namespace {

class PackSubject final : public Subject {
 public:
  PackSubject(std::shared_ptr<const Pack> pack, std::string name) : pack_(std::move(pack)), name_(std::move(name)) {
    for (const PackCase& c : pack_->cases)
      if (const Result<Problem> p = parse_line(c.line)) by_line_.emplace(to_canonical_line(*p), &c);
  }
  std::string_view name() const override { return name_; }
  std::string argument() const override { return "--pack " + pack_->path; }
  Support supports(const Problem& p) const override {
    const PackCase* c = recorded(p);
    if (!c) return {false, "not in " + pack_->path};
    if (writes_nothing(p)) return {false, "a recording cannot show that nothing was written"};
    for (const Plane& plane : output_planes(p)) {
      const PackPlane* found = c->find(plane.name);
      if (!found || !found->tensor) return {false, fmt::format("{} holds no bytes of {} for this line", pack_->path, plane.name)};
    }
    return {};
  }
  std::optional<std::string> unpinned(const Problem& p) const override {
    const PackCase* c = recorded(p);
    return c ? unpinned_of(*c, p) : std::nullopt;
  }
  Served run(const Problem& p, std::span<const ConstBuffer>, std::span<const Buffer> outputs, const Environment&) override {
    const PackCase* c = recorded(p);
    if (!c) throw std::runtime_error("not in " + pack_->path);
    for (const Buffer& b : outputs) {
      const PackPlane* found = c->find(b.plane->name);
      if (!found || !found->tensor) throw std::runtime_error(fmt::format("{} holds no bytes of {}", pack_->path, b.plane->name));
      const Result<std::vector<std::byte>> bytes = plane_bytes(*found->tensor, *b.plane);
      if (!bytes) throw std::runtime_error(bytes.error().text());
      const size_t used = b.plane->padding == Padding::untouched ? b.plane->bytes_of(b.plane->logical.cols) : bytes->size();   // N14.6
      std::copy_n(bytes->begin(), used, b.bytes.begin());
    }
    return {fmt::format("recording of {}", pack_->subject.empty() ? "an unnamed subject" : pack_->subject), 0};
  }

 private:
  const PackCase* recorded(const Problem& p) const {
    const auto it = by_line_.find(to_canonical_line(p));
    return it == by_line_.end() ? nullptr : it->second;
  }
  std::shared_ptr<const Pack> pack_;
  std::string name_;
  std::map<std::string, const PackCase*> by_line_;
};

}  // namespace

std::unique_ptr<Subject> make_pack_subject(std::shared_ptr<const Pack> pack, std::string name) {
  return std::make_unique<PackSubject>(std::move(pack), std::move(name));
}

Verdict judge_replay(const Pack& pack, const PackCase& recorded, const Subjects& subjects, const std::string& kernels, const Environment& environment) {
  Verdict v;
  v.subject = pack.subject.empty() ? "pack" : "pack of " + pack.subject;
  v.claims = {"replay"};
  auto end = [&](Outcome o, std::string reason) {
    v.outcome = o;
    v.reason = reason;
    if (is_red(o)) {
      Breach b;
      b.claim = "replay";
      b.got = v.subject;
      b.message = std::move(reason);
      v.breaches.push_back(std::move(b));
    }
    return v;
  };
  if (pack.line_version != 0 && pack.line_version != kLineVersion)
    return end(Outcome::stale, fmt::format("written under version {} of the line, this program has {}", pack.line_version, kLineVersion));
  const Result<Problem> problem = parse_line(recorded.line);
  if (!problem) return end(Outcome::stale, "its line no longer reads: " + problem.error().text());
  if (pack.line_version != 0 && to_canonical_line(*problem) != recorded.line) return end(Outcome::stale, "its line now means: " + to_canonical_line(*problem));
  if (!kernels.empty() && !pack.kernels.empty() && kernels != pack.kernels) return end(Outcome::stale, fmt::format("recorded from kernels {}, these are {}", pack.kernels, kernels));
  Subject& reference = subjects.reference();
  if (const Support s = reference.supports(*problem); !s.yes) return end(Outcome::unsupported, "reference: " + s.why);
  const Result<std::vector<PlaneData>> inputs = make_inputs(*problem, reference);
  if (!inputs) return end(Outcome::failed, "inputs: " + inputs.error().text());
  Execution want = execute(reference, *problem, *inputs, environment);
  for (PlaneData& plane : want.planes) clear_spare(plane);
  if (want.error) return end(Outcome::failed, "reference: " + *want.error);
  v.seconds = want.seconds;

  const std::optional<std::string> unpinned = unpinned_of(recorded, *problem);
  std::vector<PlaneData> got_planes, want_planes;
  for (const PlaneData& p : want.planes) {
    const PackPlane* plane = recorded.find(p.plane.name);
    if (!plane) return end(Outcome::failed, "plane " + p.plane.name + " is not recorded");
    if (plane->tensor) {
      Result<std::vector<std::byte>> bytes = plane_bytes(*plane->tensor, p.plane);
      if (!bytes) return end(Outcome::failed, bytes.error().text());
      if (!plane->digest.empty() && digest(*bytes) != plane->digest) return end(Outcome::failed, "plane " + p.plane.name + " does not have its own digest: the pack was changed");
      got_planes.push_back({p.plane, std::move(*bytes)});
      want_planes.push_back(p);
    } else if (digest(p.bytes) != plane->digest) {
      if (unpinned) return end(Outcome::unsupported, "bits that are not pinned (N16.13) are judged by the bound, which needs bytes: a digest alone was recorded, and it is another");
      Breach b;
      b.claim = "replay";
      b.got = v.subject;
      b.want = "reference";
      b.plane = p.plane.name;
      b.encoding = info(p.plane.encoding).name;
      b.where = "some element: only a digest was recorded";
      b.message = fmt::format("digest {}, expected {}", plane->digest, digest(p.bytes));
      b.of = p.plane.logical.count();
      v.breaches.push_back(std::move(b));
      v.outcome = Outcome::failed;
      return v;   // the first plane in causal order
    }
  }
  bool vacuous = false;
  if (unpinned && !want_planes.empty()) {
    vacuous = judge_unpinned(*problem, *inputs, got_planes, want_planes, *unpinned, v);
  } else if (!want_planes.empty()) {
    if (std::optional<Breach> b = parity_breach(*problem, judge(&*problem, got_planes, want_planes), v.subject, "reference")) {
      b->claim = "replay";
      v.breaches.push_back(std::move(*b));
    }
  }
  if (vacuous && v.breaches.empty()) return end(Outcome::mistrusted, std::string(kNoBound));
  v.outcome = v.breaches.empty() ? Outcome::passed : Outcome::failed;
  return v;
}

}  // namespace assay
