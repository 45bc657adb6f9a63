// A checkpoint of weights, as GGUF, as safetensors, or as the index of such: its layers, as cases beside
// themselves.
#include "compare/packs/checkpoint.h"

#include "compare/packs/checkpoint_layers.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/scratch.h"

void assay::fuzz::checkpoint(std::string_view bytes) {
  const char* name = bytes.starts_with("GGUF") ? "fuzz.gguf"
                     : bytes.starts_with('{')  ? "fuzz.safetensors.index.json"
                                               : "fuzz.safetensors";
  const auto read = read_checkpoint(written(name, bytes));
  if (!read) return;
  for (CheckpointLayer& layer : layers_of(*read)) {
    if (layer.format.empty()) continue;
    case_of_layer(layer, *read, *read);
    // The original stands beside the codes under another name, as in a pair of files.
    layer.original = "original";
    for (const int64_t rows : {0, 128}) case_of_layer(layer, *read, *read, rows);
  }
}
