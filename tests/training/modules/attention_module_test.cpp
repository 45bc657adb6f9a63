#include "training/modules/attention_module.h"

#include <gtest/gtest.h>

#include "reference/subject.h"
#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/kit/modules.h"
#include "training/kit/records.h"

namespace assay::training {

namespace {

constexpr int64_t kHeads = 4, kDepth = 32, kHidden = 64, kTokens = 16;

AttentionModuleSettings settings_of(int64_t batch, bool cross = false) {
  AttentionModuleSettings s;
  s.name = "m";
  s.hidden_size = kHidden;
  s.heads = kHeads;
  s.head_size = kDepth;
  s.batch = batch;
  s.cross = cross;
  s.softmax_scale = 0x3B000000;  // 2^-9: probabilities that differ
  return s;
}

// The first `count` rows moved behind the last one.
ArrayPtr rows_moved(const ArrayPtr& x, int64_t count) {
  return concatenate(std::vector{clone(slice(x, 0, count, x->shape[0])), clone(slice(x, 0, 0, count))});
}
ArrayPtr columns_moved(const ArrayPtr& x, int64_t count) {
  return contiguous(transpose(rows_moved(contiguous(transpose(x, 0, 1)), count), 0, 1));
}
ArrayPtr& plain_of(AttentionModule& m, const char* name) {
  return std::get<ArrayPtr>(m.parameter(name).value);
}

struct AttentionModules : testing::Test {
  std::unique_ptr<Subject> subject = make_reference_subject();

  Session exact() {
    Session session(*subject);
    session.gemm_model = GemmModel::exact;  // no order of sums: heads may change places
    return session;
  }
  static void fill(Session& session, AttentionModule& m) {
    uint64_t seed = 1;
    for (Parameter& p : m.parameters)
      write_back(session, p, drawn(shape_of(p.value), DType::float32, seed++));
  }
};

StepOptions under(const RecipePtr& recipe) {
  StepOptions options;
  options.recipe = recipe;
  return options;
}

}  // namespace

// With every head's weights at the place of the next one, a module in 16 bits gives the same output and the
// same gradients, those of the weights at the moved places. Q, K and V of a head must therefore come out of
// the rows that the layout h3d says, and go back there.
TEST_F(AttentionModules, HeadsMayChangePlaces) {
  Session one = exact(), other = exact();
  AttentionModule a(one, settings_of(1)), b(other, settings_of(1));
  fill(one, a);
  fill(other, b);
  plain_of(b, "qkv_weight") = rows_moved(plain_of(a, "qkv_weight"), 3 * kDepth);
  plain_of(b, "qkv_bias") = rows_moved(plain_of(a, "qkv_bias"), 3 * kDepth);
  plain_of(b, "proj_weight") = columns_moved(plain_of(a, "proj_weight"), kDepth);
  const ArrayPtr x = drawn({kTokens, kHidden}, DType::bfloat16, 20),
                 dy = drawn({kTokens, kHidden}, DType::bfloat16, 21);
  const StepRecord want = a.step(one, x, dy, under(nullptr)), got = b.step(other, x, dy, under(nullptr));
  for (const char* same : {"output", "dgrad", "proj_bias.grad"})
    EXPECT_TRUE(equal_bytes(*output_of(got, same), *output_of(want, same))) << same;
  EXPECT_TRUE(equal_bytes(*output_of(got, "qkv_weight.grad"),
                          *rows_moved(output_of(want, "qkv_weight.grad"), 3 * kDepth)));
  EXPECT_TRUE(equal_bytes(*output_of(got, "proj_weight.grad"),
                          *columns_moved(output_of(want, "proj_weight.grad"), kDepth)));
  EXPECT_FALSE(equal_bytes(*output_of(got, "qkv_weight.grad"), *output_of(want, "qkv_weight.grad")));
}

// Two sequences side by side are each what they are alone: rows are (s, b).
TEST_F(AttentionModules, SequencesDoNotMeet) {
  for (const bool cross : {false, true}) {
    const Dims both = {kTokens, 2, kHidden}, flat = {2 * kTokens, kHidden};
    const ArrayPtr x = drawn(both, DType::bfloat16, 30), dy = drawn(both, DType::bfloat16, 31),
                   context = drawn(both, DType::bfloat16, 32);
    const auto step = [&](int64_t batch, const auto& rows_of) {
      Session session(*subject);
      AttentionModule m(session, settings_of(batch, cross));
      fill(session, m);
      m.context = rows_of(context);
      return m.step(session, rows_of(x), rows_of(dy), under(nullptr));
    };
    const StepRecord together = step(2, [&](const ArrayPtr& a) { return view(a, flat); });
    for (int64_t b = 0; b < 2; ++b) {
      const auto part = [&](const ArrayPtr& a) {
        return view(clone(slice(view(a, both), 1, b, b + 1)), {kTokens, kHidden});
      };
      const StepRecord alone = step(1, part);
      for (const char* name : {"output", "dgrad"})
        EXPECT_TRUE(equal_bytes(*part(output_of(together, name)), *output_of(alone, name)))
            << name << b << cross;
      ASSERT_EQ(output_of(together, "dgrad.context") != nullptr, cross);
      if (cross) {
        EXPECT_TRUE(
            equal_bytes(*part(output_of(together, "dgrad.context")), *output_of(alone, "dgrad.context")))
            << b;
      }
    }
  }
}

// A causal mask hides later tokens: their change leaves earlier rows alone. Cross attention has no such mask,
// and reads keys and values from the context alone.
TEST_F(AttentionModules, TheMaskIsThatOfTheKindOfAttention) {
  Session session(*subject);
  AttentionModule self(session, settings_of(1)), cross(session, settings_of(1, true));
  fill(session, self);
  fill(session, cross);
  const ArrayPtr x = drawn({kTokens, kHidden}, DType::bfloat16, 40), last = clone(x);
  copy_into(*drawn({1, kHidden}, DType::bfloat16, 41), *slice(last, 0, kTokens - 1, kTokens));
  const auto rows = [](const Forward& f) {
    return clone(slice(std::get<ArrayPtr>(f.out), 0, 0, kTokens - 1));
  };
  const auto run = [&](AttentionModule& m, const ArrayPtr& input) {
    return rows(m.forward(session, input, under(nullptr)));
  };
  EXPECT_TRUE(equal_bytes(*run(self, x), *run(self, last)));
  cross.context = x;
  const ArrayPtr before = run(cross, x);
  EXPECT_TRUE(equal_bytes(*before, *run(cross, last)));
  cross.context = last;
  EXPECT_FALSE(equal_bytes(*before, *run(cross, x)));
}

// What a module asked its recipe for stands in its record, slot by slot; without a recipe it asked for
// nothing.
TEST_F(AttentionModules, SlotsAreDescribed) {
  Session session(*subject);
  AttentionModuleSettings s = settings_of(1);
  s.hidden_size = 128;
  AttentionModule m(session, s);
  fill(session, m);
  const ArrayPtr x = drawn({32, 128}, DType::bfloat16, 60), dy = drawn({32, 128}, DType::bfloat16, 61);
  const StepRecord plain = m.step(session, x, dy, under(nullptr));
  EXPECT_TRUE(plain.forward_quantizers.empty() && plain.backward_quantizers.empty());
  const StepRecord r = m.step(session, x, dy, under(make_recipe("MXFP8BlockScaling")));
  ASSERT_TRUE(r.forward_roles && r.backward_roles);
  EXPECT_EQ(r.forward_roles->size(), r.forward_quantizers.size());
  EXPECT_EQ(r.backward_roles->size(), r.backward_quantizers.size());
  EXPECT_GE(r.forward_quantizers.size(), 6u);  // of two projections
  EXPECT_GE(r.backward_quantizers.size(), 4u);
}

TEST_F(AttentionModules, WithoutGradientsThereIsNoBackward) {
  Session session(*subject);
  AttentionModule m(session, settings_of(1));
  fill(session, m);
  const ArrayPtr x = drawn({kTokens, kHidden}, DType::bfloat16, 62);
  StepOptions options = under(nullptr);
  EXPECT_NO_THROW(m.forward(session, x, options).backward(session, x));
  options.grad_enabled = false;
  const Forward done = m.forward(session, x, options);
  try {
    done.backward(session, x);
    ADD_FAILURE() << "nothing was saved, and yet there is a backward";
  } catch (const SemanticError& e) {
    EXPECT_EQ(e.error_class, ErrorClass::runtime_error);
    EXPECT_STREQ(e.what(),
                 "backward needs what a forward with gradients saved: this one ran without, or its backward "
                 "ran before");
  }
}

// A gradient that comes quantized is taken as it is: the bias gradient is the sum of what it dequantizes to.
TEST_F(AttentionModules, AGradientInFp8IsTakenAsItIs) {
  Session session(*subject);
  ModuleSettings s;
  s.module = "mha";
  s.hidden = 128;
  const std::unique_ptr<Module> m = make_module(session, s);
  uint64_t seed = 1;
  for (Parameter& p : m->parameters) write_back(session, p, drawn(shape_of(p.value), DType::float32, seed++));
  const Dims dims = {128, s.in};
  const StepRecord r = m->step(session, drawn(dims, DType::bfloat16, 50), drawn(dims, DType::bfloat16, 51),
                               under(make_recipe("DelayedScaling", json::object({{"fp8_mha", true}}))));
  const auto codes = [&](std::string_view gemm, std::string_view plane) {
    for (const GemmRecord& g : r.gemms)
      if (g.name == gemm)
        for (const PlaneData& p : g.planes)
          if (p.plane.name == plane) return p.bytes;
    return std::vector<std::byte>();
  };
  const std::vector<std::byte> dy = codes("qkv.dgrad", "b.data");
  ASSERT_EQ(dy.size(), 128U * 3 * 128);
  // At the scale 1 of a first step.
  const ArrayPtr bias = output_of(r, "qkv_bias.grad");
  const std::vector<float> got = floats(session, bias);
  for (size_t c = 0; c < got.size(); c += 37) {
    float sum = 0;
    for (size_t row = 0; row < 128; ++row) {
      const auto code =
          std::to_integer<uint8_t>(dy[row * got.size() + c]);  // E5M2: the upper half of a binary16
      sum += floats(session, from_bytes({1}, DType::float16, std::vector{std::byte{0}, std::byte{code}}))[0];
    }
    EXPECT_EQ(got[c], floats(session, cast(session, f32_array({1}, std::span(&sum, 1)), DType::bfloat16))[0])
        << c;
  }
}

}  // namespace assay::training
