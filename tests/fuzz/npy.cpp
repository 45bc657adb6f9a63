// An NPY file, with the types that its producer may not have known: what is read has as many bytes as its
// shape.
#include "fixtures/npy.h"

#include <optional>
#include <stdexcept>

#include "tests/fuzz/readers.h"

void assay::fuzz::npy(std::string_view bytes) {
  using safetensors::Dtype;
  for (const std::optional<Dtype> as :
       {std::optional<Dtype>(), std::optional(Dtype::BF16), std::optional(Dtype::F8_E4M3)}) {
    const auto array = assay::npy::parse(std::as_bytes(std::span(bytes)), "fuzz", as);
    if (!array) continue;
    auto size = static_cast<uint64_t>(safetensors::bits(array->dtype) / 8);
    for (const int64_t n : array->shape) size *= static_cast<uint64_t>(n);
    if (array->bytes.size() != size || size > bytes.size())
      throw std::logic_error("an array of another size than its shape");
  }
}
