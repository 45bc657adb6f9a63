#include "compare/subjects/ptx_case_names.h"

#include <bit>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

#include "contract/f32_text.h"
#include "contract/line.h"
#include "contract/words.h"

namespace assay {

CaseNames::CaseNames(const Problem& p, const std::vector<Plane>& planes) {
  numbers_["rows"] = p.x.shape.rows;
  numbers_["cols"] = p.x.shape.cols;
  for (const Plane& plane : planes) {
    planes_.push_back(plane.name);
    numbers_[plane.name + ".rows"] = plane.logical.rows;
    numbers_[plane.name + ".cols"] = plane.logical.cols;
    numbers_[plane.name + ".padded_rows"] = plane.padded.rows;
    numbers_[plane.name + ".padded_cols"] = plane.padded.cols;
    numbers_[plane.name + ".bytes"] = plane.bytes();
  }
  numbers_["rng.seed"] = p.rng.seed;
  numbers_["rng.offset"] = p.rng.offset;
  numbers_["rng.member"] = p.rng.member;
  const std::string line = to_canonical_line(p);
  for (const std::string_view word : words_of(line, ' '))
    if (const size_t equals = word.find('='); equals != std::string_view::npos)
      keys_[std::string(word.substr(0, equals))] = word.substr(equals + 1);
}

WideInt CaseNames::integer(const std::string& expression, const Bounds& bounds,
                           const std::string& where) const {
  bool unknown = false;
  const auto v = evaluate_within(expression, bounds, [&](std::string_view name) {
    const auto value = find(name);
    unknown |= !value;
    return value;
  });
  if (!v) throw std::runtime_error(where + ": " + v.error().text() + (unknown ? "; " + known() : ""));
  return *v;
}

uint32_t CaseNames::f32(const std::string& text, const std::string& where) const {
  const auto key = keys_.find(text);
  if (const auto v = parse_f32(key == keys_.end() ? text : key->second)) return *v;
  const Bounds any{"an integer", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(integer(text, any, where))));
}

std::optional<WideInt> CaseNames::find(std::string_view name) const {
  if (const auto n = numbers_.find(name); n != numbers_.end()) return n->second;
  const auto key = keys_.find(name);
  if (key == keys_.end()) return {};
  const auto v = evaluate(key->second, [](std::string_view) { return std::optional<int64_t>{}; });
  return v ? std::optional<WideInt>(*v) : std::nullopt;
}

// What the line has, in words.
std::string CaseNames::known() const {
  std::vector<std::string> names = {"rows", "cols", "rng.seed", "rng.offset", "rng.member"};
  for (const auto& [key, text] : keys_)
    if (find(key)) names.push_back(key);
  return fmt::format("this line has {}, and .rows .cols .padded_rows .padded_cols .bytes of {}",
                     fmt::join(names, ", "), fmt::join(planes_, ", "));
}

}  // namespace assay
