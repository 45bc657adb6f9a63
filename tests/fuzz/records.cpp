// JSON that Assay did not write, or that comes out of a worker: records of the training layer, and verdicts.
#include "compare/witness/records/records.h"

#include <stdexcept>

#include "compare/judge/verdict.h"
#include "tests/fuzz/readers.h"

namespace {

// Records are read before a subject is asked; this one answers nothing.
class Absent final : public assay::Subject {
 public:
  std::string_view name() const override { return "absent"; }
  assay::Support supports(const assay::Problem&) const override { return {false, "absent"}; }
  assay::Served run(const assay::Problem&, std::span<const assay::ConstBuffer>,
                    std::span<const assay::Buffer>, const assay::Environment&) override {
    throw std::runtime_error("absent");
  }
};

}  // namespace

void assay::fuzz::records(std::string_view bytes) {
  const auto value = assay::json::parse(bytes);
  if (!value) return;
  if (const auto verdict = verdict_from_json(*value)) {
    // What is told of one member may hang on another (a column on its row): so the second telling is
    // compared.
    const assay::json::Value told = to_json(*verdict);
    const auto again = verdict_from_json(told);
    if (!again || !(to_json(*again) == told)) throw std::logic_error("a verdict is not read back");
  }
  Absent subject;
  witness_difference(value->text("family"), *value, subject);
}
