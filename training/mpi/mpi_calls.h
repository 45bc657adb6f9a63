// What the units that call MPI share.
#pragma once

namespace assay::training {

// What MPI itself cannot do ends the run like a rank that is gone: throws a RankError.
void expect(int code, const char* call);

}  // namespace assay::training
