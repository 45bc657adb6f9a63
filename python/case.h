// A case whose planes lie in the caller's memory, given to the same functions that `assay check` and `assay
// explain` of a pack use. Everything runs in this process and on threads of its own; the caller's bytes are
// read, never written, but for the outputs of run() and inputs(). Answers are JSON, failures are thrown
// (python/line.h).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fixtures/json.h"

namespace assay::python {

// One array of the caller's, contiguous and row-major.
struct GivenPlane {
  std::string name;            // "x", "row.data"
  std::string dtype;           // safetensors' word, "BF16"; an integer of the width stands for any encoding
  std::vector<int64_t> shape;  // of elements of that dtype
  std::span<const std::byte> bytes;
};
// Where an output goes: exactly the plane's bytes.
struct OutputPlane {
  std::string name;
  std::span<std::byte> bytes;
};

struct CaseSettings {
  int threads = 0;  // 0: the cores of this machine
  double budget = 5;
  bool pairs = true;
  std::string subject = "outputs";  // what the bytes are called in an answer
  std::string unpinned;             // why the bits of a gemm are not pinned (N16.13); empty: they are
  // check: the reference judges every block, also those that the vectorised method knows. run: the reference
  // makes the planes, also of lines that the vectorised method has.
  bool exact = false;
  const std::atomic<bool>* stop = nullptr;
};

// The reference's outputs for the line, written where `outputs` say; planes that are not asked for are
// computed and dropped. Input planes that are not given come from the keys of the line and its fill=. Unless
// settings say `exact`, the vectorised method makes the planes of the lines that it has: the same bytes.
// Returns {"made": [planes that were], "by": "reference" or "simd AVX2"}.
json::Value run(const std::string& line, const std::vector<GivenPlane>& given,
                const std::vector<OutputPlane>& outputs, const CaseSettings&);

// The input planes that the line draws or says itself, written where `outputs` say.
json::Value inputs(const std::string& line, const std::vector<OutputPlane>& outputs);

// {"ok", "line", "screen", "judged", "missing", "notes", "first", "planes", "cause"}: the verdict of `assay
// check`. A budget of 0 seconds looks for no cause.
json::Value check(const std::string& line, const std::vector<GivenPlane>& planes, const CaseSettings&);

// {"diagnosis", "screen", "cause", "html"}.
json::Value explain(const std::string& line, const std::vector<GivenPlane>& planes, const CaseSettings&);

// {"groups": [{"named", "formats", "ranking", "with_more_keys", "layouts", "consistent", ...}]}.
json::Value identify(const std::string& line, const std::vector<GivenPlane>& planes, const CaseSettings&);

// {"ok", "undecidable", "of", "apart", "open", "verdict", "notes", "first", "where"}: rows against columns.
json::Value coherence(const std::string& line, const std::vector<GivenPlane>& planes);

// {"direction", "row", "col", "steps", "outputs"} of one element: the reference's steps, and the bytes that
// came beside the reference's.
json::Value trace(const std::string& line, const std::vector<GivenPlane>& planes, int64_t row, int64_t col,
                  const std::string& direction);

// Two arrays of `rows` x `cols` elements: {"ok", "screen", "differ", "of", "first", "got", "want"}.
json::Value compare(const std::string& encoding, int64_t rows, int64_t cols, std::span<const std::byte> got,
                    std::span<const std::byte> want);

}  // namespace assay::python
