// The values of an attention's own keys.
#include <algorithm>
#include <string>

#include "contract/f32_text.h"
#include "contract/line/key_kinds.h"
#include "contract/line/key_values.h"
#include "contract/words.h"

namespace assay::line {

namespace {

std::string lengths_text(const std::vector<int64_t>& lengths) {
  std::string out;
  for (int64_t n : lengths) out += concat({out.empty() ? "" : ",", std::to_string(n)});
  return out.empty() ? std::string(kAllTokens) : out;
}
MaybeError read_lengths(std::string_view text, std::vector<int64_t>& lengths) {
  lengths.clear();
  if (text == kAllTokens) return {};
  lengths = integers_of(text, ',', kMaxElements);
  if (lengths.empty())
    return fail(concat({"expected the tokens of each sequence, or full, found '", text, "'"}),
                "lengths=5,3,8");
  return {};
}

}  // namespace

std::string get_softmax_scale(const Problem& p, Direction) {
  const auto& scale = p.as<Attention>()->softmax_scale;
  return scale ? f32_text(*scale) : std::string(kAuto);
}
MaybeError set_softmax_scale(Problem& p, Direction, std::string_view text) {
  auto& scale = p.as<Attention>()->softmax_scale;
  if (text == kAuto) return scale.reset(), MaybeError{};
  return read_f32(text, scale.emplace());
}

std::string get_lengths(const Problem& p, Direction) { return lengths_text(p.as<Attention>()->lengths); }
MaybeError set_lengths(Problem& p, Direction, std::string_view text) {
  return read_lengths(text, p.as<Attention>()->lengths);
}
std::string get_kv_lengths(const Problem& p, Direction) {
  return lengths_text(p.as<Attention>()->kv_lengths);
}
MaybeError set_kv_lengths(Problem& p, Direction, std::string_view text) {
  return read_lengths(text, p.as<Attention>()->kv_lengths);
}
std::string default_kv_lengths(const Problem& p, Direction) {
  return lengths_text(p.as<Attention>()->lengths);
}

std::string get_window(const Problem& p, Direction) {
  const Attention& a = *p.as<Attention>();
  if (a.window_left < 0 && a.window_right < 0) return std::string(kAnyKey);
  return concat({std::to_string(a.window_left), ",", std::to_string(a.window_right)});
}
MaybeError set_window(Problem& p, Direction, std::string_view text) {
  Attention& a = *p.as<Attention>();
  a.window_left = a.window_right = -1;
  if (text == kAnyKey) return {};
  const Words words = words_of(text, ',');
  if (words.size() == 2) {
    const auto left = parse_integer<int64_t>(words[0]), right = parse_integer<int64_t>(words[1]);
    if (left && right && *left >= -1 && *right >= -1 && *left <= kMaxElements && *right <= kMaxElements)
      return a.window_left = *left, a.window_right = *right, MaybeError{};
  }
  return fail(concat({"expected any, or the numbers of keys before and after, found '", text, "'"}),
              "window=128,0; -1 for all");
}

std::string default_kv(const Problem& p, Direction) {
  const Attention& a = *p.as<Attention>();
  return std::to_string(a.batch > 0 ? p.x.shape.rows / a.batch : 0);
}
std::string default_kv_heads(const Problem& p, Direction) { return std::to_string(p.as<Attention>()->heads); }

}  // namespace assay::line
