#include "compare/packs/token_records.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "compare/arithmetic/places.h"
#include "contract/line.h"
#include "contract/planes.h"

namespace assay {

namespace {

constexpr const char* kRecord = "row.record";
constexpr const char* kRotary = "rotary";
constexpr int64_t kTile = 128, kScaleBytes = 4, kValueBytes = 2;

Error refused(const PackCase& c, const std::string& expected, const std::string& found) {
  return {fmt::format("{}/{}: expected {}, found {}", c.id, kRecord, expected, found), 0,
          "docs/flavours.md, KV caches"};
}

// Which bytes of a record are what.
struct RecordForm {
  int64_t tokens = 0, codes = 0, scales = 0, values = 0;
  int64_t bytes() const { return codes + kScaleBytes * scales + kValueBytes * values; }
};

Result<RecordForm> form_of(const PackCase& c, const Problem& line, const safetensors::Tensor& records) {
  const bool blocks = line.as<Quantize>() && line.row && !line.col &&
                      line.row->format == FormatId::fp8_block && !is_square(line.row->block) &&
                      line.row->element == Encoding::e4m3;
  if (!blocks || line.x.shape.cols % kTile != 0 || line.x.shape.rows == 0)
    return refused(c, "a line 'quantize fp8_block <tokens>x512 bf16 dir=row flavour=vllm.kv_cache_mla'",
                   c.line);
  RecordForm form{line.x.shape.rows, line.x.shape.cols, line.x.shape.cols / kTile, 0};
  const int64_t size = static_cast<int64_t>(records.bytes.size()), each = size / form.tokens;
  form.values = std::max<int64_t>(0, each - form.bytes()) / kValueBytes;
  if (safetensors::bits(records.dtype) != 8 || form.bytes() * form.tokens != size)
    return refused(c,
                   fmt::format("{} records of {} codes, {} scales and values of 16 bits, in bytes",
                               form.tokens, form.codes, form.scales),
                   fmt::format("{} bytes of {}", size, safetensors::name(records.dtype)));
  return form;
}

// Columns of the records, one row after another.
std::vector<std::byte> columns(const safetensors::Tensor& records, const RecordForm& form, int64_t first,
                               int64_t count) {
  std::vector<std::byte> out;
  for (int64_t row = 0; row < form.tokens; ++row) {
    const auto from =
        records.bytes.subspan(static_cast<size_t>(row * form.bytes() + first), static_cast<size_t>(count));
    out.insert(out.end(), from.begin(), from.end());
  }
  return out;
}

PackPlane plane_of(const std::string& name, safetensors::Dtype dtype, Shape shape,
                   const std::vector<std::byte>& bytes) {
  return {name, safetensors::Tensor{name, dtype, {shape.rows, shape.cols}, bytes}, {}};
}

// The scales stand in the record token after token, in their plane as the format lays it out (N6.1).
std::vector<std::byte> scales_of(const safetensors::Tensor& records, const RecordForm& form,
                                 const Plane& plane) {
  const std::vector<std::byte> from = columns(records, form, form.codes, kScaleBytes * form.scales);
  std::vector<std::byte> out(plane.bytes());
  for (int64_t row = 0; row < form.tokens; ++row)
    for (int64_t tile = 0; tile < form.scales; ++tile) {
      const bool by_tile = plane.logical == Shape{form.scales, form.tokens};
      const int64_t to = by_tile ? index_of(plane, tile, row) : index_of(plane, row, tile);
      std::memcpy(out.data() + to * kScaleBytes, from.data() + (row * form.scales + tile) * kScaleBytes,
                  kScaleBytes);
    }
  return out;
}

}  // namespace

std::optional<Error> unpack_records(PackCase& c, std::vector<PackCase>& more,
                                    std::deque<std::vector<std::byte>>& bytes) {
  const PackPlane* const record = c.find(kRecord);
  if (!record || !record->tensor) return {};
  const Result<Problem> line = parse_line(c.line);
  if (!line) return {};  // the line is refused where it is judged
  const safetensors::Tensor records = *record->tensor;
  const auto form = form_of(c, *line, records);
  if (!form) return form.error();
  const std::vector<Plane> planes = output_planes(*line);
  const Plane& scale =
      *std::find_if(planes.begin(), planes.end(), [](const Plane& p) { return p.name == "row.scale_inv"; });

  std::vector<PackPlane> kept;
  std::optional<PackPlane> rotary;
  for (PackPlane& p : c.planes) {
    if (p.name == kRotary) rotary = std::move(p);
    else if (p.name != kRecord) kept.push_back(std::move(p));
  }
  c.planes = std::move(kept);
  bytes.push_back(columns(records, *form, 0, form->codes));
  c.planes.push_back(
      plane_of("row.data", safetensors::Dtype::F8_E4M3, {form->tokens, form->codes}, bytes.back()));
  bytes.push_back(scales_of(records, *form, scale));
  c.planes.push_back(plane_of(scale.name, safetensors::Dtype::F32, scale.padded, bytes.back()));
  if (!rotary || form->values == 0) return {};

  PackCase values;
  values.id = c.id + "_" + kRotary;
  values.line = fmt::format("quantize identity {}x{} {} dir=row", form->tokens, form->values,
                            info(line->x.source).name);
  rotary->name = "x";
  bytes.push_back(
      columns(records, *form, form->bytes() - kValueBytes * form->values, kValueBytes * form->values));
  values.planes = {plane_of("row.data", safetensors::Dtype::U16, {form->tokens, form->values}, bytes.back()),
                   std::move(*rotary)};
  more.push_back(std::move(values));
  return {};
}

}  // namespace assay
