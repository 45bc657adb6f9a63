// The certificate as a file: what is known about each part, written again after every part, and taken over by
// --resume (docs/certify.md).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/commands/certify/part.h"
#include "compare/report/report.h"
#include "contract/result.h"
#include "fixtures/json.h"

namespace assay {

inline constexpr int kCertificateVersion = 1;

struct ClaimRecord {
  CertifySide side;
  std::string outcome = "passed", reason;
  int64_t compared = 0, differ = 0;
  std::vector<json::Value> failures;
};

// What came of a part so far.
struct PartRecord {
  std::vector<ClaimRecord> claims;
  std::vector<size_t> runs;  // claims that run, in the order of a task's sides
  json::Value taken;         // from an earlier certificate; null: it is not
  size_t tasks = 0, done = 0;
  std::string digests, hashes, law, trouble;
  double seconds = 0;
};

// What the certificate says about the inputs of a part.
json::Value part_head(const CertifyPart&);

// The whole entry of a part that has ended. Gives every claim its outcome.
json::Value part_entry(const CertifyPart&, PartRecord&);

// The parts of a certificate that passed, by name; those whose claims are not as part_entry writes them are
// left out. Nothing where the document is no certificate.
std::optional<std::map<std::string, json::Value>> passed_parts(const json::Value& certificate);

class Certificate {
 public:
  // `path` may be empty, then nothing is written.
  Certificate(std::string path, CertifyExtent, std::string only);

  // The entry is one of part_entry, or of passed_parts.
  void add(json::Value entry, double seconds);
  std::optional<Error> write(bool complete, const Totals&, int jobs, double seconds) const;

  // Parts of the certificate at the path that passed, made by this very build; an Error where the file is
  // there and cannot be used.
  Result<std::map<std::string, json::Value>> earlier() const;

 private:
  std::string path_;
  json::Value build_;  // must be equal for a part of an earlier certificate to stand in this one
  std::string mode_, only_;
  json::Value parts_ = json::array(), seconds_ = json::object();
  int64_t compared_ = 0;
};

}  // namespace assay
