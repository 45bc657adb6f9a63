#include "training/state/adam_kernels.h"

#include <algorithm>

#include "training/formats/kernel_quantizer.h"

namespace assay::training {

namespace {

void put(std::span<const std::byte> bytes, Array& to) { std::ranges::copy(bytes, to.bytes().begin()); }

Array wide(Session& session, const Array& x) {
  return *cast(session, std::make_shared<Array>(x), DType::float32);
}

}  // namespace

void adam_step(Session& session, const AdamSettings& settings, const Array& grad, Array& p, Array& m,
               Array& v) {
  if (m.dtype != v.dtype) {  // a kernel for each: here both in f32, and the one rounded back
    Array mw = wide(session, m), vw = wide(session, v);
    adam_step(session, settings, grad, p, mw, vw);
    copy_into(*cast(session, std::make_shared<Array>(mw), m.dtype), m);
    copy_into(*cast(session, std::make_shared<Array>(vw), v.dtype), v);
    return;
  }
  const AdamOptions& o = settings.options;
  Problem problem;
  problem.x = {flattened(grad.shape), encoding_of(grad.dtype), {}};
  problem.op = Adam{.parameter = encoding_of(p.dtype),
                    .moments = encoding_of(m.dtype),
                    .adam = o.rounding,
                    .decoupling = o.adam_w_mode ? WeightDecay::adamw : WeightDecay::l2,
                    .bias_correction = o.bias_correction,
                    .step = static_cast<int>(settings.step),
                    .lr = o.lr,
                    .beta1 = o.beta1,
                    .beta2 = o.beta2,
                    .eps = o.eps,
                    .decay = o.weight_decay};
  const std::vector<PlaneData> out =
      session.run(problem, {kernels::plane("x", grad.bytes()), kernels::plane("p", p.bytes()),
                            kernels::plane("m", m.bytes()), kernels::plane("v", v.bytes())});
  put(find_plane(out, "next.m")->bytes, m);
  put(find_plane(out, "next.v")->bytes, v);
  put(find_plane(out, "next.p")->bytes, p);
}

void cast_parameter(Session& session, const Array& master, Float8Storage& to) {
  const auto& q = dynamic_cast<const Float8Quantizer&>(*to.quantizer);
  const Problem p = kernels::problem_of(master, q.line(Direction::row), std::nullopt);
  const std::vector<PlaneData> out = kernels::run_into(session, p, master, to);
  kernels::write(q.amax, find_plane(out, "row.amax")->bytes);
}

ScaledState scaled_state(Session& session, const Array& values, Encoding to) {
  Problem p;
  p.x = {flattened(values.shape), Encoding::f32, {}};
  p.op = ScaleState{to, false};
  const std::vector<PlaneData> out = session.run(p, {kernels::plane("x", values.bytes())});
  return {from_bytes({1}, DType::float32, find_plane(out, "scale")->bytes),
          from_bytes({1}, DType::float32, find_plane(out, "multiplier")->bytes),
          from_bytes(values.shape, dtype_of(to), find_plane(out, "y")->bytes)};
}

ArrayPtr unscaled_state(Session& session, const Array& state, const Array& scale) {
  Problem p;
  p.x = {flattened(state.shape), encoding_of(state.dtype), {}};
  p.op = ScaleState{encoding_of(state.dtype), true};
  const std::vector<PlaneData> out =
      session.run(p, {kernels::plane("x", state.bytes()), kernels::plane("scale", scale.bytes())});
  return from_bytes(state.shape, DType::float32, find_plane(out, "y")->bytes);
}

}  // namespace assay::training
