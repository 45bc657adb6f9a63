// Witness records: what the original's own Python logic did, as JSON cases {id, group, given, then}
// (docs/training.md). `assay vectors` judges a folder of them like a folder of tensors: each record's `given`
// is run through training/ and every value of the answer must equal `then`.
#pragma once
#include <iosfwd>
#include <string>
#include <string_view>

#include "compare/witness/records/given.h"
#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/json.h"

namespace assay {

// The `then` that training/ gives for one record, computed on `subject` where bytes are needed. Throws
// std::exception where `given` cannot be read: std::invalid_argument for unknown words and wrong types
// (compare/witness/records/given.h).
json::Value witness_factories(std::string_view group, const Given& given, Subject& subject);
json::Value witness_slot_lists(std::string_view group, const Given& given, Subject& subject);
json::Value witness_recipe_states(std::string_view group, const Given& given, Subject& subject);
json::Value witness_hybrid_quantizer(std::string_view group, const Given& given, Subject& subject);
json::Value witness_storages(std::string_view group, const Given& given, Subject& subject);
json::Value witness_grouped(std::string_view group, const Given& given, Subject& subject);
json::Value witness_delayed_scaling(std::string_view group, const Given& given, Subject& subject);
json::Value witness_tensor_ops(std::string_view group, const Given& given, Subject& subject);
json::Value witness_fsdp(std::string_view group, const Given& given, Subject& subject);
json::Value witness_offload(std::string_view group, const Given& given, Subject& subject);
json::Value witness_optimizer(std::string_view group, const Given& given, Subject& subject);
// Of witness_offload's topic: extra state, quantized parameters at construction, recomputed regions.
bool is_checkpoint_group(std::string_view group);
json::Value witness_checkpoints(std::string_view group, const Given& given, Subject& subject);
json::Value witness_gather(std::string_view group, const Given& given, Subject& subject);
json::Value witness_attention(std::string_view group, const Given& given, Subject& subject);

// Whether `family` ("semantics_storages") is one of records.
bool is_witness_family(std::string_view family);

// The first place where two values differ, members in any order: "then.ok.calls[2].class: expected "row",
// found "col"". Empty when equal. Numbers compare by value.
std::string first_difference(const json::Value& want, const json::Value& got,
                             const std::string& path = "then");

// The first difference between the `then` of `record`, {group, given, then} of `family`, and what training/
// computes, or "no answer: " and the reason. Empty where the record passes. This returns whatever the record
// holds.
std::string witness_difference(std::string_view family, const json::Value& record, Subject& subject);

struct WitnessCounts {
  size_t passed = 0, failed = 0;
};
// Judges the records of one file whose "<file>#<id>" contains `filter`, and prints a line for the file and a
// screen for each of the first failures on `out`. Error: the file cannot be read, or holds no cases.
Result<WitnessCounts> judge_witness(const std::string& path, std::string_view family,
                                    const std::string& filter, Subject& subject, std::ostream& out);

}  // namespace assay
