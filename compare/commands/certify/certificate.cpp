#include "compare/commands/certify/certificate.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "compare/process/answer.h"
#include "compare/report/doctor.h"
#include "contract/words.h"
#include "fixtures/files.h"
#include "fixtures/sha256.h"

namespace assay {

namespace {

json::Value words(const std::string& text) {
  json::Value list = json::array();
  for (const std::string_view word : words_of(text, ' ')) list.push(word);
  return list;
}

json::Value claim_json(const ClaimRecord& c) {
  json::Value v = json::object({{"got", c.side.subject}, {"want", "reference"}});
  if (const std::string e = to_text(c.side.environment); !e.empty()) v.set("environment", e);
  v.set("outcome", c.outcome);
  if (!c.reason.empty()) v.set("reason", c.reason);
  v.set("inputs", c.compared);
  if (c.differ) v.set("differ", c.differ);
  if (!c.failures.empty()) {
    json::Value list = json::array();
    for (const json::Value& f : c.failures)
      list.push(f.find("line") ? json::object({{"line", f.text("line")}, {"verdict", *f.find("verdict")}})
                               : f);
    v.set("failures", std::move(list));
  }
  return v;
}

json::Value build_json() {
  const json::Value facts = doctor_facts({});
  json::Value v = json::object();
  for (const char* key :
       {"version", "commit", "kernels", "line_version", "compiler", "flags", "build_type", "sanitizers"})
    v.set(key, *facts.find(key));
  return v;
}

void decide(ClaimRecord& claim, const PartRecord& record) {
  if (claim.outcome == "skipped") return;
  if (claim.differ || !claim.failures.empty()) claim.outcome = "failed";
  if (record.trouble.empty() && record.law.empty()) return;
  claim.outcome = "failed";
  claim.reason = record.trouble.empty() ? "the reference breaks a law: " + record.law : record.trouble;
}

bool all_passed(const json::Value& part) {
  const json::Value* claims = part.find("claims");
  if (!claims || !claims->array()) return false;
  return std::ranges::all_of(*claims->array(), [](const json::Value& claim) {
    Answer told(claim);
    return told.text("outcome") == "passed" && told.count("inputs") >= 0 && told.whole();
  });
}

}  // namespace

std::optional<std::map<std::string, json::Value>> passed_parts(const json::Value& certificate) {
  const json::Value* parts = certificate.find("parts");
  if (certificate.text("schema") != "assay.certificate" || !parts || !parts->array()) return {};
  std::map<std::string, json::Value> out;
  for (const json::Value& part : *parts->array())
    if (all_passed(part)) out.emplace(part.text("name"), part);
  return out;
}

json::Value part_head(const CertifyPart& part) {
  return json::object({{"name", part.name},
                       {"clauses", words(part.clauses)},
                       {"inputs", part.domain.words},
                       {"count", part.domain.count}});
}

json::Value part_entry(const CertifyPart& part, PartRecord& record) {
  json::Value entry = part_head(part);
  json::Value claims = json::array();
  for (ClaimRecord& claim : record.claims) {
    decide(claim, record);
    claims.push(claim_json(claim));
  }
  entry.set("claims", std::move(claims));
  const bool ran = record.tasks > 0, whole = ran && record.trouble.empty();
  if (part.law) {
    const char* outcome = !ran ? "skipped" : whole && record.law.empty() ? "passed" : "failed";
    entry.set("law", json::object({{"words", part.law_words}, {"outcome", outcome}}));
  }
  const std::string fingerprint = sha256(std::as_bytes(std::span(record.digests))).substr(0, 32);
  entry.set("fingerprint", whole ? json::Value(fingerprint) : json::Value());
  if (part.sha256) {
    entry.set("piece", part.piece);
    entry.set("sha256", whole ? json::Value(sha256(std::as_bytes(std::span(record.hashes)))) : json::Value());
  }
  return entry;
}

Certificate::Certificate(std::string path, CertifyExtent extent, std::string only)
    : path_(std::move(path)), build_(build_json()), mode_(name(extent)), only_(std::move(only)) {}

void Certificate::add(json::Value part, double seconds) {
  seconds_.set(part.text("name"), seconds);
  for (const json::Value& c : *part.find("claims")->array())
    compared_ += c.find("inputs")->to_int().value_or(0);
  parts_.push(std::move(part));
}

std::optional<Error> Certificate::write(bool complete, const Totals& totals, int jobs, double seconds) const {
  if (path_.empty()) return {};
  json::Value doc = json::object({{"schema", "assay.certificate"},
                                  {"version", kCertificateVersion},
                                  {"complete", complete},
                                  {"mode", mode_}});
  doc.set("only", only_.empty() ? json::Value() : json::Value(only_));
  doc.set("build", build_);
  doc.set("parts", parts_);
  doc.set("totals", json::object({{"passed", totals.passed},
                                  {"failed", totals.failed},
                                  {"skipped", totals.skipped},
                                  {"comparisons", compared_}}));
  json::Value run = json::object({{"jobs", jobs}, {"seconds", seconds}, {"part_seconds", seconds_}});
  doc.set("run", std::move(run));  // what may differ between two runs stands here and nowhere else
  return write_file(path_, json::dump(doc, 1) + "\n");
}

Result<std::map<std::string, json::Value>> Certificate::earlier() const {
  if (::access(path_.c_str(), F_OK) != 0) return std::map<std::string, json::Value>();
  const Result<json::Value> doc = json::read(path_);
  if (!doc) return doc.error();
  std::optional<std::map<std::string, json::Value>> parts = passed_parts(*doc);
  if (!parts) return Error{path_ + " is not a certificate", 0, "give another -o"};
  if (!doc->find("build") || *doc->find("build") != build_ || doc->text("mode") != mode_)
    return Error{path_ + " was made by another build or in another mode", 0,
                 "without --resume it is replaced"};
  if (build_.text("commit").ends_with("-dirty") || build_.text("commit") == "no git")
    return Error{"a build from uncommitted sources cannot resume", 0, "without --resume it is replaced"};
  return *std::move(parts);
}

}  // namespace assay
