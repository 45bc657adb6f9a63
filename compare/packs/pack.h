// Packs: recorded planes in safetensors files, to be judged where what made them is absent (docs/packs.md is
// the form).
//
//   tensors    <case>/<plane>            the bytes of a plane, in the dtype of its encoding, shape [padded
//              rows, padded cols]
//   metadata   assay.pack                the form's version, "1"
//              assay.line_version        kLineVersion of the writer
//              assay.line.<case>         the case's line; canonical in packs that Assay writes
//              assay.unpinned.<case>     why the bits of the case are not pinned (N16.13), where they are not
//              assay.digest.<case>/<plane>   32 hex digits: digest() of the bytes, also where the bytes are
//                                            left out
//              assay.subject, assay.environment, assay.fingerprint, assay.kernels   who made it, how, where;
//              hash of the kernels' code
// A foreign pack needs tensors and `assay.line.<case>`, no more; a key that is just `<case>` is read as the
// line too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"
#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/safetensors.h"

namespace assay {

inline constexpr int kPackVersion = 1;
inline constexpr size_t kMaxPackBytes = size_t{12}
                                        << 20;  // of one file; more goes to <name>.1.safetensors, ...
inline constexpr size_t kSmallCaseBytes = size_t{16} << 10;  // output bytes of a case that are recorded whole
inline constexpr size_t kMostCaseBytes = size_t{8}
                                         << 20;  // ... and of a case that fails; a larger one keeps digests

// The first 32 hex digits of the bytes' SHA-256.
std::string digest(std::span<const std::byte> bytes);

struct PackPlane {
  std::string name;                           // "row.data", "x"
  std::optional<safetensors::Tensor> tensor;  // bytes, where they are in the pack
  std::string digest;                         // empty in foreign packs
};
struct PackCase {
  std::string id;                 // "000017", or whatever the maker chose
  std::string line;               // empty: none given
  std::string unpinned;           // Subject::unpinned of the recorded subject; empty: its bits are pinned
  std::vector<PackPlane> planes;  // sorted by name

  const PackPlane* find(std::string_view plane) const;
};
// Subject::unpinned of a recording of this Problem: nothing where N16.13 leaves no bit open.
std::optional<std::string> unpinned_of(const PackCase& recorded, const Problem& problem);
struct Pack {
  std::string path;
  std::vector<safetensors::File> files;         // keep the bytes mapped
  std::deque<std::vector<std::byte>> unpacked;  // bytes of planes that records were taken apart to
  std::vector<PackCase> cases;                  // sorted by id
  std::string subject, environment, fingerprint, kernels;
  int line_version = 0;  // 0: not said

  const PackCase* find(std::string_view id) const;
};

// Reads one file and, when it is the first of a numbered series, all of it. Errors: unreadable, a form newer
// than kPackVersion, a case that calls bits open which N16.13 pins.
Result<Pack> read_pack(const std::string& path);

// A plane where a file holds it: its bytes, and the plane as these bytes lay it out (packed or not, with or
// without its padding).
struct PlaneView {
  Plane plane;
  std::span<const std::byte> bytes;
};
// `tensor` as the plane: same bit width and element count, any shape that flattens to it; 4-bit codes in
// either form. Error: what was expected and what was found.
Result<PlaneView> view_plane(const safetensors::Tensor& tensor, const Plane& plane);

// The bytes of `tensor` as the plane expects them: same bit width and element count, any shape that flattens
// to it; packed 4-bit tensors are unpacked to a byte per code. Error: what was expected and what was found.
Result<std::vector<std::byte>> plane_bytes(const safetensors::Tensor& tensor, const Plane& plane);

// One plane to be recorded; where `bytes` are absent only the digest is.
struct RecordedPlane {
  Plane plane;
  std::string digest;
  std::optional<std::vector<std::byte>> bytes;
};

class PackWriter {
 public:
  PackWriter(std::string path, std::string subject, const Environment& environment, std::string fingerprint,
             std::string kernels);
  std::optional<Error> add(const Problem& problem, std::span<const RecordedPlane> planes,
                           const std::string& unpinned = {});
  // Writes what is left. Files are named <path>, <stem>.1.safetensors, <stem>.2.safetensors, ...
  std::optional<Error> finish();
  size_t cases() const { return cases_; }

 private:
  std::optional<Error> flush();
  struct Stored {
    std::string name;
    safetensors::Dtype dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::string path_;
  safetensors::Metadata head_, metadata_;
  std::vector<Stored> stored_;
  size_t bytes_ = 0, files_ = 0, cases_ = 0;
};

}  // namespace assay
