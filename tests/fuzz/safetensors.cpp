// A safetensors file: what can be read is written again, and reads back with the same tensors.
#include "fixtures/safetensors.h"

#include <algorithm>
#include <stdexcept>

#include "tests/fuzz/readers.h"

void assay::fuzz::safetensors(std::string_view bytes) {
  namespace st = assay::safetensors;
  const auto file = st::parse(std::as_bytes(std::span(bytes)), "fuzz");
  if (!file) return;
  const auto written = st::encode(file->tensors(), file->metadata());
  if (!written) throw std::logic_error("not written: " + written.error().text());
  const auto again = st::parse(*written, "again");
  if (!again) throw std::logic_error("not read back: " + again.error().text());
  for (const st::Tensor& t : file->tensors()) {
    const st::Tensor* same = again->find(t.name);
    if (!same || same->dtype != t.dtype || same->shape != t.shape ||
        !std::ranges::equal(same->bytes, t.bytes))
      throw std::logic_error("another tensor is read back: " + t.name);
  }
}
