// Saved tensors that wait on the CPU until backward wants them (TE cpu_offload.py). One process has one
// memory here, so moving is copying: what is observable is which parts moved, in which order, and that the
// bytes are the same afterwards.
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

// A saved view of another tensor. The base moves in its place where it has as many elements, or where the
// view is marked (TE start_offload with offload_base_tensor).
struct ViewOf {
  ArrayPtr base;  // null: the tensor is no view
  bool marked = false;
};

// The saved tensors of one layer. Its states follow one another; any other order is a RuntimeError "Invalid
// state":  not_offloaded -> start_offload -> offload_started -> release -> offload_finished -> start_reload
// -> reload_started, and release_all back to the first.
class OffloadedLayer {
 public:
  // `retain`: the buffers on the CPU are kept over release_all and used again.
  explicit OffloadedLayer(bool retain = false) : retain_(retain) {}
  // In state not_offloaded. A plain tensor moves where it has kOffloadThreshold elements or more and is no
  // parameter; one with gaps stays, with a UserWarning, unless it is a marked view. A quantized tensor of as
  // many logical elements is detached and cut into its buffers, each of which is judged again by its own
  // elements.
  Pushed push(Session&, const Piece& tensor, bool is_parameter = false, const ViewOf& view = {});
  // In state not_offloaded or reload_started: the tensor, quantized ones as the detached copy.
  Piece pop(const Pushed&);
  // Views give way to their bases (RuntimeError for a mark without a base), then each object is copied once.
  // ValueError for a base with gaps, and for a kept buffer of another shape; one of another dtype converts
  // what it takes, silently, as in the original.
  void start_offload();
  void release();
  void start_reload();
  void release_all();

  std::string_view state() const { return state_; }
  // The group that waits to be moved, from start_offload on each tensor once; empty after release.
  const std::vector<ArrayPtr>& waiting() const { return waiting_; }

 private:
  void expect(std::string_view what, std::initializer_list<std::string_view> allowed) const;
  bool moves(Session&, const ArrayPtr&, bool is_parameter, bool marked) const;
  size_t put(const ArrayPtr&, const ViewOf& view);
  ArrayPtr taken(size_t number) const;
  bool retain_;
  std::string_view state_ = "not_offloaded";
  Session* session_ = nullptr;  // of the pushes, for a copy that converts
  std::vector<ArrayPtr> waiting_, on_cpu_, back_;
  std::vector<ViewOf> views_;  // of what waits
  // Of each tensor that was pushed: its number among the copied ones, and the view that it was.
  struct Origin {
    size_t copy;
    ArrayPtr view;  // null: it is what was copied
  };
  std::vector<Origin> origins_;
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
// move without manual synchronization, or where a stream is given without it; RuntimeError in debug mode.
struct OffloadContext {
  bool enabled = false;
  int64_t num_layers = 1, model_layers = 1;
  bool offload_activations = true, offload_weights = false, manual_synchronization = false, stream = false;
  bool debug = false;
  int checked(Session&) const;
};

}  // namespace assay::training
