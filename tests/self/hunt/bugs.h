// The planted bugs. Each is one mistake in a kernel that is right otherwise.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "contract/problem.h"
#include "contract/subject.h"

namespace assay::planted {

struct Bug {
  std::string_view name;    // of the library: libplanted_<name>.so
  std::string_view source;  // the public thread that met this kind of bug
  std::string_view op;      // what the kernel runs
  FormatId format;
  // What the kernel takes the line for; the bug, or the line itself.
  Problem (*read)(const Problem&);
  // What it does to right bytes; null where `read` is the bug.
  void (*spoil)(const Problem&, std::span<const Buffer> outputs);
};

// The bug of this name, or null.
const Bug* find_bug(std::string_view name);

}  // namespace assay::planted
