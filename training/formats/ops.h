// What happens to a quantized tensor when a framework handles it like any tensor: it is detached, cloned,
// cut, zeroed, copied, pickled and gathered. Where a class cannot do so with its bytes the answer is a plain
// tensor, or an error (TE tensor/*_tensor.py, __torch_dispatch__ and the FSDP2 hooks).
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "training/formats/hybrid.h"
#include "training/formats/identity.h"
#include "training/formats/storage.h"

namespace assay::training {

// What a shape operation yields: quantized where the class cuts its bytes, else the dequantized tensor in the
// nominal dtype.
using Piece = std::variant<StoragePtr, ArrayPtr>;

// Another object over the same buffers, so that saving one never empties the other. NotImplementedError for a
// hybrid whose children are light storages.
StoragePtr detach(const Storage&);
// Deep copies of every buffer, scales included (the original shares scales of block formats between clones;
// nothing here depends on that). AssertionError for NVFP4 without rows, as in the original; a hybrid copies
// such a child.
StoragePtr clone(const Storage&);
// The tensor itself. ValueError where the original refuses: a hybrid of light storages, blockwise FP8 without
// rows, buffers with gaps.
StoragePtr contiguous(const StoragePtr&);

// Pieces of `size` along `dim` (negative counts from the end), the last one shorter. Aliasing: per-tensor
// FP8, both planes, in logical shapes; MXFP8 along dim 0 where it divides evenly into multiples of 32 rows
// and scales are compact, else plain; Identity; plain for the other formats. A hybrid's dim 0 needs pieces of
// both children (NotImplementedError), its other dimensions are plain. ValueError for a dimension that does
// not exist or a size that is not positive.
std::vector<Piece> split(Session&, Storage&, int64_t size, int64_t dim = 0);
// Elements [start, end) along `dim`. All of them: another object over the same buffers. Else quantized for
// per-tensor FP8 and Identity, plain for others; a hybrid is plain as soon as one child is.
Piece slice(Session&, Storage&, int64_t dim, int64_t start, int64_t end);
// Its own geometry: another object over the same buffers. Per-tensor FP8 takes any with its byte plane, and
// whole rows with a transpose alone; Identity any, by default from its payload's own offset; others, and
// hybrids of them, are plain.
Piece as_strided(Session&, Storage&, const Dims& shape, const Dims& strides,
                 std::optional<int64_t> offset = std::nullopt);

// A tensor like `like`, in the directions that exist, of another shape (and nominal dtype) with every buffer
// zero; `like`, its quantizer and the random numbers stay untouched. MXFP8 scales come without padding.
// RuntimeError for a hybrid without directions or a tensor without quantizer, TypeError for a dtype that is
// no training dtype.
StoragePtr new_zeros(Session&, const Storage& like, const Dims& shape,
                     std::optional<DType> dtype = std::nullopt);

// dst = src in place. Of the same class: the buffers that both have; hybrids need the same directions
// (NotImplementedError). Else src is dequantized, and dst's own quantizer refreshes it; RuntimeError where it
// has none.
void copy_into(Session&, Storage& src, Storage& dst);
void copy_into(Session&, const ArrayPtr& src, Storage& dst);

// A tensor as a checkpoint holds it: buffers by name, copies of their own; the quantizer without its process
// group, none for per-tensor FP8; class and flags in an object without buffers. A transpose is kept only
// where there is no data.
struct Pickled {
  std::vector<std::pair<std::string, ArrayPtr>> fields;
  QuantizerPtr quantizer;
  DType dtype;
  Dims shape;
  StoragePtr husk;
};
Pickled pickled(const Storage&);
StoragePtr unpickled(const Pickled&);

// dst = src in place by dst's own quantizer. Where FSDP2 has noted a group on the tensor, amaxes are reduced
// over it by a copy of that quantizer: neither dst's quantizer nor its maker's learns of the group (TE
// tensor/float8_tensor.py, tensor/nvfp4_tensor.py). RuntimeError where dst has no quantizer.
void refresh(Session&, const ArrayPtr& src, Storage& dst, std::optional<F32Bits> noop = std::nullopt);
// What FSDP2's hooks do with the mesh's group before a gather: per-tensor FP8 and NVFP4 hold it on the
// tensor, a hybrid on its own quantizer, for good; others have no use for it.
void note_fsdp_group(Storage&, const GroupPtr& mesh);

// FSDP2's hooks of a hybrid parameter. Before: both directions' buffers, rows first. NotImplementedError
// names the class and direction of a child that cannot be gathered: a light storage, NVFP4. A mesh sets the
// amax group of the parameter's own quantizer.
struct HybridGather {
  std::vector<ArrayPtr> buffers;
  size_t row_buffers = 0;          // of `buffers`, the first belong to the rows
  json::Value row_meta, col_meta;  // null for a direction that is absent
};
HybridGather fsdp_pre_all_gather(HybridStorage& shard, const GroupPtr& mesh = nullptr);
// After: `gathered` is the concatenation of every shard's buffers. The result shares per-tensor scales with
// the shard; `out`, of an earlier call, is written and returned itself. What the children's quantizers do not
// use is dropped, so that no stale transpose survives.
std::shared_ptr<HybridStorage> fsdp_post_all_gather(HybridStorage& shard, const HybridGather& sent,
                                                    const std::vector<ArrayPtr>& gathered,
                                                    std::shared_ptr<HybridStorage> out = nullptr);

// FSDP2's hook of an Identity parameter after a gather of its payload (before: fsdp_extract_buffers).
// RuntimeError where the payload's dtype is not the quantizer's, or the parameter's where that one names
// none: the protocol of its storage writes whatever it is given, in a hybrid too (TE
// tensor/identity_tensor.py). ValueError unless `gathered` is one buffer. `out`, of an earlier call, is bound
// to the new payload and returned itself.
std::shared_ptr<IdentityStorage> fsdp_post_all_gather(const IdentityStorage& shard,
                                                      const std::vector<ArrayPtr>& gathered, DType parameter,
                                                      std::shared_ptr<IdentityStorage> out = nullptr);

}  // namespace assay::training
