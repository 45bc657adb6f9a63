#include "compare/witness/records/records.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <ostream>
#include <vector>

#include <fmt/format.h>

namespace assay {

namespace {

using std::string;

struct Topic {
  std::string_view family;
  json::Value (*then)(std::string_view group, const Given& given, Subject& subject);
  // The group whose records show steps between which something else computed: each step is judged on the
  // input that was recorded, so its reader sees `then` as given.recorded.
  std::string_view stepwise = {};
};
constexpr Topic kTopics[] = {
    {"semantics_factories", witness_factories},
    {"semantics_recipe_states", witness_recipe_states},
    {"semantics_delayed_scaling", witness_delayed_scaling},
    {"semantics_grouped", witness_grouped},
    {"semantics_storages", witness_storages},
    {"semantics_slot_lists", witness_slot_lists},
    {"semantics_hybrid_quantizer", witness_hybrid_quantizer},
    {"semantics_state_tensor_ops", witness_tensor_ops},
    {"semantics_state_optimizer", witness_optimizer},
    {"semantics_ranks_gather", witness_gather},
    {"semantics_attention", witness_attention, "emulation"},
    {"semantics_state_fsdp", witness_fsdp},
    {"semantics_state_checkpoint_offload_recompute", witness_offload},
};

// A file whose records name their topics themselves.
constexpr std::string_view kMixed = "semantics_mixed";

const Topic* topic_of(std::string_view family) {
  const auto at = std::find_if(std::begin(kTopics), std::end(kTopics),
                               [&](const Topic& t) { return t.family == family; });
  return at == std::end(kTopics) ? nullptr : at;
}

constexpr size_t kScreens = 5;

// A value on one line, cut where it grows long.
string brief(const json::Value& v) {
  constexpr size_t kMost = 160;
  string text = json::dump(v);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace

bool is_witness_family(std::string_view family) { return family == kMixed || topic_of(family) != nullptr; }

string first_difference(const json::Value& want, const json::Value& got, const string& path) {
  if (want.object() && got.object()) {
    for (const auto& [key, value] : *want.object()) {
      const json::Value* found = got.find(key);
      if (!found) return fmt::format("{}.{}: expected {}, found nothing", path, key, brief(value));
      if (string d = first_difference(value, *found, path + "." + key); !d.empty()) return d;
    }
    for (const auto& [key, value] : *got.object())
      if (!want.find(key)) return fmt::format("{}.{}: expected nothing, found {}", path, key, brief(value));
    return {};
  }
  if (want.array() && got.array()) {
    const size_t n = std::min(want.array()->size(), got.array()->size());
    for (size_t i = 0; i < n; ++i)
      if (string d = first_difference((*want.array())[i], (*got.array())[i], fmt::format("{}[{}]", path, i));
          !d.empty())
        return d;
    if (want.array()->size() != got.array()->size())
      return fmt::format("{}: expected {} elements, found {}", path, want.array()->size(),
                         got.array()->size());
    return {};
  }
  const auto a = want.to_double(), b = got.to_double();
  if (a && b ? *a == *b : want == got) return {};
  return fmt::format("{}: expected {}, found {}", path, brief(want), brief(got));
}

string witness_difference(std::string_view family, const json::Value& record, Subject& subject) {
  const Topic* topic =
      topic_of(family == kMixed ? "semantics_" + string(record.text("topic")) : string(family));
  const json::Value *given = record.find("given"), *then = record.find("then");
  if (!topic || !given || !then) return "no answer: expected a record {given, then} of a known family";
  json::Value seen = *given;
  const std::string_view group = record.text("group");
  if (!group.empty() && group == topic->stepwise && seen.object()) seen.set("recorded", *then);
  try {
    return first_difference(*then, topic->then(group, Given(seen), subject));
  } catch (const std::exception& e) {
    return string("no answer: ") + e.what();
  }
}

Result<WitnessCounts> judge_witness(const string& path, std::string_view family, const string& filter,
                                    Subject& subject, std::ostream& out) {
  auto file = json::read(path);
  if (!file) return file.error();
  const json::Value* cases = file->find("cases");
  if (!is_witness_family(family) || !cases || !cases->array() || cases->array()->empty())
    return Error{fmt::format("{}: expected an object with a filled array 'cases' of a known family", path), 0,
                 ""};
  const string name = std::filesystem::path(path).filename();
  WitnessCounts counts;
  string screens;
  for (const json::Value& one : *cases->array()) {
    const string id(one.text("id"));
    const json::Value *given = one.find("given"), *then = one.find("then");
    if (id.empty() || !given || !then)
      return Error{fmt::format("{}: every case needs 'id', 'given' and 'then', found {}", path, brief(one)),
                   0, ""};
    if ((name + "#" + id).find(filter) == string::npos) continue;
    const string difference = witness_difference(family, one, subject);
    ++(difference.empty() ? counts.passed : counts.failed);
    if (difference.empty() || counts.failed > kScreens) continue;
    screens += fmt::format("\nFAILED  {}#{}\n  claim    {} == witness\n  given    {}\n  cause    {}\n", name,
                           id, subject.name(), json::dump(*given), difference);
  }
  if (counts.failed > kScreens) screens += fmt::format("\n... and {} more\n", counts.failed - kScreens);
  if (counts.passed + counts.failed)
    out << fmt::format("{}  {:<38} {:<28} {} records, {}\n", counts.failed ? "FAILED  " : "passed  ", name,
                       family, counts.passed + counts.failed, subject.name())
        << screens;
  return counts;
}

}  // namespace assay
