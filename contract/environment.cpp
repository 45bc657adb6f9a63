#include <algorithm>
#include <string>

#include "contract/subject.h"
#include "contract/words.h"

namespace assay {

std::string_view name(Architecture a) {
  constexpr std::array<std::string_view, kArchitectures.size()> kNames = {"sm_90a", "sm_100a", "sm_120a"};
  return kNames[static_cast<size_t>(a)];
}

Result<Environment> parse_environment(std::string_view text) {
  Environment env;
  static constexpr std::string_view kKeys[] = {"threads", "order", "poison", "alignment", "arch"};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, end - at);
    const size_t column = at + 1;
    at = end + 1;
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : item.substr(equals + 1);
    auto bad = [&](std::string_view expected) {
      return Error{"expected " + std::string(key) + "=" + std::string(expected) + ", found '" +
                       std::string(item) + "'",
                   column, ""};
    };
    if (key == "threads") {
      auto v = parse_integer<int>(value);
      if (!v || *v < 1 || *v > 1024) return bad("<1..1024>");
      env.threads = *v;
    } else if (key == "order") {
      auto v = value == "forward"   ? std::optional<uint64_t>{Environment::kForward}
               : value == "reverse" ? std::optional<uint64_t>{Environment::kReverse}
                                    : parse_integer<uint64_t>(value);
      if (!v) return bad("forward, reverse or a seed of 2 and up");
      env.order = *v;
    } else if (key == "poison") {
      auto v = parse_integer<uint8_t>(value, 16);
      if (!v) return bad("<two hexadecimal digits>");
      env.poison = *v;
    } else if (key == "alignment") {
      auto v = parse_integer<int>(value);
      if (!v || *v < 1 || *v > 4096 || (*v & (*v - 1)) != 0) return bad("<a power of two up to 4096>");
      env.alignment = *v;
    } else if (key == "arch") {
      const auto* const named = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                             [&](Architecture a) { return name(a) == value; });
      if (named == kArchitectures.end()) return bad("sm_90a, sm_100a or sm_120a");
      env.architecture = *named;
    } else {
      const std::string near = nearest_word(key, kKeys);
      return Error{
          "unknown environment key '" + std::string(key) + "'", column,
          near.empty() ? "keys: threads, order, poison, alignment, arch" : "did you mean '" + near + "'?"};
    }
  }
  return env;
}

std::string to_text(const Environment& env) {
  const Environment base;
  std::string out;
  auto add = [&](const std::string& item) { out += (out.empty() ? "" : ",") + item; };
  if (env.threads != base.threads) add("threads=" + std::to_string(env.threads));
  if (env.order != base.order)
    add("order=" + (env.order == Environment::kReverse ? "reverse" : std::to_string(env.order)));
  if (env.poison != base.poison) add("poison=" + hex(env.poison, 2));
  if (env.alignment != base.alignment) add("alignment=" + std::to_string(env.alignment));
  if (env.architecture != base.architecture) add("arch=" + std::string(name(env.architecture)));
  return out;
}

}  // namespace assay
