// What a run of the certificate does: the claims that run here, the parts that are taken over, and the tasks
// of the others.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compare/commands/certify/certificate.h"
#include "compare/commands/certify/part.h"

namespace assay {

struct CertifyTask {
  size_t part;
  int64_t first, end;  // elements of the part
};

struct CertifyPlan {
  std::vector<CertifyPart> parts;
  std::vector<PartRecord> records;  // one for each part
  std::vector<CertifyTask> tasks;

  // The claims of a part that run.
  std::vector<CertifySide> running(size_t part) const;
  // What all tasks are of, and who runs them.
  std::string text() const;
  // What a task costs, and what all of them cost together.
  double weight(const CertifyTask&) const;
  double weight() const;
};

// `names`: subjects instead of those that the parts name; may be empty. `earlier`: parts of an earlier
// certificate, by name.
CertifyPlan make_plan(std::vector<CertifyPart> parts, const std::vector<std::string>& names, const Subjects&,
                      const std::map<std::string, json::Value>& earlier);

}  // namespace assay
