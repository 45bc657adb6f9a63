#include "compare/choices/draw.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <tuple>

#include "compare/choices/choices.h"
#include "compare/choices/data.h"
#include "compare/choices/tensors.h"
#include "compare/choices/values.h"
#include "contract/line.h"
#include "contract/planes.h"
#include "contract/words.h"

namespace assay::choices {

using std::string;
using std::string_view;

namespace {

constexpr string_view kSizeKeys[] = {"rows",   "cols",    "m",          "n",      "k",
                                     "groups", "vary",    "capacity",   "batch",  "heads",
                                     "kv",     "lengths", "kv_lengths", "layout", "kv_heads"};
constexpr string_view kFormatKeys[] = {"row format", "col format", "a format", "b format", "inner format"};

template <class List> bool among(const List& list, string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// Of a split and of an attention `vary` and `layout` follow the sizes; other ops do not have these keys.
bool is_size_key(string_view key) { return among(kSizeKeys, key); }

// Of failures. The parser refuses fewer of the lines that have a side of 0, so that they become one in
// twelve.
constexpr size_t kLinesPerEmpty = 16;

bool is_wished(const std::vector<Wish>& wishes, string_view key) {
  return std::any_of(wishes.begin(), wishes.end(), [&](const Wish& w) { return w.first == key; });
}

// Whether the draft's sizes, or the keys drawn with them, are of this class.
bool has_size(const Draft& d, const Wish& wish) {
  const auto& [key, value] = wish;
  const size_t at = key == "rows" || key == "m" ? 0 : key == "cols" || key == "n" ? 1 : 2;
  if (among(std::to_array<string_view>({"rows", "cols", "m", "n", "k"}), key))
    return at < d.sizes.size() && size_class(d.sizes[at]) == value;
  if (key == "capacity") return (d.keys.contains(key) ? "with room" : "exact") == value;
  const auto given = d.keys.find(key);
  if (given == d.keys.end()) return false;
  const KeyInfo* info = key_of(d.op, key);
  return info && class_of(*info, given->second, Problem{}) == value;
}

std::pair<string, string> parts_of(const string& group) {
  const size_t space = group.find(' ');
  return {group.substr(0, space), group.substr(space + 1)};
}

bool has_choices(const Problem& p, const string& group, const std::vector<Wish>& wishes) {
  for (const GroupChoices& own : choices_of(p)) {
    if (own.group != group) continue;
    return std::all_of(wishes.begin(), wishes.end(), [&](const Wish& w) {
      return among(own.choices, concat({w.first, "=", w.second}));
    });
  }
  return false;
}

// Whether the draft's sizes leave elements out.
bool is_empty(const Draft& d) {
  const auto idle = idle_choices();
  return std::any_of(idle.begin(), idle.end(), [&](string_view choice) {
    const Wish wish = wish_of(string(choice));
    return is_size_key(wish.first) && has_size(d, wish);
  });
}

// The most elements that a tensor of the attention may have: of Q, of what is packed beside it, of K repeated
// for each head, of the scores.
int64_t largest_of_attention(const Draft& d) {
  const auto number = [&](const char* key) {
    const auto given = d.keys.find(key);
    return given == d.keys.end() ? int64_t{0} : parse_integer<int64_t>(given->second).value_or(0);
  };
  const int64_t batch = number("batch"), heads = number("heads"), tokens = d.sizes[0], width = d.sizes[1];
  // Without a key for them there are as many as queries, at most all tokens.
  const int64_t kv = d.keys.contains("kv") ? number("kv") : tokens;
  const string& layout = d.keys.at("layout");
  const int64_t with_q = layout.find('3') != string::npos ? 3 : 1,
                with_k = layout.find('2') != string::npos ? 2 : 1;
  const int64_t q = ceil_div(tokens, batch);  // of a sequence; ragged ones are looked at once more, as a line
  return std::max({with_q * tokens * width, with_k * batch * kv * width, batch * heads * q * kv});
}

// Takes literals out of the draft. Whether there were any.
bool drop_data(Draft& d) {
  return std::erase_if(d.keys, [](const auto& key) { return key.second.starts_with("literal:"); }) > 0;
}

}  // namespace

Wish wish_of(const string& choice) {
  const size_t equals = choice.find('=');
  return {choice.substr(0, equals), choice.substr(equals + 1)};
}

std::vector<string> all_groups() {
  std::vector<string> out;
  for (string_view op : kOps) {
    for (const FormatInfo& f : kFormats) out.push_back(concat({op, " ", f.name}));
    for (const EncodingInfo& e : kEncodings) out.push_back(concat({op, " ", e.name}));
  }
  return out;
}

std::optional<Error> cannot_choose(const string& text) {
  for (const string& group : all_groups())
    if (group.find(text) != string::npos) return {};
  return Error{"--only: no op with a format contains '" + text + "'", 0,
               "`assay coverage --list 0` lists them"};
}

Drawer::Drawer(const string& group, int64_t most, Accepts accepts, uint64_t seed, Aim aim)
    : group_(group), most_(most), accepts_(std::move(accepts)), dice_(seed_of(seed, group)) {
  std::tie(op_, format_) = parts_of(group);
  constexpr int kTries = 60;  // of sizes: philox and scale_chain take few of them
  const auto taken = [&](Draft draft) {
    for (int i = 0; i < kTries; ++i) {
      draw_sizes(draft);
      const Result<Problem> p = parse_line(draft.text());
      if (!p || !accepts_(*p)) continue;
      if (aim == Aim::failures && largest_tensor(*p) > most_) continue;
      const bool plainer = draft.second.empty() && i == 0;  // than a pair, or than one found after many tries
      if (plain_.op.empty() || (plainer && plain_.sizes[0] == 0)) plain_ = draft;
      return true;
    }
    return false;
  };
  Words sources = names_of(kEncodings);
  if (op_ == "gemm") sources = {""};
  for (string_view source : sources)
    if (taken({op_, format_, "", string(source), {}, {}})) sources_.emplace_back(source);
  for (const FormatInfo& f : kFormats)
    if (any() && f.name != format_ && taken({op_, format_, string(f.name), sources_.front(), {}, {}}))
      seconds_.emplace_back(f.name);
  aim_ = aim;
}

std::vector<string> Drawer::positional_choices() const {
  std::vector<string> out;
  const bool gemm = op_ == "gemm";
  for (const char* key : gemm ? std::vector{"m", "n", "k"} : std::vector{"rows", "cols"})
    for (string_view size : kSizeClasses) out.push_back(concat({key, "=", size}));
  if (!gemm)
    for (const string& source : sources_) out.push_back("source=" + source);
  std::vector<string> formats = seconds_;
  formats.push_back(format_);
  const std::vector<string_view> keys = op_ == "attention" ? std::vector<string_view>{"inner format"}
                                        : seconds_.empty() ? std::vector<string_view>{}
                                        : gemm             ? std::vector<string_view>{"a format", "b format"}
                                               : std::vector<string_view>{"row format", "col format"};
  for (string_view key : keys)
    for (const string& format : formats) out.push_back(concat({key, "=", format}));
  return out;
}

// ---- sizes ------------------------------------------------------------------------------------------------

int64_t Drawer::draw_size() {
  constexpr int64_t kLarge[] = {129,  160,  200,  256,  260,  384,  513,  640,  1000, 1024,
                                1025, 2048, 2049, 4096, 4097, 5000, 8192, 8193, 16385};
  if (larger_ && dice_.chance(1, 2)) return kLarge[dice_.below(std::size(kLarge))];
  return draw_small_size();
}

// Long rows, long columns, or several tiles in both directions. At random few are long, and few are both.
std::vector<int64_t> Drawer::draw_larger_sizes() {
  constexpr auto kLong = std::to_array<int64_t>({4096, 4097, 5000, 8192, 8193, 16385});
  constexpr auto kTiles = std::to_array<int64_t>({129, 130, 160, 200, 256, 260, 384, 513, 640, 1000, 1024});
  switch (dice_.below(3)) {
    case 0: return {draw_small_size(), dice_.pick(kLong)};
    case 1: return {dice_.pick(kLong), draw_small_size()};
    default: return {dice_.pick(kTiles), dice_.pick(kTiles)};
  }
}

int64_t Drawer::draw_small_size() {
  const auto sizes = sizes_of(kSizeClasses[dice_.below(std::size(kSizeClasses))]);
  const size_t a = dice_.below(sizes.size()), b = dice_.below(sizes.size());
  return sizes[std::min(a, b)];
}

// Members of a split, and the shape that they make.
void Drawer::draw_members(Draft& d) {
  const string vary = dice_.pick(std::to_array<string>({"none", "first", "last", "both"}));
  // More members than a warp (32) or a block of threads handles at once.
  constexpr auto kMany = std::to_array<size_t>({32, 33, 34, 65, 129, 257});
  const bool many = larger_ && dice_.chance(1, 2);
  const size_t count = many ? dice_.pick(kMany) : 1 + dice_.below(4);
  const size_t empty = dice_.below(3);  // 0: most members are empty
  const auto draw = [&] { return many ? draw_small_size() : draw_size(); };
  const int64_t other = draw();
  string groups;
  Shape whole{0, other};
  int64_t elements = 0;
  int64_t size = draw();
  for (size_t i = 0; i < count; ++i) {
    if (vary != "none") size = empty == 0 && dice_.chance(2, 3) ? 0 : draw();
    const int64_t side = vary == "both" ? draw() : other;
    groups += concat({i ? "," : "", std::to_string(size), vary == "both" ? "x" + std::to_string(side) : ""});
    elements += size * side;
    whole.rows += size;
  }
  d.sizes = vary == "both"   ? std::vector<int64_t>{1, elements}
            : vary == "last" ? std::vector<int64_t>{other, whole.rows}
                             : std::vector<int64_t>{whole.rows, other};
  d.keys["vary"] = vary;
  d.keys["groups"] = groups;
  d.keys.erase("capacity");
  if (dice_.chance(1, 4))
    d.keys["capacity"] =
        std::to_string(elements + static_cast<int64_t>(dice_.pick(std::to_array({1, 32, 777}))));
}

// Heads, tokens and sequences of an attention.
void Drawer::draw_heads(Draft& d) {
  const auto number = [&](std::initializer_list<int64_t> list) {
    return list.begin()[dice_.below(list.size())];
  };
  // Heads that share a key: also more than a tile of 4 has, and no multiple of it.
  const int64_t batch = larger_ ? number({1, 2, 5, 33}) : number({1, 1, 2, 3});
  const int64_t groups = number({1, 1, 2, 3, 6}), kv_heads = number({1, 1, 2});
  const int64_t depth = number({1, 3, 8, 16, 32, 64}), q = number({0, 1, 5, 7, 16, 17, 33, 64, 128});
  d.keys["layout"] = dice_.pick(words_of(key_of(op_, "layout")->values, '|'));
  const string& layout = d.keys["layout"];
  const bool ragged = layout.starts_with("t"),
             packed = layout.find('_') == string::npos && layout.find('3') != string::npos;
  const int64_t heads = packed ? kv_heads : kv_heads * groups;
  const int64_t kv = packed || dice_.chance(1, 2) ? q : number({0, 1, 6, 15, 16, 32, 65, 128});
  int64_t tokens = 0;
  string lengths, kv_lengths;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t own =
        dice_.chance(1, 3) ? 0 : static_cast<int64_t>(dice_.below(static_cast<size_t>(q) + 1));
    const int64_t keys = packed ? own : static_cast<int64_t>(dice_.below(static_cast<size_t>(kv) + 1));
    tokens += own;
    lengths += concat({b ? "," : "", std::to_string(own)});
    kv_lengths += concat({b ? "," : "", std::to_string(keys)});
  }
  const bool given = ragged || dice_.chance(1, 3);
  d.sizes = {ragged ? tokens : batch * q, heads * depth};
  d.keys["batch"] = std::to_string(batch);
  d.keys["heads"] = std::to_string(heads);
  d.keys["kv_heads"] = std::to_string(kv_heads);
  d.keys["kv"] = std::to_string(kv);
  d.keys["lengths"] = given ? lengths : "full";
  d.keys["kv_lengths"] = given ? kv_lengths : "full";
  if (ragged && !packed) d.keys.erase("kv");
}

bool Drawer::has_good_sizes(const Draft& d) const {
  const auto& n = d.sizes;
  const int64_t most = larger_ ? kLarger * most_ : most_;
  if (larger_ && n[0] * n[1] <= most_) return false;
  if (aim_ == Aim::failures && is_empty(d) != (empty_ && !larger_)) return false;
  if (aim_ == Aim::failures && op_ == "attention" && largest_of_attention(d) > most) return false;
  return op_ == "gemm" ? n[0] * n[1] <= most && n[0] * n[2] <= most && n[1] * n[2] <= most &&
                             n[0] * n[1] * n[2] <= 16 * most
                       : n[0] * n[1] <= most;
}

void Drawer::draw_sizes(Draft& d) {
  const int tries = aim_ == Aim::failures ? 400 : 100;
  for (int i = 0; i < tries; ++i) {
    if (op_ == "split") draw_members(d);
    else if (op_ == "attention") draw_heads(d);
    else if (op_ == "gemm") d.sizes = {draw_size(), draw_size(), draw_size()};
    else d.sizes = larger_ ? draw_larger_sizes() : std::vector{draw_size(), draw_size()};
    if (op_ == "philox") d.sizes[1] = 4;
    if (op_ == "scale_chain" && format_ == "nvfp4" && dice_.chance(3, 4)) d.sizes[1] = 2;
    if (has_good_sizes(d)) return;
  }
  d.sizes = std::vector<int64_t>(op_ == "gemm" ? 3 : 2, 1);
}

void Drawer::fill(Draft& d) {
  for (int i = 0; i < 100 && is_empty(d); ++i) draw_sizes(d);
  d.keys.erase("noop");
}

bool Drawer::draw_sizes_for(Draft& d, const std::vector<Wish>& wishes) {
  const auto wished = [&](const Wish& w) { return !is_size_key(w.first) || has_size(d, w); };
  for (int i = 0; i < 400; ++i) {
    draw_sizes(d);
    if (std::all_of(wishes.begin(), wishes.end(), wished)) return true;
  }
  return false;
}

// ---- keys -------------------------------------------------------------------------------------------------

bool Drawer::put_key(Draft& d, const Wish& wish) {
  const auto& [word, value] = wish;
  const KeyInfo* key = key_of(op_, word.substr(word.find('.') + 1));
  if (!key) return false;
  for (const ValueClass& c : classes_of(*key))
    if (c.name == value) return d.keys[word] = dice_.pick(c.values), true;
  return false;
}

bool Drawer::put(Draft& d, const std::vector<Wish>& wishes) {
  bool sizes = false;
  for (const Wish& w : wishes) {
    const auto& [key, value] = w;
    if (is_size_key(key)) sizes = true;
    else if (key == "source") d.source = value;
    else if (key == "inner format") d.second = value;
    else if (among(kFormatKeys, key)) {
      const bool first = key == "row format" || key == "a format";
      (first ? d.format : d.second) = value;
      if (value != format_) (first ? d.second : d.format) = format_;  // one of the two is the group's own
      if (d.second.empty()) d.second = format_;
    } else if (!put_key(d, w)) return false;
  }
  return !sizes || std::all_of(wishes.begin(), wishes.end(), [&](const Wish& w) {
    return !is_size_key(w.first) || has_size(d, w);
  }) || draw_sizes_for(d, wishes);
}

bool Drawer::wanted(const Problem& p) const {
  return accepts_(p) && (aim_ == Aim::pairs || largest_tensor(p) <= (larger_ ? kLarger * most_ : most_));
}

bool Drawer::repair(Draft& d, const string& culprit, const std::vector<Wish>& wishes) {
  if (is_wished(wishes, culprit)) return false;
  if (!culprit.empty() && !is_size_key(culprit)) return d.keys.erase(culprit) > 0;
  std::vector<string> others;
  for (const auto& [key, value] : d.keys)
    if (!is_wished(wishes, key) && !is_size_key(key)) others.push_back(key);
  const bool source = !is_wished(wishes, "source") && sources_.size() > 1;
  switch (dice_.below(4)) {
    case 0:
      if (source) return d.source = dice_.pick(sources_), true;
      [[fallthrough]];
    case 1: return draw_sizes_for(d, wishes);
    default:
      if (others.empty()) return draw_sizes_for(d, wishes);
      d.keys.erase(dice_.pick(others));
      return true;
  }
}

std::optional<Drawn> Drawer::settle(Draft d, const std::vector<Wish>& wishes) {
  constexpr int kTries = 12;  // of changes whose effect is not known
  for (int i = 0; i < kTries;) {
    Result<Problem> p = parse_line(d.text());
    if (p && !data_fit(*p) && drop_data(d)) continue;
    if (p && wanted(*p)) {
      if (!has_choices(*p, group_, wishes)) return {};
      return Drawn{std::move(d), std::move(*p)};
    }
    const string culprit = p ? string() : d.key_at(p.error().column);
    if (!repair(d, culprit, wishes)) return {};
    if (culprit.empty() || is_size_key(culprit)) ++i;  // else a key is gone, and there are not many
  }
  return {};
}

// Most fills of a line that looks for failures are those whose values lie at borders.
string Drawer::draw_value(const KeyInfo& key) {
  static const std::vector<string> kBorders = {"ties",     "ties",           "edges",     "edges",
                                               "denormal", "amax_edges",     "nonfinite", "amax_edges",
                                               "outliers", "negative_zeros", "nonfinite"};
  if (aim_ == Aim::failures && key.name == "fill" && dice_.chance(3, 4)) return dice_.pick(kBorders);
  return dice_.pick(dice_.pick(classes_of(key)).values);
}

void Drawer::add_keys(Draft& d, const Problem& p, std::set<string>& decided, size_t eighths) {
  for (const KeyValue& v : key_values(p)) {
    const string word = v.place.empty() ? string(v.name) : concat({v.place, ".", v.name});
    if (is_size_key(word) || !decided.insert(word).second) continue;
    const KeyInfo* key = key_of(op_, v.name);
    if (!key || classes_of(*key).empty()) continue;
    if (v.name == "seed") d.keys[word] = std::to_string(dice_.below(1000));
    else if (dice_.chance(aim_ == Aim::failures && v.name == "fill" ? 7 : eighths, 8))
      d.keys[word] = draw_value(*key);
  }
}

std::optional<Drawn> Drawer::line() {
  empty_ = aim_ == Aim::failures && dice_.chance(1, kLinesPerEmpty);
  Draft d{op_, format_, "", dice_.pick(sources_), {}, {}};
  if (!seconds_.empty() && dice_.chance(1, 2)) {
    d.second = dice_.pick(seconds_);
    if (op_ != "attention" && dice_.chance(1, 2)) std::swap(d.format, d.second);
  }
  draw_sizes(d);
  std::optional<Drawn> out = settle(std::move(d), {});
  std::set<string> decided;
  const size_t eighths = dice_.pick(std::to_array<size_t>({1, 2, 4, 7}));
  for (int round = 0; out && round < 3; ++round) {  // a key may make others apply
    Draft longer = out->draft;
    add_keys(longer, out->problem, decided, eighths);
    if (auto next = settle(std::move(longer), {})) out = std::move(next);
  }
  if (out && aim_ == Aim::failures) name_fill(*out);
  return out;
}

// Where a fill was refused beside other keys, or was not drawn, another one often takes its place.
void Drawer::name_fill(Drawn& drawn) {
  for (const KeyValue& v : key_values(drawn.problem)) {
    const KeyInfo* key = v.name == "fill" ? key_of(op_, v.name) : nullptr;
    if (!key || v.value != "normal" || !dice_.chance(1, 2)) continue;
    Draft d = drawn.draft;
    d.keys[v.place.empty() ? string(v.name) : concat({v.place, ".", v.name})] = draw_value(*key);
    Result<Problem> p = parse_line(d.text());
    if (p && wanted(*p)) drawn = {std::move(d), std::move(*p)};
  }
}

std::optional<Drawn> Drawer::with(Draft draft, const std::vector<Wish>& wishes,
                                  const std::vector<Wish>& also) {
  if (!put(draft, wishes)) return {};
  std::optional<Drawn> out = settle(std::move(draft), wishes);
  std::vector<Wish> kept = wishes;
  if (out && !also.empty()) add(*out, kept, also);
  return out;
}

// Half by half, so that one wish that is refused costs few of the others.
void Drawer::add(Drawn& drawn, std::vector<Wish>& kept, std::span<const Wish> also) {
  std::vector<Wish> all = kept;
  all.insert(all.end(), also.begin(), also.end());
  Draft longer = drawn.draft;
  if (put(longer, all)) {
    Result<Problem> p = parse_line(longer.text());
    if (p && accepts_(*p) && has_choices(*p, group_, kept)) {
      drawn = {std::move(longer), std::move(*p)};
      kept = std::move(all);
      return;
    }
  }
  if (also.size() == 1) return;
  add(drawn, kept, also.first(also.size() / 2));
  add(drawn, kept, also.subspan(also.size() / 2));
}

std::optional<Drawn> Drawer::larger(const Draft& draft) {
  Draft d = draft;
  larger_ = true;
  draw_sizes(d);
  Result<Problem> p = parse_line(d.text());
  if (p && !data_fit(*p) && drop_data(d)) p = parse_line(d.text());
  const bool good = p && p->x.shape.count() > most_ && wanted(*p);
  larger_ = false;
  if (!good) return {};
  return Drawn{std::move(d), std::move(*p)};
}

std::optional<Drawn> Drawer::changed(const Draft& draft, size_t steps) {
  std::optional<Drawn> out;
  for (; steps > 0; --steps)
    if (auto next = changed(out ? out->draft : draft)) out = std::move(next);
  return out;
}

std::optional<Drawn> Drawer::changed(const Draft& draft) {
  Draft d = draft;
  empty_ = aim_ == Aim::failures && dice_.chance(1, kLinesPerEmpty);
  const Result<Problem> p = parse_line(d.text());
  if (!p) return {};
  const std::vector<KeyValue> values = key_values(*p);
  const size_t what = dice_.below(8);
  if (what == 0) draw_sizes(d);
  else if (what == 1) d.source = dice_.pick(sources_);
  else if (what == 2) d.keys["seed"] = std::to_string(dice_.below(1000));
  else if (!values.empty()) {
    const KeyValue& v = dice_.pick(values);
    const KeyInfo* key = key_of(op_, v.name);
    if (!key || classes_of(*key).empty()) return {};
    d.keys.erase(string(v.name));
    d.keys[v.place.empty() ? string(v.name) : concat({v.place, ".", v.name})] = draw_value(*key);
  }
  return settle(std::move(d), {});
}

}  // namespace assay::choices
