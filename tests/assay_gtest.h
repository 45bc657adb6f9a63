// GoogleTest matchers: bytes of one's own kernel against Assay's reference, with the screen of a failure as
// the message (docs/library.md).
//
//   const auto inputs = assay::drawn("quantize mxfp8 64x256 bf16 dir=row fill=ties");   // what the line
//   draws, or data of one's own
//   ... run the kernel on inputs["x"] ...
//   EXPECT_THAT(codes, assay::MatchesReference("quantize mxfp8 64x256 bf16 dir=row fill=ties", "row.data"));
//   EXPECT_THAT((assay::Planes{{"row.scale_inv", scales}, {"row.data", codes}}),
//   assay::MatchesReference("quantize mxfp8 64x256 bf16 dir=row").from({{"x", x}}));
//   EXPECT_THAT(codes, assay::SameBits("e4m3", 64, 256, other));
//
// EXPECT_THAT is GoogleMock's (gmock/gmock.h); with GoogleTest alone: EXPECT_TRUE(assay::matches(codes,
// assay::MatchesReference(...))). Bytes are any contiguous container of trivially copyable elements
// (std::vector<uint8_t>, std::span<const __nv_fp8_e4m3>, std::array) in host memory.
#pragma once
#include <initializer_list>
#include <map>
#include <memory>
#include <ostream>
#include <ranges>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compare/match.h"
#include "reference/subject.h"

namespace assay {

namespace matching {

template <class C>
concept Contiguous = std::ranges::contiguous_range<const C> &&
    std::is_trivially_copyable_v<std::ranges::range_value_t<const C>>;

template <Contiguous C> std::span<const std::byte> bytes_of(const C& c) {
  return std::as_bytes(
      std::span<const std::ranges::range_value_t<const C>>(std::ranges::data(c), std::ranges::size(c)));
}

inline Subject& reference() {
  static const std::unique_ptr<Subject> one = make_reference_subject();
  return *one;
}

}  // namespace matching

// Planes by name. The bytes stay where they are and must outlive this.
class Planes {
 public:
  struct Plane {
    template <matching::Contiguous C>
    Plane(std::string plane, const C& bytes) : named{std::move(plane), matching::bytes_of(bytes)} {}
    NamedBytes named;
  };
  Planes() = default;
  Planes(std::initializer_list<Plane> planes) {
    for (const Plane& p : planes) named_.push_back(p.named);
  }
  template <matching::Contiguous C> Planes& add(std::string plane, const C& bytes) {
    named_.push_back({std::move(plane), matching::bytes_of(bytes)});
    return *this;
  }
  std::span<const NamedBytes> named() const { return named_; }
  friend void PrintTo(const Planes& p, std::ostream* out) {
    for (const NamedBytes& n : p.named_) *out << n.plane << " (" << n.bytes.size() << " bytes) ";
  }

 private:
  std::vector<NamedBytes> named_;
};

// The input planes that a line draws or makes, by name. Throws std::invalid_argument where the line cannot be
// read.
inline std::map<std::string, std::vector<std::byte>> drawn(std::string_view line) {
  auto planes = inputs_of(line, matching::reference());
  if (!planes) throw std::invalid_argument(std::string(line) + ": " + planes.error().text());
  std::map<std::string, std::vector<std::byte>> out;
  for (PlaneData& p : *planes) out[p.plane.name] = std::move(p.bytes);
  return out;
}

// Matches Planes, or one plane's bytes where `plane` names it, that are what the reference writes for the
// line.
class MatchesReference {
 public:
  using is_gtest_matcher = void;
  explicit MatchesReference(std::string line, std::string plane = {})
      : line_(std::move(line)), plane_(std::move(plane)) {}
  // Input planes of one's own; without them the line's fill draws x.
  MatchesReference from(const Planes& inputs) && {
    inputs_ = inputs;
    return std::move(*this);
  }
  template <class T> bool MatchAndExplain(const T& got, std::ostream* out) const {
    std::string screen;
    if constexpr (std::is_same_v<T, Planes>)
      screen = mismatch(line_, matching::reference(), inputs_.named(), got.named());
    else screen = mismatch(line_, matching::reference(), inputs_.named(), Planes{{plane_, got}}.named());
    if (out && !screen.empty()) *out << "\n" << screen;
    return screen.empty();
  }
  void DescribeTo(std::ostream* out) const {
    *out << "is, bit for bit, " << (plane_.empty() ? "" : plane_ + " of ") << "'" << line_ << "'";
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "differs from " << (plane_.empty() ? "" : plane_ + " of ") << "'" << line_ << "'";
  }

 private:
  std::string line_, plane_;
  Planes inputs_;
};

// Matches bytes that equal `want` as rows x cols elements of an encoding: the failure names elements and
// values. `want` is kept as a copy.
class SameBits {
 public:
  using is_gtest_matcher = void;
  template <matching::Contiguous C>
  SameBits(std::string encoding, int64_t rows, int64_t cols, const C& want)
      : encoding_(std::move(encoding)), shape_{rows, cols} {
    const auto bytes = matching::bytes_of(want);
    want_.assign(bytes.begin(), bytes.end());
  }
  template <matching::Contiguous C> bool MatchAndExplain(const C& got, std::ostream* out) const {
    const auto encoding = encoding_named(encoding_);
    const std::string screen = encoding ? mismatch(*encoding, shape_, matching::bytes_of(got), want_)
                                        : "NOT COMPARED\n  there is no encoding '" + encoding_ + "'\n";
    if (out && !screen.empty()) *out << "\n" << screen;
    return screen.empty();
  }
  void DescribeTo(std::ostream* out) const {
    *out << "equals the other buffer of " << encoding_ << " bit for bit";
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "differs from the other buffer of " << encoding_;
  }

 private:
  std::string encoding_;
  Shape shape_;
  std::vector<std::byte> want_;
};

// A matcher's answer for EXPECT_TRUE.
template <class T, class Matcher> testing::AssertionResult matches(const T& got, const Matcher& matcher) {
  std::ostringstream why;
  if (matcher.MatchAndExplain(got, &why)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << why.str();
}

}  // namespace assay
