// The members of what a worker, another process or a journal of results says. Each of these may be damaged or
// of somebody else, so a member that is missing or of another kind is noticed and never trusted to be there.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/json.h"

namespace assay {

class Answer {
 public:
  // Of no object, every member is missing. The value must outlive this.
  explicit Answer(const json::Value& value) : value_(value) {}
  explicit Answer(json::Value&&) = delete;

  // Whether every member that was asked for was there, and of its kind.
  bool whole() const { return whole_; }

  // Empty, 0, false or null where the member is not as it must be.
  std::string text(std::string_view name);
  std::vector<std::string> texts(std::string_view name);
  std::vector<double> numbers(std::string_view name);
  int64_t count(std::string_view name);   // from 0 to kMostCounted
  double seconds(std::string_view name);  // from 0
  bool truth(std::string_view name);
  const json::Array& list(std::string_view name);
  const json::Value& member(std::string_view name);  // of any kind

  // No answer counts more, and the sum of millions of counts is a number all the same.
  static constexpr int64_t kMostCounted = int64_t{1} << 42;

 private:
  template <class T> T given(std::optional<T> value);

  const json::Value& value_;
  bool whole_ = true;
};

}  // namespace assay
