// The line: one Problem as text. It is a suite's entry, a test's name, the program's argument, a benchmark's
// name and the repro.
//
//   <op> <format>[/<column format>] <rows>x<cols> <source> key=value ...
//   quantize mxfp8 64x256 bf16 dir=both fill=ties seed=7
//   cast e4m3 1x65536 bf16 round=rne overflow=sat fill=every_code
//
//   gemm a=<format> b=<format> <M>x<N>x<K> [<source>] key=value ...
//   gemm a=fp8_current b=fp8_current 256x512x384 sum=hopper_fp8_split out=f32
//
// A bare key sets both directions, `row.key=` and `col.key=` set one; of a gemm `a.key=` and `b.key=` those
// of one operand, `c.fill=`, `c.seed=` and `c.at=` what C and the bias are drawn by. role= and recipe= set
// defaults by the name of a tensor (contract/recipes.h). The short line prints what differs from the
// defaults, the canonical line every key that applies. parse(to_line(p)) == p for every valid Problem.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"

namespace assay {

// The grammar's version; it heads packs and reports, and changes when an old line would change its meaning.
inline constexpr int kLineVersion = 1;

// Reads one line. Errors name the column and the nearest valid word. The Problem returned is valid.
Result<Problem> parse_line(std::string_view text);

// Prints the keys that differ from their defaults.
std::string to_line(const Problem&);
// Prints every key that applies, resolved; meant for packs and for comparing meanings across versions.
std::string to_canonical_line(const Problem&);

// One key of a Problem and the value that it has there, as a canonical line writes them: place is "row",
// "col", "a", "do", ..., and empty where the key takes no prefix. Every key that applies, at each of its
// places.
struct KeyValue {
  std::string_view place, name;
  std::string value;
};
std::vector<KeyValue> key_values(const Problem&);

// What makes a Problem impossible (an unknown block for the format, a history of 0 rows, ...), or nothing.
// parse_line has already called it; call it on Problems built by hand.
std::optional<Error> validate(const Problem&);

// Expands every {a,b,c} and {lo..hi} group, leftmost varying slowest: "cast {e4m3,e5m2} 1x{1..3}" is 6 lines.
// At most kMaxSweep lines, of kMaxSweepBytes together.
inline constexpr size_t kMaxSweep = 300000, kMaxSweepBytes = size_t{32} << 20;
Result<std::vector<std::string>> expand_sweep(std::string_view text);
// How many lines that would be, without making them.
Result<size_t> count_sweep(std::string_view text);

// One row of the key table, for --help, documentation and completion.
struct KeyInfo {
  std::string_view name;  // "element"
  bool directional;  // may be written row.<name> and col.<name>; every key of gemm's operands a.<name> and
                     // b.<name>
  std::string_view values;  // "e4m3|e5m2", or "float" with bits as 0x7F800000, ...
  std::string_view summary;
  std::vector<std::string_view> ops;
};
std::span<const KeyInfo> line_keys();

}  // namespace assay
