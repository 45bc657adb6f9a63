// GGUF, the file form of llama.cpp: little-endian; a header of keys and tensors, then the tensors' bytes.
#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "compare/packs/checkpoint.h"
#include "compare/text/printable.h"

namespace assay {

namespace {

using std::string;

constexpr uint64_t kMostTensors = 1'000'000, kMostKeys = 1'000'000;
constexpr uint64_t kLeastEntryBytes = 24;  // of a tensor without a name and sizes in the table of tensors

// ggml's types that are read: a type, its word, the elements of a block and its bytes.
struct BlockType {
  uint32_t type;
  std::string_view word;
  int64_t elements, bytes;
};
constexpr BlockType kTypes[] = {
    {0, "F32", 1, 4}, {1, "F16", 1, 2}, {30, "BF16", 1, 2}, {39, "MXFP4", 32, 17}, {40, "NVFP4", 64, 36}};

// Reads a header from its beginning; after the first value that is not there everything is zero.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T> T number() {
    T value{};
    if (!take(sizeof value)) return value;
    std::memcpy(&value, bytes_.data() + at_ - sizeof value, sizeof value);
    return value;
  }
  string text() {
    const auto n = number<uint64_t>();
    if (!take(n)) return {};
    return string(reinterpret_cast<const char*>(bytes_.data() + at_ - n), n);
  }
  bool take(uint64_t n) {
    ok_ = ok_ && n <= bytes_.size() - at_;
    if (ok_) at_ += n;
    return ok_;
  }
  bool ok() const { return ok_; }
  size_t at() const { return at_; }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

// Bytes of a value of a key, by type: 8 a string, 9 an array.
constexpr std::array<int, 13> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Steps over a value; keeps the one unsigned number that matters.
bool skip_value(Reader& in, uint32_t type, uint32_t* number) {
  if (type >= kValueBytes.size()) return false;
  if (type == 4 && number) return *number = in.number<uint32_t>(), in.ok();
  if (type == 8) return in.text(), in.ok();
  if (type != 9) return in.take(static_cast<uint64_t>(kValueBytes[type]));
  const auto element = in.number<uint32_t>();
  const auto n = in.number<uint64_t>();
  if (element >= kValueBytes.size() || element == 9) return false;
  if (element != 8) return n <= UINT64_MAX / 8 && in.take(n * static_cast<uint64_t>(kValueBytes[element]));
  for (uint64_t i = 0; i < n && in.ok(); ++i) in.text();
  return in.ok();
}

struct Entry {
  string name;
  std::vector<int64_t> shape;
  uint32_t type = 0;
  uint64_t offset = 0;
};

// One row of the table of tensors. GGUF writes the size that runs fastest first.
bool read_entry(Reader& in, Entry& out) {
  out.name = in.text();
  const auto rank = in.number<uint32_t>();
  if (!in.ok() || rank > 8) return false;
  uint64_t count = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = in.number<uint64_t>();
    // The sizes beside a 0 are bounded too: StoredTensor::count multiplies them in another order.
    if (size > (uint64_t{1} << 40) || (size && count > (uint64_t{1} << 50) / size)) return false;
    count *= std::max<uint64_t>(size, 1);
    out.shape.insert(out.shape.begin(), static_cast<int64_t>(size));
  }
  out.type = in.number<uint32_t>();
  out.offset = in.number<uint64_t>();
  return in.ok();
}

}  // namespace

std::optional<Error> read_gguf(std::span<const std::byte> bytes, const string& path, Checkpoint& out) {
  const auto fail = [&](const string& why) { return Error{printable(path) + ": " + why, 0, ""}; };
  Reader in(bytes);
  const auto magic = in.number<uint32_t>(), version = in.number<uint32_t>();
  if (magic != 0x46554747) return fail("expected a GGUF file, found none");
  if (version != 2 && version != 3)
    return fail(fmt::format("expected GGUF of version 2 or 3, found {}", version));
  const auto tensors = in.number<uint64_t>(), keys = in.number<uint64_t>();
  if (!in.ok() || tensors > kMostTensors || keys > kMostKeys) return fail("the header does not fit the file");
  uint32_t alignment = 32;
  for (uint64_t i = 0; i < keys; ++i) {
    const string key = in.text();
    const auto type = in.number<uint32_t>();
    if (!in.ok() || !skip_value(in, type, key == "general.alignment" ? &alignment : nullptr))
      return fail(fmt::format("key {} of {} does not fit the file", i + 1, keys));
  }
  if (tensors > (bytes.size() - in.at()) / kLeastEntryBytes)
    return fail("the table of tensors does not fit the file");
  std::vector<Entry> entries(tensors);
  for (Entry& e : entries)
    if (!read_entry(in, e)) return fail("the table of tensors does not fit the file");
  if (!alignment || alignment > (1u << 20))
    return fail(fmt::format("expected an alignment, found {}", alignment));
  const size_t begin = (in.at() + alignment - 1) / alignment * alignment;
  for (const Entry& e : entries) {
    StoredTensor t{fmt::format("ggml type {}", e.type), e.shape, {}};
    const auto* type = std::ranges::find(kTypes, e.type, &BlockType::type);
    if (type != std::end(kTypes)) {
      t.word = type->word;
      const int64_t count = t.count();
      if (type->elements > 1 && (t.shape.empty() || t.shape.back() % type->elements))
        return fail(printable(e.name) + ": expected rows of whole blocks");
      const auto size = static_cast<uint64_t>(count / type->elements * type->bytes);
      if (begin > bytes.size() || e.offset > bytes.size() - begin || size > bytes.size() - begin - e.offset)
        return fail(printable(e.name) +
                    ": expected its bytes inside the file, found an offset beyond its end");
      t.bytes = bytes.subspan(begin + e.offset, size);
    }
    out.tensors[hugging_face_name(e.name)] = std::move(t);
  }
  return {};
}

string hugging_face_name(std::string_view gguf) {
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {"attn_q", "self_attn.q_proj"},          {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},          {"attn_output", "self_attn.o_proj"},
      {"ffn_gate", "mlp.gate_proj"},           {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},           {"attn_norm", "input_layernorm"},
      {"ffn_norm", "post_attention_layernorm"}};
  if (gguf == "token_embd.weight") return "model.embed_tokens.weight";
  if (gguf == "output.weight") return "lm_head.weight";
  if (gguf == "output_norm.weight") return "model.norm.weight";
  if (!gguf.starts_with("blk.")) return string(gguf);
  const size_t dot = gguf.find('.', 4), end = dot == gguf.npos ? dot : gguf.find('.', dot + 1);
  if (end == gguf.npos) return string(gguf);
  const std::string_view layer = gguf.substr(4, dot - 4), part = gguf.substr(dot + 1, end - dot - 1);
  for (const auto& [short_name, name] : kParts)
    if (part == short_name) return fmt::format("model.layers.{}.{}{}", layer, name, gguf.substr(end));
  return string(gguf);
}

}  // namespace assay
