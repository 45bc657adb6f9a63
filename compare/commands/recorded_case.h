// A case of a pack where a line is asked for: the case itself, its line as one that draws x from the pack,
// and its bytes as a subject.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare/diagnosis/search/diagnose.h"
#include "compare/packs/dump.h"
#include "contract/result.h"
#include "contract/subject.h"

namespace assay {

// Whether an argument names a pack, or a folder of them, and no line.
bool names_pack(const std::string& what);

// "dump.safetensors:fc1", as reports name a case, becomes the path and the case, where a file is called like
// the first part and nothing like the whole, and no case is named otherwise.
void split_case(std::string& what, std::string& case_id);

// The cases of `dump` that are asked for: the one called `id`, or all. Error: there is none, with the names
// of those that there are.
Result<std::vector<const DumpCase*>> cases_named(const Dump& dump, const std::string& path,
                                                 const std::string& id);

// The recorded case as a line that draws its tensor from the pack; nothing where that cannot be said.
std::optional<Problem> drawn_from(const DumpCase&, const Problem&);

// The bytes of a case as a subject called "pack". Planes that it lacks are those of `want`. Its steps are
// those of `explained`, the line that makes its bytes, where one is known. `reference` must outlive it.
std::unique_ptr<Subject> make_recorded_subject(Observation seen, std::vector<PlaneData> want,
                                               std::optional<Problem> explained, Subject& reference);

}  // namespace assay
