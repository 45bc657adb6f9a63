// Runs one line on the reference with planes written by hand.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "contract/line.h"
#include "contract/tracer.h"
#include "reference/subject.h"

namespace assay {

using Blob = std::vector<std::byte>;

// Codes as the bytes of a plane: uint8_t, uint16_t or uint32_t by the plane's encoding.
template <class Code> Blob blob(const std::vector<Code>& codes) {
  Blob out(codes.size() * sizeof(Code));
  if (!out.empty()) std::memcpy(out.data(), codes.data(), out.size());
  return out;
}
template <class Code> std::vector<Code> codes(const Blob& bytes) {
  std::vector<Code> out(bytes.size() / sizeof(Code));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// The first codes given, then zeros up to `count`.
template <class Code> std::vector<Code> padded_with_zeros(std::vector<Code> first, size_t count) {
  first.resize(count);
  return first;
}

inline Problem problem(std::string_view line) {
  Result<Problem> p = parse_line(line);
  if (!p) throw std::runtime_error(std::string(line) + ": " + p.error().text());
  return *p;
}

// Output planes by name.
struct Outputs : std::map<std::string, Blob> {
  std::vector<uint8_t> u8(const std::string& name) const { return codes<uint8_t>(at(name)); }
  std::vector<uint16_t> u16(const std::string& name) const { return codes<uint16_t>(at(name)); }
  std::vector<uint32_t> u32(const std::string& name) const { return codes<uint32_t>(at(name)); }
};

// The planes of one case, kept alive.
struct LineCase {
  Problem p;
  std::vector<Plane> in_planes, out_planes;
  std::vector<Blob> in_bytes, out_bytes;
  std::vector<ConstBuffer> inputs;
  std::vector<Buffer> outputs;

  // A plane without an entry in `given` is zeros. Outputs begin as `poison`.
  LineCase(std::string_view line, const std::map<std::string, Blob>& given,
           std::byte poison = std::byte{0x5A})
      : p(problem(line)), in_planes(input_planes(p)), out_planes(output_planes(p)) {
    for (const auto& entry : given) {
      bool known = false;
      for (const Plane& plane : in_planes) known |= plane.name == entry.first;
      if (!known) throw std::runtime_error(std::string(line) + ": no input plane " + entry.first);
    }
    for (const Plane& plane : in_planes) {
      const auto it = given.find(plane.name);
      in_bytes.push_back(it == given.end() ? Blob(plane.bytes()) : it->second);
      if (in_bytes.back().size() != plane.bytes())
        throw std::runtime_error(std::string(line) + ": wrong size of " + plane.name);
    }
    for (const Plane& plane : out_planes) out_bytes.emplace_back(plane.bytes(), poison);
    for (size_t i = 0; i < in_planes.size(); ++i) inputs.push_back({&in_planes[i], in_bytes[i]});
    for (size_t i = 0; i < out_planes.size(); ++i) outputs.push_back({&out_planes[i], out_bytes[i]});
  }
};

inline Outputs run_line(std::string_view line, const std::map<std::string, Blob>& given, int threads = 1) {
  LineCase c(line, given);
  Environment environment;
  environment.threads = threads;
  make_reference_subject()->run(c.p, c.inputs, c.outputs, environment);
  Outputs out;
  for (size_t i = 0; i < c.out_planes.size(); ++i) out[c.out_planes[i].name] = c.out_bytes[i];
  return out;
}

}  // namespace assay
