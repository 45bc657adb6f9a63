// A checkpoint of weights, as GGUF, as safetensors, or as the index of such: its layers, as cases beside
// themselves.
#include "compare/packs/checkpoint.h"

#include "compare/packs/checkpoint_layers.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/scratch.h"

namespace {

using namespace assay;

// GGUF is read where it lies: behind the end of a mapped file stand zeros up to the next page, which hide
// what reads them.
Result<Checkpoint> read(std::string_view bytes) {
  if (!bytes.starts_with("GGUF"))
    return read_checkpoint(
        fuzz::written(bytes.starts_with('{') ? "fuzz.safetensors.index.json" : "fuzz.safetensors", bytes));
  Checkpoint out;
  if (const auto error = read_gguf(std::as_bytes(std::span(bytes)), "fuzz.gguf", out)) return *error;
  return out;
}

}  // namespace

void assay::fuzz::checkpoint(std::string_view bytes) {
  const auto checkpoint = read(bytes);
  if (!checkpoint) return;
  for (CheckpointLayer& layer : layers_of(*checkpoint)) {
    if (layer.format.empty()) continue;
    case_of_layer(layer, *checkpoint, *checkpoint);
    // The original stands beside the codes under another name, as in a pair of files.
    layer.original = "original";
    for (const int64_t rows : {0, 128}) case_of_layer(layer, *checkpoint, *checkpoint, rows);
  }
}
