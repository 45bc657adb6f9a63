#include "training/scenarios/scenario.h"

#include <algorithm>
#include <cstdio>

#include "training/scenarios/tables.h"

namespace assay::training {

namespace {

std::string shape_text(const Array& a) {
  std::string out(name_of(a.dtype));
  out += " [";
  for (size_t i = 0; i < a.shape.size(); ++i) out += (i ? ", " : "") + std::to_string(a.shape[i]);
  return out + "]";
}

std::string words(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& w : list) out += (out.empty() ? "" : ", ") + w;
  return "[" + out + "]";
}

// The element at flat index i, as hexadecimal digits, most significant first.
std::string element_text(std::span<const std::byte> bytes, int64_t size, int64_t i) {
  std::string out;
  for (int64_t b = size; b-- > 0;) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02X",
                  std::to_integer<unsigned>(bytes[static_cast<size_t>(i * size + b)]));
    out += digits;
  }
  return out;
}

std::string position(const Array& a, int64_t flat) {
  std::string out;
  for (size_t d = a.shape.size(); d-- > 0;) {
    out = std::to_string(flat % a.shape[d]) + (out.empty() ? "" : ", ") + out;
    flat /= a.shape[d];
  }
  return "[" + out + "]";
}

}  // namespace

Session ScenarioRun::session_on(Subject& on, Arch arch) const {
  Session s(on, environment);
  s.arch = arch;
  return s;
}

bool ScenarioRun::note(bool holds, std::string_view what, std::string expected, std::string found) {
  ++expectations_;
  if (!holds)
    unmet_.push_back({context_.empty() ? std::string(what) : context_ + ": " + std::string(what),
                      std::move(expected), std::move(found)});
  return holds;
}

bool ScenarioRun::expect(bool holds, std::string_view what, std::string expected, std::string found) {
  return note(holds, what, std::move(expected), std::move(found));
}
bool ScenarioRun::expect_equal(int64_t got, int64_t want, std::string_view what) {
  return note(got == want, what, std::to_string(want), std::to_string(got));
}
bool ScenarioRun::expect_equal(std::string_view got, std::string_view want, std::string_view what) {
  return note(got == want, what, std::string(want), std::string(got));
}
bool ScenarioRun::expect_equal(const std::vector<std::string>& got, const std::vector<std::string>& want,
                               std::string_view what) {
  return note(got == want, what, words(want), words(got));
}
bool ScenarioRun::expect_equal(const json::Value& got, const json::Value& want, std::string_view what) {
  return note(got == want, what, json::dump(want), json::dump(got));
}

bool ScenarioRun::expect_equal(const ArrayPtr& got, const ArrayPtr& want, std::string_view what) {
  if (!got || !want)
    return note(got == want, what, want ? shape_text(*want) : "absent", got ? shape_text(*got) : "absent");
  if (got->dtype != want->dtype || got->shape != want->shape)
    return note(false, what, shape_text(*want), shape_text(*got));
  const ArrayPtr a = contiguous(got), b = contiguous(want);
  const auto x = std::as_const(*a).bytes(), y = std::as_const(*b).bytes();
  bytes_ += static_cast<int64_t>(x.size());
  const auto at = std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first;
  if (at == x.end()) return note(true, what, "", "");
  const int64_t size = bytes_of(got->dtype), first = (at - x.begin()) / size;
  int64_t differ = 0;
  for (int64_t i = 0; i < got->count(); ++i)
    differ += !std::equal(x.begin() + i * size, x.begin() + (i + 1) * size, y.begin() + i * size);
  return note(false, what, element_text(y, size, first) + " at " + position(*got, first),
              element_text(x, size, first) + "; " + std::to_string(differ) + " of " +
                  std::to_string(got->count()) + " differ");
}

bool ScenarioRun::expect_equal(Storage& got, Storage& want, std::string_view what) {
  bool holds = expect_equal(got.class_name(), want.class_name(), std::string(what) + ": class");
  const std::vector<Field> a = got.fields(), b = want.fields();
  if (!note(a.size() == b.size(), std::string(what) + ": buffers", std::to_string(b.size()),
            std::to_string(a.size())))
    return false;
  for (size_t i = 0; i < a.size(); ++i)
    holds &= expect_equal(*a[i].slot, *b[i].slot, std::string(what) + ": " + std::string(b[i].name));
  return holds;
}

bool ScenarioRun::expect_different(const ArrayPtr& got, const ArrayPtr& other, std::string_view what) {
  const bool differ = !got || !other || !equal_bytes(*got, *other);
  return note(differ, what, "other bytes", "the same bytes");
}

bool ScenarioRun::expect_error(ErrorClass want, std::string_view what, const std::function<void()>& work,
                               std::initializer_list<std::string_view> mentions) {
  try {
    work();
  } catch (const SemanticError& e) {
    for (const std::string_view m : mentions)
      if (std::string_view(e.what()).find(m) == std::string_view::npos)
        return note(false, what, std::string(name_of(want)) + " that mentions '" + std::string(m) + "'",
                    e.what());
    return note(is_a(e.error_class, want), what, std::string(name_of(want)),
                std::string(name_of(e.error_class)) + ": " + e.what());
  }
  return note(false, what, std::string(name_of(want)), "no error");
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> kAll = [] {
    std::vector<Scenario> all;
    const auto add = [&](std::span<const Scenario> table) {
      all.insert(all.end(), table.begin(), table.end());
    };
#define SCENARIOS(function) add(function());
#include "training/scenarios/tables.def"
#undef SCENARIOS
    std::sort(all.begin(), all.end(), [](const Scenario& a, const Scenario& b) { return a.id < b.id; });
    return all;
  }();
  return kAll;
}

const Scenario* find_scenario(std::string_view id) {
  for (const Scenario& s : scenarios())
    if (s.id == id) return &s;
  return nullptr;
}

}  // namespace assay::training
