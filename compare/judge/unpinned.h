// Judging a gemm or an attention whose bits are not pinned: they are held to a bound instead of the
// reference's bytes (N16.13, N20.18).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compare/judge/verdict.h"
#include "contract/problem.h"
#include "contract/subject.h"
#include "fixtures/inputs.h"

namespace assay {

// What a subject made of a gemm whose bits it does not pin, for the reason `why`: in place of parity its laws
// in any order. Of an attention: each plane that came, by the bound around what follows from the planes
// before it. Fills `unpinned`, `inside`, `claims` and `breaches`. True where nothing could be judged: no
// element of a d that is not empty has a bound, and the bytes are not the reference's.
bool judge_unpinned(const Problem& problem, const std::vector<PlaneData>& inputs,
                    const std::vector<PlaneData>& got, const std::vector<PlaneData>& want,
                    const std::string& why, Subject& reference, Verdict& v);
inline constexpr std::string_view kNoBound =
    "no element of d has a bound (N16.13): sums or products may overflow";
// The clause of the bound by which a verdict of bits that are not pinned was found: N20.18 of an attention,
// else N16.13.
std::string_view bound_clause(const Verdict& v);
// "bits not pinned (N16.13), judged by the bound: <why>; 3 elements differ from the reference's"; empty where
// they are pinned.
std::string unpinned_text(const Verdict& v);

}  // namespace assay
