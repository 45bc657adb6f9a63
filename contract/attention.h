// The planes of an attention and the lines of its casts (N20): sizes, where a token stands, and which slot
// casts what. Shared by both sides, as all planes are; their arithmetic is not.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "contract/planes.h"
#include "contract/problem.h"

namespace assay {

struct AttentionSizes {
  int64_t batch = 1, heads = 1, kv_heads = 1;
  int64_t q = 0, kv = 0;                                        // tokens of the longest sequence
  int64_t depth = 0;                                            // elements of one head
  int64_t rows() const { return batch * heads * q; }            // of P, S, dS and dP: (b, h, i)
  int64_t kv_rows() const { return batch * kv_heads * kv; }     // of K and V: (b, h, j)
  int64_t repeated_rows() const { return batch * heads * kv; }  // of dK and dV
  int64_t repeats() const { return heads / kv_heads; }
};
AttentionSizes attention_sizes(const Problem&);

// The encoding of Q, K and V as they come: n, or that of their codes (N20.17).
Encoding input_encoding(const Problem&);

// The tokens that sequence b has; where no lengths are given, all.
int64_t q_length(const Problem&, int64_t b);
int64_t kv_length(const Problem&, int64_t b);

// Which of Q, K, V (or O, and the gradients) an input or output of the line holds.
enum class AttentionTensor : uint8_t { q, k, v };
// Where element e of token `token` of head h stands in the plane that holds it, N20.1: that plane's row is
// the token, its column is (h * heads + which * of_which) * depth + e.
struct AttentionPart {
  std::string plane;          // "q", "kv", "qkv"
  int64_t tensors = 1;        // how many tensors the plane holds side by side: 1, 2 or 3
  int64_t which = 0;          // the place of this one among them
  bool within_heads = false;  // the tensors follow each other inside a head (h3d, h2d), not head after head
};
AttentionPart part_of(AttentionLayout, AttentionTensor);
// How the tokens of a plane follow each other.
enum class TokenOrder : uint8_t { sequence_first, batch_first, ragged };  // sbhd, bshd, thd
TokenOrder token_order(AttentionLayout);

// One cast inside an attention: the quantize that it is. `name` stands before the names of its planes in
// place of the direction: "qkv.data" is `row.data` of the line, "v.data" under MXFP8 its `col.data`.
struct AttentionCast {
  std::string name;
  AttentionSlot slot;
  Problem line;
  Direction direction() const { return line.row ? Direction::row : Direction::col; }
};
// N20.3: the casts of one slot: one, three under MXFP8 where the slot holds Q, K, V or their gradients, none
// where the slot's format is identity. The fill of their lines means nothing.
std::vector<AttentionCast> attention_casts(const Problem&, AttentionSlot);
// The plane of a cast by the name that the cast's own line has for it: "row.scale_inv" is "qkv.scale_inv".
std::string plane_of_cast(const AttentionCast&, std::string_view own);
// The slot as a quantize of a [rows, cols] tensor, for keys and validation.
Problem slot_problem(const Problem&, AttentionSlot);

std::vector<Plane> attention_inputs(const Problem&);
std::vector<Plane> attention_outputs(const Problem&);

}  // namespace assay
