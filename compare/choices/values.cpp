#include "compare/choices/values.h"

#include <algorithm>
#include <map>
#include <utility>

#include "contract/f32_text.h"
#include "contract/flavours.h"
#include "contract/words.h"

namespace assay::choices {

using std::string;
using std::string_view;

namespace {

// Values for those parts of a key's help that describe a form ("float", "<row>,<col>") and are not values
// themselves.
const std::map<string_view, std::vector<string>>& forms() {
  static const std::map<string_view, std::vector<string>> table = {
      {"float",
       {"0", "1", "0.5", "2", "0.0078125", "0x7F000000", "0.3", "3", "447.9", "1e-06", "100000", "0x7F7FFFFF",
        "-1", "-3", "1e-40", "0x00000001", "inf", "nan"}},
      {"16 bits", {"0x0000", "0xFFFF", "0x1234", "0xD7E8"}},
      {"<row>,<col>", {"0,0", "3,5", "0,32", "128,0"}},
      {"<seed>,<offset>,<member>", {"5,0,0", "5,7,0", "5,0,3", "18446744073709551615,4294967297,131071"}},
      {"1..2^31-1", {"1", "2", "1000", "2147483647"}},
      {"1..16", {"1", "7", "10", "16"}},
      {"-126..126", {"0", "1", "-3", "126", "-126"}},
      {"0..2^64-1", {"0", "1", "9", "12345"}},
      {"<before>,<after>", {"3,1", "0,0", "-1,0", "2,-1"}},
      {"<name>", {}},
      {"literal:<hex>", {}},
      {"pack:<file>#<tensor>@<sha256>", {}},
      {"<tokens>,...", {}},
      {"<size>,... or <rows>x<cols>,...", {}},
      {"0..2^31", {}},
      {"1..2^31", {}},
  };
  return table;
}

std::vector<string> samples_of(const KeyInfo& key) {
  std::vector<string> out;
  const bool whole = forms().contains(key.values);
  for (string_view word : whole ? Words{key.values} : words_of(key.values, '|')) {
    const auto form = forms().find(word);
    if (form == forms().end()) out.emplace_back(word);
    else out.insert(out.end(), form->second.begin(), form->second.end());
  }
  if (key.name == "flavour")
    for (const FlavourInfo& f : flavours()) out.emplace_back(f.name);
  return out;
}

string number_class(F32Bits bits) {
  const F32Bits magnitude = bits & 0x7FFFFFFF, exponent = magnitude >> 23, fraction = magnitude & 0x7FFFFF;
  if (magnitude > 0x7F800000) return "nan";
  if (magnitude == 0x7F800000) return "inf";
  if (magnitude == 0) return "0";
  if (bits != magnitude) return "negative";
  if (exponent == 0) return "subnormal";
  if (fraction == 0) return exponent == 127 ? "1" : "2^n";
  return "number";
}

string integer_class(int64_t n) { return n < 0 ? "negative" : n == 0 ? "0" : n == 1 ? "1" : "more"; }

// Of groups=32,0,64 and lengths=5,0: how many there are, and whether some of them are empty.
string list_class(string_view value) {
  size_t empty = 0, count = 0;
  for (string_view word : words_of(value, ',')) {
    ++count;
    empty += word == "0" || word.starts_with("0x") || word.ends_with("x0");
  }
  if (empty == count) return "all empty";
  if (empty) return "with an empty one";
  return count == 1 ? "one" : "several";
}

string draws_class(string_view value) {
  const Words parts = words_of(value, ',');
  if (parts.size() != 3) return {};
  return parts[1] == "0"   ? parts[2] == "0" ? "seed" : "member"
         : parts[2] == "0" ? "offset"
                           : "offset and member";
}

string window_class(string_view value) {
  const Words parts = words_of(value, ',');
  if (parts.size() != 2) return string(value);
  const bool before = parts[0] != "-1", after = parts[1] != "-1";
  return before && after ? "both sides" : before ? "before" : after ? "after" : "any";
}

}  // namespace

const KeyInfo* key_of(string_view op, string_view name) {
  for (const KeyInfo& key : line_keys())
    if (key.name == name && std::find(key.ops.begin(), key.ops.end(), op) != key.ops.end()) return &key;
  return nullptr;
}

const std::vector<ValueClass>& classes_of(const KeyInfo& key) {
  static std::map<const KeyInfo*, std::vector<ValueClass>> table;
  if (const auto known = table.find(&key); known != table.end()) return known->second;
  std::vector<ValueClass> out;
  for (const string& value : samples_of(key)) {
    const string name = class_of(key, value, Problem{});
    auto own = std::find_if(out.begin(), out.end(), [&](const ValueClass& c) { return c.name == name; });
    if (own == out.end()) own = out.insert(out.end(), ValueClass{name, {}});
    own->values.push_back(value);
  }
  return table.emplace(&key, std::move(out)).first->second;
}

string class_of(const KeyInfo& key, string_view value, const Problem& p) {
  if (key.name == "seed") return {};
  if (key.name == "flavour") return value == "assay" || value == "te" ? string(value) : "a library's";
  if (key.name == "fill" && value.find(':') != string_view::npos) return {};  // data
  if (key.name == "capacity") return p.as<Split>()->capacity == p.x.shape.count() ? "exact" : "with room";
  if (contains(words_of(key.values, '|'), value)) return string(value);
  if (key.name == "groups" || key.name == "lengths" || key.name == "kv_lengths") return list_class(value);
  if (key.name == "rng") return draws_class(value);
  if (key.name == "at") return value == "0,0" ? "0,0" : "moved";
  if (key.name == "window") return window_class(value);
  if (key.name == "sign_mask") return value == "0x0000" ? "none" : value == "0xFFFF" ? "all" : "some";
  if (key.values.ends_with("float"))
    if (const Result<F32Bits> bits = parse_f32(value)) return number_class(*bits);
  if (const auto n = parse_integer<int64_t>(value)) return integer_class(*n);
  return string(value);
}

string_view size_class(int64_t size) {
  if (size <= 1) return size == 1 ? "1" : "0";
  return size % 128 == 0 ? "128n" : size % 32 == 0 ? "32n" : size % 16 == 0 ? "16n" : "tail";
}

std::span<const int64_t> sizes_of(string_view size_class) {
  static constexpr int64_t zero[] = {0}, one[] = {1},
                           tail[] = {2, 3, 4, 7, 13, 15, 17, 31, 33, 63, 65, 97, 127, 129, 131, 257},
                           sixteens[] = {16, 48, 80, 112, 144}, halves[] = {32, 64, 96, 160, 192, 288},
                           wholes[] = {128, 256, 384, 512};
  const std::pair<string_view, std::span<const int64_t>> table[] = {
      {"0", zero}, {"1", one}, {"tail", tail}, {"16n", sixteens}, {"32n", halves}, {"128n", wholes}};
  for (const auto& [name, sizes] : table)
    if (name == size_class) return sizes;
  return one;
}

}  // namespace assay::choices
