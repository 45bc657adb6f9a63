// Subject `simd_accepts`: what an acceptor (contract/acceptor.h) lets through, as planes that the certificate
// compares with the reference's.
#pragma once
#include <memory>

#include "contract/acceptor.h"
#include "contract/subject.h"

namespace assay {

// Runs the lines that `acceptor` takes. `method` makes the planes. Then one bit of each block is turned, and
// the acceptor is asked about them: one bit of a code, in three rounds, and one of the scale. Where it
// reports exactly what was turned, the bit is turned back. Any other block keeps the wrong bit, and so does a
// block that it doubts while nothing is turned: the planes then differ from the reference's there. Blocks
// that it calls special are no finding; the reference judges those. `method` and `acceptor` must outlive the
// subject.
std::unique_ptr<Subject> make_passed_blocks_subject(Subject& method, Acceptor& acceptor);

}  // namespace assay
