#include "compare/commands/hunt/known_causes.h"

#include <algorithm>

#include "compare/commands/hunt/cause.h"

namespace assay::hunting {

KnownCauses::KnownCauses(const std::vector<Finding>& not_mended) {
  for (const Finding& f : not_mended) (f.looked ? looked_ : unlooked_).insert(f.cause);
}

bool KnownCauses::add(const Finding& f, const std::vector<Finding>& earlier) {
  if (!f.looked) return !has(f.cause) && unlooked_.insert(f.cause).second;
  const bool fresh = looked_.insert(f.cause).second;
  if (!fresh || f.claim == kOfASanitizer) return fresh;
  return std::none_of(earlier.begin(), earlier.end(), [&](const Finding& old) {
    return old.line == f.line && old.cause != f.cause && old.looked && has(old.cause);
  });
}

}  // namespace assay::hunting
