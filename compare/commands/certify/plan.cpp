#include "compare/commands/certify/plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "compare/commands/certify/task.h"
#include "compare/process/pool.h"

namespace assay {

namespace {

// What a subject says of itself and of every part.
struct Answer {
  Support present;
  std::string supported;  // 'y' or 'n' for each part
  std::string trouble;    // why it could not say so
};

// Asks each subject once, in a child: a process that has asked a GPU's driver cannot fork workers that use
// the GPU.
class Answers {
 public:
  Answers(const Subjects& subjects, const std::vector<CertifyPart>& parts)
      : subjects_(subjects), parts_(parts) {}
  const Answer& of(const std::string& name) {
    const auto known = answers_.find(name);
    return known != answers_.end() ? known->second : answers_[name] = ask(subjects_.find(name));
  }

 private:
  Answer ask(const Subject* s) const {
    if (!s) return {{false, "no subject has this name"}, {}, {}};
    const Support here = present_in_child(*s);
    if (!here.yes) return {here, {}, {}};
    const Result<std::string> supported = in_child(
        [&] {
          std::string out;
          for (const CertifyPart& part : parts_) out += s->supports(part.problem).yes ? 'y' : 'n';
          return out;
        },
        60);
    if (!supported && interrupted()) return {{false, "interrupted"}, {}, {}};
    if (!supported) return {here, {}, "when it is asked which lines it runs, " + supported.error().text()};
    return {here, *supported, {}};
  }

  const Subjects& subjects_;
  const std::vector<CertifyPart>& parts_;
  std::map<std::string, Answer> answers_;
};

std::vector<CertifySide> sides_of(const CertifyPart& part, const std::vector<std::string>& names) {
  if (names.empty()) return part.sides;
  std::vector<CertifySide> out;
  for (const std::string& name : names) out.push_back({name, {}});
  return out;
}

// The claims of the part with this number. One that its subject does not support is not made at all.
PartRecord claims_of(size_t part, const std::vector<CertifySide>& sides, Answers& answers) {
  PartRecord record;
  for (const CertifySide& side : sides) {
    ClaimRecord claim{side, "passed", "", 0, 0, {}};
    if (const Answer& answer = answers.of(side.subject); !answer.present.yes) {
      claim.outcome = "skipped";
      claim.reason = answer.present.why;
    } else if (!answer.trouble.empty()) {
      claim.outcome = "failed";
      claim.reason = answer.trouble;
    } else if (answer.supported[part] != 'y') {
      continue;
    } else {
      record.runs.push_back(record.claims.size());
    }
    record.claims.push_back(std::move(claim));
  }
  return record;
}

// Whether the earlier part makes the same claims about the same inputs.
bool covers(const json::Value& earlier, const json::Value& head, const PartRecord& record) {
  for (const auto& [key, value] : *head.object())
    if (!earlier.find(key) || *earlier.find(key) != value) return false;
  const json::Array& claims = *earlier.find("claims")->array();
  if (claims.size() != record.claims.size()) return false;
  for (size_t i = 0; i < claims.size(); ++i) {
    const CertifySide& side = record.claims[i].side;
    if (record.claims[i].outcome == "failed") return false;
    if (claims[i].text("got") != side.subject || claims[i].text("environment") != to_text(side.environment))
      return false;
  }
  return true;
}

}  // namespace

std::vector<CertifySide> CertifyPlan::running(size_t part) const {
  std::vector<CertifySide> out;
  for (size_t c : records[part].runs) out.push_back(records[part].claims[c].side);
  return out;
}

std::string CertifyPlan::text() const {
  std::string all;
  for (size_t i = 0; i < parts.size(); ++i) {
    all += fmt::format("\n{} {} {}", parts[i].name, parts[i].domain.count, parts[i].domain.words);
    for (const CertifySide& side : running(i))
      all += fmt::format(" {}:{}", side.subject, to_text(side.environment));
  }
  return all;
}

double CertifyPlan::weight(const CertifyTask& t) const {
  if (!records[t.part].taken.is_null()) return 0;
  const double elements = static_cast<double>((t.end - t.first) * parts[t.part].problem.x.shape.count());
  return elements * (2.0 + static_cast<double>(records[t.part].runs.size()));
}

double CertifyPlan::weight() const {
  double sum = 0;
  for (const CertifyTask& t : tasks) sum += weight(t);
  return sum;
}

CertifyPlan make_plan(std::vector<CertifyPart> parts, const std::vector<std::string>& names,
                      const Subjects& subjects, const std::map<std::string, json::Value>& earlier) {
  CertifyPlan plan;
  Answers answers(subjects, parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    const CertifyPart& part = parts[i];
    PartRecord record = claims_of(i, sides_of(part, names), answers);
    if (const auto it = earlier.find(part.name);
        it != earlier.end() && covers(it->second, part_head(part), record)) {
      record.taken = it->second;
    }
    // Those of a part that is taken over too: a task has one number, whatever was done before.
    const int64_t inputs = certify_task(part.domain.count, part.piece);
    for (int64_t at = 0; at < part.domain.count && !record.runs.empty(); at += inputs) {
      plan.tasks.push_back({i, at, std::min(part.domain.count, at + inputs)});
      record.tasks += record.taken.is_null();
    }
    plan.records.push_back(std::move(record));
  }
  plan.parts = std::move(parts);
  return plan;
}

}  // namespace assay
