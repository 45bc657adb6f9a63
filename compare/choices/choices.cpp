#include "compare/choices/choices.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "compare/choices/values.h"
#include "contract/attention.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay::choices {

using std::string;
using std::string_view;

namespace {

struct Place {
  string_view name, format;
};

// Where the Problem has a format of its own, and which. One place without a name where the whole line has it.
std::vector<Place> formats_of(const Problem& p) {
  if (const Cast* c = p.as<Cast>()) return {{"", info(c->to).name}};
  if (const Adam* a = p.as<Adam>()) return {{"", info(a->parameter).name}};
  if (const ScaleState* s = p.as<ScaleState>()) return {{"", info(s->to).name}};
  if (p.as<Philox>()) return {{"", info(Encoding::u32).name}};
  if (const Attention* a = p.as<Attention>()) return {{"", info(a->slot(AttentionSlot::qkv).format).name}};
  if (const Gemm* g = p.as<Gemm>())
    return {{"a", info(g->a.quantizer.format).name}, {"b", info(g->b.quantizer.format).name}};
  std::vector<Place> out;
  for (Direction d : kDirections)
    if (p.quantizer(d)) out.push_back({name_of(d), info(p.quantizer(d)->format).name});
  return out;
}

void add(GroupChoices& out, string_view key, string_view value) {
  out.choices.push_back(concat({key, "=", value}));
}

void add_sizes(const Problem& p, GroupChoices& out) {
  if (const Gemm* g = p.as<Gemm>()) {
    add(out, "m", size_class(p.x.shape.cols));
    add(out, "n", size_class(p.x.shape.rows));
    add(out, "k", size_class(g->k));
    return;
  }
  add(out, "rows", size_class(p.x.shape.rows));
  add(out, "cols", size_class(p.x.shape.cols));
  add(out, "source", info(p.x.source).name);
}

// Which tensors of a line have elements to compute.
class Work {
 public:
  explicit Work(const Problem& p) : any_(p.x.shape.count() > 0 && noop_of(p) != kOne) {
    if (const Gemm* g = p.as<Gemm>()) operands_ = g->k > 0;
    if (!p.as<Attention>()) return;
    attention_ = true;
    any_ = false;
    for (int64_t b = 0; b < attention_sizes(p).batch; ++b) {
      const bool queries = q_length(p, b) > 0, keys = kv_length(p, b) > 0;
      queries_ |= queries;
      logits_ |= queries && keys;
      any_ |= queries || keys;
    }
  }

  // Whether there is an element about which this key decides, as choices_of names it: "row.round", "a
  // format".
  bool has(string_view key) const {
    const auto of = [&](const auto& list) {
      return std::any_of(std::begin(list), std::end(list),
                         [&](string_view start) { return key.starts_with(start); });
    };
    if (!any_) return false;
    if (!attention_) return operands_ || !(of(kOfOperands) || key == "op" || key == "sum");
    return of(kOfLogits) ? logits_ : of(kOfQueries) ? queries_ : true;
  }

 private:
  static constexpr F32Bits kOne = 0x3F800000;
  static constexpr string_view kOfOperands[] = {"a.", "b.", "a format",
                                                "b format"};  // op and sum are theirs too
  static constexpr string_view kOfLogits[] = {"s.",   "dp.",           "inner format", "mask", "window",
                                              "bias", "softmax_scale", "dropout",      "exp",  "sums"};
  static constexpr string_view kOfQueries[] = {"o.", "do."};
  bool any_, operands_ = true, attention_ = false, logits_ = false, queries_ = false;
};

// Puts the idle choices first, and those without work last.
void order(GroupChoices& own, const Work& work) {
  const auto at = own.choices.begin();
  const auto idle = std::stable_partition(at, own.choices.end(), is_idle);
  const auto working = std::stable_partition(
      idle, own.choices.end(), [&](const string& choice) { return work.has(key_of_choice(choice)); });
  own.idle = static_cast<size_t>(idle - at);
  own.working = static_cast<size_t>(working - at);
}

}  // namespace

std::vector<GroupChoices> choices_of(const Problem& p) {
  const std::vector<Place> places = formats_of(p);
  const std::vector<KeyValue> values = key_values(p);
  const Work work(p);
  std::vector<GroupChoices> out;
  for (const Place& place : places) {
    const string group = concat({op_name(p), " ", place.format});
    if (std::any_of(out.begin(), out.end(), [&](const GroupChoices& g) { return g.group == group; }))
      continue;
    GroupChoices& own = out.emplace_back(GroupChoices{group, {}});
    add_sizes(p, own);
    if (const Attention* a = p.as<Attention>())
      add(own, "inner format", info(a->slot(AttentionSlot::s).format).name);
    for (const Place& other : places)
      if (places.size() > 1) add(own, concat({other.name, " format"}), other.format);
    for (const KeyValue& v : values) {
      const auto at =
          std::find_if(places.begin(), places.end(), [&](const Place& o) { return o.name == v.place; });
      if (!v.place.empty() && at != places.end() && at->format != place.format) continue;
      const KeyInfo* key = key_of(op_name(p), v.name);
      const string value = key ? class_of(*key, v.value, p) : string();
      if (value.empty()) continue;
      add(own, v.place.empty() ? string(v.name) : concat({v.place, ".", v.name}), value);
    }
    order(own, work);
  }
  return out;
}

std::span<const string_view> idle_choices() {
  static constexpr string_view kIdle[] = {"rows=0",
                                          "cols=0",
                                          "m=0",
                                          "n=0",
                                          "k=0",
                                          "groups=all empty",
                                          "kv=0",
                                          "lengths=all empty",
                                          "kv_lengths=all empty",
                                          "noop=1"};
  return kIdle;
}

bool is_idle(string_view choice) {
  const auto all = idle_choices();
  return std::find(all.begin(), all.end(), choice) != all.end();
}

string key_of_choice(const string& choice) { return choice.substr(0, choice.find('=')); }

}  // namespace assay::choices
