// Runs of one line on the host executor, over inputs that every test makes alike.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "contract/line.h"
#include "contract/planes.h"
#include "fast/subject_host.h"

namespace assay {

using Bytes = std::vector<std::byte>;
using Planes = std::map<std::string, Bytes>;

inline Problem parsed(const std::string& line) {
  auto p = parse_line(line);
  if (!p) throw std::runtime_error(line + ": " + p.error().text());
  return *p;
}

inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDull;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ull;
  return x ^ (x >> 33);
}
// Values of the source's middle exponents, and in every 61st element any pattern at all: NaN, infinities,
// subnormals, zeros.
inline Bytes filled(const Plane& plane) {
  Bytes out(plane.bytes());
  const EncodingInfo& e = info(plane.encoding);
  for (int64_t i = 0; i < plane.padded.count(); ++i) {
    const uint64_t h = mix(static_cast<uint64_t>(i) * 977 + plane.name.size());
    uint32_t code = static_cast<uint32_t>(h);
    if (plane.name == "noop") code = 0;
    else if (plane.padded.count() == 1 && e.bits == 32 && plane.name != "x")
      code = 0x3FA00000u + (code & 0xFFFFF);  // a scale or an amax
    else if (e.has_sign() && e.bits >= 16 && h % 61 != 0)
      code = (code & ~(((1u << e.exponent_bits) - 1) << e.mantissa_bits)) |
             static_cast<uint32_t>(e.bias - 4 + static_cast<int>(h >> 40) % 8) << e.mantissa_bits;
    if (plane.packed)
      out[static_cast<size_t>(i / 2)] |= static_cast<std::byte>((code & 0xF) << (i % 2 * 4));  // N6.8
    else std::memcpy(out.data() + i * e.bytes(), &code, static_cast<size_t>(e.bytes()));
  }
  return out;
}

struct Ran {
  std::vector<Plane> in_planes, out_planes;
  std::vector<Bytes> in;
  Planes out;
  Served served;
};
inline Ran run(const Problem& p, Subject& subject, const Environment& env = {}, const Planes& given = {}) {
  Ran r{input_planes(p), output_planes(p), {}, {}, {}};
  std::vector<ConstBuffer> inputs;
  std::vector<Buffer> outputs;
  for (const Plane& plane : r.in_planes)
    r.in.push_back(given.contains(plane.name) ? given.at(plane.name) : filled(plane));
  for (size_t i = 0; i < r.in.size(); ++i) inputs.push_back({&r.in_planes[i], r.in[i]});
  for (const Plane& plane : r.out_planes) r.out[plane.name] = Bytes(plane.bytes(), std::byte{env.poison});
  for (const Plane& plane : r.out_planes) outputs.push_back({&plane, r.out[plane.name]});
  r.served = subject.run(p, inputs, outputs, env);
  return r;
}
inline Ran run(const std::string& line, const Environment& env = {}, const Planes& given = {}) {
  return run(parsed(line), *make_host_subject(), env, given);
}
inline void expect_equal(const Planes& got, const Planes& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, bytes] : want) {
    ASSERT_TRUE(got.contains(name)) << what << ' ' << name;
    const Bytes& other = got.at(name);
    ASSERT_EQ(other.size(), bytes.size()) << what << ' ' << name;
    for (size_t i = 0; i < bytes.size(); ++i)
      ASSERT_EQ(std::to_integer<int>(other[i]), std::to_integer<int>(bytes[i]))
          << what << ": " << name << " byte " << i << " of " << bytes.size();
  }
}
inline uint32_t at(const Bytes& bytes, int64_t index, int size) {
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + index * size, static_cast<size_t>(size));
  return code;
}

}  // namespace assay
