#include "compare/commands/hunt/known_causes.h"

#include <algorithm>

#include "compare/commands/hunt/cause.h"

namespace assay::hunting {

namespace {

// A cause without the directions that it was seen in: "quantize scale.up" of "quantize scale.up@row".
std::string of_any_direction(std::string cause) {
  for (const char* direction : {"@row", "@col"})
    for (size_t at; (at = cause.find(direction)) != std::string::npos;) cause.erase(at, 4);
  return cause;
}

}  // namespace

KnownCauses::KnownCauses(const std::vector<Finding>& not_mended) {
  for (const Finding& f : not_mended) (f.looked ? looked_ : unlooked_).insert(f.cause);
}

bool KnownCauses::add(const Finding& f, const std::vector<Finding>& earlier) {
  if (!f.looked) return !has(f.cause) && unlooked_.insert(f.cause).second;
  const auto known = [&](const std::string& cause) {
    return std::any_of(looked_.begin(), looked_.end(), [&](const std::string& other) {
      return of_any_direction(other) == of_any_direction(cause);
    });
  };
  if (f.explained && (known(f.cause) || std::any_of(f.others.begin(), f.others.end(), known))) return false;
  const bool fresh = looked_.insert(f.cause).second;
  if (!fresh || f.claim == kOfASanitizer) return fresh;
  return std::none_of(earlier.begin(), earlier.end(), [&](const Finding& old) {
    return old.line == f.line && old.cause != f.cause && old.looked && has(old.cause);
  });
}

}  // namespace assay::hunting
