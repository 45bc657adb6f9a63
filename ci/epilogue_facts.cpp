// In which order cuBLASLt rounds its epilogue, which docs/numerics.md does not know (N16.13): run by ci/gpu.
// epilogue_facts <folder>
//   epilogue.json   for each question the line, the kernel that served, and for each order that may be how
//                   many outputs of d it explains
// The sums are of integers, which no step cuts (N16.11), so that nothing but the epilogue rounds. An order
// that explains every output of every line of its question may become a clause; none means that the library
// does something else.
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "contract/line.h"
#include "contract/planes.h"
#include "fast/subject_cublaslt.h"

namespace assay {
namespace {

// What one output is made of: its exact sum, the scale_inv of its row of a and of b, C and the bias.
struct Terms {
  float acc, sa, sb, alpha, beta, c, bias;
  bool bf16;
  // To the encoding of d.
  float cast(float v) const {
    if (!bf16) return v;
    const uint32_t u = std::bit_cast<uint32_t>(v);
    return std::bit_cast<float>((u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000);
  }
};
// Each product and sum of floats rounds once; the build fuses none (N1.1).
struct Order {
  const char* name;
  float (*value)(const Terms&);
};
struct Question {
  const char* name;
  std::vector<const char*> lines;
  std::vector<Order> orders;
};

const std::vector<Question>& questions() {
  static const std::vector<Question> all = {
      {"scales of the tensors",
       {"gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split out=f32",
        "gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_fast out=f32"},
       {{"acc * (sa * sb)", [](const Terms& t) { return t.acc * (t.sa * t.sb); }},
        {"(acc * sa) * sb", [](const Terms& t) { return (t.acc * t.sa) * t.sb; }},
        {"(acc * sb) * sa", [](const Terms& t) { return (t.acc * t.sb) * t.sa; }}}},
      {"scales of the rows",
       {"gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split row_scaled=1 out=f32",
        "gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_fast row_scaled=1 out=f32"},
       {{"(acc * sa) * sb", [](const Terms& t) { return (t.acc * t.sa) * t.sb; }},
        {"(acc * sb) * sa", [](const Terms& t) { return (t.acc * t.sb) * t.sa; }},
        {"acc * (sa * sb)", [](const Terms& t) { return t.acc * (t.sa * t.sb); }}}},
      {"alpha and the scales of the tensors",
       {"gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split out=f32 alpha=0.3"},
       {{"(acc * (sa * sb)) * alpha", [](const Terms& t) { return (t.acc * (t.sa * t.sb)) * t.alpha; }},
        {"acc * ((sa * sb) * alpha)", [](const Terms& t) { return t.acc * ((t.sa * t.sb) * t.alpha); }},
        {"acc * ((alpha * sa) * sb)", [](const Terms& t) { return t.acc * ((t.alpha * t.sa) * t.sb); }},
        {"acc * ((alpha * sb) * sa)", [](const Terms& t) { return t.acc * ((t.alpha * t.sb) * t.sa); }},
        {"(acc * alpha) * (sa * sb)", [](const Terms& t) { return (t.acc * t.alpha) * (t.sa * t.sb); }},
        {"((acc * sa) * sb) * alpha", [](const Terms& t) { return ((t.acc * t.sa) * t.sb) * t.alpha; }},
        {"((acc * alpha) * sa) * sb", [](const Terms& t) { return ((t.acc * t.alpha) * t.sa) * t.sb; }}}},
      {"alpha and the scales of the rows",
       {"gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split row_scaled=1 out=f32 alpha=0.3"},
       {{"((acc * sa) * sb) * alpha", [](const Terms& t) { return ((t.acc * t.sa) * t.sb) * t.alpha; }},
        {"((acc * sb) * sa) * alpha", [](const Terms& t) { return ((t.acc * t.sb) * t.sa) * t.alpha; }},
        {"((acc * alpha) * sa) * sb", [](const Terms& t) { return ((t.acc * t.alpha) * t.sa) * t.sb; }},
        {"((acc * alpha) * sb) * sa", [](const Terms& t) { return ((t.acc * t.alpha) * t.sb) * t.sa; }},
        {"(acc * (sa * sb)) * alpha", [](const Terms& t) { return (t.acc * (t.sa * t.sb)) * t.alpha; }},
        {"acc * ((sa * sb) * alpha)", [](const Terms& t) { return t.acc * ((t.sa * t.sb) * t.alpha); }},
        {"acc * ((alpha * sa) * sb)", [](const Terms& t) { return t.acc * ((t.alpha * t.sa) * t.sb); }},
        {"acc * ((alpha * sb) * sa)", [](const Terms& t) { return t.acc * ((t.alpha * t.sb) * t.sa); }},
        {"(acc * alpha) * (sa * sb)", [](const Terms& t) { return (t.acc * t.alpha) * (t.sa * t.sb); }},
        {"(acc * (alpha * sa)) * sb", [](const Terms& t) { return (t.acc * (t.alpha * t.sa)) * t.sb; }},
        {"(acc * (alpha * sb)) * sa", [](const Terms& t) { return (t.acc * (t.alpha * t.sb)) * t.sa; }}}},
      {"c beside scales",
       {"gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split out=f32 beta=1",
        "gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split out=bf16 beta=1"},
       {{"acc * (sa * sb) + c", [](const Terms& t) { return t.acc * (t.sa * t.sb) + t.c; }},
        {"fma(acc, sa * sb, c)", [](const Terms& t) { return std::fma(t.acc, t.sa * t.sb, t.c); }},
        {"cast(acc * (sa * sb)) + c", [](const Terms& t) { return t.cast(t.acc * (t.sa * t.sb)) + t.c; }}}},
      {"c beside scales of the rows",
       {"gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split row_scaled=1 out=f32 beta=1",
        "gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split row_scaled=1 out=bf16 beta=1"},
       {{"(acc * sa) * sb + c", [](const Terms& t) { return (t.acc * t.sa) * t.sb + t.c; }},
        {"(acc * sb) * sa + c", [](const Terms& t) { return (t.acc * t.sb) * t.sa + t.c; }},
        {"acc * (sa * sb) + c", [](const Terms& t) { return t.acc * (t.sa * t.sb) + t.c; }},
        {"fma(acc * sa, sb, c)", [](const Terms& t) { return std::fma(t.acc * t.sa, t.sb, t.c); }},
        {"fma(acc * sb, sa, c)", [](const Terms& t) { return std::fma(t.acc * t.sb, t.sa, t.c); }},
        {"fma(acc, sa * sb, c)", [](const Terms& t) { return std::fma(t.acc, t.sa * t.sb, t.c); }},
        {"cast((acc * sa) * sb) + c", [](const Terms& t) { return t.cast((t.acc * t.sa) * t.sb) + t.c; }},
        {"cast((acc * sb) * sa) + c", [](const Terms& t) { return t.cast((t.acc * t.sb) * t.sa) + t.c; }},
        {"cast(acc * (sa * sb)) + c", [](const Terms& t) { return t.cast(t.acc * (t.sa * t.sb)) + t.c; }}}},
      {"a bias beside scales",
       {"gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split out=f32 bias=f32",
        "gemm a=fp8_current b=fp8_current 64x64x32 sum=hopper_fp8_split out=bf16 bias=bf16"},
       {{"acc * (sa * sb) + bias", [](const Terms& t) { return t.acc * (t.sa * t.sb) + t.bias; }},
        {"fma(acc, sa * sb, bias)", [](const Terms& t) { return std::fma(t.acc, t.sa * t.sb, t.bias); }},
        {"cast(acc * (sa * sb)) + bias",
         [](const Terms& t) { return t.cast(t.acc * (t.sa * t.sb)) + t.bias; }}}},
      {"c beside alpha",
       {"gemm a=identity b=identity 64x64x64 sum=hopper_f16 out=f32 alpha=0.3 beta=1",
        "gemm a=identity b=identity 64x64x64 sum=hopper_f16 out=bf16 alpha=0.3 beta=1"},
       {{"acc * alpha + c", [](const Terms& t) { return t.acc * t.alpha + t.c; }},
        {"fma(acc, alpha, c)", [](const Terms& t) { return std::fma(t.acc, t.alpha, t.c); }},
        {"cast(acc * alpha) + c", [](const Terms& t) { return t.cast(t.acc * t.alpha) + t.c; }}}},
      {"beta",
       {"gemm a=identity b=identity 64x64x64 sum=hopper_f16 out=f32 beta=0.7",
        "gemm a=identity b=identity 64x64x64 sum=hopper_f16 out=bf16 beta=0.7"},
       {{"acc + beta * c", [](const Terms& t) { return t.acc + t.beta * t.c; }},
        {"fma(beta, c, acc)", [](const Terms& t) { return std::fma(t.beta, t.c, t.acc); }},
        {"cast(acc) + beta * c", [](const Terms& t) { return t.cast(t.acc) + t.beta * t.c; }},
        {"fma(beta, c, cast(acc))", [](const Terms& t) { return std::fma(t.beta, t.c, t.cast(t.acc)); }}}},
      {"c and a bias",
       {"gemm a=identity b=identity 64x64x64 sum=hopper_f16 out=f32 beta=1 bias=f32",
        "gemm a=identity b=identity 64x64x64 sum=hopper_f16 out=bf16 beta=1 bias=bf16"},
       {{"(acc + c) + bias", [](const Terms& t) { return (t.acc + t.c) + t.bias; }},
        {"(acc + bias) + c", [](const Terms& t) { return (t.acc + t.bias) + t.c; }},
        {"acc + (c + bias)", [](const Terms& t) { return t.acc + (t.c + t.bias); }},
        {"cast(acc + c) + bias", [](const Terms& t) { return t.cast(t.acc + t.c) + t.bias; }},
        {"cast(acc + bias) + c", [](const Terms& t) { return t.cast(t.acc + t.bias) + t.c; }}}},
  };
  return all;
}

uint64_t mix(uint64_t x) {  // SplitMix64
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

// The planes of a line and what they hold as floats: data integers, up to 3 in FP8 and to 15 in bf16, whose
// sums no bf16 holds; other values of any mantissa around 1 and, in C and the bias, around the sums.
struct Inputs {
  explicit Inputs(const Problem& p) : planes(input_planes(p)) {
    for (const Plane& plane : planes) {
      std::vector<float>& now = values[plane.name];
      std::vector<std::byte> data(plane.bytes());
      const bool codes = plane.name.ends_with(".data"), added = plane.name == "c" || plane.name == "bias";
      for (int64_t i = 0; i < plane.padded.count(); ++i) {
        const uint64_t h = mix(static_cast<uint64_t>(i) + 1000003 * plane.name.size() +
                               static_cast<uint64_t>(plane.name[0]));
        const int most = plane.encoding == Encoding::e4m3 ? 3 : 15,
                  integer = static_cast<int>(h % static_cast<uint64_t>(2 * most + 1)) - most;
        float v = codes ? static_cast<float>(integer)
                        : std::bit_cast<float>(static_cast<uint32_t>(0x3F000000 | (h & 0xFFFFFF)));
        if (added) v *= h >> 32 & 1 ? -16.0f : 16.0f;
        uint32_t code = std::bit_cast<uint32_t>(v);
        if (plane.encoding == Encoding::bf16) v = std::bit_cast<float>(code & 0xFFFF0000), code >>= 16;
        if (plane.encoding == Encoding::e4m3) {
          static constexpr uint32_t kSmall[] = {0x00, 0x38, 0x40, 0x44};  // 0, 1, 2, 3
          code = kSmall[static_cast<size_t>(std::abs(v))] | (v < 0 ? 0x80u : 0u);
        }
        const size_t size = static_cast<size_t>(info(plane.encoding).bytes());
        std::memcpy(&data[static_cast<size_t>(i) * size], &code, size);
        now.push_back(v);
      }
      bytes.push_back(std::move(data));
    }
  }
  // Element i of a plane; the one that there is where there is one; `otherwise` where there is no such plane.
  float at(const char* name, int64_t i, float otherwise) const {
    const auto found = values.find(name);
    if (found == values.end()) return otherwise;
    return found->second.size() == 1 ? found->second[0] : found->second[static_cast<size_t>(i)];
  }
  std::vector<Plane> planes;
  std::vector<std::vector<std::byte>> bytes;
  std::map<std::string, std::vector<float>> values;
};

// How many outputs each order explains, as JSON. Throws what the subject throws.
std::string answer(Subject& subject, const Question& q, const char* line) {
  const Result<Problem> parsed = parse_line(line);
  if (!parsed) throw std::runtime_error(std::string(line) + ": " + parsed.error().text());
  const Problem& p = *parsed;
  if (const Support s = subject.supports(p); !s.yes)
    return std::string("{\"line\": \"") + line + "\", \"unsupported\": \"" + s.why + "\"}";
  const Gemm& g = *p.as<Gemm>();
  const Inputs in(p);
  const std::vector<Plane> written = output_planes(p);
  std::vector<std::byte> d(written[0].bytes());
  std::vector<ConstBuffer> inputs;
  for (size_t i = 0; i < in.planes.size(); ++i) inputs.push_back({&in.planes[i], in.bytes[i]});
  const Buffer output{&written[0], d};
  const Served served = subject.run(p, inputs, std::span(&output, 1), {});

  const int64_t rows = p.x.shape.rows, cols = p.x.shape.cols;
  std::string out = std::string("{\"line\": \"") + line + "\", \"by\": \"" + served.by +
                    "\", \"outputs\": " + std::to_string(rows * cols) + ", \"explained\": {";
  for (const Order& order : q.orders) {
    int64_t equal = 0;
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t m = 0; m < cols; ++m) {
        Terms t{0,
                in.at("a.scale_inv", m, 1),
                in.at("b.scale_inv", n, 1),
                std::bit_cast<float>(g.alpha),
                std::bit_cast<float>(g.beta),
                in.at("c", n * cols + m, 0),
                in.at("bias", m, 0),
                p.x.source == Encoding::bf16};
        for (int64_t k = 0; k < g.k; ++k)
          t.acc += in.at("a.data", m * g.k + k, 0) * in.at("b.data", n * g.k + k, 0);
        const uint32_t want = std::bit_cast<uint32_t>(t.cast(order.value(t))), size = t.bf16 ? 2 : 4;
        uint32_t got = 0;
        std::memcpy(&got, &d[static_cast<size_t>(n * cols + m) * size], size);
        equal += got == (t.bf16 ? want >> 16 : want);
      }
    out += (&order == &q.orders[0] ? "" : ", ") + std::string("\"") + order.name +
           "\": " + std::to_string(equal);
    std::printf("%-38s %-24s %5ld of %ld   %s\n", q.name, order.name, static_cast<long>(equal),
                static_cast<long>(rows * cols), line);
  }
  return out + "}}";
}

}  // namespace
}  // namespace assay

int main(int argc, char** argv) {
  using namespace assay;
  if (argc != 2) {
    std::fprintf(stderr, "usage: epilogue_facts <folder>\n");
    return 2;
  }
  try {
    const std::unique_ptr<Subject> subject = make_cublaslt_subject();
    if (const Support s = subject->present(); !s.yes) {
      std::printf("no facts of cuBLASLt: %s\n", s.why.c_str());
      return 0;
    }
    std::ofstream out(std::string(argv[1]) + "/epilogue.json");
    out << "[\n";
    bool first = true;
    for (const Question& q : questions())
      for (const char* line : q.lines) {
        out << (first ? "" : ",\n") << "{\"question\": \"" << q.name
            << "\", \"answer\": " << answer(*subject, q, line) << "}";
        first = false;
      }
    out << "\n]\n";
    if (!out.flush()) throw std::runtime_error(std::string("cannot write ") + argv[1] + "/epilogue.json");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "epilogue_facts: %s\n", e.what());
    return 1;
  }
  return 0;
}
