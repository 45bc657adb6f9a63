// How third-party vectors become cases: one row per kind of tensor. A family that Assay can judge is a few
// rows here and nothing else, but for recordings of tensor cores (compare/witness/vectors/tensor_core.h) and
// what the training layer makes (compare/witness/vectors/training.h).
//
// A row reads
//   family | tensor pattern | line | input planes | output plane | as | when
// and says: an `expected` tensor of that family whose name fits the pattern holds `output plane` of the
// Problem `line`, run on input planes taken from tensors of the same file. Several rows may fit one tensor;
// then it is judged once for each (a both-direction launch and a single one).
//
// In a pattern `{name}` captures a run of letters, digits and underscores and `{name:a|b}` one of the
// alternatives, `{name:#}` digits; the rest is literal. A leading `~` stands for an optional case ("c0.",
// captured as {c}) and, in files whose sources disagree, the source ("te_host."). A pattern that ends in
// "[{i}]" is about the rows of a tensor (of a vector: the elements), each of its own case.
//
// Everywhere else `{...}` is replaced:
//   {name}                  a capture; else the field of the case (below); else of the file's params
//   {shape:t}               rows x cols of tensor t
//   {count:t} {rows:t}      1 x its elements; its rows
//   {unpacked:t}            rows x cols of the codes in packed bytes
//   {source:t}              its encoding
//   {bits:t} {bits:t[i]}    the binary32 element of tensor t, as bits
//   {f32:name}              a number of the case or params, as binary32
//   {word:t[i]}             an integer element of tensor t, in decimal
//   {amax:t,x}              computed, where the amax in t is that of tensor x; else as {bits:t}
//   {blocks:n,dir}          the shape whose scales, one per n elements along a row (dir: row, col, or colwise
//                           of MXFP8), have the case's logical_dims
//   {total:t#} {sizes:t#}   of tensors t0, t1, ... whose shapes are the members of a split
//   {signs:name}            the sign mask that params say, or TransformerEngine's where `name` is true, or
//                           none
// Words of the vectors become words of the line where they differ (rn -> rne, rowwise -> row, true -> 1).
// A case is an entry of params.cases or params.configs whose "prefix" is the capture {c} and a dot.
//
// A tensor `~t` is "<c>.t" where the file has one, else "t"; `t[i]` is its row i. An input plane is
// `plane=tensor`, or `plane=@how:tensors`:
//   @codes                  0, 1, 2, ...
//   @head:t                 the first rows of t
//   @pairs:a,b              a[0], b[0], a[1], b[1], ...
//   @join:t#                t0, t1, ... one after the other
//   @counters:t             counters of a Philox generator from seed, subsequence and offset, each low word
//                           first
//   @seeds:t                the keys of that generator
// Planes that are not named come from the line's keys.
//
// `as` says how an expected tensor becomes the plane:
//   packed                  it holds two 4-bit codes per byte, low nibble first, of a plane that does not
//   reciprocal              the plane is fl(1 / x) of it
//   narrowed                binary32 values that the plane's 16 bits hold exactly
//   arithmetic              its NaN are of arithmetic, which N1.3 stores in one form
//   rotation                signs (binary32 +-1, or the bits of one word) of the 16x16 rotation in the plane
// `when` is a condition on a field of the case: "direction=rowwise".
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace assay {

struct VectorRow {
  std::string family, tensor, line, inputs, plane, as = {}, when = {};
  std::string variant = {};  // keys of the line that are not the default, for reports on disputed files
};
std::span<const VectorRow> vector_rows();

// Which clauses decide a case on which sources disagree, by the label that its file gives it; else those of
// the family. Empty where nothing is known.
std::string_view deciding_clauses(std::string_view family, std::string_view label);

}  // namespace assay
