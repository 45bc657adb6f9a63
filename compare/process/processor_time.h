// How long a process has worked: what tells one that works from one that stands still.
#pragma once
#include <sys/types.h>

namespace assay {

// Seconds of processor time of a process and those below it, in all their threads. One that has ended counts
// no more: it was not all that worked.
double processor_seconds_of(pid_t pid);
// Seconds that these were ready to run and waited for a processor, because others had it. 0 where the system
// does not tell (/proc/<pid>/schedstat).
double queued_seconds_of(pid_t pid);

}  // namespace assay
