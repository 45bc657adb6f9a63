// A part of the certificate: a row that says what is compared on which inputs.
// compare/commands/certify/parts.cpp lists them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/process/guarded_run.h"
#include "contract/problem.h"

namespace assay {

// How much a certificate holds: every rounding boundary; every float; or whatever can be counted, by every
// method and witness (`--full`).
enum class CertifyExtent : uint8_t { quick, floats, full };
// As the certificate writes it.
constexpr std::string_view name(CertifyExtent extent) {
  return extent == CertifyExtent::quick ? "quick" : extent == CertifyExtent::floats ? "default" : "full";
}

// What stands in the input planes of a part: element i of `count`, in order.
struct Domain {
  std::string words;  // "all 2^32 binary32 patterns"
  int64_t count = 0;  // rows or elements of x, as the part counts them
  // Writes elements [first, first + n) into the planes, which have that size.
  std::function<void(int64_t first, int64_t n, std::vector<PlaneData>& inputs)> fill;
};

// One claim of a part: this subject, under this Environment, equals the reference.
struct CertifySide {
  std::string subject;
  Environment environment;
};

// What is run at once, which stays in a core's cache. Digests are made of such pieces.
inline constexpr int64_t kCertifyPiece = int64_t{1} << 18;

// One row of the certificate: a line without its size and fill, what goes into it, and who must agree on what
// comes out.
struct CertifyPart {
  std::string name;     // "cast e4m3 f32 round=rz overflow=sat"
  std::string clauses;  // "N2.2 N2.4 N2.5 N2.6"
  Problem problem;      // with x of one element, or of one row where `by_rows`
  bool by_rows = false;
  Domain domain;
  std::vector<CertifySide> sides;
  // A law of the reference's outputs for these inputs, in whole groups of 256 elements; what breaks it, or an
  // empty string. May be empty.
  std::string law_words;
  std::function<std::string(const std::vector<PlaneData>& inputs, const std::vector<PlaneData>& outputs)> law;
  int64_t piece = kCertifyPiece;  // elements or rows that are run at once
  bool sha256 = false;            // the certificate has the SHA-256 of the reference's outputs

  Problem sized(int64_t n) const;  // the Problem of n elements, or rows
};

// The parts, in order.
std::vector<CertifyPart> certify_parts(CertifyExtent);

}  // namespace assay
