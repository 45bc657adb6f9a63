// What the launches of a line do, counted in a child process, and the way their counts travel: as JSON.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/json.h"

namespace assay {

// One launch as `assay count --json` writes it: without the compiler's names.
json::Value to_json(const LaunchCounts&);

// The launches of a subject that interprets, in their order. `reference` makes the inputs. Error: inputs that
// cannot be made, what the kernel did wrong, or that it took more than `timeout` seconds.
Result<std::vector<LaunchCounts>> counted_launches(Subject&, const Problem&, Subject& reference,
                                                   const Environment&, double timeout);

// The total of this name; 0 where there is none.
uint64_t total(const LaunchCounts&, std::string_view name);

}  // namespace assay
