#include "compare/process/guarded_run.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>

#include <fmt/format.h>

#include "compare/process/float_environment.h"
#include "compare/process/guarded_memory.h"
#include "contract/device_memory.h"

namespace assay {

namespace {

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
  std::deque<GuardedBuffer> in_buffers, out_buffers;  // they do not move
  std::vector<ConstBuffer> in;
  std::vector<Buffer> to;
  for (const PlaneData& p : inputs) {
    GuardedBuffer& b =
        in_buffers.emplace_back(p.plane.name, p.bytes.size(), alignment_for(p.plane, environment));
    std::copy(p.bytes.begin(), p.bytes.end(), b.bytes().begin());
    in.push_back({&p.plane, b.bytes()});
  }
  for (Plane& plane : output_planes(problem)) out.planes.push_back({std::move(plane), {}});
  for (const PlaneData& p : out.planes) {
    GuardedBuffer& b =
        out_buffers.emplace_back(p.plane.name, p.plane.bytes(), alignment_for(p.plane, environment));
    std::fill(b.bytes().begin(), b.bytes().end(), std::byte{environment.poison});
    to.push_back({&p.plane, b.bytes()});
  }

  const std::optional<std::string> other_trespass = run_into(out, subject, problem, in, to, environment);
  for (size_t i = 0; i < out.planes.size(); ++i) {
    const auto bytes = out_buffers[i].bytes();
    out.planes[i].bytes.assign(bytes.begin(), bytes.end());
    if (!out.trespass) out.trespass = out_buffers[i].trespass();
  }
  for (size_t i = 0; i < inputs.size() && !out.trespass; ++i) {
    const auto bytes = in_buffers[i].bytes();
    out.trespass = in_buffers[i].trespass();
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
