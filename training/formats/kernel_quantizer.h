// How the quantizers of C++ kernels make bytes: settings, usages and architecture become one Problem (two
// where each direction has a random state of its own), and its output planes fill the buffers of a storage.
// Making a new tensor and refreshing one in place are the same act on an empty and on a filled storage (TE
// csrc/quantizer.cpp).
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"
#include "fixtures/inputs.h"
#include "training/base/array.h"
#include "training/base/errors.h"
#include "training/base/session.h"
#include "training/formats/quantizer.h"
#include "training/formats/shapes.h"
#include "training/formats/storage.h"

namespace assay::training {

// The steps that formats share, in a namespace of their own because their names are short.
namespace kernels {

// "<class>: <what>".
[[noreturn]] void fail(ErrorClass, const Quantizer&, const std::string& what);
// "64x256", or "a scalar".
std::string text(const Dims&);

F32Bits bits_of(const Array& scalar);
PlaneData plane(std::string name, std::span<const std::byte>);

// Problems.

Problem problem_of(const Array& x, const std::optional<assay::Quantizer>& row,
                   const std::optional<assay::Quantizer>& col);
// The same in the directions that the quantizer's usages ask for.
Problem problem_of(const Array& x, const Quantizer&);
// The amaxes that this rank finds by itself in the directions of the Problem, row before column.
std::vector<F32Bits> local_amaxes(Session&, Problem, const Array& x);
// One amax for each direction, or one for both.
void give_amaxes(Problem&, std::span<const F32Bits> amaxes);
// Replaces the amaxes by the group's. A reduction is a collective of all ranks, so it happens whatever x
// holds.
void reduce_amaxes(Session&, const Quantizer&, const AmaxReduction&, Problem&, const Array& x);

// Buffers.

ArrayPtr& slot(Storage&, std::string_view name);
// Buffers that are wanted exist afterwards, others do not; one of the right size stays where it is, because
// others may hold it.
void coerce(Session&, Storage&, const std::vector<BufferShape>& wanted);
void write(const ArrayPtr& to, std::span<const std::byte> bytes);
// Runs the Problem and fills the buffers; under a noop flag of 1 they keep what they hold, and `keep` are
// further planes that do. Returns the planes, for those that no buffer holds.
std::vector<PlaneData> run_into(Session&, const Problem&, const Array& x, Storage&,
                                std::vector<PlaneData> keep = {});
// Both directions of a format of blocks, where usages are all that decides.
void fill_blocks(Session&, const Quantizer&, const ArrayPtr& x, Storage&, std::optional<F32Bits> noop);

// Uninitialised buffers as TE's Python allocates them.
StoragePtr allocate(Session&, const Quantizer&, const StoragePtr&, const Dims& shape, DType dtype);
// Whether `dst` is a tensor that an update may write: of this class, and of x's shape.
void check_destination(const Quantizer&, const Storage& dst, bool of_this_class, std::string_view wanted,
                       ErrorClass otherwise, const ArrayPtr& x);

}  // namespace kernels

// A quantizer whose tensors are of class Tensor. Self has what differs between formats:
//   fill(session, x, tensor, noop)   makes the bytes
//   stamp(tensor)                    writes the settings that a refresh changes too
//   blank(session)                   a tensor without buffers, where its constructor or a setting needs more
//                                    than stamp
template <class Self, class Tensor> class KernelQuantizer : public QuantizerOf<Self> {
 public:
  StoragePtr make_empty(Session& session, const Dims& shape, DType dtype) const override {
    return kernels::allocate(session, *this, fresh(session, dtype), shape, dtype);
  }
  void update_quantized(Session& session, const ArrayPtr& x, Storage& dst,
                        std::optional<F32Bits> noop) override {
    auto* tensor = dynamic_cast<Tensor*>(&dst);
    kernels::check_destination(*this, dst, tensor != nullptr, Tensor::kNames.tensor, Self::kWrongTensor, x);
    self().fill(session, x, *tensor, noop);
    self().stamp(*tensor);
  }

 protected:
  static constexpr ErrorClass kWrongTensor =
      ErrorClass::assertion_error;  // of an update of a tensor of another class
  std::shared_ptr<Tensor> blank(const Session&) const { return std::make_shared<Tensor>(); }

  StoragePtr quantize_impl(Session& session, const ArrayPtr& x) override {
    const auto tensor = fresh(session, x->dtype);
    self().fill(session, x, *tensor, std::nullopt);
    return tensor;
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }
  const Self& self() const { return static_cast<const Self&>(*this); }
  std::shared_ptr<Tensor> fresh(const Session& session, DType nominal) const {
    const auto tensor = self().blank(session);
    tensor->dtype = nominal;
    tensor->is_tensor = !this->internal;
    self().stamp(*tensor);
    return tensor;
  }
};

}  // namespace assay::training
