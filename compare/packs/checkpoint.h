// Checkpoints of weights as Hugging Face and llama.cpp keep them: a folder of safetensors files with an
// index, one safetensors file, or one GGUF file. Files stay mapped; nothing of a tensor is copied.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "contract/problem.h"
#include "contract/result.h"
#include "fixtures/files.h"
#include "fixtures/safetensors.h"

namespace assay {

// One tensor of a checkpoint. GGUF's MXFP4 and NVFP4 have no word among safetensors' dtypes: their bytes are
// blocks of 17 (32 elements) and of 36 (64).
struct StoredTensor {
  std::string word;            // "BF16", "F8_E4M3", "U8", ...; "MXFP4" and "NVFP4" in GGUF
  std::vector<int64_t> shape;  // row-major: the last size runs fastest
  std::span<const std::byte> bytes;

  int64_t count() const;
  // [product of the leading sizes, last size]; a scalar and an empty tensor have a shape too.
  Shape matrix() const;
};

struct Checkpoint {
  std::string path;
  std::string method;  // config.json's quantization_config.quant_method: "modelopt"; empty: not said
  std::map<std::string, StoredTensor, std::less<>>
      tensors;  // by name; GGUF's under the names of Hugging Face
  std::vector<MappedFile> keep;
  std::vector<safetensors::File> files;

  const StoredTensor* find(std::string_view name) const;
};

// Reads a folder (by its index file, else its one safetensors file), an index file
// (*.safetensors.index.json), a safetensors file or a GGUF file. Errors: pickle files, which run code when
// they are read; a shard that the index names and that is absent, or that lacks a tensor of the index; what
// safetensors::read refuses.
Result<Checkpoint> read_checkpoint(const std::string& path);

// The tensors of a GGUF file. Errors: another version than 2 or 3, a header that does not fit the file, a
// tensor that lies outside it. A type that is not read here keeps its number as the word, and no bytes.
std::optional<Error> read_gguf(std::span<const std::byte> bytes, const std::string& path, Checkpoint& out);

// What Hugging Face calls a weight of GGUF: "blk.3.ffn_down.weight" is "model.layers.3.mlp.down_proj.weight".
// Other names stay as they are.
std::string hugging_face_name(std::string_view gguf);

}  // namespace assay
