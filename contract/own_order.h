// Which lines kernels compute in a way of their own, so that their bits are not pinned.
#pragma once
#include <optional>
#include <string>

#include "contract/problem.h"

namespace assay {

// By an order of their own (N20.19).
inline std::optional<std::string> own_order(const Problem& p) {
  const Attention* a = p.as<Attention>();
  if (!a || a->sums == AttentionSums::ascending) return {};
  return "sums=online: tile by tile with a running maximum";
}

// On a GPU also by an instruction of its own, within 2 last places of what other machines compute (N20.8).
inline std::optional<std::string> own_on_gpu(const Problem& p) {
  if (const std::optional<std::string> why = own_order(p)) return why;
  const Attention* a = p.as<Attention>();
  if (!a || a->exp == ExpRule::exact) return {};
  return "exp=ex2: by the instruction of the GPU";
}

}  // namespace assay
