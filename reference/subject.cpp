#include "reference/subject.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "contract/line.h"
#include "reference/adam.h"
#include "reference/attention.h"
#include "reference/formats/format.h"
#include "reference/gemm.h"
#include "reference/hadamard.h"
#include "reference/parallel.h"
#include "reference/philox.h"
#include "reference/rounding.h"
#include "reference/scaling.h"
#include "reference/split.h"
#include "reference/stochastic.h"
#include "reference/swizzle.h"
#include "reference/tensor.h"

namespace assay {

namespace {

using namespace reference;

const Format* const kTable[] = {
#define FORMAT(name, ...) &formats::name,
#include "contract/formats.def"
#undef FORMAT
};
const Format& format_of(const Quantizer& q) { return *kTable[static_cast<size_t>(q.format)]; }

void dequantize(const Run& run, Direction d) { format_of(run.quantizer(d)).dequantize(run, d); }

// Ops dequantize and swizzle are about one direction.
Direction only_direction(const Problem& p) { return p.row ? Direction::row : Direction::col; }

// In and Out hold one code of x and of y. The caster comes by value: stores of bytes could alias a reference.
template <class In, class Out>
void cast_elements(const std::byte* x, std::byte* y, int64_t count, const Caster converted) {
  uint32_t last = 0;
  for (int64_t i = 0; i < count; ++i) {
    In code;
    std::memcpy(&code, x + i * static_cast<int64_t>(sizeof code), sizeof code);
    const Out out = static_cast<Out>(converted(code, last));
    std::memcpy(y + i * static_cast<int64_t>(sizeof out), &out, sizeof out);
  }
}

void cast(const Run& run) {
  const Cast& op = *run.problem.as<Cast>();
  if (op.round == Round::sr) return stochastic_cast(run);
  const ConstBuffer& x = run.input("x");
  const Buffer& y = run.output("y");
  const Caster converted(x.plane->encoding, op.to, op.round, op.overflow);
  const int in = info(x.plane->encoding).bytes(), out = info(op.to).bytes();
  const int64_t count = x.plane->logical.count(), share = ceil_div(count, run.threads);
  parallel_for(run.threads, run.threads, [&](int64_t part) {
    const int64_t first = std::min(part * share, count), n = std::min(share, count - first);
    auto go = [&]<class In, class Out>(In, Out) {
      cast_elements<In, Out>(x.bytes.data() + first * in, y.bytes.data() + first * out, n, converted);
    };
    auto from = [&](auto code) {
      out == 1 ? go(code, uint8_t{}) : out == 2 ? go(code, uint16_t{}) : go(code, uint32_t{});
    };
    in == 1 ? from(uint8_t{}) : in == 2 ? from(uint16_t{}) : from(uint32_t{});
  });
}

void swizzle(const Run& run, Direction d) {
  const Format& format = format_of(run.quantizer(d));
  if (format.swizzle) return format.swizzle(run, d);
  if (run.problem.as<Swizzle>()->inverse) {
    const ConstBuffer& gemm = run.input(d, "scale_gemm");
    return store(run.output(d, "scale_inv"), from_gemm(bytes(gemm), gemm.plane->tiles_by_columns()));  // N6.5
  }
  const ConstBuffer& compact = run.input(d, "scale_inv");
  Shape kept = compact.plane->logical;  // N6.6: what stands in the padding is not looked at
  if (run.quantizer(d).numerics.swizzle_extent == SwizzleExtent::floor) {
    if (d == Direction::row) kept.cols = run.problem.x.shape.cols / 32;  // rounded down
    else kept.rows = run.problem.x.shape.rows / 32;
  }
  store_scales(run.output(d, "scale_gemm"), bytes(compact).topLeftCorner(kept.rows, kept.cols));
}

// N6.7: a flag of exactly 1 leaves every byte of every output as it was.
bool stands_still(const Run& run) { return noop_of(run.problem) && scalar(run.input("noop")) == 1.0; }

// N13.1: the row direction's result, in run.outputs, as a tensor in x's encoding.
std::vector<std::byte> rows_dequantized(const Run& run) {
  Problem back = run.problem;
  back.op = Dequantize{.out = run.problem.x.source};
  back.col.reset();
  const std::vector<Plane> read = input_planes(back), written = output_planes(back);
  std::vector<ConstBuffer> inputs;
  for (const Plane& plane : read) {
    const Buffer* made = find(run.outputs, plane.name);
    inputs.push_back({&plane, made ? std::span<const std::byte>(made->bytes)
                                   : run.input(Direction::row, "given.amax").bytes});  // N10.1
  }
  std::vector<std::byte> y(written.at(0).bytes());
  const Buffer outputs[] = {{&written[0], y}};
  format_of(*back.row).dequantize({back, inputs, outputs, run.threads}, Direction::row);
  return y;
}

std::vector<ConstBuffer> with_x(std::span<const ConstBuffer> inputs, const std::vector<std::byte>& x) {
  std::vector<ConstBuffer> out(inputs.begin(), inputs.end());
  for (ConstBuffer& b : out)
    if (b.plane->name == "x") b.bytes = x;
  return out;
}

// N13.2: each direction as if it were alone. Rows before columns, which may be made of them.
void quantize(const Run& run) {
  const Problem& p = run.problem;
  if (p.row) format_of(*p.row).quantize(run, Direction::row);
  if (!p.col) return;
  if (p.col_source == ColSource::original) return format_of(*p.col).quantize(run, Direction::col);
  const std::vector<std::byte> x = rows_dequantized(run);  // N13.1
  format_of(*p.col).quantize({p, with_x(run.inputs, x), run.outputs, run.threads}, Direction::col);
}

// The rows of a pair of formats, and the columns' view of them (N13.1), for as long as a tracer needs them.
struct RowsDequantized {
  explicit RowsDequantized(const Run& run) : rows(run.problem) {
    rows.col.reset();
    const std::vector<Plane> planes = output_planes(rows);
    std::vector<std::vector<std::byte>> bytes;
    std::vector<Buffer> outputs;
    for (const Plane& plane : planes) outputs.push_back({&plane, bytes.emplace_back(plane.bytes())});
    quantize({rows, run.inputs, outputs, run.threads});
    x = rows_dequantized({run.problem, run.inputs, outputs, run.threads});
    inputs = with_x(run.inputs, x);
  }
  RowsDequantized(const RowsDequantized&) = delete;
  Problem rows;
  std::vector<std::byte> x;
  std::vector<ConstBuffer> inputs;
};

Tracer trace_quantize(const Run& run, Direction d) {
  const Format& format = format_of(run.quantizer(d));
  if (d == Direction::row || run.problem.col_source == ColSource::original) return format.trace(run, d);
  const auto made = std::make_shared<RowsDequantized>(run);
  const Run columns{run.problem, made->inputs, {}, run.threads};
  return [made, columns, of_column = format.trace(columns, d)](int64_t row, int64_t col) {
    const ConstBuffer& source = columns.input("x");
    const uint32_t element = load(source, row * source.plane->logical.cols + col);
    std::vector<TraceStep> steps = {
        code_step("N13.1", "element of the dequantized rows", source.plane->encoding, element)};
    for (TraceStep& step : of_column(row, col)) steps.push_back(std::move(step));
    return steps;
  };
}

std::vector<TraceStep> trace_cast(const Run& run, const Caster& converted, int64_t row, int64_t col) {
  const Cast& op = *run.problem.as<Cast>();
  const ConstBuffer& x = run.input("x");
  const Encoding from = x.plane->encoding;
  const int64_t i = row * x.plane->logical.cols + col;
  const uint32_t code = load(x, i);
  return {code_step("N2.8", "source", from, code), value_step("N2.8", "its value", value_of(from, code)),
          code_step(op.to == Encoding::e8m0 ? "N2.7"
                    : op.round == Round::rz ? "N2.6"
                                            : "N2.1",
                    "code", op.to, converted(code))};
}

Tracer trace_cast(const Run& run) {
  const Cast& op = *run.problem.as<Cast>();
  const Encoding from = run.problem.x.source;
  if (op.round == Round::sr)
    return [run](int64_t row, int64_t col) {
      return trace_stochastic_cast(run, row * run.problem.x.shape.cols + col);
    };
  return [run, converted = Caster(from, op.to, op.round, op.overflow)](int64_t row, int64_t col) {
    return trace_cast(run, converted, row, col);
  };
}

class ReferenceSubject final : public Subject, public Tracing {
 public:
  std::string_view name() const override { return "reference"; }

  Support supports(const Problem& p) const override {
    // What has a meaning is decided once, in the contract; the reference does all of it.
    if (const std::optional<Error> error = validate(p)) return {false, error->text()};
    return {};
  }

  Served run(const Problem& p, std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
             const Environment& env) override {
    if (const Support s = supports(p); !s.yes) throw std::invalid_argument("reference: " + s.why);
    const Run run{p, inputs, outputs, env.threads};
    if (stands_still(run)) return {"reference, noop", 0};
    if (p.as<Cast>()) {
      cast(run);
    } else if (p.as<Quantize>()) {
      quantize(run);
    } else if (p.as<Split>()) {
      split(run, quantize);
    } else if (p.as<Dequantize>()) {
      dequantize(run, only_direction(p));
    } else if (p.as<Update>()) {
      format_of(run.quantizer(Direction::row)).update(run);
    } else if (p.as<Swizzle>()) {
      swizzle(run, only_direction(p));
    } else if (p.as<Hadamard>()) {
      hadamard(run);
    } else if (p.as<Philox>()) {
      philox(run);
    } else if (p.as<Gemm>()) {
      gemm(run, dequantize);
    } else if (p.as<Adam>()) {
      adam(run);
    } else if (p.as<ScaleState>()) {
      scale_state(run);
    } else if (p.as<Attention>()) {
      attention(run, format_of);
    } else {
      format_of(run.quantizer(Direction::row)).scale_chain(run);
    }
    return {"reference", 0};
  }

  std::vector<TraceStep> trace(const Problem& p, std::span<const ConstBuffer> inputs, Direction d,
                               int64_t row, int64_t col) override {
    return tracer(p, inputs, d)(row, col);
  }

  Tracer tracer(const Problem& p, std::span<const ConstBuffer> inputs, Direction d) override {
    const Run run{p, inputs, {}, 1};
    if (p.as<Cast>()) return trace_cast(run);
    if (p.as<Gemm>()) return trace_gemm(run, dequantize);
    if (p.as<Adam>()) return trace_adam(run);
    if (p.as<Attention>()) return trace_attention(run, format_of);
    if (p.as<Swizzle>() || !p.quantizer(d))  // a swizzle computes nothing
      return [](int64_t, int64_t) { return std::vector<TraceStep>{}; };
    if (p.as<Quantize>()) return trace_quantize(run, d);
    if (p.as<Split>()) return trace_split(run, [d](const Run& member) { return trace_quantize(member, d); });
    return format_of(run.quantizer(d)).trace(run, d);
  }
};

}  // namespace

std::unique_ptr<Subject> make_reference_subject() { return std::make_unique<ReferenceSubject>(); }

}  // namespace assay
