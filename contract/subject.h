// Subject: something that can run a Problem. The reference, the kernels on the host executor, the kernels on
// a GPU, NVIDIA's header conversions, a recorded pack and a plugin all look the same to the judge.
#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"
#include "contract/result.h"

namespace assay {

// The devices whose kernels nvcc compiles, for the subject `ptx`.
enum class Architecture : uint8_t { sm_90a, sm_100a, sm_120a };
inline constexpr std::array kArchitectures = {Architecture::sm_90a, Architecture::sm_100a,
                                              Architecture::sm_120a};
std::string_view name(Architecture);

// How a case is run; decides no bit. Printed after the line as `--env order=17,poison=7f,threads=2`.
struct Environment {
  enum : uint64_t { kForward = 0, kReverse = 1 };
  int threads = 1;  // OS threads a subject may use
  uint64_t order =
      kForward;  // thread and block order on the host executor: forward, reverse, or a seed (2 and up)
  uint8_t poison = 0x7F;                             // fills outputs and shared memory before the run
  int alignment = 256;                               // of every buffer, in bytes; at least the element's size
  Architecture architecture = Architecture::sm_90a;  // whose kernels the subject `ptx` runs
  bool operator==(const Environment&) const = default;
};
// Reads "order=17,poison=7f,threads=2,alignment=2,arch=sm_100a"; order also takes "forward" and "reverse".
Result<Environment> parse_environment(std::string_view text);
// Prints what differs from the default; empty when nothing does.
std::string to_text(const Environment&);

// One plane's bytes. `bytes` has exactly plane->bytes() bytes.
struct Buffer {
  const Plane* plane = nullptr;
  std::span<std::byte> bytes;
};
struct ConstBuffer {
  const Plane* plane = nullptr;
  std::span<const std::byte> bytes;
};

// Whether a subject can run a Problem, and if not, why.
struct Support {
  bool yes = true;
  std::string why;
};

// What served a run, for the report.
struct Served {
  std::string by;    // "mxfp8_pair<row, col> bf16, one read"
  int launches = 0;  // kernels launched; 0 for subjects that launch none
};

// One step of one element's computation, for `assay trace`.
struct TraceStep {
  std::string clause;  // "N5.3"
  std::string what;    // "E8M0 scale"
  Encoding encoding = Encoding::f32;
  uint32_t bits = 0;
};

// One instruction of a compiled kernel on the way to a stored value, for `assay trace`.
struct SliceStep {
  std::string instruction;  // "add.f32 %r78, %r31, %r55"
  uint32_t line = 0;        // of the PTX
  std::string source;       // "mx_kernels.py:31"; empty where the compiler left no lines
  std::string who;          // "mxfp8_log2 block (0,0,0)"
  uint32_t thread = 0;      // of the block
  std::string memory;       // what it loads or stores: a plane's name, "shared memory"; else empty
  uint64_t offset = 0;      // in bytes
  std::string type;         // of the value: "f32", "b32", "pred"
  uint64_t bits = 0;        // the value that it gave
};

// What one launch of a compiled kernel did, counted exactly (docs/ptx.md): totals by name, and the lines of
// its text that were carried out, with one number for each of `columns`.
struct LaunchCounts {
  struct Line {
    uint32_t line = 0;  // of the PTX
    std::string instruction, source;
    std::vector<uint64_t> counts;
  };
  std::string entry, grid, block;  // "mxfp8_rows", "(64,2,1)", "(128,1,1)"
  std::vector<std::pair<std::string, uint64_t>> totals;
  std::vector<std::string> columns;
  std::vector<Line> lines;
  // What was launched, for a compiler behind the PTX: the entry's name in the text, the path of the text, and
  // the bytes of shared memory that the launch asked for.
  std::string symbol = {}, text = {};
  uint64_t dynamic_shared = 0;
};

// Thrown by Subject::run where only the data tell that it cannot run a Problem that it supports: the judge
// counts the case as unsupported, with this reason.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string_view name() const = 0;
  // What runs a line on this subject when it is typed behind the line: "--subject gpu", "--plugin
  // ./libmine.so".
  virtual std::string argument() const { return "--subject " + std::string(name()); }
  // Present on this machine; `why` says what is missing. Cheap, and safe without a GPU.
  virtual Support present() const { return {}; }
  virtual Support supports(const Problem&) const = 0;
  // The words that every line it runs has, without a size: "quantize mxfp8 bf16 dir=row". A hunt begins with
  // such lines, because it would hardly draw one by chance. Empty where it runs several kinds of lines.
  virtual std::string own_words() const { return {}; }
  // Why the bits of a gemm or of attention that it supports are not pinned: then the judge asks whether its
  // planes lie inside the bounds (N16.13, N20.18), not whether they equal the reference's bit for bit.
  // Nothing: they are pinned, as those of every other op.
  virtual std::optional<std::string> unpinned(const Problem&) const { return {}; }
  // Computes every output plane from the input planes. Buffers come in the order of input_planes() and
  // output_planes(). Writes zeros into padding; under noop == 1 writes nothing. Throws std::exception on
  // failure.
  virtual Served run(const Problem&, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
                     const Environment&) = 0;
  // Puts into x what the op of the line is applied to, where a kernel makes that of the line's x itself (a
  // norm or an activation before a quantizer). `inputs` are the planes as the line has them. Nothing is
  // changed by a subject of the op alone, which is every subject but those of fused kernels. Throws
  // std::exception on failure.
  virtual void prepare(const Problem&, std::span<const ConstBuffer> /*inputs*/, std::span<std::byte> /*x*/) {}
  // The steps that lead to the data element at tensor coordinates (row, col) in direction d, in order. May be
  // empty.
  virtual std::vector<TraceStep> trace(const Problem&, std::span<const ConstBuffer>, Direction, int64_t,
                                       int64_t) {
    return {};
  }
  // The instructions behind the bits [bit, bit + bits) of an output plane's bytes, in the order of execution,
  // for subjects that run compiled kernels one instruction at a time (fast/ptx/slice.h). Empty for others.
  virtual std::vector<SliceStep> slice(const Problem&, std::span<const ConstBuffer> /*inputs*/,
                                       std::string_view /*plane*/, size_t /*bit*/, size_t /*bits*/,
                                       const Environment&) {
    return {};
  }
  // Whether it carries out a compiled kernel instruction by instruction: then the time that it takes says
  // nothing of the kernel, and count() says what the kernel does.
  virtual bool interprets() const { return false; }
  // What each launch of the line does. Empty for subjects that do not interpret.
  virtual std::vector<LaunchCounts> count(const Problem&, std::span<const ConstBuffer> /*inputs*/,
                                          const Environment&) {
    return {};
  }
  // Device times of `repeats` runs, without transfers, for subjects that can time themselves (a GPU). `cold`:
  // caches are flushed before each. Empty: the caller measures run() with its own clock.
  virtual std::vector<std::chrono::nanoseconds> time(const Problem&, std::span<const ConstBuffer>,
                                                     int /*repeats*/, bool /*cold*/) {
    return {};
  }
};

// The buffer of the plane called `name`, or null.
template <class B> const B* find(std::span<const B> buffers, std::string_view name) {
  for (const B& b : buffers)
    if (b.plane->name == name) return &b;
  return nullptr;
}

}  // namespace assay
