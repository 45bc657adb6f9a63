// Saved tensors that wait on the CPU until backward wants them (TE cpu_offload.py). One process has one
// memory here, so moving is copying: what is observable is which parts moved, in which order, and that the
// bytes are the same afterwards. A view whose base is moved in its place is not modelled: its bytes are the
// same.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "training/formats/ops.h"

namespace assay::training {

// Tensors of fewer elements stay.
inline constexpr int64_t kOffloadThreshold = 256 * 1024;

// What a push gives back and a pop takes: a tensor that stayed, the number of one that waits in its group, or
// a quantized tensor in parts, each of them absent, kept or numbered.
struct PushedParts {
  std::vector<std::variant<std::monostate, ArrayPtr, size_t>> parts;
  StoragePtr husk;  // the detached copy without buffers
};
using Pushed = std::variant<Piece, size_t, PushedParts>;

// The saved tensors of one layer. Its states follow one another; any other order is a RuntimeError "Invalid
// state":  not_offloaded -> start_offload -> offload_started -> release -> offload_finished -> start_reload
// -> reload_started, and release_all back to the first.
class OffloadedLayer {
 public:
  // In state not_offloaded. A plain tensor moves where it has kOffloadThreshold elements or more and is no
  // parameter; one with gaps stays, with a UserWarning. A quantized tensor of as many logical elements is
  // detached and cut into its buffers, each of which is judged again by its own elements.
  Pushed push(Session&, const Piece& tensor, bool is_parameter = false);
  // In state not_offloaded or reload_started: the tensor, quantized ones as the detached copy.
  Piece pop(const Pushed&);
  void start_offload();
  void release();
  void start_reload();
  void release_all();

  std::string_view state() const { return state_; }
  // The group that waits to be moved, each tensor once; empty after release.
  const std::vector<ArrayPtr>& waiting() const { return waiting_; }

 private:
  void expect(std::string_view what, std::initializer_list<std::string_view> allowed) const;
  bool moves(Session&, const ArrayPtr&, bool is_parameter) const;
  size_t put(const ArrayPtr&);
  ArrayPtr taken(size_t number) const;
  std::string_view state_ = "not_offloaded";
  std::vector<ArrayPtr> waiting_, on_cpu_, back_;
};

// Of `layers`, the first `offloaded` ones move: layer i is released at the forward of layer
// layers - offloaded + i and comes back at the backward of layer layers - 1 - offloaded + i.
struct OffloadSchedule {
  std::vector<int64_t> offloaded;
  std::map<int64_t, std::vector<int64_t>> released_at_forward_of, reload_starts_at_backward_of;
};
OffloadSchedule offload_schedule(int64_t layers, int64_t offloaded);

// What a user asks for. checked() returns how many things the original's call gives back (a controller with
// manual synchronization) and warns: ValueError where there is nothing to offload, where every layer would
// move without manual synchronization, or where a stream is given without it.
struct OffloadContext {
  bool enabled = false;
  int64_t num_layers = 1, model_layers = 1;
  bool offload_activations = true, offload_weights = false, manual_synchronization = false, stream = false;
  int checked(Session&) const;
};

}  // namespace assay::training
