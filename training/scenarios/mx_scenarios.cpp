// S-145 to S-147: MXFP6 and MXFP4, which the original has no quantizer for and users bring by a factory.
#include <array>
#include <bit>
#include <span>

#include "training/base/data.h"
#include "training/dispatch/in_place.h"
#include "training/formats/formats.h"
#include "training/formats/matmul.h"
#include "training/groups/grouped.h"
#include "training/kit/recipes.h"
#include "training/ranks/fsdp.h"
#include "training/ranks/master_weights.h"
#include "training/recipes/factories.h"
#include "training/recipes/format_table.h"
#include "training/scenarios/common.h"
#include "training/scenarios/formats.h"
#include "training/scenarios/steps.h"
#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

using std::string;
using std::string_view;
using enum ErrorClass;

constexpr int64_t kBlock = 32;

// A format and, by hand, what it makes of 32 rows that repeat four values. MAX is among the values, so a row
// has the scale 1 (code 7F); a column is one value v, whose scale is the power of two at v / MAX or above.
struct ByHand {
  string_view what;
  FormatId format;
  Encoding dtype;
  Packing packing;
  std::array<float, 4> values;
  string_view rows, columns;  // stored bytes: four elements of a row; of each of four columns its first bytes
  string_view column_scales;
};
constexpr ByHand kByHand[] = {
    // E2M3: MAX 7.5; 1 is 001000 and the smallest value, 0.125, is 000001. Columns hold 7.5, 1 * 4, -2.5 *
    // 2, 4.
    {"E2M3, a code in a byte",
     FormatId::mxfp6,
     Encoding::e2m3,
     Packing::bytes,
     {7.5f, 1, -2.5f, 0.125f},
     "1F083201",
     "1F183A18",
     "7F7D7E7A"},
    // 011111 | 001000 << 6 | 110010 << 12 | 000001 << 18 = 07221F
    {"E2M3, packed",
     FormatId::mxfp6,
     Encoding::e2m3,
     Packing::packed,
     {7.5f, 1, -2.5f, 0.125f},
     "1F2207",
     "DFF77D188661BAAEEB188661",
     "7F7D7E7A"},
    // E3M2: MAX 28; 1 is 001100 and the smallest value, 0.0625, is 000001. Columns hold 28, 16, -20 and 16.
    {"E3M2, a code in a byte",
     FormatId::mxfp6,
     Encoding::e3m2,
     Packing::bytes,
     {28, 1, -2.5f, 0.0625f},
     "1F0C3101",
     "1F1C3D1C",
     "7F7B7C77"},
    // E2M1: MAX 6; 1 is 0010 and the smallest value, 0.5, is 0001. Columns hold 6, 4, -6 and 4.
    {"E2M1, two codes in a byte",
     FormatId::mxfp4,
     Encoding::e2m1,
     Packing::packed,
     {6, 1, -3, 0.5f},
     "271D",
     "7766FF66",
     "7F7D7E7C"},
};

ArrayPtr matrix_of(const ByHand& c, Dims shape = {kBlock, kBlock}) {
  std::vector<uint16_t> bits;
  for (int64_t i = 0; i < count_of(shape); ++i)
    bits.push_back(
        static_cast<uint16_t>(std::bit_cast<uint32_t>(c.values[static_cast<size_t>(i) % 4]) >> 16));
  return from_bytes(std::move(shape), DType::bfloat16, std::as_bytes(std::span(bits)));
}

QuantizerPtr quantizer_of(const ByHand& c) {
  const auto with = [&](auto q) -> QuantizerPtr {
    q->settings.dtype = c.dtype;
    q->settings.packing = c.packing;
    return q;
  };
  if (c.format == FormatId::mxfp6) return with(std::make_shared<MXFP6Quantizer>());
  return with(std::make_shared<MXFP4Quantizer>());
}

string hex(std::span<const std::byte> bytes) {
  string out;
  for (const std::byte b : bytes)
    for (const unsigned digit : {std::to_integer<unsigned>(b) >> 4, std::to_integer<unsigned>(b) & 15})
      out += "0123456789ABCDEF"[digit];
  return out;
}
// The first bytes of each of the first `rows` rows of a matrix.
string starts(const ArrayPtr& a, int64_t rows, int64_t bytes) {
  string out;
  for (int64_t r = 0; a && r < rows; ++r)
    out += hex(std::as_const(*contiguous(slice(slice(a, 0, r, r + 1), 1, 0, bytes))).bytes());
  return out;
}

// ---- S-145 ------------------------------------------------------------------------------

void expect_by_hand(ScenarioRun& run, const ByHand& c) {
  Session session = run.session();
  const ArrayPtr x = matrix_of(c);
  const QuantizerPtr q = quantizer_of(c);
  const StoragePtr s = q->quantize(session, x);
  const auto length = [](string_view digits) { return static_cast<int64_t>(digits.size() / 2); };
  run.expect_equal(starts(buffer(*s, "_rowwise_data"), 1, length(c.rows)), c.rows, "a row's codes");
  run.expect_equal(starts(buffer(*s, "_rowwise_scale_inv"), 4, 1), "7F7F7F7F", "scales of rows");
  run.expect_equal(starts(buffer(*s, "_columnwise_data"), 4, length(c.columns) / 4), c.columns,
                   "codes of four columns");
  run.expect_equal(starts(buffer(*s, "_columnwise_scale_inv"), 4, 1), c.column_scales, "scales of columns");
  run.expect_equal(s->dequantize(session), x, "dequantized from rows");
  for (const Usages usages : {kRowUsage, kColumnUsage}) {
    const QuantizerPtr alone = q->copy();
    alone->set_usage(usages.rowwise, usages.columnwise);
    const StoragePtr part = alone->quantize(session, x);
    run.expect(part->present() == usages, text(usages) + " alone", text(usages), text(part->present()));
    expect_part(run, *part, *s, text(usages) + " alone");
    run.expect_equal(part->dequantize(session), x, text(usages) + " alone, dequantized");
  }
  const StoragePtr deep = q->quantize(session, matrix_of(c, {2, kBlock, 2 * kBlock}));
  run.expect(deep->size() == Dims{2, kBlock, 2 * kBlock}, "the shape of a batch");
  deep->update_usage(false, true);
  run.expect(deep->size() == Dims{2, kBlock, 2 * kBlock}, "its shape by columns alone");
  const StoragePtr viewed = deep->view({2 * kBlock, -1});
  run.expect_equal(viewed->dequantize(session), view(deep->dequantize(session), {2 * kBlock, 2 * kBlock}),
                   "a view that keeps the last dimension");
}

void brought_formats_by_hand(ScenarioRun& run) {
  for (const ByHand& c : kByHand) {
    run.about(string(c.what));
    expect_by_hand(run, c);
  }
  run.about("factories");
  for (const char* name : {"mxfp6", "mxfp4"}) {
    const QuantizerPtr q = base_quantizer(name, nullptr);
    const string upper = name == string_view("mxfp6") ? "MXFP6" : "MXFP4";
    run.expect_equal(string(q->class_name()), upper + "Quantizer", "what " + string(name) + "_factory makes");
    run.expect_equal(string(q->compatible_recipe()), "CustomRecipe", "its recipe");
    Session session = run.session();
    run.expect_equal(string(q->quantize(session, matrix_of(kByHand[0]))->class_name()), upper + "Tensor",
                     "its tensors");
  }

  run.about("refreshed and copied");
  Session session = run.session();
  const ArrayPtr x = matrix_of(kByHand[0]), other = gradient({kBlock, kBlock}, DType::bfloat16, 3);
  const QuantizerPtr e2m3 = quantizer_of(kByHand[0]), e3m2 = quantizer_of(kByHand[2]);
  const StoragePtr s = e2m3->quantize(session, x), before = clone(*s);
  s->quantizer->update_quantized(session, other, *s, F32Bits{0x3F800000});
  run.expect_equal(*s, *before, "under a flag of 1");
  s->quantizer->update_quantized(session, other, *s);
  run.expect_equal(*s, *e2m3->quantize(session, other), "without a flag");
  const StoragePtr source = e3m2->quantize(session, x);
  dispatch::copy_(session, source, s);
  run.expect_equal(*s, *e2m3->quantize(session, source->dequantize(session)),
                   "copied from E3M2, whose codes mean other values");
  const StoragePtr same = e2m3->quantize(session, other);
  dispatch::copy_(session, same, s);
  run.expect_equal(*s, *same, "copied from E2M3");
  dispatch::quantize_(session, e2m3->quantize(session, x), *s, F32Bits{0x3F800000});
  run.expect_equal(*s, *same, "from a quantized source under a flag of 1");
}

// ---- S-146 ------------------------------------------------------------------------------

float value_at(const ArrayPtr& f32, int64_t i) {
  F32Bits bits = 0;
  const auto from = std::as_const(*f32).bytes().subspan(static_cast<size_t>(i) * sizeof bits, sizeof bits);
  std::copy(from.begin(), from.end(), std::as_writable_bytes(std::span(&bits, 1)).begin());
  return std::bit_cast<float>(bits);
}

// All rows are p = (p0 p1 p2 p3) eight times over. Rows with rows give 8 p.p everywhere; the columns of one
// with the rows of another give, at column m, p_m times the sum of a row.
void products_by_hand(ScenarioRun& run) {
  for (const ByHand& c : kByHand) {
    run.about(string(c.what));
    Session session = run.session();
    const StoragePtr s = quantizer_of(c)->quantize(session, matrix_of(c));
    float square = 0, sum = 0;
    for (const float v : c.values) square += 8 * v * v, sum += 8 * v;
    GemmOptions o;
    o.out_dtype = DType::float32;
    const ArrayPtr rows = std::get<ArrayPtr>(general_gemm(session, s, s, GemmOp::TN, o)),
                   mixed = std::get<ArrayPtr>(general_gemm(session, s, s, GemmOp::NN, o));
    for (const int64_t i : {0, 1, 2, 3, 1023}) {
      run.expect(value_at(rows, i) == square, "rows with rows", std::to_string(square),
                 std::to_string(value_at(rows, i)));
      const float want = sum * c.values[static_cast<size_t>(i) % 4];
      run.expect(value_at(mixed, i) == want, "columns with rows", std::to_string(want),
                 std::to_string(value_at(mixed, i)));
    }
  }
}

void brought_formats_in_modules(ScenarioRun& run) {
  products_by_hand(run);
  for (const string_view module :
       {"linear", "layernorm_linear", "layernorm_mlp", "grouped_linear", "ops_linear"})
    for (const string_view f : {"mxfp6", "mxfp4"}) {
      const ModuleSettings s{.module = module, .rows = 96, .splits = {32, 0, 64}};
      run.about(string(module) + ", " + string(f));
      const StepRecord plain = step_of(run, s, under(recipe_of_format(f)));
      expect_same_steps(run, step_of(run, s, under(per_gemm({f, f, f}, "input,weight,grad_output"))), plain);
      for (const string_view gemm : {"fprop", "dgrad", "wgrad"})
        for (const GemmRecord* g : gemms_of(plain, gemm))
          run.expect(g->line.find("a=" + string(f) + " b=" + string(f)) != string::npos,
                     g->name + ": the line's operands", string(f), g->line);
      if (module == "layernorm_mlp") continue;  // its second layer's gradients depend on both formats
      run.about(string(module) + ", H(mxfp8|" + string(f) + ") and H(" + string(f) + "|mxfp8)");
      // MXFP8's built-in step sums the bias gradient in its kernel and quantizes what a norm has not rounded.
      const StepRecord mx8 = step_of(run, s, under(built_in_recipe("mxfp8"), {false, false, false}));
      const StepRecord forward = step_of(run, s, under(per_gemm({"mxfp8", f, f}))),
                       backward = step_of(run, s, under(per_gemm({f, "mxfp8", "mxfp8"})));
      for (const auto& [r, fprop, grads] :
           {std::tuple{&forward, &mx8, &plain}, std::tuple{&backward, &plain, &mx8}}) {
        expect_same_gemms(run, *r, *fprop, "fprop");
        expect_same_output(run, *r, *fprop, "output");
        for (const string_view gemm : {"dgrad", "wgrad"}) expect_same_gemms(run, *r, *grads, gemm);
      }
    }
}

// ---- S-147 ------------------------------------------------------------------------------

void brought_formats_refused(ScenarioRun& run) {
  Session session = run.session();
  const ArrayPtr x = matrix_of(kByHand[1]), w = matrix_of(kByHand[3]);
  const QuantizerPtr six = quantizer_of(kByHand[1]), four = quantizer_of(kByHand[3]);
  const StoragePtr s = six->quantize(session, x), other = four->quantize(session, w);
  const auto refused = [&](ErrorClass c, string_view what, std::initializer_list<string_view> mentions,
                           const std::function<void()>& work) { run.expect_error(c, what, work, mentions); };
  run.about("MXFP6, packed");
  refused(runtime_error, "a partial block", {"MXFP6Quantizer", "multiples of 32", "48x32"}, [&] {
    six->quantize(session, drawn({48, 32}, DType::bfloat16, 1));
  });
  refused(runtime_error, "a view across codes that share bytes", {"an MXFP6Tensor", "inner dimension of 32"},
          [&] {
            s->view({16, 64});
          });
  refused(runtime_error, "a direction that is gone", {"an MXFP6Tensor with column-wise"}, [&] {
    const StoragePtr rows = clone(*s);
    rows->update_usage(true, false);
    rows->update_usage(true, true);
  });
  refused(assertion_error, "an update of an MXFP4 tensor", {"MXFP6Tensor", "MXFP4Tensor"},
          [&] { six->update_quantized(session, x, *other); });
  refused(runtime_error, "buffers of another element", {"element"},
          [&] { clone(*s)->copy_from_storage(*quantizer_of(kByHand[2])->quantize(session, x)); });
  refused(runtime_error, "a GEMM with MXFP8", {"scaling_mode", "MXFP6 and MXFP8"},
          [&] { general_gemm(session, s, MXFP8Quantizer().copy()->quantize(session, x), GemmOp::TN, {}); });
  refused(runtime_error, "a GEMM with MXFP4", {"MXFP6 and MXFP4"},
          [&] { general_gemm(session, s, other, GemmOp::TN, {}); });
  refused(not_implemented_error, "a quantized output", {"MXFP6Quantizer", "native"}, [&] {
    GemmOptions o;
    o.out_quantizer = six;
    general_gemm(session, s, s, GemmOp::TN, o);
  });
  refused(not_implemented_error, "a shard under FSDP2", {"fsdp", "an MXFP6Tensor"},
          [&] { fsdp_pre_all_gather(*s, nullptr, ParamGroup{}); });
  const auto pair = std::make_shared<HybridQuantizer>(std::make_shared<MXFP8Quantizer>(), six->copy());
  refused(not_implemented_error, "the same inside a hybrid", {"MXFP6Tensor"},
          [&] { fsdp_pre_all_gather(*pair->quantize(session, x), nullptr, ParamGroup{}); });
  refused(value_error, "a group of experts in one buffer", {"built-in recipe", "MXFP6Quantizer"}, [&] {
    make_grouped_tensor_with_shapes(session, {{32, 32}, {64, 32}}, six);
  });
  refused(value_error, "a master's fragment", {"built-in recipe", "an MXFP6Tensor"}, [&] {
    ProcessGroup alone;
    quantize_master_weights(session, {{s, view(cast(session, x, DType::float32), {1024}), 0, {}}}, alone);
  });
  session.flavour = Flavour::te;
  refused(runtime_error, "TransformerEngine's kernels", {"TransformerEngine has no MXFP6 kernel"},
          [&] { six->quantize(session, x); });
  refused(runtime_error, "the same of MXFP4", {"TransformerEngine has no MXFP4 kernel"},
          [&] { four->quantize(session, w); });
}

constexpr Scenario kMxScenarios[] = {
    {"S-145", "MXFP6 and MXFP4 by a factory: bytes worked by hand",
     "matrices of four values in E2M3, E3M2 and E2M1, packed and a code in a byte",
     "the quantizers of mxfp6_factory and mxfp4_factory, and others of their class, quantize them",
     "codes and scales of both directions are those worked by hand, columns are transposed, every value "
     "comes back; "
     "a copy from another element is quantized anew",
     brought_formats_by_hand, ""},
    {"S-146", "MXFP6 and MXFP4 by a factory: modules",
     "Linear, LayerNormLinear, LayerNormMLP, GroupedLinear and the operation, plain and as hybrids of one "
     "format, and "
     "as pairs with MXFP8",
     "forward and backward run",
     "products are those worked by hand; a hybrid of one format equals the plain quantizer; a pair with "
     "MXFP8 takes "
     "each GEMM from its own format's step",
     brought_formats_in_modules, ""},
    {"S-147", "MXFP6 and MXFP4 by a factory: what is refused", "tensors of both formats",
     "partial blocks, views across packed codes, GEMMs with other formats, FSDP2, groups, fragments of "
     "masters, "
     "kernels of TransformerEngine",
     "each raises in the class's words and names the format", brought_formats_refused, ""},
};

}  // namespace

std::span<const Scenario> mx_scenarios() { return kMxScenarios; }

}  // namespace assay::training
