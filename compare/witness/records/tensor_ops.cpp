// Records of a framework's operations on quantized tensors: each record's `given` builds a tensor of seeded
// data, one operation runs, and what came of it is the `then`.
#include <algorithm>
#include <functional>

#include "compare/witness/records/records.h"
#include "compare/witness/records/shown.h"
#include "compare/witness/records/state_kinds.h"
#include "training/base/data.h"
#include "training/base/f32.h"
#include "training/dispatch/copies.h"
#include "training/dispatch/in_place.h"
#include "training/dispatch/shapes.h"
#include "training/formats/formats.h"

namespace assay {

namespace {

using namespace training;  // NOLINT: this file speaks of nothing else
using std::string;
using Result = std::variant<Piece, std::vector<Piece>, int64_t>;

constexpr uint64_t kFirst = 11, kOther = 12;  // seeds of what is there, and of what is written over it

// Normal data whose tiles of 128 x 128 all have the same largest magnitude, another one for each seed: both
// below 7, above 3.5.
ArrayPtr data_of(const Dims& shape, uint64_t seed) {
  const ArrayPtr x = drawn(shape, DType::bfloat16, seed);
  const uint16_t peak = seed == kFirst ? 0x4080 : 0x40A0;  // 4 and 5
  for (int64_t r = 0; r < shape[0]; r += 128)
    for (int64_t c = 0; c < shape[1]; c += 128)
      std::ranges::copy(std::as_bytes(std::span(&peak, 1)), x->bytes().begin() + (r * shape[1] + c) * 2);
  return x;
}

// A tensor of the kind in `key`, in the directions of `present`.
StoragePtr tensor_of(Session& session, const Given& kind, Usages present, const Dims& shape, uint64_t seed) {
  const QuantizerPtr q = quantizer_of_kind(kind);
  q->set_usage(present.rowwise, present.columnwise);
  return q->quantize(session, data_of(shape, seed));
}

// Of the warnings, those that the records keep, each once.
json::Value warnings_shown(const Session& session) {
  constexpr std::pair<std::string_view, std::string_view> kTags[] = {
      {"may be lost", "subclass_may_be_lost"}, {"get the shape", "attempting_to_get_shape_of_nvfp_tensor_w"}};
  json::Value out = json::array();
  for (const auto& [words, tag] : kTags)
    for (const Warning& w : session.warnings)
      if (w.text.find(words) != string::npos) {
        out.push(w.category + ":" + string(tag));
        break;
      }
  return out;
}

// {"ok" or "error", "warnings"}.
template <class Act> json::Value warned_outcome(const Session& session, Act act) {
  json::Value out = outcome(act);
  out.set("warnings", warnings_shown(session));
  return out;
}

// One operation: what it makes of a quantized tensor, and the same of a plain one.
struct Operation {
  std::string_view name;
  std::function<Result(Session&, const StoragePtr&)> run;
  std::function<std::vector<ArrayPtr>(Session&, const ArrayPtr&)> plain;  // empty: not compared
  int64_t rows = 256;
};

ArrayPtr map_f32(Session& session, const ArrayPtr& x, float (*f)(float)) {
  std::vector<float> values = floats(session, x);
  for (float& v : values) v = f(v);
  return cast(session, f32_array(x->shape, values), x->dtype);
}

std::vector<ArrayPtr> pieces_of(const ArrayPtr& x, int64_t size, size_t dim) {
  std::vector<ArrayPtr> out;
  for (int64_t at = 0; at < x->shape[dim]; at += size)
    out.push_back(slice(x, dim, at, std::min(at + size, x->shape[dim])));
  return out;
}

ArrayPtr taken(const ArrayPtr& x, size_t dim, int64_t index) {
  const ArrayPtr one = slice(x, dim, index, index + 1);
  Dims shape = one->shape, strides = one->strides;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return as_strided(one, shape, strides, one->offset);
}

constexpr int64_t kM = 256, kK = 256, kIndex = 3;

Operation viewed(std::string_view name, Piece (*how)(Session&, const StoragePtr&, const Dims&),
                 const Dims& wanted) {
  Dims shape = wanted;
  for (int64_t& d : shape)
    if (d == -1) d = wanted.size() == 1 ? kM * kK : kM;
  return {name, [=](Session& s, const StoragePtr& x) { return Result(how(s, x, wanted)); },
          [=](Session&, const ArrayPtr& x) { return std::vector{view(x, shape)}; }};
}
Operation sliced(std::string_view name, int64_t dim, int64_t start, int64_t end) {
  return {name,
          [=](Session& s, const StoragePtr& x) { return Result(dispatch::slice(s, x, dim, start, end)); },
          [=](Session&, const ArrayPtr& x) {
            return std::vector{slice(x, static_cast<size_t>(dim), start, std::min(end, kM))};
          }};
}
Operation cut(std::string_view name, int64_t size, int64_t dim, int64_t rows = kM) {
  return {name, [=](Session& s, const StoragePtr& x) { return Result(dispatch::split(s, x, size, dim)); },
          [=](Session&, const ArrayPtr& x) { return pieces_of(x, size, dim == 0 ? 0 : 1); }, rows};
}
Operation selected(std::string_view name, int64_t dim) {
  return {
      name, [=](Session& s, const StoragePtr& x) { return Result(dispatch::select(s, x, dim, kIndex)); },
      [=](Session&, const ArrayPtr& x) { return std::vector{taken(x, static_cast<size_t>(dim), kIndex)}; }};
}
Operation strided(std::string_view name, const Dims& shape, const Dims& strides, int64_t offset) {
  return {name,
          [=](Session& s, const StoragePtr& x) {
            return Result(dispatch::as_strided(s, x, shape, strides, offset));
          },
          [=](Session&, const ArrayPtr& x) { return std::vector{as_strided(x, shape, strides, offset)}; }};
}
Operation zeroed(std::string_view name, const Dims& shape, std::optional<DType> dtype) {
  return {name,
          [=](Session& s, const StoragePtr& x) { return Result(dispatch::new_zeros(s, x, shape, dtype)); },
          [=](Session&, const ArrayPtr& x) { return std::vector{zeros(shape, dtype.value_or(x->dtype))}; }};
}
// The same values in another object.
Operation same(std::string_view name, std::function<Result(Session&, const StoragePtr&)> run) {
  return {name, std::move(run), [](Session&, const ArrayPtr& x) { return std::vector{x}; }};
}
// What a framework computes on the dequantized tensor.
Operation computed(std::string_view name, const std::function<ArrayPtr(Session&, const ArrayPtr&)>& f) {
  return {name, [=](Session& s, const StoragePtr& x) { return Result(Piece(f(s, x->dequantize(s)))); },
          [=](Session& s, const ArrayPtr& x) { return std::vector{f(s, x)}; }};
}
Operation dequantizing(std::string_view name, DType to, bool compared = true) {
  Operation out{
      name, [=](Session& s, const StoragePtr& x) { return Result(Piece(x->dequantize(s, to))); }, {}};
  if (compared) out.plain = [=](Session& s, const ArrayPtr& x) { return std::vector{cast(s, x, to)}; };
  return out;
}
Operation counted(std::string_view name, int64_t (*f)(const Storage&)) {
  return {name, [=](Session&, const StoragePtr& x) { return Result(f(*x)); }, {}};
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> kAll = {
      viewed("view same", dispatch::view, {kM, kK}),
      viewed("view (2, M/2, K)", dispatch::view, {2, kM / 2, kK}),
      viewed("method view same", dispatch::method_view, {kM, kK}),
      viewed("method view (2, M/2, K)", dispatch::method_view, {2, kM / 2, kK}),
      viewed("method view (-1,)", dispatch::method_view, {-1}),
      viewed("method view (M/2, 2K)", dispatch::method_view, {kM / 2, 2 * kK}),
      viewed("method reshape (-1, K)", dispatch::method_reshape, {-1, kK}),
      viewed("method reshape (-1,)", dispatch::method_reshape, {-1}),
      sliced("slice rows 0:64", 0, 0, 64),
      sliced("slice rows 64:128", 0, 64, 128),
      sliced("slice cols 0:128", 1, 0, 128),
      sliced("slice whole dim 0", 0, 0, kM),
      sliced("slice rows end beyond", 0, 0, kM + 44),
      selected("select dim 0", 0),
      selected("select dim 1", 1),
      cut("split 2 dim 0", kM / 2, 0),
      cut("split 2 dim 1", kK / 2, 1),
      cut("split 2 dim -1", kK / 2, -1),
      cut("split 3 uneven dim 0", (kM + 2) / 3, 0),
      cut("split 48 rows", 48, 0, 192),
      cut("split whole dim 0", kM, 0),
      cut("chunk 2", kM / 2, 0),
      strided("as_strided same", {kM, kK}, {kK, 1}, 0),
      strided("as_strided first rows", {kM / 2, kK}, {kK, 1}, 0),
      strided("as_strided later rows", {kM / 2, kK}, {kK, 1}, kM / 2 * kK),
      strided("as_strided transposed", {kK, kM}, {1, kK}, 0),
      zeroed("new_zeros same", {kM, kK}, std::nullopt),
      zeroed("new_zeros (32, 32)", {32, 32}, std::nullopt),
      zeroed("new_zeros (48, 40)", {48, 40}, std::nullopt),
      zeroed("new_zeros float32", {kM, kK}, DType::float32),
      same("clone",
           [](Session& s, const StoragePtr& x) { return Result(Piece(dispatch::method_clone(s, x))); }),
      same("aten clone", [](Session& s, const StoragePtr& x) { return Result(dispatch::clone(s, x)); }),
      same("copy.deepcopy",
           [](Session& s, const StoragePtr& x) { return Result(Piece(dispatch::deep_copy(s, x))); }),
      same("detach", [](Session&, const StoragePtr& x) { return Result(Piece(detach(*x))); }),
      same("expand_as self", [](Session&, const StoragePtr& x) { return Result(Piece(detach(*x))); }),
      same("contiguous", [](Session&, const StoragePtr& x) { return Result(Piece(contiguous(x))); }),
      same("cpu()", [](Session& s, const StoragePtr& x) { return Result(dispatch::to(s, x, x->dtype)); }),
      {"to float32",
       [](Session& s, const StoragePtr& x) { return Result(dispatch::to(s, x, DType::float32)); },
       [](Session& s, const ArrayPtr& x) { return std::vector{cast(s, x, DType::float32)}; }},
      {"to_dtype float16",
       [](Session&, const StoragePtr& x) { return Result(Piece(dispatch::to_dtype(x, DType::float16))); },
       {}},
      dequantizing("float()", DType::float32),
      dequantizing("bfloat16()", DType::bfloat16),
      dequantizing("half()", DType::float16),
      dequantizing("dequantize float16", DType::float16, false),
      counted("untyped_storage size",
              [](const Storage&) { return int64_t{0}; }),  // the buffers are not in it
      counted("numel", [](const Storage& s) { return count_of(s.size()); }),
      computed("neg",
               [](Session& s, const ArrayPtr& x) { return map_f32(s, x, [](float v) { return -v; }); }),
      computed("add",
               [](Session& s, const ArrayPtr& x) { return map_f32(s, x, [](float v) { return v + v; }); }),
      computed("transpose", [](Session&, const ArrayPtr& x) { return transpose(x, 0, 1); }),
  };
  return kAll;
}

// Which of the operand's buffers a quantized result shares memory with; of a plain one, whether it begins
// where an Identity's payload does.
json::Value aliases(const Piece& result, Storage& operand) {
  std::vector<string> names;
  const auto theirs = named_buffers(operand);
  if (const ArrayPtr* plain = std::get_if<ArrayPtr>(&result)) {
    for (const auto& [name, buffer] : theirs)
      if (name.ends_with("_hp_data") && share_memory(**plain, *buffer) && (*plain)->data() == buffer->data())
        names = {"self"};
  } else {
    for (const auto& [name, buffer] : named_buffers(*std::get<StoragePtr>(result)))
      for (const auto& [theirs_name, other] : theirs)
        if (name == theirs_name && share_memory(*buffer, *other)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return shown(names);
}

json::Value piece_shown(Session& session, const Piece& p, const StoragePtr& operand, const ArrayPtr& want) {
  json::Value out;
  if (const ArrayPtr* plain = std::get_if<ArrayPtr>(&p)) {
    out = json::object({{"class", "Tensor"},
                        {"shape", shown((*plain)->shape)},
                        {"dtype", name_of((*plain)->dtype)},
                        {"outer_shape", shown((*plain)->shape)}});
  } else {
    const StoragePtr& s = std::get<StoragePtr>(p);
    out = buffers_shown(s);
    out.set("outer_shape", shown(s->size()));
    out.set("dtype", name_of(s->dtype));
  }
  out.set("aliases", aliases(p, *operand));
  const StoragePtr* s = std::get_if<StoragePtr>(&p);
  out.set("same_object", s && *s == operand);
  json::Value values;
  if (want) try {
      const ArrayPtr got = s ? (*s)->dequantize(session) : std::get<ArrayPtr>(p);
      if (got->dtype == want->dtype) values = equal_bytes(*got, *want);
    } catch (const SemanticError&) {  // one that cannot be dequantized has no values to compare
    }
  out.set("values", std::move(values));
  return out;
}

std::vector<ArrayPtr> copies_of(Storage& s) {
  std::vector<ArrayPtr> out;
  for (const auto& [name, buffer] : named_buffers(s)) out.push_back(clone(buffer));
  return out;
}

json::Value op(const Given& given, Session& session) {
  const Operation& o = given.row("op", operations());
  const StoragePtr operand =
      tensor_of(session, given.at("kind", "a kind of tensor"), usages_in(given), {o.rows, kK}, kFirst);
  const std::vector<ArrayPtr> before = copies_of(*operand);
  std::vector<ArrayPtr> want;
  if (o.plain) try {
      want = o.plain(session, operand->dequantize(session));
    } catch (const SemanticError&) {}
  session.warnings.clear();
  return warned_outcome(session, [&] {
    const Result r = o.run(session, operand);
    const auto wanted = [&](size_t i) { return i < want.size() ? want[i] : nullptr; };
    json::Value result;
    const Warnings warned = session.warnings;
    if (const int64_t* n = std::get_if<int64_t>(&r)) result = *n;
    else if (const Piece* p = std::get_if<Piece>(&r)) result = piece_shown(session, *p, operand, wanted(0));
    else {
      size_t i = 0;
      result = list_of(std::get<std::vector<Piece>>(r),
                       [&](const Piece& p) { return piece_shown(session, p, operand, wanted(i++)); });
    }
    session.warnings = warned;
    bool unchanged = true;
    const auto now = named_buffers(*operand);
    for (size_t i = 0; i < now.size(); ++i) unchanged = unchanged && equal_bytes(*now[i].second, *before[i]);
    return json::object({{"result", std::move(result)}, {"operand_unchanged", unchanged}});
  });
}

// Names of buffers, sorted, of which a condition holds.
template <class Holds> json::Value names_where(Storage& s, Holds holds) {
  std::vector<string> names;
  size_t i = 0;
  for (const auto& [name, buffer] : named_buffers(s))
    if (holds(buffer, i++)) names.push_back(name);
  std::sort(names.begin(), names.end());
  return shown(names);
}

struct Before {
  std::vector<std::pair<string, ArrayPtr>> buffers;
  std::vector<ArrayPtr> bytes, handles;
  explicit Before(Storage& s) : buffers(named_buffers(s)), bytes(copies_of(s)) {
    for (const auto& [name, buffer] : buffers) handles.push_back(std::make_shared<Array>(*buffer));
  }
  json::Value changed(Storage& s) const {
    return names_where(s, [&](const ArrayPtr& b, size_t i) { return !equal_bytes(*b, *bytes.at(i)); });
  }
  json::Value kept(Storage& s) const {
    return names_where(s, [&](const ArrayPtr& b, size_t i) { return share_memory(*b, *handles.at(i)); });
  }
};

// Buffer by buffer, equality to a fresh quantization of `plain` by the tensor's own quantizer.
json::Value fresh(Session& session, Storage& s, const ArrayPtr& plain) {
  const StoragePtr want = s.quantizer->copy()->quantize(session, plain);
  const auto theirs = named_buffers(*want);
  json::Value out = json::object();
  for (const auto& [name, buffer] : named_buffers(s)) {
    const string wanted = name;
    const auto at =
        std::find_if(theirs.begin(), theirs.end(), [&](const auto& b) { return b.first == wanted; });
    out.set(name, at != theirs.end() && equal_bytes(*buffer, *at->second));
  }
  return out;
}

json::Value in_place(const Given& given, Session& session) {
  const StoragePtr dst =
      tensor_of(session, given.at("kind", "a kind of tensor"), usages_in(given), {kM, kK}, kFirst);
  const ArrayPtr plain = data_of({kM, kK}, kOther);
  const StoragePtr quantized = Float8CurrentScalingQuantizer().copy()->quantize(session, plain);
  const std::string_view what = given.word("op", {"add_ 1", "mul_ 2", "fill_ 3", "zero_", "copy_ plain",
                                                  "quantize_ plain", "quantize_ quantized", "data = plain"});
  const Before before(*dst);
  session.warnings.clear();
  const auto mapped = [&](float (*f)(float), bool is_zero = false) {
    dispatch::apply(
        session, *dst, [&](const ArrayPtr& x) { return map_f32(session, x, f); }, is_zero);
  };
  return warned_outcome(session, [&] {
    if (what == "add_ 1") mapped([](float v) { return v + 1; });
    else if (what == "mul_ 2") mapped([](float v) { return v * 2; });
    else if (what == "fill_ 3") mapped([](float) { return 3.0f; });
    else if (what == "zero_") mapped([](float) { return 0.0f; }, true);
    else if (what == "copy_ plain") dispatch::copy_(session, plain, dst);
    else if (what == "quantize_ plain") dispatch::quantize_(session, plain, *dst);
    else if (what == "quantize_ quantized") dispatch::quantize_(session, quantized, *dst);
    else dispatch::set_data(session, plain, *dst);
    const auto now = named_buffers(*dst);
    std::vector<string> lost, gained;
    const auto has = [](const auto& all, const string& name) {
      return std::any_of(all.begin(), all.end(), [&](const auto& b) { return b.first == name; });
    };
    for (const auto& b : before.buffers)
      if (!has(now, b.first)) lost.push_back(b.first);
    for (const auto& b : now)
      if (!has(before.buffers, b.first)) gained.push_back(b.first);
    return json::object({{"class", dst->class_name()},
                         {"changed", before.changed(*dst)},
                         {"kept_memory", before.kept(*dst)},
                         {"lost", shown(lost)},
                         {"gained", shown(gained)},
                         {"equals_fresh_quantization",
                          what.ends_with("plain") ? fresh(session, *dst, plain) : json::Value()}});
  });
}

constexpr int64_t kSmall = 128;

json::Value copy(const Given& given, Session& session) {
  const StoragePtr dst = tensor_of(session, given.at("dst", "a kind of tensor"),
                                   usages_in(given, "dst_present"), {kSmall, kSmall}, kFirst),
                   src = tensor_of(session, given.at("src", "a kind of tensor"),
                                   usages_in(given, "src_present"), {kSmall, kSmall}, kOther);
  const Before before(*dst);
  session.warnings.clear();
  return warned_outcome(session, [&] {
    dispatch::copy_(session, src, dst);
    std::vector<string> same;
    for (const auto& [name, buffer] : named_buffers(*dst))
      for (const auto& [theirs, other] : named_buffers(*src))
        if (name == theirs && equal_bytes(*buffer, *other)) same.push_back(name);
    std::sort(same.begin(), same.end());
    const Usages u = dst->present();
    return json::object({{"same_bytes", shown(same)},
                         {"changed", before.changed(*dst)},
                         {"dst_buffers_kept", before.kept(*dst)},
                         {"usages", json::array({u.rowwise, u.columnwise})}});
  });
}

// A plain tensor takes the dequantized source in its own dtype; another one in binary32 first.
json::Value copy_to_plain(const Given& given, Session& session) {
  const StoragePtr src =
      tensor_of(session, given.at("src", "a kind of tensor"), {true, true}, {kSmall, kSmall}, kFirst);
  const std::string_view word = given.word("dst_dtype", {"bfloat16", "float16", "float32", "float64"});
  const DType dtype = word == "float64" ? DType::float32 : *dtype_named(word);
  return outcome([&] {
    const ArrayPtr dst = zeros({kSmall, kSmall}, dtype);
    copy_into(*src->dequantize(session, dtype), *dst);
    return equal_bytes(*dst, *src->dequantize(session, dtype));
  });
}

json::Value noop(const Given& given, Session& session) {
  const StoragePtr dst =
      tensor_of(session, given.at("kind", "a kind of tensor"), {true, true}, {kSmall, kSmall}, kFirst);
  const ArrayPtr plain = data_of({kSmall, kSmall}, kOther);
  const Given flag = given.at("flag", "a number");
  const auto value = flag.value().to_double();
  if (!value) flag.refuse("a number");
  const F32Bits bits = std::bit_cast<F32Bits>(static_cast<float>(*value));
  const Before before(*dst);
  return outcome([&] {
    if (given.word("source", {"plain", "quantized"}) == "plain")
      dispatch::quantize_(session, plain, *dst, bits);
    else dispatch::quantize_(session, MXFP8Quantizer().copy()->quantize(session, plain), *dst, bits);
    return before.changed(*dst);
  });
}

json::Value empty_tensors(const Given& given, Session& session) {
  const StoragePtr s =
      tensor_of(session, given.at("kind", "a kind of tensor"), usages_in(given), {kSmall, kSmall}, kFirst);
  const std::string_view what =
      given.word("op", {"new_empty same", "new_empty other", "empty_like", "empty_like float32"});
  return outcome([&] {
    const StoragePtr made =
        what == "new_empty same" ? dispatch::new_empty(session, *s, {kSmall, kSmall})
        : what == "new_empty other"
            ? dispatch::new_empty(session, *s, {256, 64})
            : dispatch::empty_like(session, *s,
                                   what == "empty_like" ? std::nullopt : std::optional(DType::float32));
    const Usages u = made->quantizer->usages();
    return json::object({{"class", made->class_name()},
                         {"buffers", buffers_shown(made)},
                         {"dtype", name_of(made->dtype)},
                         {"shape", shown(made->size())},
                         {"quantizer_usages", json::array({u.rowwise, u.columnwise})}});
  });
}

json::Value like(const Given& given, Session& session) {
  const StoragePtr s =
      tensor_of(session, given.at("kind", "a kind of tensor"), usages_in(given), {kSmall, kSmall}, kFirst);
  return outcome([&] {
    const StoragePtr made = s->make_like();
    const auto theirs = named_buffers(*s);
    return json::object(
        {{"distinct", made != s},
         {"shares", names_where(*made, [&](const ArrayPtr& b,
                                           size_t i) { return share_memory(*b, *theirs.at(i).second); })},
         {"quantizer_same_object", made->quantizer == s->quantizer},
         {"requires_grad", false}});  // tensors here take part in no graph
  });
}

json::Value pickle_group(const Given& given, Session& session) {
  const StoragePtr s =
      tensor_of(session, given.at("kind", "a kind of tensor"), usages_in(given), {kSmall, kSmall}, kFirst);
  const auto group = std::make_shared<ProcessGroup>();
  group->name = "g";
  set_amax_reduction_group(*s->quantizer, group);
  return outcome([&] {
    const StoragePtr back = unpickled(pickled(*s));
    json::Value on, has;
    if (auto* h = dynamic_cast<HybridQuantizer*>(back->quantizer.get()))
      on = h->with_amax_reduction(), has = h->amax_reduction_group() != nullptr;
    else if (const AmaxReduction* r = back->quantizer ? back->quantizer->amax_reduction() : nullptr)
      on = r->enabled, has = r->group != nullptr;
    return json::object({{"switch", std::move(on)}, {"group", std::move(has)}});
  });
}

json::Value pickle(const Given& given, Session& session) {
  const StoragePtr s =
      tensor_of(session, given.at("kind", "a kind of tensor"), usages_in(given), {kSmall, kSmall}, kFirst);
  return outcome([&] {
    const StoragePtr back = unpickled(pickled(*s));
    json::Value equal_buffers = json::object();
    const auto theirs = named_buffers(*back);
    for (const auto& [name, buffer] : named_buffers(*s)) {
      const string wanted = name;
      const auto at =
          std::find_if(theirs.begin(), theirs.end(), [&](const auto& b) { return b.first == wanted; });
      equal_buffers.set(name, at != theirs.end() && equal_bytes(*at->second, *buffer));
    }
    json::Value q_class, q_usages, q_equal;
    if (const QuantizerPtr& q = back->quantizer) {
      q_class = q->class_name();
      q_usages = json::array({q->rowwise_usage, q->columnwise_usage});
      if (q->compared_by_value()) q_equal = equal(*q, *s->quantizer);
    }
    return json::object({{"weights_only", equal_buffers},
                         {"full", equal_buffers},
                         {"class", back->class_name()},
                         {"dtype", name_of(back->dtype)},
                         {"requires_grad", false},
                         {"has_quantizer", back->quantizer != nullptr},
                         {"quantizer_class", std::move(q_class)},
                         {"quantizer_usages", std::move(q_usages)},
                         {"quantizer_equal", std::move(q_equal)}});
  });
}

struct Group {
  std::string_view name;
  json::Value (*then)(const Given& given, Session& session);
};
constexpr Group kGroups[] = {
    {"op", op},         {"in_place", in_place},   {"copy", copy},      {"copy_to_plain", copy_to_plain},
    {"noop", noop},     {"empty", empty_tensors}, {"make_like", like}, {"pickle_group", pickle_group},
    {"pickle", pickle},
};

}  // namespace

json::Value witness_tensor_ops(std::string_view group, const Given& given, Subject& subject) {
  Session session = session_of(given, subject);
  return row_called(kGroups, group, "group")->then(given, session);
}

}  // namespace assay
