#include "compare/subjects/pack_subject.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compare/judge/runs.h"
#include "compare/text/shell.h"
#include "contract/line.h"

namespace assay {

namespace {

class PackSubject final : public Subject {
 public:
  PackSubject(std::shared_ptr<const Pack> pack, std::string name)
      : pack_(std::move(pack)), name_(std::move(name)) {
    for (const PackCase& c : pack_->cases)
      if (const Result<Problem> p = parse_line(c.line)) by_line_.emplace(to_canonical_line(*p), &c);
  }
  std::string_view name() const override { return name_; }
  std::string argument() const override { return "--pack " + shell_word(pack_->path); }
  Support supports(const Problem& p) const override {
    const PackCase* c = recorded(p);
    if (!c) return {false, "not in " + pack_->path};
    if (writes_nothing(p)) return {false, "a recording cannot show that nothing was written"};
    for (const Plane& plane : output_planes(p)) {
      const PackPlane* found = c->find(plane.name);
      if (!found || !found->tensor)
        return {false, fmt::format("{} holds no bytes of {} for this line", pack_->path, plane.name)};
    }
    return {};
  }
  std::optional<std::string> unpinned(const Problem& p) const override {
    const PackCase* c = recorded(p);
    return c ? unpinned_of(*c, p) : std::nullopt;
  }
  Served run(const Problem& p, std::span<const ConstBuffer>, std::span<const Buffer> outputs,
             const Environment&) override {
    const PackCase* c = recorded(p);
    if (!c) throw std::runtime_error("not in " + pack_->path);
    for (const Buffer& b : outputs) {
      const PackPlane* found = c->find(b.plane->name);
      if (!found || !found->tensor)
        throw std::runtime_error(fmt::format("{} holds no bytes of {}", pack_->path, b.plane->name));
      const Result<std::vector<std::byte>> bytes = plane_bytes(*found->tensor, *b.plane);
      if (!bytes) throw std::runtime_error(bytes.error().text());
      const size_t used = b.plane->padding == Padding::untouched ? b.plane->bytes_of(b.plane->logical.cols)
                                                                 : bytes->size();  // N14.6
      std::copy_n(bytes->begin(), used, b.bytes.begin());
    }
    return {fmt::format("recording of {}", pack_->subject.empty() ? "an unnamed subject" : pack_->subject),
            0};
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

}  // namespace assay
