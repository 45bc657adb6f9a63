// Scenarios of a step's arithmetic: row-scaled products, what dtype a split sees, which random numbers each
// direction consumes, and the sign of a zero.
#include <utility>

#include "contract/line.h"
#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/formats/formats.h"
#include "training/formats/hybrid.h"
#include "training/groups/split_quantize.h"
#include "training/recipes/format_table.h"
#include "training/scenarios/common.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;

template <class S> S& of_class(const StoragePtr& s) { return dynamic_cast<S&>(*s); }

string dims_text(int64_t rows, int64_t cols) { return std::to_string(rows) + "x" + std::to_string(cols); }

// S-36
void row_scaled_products(ScenarioRun& run) {
  Session session = run.session();
  const auto quantized = [&](Dims shape, uint64_t seed, bool row_scaled) {
    NVFP4Quantizer q;
    q.row_scaled_nvfp4 = row_scaled;
    return q.copy()->quantize(session, drawn(std::move(shape), DType::bfloat16, seed, FillKind::wide));
  };
  const auto amaxes = [&](const StoragePtr& s, bool rows) {
    return floats(session,
                  rows ? of_class<NVFP4Storage>(s).amax_rowwise : of_class<NVFP4Storage>(s).amax_columnwise);
  };
  const auto without_amax = [](const StoragePtr& s) {
    StoragePtr out = s->make_like();
    auto& plain = of_class<NVFP4Storage>(out);
    plain.row_scaled = false;
    plain.amax_rowwise = plain.amax_columnwise = f32_array({1}, std::vector<float>{1.0f});
    return out;
  };
  // Weight [96, 128], input [64, 128], gradient [64, 96].
  struct Product {
    string_view gemm;
    GemmOp op;
    bool a_vector, b_vector;
  };
  constexpr Product kProducts[] = {{"fprop", GemmOp::TN, false, true}, {"fprop", GemmOp::TN, true, false},
                                   {"fprop", GemmOp::TN, true, true},  {"dgrad", GemmOp::NN, true, false},
                                   {"dgrad", GemmOp::NN, true, true},  {"wgrad", GemmOp::NT, true, false},
                                   {"wgrad", GemmOp::NT, true, true}};
  for (const Product& p : kProducts) {
    run.about(string(p.gemm) + ", " + (p.a_vector ? "vector" : "scalar") + " by " +
              (p.b_vector ? "vector" : "scalar"));
    const Dims a_shape = p.op == GemmOp::NT ? Dims{64, 128} : Dims{96, 128},
               b_shape = p.op == GemmOp::TN ? Dims{64, 128} : Dims{64, 96};
    const StoragePtr a = quantized(a_shape, 1, p.a_vector), b = quantized(b_shape, 2, p.b_vector);
    const bool a_rows = p.op == GemmOp::TN, b_rows = p.op != GemmOp::NT;
    const std::vector<float> fa = amaxes(a, a_rows), fb = amaxes(b, b_rows);
    const size_t m = static_cast<size_t>(a_shape[a_rows ? 0 : 1]),
                 n = static_cast<size_t>(b_shape[b_rows ? 0 : 1]);
    run.expect_equal(static_cast<int64_t>(fa.size()), p.a_vector ? static_cast<int64_t>(m) : 1,
                     "amaxes of the first operand");
    run.expect_equal(static_cast<int64_t>(fb.size()), p.b_vector ? static_cast<int64_t>(n) : 1,
                     "amaxes of the second operand");
    const ArrayPtr bias = drawn({static_cast<int64_t>(m)}, DType::bfloat16, 3, FillKind::wide);
    const auto multiplied = [&](const StoragePtr& x, const StoragePtr& y, DType to, const ArrayPtr& with) {
      GemmOptions o;
      o.out_dtype = to;
      o.bias = with;
      o.name = string(p.gemm);
      return std::get<ArrayPtr>(general_gemm(session, x, y, p.op, o));
    };
    const std::vector<float> sums = floats(session, multiplied(without_amax(a), without_amax(b),
                                                               DType::float32, nullptr)),
                             added = floats(session, bias);
    const bool twice = p.a_vector && p.b_vector;
    const auto scaled = [&](bool in_two, bool bias_first) {
      std::vector<float> out(sums.size());
      for (size_t j = 0; j < n; ++j)
        for (size_t i = 0; i < m; ++i) {
          const float s = fa[p.a_vector ? i : 0], t = fb[p.b_vector ? j : 0],
                      v = bias_first ? sums[j * m + i] + added[i] : sums[j * m + i];
          const float product = in_two ? (v * t) * s : v * (s * t);
          out[j * m + i] = bias_first ? product : product + added[i];
        }
      return f32_array({static_cast<int64_t>(n), static_cast<int64_t>(m)}, out);
    };
    const ArrayPtr got = multiplied(a, b, DType::float32, bias), want = scaled(twice, false);
    run.expect_equal(got, want, "binary32 result");
    run.expect_equal(multiplied(a, b, DType::bfloat16, bias), cast(session, want, DType::bfloat16),
                     "bf16 result, rounded once");
    run.expect_different(got, scaled(!twice, false), "the other number of multiplications");
    run.expect_different(got, scaled(twice, true), "bias before the scales");
  }
}

// S-37
void split_dtypes(ScenarioRun& run) {
  Session session = run.session();
  const std::vector<int64_t> splits = {32, 0, 64};
  const ArrayPtr wide = gradient({96, 128}, DType::float32, 5), narrow = cast(session, wide, DType::bfloat16);
  const auto identity = []() -> QuantizerPtr { return std::make_shared<IdentityQuantizer>(); };
  const auto mx = []() -> QuantizerPtr { return std::make_shared<MXFP8Quantizer>(); };
  const auto pair = [](auto make) {
    return [make]() -> QuantizerPtr { return std::make_shared<HybridQuantizer>(make(), make()); };
  };
  struct Kind {
    string_view name;
    std::function<QuantizerPtr()> make;
  };
  const Kind kinds[] = {{"ID", identity}, {"H(ID|ID)", pair(identity)}, {"MX", mx}, {"H(MX|MX)", pair(mx)}};
  const auto split = [&](const Kind& kind, const ArrayPtr& x) {
    std::vector<QuantizerPtr> quantizers;
    for (size_t i = 0; i < splits.size(); ++i) quantizers.push_back(kind.make());
    return split_quantize(session, x, splits, quantizers, {DType::bfloat16, false, false}).outputs;
  };
  for (const Kind& kind : kinds) {
    run.about(string(kind.name));
    const auto from_narrow = split(kind, narrow),
               from_cast = split(kind, cast(session, wide, DType::bfloat16)), uncast = split(kind, wide);
    for (size_t i = 0; i < splits.size(); ++i) {
      const string expert = "expert " + std::to_string(i);
      if (kind.name == "ID") {
        run.expect_equal(std::get<ArrayPtr>(from_cast[i]), std::get<ArrayPtr>(from_narrow[i]),
                         expert + ", cast first");
        run.expect_equal(std::get<ArrayPtr>(uncast[i]), std::get<ArrayPtr>(from_narrow[i]),
                         expert + ", cast by the split");
        continue;
      }
      run.expect_equal(*std::get<StoragePtr>(from_cast[i]), *std::get<StoragePtr>(from_narrow[i]),
                       expert + ", cast first");
      run.expect_equal(name_of(dtype_of(uncast[i])), "float32", expert + ", not cast: nominal dtype");
      if (splits[i] > 0)
        run.expect_different(*std::get<StoragePtr>(uncast[i])->fields()[0].slot,
                             *std::get<StoragePtr>(from_narrow[i])->fields()[0].slot, expert + ", not cast");
    }
  }
  // Within a step the mismatch shows in the first GEMM that reads the gradient.
  const auto step = [&](const Kind& kind, const ArrayPtr& dy) {
    Bench bench(run, {.module = "grouped_linear", .bias = false, .splits = splits});
    bench.dy = dy;
    const RecipePtr recipe = by_tensor([&](const string& tensor, const RolePtr&) -> QuantizerLike {
      return tensor == "grad_output"                     ? kind.make()
             : kind.name.find("ID") != string_view::npos ? identity()
                                                         : mx();
    });
    return bench.step(under(recipe));
  };
  const ArrayPtr dy = gradient({96, 96}, DType::float32, 6), dy16 = cast(session, dy, DType::bfloat16);
  run.about("a step");
  expect_same_steps(run, step(kinds[0], dy), step(kinds[0], dy16));
  run.expect_error(ErrorClass::runtime_error, "H(ID|ID) and a float32 gradient", [&] { step(kinds[1], dy); },
                   {"dtype", "dgrad"});
  expect_same_steps(run, step(kinds[1], dy16), step(kinds[0], dy16));
  expect_same_steps(run, step(kinds[3], dy), step(kinds[2], dy));
  expect_same_steps(run, step(kinds[3], dy16), step(kinds[2], dy16));
}

// One quantization of a tensor in both directions: what it drew, and which state each direction's launch was
// given.
struct Drawn {
  std::vector<string> draws;  // "1024", "1024 unused"
  string row = "none", col = "none";
  uint64_t offset = 0;  // of the generator, afterwards
  ArrayPtr row_data, col_data;
};
Drawn drawn_by(Session& session, const Quantizer& like, bool as_hybrid, const ArrayPtr& x) {
  session.rng.reseed(7, 0);
  session.rng.draws.clear();
  session.launches.clear();
  const QuantizerPtr q =
      as_hybrid ? std::make_shared<HybridQuantizer>(like.copy(), like.copy()) : like.copy();
  const StoragePtr s = q->quantize(session, x);
  Drawn out;
  out.offset = session.rng.offset;
  for (const RngDraw& d : session.rng.draws)
    out.draws.push_back(std::to_string(d.offset) + (d.used ? "" : " unused"));
  for (const string& line : session.launches) {
    const Problem p = *parse_line(line);
    if (!draws(p)) continue;
    if (p.row) out.row = std::to_string(p.rng.offset);
    if (p.col) out.col = std::to_string(p.rng.offset);
  }
  const auto* hybrid = dynamic_cast<const HybridStorage*>(s.get());
  out.row_data = of_class<NVFP4Storage>(hybrid ? hybrid->rowwise_storage : s).rowwise_data;
  out.col_data = of_class<NVFP4Storage>(hybrid ? hybrid->columnwise_storage : s).columnwise_data;
  return out;
}

NVFP4Quantizer fp4(bool rht, bool stochastic) {
  NVFP4Quantizer q;
  q.with_rht = q.with_post_rht_amax = rht;
  q.stochastic_rounding = stochastic;
  return q;
}

// S-38
void random_states(ScenarioRun& run) {
  constexpr Shape kShapes[] = {{48, 80}, {64, 96}, {96, 128}, {64, 128}, {128, 256}};
  for (const Arch arch : {Arch::sm90, Arch::sm100, Arch::sm110})
    for (const Shape& shape : kShapes)
      for (const bool rht : {false, true})
        for (const bool stochastic : {false, true}) {
          run.about(string(arch == Arch::sm90    ? "sm90"
                           : arch == Arch::sm100 ? "sm100"
                                                 : "sm110") +
                    " " + dims_text(shape.rows, shape.cols) + (rht ? " RHT" : "") +
                    (stochastic ? " SR" : ""));
          Session session = run.session(arch);
          const ArrayPtr x = gradient({shape.rows, shape.cols}, DType::bfloat16, 8);
          const NVFP4Quantizer q = fp4(rht, stochastic);
          const Drawn vanilla = drawn_by(session, q, false, x), hybrid = drawn_by(session, q, true, x);
          const bool fused = arch != Arch::sm90 && shape.rows % 64 == 0 && shape.cols % 128 == 0;
          const bool own = rht && !fused;  // columns draw a state of their own
          using Words = std::vector<string>;
          run.expect_equal(vanilla.draws,
                           !stochastic ? Words{}
                           : own       ? Words{"0", "1024"}
                                       : Words{"0"},
                           "vanilla's draws");
          run.expect_equal(hybrid.draws,
                           !stochastic ? Words{}
                           : own       ? Words{"0", "1024 unused", "2048"}
                                       : Words{"0", "1024"},
                           "the hybrid's draws");
          run.expect_equal(vanilla.row + " " + vanilla.col,
                           !stochastic ? "none none"
                           : own       ? "0 1024"
                                       : "0 0",
                           "vanilla's states of rows and columns");
          run.expect_equal(hybrid.row + " " + hybrid.col,
                           !stochastic ? "none none"
                           : own       ? "0 2048"
                                       : "0 1024",
                           "the hybrid's states of rows and columns");
          run.expect_equal(static_cast<int64_t>(hybrid.offset),
                           static_cast<int64_t>(kPhiloxStep * hybrid.draws.size()),
                           "the generator after the hybrid");
          run.expect_equal(hybrid.row_data, vanilla.row_data, "rows");
          if (stochastic) run.expect_different(hybrid.col_data, vanilla.col_data, "columns (E2)");
          else run.expect_equal(hybrid.col_data, vanilla.col_data, "columns");
          session.rng.inject = [] { return 5 * kPhiloxStep; };
          const Drawn v = drawn_by(session, q, false, x), h = drawn_by(session, q, true, x);
          run.expect_equal(h.row_data, v.row_data, "rows of equal states");
          run.expect_equal(h.col_data, v.col_data, "columns of equal states");
        }
  // The original's kernels hand their words out by thread and tick, and a tick depends on which directions a
  // launch produces: without RHT, equal states are not equal words.
  for (const Shape& shape : {Shape{64, 96}, Shape{64, 128}, Shape{128, 256}})
    for (const bool rht : {true, false}) {
      run.about("flavour te, " + dims_text(shape.rows, shape.cols) + (rht ? " RHT SR" : " SR"));
      Session session = run.session();
      session.flavour = Flavour::te;
      session.rng.inject = [] { return 5 * kPhiloxStep; };
      const ArrayPtr x = drawn({shape.rows, shape.cols}, DType::bfloat16, 9);
      const NVFP4Quantizer q = fp4(rht, true);
      const Drawn vanilla = drawn_by(session, q, false, x), hybrid = drawn_by(session, q, true, x);
      if (rht) {
        run.expect_equal(hybrid.row_data, vanilla.row_data, "rows of equal states");
        run.expect_equal(hybrid.col_data, vanilla.col_data, "columns of equal states");
        continue;
      }
      run.expect_different(hybrid.col_data, vanilla.col_data, "columns, of another kernel");
      // Rows: ticks start at four times a 64x64 stage's number here, at twice there, so stage 0 has equal
      // words and every other stage has not.
      const auto stage = [](const ArrayPtr& data, int64_t row, int64_t byte) {
        return contiguous(slice(slice(data, 0, row, row + 64), 1, byte, byte + 32));
      };
      for (int64_t r = 0; r < shape.rows; r += 64)
        for (int64_t c = 0; c + 64 <= shape.cols; c += 64) {
          const string which = "rows from " + std::to_string(r) + ", columns from " + std::to_string(c);
          if (r % 128 == 0 && c % 128 == 0)
            run.expect_equal(stage(hybrid.row_data, r, c / 2), stage(vanilla.row_data, r, c / 2), which);
          else
            run.expect_different(stage(hybrid.row_data, r, c / 2), stage(vanilla.row_data, r, c / 2), which);
        }
    }
}

// S-39
void constant_gradients(ScenarioRun& run) {
  const auto step = [&](bool constant, uint64_t seed) {
    Bench bench(run, {.rows = 64});
    if (constant)
      bench.dy = cast(bench.session, f32_array({64, 96}, std::vector<float>(64 * 96, 1.0f)), DType::bfloat16);
    bench.session.rng.reseed(seed);
    return bench.step(under(built_in_recipe("nvfp4")));
  };
  const StepRecord constant = step(true, 7), random = step(false, 7);
  expect_same_steps(run, step(false, 7), random);
  // The negative control: a sum that serves as a loss shows nothing of a wrong generator.
  run.about("constant gradient, another seed");
  expect_same_outputs(run, step(true, 8), constant);
  run.about("random gradient, another seed");
  run.expect_equal(differing_outputs(step(false, 8), random), {"dgrad", "weight.grad"},
                   "outputs that differ");
}

// S-84
void signs_of_zero(ScenarioRun& run) {
  struct Where {
    bool rows = false, cols = false;  // which directions may differ
  };
  const auto judge = [&](Session& session, const ArrayPtr& x, std::optional<F32Bits> noop, Where differs) {
    const auto made = [&](const QuantizerPtr& q) {
      if (!noop) return q->quantize(session, x);
      const StoragePtr s = q->make_empty(session, x->shape, x->dtype);
      q->update_quantized(session, x, *s, noop);
      return s;
    };
    const StoragePtr v = made(std::make_shared<MXFP8Quantizer>()),
                     h = made(std::make_shared<HybridQuantizer>(std::make_shared<MXFP8Quantizer>(),
                                                                std::make_shared<MXFP8Quantizer>()));
    const auto &vanilla = of_class<MXFP8Storage>(v),
               &row = of_class<MXFP8Storage>(of_class<HybridStorage>(h).rowwise_storage),
               &col = of_class<MXFP8Storage>(of_class<HybridStorage>(h).columnwise_storage);
    run.expect_equal(row.rowwise_scale_inv, vanilla.rowwise_scale_inv, "scales of rows");
    run.expect_equal(col.columnwise_scale_inv, vanilla.columnwise_scale_inv, "scales of columns");
    const auto codes = [&](const ArrayPtr& got, const ArrayPtr& want, bool differ, const string& what) {
      if (!differ) return void(run.expect_equal(got, want, what));
      // Vanilla's specialised kernel has written +0 for every -0; nothing else differs.
      const ArrayPtr expected = clone(got);
      const std::span<const std::byte> in = std::as_const(*x).bytes();
      const std::span<std::byte> bytes = expected->bytes();
      int64_t changed = 0;
      for (size_t i = 0; i < bytes.size(); ++i)
        if (in[2 * i] == std::byte{0} && in[2 * i + 1] == std::byte{0x80})
          changed += std::exchange(bytes[i], std::byte{0}) == std::byte{0x80};
      run.expect(changed > 0, what + " (E12): -0 kept", "some", "none");
      run.expect_equal(want, expected, what + " (E12): vanilla's +0");
    };
    codes(row.rowwise_data, vanilla.rowwise_data, differs.rows, "rows");
    codes(col.columnwise_data, vanilla.columnwise_data, differs.cols, "columns");
  };
  for (const DType dtype : {DType::bfloat16, DType::float16, DType::float32})
    for (const int64_t rows : {32, 96, 128})
      for (const int64_t cols : {32, 96, 128, 160, 256})
        for (const bool noop : {false, true})
          for (const Flavour flavour : {Flavour::assay, Flavour::te}) {
            run.about(dims_text(rows, cols) + " " + string(name_of(dtype)) + (noop ? ", noop pointer" : "") +
                      (flavour == Flavour::te ? ", flavour te" : ""));
            Session session = run.session();
            session.flavour = flavour;
            // 16-bit inputs without a noop pointer take a specialised kernel in both directions, and in rows
            // alone of a multiple of 128 columns.
            const bool specialised = flavour == Flavour::te && dtype != DType::float32 && !noop;
            judge(session, contiguous(slice(gradient({rows + 16, cols}, dtype, 11), 0, 16, rows + 16)),
                  noop ? std::optional<F32Bits>(0) : std::nullopt,
                  {specialised && cols % 128 != 0, specialised});
          }
}

constexpr Scenario kNumericsScenarios[] = {
    {"S-36", "Row-scaled products",
     "NVFP4 operands with an amax per row or column, or one for all, in each layout",
     "they are multiplied and a bias is added",
     "a scalar and a vector multiply once, by their product; two vectors twice, the rows of the result "
     "first; then the bias; then one rounding",
     row_scaled_products, ""},
    {"S-37", "The dtype that a split sees",
     "a float32 gradient in a bf16 step, split for ID, H(ID|ID), MX and H(MX|MX)", "it is cast first, or not",
     "cast first, all see the bf16 gradient; not cast, ID casts, H(ID|ID) keeps float32 and its GEMM is "
     "refused, MX and H(MX|MX) agree",
     split_dtypes, ""},
    {"S-38", "Random states by direction",
     "NVFP4 with and without RHT and stochastic rounding, in shapes that fuse and shapes that do not, on "
     "three architectures",
     "vanilla and a hybrid quantize both directions",
     "each draws the states it should and gives each direction its own; of equal states both are equal, but "
     "under flavour te without RHT, "
     "where rows differ from their second 64x64 stage on",
     random_states, ""},
    {"S-39", "Constant gradients hide the generator",
     "Linear under NVFP4 with a gradient of ones, and with a random one", "a step runs with another seed",
     "ones give the same bytes, the random gradient another dgrad and wgrad", constant_gradients, ""},
    {"S-84", "The sign of a zero in MXFP8",
     "tensors with -0 around K%128, M%32 and K%32, with and without a noop pointer, under both flavours",
     "vanilla and H(MX|MX) quantize them",
     "equal under the plain arithmetic; under flavour te exactly the specialised kernels' launches write +0 "
     "for -0 (E12)",
     signs_of_zero, ""},
};

}  // namespace

std::span<const Scenario> numerics_scenarios() { return kNumericsScenarios; }

}  // namespace assay::training
