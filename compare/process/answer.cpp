#include "compare/process/answer.h"

#include <utility>

namespace assay {

template <class T> T Answer::given(std::optional<T> value) {
  whole_ = whole_ && value.has_value();
  return value ? std::move(*value) : T{};
}

const json::Value& Answer::member(std::string_view name) {
  static const json::Value kNothing;
  const json::Value* found = value_.find(name);
  whole_ = whole_ && found;
  return found ? *found : kNothing;
}

const json::Array& Answer::list(std::string_view name) {
  static const json::Array kEmpty;
  const json::Array* found = member(name).array();
  whole_ = whole_ && found;
  return found ? *found : kEmpty;
}

std::string Answer::text(std::string_view name) {
  const std::string* text = member(name).string();
  return given(text ? std::optional(*text) : std::nullopt);
}

std::vector<std::string> Answer::texts(std::string_view name) {
  std::vector<std::string> out;
  for (const json::Value& one : list(name))
    out.push_back(given(one.string() ? std::optional(*one.string()) : std::nullopt));
  return out;
}

std::vector<double> Answer::numbers(std::string_view name) {
  std::vector<double> out;
  for (const json::Value& one : list(name)) out.push_back(given(one.to_double()));
  return out;
}

int64_t Answer::count(std::string_view name) {
  const int64_t n = given(member(name).to_int());
  whole_ = whole_ && n >= 0 && n <= kMostCounted;
  return whole_ ? n : 0;
}

double Answer::seconds(std::string_view name) {
  const double s = given(member(name).to_double());
  whole_ = whole_ && s >= 0;
  return whole_ ? s : 0;
}

bool Answer::truth(std::string_view name) { return given(member(name).to_bool()); }

}  // namespace assay
