#include "training/modules/attention_core.h"

#include <algorithm>
#include <utility>

#include "training/formats/float8.h"

namespace assay::training {

using std::string;

namespace {

// Tensors of a buffer that was cast whole share its scale.
std::shared_ptr<Float8Storage> part_of(const Float8Storage& whole, const ArrayPtr& data) {
  const auto one = std::make_shared<Float8Storage>(whole);
  one->data = data;
  one->transpose = nullptr;
  one->transpose_invalid = true;
  return one;
}

}  // namespace

Tensorlike in_dimensions(const Tensorlike& t, const Dims& shape) {
  if (const ArrayPtr* x = std::get_if<ArrayPtr>(&t)) return view(*x, shape);
  return std::get<StoragePtr>(t)->view(shape);
}

AttentionInput attention_input(const string& layout, const std::vector<Tensorlike>& buffers) {
  if (std::holds_alternative<ArrayPtr>(buffers[0])) {
    PlainQkv plain{layout, {}};
    for (const Tensorlike& b : buffers) plain.buffers.push_back(std::get<ArrayPtr>(b));
    return plain;
  }
  std::vector<const Float8Storage*> wholes;
  std::vector<ArrayPtr> data;
  for (const Tensorlike& b : buffers) {
    wholes.push_back(&dynamic_cast<const Float8Storage&>(*std::get<StoragePtr>(b)));
    data.push_back(wholes.back()->data);
  }
  const std::array<ArrayPtr, 3> parts = split_qkv({layout, data});
  QuantizedQkv out{layout, {}, std::nullopt};
  for (size_t i = 0; i < parts.size(); ++i)
    out.tensors[i] = part_of(*wholes[std::min(i, wholes.size() - 1)], parts[i]);
  return out;
}

std::vector<Tensorlike> packed_gradients(const string& layout, const std::array<Tensorlike, 3>& gradients) {
  std::array<ArrayPtr, 3> parts;
  const auto* fp8 = std::get_if<StoragePtr>(&gradients[0]);
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i] = fp8 ? dynamic_cast<const Float8Storage&>(*std::get<StoragePtr>(gradients[i])).data
                   : std::get<ArrayPtr>(gradients[i]);
  std::vector<Tensorlike> out;
  for (const ArrayPtr& buffer : pack_qkv(layout, parts)) {
    const int64_t rows = buffer->shape[0] * buffer->shape[1];
    const ArrayPtr flat = view(buffer, {rows, buffer->count() / rows});
    if (fp8) out.emplace_back(StoragePtr(part_of(dynamic_cast<const Float8Storage&>(**fp8), flat)));
    else out.emplace_back(flat);
  }
  return out;
}

Tensorlike CoreRun::attend(Session& session) {
  const CoreCall& c = call_;
  if (!c.quantizers) return core_forward(session, c.sizes, split_qkv(std::get<PlainQkv>(c.in)), *c.record);
  FusedForward done =
      fused_forward(session, c.in, *c.quantizers, c.options, core_kernels(session, c.sizes, *c.record));
  saved_ = std::move(done.saved);
  return done.out;
}

std::array<Tensorlike, 3> CoreRun::differentiate(Session& session, const Tensorlike& d_o) {
  const CoreCall& c = call_;
  if (c.quantizers)
    return fused_backward(session, *saved_, d_o, c.options, core_kernels(session, c.sizes, *c.record));
  const std::array<ArrayPtr, 3> made = core_backward(session, c.sizes, split_qkv(std::get<PlainQkv>(c.in)),
                                                     std::get<ArrayPtr>(d_o), *c.record);
  return {made[0], made[1], made[2]};
}

RegionResult CoreRun::region(Session& session, const RegionView& view) {
  const CoreCall& c = call_;
  if (c.delayed && !view.recompute_phase) c.stash->copy(c.delayed);
  if (c.delayed && view.recompute_phase) c.stash->get(c.delayed);
  o_ = attend(session);
  if (c.delayed && view.recompute_phase) c.stash->restore(c.delayed);
  if (!view.grad_enabled) {
    saved_.reset();
    return {};
  }
  RegionResult out;
  out.pullback = [this, &session](const ArrayPtr&) -> ArrayPtr {
    gradients_ = differentiate(session, d_o_);
    return nullptr;
  };
  return out;
}

Tensorlike CoreRun::forward(Session& session) {
  if (!call_.phase) return attend(session);
  RegionView around;
  around.quantization_on = call_.quantizers.has_value();
  region_ = std::make_unique<Checkpoint>(
      session, *call_.phase, [this, &session](const RegionView& view) { return region(session, view); }, true,
      around);
  region_->forward();
  return o_;
}

std::array<Tensorlike, 3> CoreRun::backward(Session& session, const Tensorlike& d_o) {
  if (!region_) return differentiate(session, d_o);
  d_o_ = d_o;
  region_->backward(nullptr);
  return gradients_;
}

}  // namespace assay::training
