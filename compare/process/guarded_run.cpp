#include "compare/process/guarded_run.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include <fmt/format.h>

#include "compare/process/float_environment.h"
#include "contract/device_memory.h"

namespace assay {

namespace {

constexpr size_t kGuard = 256;
constexpr std::byte kGuardByte{0xC3};

// One buffer between guard bytes, at an address that is a multiple of `alignment` and of no larger power of
// two.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t bytes, size_t alignment) : bytes_(bytes) {
    const size_t total = kGuard + bytes + kGuard + 2 * alignment;
    block_.assign(total, kGuardByte);
    const auto base = reinterpret_cast<uintptr_t>(block_.data()) + kGuard;
    uintptr_t at = (base + alignment - 1) / alignment * alignment;
    if (at % (2 * alignment) == 0) at += alignment;
    first_ = at - reinterpret_cast<uintptr_t>(block_.data());
  }
  std::span<std::byte> bytes() { return {block_.data() + first_, bytes_}; }
  // The first guard byte that changed, as text; or nothing.
  std::optional<std::string> trespass(const std::string& plane) const {
    auto changed = [](std::byte b) { return b != kGuardByte; };
    const auto begin = block_.begin(), from = begin + static_cast<ptrdiff_t>(first_),
               to = from + static_cast<ptrdiff_t>(bytes_);
    if (const auto after = std::find_if(to, block_.end(), changed); after != block_.end())
      return fmt::format("{}: byte {} past the end was written ({:02X})", plane, after - to,
                         static_cast<unsigned>(*after));
    const auto before = std::find_if(begin, from, changed);
    if (before == from) return {};
    return fmt::format("{}: byte {} before the start was written ({:02X})", plane, from - before,
                       static_cast<unsigned>(*before));
  }

 private:
  std::vector<std::byte> block_;
  size_t first_ = 0, bytes_ = 0;
};

size_t alignment_for(const Plane& plane, const Environment& env) {
  return std::max<size_t>(static_cast<size_t>(info(plane.encoding).bytes()),
                          static_cast<size_t>(env.alignment));
}

// Runs the subject, and returns what it wrote where only it can see it, or how it left the float environment.
std::optional<std::string> run_into(Execution& out, Subject& subject, const Problem& problem,
                                    const std::vector<ConstBuffer>& in, const std::vector<Buffer>& to,
                                    const Environment& environment) {
  std::optional<std::string> trespass;
  const ForeignFloats floats;
  const auto start = std::chrono::steady_clock::now();
  try {
    out.served = subject.run(problem, in, to, environment);
  } catch (const Unsupported& e) {
    out.error = e.what();
    out.unsupported = true;
  } catch (const Trespass& e) {
    trespass = e.what();
  } catch (const std::exception& e) {
    out.error = e.what();
  } catch (...) {
    out.error = "a non-standard exception";
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (const std::string left = floats.left(); !trespass && !left.empty()) trespass = "it " + left;
  return trespass;
}

}  // namespace

Execution execute(Subject& subject, const Problem& problem, const std::vector<PlaneData>& inputs,
                  const Environment& environment) {
  Execution out;
  std::vector<GuardedBuffer> in_buffers, out_buffers;
  std::vector<ConstBuffer> in;
  std::vector<Buffer> to;
  in_buffers.reserve(inputs.size());
  for (const PlaneData& p : inputs) {
    GuardedBuffer& b = in_buffers.emplace_back(p.bytes.size(), alignment_for(p.plane, environment));
    std::copy(p.bytes.begin(), p.bytes.end(), b.bytes().begin());
    in.push_back({&p.plane, b.bytes()});
  }
  for (Plane& plane : output_planes(problem)) out.planes.push_back({std::move(plane), {}});
  out_buffers.reserve(out.planes.size());
  for (const PlaneData& p : out.planes) {
    GuardedBuffer& b = out_buffers.emplace_back(p.plane.bytes(), alignment_for(p.plane, environment));
    std::fill(b.bytes().begin(), b.bytes().end(), std::byte{environment.poison});
    to.push_back({&p.plane, b.bytes()});
  }

  const std::optional<std::string> other_trespass = run_into(out, subject, problem, in, to, environment);
  for (size_t i = 0; i < out.planes.size(); ++i) {
    const auto bytes = out_buffers[i].bytes();
    out.planes[i].bytes.assign(bytes.begin(), bytes.end());
    if (!out.trespass) out.trespass = out_buffers[i].trespass(out.planes[i].plane.name);
  }
  for (size_t i = 0; i < inputs.size() && !out.trespass; ++i) {
    const auto bytes = in_buffers[i].bytes();
    out.trespass = in_buffers[i].trespass(inputs[i].plane.name);
    const auto changed = std::mismatch(bytes.begin(), bytes.end(), inputs[i].bytes.begin()).first;
    if (!out.trespass && changed != bytes.end())
      out.trespass =
          fmt::format("{}: byte {} of this input was written", inputs[i].plane.name, changed - bytes.begin());
  }
  if (!out.trespass) out.trespass = other_trespass;
  return out;
}

Subject* Subjects::find(std::string_view name) const {
  for (const auto& s : owned)
    if (s->name() == name) return s.get();
  return nullptr;
}

}  // namespace assay
