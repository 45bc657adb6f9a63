// Witness records of storages: each record's `given` builds a storage over counting bytes, one call is made,
// and what can be seen afterwards is the `then`.
#include <algorithm>
#include <cstring>
#include <functional>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "training/formats/formats.h"
#include "training/formats/hybrid.h"
#include "training/formats/parts.h"
#include "training/formats/shapes.h"
#include "training/formats/storage.h"

namespace assay {

namespace {

using namespace training;
using std::string;

// Reading `given`.

Dims shape_in(const Given& given) {
  return given.has("shape") ? given.at("shape", "an array of integers").dims() : Dims{256, 384};
}
bool tn_only(const Given& given) {
  return !given.has("arch") || given.word("arch", {"TN_only", "non_TN"}) == "TN_only";
}
std::string_view directions(const Given& given, std::string_view key) {
  return given.word(key, {"rc", "r", "c", ""});
}

// Kinds of storages: quantizers by the records' names.

struct Kind {
  std::string_view name;
  QuantizerPtr (*make)();
};
template <bool two_dimensional, bool row_scaled> QuantizerPtr nvfp4() {
  auto q = std::make_shared<NVFP4Quantizer>();
  q->with_2d_quantization = two_dimensional;
  q->row_scaled_nvfp4 = row_scaled;
  return q;
}
const Kind kKinds[] = {
    {"CS", [] { return QuantizerPtr(std::make_shared<Float8CurrentScalingQuantizer>()); }},
    {"MX", [] { return QuantizerPtr(std::make_shared<MXFP8Quantizer>()); }},
    {"BLK1", [] { return QuantizerPtr(std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 1)); }},
    {"BLK2", [] { return QuantizerPtr(std::make_shared<Float8BlockQuantizer>(Encoding::e4m3, 2)); }},
    {"ID", [] { return QuantizerPtr(std::make_shared<IdentityQuantizer>()); }},
    {"FP4", nvfp4<false, false>},
    {"FP4_2D", nvfp4<true, false>},
    {"FP4_RS", nvfp4<false, true>},
};

bool is_hybrid(std::string_view kind) { return kind.starts_with("H("); }
string row_kind(std::string_view kind) { return string(kind.substr(2, kind.find('|') - 2)); }
string col_kind(std::string_view kind) {
  return string(kind.substr(kind.find('|') + 1, kind.size() - kind.find('|') - 2));
}

QuantizerPtr quantizer_of(std::string_view kind) {
  if (!is_hybrid(kind)) return row_called(kKinds, kind, "a kind of storage")->make();
  return std::make_shared<HybridQuantizer>(quantizer_of(row_kind(kind)), quantizer_of(col_kind(kind)));
}

// "MX", or "H(MX|FP4)".
std::string_view kind_of(const Given& given, std::string_view key = "kind") {
  const Given kind = given.at(key, "a kind of storage");
  const std::string_view text = kind.text();
  if (!is_hybrid(text)) kind.row(kKinds);
  else if (text.find('|') == text.npos || !text.ends_with(')') || is_hybrid(row_kind(text)) ||
           is_hybrid(col_kind(text)))
    kind.refuse("H(rows|columns) of two kinds");
  else quantizer_of(text);
  return text;
}

// Counting bytes without zeros, another sequence for another start; a lone float, which tensors share, is the
// same for all.
ArrayPtr counted(const Dims& shape, DType dtype, unsigned start) {
  const ArrayPtr out = zeros(shape, dtype);
  const auto bytes = out->bytes();
  if (dtype == DType::float32)
    for (size_t i = 0; i < bytes.size() / 4; ++i) {
      const float value = shape.size() == 1 ? 0.5f : static_cast<float>(i % 8191 + start);
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    }
  else
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i + start) % 251 + 1);
  return out;
}

std::shared_ptr<Storage> empty_storage(std::string_view kind) {
  if (kind == "CS") return std::make_shared<Float8Storage>(true);
  if (kind == "MX") return std::make_shared<MXFP8Storage>();
  if (kind == "ID") return std::make_shared<IdentityStorage>();
  if (kind.starts_with("BLK")) {
    auto out = std::make_shared<Float8BlockwiseStorage>();
    out->is_2d = kind == "BLK2";
    return out;
  }
  auto out = std::make_shared<NVFP4Storage>();
  out->row_scaled = kind == "FP4_RS";
  return out;
}

ArrayPtr& buffer(Storage& s, std::string_view name) {
  std::vector<std::string_view> known;
  const std::vector<Field> fields = s.fields();
  for (const Field& f : fields) {
    if (f.name == name) return *f.slot;
    known.push_back(f.name);
  }
  refuse_word(string(s.class_name()) + "'s buffers", name, known);
}

// A storage of `kind` with the buffers of the directions in `present` ("rc", "r", "c", ""), the light class
// over bfloat16.
StoragePtr build(std::string_view kind, const Dims& shape, std::string_view present, bool tn = true,
                 unsigned start = 0) {
  const Usages usages{present.find('r') != string::npos, present.find('c') != string::npos};
  const QuantizerPtr quantizer = quantizer_of(kind);
  if (is_hybrid(kind)) {
    auto out = std::make_shared<HybridStorage>(
        usages.rowwise ? build(row_kind(kind), shape, "r", tn, start) : nullptr,
        usages.columnwise ? build(col_kind(kind), shape, "c", tn, start) : nullptr, quantizer,
        DType::bfloat16);
    out->is_tensor = false;
    return out;
  }
  const StoragePtr out = empty_storage(kind);
  out->keep(quantizer);
  out->dtype = DType::bfloat16;
  out->is_tensor = false;
  const auto fill = [&](const Dims& of, Usages wanted) {
    for (const BufferShape& b : allocated(*quantizer, of, wanted, DType::bfloat16, true))
      buffer(*out, b.name) = counted(b.shape, b.dtype, start);
  };
  if (kind == "ID") {
    if (usages.rowwise || usages.columnwise) fill(shape, usages);
    return out;
  }
  fill(shape, {usages.rowwise, kind.starts_with("FP4") ? false : usages.columnwise});
  if (kind.starts_with("FP4") &&
      usages.columnwise) {  // columns are two-dimensional, as the original's C++ allocates them
    const Shape matrix = flattened(shape);
    fill({matrix.rows, matrix.cols}, {false, true});
  }
  if (auto* fp8 = dynamic_cast<Float8Storage*>(out.get())) {
    fp8->tn_only = tn;
    fp8->transpose_invalid = !fp8->transpose;
  }
  return out;
}
StoragePtr build(const Given& given) {
  return build(kind_of(given), shape_in(given), directions(given, "present"), tn_only(given));
}
Float8Storage& fp8_of(const StoragePtr& s, const Given& given) {
  if (auto* fp8 = dynamic_cast<Float8Storage*>(s.get())) return *fp8;
  given.at("kind", "a kind of storage").refuse("CS, which alone has a transpose");
}

// Writing `then`.

json::Value with(json::Value object, std::string_view key, json::Value value) {
  object.set(key, std::move(value));
  return object;
}
json::Value array_json(const ArrayPtr& a) {
  return a ? json::object({{"shape", shown(a->shape)}, {"dtype", name_of(a->dtype)}}) : json::Value();
}

json::Value record(const StoragePtr& s) {
  if (!s) return {};
  if (const auto* h = dynamic_cast<const HybridStorage*>(s.get()))
    return json::object({{"_rowwise_storage", record(h->rowwise_storage)},
                         {"_columnwise_storage", record(h->columnwise_storage)}});
  json::Value out = json::object({{"class", s->class_name()}});
  for (const Field& f : s->fields()) out.set(f.name, array_json(*f.slot));
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(s.get()))
    out.set("_transpose_invalid", fp8->transpose_invalid);
  return out;
}

// An error with the words of its message that the records look for.
json::Value failed_with_words(const SemanticError& e) {
  return failed(e, {"rowwise", "columnwise", "row-wise", "column-wise", "transpose", "128"});
}
json::Value usages_json(Usages u) {
  return json::object({{"rowwise", u.rowwise}, {"columnwise", u.columnwise}});
}
json::Value shapes_json(const std::vector<ArrayPtr>& arrays) {
  return list_of(arrays, [](const ArrayPtr& a) { return shape_of(a); });
}

// Groups.

json::Value specs(const Given& given) {
  const QuantizerPtr q = quantizer_of(kind_of(given));
  const Dims shape = shape_in(given);
  if (given.has("helper")) {
    given.word("helper", {"scale and column shapes"});
    return json::object(
        {{"row_scale", outcome([&] { return shown(scale_shape(*q, shape, Direction::row)); })},
         {"col_scale", outcome([&] { return shown(scale_shape(*q, shape, Direction::col)); })},
         {"col_data", outcome([&] { return shown(columnwise_shape(*q, shape)); })}});
  }
  const Usages usages = given.usages("usages");
  return outcome([&] {
    json::Value out = json::object();
    for (const BufferShape& b : allocated(*q, shape, usages, DType::bfloat16, tn_only(given)))
      out.set(b.name, json::object({{"shape", shown(b.shape)}, {"dtype", name_of(b.dtype)}}));
    return out;
  });
}

json::Value usage(const Given& given) {
  const StoragePtr s = build(given);
  const bool damaged = given.has("missing_buffer");
  if (damaged) buffer(*s, given.text("missing_buffer")) = nullptr;
  if (given.flag("transpose_flagged_invalid", false)) fp8_of(s, given).transpose_invalid = true;
  const auto [row, col] = given.at("request", "a pair of true, false or null").request();
  json::Value result = "ok";
  try {
    s->update_usage(row, col);
  } catch (const SemanticError& e) {
    result = damaged ? failed(e) : failed_with_words(e);
  }
  json::Value out = json::object({{"result", result}, {"after", record(s)}});
  if (!damaged) out.set("get_usages", outcome([&] { return usages_json(s->get_usages()); }));
  return out;
}

json::Value usages(const Given& given) {
  const StoragePtr s = build(given);
  json::Value out = json::object({{"size", outcome([&] { return shown(s->size()); })}});
  if (!is_hybrid(kind_of(given)))
    return with(std::move(out), "get_usages", outcome([&] { return usages_json(s->get_usages()); }));
  out.set("device", outcome([&] { return json::Value(s->device()); }));
  return with(std::move(out), "data_tensors", outcome([&] { return shapes_json(s->get_data_tensors()); }));
}

json::Value synthesis(const Given& given) {
  const std::string_view kind = kind_of(given);
  const StoragePtr s = build(kind, shape_in(given), "r", tn_only(given));
  if (given.has("quantizer")) {
    if (!given.at("quantizer", "").is_null()) given.at("quantizer", "").refuse("null");
    s->quantizer = nullptr;
  }
  const auto [row, col] = given.has("request")
                              ? given.at("request", "").request()
                              : std::pair<std::optional<bool>, std::optional<bool>>(true, true);
  try {
    s->update_usage(row, col);
  } catch (const SemanticError& e) {
    return failed(e);
  }
  json::Value out = json::object({{"after", record(s)}});
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(s.get())) {
    if (given.has("request")) return with(std::move(out), "size", outcome([&] { return shown(s->size()); }));
    return with(std::move(out), "payload_is_transpose",
                fp8->data && fp8->transpose && equal_bytes(*front_to_last(fp8->transpose), *fp8->data));
  }
  if (col != true) given.at("request", "").refuse("a request for the columns, which are to be made");
  if (const auto* fp4 = dynamic_cast<const NVFP4Storage*>(s.get())) {
    out.set("col_amax_equals_row_amax", equal_bytes(*fp4->amax_columnwise, *fp4->amax_rowwise));
    return with(std::move(out), "col_amax_is_other_object", fp4->amax_columnwise != fp4->amax_rowwise);
  }
  if (kind != "BLK2")
    given.at("kind", "").refuse("a kind whose missing direction is made from the other: CS, BLK2 or FP4_2D");
  const auto& block = dynamic_cast<const Float8BlockwiseStorage&>(*s);
  const Shape matrix = flattened(shape_in(given));
  const int64_t rows = ceil_div(matrix.rows, 128), cols = ceil_div(matrix.cols, 128);
  const auto real = [](const ArrayPtr& a, int64_t r, int64_t c) { return slice(slice(a, 0, 0, r), 1, 0, c); };
  out.set("payload_is_transpose", equal_bytes(*front_to_last(block.columnwise_data), *block.rowwise_data));
  const ArrayPtr turned_scales = swapped(real(block.columnwise_scale_inv, cols, rows)),
                 scales = real(block.rowwise_scale_inv, rows, cols);
  return with(std::move(out), "scale_unpadded_is_transpose", equal_bytes(*turned_scales, *scales));
}

json::Value hybrid_construct(const Given& given, Subject& subject) {
  const Given parent = given.at("quantizer", "hybrid, the kind of a plain quantizer, or null");
  static constexpr std::string_view kNoQuantizer[] = {"nothing", "number"},
                                    kPlain[] = {"plain", "not hybrid", "plain quantizer"};
  const auto is = [&](const auto& words) {
    return std::find(std::begin(words), std::end(words), parent.text()) != std::end(words);
  };
  const QuantizerPtr q = parent.is_null() || is(kNoQuantizer) ? nullptr
                         : parent.text() == "hybrid"          ? quantizer_of("H(MX|FP4)")
                         : is(kPlain)                         ? quantizer_of("MX")
                                                              : parent.row(kKinds).make();
  try {
    HybridStorage s(nullptr, nullptr, q);
    Session session(subject);
    return json::object({{"stores_copy", s.quantizer != q && s.quantizer->class_name() == q->class_name()},
                         {"nominal_dtype", name_of(s.dtype)},
                         {"get_usages", outcome([&] { return usages_json(s.get_usages()); })},
                         {"dequantize", outcome([&] { return shape_of(s.dequantize(session)); })},
                         {"size", outcome([&] { return shown(s.size()); })}});
  } catch (const SemanticError& e) {
    return failed(e);
  }
}

json::Value construct(const Given& given) {
  const std::string_view kind = kind_of(given);
  if (given.has("e4m3_max")) {
    NVFP4Storage s;
    s.set_four_over_six(given.flag("use_4over6", false), static_cast<int>(given.number("e4m3_max")));
    return json::object({{"stored_e4m3_max", s.e4m3_max}});
  }
  if (given.has("nominal_dtype_given")) {  // none: the default of the class
    const StoragePtr s = kind == "ID" ? std::make_shared<IdentityStorage>(counted({4, 8}, DType::bfloat16, 0))
                                      : empty_storage(kind);
    json::Value out = json::object({{"nominal_dtype", name_of(s->dtype)}});
    if (const auto* fp8 = dynamic_cast<const Float8Storage*>(s.get()))
      out.set("_transpose_invalid", fp8->transpose_invalid);
    return out;
  }
  const QuantizerPtr q = quantizer_of(kind);
  const StoragePtr s = build(kind, {256, 384}, "rc");
  s->keep(q);
  return json::object(
      {{"stores_quantizer_copy", s->quantizer != q && s->quantizer->class_name() == q->class_name()},
       {"nominal_dtype", name_of(s->dtype)}});
}

json::Value save(const Given& given) {
  const StoragePtr s = build(given);
  std::vector<std::pair<string, ArrayPtr>> before;
  for (const Field& f : s->fields()) before.emplace_back(f.name, *f.slot);
  Saved saved = s->prepare_for_saving();
  json::Value order = json::array(), left = json::array();
  for (const ArrayPtr& a : saved) {
    const auto at =
        std::find_if(before.begin(), before.end(), [&](const auto& b) { return a && b.second == a; });
    order.push(at == before.end() ? json::Value() : json::Value(at->first));
  }
  bool emptied_itself = true;
  for (const Field& f : s->fields())
    if (*f.slot) left.push(f.name), emptied_itself = false;
  const ArrayPtr extra = counted({1}, DType::uint8, 0);
  saved.push_back(extra);
  const size_t tail = s->restore_from_saved(saved, 0);
  const std::vector<Field> after = s->fields();
  const auto alike = [](const Field& a, const auto& b) { return a.name == b.first && *a.slot == b.second; };
  const bool same = std::equal(after.begin(), after.end(), before.begin(), before.end(), alike);
  return json::object({{"order", order},
                       {"object_is_self", emptied_itself},
                       {"buffers_left_in_object", left},
                       {"restored_all_same_objects", same},
                       {"unconsumed_tail", saved.size() - tail},
                       {"tail_is_extra", tail < saved.size() && saved[tail] == extra}});
}

json::Value fsdp(const Given& given) {
  const StoragePtr s = build(given);
  if (given.flag("invalid", false)) fp8_of(s, given).transpose_invalid = true;
  if (given.flag("swz", false)) {
    auto* blocks = dynamic_cast<BlockScaledStorage*>(s.get());
    if (!blocks) given.at("kind", "").refuse("a kind with block scales, which alone can be swizzled");
    blocks->with_gemm_swizzled_scales = true;
  }
  json::Value out =
      json::object({{"fields", outcome([&] { return names_as_json(s->fsdp_buffer_fields()); })}});
  if (given.flag("storage_level", false)) return out;
  return with(std::move(out), "extract",
              outcome(
                  [&] {
                    const Extracted e = s->fsdp_extract_buffers();
                    json::Value buffers = json::array(), same = json::array();
                    for (const ArrayPtr& a : e.buffers) {
                      buffers.push(array_json(a));
                      json::Value name;
                      for (const Field& f : s->fields())
                        if (a && *f.slot == a) name = f.name;
                      same.push(name);
                    }
                    return json::object({{"buffers", buffers}, {"same_object_as", same}, {"meta", e.meta}});
                  },
                  failed_with_words));
}

// The elements of a scale buffer that belong to real blocks.
Shape real_scales(std::string_view kind, std::string_view name, Shape matrix) {
  const bool col = name == "_columnwise_scale_inv";
  if (kind == "MX")
    return col ? Shape{ceil_div(matrix.rows, 32), matrix.cols}
               : Shape{matrix.rows, ceil_div(matrix.cols, 32)};
  const Shape tiles{ceil_div(matrix.rows, 128), ceil_div(matrix.cols, 128)};
  return col ? Shape{tiles.cols, tiles.rows} : tiles;
}
bool is_block_scale(std::string_view name) { return name.ends_with("wise_scale_inv"); }
ArrayPtr corner(const ArrayPtr& a, Shape s) { return slice(slice(a, 0, 0, s.rows), 1, 0, s.cols); }

// Shard `i` of `n` of `whole`, cut along the rows, its padding of scales full of 255. Kinds that no gather
// supports keep bytes of their own.
StoragePtr shard(std::string_view kind, const Dims& shape, std::string_view present, Storage& whole,
                 int64_t i, int64_t n) {
  Dims part = shape;
  part[0] /= n;
  const StoragePtr out = build(kind, part, present);
  const Shape matrix = flattened(part);
  if (kind == "BLK1" || kind.starts_with("FP4") || (kind == "BLK2" && matrix.rows % 128 != 0)) return out;
  for (const Field& f : out->fields()) {
    if (!*f.slot || f.name == "_scale_inv") continue;
    const ArrayPtr& from = buffer(whole, f.name);
    const bool last = f.name == "_transpose" ||
                      (kind == "BLK2" &&
                       f.name.starts_with("_columnwise"));  // rows of the tensor run along the last dimension
    if (!is_block_scale(f.name)) {
      const size_t dim = last ? from->shape.size() - 1 : 0;
      *f.slot = contiguous(slice(from, dim, i * part[0], (i + 1) * part[0]));
      continue;
    }
    const Shape real = real_scales(kind, f.name, matrix);
    const int64_t step = last ? real.cols : real.rows;
    const auto bytes = (*f.slot)->bytes();
    std::fill(bytes.begin(), bytes.end(), std::byte{255});
    const ArrayPtr cut = slice(from, last ? 1 : 0, i * step, (i + 1) * step);
    copy_into(*corner(cut, real), *corner(*f.slot, real));
  }
  return out;
}

bool all_zero(const ArrayPtr& a) {
  const ArrayPtr flat = contiguous(a);
  return std::all_of(flat->bytes().begin(), flat->bytes().end(),
                     [](std::byte b) { return b == std::byte{0}; });
}

json::Value compared(std::string_view kind, const Field& f, const ArrayPtr& whole, Shape matrix) {
  const ArrayPtr& got = *f.slot;
  const bool same_shape = got->shape == whole->shape, scale = is_block_scale(f.name);
  const Shape real = scale ? real_scales(kind, f.name, matrix) : Shape{};
  const bool equal = same_shape && (scale ? equal_bytes(*corner(got, real), *corner(whole, real))
                                          : equal_bytes(*got, *whole));
  json::Value out =
      json::object({{"shape", shape_of(got)}, {"shape_equal", same_shape}, {"real_part_equal", equal}});
  if (!scale) return out;
  const ArrayPtr rest = clone(got), zero = zeros({real.rows, real.cols}, got->dtype);
  copy_into(*zero, *corner(rest, real));
  out.set("rest_all_zero", all_zero(rest));
  return with(std::move(out), "added_rows_all_zero", all_zero(slice(got, 0, real.rows, got->shape[0])));
}

json::Value fsdp_roundtrip(const Given& given) {
  const std::string_view kind = kind_of(given), present = directions(given, "present");
  const Dims shape = shape_in(given);
  const int64_t n = given.number("shards", 1, 64);
  if (shape.empty() || shape[0] % n != 0 || kind.starts_with("H("))
    given.at("shards", "an integer").refuse("shards of one kind that divide its rows");
  const StoragePtr whole = build(kind, shape, present), target = build(kind, shape, present, true, 77);
  return outcome(
      [&] {
        std::vector<Extracted> parts;
        for (int64_t i = 0; i < n; ++i)
          parts.push_back(shard(kind, shape, present, *whole, i, n)->fsdp_extract_buffers());
        std::vector<ArrayPtr> gathered;
        for (size_t b = 0; b < parts[0].buffers.size(); ++b) {
          std::vector<ArrayPtr> alike;
          for (const Extracted& e : parts) {
            if (!e.buffers[b])
              given.at("present", "").refuse("the directions that a shard of this kind sends");
            alike.push_back(e.buffers[b]);
          }
          gathered.push_back(concatenate(alike));
        }
        target->fsdp_assign_gathered(gathered, parts[0].meta);
        json::Value after = json::object();
        for (const Field& f : target->fields())
          if (*f.slot && f.name != "_scale_inv")
            after.set(f.name, compared(kind, f, buffer(*whole, f.name), flattened(shape)));
        json::Value out = json::object({{"gathered", shapes_json(gathered)}, {"after", after}});
        if (const auto* fp8 = dynamic_cast<const Float8Storage*>(target.get()))
          out.set("_transpose_invalid", fp8->transpose_invalid);
        return out;
      },
      failed_with_words);
}

json::Value fsdp_assign(const Given& given) {
  const std::string_view kind = kind_of(given);
  const StoragePtr s = build(kind,
                             kind == "CS"              ? Dims{4, 6}
                             : kind.starts_with("BLK") ? Dims{256, 160}
                                                       : Dims{32, 32},
                             "rc");
  return outcome([&] {
    std::vector<ArrayPtr> gathered;
    json::Value meta = json::object();
    if (given.has("gathered")) {
      meta = given.at("meta", "an object").value();
      for (const Given& a : given.items("gathered", "an array of buffers, {shape, dtype}, or null"))
        gathered.push_back(a.is_null() ? nullptr
                                       : counted(a.at("shape", "an array of integers").dims(),
                                                 a.at("dtype", "a dtype").dtype(), 9));
    } else {  // what the class itself would send
      const Extracted own = s->fsdp_extract_buffers();
      gathered = own.buffers, meta = own.meta;
    }
    s->fsdp_assign_gathered(gathered, meta);
    return record(s);
  });
}

json::Value workspace(const Given& given) {
  const StoragePtr s = build(given);
  const QuantizerPtr q = quantizer_of(kind_of(given));
  const auto [row, col] = given.at("wanted_usages", "a pair of true, false or null").request();
  q->set_usage(row, col);
  return json::object({{"ok", workspace_valid(*s, *q, tn_only(given))}});
}

json::Value clear(const Given& given) {
  const StoragePtr s = build(given);
  s->clear();
  json::Value left = json::object();
  for (const Field& f : s->fields())
    if (*f.slot) left.set(f.name, (*f.slot)->count());
  json::Value out = json::object({{"elements_left", left}});
  if (const auto* fp8 = dynamic_cast<const Float8Storage*>(s.get()))
    out.set("_transpose_invalid", fp8->transpose_invalid);
  return with(std::move(out), "second_clear", outcome([&] { return s->clear(), json::Value(); }));
}

json::Value copy_from_storage(const Given& given) {
  const bool detailed = given.has("dst_present");
  const Dims shape = {256, 384};
  const StoragePtr to =
      build(kind_of(given, "dst"), shape, detailed ? directions(given, "dst_present") : "rc");
  const StoragePtr from =
      build(kind_of(given, "src"), shape, detailed ? directions(given, "src_present") : "rc", true, 100);
  return outcome([&] {
    std::vector<std::pair<Field, ArrayPtr>> before;
    for (const Field& f : to->fields())
      if (*f.slot) before.emplace_back(f, clone(*f.slot));
    to->copy_from_storage(*from);
    if (!detailed) return json::Value();
    json::Value out = json::object();
    for (const auto& [f, was] : before)
      out.set(f.name, equal_bytes(**f.slot, *was) ? "unchanged" : "changed");
    return out;
  });
}

json::Value sizes(const Given& given) {
  const StoragePtr s = build(given);
  if (shape_in(given).empty()) given.at("shape", "").refuse("a shape with a first and a last dimension");
  return json::object({{"size", outcome([&] { return shown(s->size()); })},
                       {"last", outcome([&] { return json::Value(s->size().back()); })},
                       {"first", outcome([&] { return json::Value(s->size().front()); })},
                       {"data_tensors", outcome([&] { return shapes_json(s->get_data_tensors()); })}});
}

json::Value data_tensors(const Given& given) {
  if (!given.has("rowwise")) {
    const StoragePtr s = build(kind_of(given), {4, 8}, "rc");
    return json::object({{"both", shapes_json(s->get_data_tensors())},
                         {"col", shape_of(s->get_data_tensors(false, true).at(0))},
                         {"none", outcome([&] { return shapes_json(s->get_data_tensors(false, false)); })}});
  }
  const StoragePtr s = build(kind_of(given), shape_in(given), "rc");
  return outcome([&] {
    const std::vector<ArrayPtr> got =
        s->get_data_tensors(given.flag("rowwise", false), given.flag("columnwise", false));
    return got.size() == 1 ? shape_of(got[0]) : shapes_json(got);
  });
}

json::Value view_of(const Given& given) {
  const StoragePtr s = build(given);
  const Dims wanted = given.at("view", "an array of integers").dims(-1);
  return outcome([&] { return record(s->view(wanted)); });
}

struct Group {
  std::string_view name;
  json::Value (*then)(const Given& given);
};
constexpr Group kGroups[] = {
    {"specs", specs},
    {"usage", usage},
    {"usages", usages},
    {"synthesis", synthesis},
    {"construct", construct},
    {"save", save},
    {"fsdp", fsdp},
    {"fsdp_roundtrip", fsdp_roundtrip},
    {"fsdp_assign", fsdp_assign},
    {"workspace", workspace},
    {"clear", clear},
    {"copy_from_storage", copy_from_storage},
    {"sizes", sizes},
    {"data_tensors", data_tensors},
    {"view", view_of},
};

}  // namespace

json::Value witness_storages(std::string_view group, const Given& given, Subject& subject) {
  if (group == "hybrid_construct") return hybrid_construct(given, subject);
  for (const Group& g : kGroups)
    if (g.name == group) return g.then(given);
  throw std::invalid_argument("expected a group of storages, found " + string(group));
}

}  // namespace assay
