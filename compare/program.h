// The program `assay` as a function, so that a program of one's own can add factories (training/factories.h)
// and then be all of it (docs/custom-factories.md).
#pragma once

namespace assay {

// What main does: reads the command line, runs its command and returns the exit status (0 all good; 1
// something failed; 2 bad usage; 3 nothing ran). Prints; never throws. Call it once, before starting threads
// or touching a GPU: cases run in forked workers, which inherit what was registered before.
int program_main(int argc, char** argv);

}  // namespace assay
