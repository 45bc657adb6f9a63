// Modules on the reference: which operands go where, what is saved and cached, and where vanilla's fused
// producers part from the unfused route.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "fixtures/fill.h"
#include "reference/subject.h"
#include "training/base/f32.h"
#include "training/base/ranks.h"
#include "training/formats/formats.h"
#include "training/modules/activations.h"
#include "training/modules/fused_producers.h"
#include "training/modules/grouped_linear.h"
#include "training/modules/layernorm_mlp.h"
#include "training/modules/ops_grouped_linear.h"

namespace assay::training {
namespace {

ArrayPtr filled(Dims shape, uint64_t seed, FillKind kind = FillKind::normal, DType dtype = DType::bfloat16) {
  std::vector<std::byte> bytes(static_cast<size_t>(count_of(shape) * bytes_of(dtype)));
  if (const auto error = fill_tensor(Fill{kind, seed, 0, 0, {}}, encoding_of(dtype), flattened(shape), bytes))
    ADD_FAILURE() << error->message;
  return from_bytes(std::move(shape), dtype, bytes);
}

using Make = std::function<QuantizerPtr()>;
const Make kCurrent = [] { return std::make_shared<Float8CurrentScalingQuantizer>(); };
const Make kMx = [] { return std::make_shared<MXFP8Quantizer>(); };
const Make kBlock1 = [] { return std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 1); };
const Make kBlock2 = [] { return std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2); };
const Make kFp4 = [] { return std::make_shared<NVFP4Quantizer>(); };
const Make kIdentity = [] { return std::make_shared<IdentityQuantizer>(); };
Make hybrid(const Make& row, const Make& col, const std::string& source = "original") {
  return [=] { return std::make_shared<HybridQuantizer>(row(), col(), source); };
}

// A custom recipe that gives inputs, weights and gradients what `of` says for their tensor type.
RecipePtr recipe(const std::function<Make(const std::string& tensor)>& of) {
  auto r = std::make_shared<CustomRecipe>();
  auto f = std::make_shared<QFactory>();
  f->name = "test";
  f->call = [of](const RolePtr& role) -> QuantizerLike { return of(role ? role->tensor_type : "input")(); };
  r->qfactory = f;
  return r;
}
RecipePtr all(const Make& make) {
  return recipe([=](const std::string&) { return make; });
}

struct Modules : testing::Test {
  std::unique_ptr<Subject> reference = make_reference_subject();
  Session session{*reference};
  const ArrayPtr x = filled({64, 128}, 1), dy = filled({64, 96}, 2);

  std::unique_ptr<Linear> linear(bool bias = true, LinearSettings s = {}) {
    s.in_features = 128;
    s.out_features = 96;
    s.bias = bias;
    auto m = std::make_unique<Linear>(session, s);
    write_back(session, m->parameter("weight"), filled({96, 128}, 3));
    if (bias) write_back(session, m->parameter("bias"), filled({96}, 4));
    return m;
  }
  StepRecord step(Module& m, const RecipePtr& r, StepOptions o = {}) {
    o.recipe = r;
    return m.step(session, x, dy, o);
  }
};

ArrayPtr output(const StepRecord& r, std::string_view name) {
  for (const NamedArray& a : r.outputs)
    if (a.name == name) return a.array;
  ADD_FAILURE() << "no output " << name;
  return nullptr;
}
const GemmRecord& gemm(const StepRecord& r, std::string_view name) {
  for (const GemmRecord& g : r.gemms)
    if (g.name == name) return g;
  throw std::out_of_range(std::string(name));
}
void expect_same_outputs(const StepRecord& a, const StepRecord& b,
                         std::initializer_list<std::string_view> but = {}) {
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    EXPECT_EQ(a.outputs[i].name, b.outputs[i].name);
    const bool same = equal_bytes(*a.outputs[i].array, *b.outputs[i].array),
               excluded = std::find(but.begin(), but.end(), a.outputs[i].name) != but.end();
    EXPECT_NE(same, excluded) << a.outputs[i].name;
  }
}
// Planes of every GEMM, by name; data and scales alike.
void expect_same_operands(const StepRecord& a, const StepRecord& b) {
  ASSERT_EQ(a.gemms.size(), b.gemms.size());
  for (size_t g = 0; g < a.gemms.size(); ++g) {
    ASSERT_EQ(a.gemms[g].planes.size(), b.gemms[g].planes.size());
    for (size_t i = 0; i < a.gemms[g].planes.size(); ++i)
      EXPECT_EQ(a.gemms[g].planes[i].bytes, b.gemms[g].planes[i].bytes)
          << a.gemms[g].name << " " << a.gemms[g].planes[i].plane.name;
  }
}
// Ones are lost beside 2^24, but not beside each other: every column is 0 in one sum, and 128 in three of 128
// rows each.
ArrayPtr gradient_of_two_sums(Session& session) {
  std::vector<float> column(384 * 96, 0.0f);
  for (size_t c = 0; c < 96; ++c) {
    column[c] = 16777216.0f;
    for (size_t r = 128; r < 256; ++r) column[r * 96 + c] = 1;
    column[256 * 96 + c] = -16777216.0f;
  }
  return cast(session, f32_array({384, 96}, column), DType::bfloat16);
}
void expect_error(ErrorClass want, std::string_view mention, const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const SemanticError& e) {
    EXPECT_EQ(name_of(e.error_class), name_of(want)) << e.what();
    EXPECT_NE(std::string_view(e.what()).find(mention), std::string_view::npos) << e.what();
  }
}

TEST_F(Modules, UnquantizedLinearMultipliesInSequence) {
  const auto m = linear();
  const StepRecord r = step(*m, nullptr);
  ASSERT_EQ(r.gemms.size(), 3u);
  EXPECT_EQ(r.gemms[0].a + " " + r.gemms[0].b, "weight.row input.row");
  EXPECT_EQ(r.gemms[1].a + " " + r.gemms[1].b, "weight.col grad_output.row");
  EXPECT_EQ(r.gemms[2].a + " " + r.gemms[2].b, "input.col grad_output.col");
  const std::vector<float> in = floats(session, x),
                           w = floats(session, std::get<ArrayPtr>(m->parameter("weight").value)),
                           b = floats(session, std::get<ArrayPtr>(m->parameter("bias").value)),
                           g = floats(session, dy);
  const auto rounded = [&](float v) {
    return floats(session, cast(session, f32_array({1}, std::vector<float>{v}), DType::bfloat16))[0];
  };
  float y = 0, dx = 0, dw = 0;
  for (int k = 0; k < 128; ++k) y += in[5 * 128 + k] * w[7 * 128 + k];
  for (int k = 0; k < 96; ++k) dx += g[5 * 96 + k] * w[k * 128 + 9];
  for (int k = 0; k < 64; ++k) dw += g[k * 96 + 7] * in[k * 128 + 9];
  EXPECT_EQ(floats(session, output(r, "output"))[5 * 96 + 7], rounded(y + b[7]));
  EXPECT_EQ(floats(session, output(r, "dgrad"))[5 * 128 + 9], rounded(dx));
  EXPECT_EQ(floats(session, output(r, "weight.grad"))[7 * 128 + 9], rounded(dw));
}

// A second tensor's shape must not matter: leading dimensions are one.
TEST_F(Modules, LeadingDimensionsStay) {
  const auto m = linear();
  const ArrayPtr deep = view(x, {4, 16, 128});
  StepOptions o;
  o.recipe = all(kMx);
  const StepRecord r = m->step(session, deep, view(dy, {4, 16, 96}), o);
  EXPECT_EQ(output(r, "output")->shape, (Dims{4, 16, 96}));
  EXPECT_EQ(output(r, "dgrad")->shape, (Dims{4, 16, 128}));
  EXPECT_EQ(output(r, "weight.grad")->shape, (Dims{96, 128}));
  for (const NamedArray& out : r.outputs) EXPECT_EQ(out.array->dtype, DType::bfloat16) << out.name;
}

TEST_F(Modules, GemmRefusesWhatDoesNotGoTogether) {
  const StoragePtr mx = kMx()->quantize(session, x), cs = kCurrent()->quantize(session, x),
                   blocks = kBlock2()->quantize(session, x);
  GemmOptions o;
  o.name = "fprop", o.a = "weight", o.b = "input";
  const auto times = [&](const Tensorlike& a, const Tensorlike& b) {
    return [&, a, b] { general_gemm(session, a, b, GemmOp::TN, o); };
  };
  expect_error(ErrorClass::runtime_error, "scaling_mode", times(mx, cs));
  expect_error(ErrorClass::runtime_error, "scaling_mode", times(kIdentity()->quantize(session, x), cs));
  expect_error(ErrorClass::runtime_error, "128x128", times(blocks, blocks));
  expect_error(ErrorClass::runtime_error, "dtype", times(x, cast(session, x, DType::float32)));
  const auto e5 = std::make_shared<Float8CurrentScalingQuantizer>(Encoding::e5m2)->quantize(session, x);
  expect_error(ErrorClass::runtime_error, "E5M2", times(e5, e5));
  expect_error(ErrorClass::runtime_error, "sums over", times(x, dy));
  const QuantizerPtr columns = kMx();
  columns->set_usage(false, true);
  expect_error(ErrorClass::runtime_error, "rowwise", times(columns->quantize(session, x), mx));
  const StoragePtr half = hybrid(kMx, kMx)()->quantize(session, x);
  std::dynamic_pointer_cast<HybridStorage>(half)->columnwise_storage = nullptr;
  expect_error(ErrorClass::runtime_error, "columnwise",
               [&] { general_gemm(session, half, mx, GemmOp::NT, o); });
  o.out_quantizer = hybrid(kMx, kMx)();
  expect_error(ErrorClass::not_implemented_error, "HybridQuantizer", times(mx, mx));
}

TEST_F(Modules, BytePlaneIsTurnedWhereNoTransposeIsKept) {
  const StepRecord kept = (session.arch = Arch::sm90, step(*linear(), all(kCurrent))),
                   turned = (session.arch = Arch::sm100, step(*linear(), all(kCurrent)));
  expect_same_operands(kept, turned);
}

TEST_F(Modules, SavedInputKeepsColumnsAlone) {
  const auto m = linear();
  const auto saved = [](const StepRecord& r) { return r.usages.back(); };
  EXPECT_EQ(saved(step(*m, all(kMx))), (NamedUsages{"saved input", {false, true}}));
  EXPECT_TRUE(m->state.quantizer(Mode::forward, 0)->internal);
  EXPECT_FALSE(
      m->state.quantizer(Mode::forward, 2)->internal);  // an output leaves the module: it must be a tensor
  EXPECT_TRUE(m->state.quantizer(Mode::backward, 0)->internal);
  EXPECT_FALSE(m->state.quantizer(Mode::backward, 1)->internal);  // and so does a gradient of the input
  EXPECT_EQ(saved(step(*linear(), all(hybrid(kMx, kMx)))), (NamedUsages{"saved input", {false, true}}));
  // Nothing needs the columns: none are made.
  const auto frozen = linear();
  frozen->parameter("weight").requires_grad = false;
  const StepRecord r = step(*frozen, all(kMx));
  EXPECT_EQ(r.gemms.size(), 2u);
  EXPECT_EQ(r.usages.back().name, "weight");
  StepOptions o;
  o.input_requires_grad = false;
  EXPECT_EQ(step(*linear(), all(kMx), o).usages.front(), (NamedUsages{"weight", {true, false}}));
}

TEST_F(Modules, SavedOriginalEqualsSavedQuantized) {
  for (const Make& q : {kCurrent, kMx, kFp4, hybrid(kMx, kFp4), hybrid(kMx, kFp4, "rowwise_dequantized")}) {
    const bool mixed = q()->class_name() == "HybridQuantizer";
    const auto grads = [&](const std::string& t) {
      return !mixed || t == "input" ? q : t == "weight" ? kMx : hybrid(kMx, kFp4);
    };
    LinearSettings s;
    s.save_original_input = true;
    const auto a = linear(), b = linear(true, s);
    expect_same_outputs(step(*a, recipe(grads)), step(*b, recipe(grads)));
    EXPECT_EQ(b->record.usages.back(), (NamedUsages{"saved input", {false, false}}));  // plain
  }
  LinearSettings s;
  s.save_original_input = true;
  const auto delayed = linear(true, s);
  expect_error(ErrorClass::value_error, "save_original_input",
               [&] { step(*delayed, make_recipe("DelayedScaling")); });
}

TEST_F(Modules, BackwardOverridesAreHybridsWithIdentity) {
  const auto with = [](const char* override_) {
    RecipePtr r = all(kMx);
    r->backward_override = override_;
    return r;
  };
  const auto identity = [](const std::string& source) {
    return recipe([=](const std::string& t) {
      return t == "grad_output" ? kIdentity : hybrid(kMx, kIdentity, source);
    });
  };
  expect_same_outputs(step(*linear(), with("high_precision")), step(*linear(), identity("original")));
  expect_same_outputs(step(*linear(), with("dequantized")), step(*linear(), identity("rowwise_dequantized")));
  // Backward multiplies by no columns of the weight, so that none are made.
  for (const char* override_ : {"high_precision", "dequantized"})
    EXPECT_EQ(step(*linear(), with(override_)).usages.front(), (NamedUsages{"weight", {true, false}}))
        << override_;
  EXPECT_FALSE(equal_bytes(*output(step(*linear(), with("dequantized")), "dgrad"),
                           *output(step(*linear(), with("high_precision")), "dgrad")));
}

TEST_F(Modules, WorkspaceLivesFromMicrobatchToMicrobatch) {
  const auto m = linear();
  StepOptions o;
  const auto events = [&](std::optional<bool> first, bool grad, std::optional<F32Bits> noop = {}) {
    o.is_first_microbatch = first;
    o.grad_enabled = grad;
    o.skip_weight_update = noop;
    std::string out;
    for (const CacheEvent& e : step(*m, all(kMx), o).cache) out += e.what + ";";
    return out;
  };
  EXPECT_EQ(events({}, true), "built;");
  EXPECT_TRUE(m->state.fp8_workspaces.empty());
  EXPECT_EQ(events(true, false), "built and kept;");
  const StoragePtr rows = m->state.fp8_workspaces.at("weight");
  EXPECT_EQ(rows->present(), (Usages{true, false}));
  EXPECT_EQ(events(false, true), "invalid;built and kept;");  // columns are missing
  const StoragePtr both = m->state.fp8_workspaces.at("weight");
  const std::vector<NamedArray> before = snapshot(both);
  write_back(session, m->parameter("weight"), filled({96, 128}, 30));
  EXPECT_EQ(events(false, true), "reused;");
  EXPECT_EQ(events(false, true, F32Bits{0x3F800000}), "update skipped;");
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(equal_bytes(*before[i].array, *snapshot(both)[i].array));
  EXPECT_EQ(events(true, true), "updated;");
  EXPECT_EQ(m->state.fp8_workspaces.at("weight"), both);
  EXPECT_FALSE(equal_bytes(*before[0].array, *snapshot(both)[0].array));
}

TEST_F(Modules, BackwardUsesTheAccumulatorsThatForwardResolved) {
  session.gemm_model = GemmModel::hopper;
  session.arch = Arch::sm90;
  const auto r = std::make_shared<Float8CurrentScaling>();
  const auto m = linear();
  StepOptions o;
  o.recipe = r;
  const Forward f = m->forward(session, x, o);
  r->fp8_gemm_fprop = {true};
  r->fp8_gemm_dgrad = r->fp8_gemm_wgrad = {false};
  f.backward(session, dy);
  EXPECT_NE(gemm(m->record, "fprop").line.find("hopper_fp8_fast"), std::string::npos);
  EXPECT_NE(gemm(m->record, "dgrad").line.find("hopper_fp8_split"), std::string::npos);
  EXPECT_NE(gemm(m->record, "wgrad").line.find("hopper_fp8_split"), std::string::npos);
  expect_error(ErrorClass::runtime_error, "its backward ran before", [&] { f.backward(session, dy); });
}

TEST_F(Modules, GroupsAreSetAtThePointOfUse) {
  const auto group = [](std::string name, F32Bits amax) {
    auto g = std::make_shared<ProcessGroup>();
    g->name = std::move(name);
    g->all_reduce_max = [amax](std::span<F32Bits> v) {
      for (F32Bits& bits : v) bits = std::max(bits, amax);
    };
    return g;
  };
  const GroupPtr g1 = group("tp1", 0x42000000), g2 = group("tp2", 0x44000000);  // 32 and 512 elsewhere
  for (const ParallelMode mode : {ParallelMode::column, ParallelMode::row}) {
    LinearSettings s;
    s.parallel_mode = mode;
    s.sequence_parallel = true;
    s.save_original_input = true;  // the input is quantized again in backward
    const auto m = linear(true, s), alone = linear(true, s);
    StepOptions o;
    o.recipe = all(kCurrent);
    o.tp_group = g1;
    const StepRecord isolated = alone->step(session, x, dy, o);
    session.collectives.clear();
    const Forward first = m->forward(session, x, o);
    o.tp_group = g2;
    const Forward second = m->forward(session, x, o);
    second.backward(session, dy);
    const Tensorlike dgrad = first.backward(session, dy);
    std::string trace;
    for (const Collective& c : session.collectives) trace += c.who + ":" + c.group + " ";
    EXPECT_EQ(trace, mode == ParallelMode::column ? "input:tp1 input:tp2 input:tp2 input:tp1 "
                                                  : "grad_output:tp2 grad_output:tp1 ");
    EXPECT_TRUE(equal_bytes(*std::get<ArrayPtr>(dgrad), *output(isolated, "dgrad")));
    EXPECT_TRUE(equal_bytes(*m->parameter("weight").grad, *output(isolated, "weight.grad")));
  }
}

TEST_F(Modules, QuantizedWeightIsRefreshedInBothDirections) {
  for (const Make& q : {kCurrent, kMx, kFp4, hybrid(kMx, kFp4, "rowwise_dequantized")}) {
    OpsLinearSettings s;
    s.in_features = 128, s.out_features = 96;
    OpsLinear m(session, s);
    write_back(session, m.parameter("weight"), filled({96, 128}, 3));
    const RecipePtr r = all(q);
    m.quantize_parameters(session, r, true);
    StepOptions train, infer;
    train.recipe = infer.recipe = r;
    infer.grad_enabled = false;
    for (uint64_t seed = 40; seed < 43; ++seed) {
      if (q()->class_name() != "HybridQuantizer") m.step(session, x, dy, train);
      m.step(session, x, dy, infer);
      const ArrayPtr master = filled({96, 128}, seed, FillKind::normal, DType::float32);
      write_back(session, m.parameter("weight"), master);
      EXPECT_EQ(stale_buffer(session, m.parameter("weight"), master).value_or("none"), "none");
    }
    // The bug that this guards against: evaluation's usages reach the weight's own quantizer.
    const StoragePtr weight = std::get<StoragePtr>(m.parameter("weight").value);
    weight->quantizer->set_usage(true, false);
    const ArrayPtr master = filled({96, 128}, 50);
    weight->quantizer->update_quantized(session, master, *weight);
    weight->quantizer->set_usage(true, true);
    if (q()->class_name() == "Float8CurrentScalingQuantizer")
      continue;  // one byte plane serves both directions
    EXPECT_NE(stale_buffer(session, m.parameter("weight"), master).value_or("none"), "none");
  }
}

TEST_F(Modules, PolicyDecidesWhatAWeightBuiltWithoutGradientsBecomes) {
  for (const UsagePolicy policy : {UsagePolicy::assign, UsagePolicy::merge}) {
    OpsLinearSettings s;
    s.in_features = 128, s.out_features = 96, s.usage_policy = policy;
    OpsLinear m(session, s);
    const RecipePtr r = all(kMx);
    m.quantize_parameters(session, r, false);
    m.state.reset_recipe_state(session, nullptr);  // a fresh quantizer, as a new recipe gives
    StepOptions infer;
    infer.recipe = r;
    infer.grad_enabled = false;
    m.forward(session, x, infer);
    write_back(session, m.parameter("weight"), filled({96, 128}, 3));
    StepOptions train;
    train.recipe = r;
    const Forward f = m.forward(session, x, train);
    if (policy == UsagePolicy::assign)
      expect_error(ErrorClass::runtime_error, "column", [&] { f.backward(session, dy); });
    else EXPECT_NO_THROW(f.backward(session, dy));
  }
}

TEST_F(Modules, BoundariesAreQuantizedOnRequest) {
  StepOptions o;
  o.fp8_output = o.fp8_grad = true;
  o.recipe = make_recipe("Float8CurrentScaling");
  const auto m = linear();
  const Forward f = m->forward(session, x, o);
  EXPECT_EQ(std::get<StoragePtr>(f.out)->class_name(), "Float8Tensor");
  const Tensorlike dgrad = f.backward(session, dy);
  EXPECT_EQ(std::dynamic_pointer_cast<Float8Storage>(std::get<StoragePtr>(dgrad))->fp8_dtype, Encoding::e5m2);
  o.recipe = all(hybrid(kMx, kMx));
  o.fp8_output = true;
  const auto mixed = linear();
  expect_error(ErrorClass::not_implemented_error, "HybridQuantizer", [&] { mixed->forward(session, x, o); });
  EXPECT_FALSE(session.warnings.empty());  // the consumer of the output is not configured
}

TEST_F(Modules, NeighboursOfAnOperationQuantizeItsResultsByDelayedScalingAlone) {
  const Make kDelayed = [] {
    return std::make_shared<Float8Quantizer>(f32_array({1}, std::vector{3.0f}), zeros({1}, DType::float32),
                                             Encoding::e4m3);
  };
  const auto operation = [&](bool bias, DType dtype = DType::bfloat16) {
    OpsLinearSettings s;
    s.in_features = 128, s.out_features = 96, s.bias = bias, s.params_dtype = dtype;
    auto m = std::make_unique<OpsLinear>(session, s);
    write_back(session, m->parameter("weight"), filled({96, 128}, 3));
    if (bias) write_back(session, m->parameter("bias"), filled({96}, 4));
    return m;
  };
  StepOptions o;
  o.recipe = make_recipe("Float8CurrentScaling");
  for (const Make& q : {kCurrent, kMx, kBlock1, kFp4, kIdentity, hybrid(kMx, kMx)}) {
    const auto m = operation(false);
    m->next_input_quantizer = q();
    expect_error(ErrorClass::runtime_error, q()->class_name(), [&] { m->forward(session, x, o); });
    m->next_input_quantizer = nullptr;
    m->previous_grad_output_quantizer = q();
    const Forward f = m->forward(session, x, o);  // the grad input is made in backward
    expect_error(ErrorClass::runtime_error, "previous operation", [&] { f.backward(session, dy); });
    // Inert: without quantization, without a grad input to make, and in a plain backward.
    m->next_input_quantizer = q();
    EXPECT_NO_THROW(step(*m, nullptr));
    m->next_input_quantizer = nullptr;
    StepOptions first = o;
    first.input_requires_grad = false;
    EXPECT_NO_THROW(m->step(session, x, dy, first));
    const RecipePtr kept = make_recipe("Float8CurrentScaling");
    kept->backward_override = "dequantized";
    EXPECT_NO_THROW(step(*m, kept));
  }
  const ArrayPtr in = filled({384, 128}, 7), tall = gradient_of_two_sums(session);
  for (const bool bias : {false, true}) {
    const auto m = operation(bias);
    o.recipe = make_recipe("MXFP8BlockScaling");
    const StepRecord plain = m->step(session, in, tall, o);
    m->next_input_quantizer = kDelayed();
    m->previous_grad_output_quantizer = kDelayed();
    const Forward f = m->forward(session, in, o);
    EXPECT_EQ(std::get<StoragePtr>(f.out)->class_name(), "Float8Tensor");
    EXPECT_TRUE(m->next_input_quantizer->usages() == (Usages{true, false}));
    EXPECT_EQ(std::get<StoragePtr>(f.backward(session, tall))->class_name(), "Float8Tensor");
    // Gradients of parameters do not know of it; the bias' is a plain sum either way.
    expect_same_outputs(m->record, plain, {"output", "dgrad"});
  }
  // No kernel adds a bias to a binary32 result: then the bias is the neighbour, and quantizes nothing.
  const auto wide = operation(true, DType::float32);
  wide->next_input_quantizer = kMx();
  EXPECT_NO_THROW(step(*wide, o.recipe));
}

TEST_F(Modules, AutocastDecidesTheActivationDtype) {
  StepOptions o;
  o.recipe = all(kMx);
  const StepRecord want = linear()->step(session, x, dy, o);
  o.autocast_dtype = DType::bfloat16;
  expect_same_outputs(linear()->step(session, cast(session, x, DType::float32), dy, o), want);
}

TEST_F(Modules, RecipeMustFitAQuantizedWeight) {
  const auto m = linear();
  m->quantize_parameters(session, make_recipe("MXFP8BlockScaling"), true);
  EXPECT_NO_THROW(step(*m, make_recipe("MXFP8BlockScaling")));
  expect_error(ErrorClass::runtime_error, "Recipe mismatch",
               [&] { step(*m, make_recipe("Float8CurrentScaling")); });
}

TEST_F(Modules, FusedBiasGradientSumsChunks) {
  // E13: only MXFP8 and delayed scaling sum within their kernel.
  const ArrayPtr tall = gradient_of_two_sums(session), in = filled({384, 128}, 7);
  StepOptions fused, plainly;
  plainly.fusions.bias_gradient = false;
  const auto bias_grad = [&](const Make& q, const StepOptions& o) {
    const auto m = linear();
    StepOptions with = o;
    with.recipe = all(q);
    return output(m->step(session, in, tall, with), "bias.grad");
  };
  const auto is = [&](const ArrayPtr& grad, float v) {
    return floats(session, grad) == std::vector<float>(96, v);
  };
  EXPECT_TRUE(is(bias_grad(kMx, fused), 128));
  EXPECT_TRUE(is(bias_grad(kMx, plainly), 0));
  EXPECT_TRUE(is(bias_grad(hybrid(kMx, kMx), fused), 0));
  EXPECT_TRUE(is(bias_grad(kCurrent, fused), 0));
}

TEST_F(Modules, ActivationGivesCurrentScalingItsAmaxUnrounded) {
  LayerNormMLPSettings s;
  s.hidden_size = 128, s.ffn_hidden_size = 96, s.activation = Activation::srelu;
  const ArrayPtr grad = filled({64, 128}, 8);
  const auto run = [&](const Make& q, Fusions fusions) {
    LayerNormMLP m(session, s);
    write_back(session, m.parameter("fc1_weight"), filled({96, 128}, 3));
    write_back(session, m.parameter("fc2_weight"), filled({128, 96}, 5));
    StepOptions o;
    o.recipe = all(q);
    o.fusions = fusions;
    return m.step(session, x, grad, o);
  };
  Fusions none{false, false, true}, no_activation{true, false, true};
  const StepRecord fused = run(kCurrent, {}), half = run(kCurrent, no_activation),
                   unfused = run(kCurrent, none), mixed = run(hybrid(kCurrent, kCurrent), {});
  EXPECT_NE(gemm(fused, "fc2.fprop").planes[2].bytes,
            gemm(unfused, "fc2.fprop").planes[2].bytes);  // b.scale_inv: E1a
  expect_same_operands(half, unfused);                    // current scaling after a norm rounds first
  expect_same_outputs(mixed, unfused);
  expect_same_operands(run(kMx, {}), run(kMx, none));
  // The gradient of fc1's output: fused for a built-in recipe, for a custom one only without a bias.
  const auto scale = [](const StepRecord& r) { return gemm(r, "fc1.dgrad").planes[2].bytes; };
  EXPECT_EQ(scale(fused), scale(half));
  s.bias = false;
  EXPECT_NE(scale(run(kCurrent, {})), scale(run(kCurrent, no_activation)));
}

TEST_F(Modules, DelayedScalingQuantizesUnroundedNorms) {
  LayerNormLinearSettings s;
  s.linear.in_features = 128, s.linear.out_features = 96;
  const auto run = [&](bool fuse) {
    LayerNormLinear m(session, s);
    write_back(session, m.parameter("weight"), filled({96, 128}, 3));
    StepOptions o;
    o.recipe = make_recipe("DelayedScaling");
    o.fusions.norm = fuse;
    return m.step(session, x, dy, o);
  };
  EXPECT_NE(gemm(run(true), "fprop").planes[3].bytes,
            gemm(run(false), "fprop").planes[3].bytes);  // b.data: E1b
}

TEST_F(Modules, DelayedScalesFollowTheStep) {
  const auto m = linear();
  const RecipePtr r = make_recipe("DelayedScaling");
  const StepRecord first = step(*m, r), second = step(*m, r);
  // The first step quantizes with scale 1; the second with what the first one's amaxes ask for, in both
  // directions.
  for (const std::string_view name : {"fprop", "dgrad", "wgrad"})
    for (const size_t plane : {size_t{0}, size_t{2}})
      EXPECT_NE(gemm(first, name).planes[plane].bytes, gemm(second, name).planes[plane].bytes)
          << name << plane;  // scale_inv
  expect_same_operands(step(*m, r), second);
}

TEST_F(Modules, EveryRecipeRunsInEveryModule) {
  const ArrayPtr square = filled({128, 128}, 11), grad = filled({128, 128}, 12);
  for (const char* name : {"DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling",
                           "Float8BlockScaling", "NVFP4BlockScaling"})
    for (const bool quantized_parameters : {false, true}) {
      SCOPED_TRACE(name);
      LinearSettings l;
      l.in_features = l.out_features = 128;
      LayerNormMLPSettings mlp;
      mlp.hidden_size = 128, mlp.ffn_hidden_size = 128, mlp.activation = Activation::swiglu;
      GroupedLinearSettings g;
      g.num_gemms = 2, g.in_features = g.out_features = 128;
      Linear a(session, l);
      LayerNormLinear b(session, {l, {Norm::RMSNorm, 1e-5f, true}});
      LayerNormMLP c(session, mlp);
      GroupedLinear d(session, g);
      OpsLinear e(session, {"", 128, 128, true, DType::bfloat16, UsagePolicy::assign});
      OpsGroupedLinear f(session, {"", 2, 128, 128, true, DType::bfloat16, UsagePolicy::assign, false});
      d.m_splits = f.m_splits = {128, 0};
      for (Module* m : std::initializer_list<Module*>{&a, &b, &c, &d, &e, &f}) {
        SCOPED_TRACE(m->kind());
        for (size_t i = 0; i < m->parameters.size(); ++i)
          write_back(session, m->parameters[i], filled(shape_of(m->parameters[i].value), 70 + i));
        const RecipePtr r = make_recipe(name);
        if (quantized_parameters) m->quantize_parameters(session, r, true);
        StepOptions o;
        o.recipe = r;
        const StepRecord record = m->step(session, square, grad, o);
        EXPECT_EQ(record.gemms.size() % 3, 0u);
        EXPECT_EQ(record.outputs.size(), 2 + m->parameters.size());
        for (const NamedArray& out : record.outputs)
          for (const float v : floats(session, out.array)) ASSERT_TRUE(std::isfinite(v)) << out.name;
        // The forward roles of the slots that are used have quantizers.
        ASSERT_TRUE(record.forward_roles);
        EXPECT_EQ(record.forward_roles->size(), record.forward_quantizers.size());
        o.recipe = nullptr;
        if (quantized_parameters) continue;
        EXPECT_EQ(m->step(session, square, grad, o).gemms.size(), record.gemms.size());
      }
    }
}

TEST_F(Modules, GroupedLinearIsItsExperts) {
  for (const Make& q : {kCurrent, kMx, hybrid(kMx, kMx), kIdentity}) {
    SCOPED_TRACE(q()->class_name());
    GroupedLinearSettings s;
    s.num_gemms = 3, s.in_features = 128, s.out_features = 96;
    GroupedLinear m(session, s);
    m.m_splits = {32, 0, 64};
    for (size_t i = 0; i < 3; ++i) write_back(session, m.parameters[i], filled({96, 128}, 60 + i));
    const ArrayPtr in = filled({96, 128}, 9), grad = filled({96, 96}, 10);
    StepOptions o;
    o.recipe = all(q);
    const StepRecord r = m.step(session, in, grad, o);
    int64_t row = 0;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t rows = m.m_splits[i];
      const auto expert = linear();
      write_back(session, expert->parameter("weight"), filled({96, 128}, 60 + i));
      write_back(session, expert->parameter("bias"), zeros({96}, DType::bfloat16));
      const StepRecord e = expert->step(session, contiguous(slice(in, 0, row, row + rows)),
                                        contiguous(slice(grad, 0, row, row + rows)), o);
      EXPECT_TRUE(
          equal_bytes(*output(e, "output"), *contiguous(slice(output(r, "output"), 0, row, row + rows))))
          << i;
      EXPECT_TRUE(
          equal_bytes(*output(e, "dgrad"), *contiguous(slice(output(r, "dgrad"), 0, row, row + rows))))
          << i;
      EXPECT_TRUE(equal_bytes(*output(e, "weight.grad"), *output(r, "weight" + std::to_string(i) + ".grad")))
          << i;
      EXPECT_TRUE(equal_bytes(*output(e, "bias.grad"), *output(r, "bias" + std::to_string(i) + ".grad")))
          << i;
      row += rows;
    }
    m.m_splits = {32, 0, 65};
    expect_error(ErrorClass::runtime_error, "96 rows", [&] { m.forward(session, in, o); });
  }
}

TEST_F(Modules, GroupedLinearSavesAsLinearDoes) {
  for (const char* override_ : {"", "high_precision", "dequantized"})
    for (const bool save_original : {false, true}) {
      SCOPED_TRACE(override_);
      const RecipePtr r = all(kMx);
      if (*override_) r->backward_override = override_;
      GroupedLinearSettings s;
      s.in_features = 128, s.out_features = 96, s.save_original_input = save_original;
      GroupedLinear m(session, s);
      m.m_splits = {64};
      write_back(session, m.parameters[0], filled({96, 128}, 3));
      write_back(session, m.parameters[1], filled({96}, 4));
      StepOptions o;
      o.recipe = r;
      const StepRecord grouped = m.step(session, x, dy, o);
      LinearSettings l;
      l.save_original_input = save_original;
      const StepRecord one = step(*linear(true, l), r);
      for (size_t i = 0; i < one.outputs.size(); ++i)
        EXPECT_TRUE(equal_bytes(*one.outputs[i].array, *grouped.outputs[i].array)) << one.outputs[i].name;
    }
}

TEST_F(Modules, AccumulatesIntoMainGrad) {
  const auto once = linear(false), twice = linear(false);
  Parameter& w = twice->parameter("weight");
  w.main_grad = zeros({96, 128}, DType::float32);
  step(*twice, all(kMx));
  const ArrayPtr first = clone(w.main_grad);
  EXPECT_TRUE(
      equal_bytes(*cast(session, first, DType::bfloat16), *output(step(*once, all(kMx)), "weight.grad")));
  step(*twice, all(kMx));
  EXPECT_TRUE(equal_bytes(*w.main_grad, *add(session, first, first)));
  EXPECT_EQ(w.grad, nullptr);
}

// ---- ranks --------------------------------------------------------------------------------------

// What each of two ranks of a tensor-parallel Linear 128 -> 128 has after a step on x [64, 128] (shards of
// its rows or of its columns).
std::vector<StepRecord> parallel_step(Subject& subject, ParallelMode mode, bool sequence_parallel,
                                      const RecipePtr& r, const ArrayPtr& x, const ArrayPtr& dy) {
  const auto half = [](const ArrayPtr& a, size_t dim, int rank) {
    return contiguous(slice(a, dim, rank * a->shape[dim] / 2, (rank + 1) * a->shape[dim] / 2));
  };
  std::vector<StepRecord> records(2);
  run_ranks(2, "tp", [&](int rank, const GroupPtr& group) {
    Session session(subject);
    const bool column = mode == ParallelMode::column;
    LinearSettings s;
    s.in_features = column ? 128 : 64;
    s.out_features = column ? 64 : 128;
    s.parallel_mode = mode;
    s.sequence_parallel = sequence_parallel;
    Linear m(session, s);
    write_back(session, m.parameter("weight"),
               half(filled({128, 128}, 3, FillKind::exact_sums), column ? 0 : 1, rank));
    if (!column) write_back(session, m.parameter("bias"), filled({128}, 4));
    StepOptions o;
    o.recipe = r;
    o.tp_group = group;
    const ArrayPtr in = column ? (sequence_parallel ? half(x, 0, rank) : x) : half(x, 1, rank);
    const ArrayPtr grad = column ? half(dy, 1, rank) : sequence_parallel ? half(dy, 0, rank) : dy;
    records[static_cast<size_t>(rank)] = m.step(session, in, grad, o);
  });
  return records;
}

TEST_F(Modules, ShardsTogetherAreTheWhole) {
  // Blocks of 32 do not cross shards, integers have no order of summation: every result of two ranks is a
  // part of the result of one.
  const ArrayPtr in = filled({64, 128}, 1, FillKind::exact_sums),
                 grad = filled({64, 128}, 2, FillKind::exact_sums);
  LinearSettings s;
  s.in_features = s.out_features = 128;
  Linear whole(session, s);
  write_back(session, whole.parameter("weight"), filled({128, 128}, 3, FillKind::exact_sums));
  StepOptions o;
  o.recipe = all(kMx);
  const StepRecord one = whole.step(session, in, grad, o);
  for (const bool sequence_parallel : {false, true}) {
    const std::vector<StepRecord> column =
        parallel_step(*reference, ParallelMode::column, sequence_parallel, o.recipe, in, grad);
    const std::vector<StepRecord> row =
        parallel_step(*reference, ParallelMode::row, sequence_parallel, o.recipe, in, grad);
    for (int rank = 0; rank < 2; ++rank) {
      const StepRecord& c = column[static_cast<size_t>(rank)];
      EXPECT_TRUE(equal_bytes(*output(c, "output"),
                              *contiguous(slice(output(one, "output"), 1, rank * 64, rank * 64 + 64))));
      EXPECT_TRUE(equal_bytes(*output(c, "weight.grad"),
                              *contiguous(slice(output(one, "weight.grad"), 0, rank * 64, rank * 64 + 64))));
      EXPECT_TRUE(equal_bytes(*output(row[static_cast<size_t>(rank)], "weight.grad"),
                              *contiguous(slice(output(one, "weight.grad"), 1, rank * 64, rank * 64 + 64))));
      EXPECT_EQ(gemm(row[static_cast<size_t>(rank)], "fprop").line.find("bias="), std::string::npos);
      // Partial results are added in rank order and rounded, then scattered; a bias comes last.
      const auto sum = [&](const std::vector<StepRecord>& r, std::string_view name) {
        const ArrayPtr whole_sum =
            cast(session, add(session, gemm(r[0], name).out, gemm(r[1], name).out), DType::bfloat16);
        return sequence_parallel ? contiguous(slice(whole_sum, 0, rank * 32, rank * 32 + 32)) : whole_sum;
      };
      EXPECT_TRUE(equal_bytes(*output(c, "dgrad"), *sum(column, "dgrad")));
      const std::vector<float> y = floats(session, sum(row, "fprop")), b = floats(session, filled({128}, 4)),
                               got = floats(session, output(row[static_cast<size_t>(rank)], "output"));
      std::vector<float> want(y.size());
      for (size_t i = 0; i < y.size(); ++i) want[i] = y[i] + b[i % 128];
      EXPECT_EQ(got, floats(session, cast(session, f32_array({static_cast<int64_t>(y.size())}, want),
                                          DType::bfloat16)));
    }
    std::string trace;
    for (const Collective& c : column[0].collectives) trace += c.what + "(" + c.who + ") ";
    // Codes travel, scales before data: rows in forward, columns in backward, before dgrad's GEMM.
    EXPECT_EQ(trace, sequence_parallel ? "all_gather(input) all_gather(input) all_gather(input) "
                                         "all_gather(input) reduce_scatter(dgrad) "
                                       : "all_reduce(dgrad) ");
    trace.clear();
    for (const Collective& c : row[0].collectives) trace += c.what + "(" + c.who + ") ";
    EXPECT_EQ(trace, sequence_parallel ? "reduce_scatter(output) all_gather(grad_output) "
                                         "all_gather(grad_output) all_gather(grad_output) "
                                         "all_gather(grad_output) "
                                       : "all_reduce(output) ");
  }
}

// Behind a norm an input that backward gathers loses its rows in the block formats alone: a hybrid gathers
// them.
TEST_F(Modules, AHybridBehindANormKeepsBothDirections) {
  const auto kept = [&](const Make& q) {
    std::vector<NamedUsages> seen(2);
    run_ranks(2, "tp", [&](int rank, const GroupPtr& group) {
      Session own(*reference);
      LayerNormLinearSettings s;
      s.linear.in_features = 128, s.linear.out_features = 64;
      s.linear.parallel_mode = ParallelMode::column;
      s.linear.sequence_parallel = true;
      LayerNormLinear m(own, s);
      StepOptions o;
      o.recipe = all(q);
      o.tp_group = group;
      seen[static_cast<size_t>(rank)] =
          m.step(own, filled({32, 128}, 1), filled({64, 64}, 2), o).usages.back();
    });
    EXPECT_EQ(seen[0], seen[1]);
    return seen[0];
  };
  EXPECT_EQ(kept(kMx), (NamedUsages{"saved input", {false, true}}));
  EXPECT_EQ(kept(hybrid(kMx, kMx)), (NamedUsages{"saved input", {true, true}}));
}

TEST_F(Modules, HybridEqualsVanillaOnTheSameRanks) {
  ArrayPtr outlier = filled({64, 128}, 1);
  const ArrayPtr grad = filled({64, 128}, 2);
  const uint16_t thousand = 0x447A;  // bfloat16, in the last rank's rows and columns
  std::memcpy(outlier->bytes().data() + (63 * 128 + 127) * 2, &thousand, 2);
  const uint16_t over = 0x43E1;  // 450, whose block has another scale once it is rounded to 448
  std::memcpy(outlier->bytes().data(), &over, 2);
  for (const ParallelMode mode : {ParallelMode::column, ParallelMode::row})
    for (const bool sequence_parallel : {false, true})
      for (const Make& q : {kCurrent, kMx, kIdentity}) {
        const std::vector<StepRecord> vanilla =
            parallel_step(*reference, mode, sequence_parallel, all(q), outlier, grad);
        const std::vector<StepRecord> mixed =
            parallel_step(*reference, mode, sequence_parallel,
                          recipe([&](const std::string& t) { return t == "grad_output" ? q : hybrid(q, q); }),
                          outlier, grad);
        for (size_t rank = 0; rank < 2; ++rank) expect_same_outputs(vanilla[rank], mixed[rank]);
        if (mode != ParallelMode::column || !sequence_parallel) continue;
        if (q()->class_name() == "MXFP8Quantizer") {  // a hybrid's shard was quantized before it was gathered
          EXPECT_NE(gemm(vanilla[0], "fprop").planes[2].bytes, gemm(mixed[0], "fprop").planes[2].bytes);
        }
        if (q()->class_name() != "Float8CurrentScalingQuantizer") continue;
        EXPECT_EQ(gemm(vanilla[0], "fprop").planes[2].bytes,
                  gemm(vanilla[1], "fprop").planes[2].bytes);  // the input's scale_inv is the group's
        std::string trace;
        for (const Collective& c : vanilla[0].collectives) trace += c.what + "(" + c.who + ") ";
        EXPECT_EQ(trace, "all_reduce_max(input) all_gather(input) all_gather(input) reduce_scatter(dgrad) ");
        EXPECT_FALSE(mixed[0].warnings.empty());
      }
}

TEST_F(Modules, ShardKeepsTheDirectionThatCanBeGathered) {
  const auto saved = [&](const Make& weight, const Make& input, const Make& grad) {
    const RecipePtr r = recipe([=](const std::string& t) {
      return t == "weight" ? weight : t == "grad_output" ? grad : input;
    });
    return parallel_step(*reference, ParallelMode::column, true, r, filled({64, 128}, 1),
                         filled({64, 128}, 2))[0]
        .usages.back()
        .usages;
  };
  EXPECT_EQ(saved(hybrid(kMx, kFp4), hybrid(kMx, kFp4), kFp4),
            (Usages{true, false}));  // columns of NVFP4 alone cannot be dequantized
  EXPECT_EQ(saved(hybrid(kMx, kMx), hybrid(kMx, kMx), kMx), (Usages{false, true}));
}

TEST(Ranks, OneThatFailsFreesTheOthers) {
  EXPECT_THROW(run_ranks(3, "tp",
                         [](int rank, const GroupPtr& group) {
                           if (rank == 1) throw SemanticError(ErrorClass::value_error, "rank 1");
                           group->all_gather(zeros({1}, DType::float32));
                         }),
               SemanticError);
}

// ---- norms, activations, sums -------------------------------------------------------------------

TEST_F(Modules, NormsOfARowByHand) {
  const ArrayPtr row = f32_array({1, 4}, std::vector<float>{1, 2, 3, 6}),
                 gamma = f32_array({4}, std::vector<float>{1, 1, 2, -1}),
                 beta = f32_array({4}, std::vector<float>{0, 0.5f, 0, 0});
  NormSettings s;
  s.eps = 0.5f;  // variance 3.5 makes rsigma 1/2
  EXPECT_EQ(floats(session, norm_forward(session, s, row, gamma, beta).out),
            (std::vector<float>{-1, 0, 0, -1.5f}));
  s.zero_centered_gamma = true;
  EXPECT_EQ(floats(session, norm_forward(session, s, row, gamma, beta).out),
            (std::vector<float>{-2, -0.5f, 0, 0}));
  s = {Norm::RMSNorm, 3.5f, false};  // mean of squares 12.5 makes rsigma 1/4
  EXPECT_EQ(floats(session, norm_forward(session, s, row, gamma, nullptr).out),
            (std::vector<float>{0.25f, 0.5f, 1.5f, -1.5f}));
}

// Backward against the slope of sum(out * d) at every element.
void expect_gradient(Session& session, const ArrayPtr& x, const ArrayPtr& d,
                     const std::function<ArrayPtr(const ArrayPtr&)>& f, const ArrayPtr& got) {
  const std::vector<float> at = floats(session, x), weights = floats(session, d),
                           gradient = floats(session, got);
  const auto value = [&](std::vector<float> v) {
    const std::vector<float> out = floats(session, f(f32_array(x->shape, v)));
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += static_cast<double>(out[i]) * weights[i];
    return sum;
  };
  for (size_t i = 0; i < at.size(); ++i) {
    std::vector<float> up = at, down = at;
    up[i] += 0.0078125f, down[i] -= 0.0078125f;
    EXPECT_NEAR((value(up) - value(down)) / 0.015625, gradient[i], 2e-3 * (1 + std::fabs(gradient[i]))) << i;
  }
}

TEST_F(Modules, NormBackwardIsTheSlope) {
  const ArrayPtr in = filled({3, 8}, 20, FillKind::normal, DType::float32),
                 d = filled({3, 8}, 21, FillKind::normal, DType::float32),
                 gamma = filled({8}, 22, FillKind::normal, DType::float32),
                 beta = filled({8}, 23, FillKind::normal, DType::float32);
  for (const Norm norm : {Norm::LayerNorm, Norm::RMSNorm}) {
    const NormSettings s{norm, 1e-3f, norm == Norm::RMSNorm};
    const ArrayPtr shift = norm == Norm::LayerNorm ? beta : nullptr;
    const NormBackward back =
        norm_backward(session, s, d, in, gamma, norm_forward(session, s, in, gamma, shift));
    expect_gradient(
        session, in, d, [&](const ArrayPtr& v) { return norm_forward(session, s, v, gamma, shift).out; },
        back.dx);
    expect_gradient(
        session, gamma, d, [&](const ArrayPtr& v) { return norm_forward(session, s, in, v, shift).out; },
        back.dgamma);
    if (shift)
      expect_gradient(
          session, beta, d, [&](const ArrayPtr& v) { return norm_forward(session, s, in, gamma, v).out; },
          back.dbeta);
    else EXPECT_EQ(back.dbeta, nullptr);
  }
}

TEST_F(Modules, ActivationBackwardIsTheSlope) {
  const ArrayPtr in = filled({2, 16}, 24, FillKind::normal, DType::float32);
  for (const std::string_view name :
       {"gelu", "qgelu", "relu", "srelu", "silu", "glu", "geglu", "qgeglu", "reglu", "sreglu", "swiglu"}) {
    SCOPED_TRACE(name);
    const Activation a = *activation_named(name);
    EXPECT_EQ(name_of(a), name);
    const ArrayPtr d = filled({2, is_gated(a) ? 8 : 16}, 25, FillKind::normal, DType::float32);
    EXPECT_EQ(activation_forward(session, a, in)->shape, d->shape);
    expect_gradient(
        session, in, d, [&](const ArrayPtr& v) { return activation_forward(session, a, v); },
        activation_backward(session, a, d, in));
  }
  const ArrayPtr points = f32_array({1, 3}, std::vector<float>{-1, 0, 2});
  EXPECT_NEAR(floats(session, activation_forward(session, Activation::gelu, points))[2], 1.9545977, 1e-6);
  EXPECT_NEAR(floats(session, activation_forward(session, Activation::silu, points))[0], -0.2689414, 1e-6);
  EXPECT_EQ(floats(session, activation_forward(session, Activation::srelu, points)),
            (std::vector<float>{0, 0, 4}));
}

TEST_F(Modules, RowSumsDifferInOrderAlone) {
  const ArrayPtr wide = filled({300, 4}, 26, FillKind::wide, DType::float32),
                 integers = filled({300, 4}, 27, FillKind::exact_sums, DType::float32);
  const auto sum = [&](const ArrayPtr& a, RowSum order) {
    return floats(session, sum_rows(session, a, order));
  };
  EXPECT_EQ(sum(integers, RowSum::plain), sum(integers, RowSum::chunks));
  EXPECT_EQ(sum(integers, RowSum::plain), sum(integers, RowSum::chunks_rowwise_only));
  EXPECT_NE(sum(wide, RowSum::plain), sum(wide, RowSum::chunks));
  EXPECT_NE(sum(wide, RowSum::chunks), sum(wide, RowSum::chunks_rowwise_only));
  EXPECT_NE(sum(wide, RowSum::chunks), floats(session, sum_rows(session, wide, RowSum::chunks, 64)));
  EXPECT_EQ(sum(integers, RowSum::plain)[0], [&] {
    float total = 0;
    const std::vector<float> v = floats(session, integers);
    for (size_t r = 0; r < 300; ++r) total += v[r * 4];
    return total;
  }());
}

}  // namespace
}  // namespace assay::training
