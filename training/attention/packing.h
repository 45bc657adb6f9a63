// How Q, K and V, or their gradients, become quantized tensors together (TE
// attention/dot_product_attention/utils.py). Per-tensor FP8 casts all three at once: one amax and one scale,
// so that a large V lowers the resolution of Q and K. MXFP8 casts each by a copy of the quantizer.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/formats/matmul.h"
#include "training/formats/quantizer.h"
#include "training/formats/storage.h"

namespace assay::training {

// Called at every quantize, in order, with the quantizer as it was asked and the shape it was given.
using CastLog = std::function<void(const Quantizer&, const Dims& shape)>;

// Plain tensors as a caller holds them. The layout names one buffer ("bs3hd", "sbh3d", "t3hd"), two
// ("bshd_bs2hd", "thd_t2hd") or three ("sbhd_sbhd_sbhd"); a letter is a dimension (b batch, s sequence, t
// tokens of all sequences, h heads, d head size), a digit how many tensors lie side by side there.
struct PlainQkv {
  std::string layout;
  std::vector<ArrayPtr> buffers;  // each in the shape that its part of the layout says
};
// Q, K and V as aliasing views, without the dimension in which they are packed. ValueError where the layout
// or a shape is none of the above.
std::array<ArrayPtr, 3> split_qkv(const PlainQkv&);
// The reverse: copies of three tensors of any one dtype in buffers as the layout packs them.
std::vector<ArrayPtr> pack_qkv(const std::string& layout, const std::array<ArrayPtr, 3>& tensors);

struct QuantizedQkv {
  std::string layout;                       // of `tensors`
  std::array<StoragePtr, 3> tensors;        // per-tensor FP8: views of one cast, with the very same scale
  std::optional<std::string> scale_format;  // "bhsd" of MXFP8: the dimensions by which scales are ordered
};

// What the tensors are needed for decides which directions MXFP8 has: Q and K rows, V columns forward; Q and
// K both, V rows backward; all both for both.
struct PackedFor {
  bool forward = true, backward = false;
};

// Per-tensor FP8: the one buffer as it is, or all buffers flattened one after the other into a vector; one
// cast in the directions that the quantizer has. Byte for byte the same as three casts by a common scale.
//
// MXFP8: the layouts bshd and sbhd of three buffers are cast in place as (b, s, h d) and (s, b h d), and
// their scales reordered to (b, h, s, .), padded and moved to the layout that GEMMs read; `slow` forbids
// that. Others are reordered themselves to (b, h, s, d) and cast as a matrix. AssertionError of other
// dimensions than bshd and sbhd, and where the lengths of sequences are no multiples of 128 or d none of 32.
// RuntimeError where padding of the in-place cast's scales stands in the way: h d (bshd) or b h d (sbhd) no
// multiple of 128.
QuantizedQkv quantize_qkv(Session&, const PlainQkv&, const QuantizerPtr&, PackedFor, const CastLog& = {},
                          bool slow = false);

// One tensor of "bshd" or "sbhd" in MXFP8, in the quantizer's directions and the in-place way: dO.
StoragePtr quantize_mxfp8_in_place(Session&, const ArrayPtr& x, std::string_view dims, const QuantizerPtr&,
                                   const CastLog& = {});

}  // namespace assay::training
