// Witness records that say something else than the committed ones: a record that cannot be read is a failed
// record with a cause, never a crash and never an answer to another question; a sibling of a committed
// record, with other values of the same kind, is answered.
#include "compare/witness/records/records.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "fast/subject_host.h"
#include "reference/subject.h"
#include "tests/source_path.h"

namespace assay {
namespace {

using std::string;
const string kRecords = source_path("fixtures/witness/");

struct File {
  string family;
  json::Array cases;
};
const std::vector<File>& files() {
  static const std::vector<File> all = [] {
    std::vector<File> out;
    const auto index = json::read(kRecords + "index.json");
    EXPECT_TRUE(index);
    for (const json::Value& f : *index->find("files")->array()) {
      const auto file = json::read(kRecords + string(f.text("file")));
      EXPECT_TRUE(file);
      out.push_back({string(f.text("family")), *file->find("cases")->array()});
    }
    return out;
  }();
  return all;
}

Subject& reference() {
  static const auto subject = make_reference_subject();
  return *subject;
}

json::Value parsed(const string& text) {
  const auto v = json::parse(text);
  EXPECT_TRUE(v) << text;
  return v ? *v : json::Value();
}
json::Value record(const string& group, const string& given, const string& then = "{}") {
  return json::object({{"group", group}, {"given", parsed(given)}, {"then", parsed(then)}});
}
string difference(const string& family, const json::Value& one) {
  return witness_difference("semantics_" + family, one, reference());
}
string cause(const string& family, const string& group, const string& given) {
  return difference(family, record(group, given));
}

// One record of every group and set of members that there is.
std::vector<std::pair<string, json::Value>> one_of_each() {
  std::vector<std::pair<string, json::Value>> out;
  std::set<string> seen;
  for (const File& f : files())
    for (const json::Value& one : f.cases) {
      string kind = f.family + "/" + string(one.text("group"));
      for (const auto& [key, value] : *one.find("given")->object())
        kind += "," + key + (value.is_null() ? "=null" : "");
      if (seen.insert(kind).second) out.emplace_back(f.family, one);
    }
  return out;
}

// Calls `with` for `value` changed in every place: each value within it, itself too, replaced by each of
// `instead`, and each member left out. Of a long array the first elements stand for the rest.
void everywhere(const json::Value& value, const json::Array& instead,
                const std::function<void(const json::Value&)>& with) {
  for (const json::Value& other : instead) with(other);
  if (value.object()) {
    for (size_t i = 0; i < value.object()->size(); ++i) {
      json::Value changed = value;
      changed.object()->erase(changed.object()->begin() + static_cast<std::ptrdiff_t>(i));
      with(changed);
      everywhere((*value.object())[i].second, instead, [&](const json::Value& one) {
        json::Value member = value;
        (*member.object())[i].second = one;
        with(member);
      });
    }
  }
  constexpr size_t kFirst = 2;
  if (value.array()) {
    for (size_t i = 0; i < std::min(value.array()->size(), kFirst); ++i) {
      json::Value shorter = value;
      shorter.array()->erase(shorter.array()->begin() + static_cast<std::ptrdiff_t>(i));
      with(shorter);
      everywhere((*value.array())[i], instead, [&](const json::Value& one) {
        json::Value element = value;
        (*element.array())[i] = one;
        with(element);
      });
    }
    if (!value.array()->empty()) {
      json::Value longer = value;
      longer.push(value.array()->front());
      with(longer);
    }
  }
}

TEST(Witness, NoRecordEndsTheProcess) {
  const json::Array instead = {json::Value(),
                               json::Value("x"),
                               json::Value(""),
                               json::Value(-1),
                               json::Value(0),
                               json::Value(3),
                               json::Value(int64_t{1} << 40),
                               json::Value(0.5),
                               json::Value(true),
                               json::array(),
                               json::array({0, 0, 0}),
                               json::array({json::Value()}),
                               json::object()};
  size_t failed = 0, passed = 0;
  for (const auto& [family, one] : one_of_each()) {
    ASSERT_EQ(witness_difference(family, one, reference()), "") << json::dump(one);
    everywhere(*one.find("given"), instead, [&, &family = family, &one = one](const json::Value& given) {
      json::Value changed = one;
      changed.set("given", given);
      SCOPED_TRACE(json::dump(changed));
      ++(witness_difference(family, changed, reference()).empty() ? passed : failed);
    });
  }
  // Each member with the values that it has in other records of the file: words that fit, in the wrong
  // company.
  for (const File& f : files()) {
    constexpr size_t kMost = 24;
    std::map<string, std::set<string>> values;
    for (const json::Value& one : f.cases)
      for (const auto& [key, value] : *one.find("given")->object())
        if (values[key].size() < kMost) values[key].insert(json::dump(value));
    for (const auto& [family, one] : one_of_each()) {
      if (family != f.family) continue;
      for (const auto& [key, texts] : values)
        for (const string& text : texts) {
          json::Value changed = one, given = *one.find("given");
          given.set(key, parsed(text));
          changed.set("given", given);
          SCOPED_TRACE(json::dump(changed));
          witness_difference(family, changed, reference());
        }
    }
  }
  EXPECT_GT(failed, 10000u);
  EXPECT_GT(
      failed,
      5 * passed);  // those that pass say the same in another way: a null where a member may be left out
}

// What a record is about: a file of several topics names it in each, the others in their own name.
string topic_of(const string& family, const json::Value& record) {
  constexpr std::string_view kPrefix = "semantics_";
  if (record.find("topic")) return string(record.text("topic"));
  return family.starts_with(kPrefix) ? family.substr(kPrefix.size()) : family;
}

// A string that is no name and no label decides the answer, so one that nobody knows has none.
TEST(Witness, WordsThatAreNoRowHaveNoAnswer) {
  const std::set<string> kFree = {"name",        "module_type",    "tensor_type",
                                  "roles_label", "sequence_label", "case"};
  const std::set<string> kValues = {"slot_lists/op",
                                    "slot_lists/mode",
                                    "recipe_states/mode",
                                    "recipe_states/factory_raises",
                                    "hybrid_quantizer/source",
                                    "hybrid_quantizer/dst_kind",
                                    "hybrid_quantizer/row_group",
                                    "hybrid_quantizer/col_group",
                                    "hybrid_quantizer/nvfp4_4over6_err_mode",
                                    "storages/both_children",
                                    "recipe_states/recipe_fields",
                                    "recipe_states/fields"};
  size_t asked = 0;
  for (const auto& [family, one] : one_of_each())
    for (const auto& [key, value] : *one.find("given")->object()) {
      if (!value.string() || kFree.contains(key) || kValues.contains(topic_of(family, one) + "/" + key))
        continue;
      for (const string& word :
           {string("zz"), *value.string() + " zz", *value.string() + "_zz", "zz, " + *value.string()}) {
        json::Value changed = one, given = *one.find("given");
        given.set(key, word);
        changed.set("given", given);
        ++asked;
        EXPECT_TRUE(witness_difference(family, changed, reference()).starts_with("no answer: "))
            << json::dump(changed) << "\n"
            << witness_difference(family, changed, reference());
      }
    }
  EXPECT_GT(asked, 400u);
}

TEST(Witness, CausesSayWhatIsMissingWrongOrUnknown) {
  EXPECT_EQ(cause("storages", "usage", R"({"shape": [32, 32], "present": "r", "request": [true, true]})"),
            "no answer: given lacks 'kind', a kind of storage");
  EXPECT_EQ(
      cause("storages", "usage", R"({"kind": "MX", "shape": "x", "present": "r", "request": [true, true]})"),
      "no answer: given.shape is \"x\", expected an array");
  EXPECT_EQ(cause("storages", "usage",
                  R"({"kind": "FP4_anything", "shape": [32, 32], "present": "r", "request": [true, true]})"),
            "no answer: given.kind: no such word 'FP4_anything', expected one of 'CS', 'MX', 'BLK1', 'BLK2', "
            "'ID', 'FP4', 'FP4_2D', 'FP4_RS'");
  EXPECT_EQ(cause("grouped", "identity_use", R"({"quantizer": "MX_reduce"})"),
            "no answer: MXFP8Quantizer has no setting 'reduce'");
  EXPECT_EQ(
      cause(
          "delayed_scaling", "resize",
          R"({"from": 3, "to": 2, "history": [["3f800000","3f800000","3f800000"],["3f800000","3f800000","3f800000"],["3f800000","3f800000","3f800000"],["3f800000","3f800000","3f800000"]]})")
          .substr(0, 31),
      "no answer: given.history is [[\"");
  EXPECT_EQ(
      cause(
          "slot_lists", "inherit",
          R"({"recipe": "Float8CurrentScaling", "change": "output role", "rebuilt_through": "set_meta_tensor"})"),
      "no answer: given.recipe is \"Float8CurrentScaling\", expected a recipe whose state has a scale and a "
      "history");
  EXPECT_NE(cause("slot_lists", "rebuild", R"({"module": "Linear", "situation": "mxfp8 anything at all"})")
                .find("no such word 'anything at all'"),
            string::npos);
  EXPECT_NE(
      cause(
          "slot_lists", "mha_wiring",
          R"({"attention_type": "round", "input_layernorm": false, "name": "m", "qkv_fp8_output": true, "proj_fp8_grad": true, "dpa_fp8_output": true})")
          .find("no such word 'round', expected one of 'self', 'cross'"),
      string::npos);
}

// Committed records with another value in one place, whose answer follows from the rule that the record
// shows.

json::Value committed(const string& family, const string& group,
                      const std::function<bool(const json::Value& given)>& is) {
  for (const File& f : files())
    if (f.family == "semantics_" + family)
      for (const json::Value& one : f.cases)
        if (one.text("group") == group && is(*one.find("given"))) return one;
  ADD_FAILURE() << "no such record of " << family << "/" << group;
  return {};
}

TEST(Witness, TheColumnsSourceIsDequantizedToTheInputsDtype) {
  const auto given = [](const char* dtype, const char* source) {
    const string dequantize = string("row.dequantize(dtype=") + dtype + ")";
    json::Value calls = json::array({"row.quantize"});
    if (string(source) != "original") calls.push(dequantize);
    calls.push("col.quantize");
    return json::object(
        {{"group", "calls_quantize"},
         {"given",
          json::object({{"source", source}, {"usages", json::array({true, true})}, {"input_dtype", dtype}})},
         {"then", json::object({{"calls", calls}})}});
  };
  for (const char* dtype : {"float32", "float16", "bfloat16"})
    for (const char* source : {"original", "rowwise_dequantized"})
      EXPECT_EQ(difference("hybrid_quantizer", given(dtype, source)), "");
}

TEST(Witness, AClassThatKeepsNoGroupComparesAsEver) {
  for (const auto& [family, equal] : std::map<string, string>{
           {"MX", "true"}, {"BLK", "true"}, {"ID", "false"}, {"DS", "false"}, {"HYB", "false"}})
    EXPECT_EQ(
        difference("hybrid_quantizer",
                   record("equality",
                          R"({"family": ")" + family + R"(", "variation": "holds a live process group"})",
                          R"({"hash": {"ok": true}, "equal_to_other": {"ok": )" + equal +
                              R"(}, "group_after_state_export_none": true})")),
        "");
}

TEST(Witness, RequestsMeanWhatTheySaySlotBySlot) {
  for (const auto& [requests, slots] :
       std::map<string, string>{{"other, delayed, other", "[null, 0, null]"},
                                {"delayed, other, other", "[0, null, null]"},
                                {"delayed, delayed, other", "[0, 1, null]"},
                                {"other, delayed, delayed", "[null, 0, 1]"}}) {
    const string got = cause("recipe_states", "custom",
                             R"({"requests": ")" + requests + R"(", "num": 3, "mode": "forward"})");
    EXPECT_EQ(got.substr(0, 5), "then.") << got;
    json::Value one = committed("recipe_states", "custom", [](const json::Value& g) {
      return g.text("requests") == "delayed, other, delayed" && g.find("num") && g.find("num")->to_int() == 4;
    });
    one.set("given", parsed(R"({"requests": ")" + requests + R"(", "num": 3, "mode": "forward"})"));
    json::Value ok = *one.find("then")->find("ok"), classes = json::array();
    const json::Value each = parsed(slots);
    int64_t delayed = 0;
    for (const json::Value& s : *each.array()) {
      classes.push(s.is_null() ? "MXFP8Quantizer" : "Float8Quantizer");
      delayed += !s.is_null();
    }
    for (const auto& [key, value] : std::initializer_list<std::pair<const char*, json::Value>>{
             {"classes", classes},
             {"scale_shape", json::array({delayed})},
             {"history_shape", json::array({1024, delayed})},
             {"delayed_slot_of_each", each},
             {"amax_aliases_history_row0", each}})
      ok.set(key, value);
    one.set("then", json::object({{"ok", ok}}));
    EXPECT_EQ(difference("recipe_states", one), "");
  }
}

// Recipes that the records' sweep has not: where neither switch is on, every built-in recipe says the same.
TEST(Witness, FlagsOfAttentionAreAskedForEveryRecipe) {
  for (const char* recipe : {"Float8BlockScaling", "NVFP4BlockScaling"}) {
    json::Value one = committed("slot_lists", "mha_flags", [](const json::Value& g) {
      return g.text("recipe") == "MXFP8BlockScaling" && g.text("attention_type") == "self" &&
             !*g.find("fp8_dpa")->to_bool() && !*g.find("fp8_mha")->to_bool() &&
             *g.find("enabled")->to_bool();
    });
    json::Value given = *one.find("given");
    given.set("recipe", recipe);
    one.set("given", given);
    EXPECT_EQ(difference("slot_lists", one), "") << recipe;
  }
}

}  // namespace
}  // namespace assay
