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

// Whether a line has gradients of keys and values, which have elements also where there is no query.
bool has_key_gradients(const Problem& p) {
  const Attention* a = p.as<Attention>();
  return a && a->backward && p.x.shape.cols > 0 && attention_sizes(p).kv_rows() > 0;
}

}  // namespace

std::vector<GroupChoices> choices_of(const Problem& p) {
  const std::vector<Place> places = formats_of(p);
  const std::vector<KeyValue> values = key_values(p);
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
    const auto computes = std::stable_partition(own.choices.begin(), own.choices.end(), is_idle);
    if (!has_key_gradients(p)) own.idle = static_cast<size_t>(computes - own.choices.begin());
  }
  return out;
}

bool is_idle(const string& choice) {
  constexpr string_view kIdle[] = {"rows=0", "cols=0", "m=0", "n=0", "noop=1"};
  return std::find(std::begin(kIdle), std::end(kIdle), choice) != std::end(kIdle);
}

string key_of_choice(const string& choice) { return choice.substr(0, choice.find('=')); }

}  // namespace assay::choices
