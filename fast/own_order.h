// Which lines the kernels compute in an order of their own, so that their bits are not pinned (N20.19).
#pragma once
#include <optional>
#include <string>

#include "contract/problem.h"

namespace assay {

inline std::optional<std::string> own_order(const Problem& p) {
  const Attention* a = p.as<Attention>();
  if (!a || a->sums == AttentionSums::ascending) return {};
  return "sums=online: tile by tile with a running maximum";
}

}  // namespace assay
