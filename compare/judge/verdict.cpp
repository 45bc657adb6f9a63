#include "compare/judge/verdict.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "contract/encoding.h"

namespace assay {

namespace {

constexpr std::string_view kOutcomes[] = {"passed",  "failed",  "mistrusted", "unsupported",
                                          "skipped", "crashed", "stale"};

// The members of a Breach and of a Verdict under their names in JSON, in the order of the text. `field` gets
// the name, the member, and whether it is written; a member that is not written has its default when it is
// read again.
template <class B, class Field> void visit_breach(B& b, Field&& field) {
  field("claim", b.claim, true);
  field("got", b.got, true);
  field("want", b.want, !b.want.empty());
  field("message", b.message, !b.message.empty());
  field("plane", b.plane, !b.plane.empty());
  field("encoding", b.encoding, !b.encoding.empty());
  field("where", b.where, !b.where.empty());
  field("row", b.row, b.row >= 0);
  field("col", b.col, b.row >= 0);
  field("in_padding", b.in_padding, b.in_padding);
  field("differ", b.differ, b.of != 0);
  field("of", b.of, b.of != 0);
  field("got_code", b.got_code, b.got_code.has_value());
  field("want_code", b.want_code, b.want_code.has_value());
  field("apart", b.apart, b.apart.has_value());
  field("after", b.after, !b.after.empty());
  field("hint", b.hint, !b.hint.empty());
  field("environment", b.environment, !b.environment.empty());
}

// `argument` stays here: the reader of a verdict knows the subject.
template <class V, class Field> void visit_verdict(V& v, Field&& field) {
  field("subject", v.subject, true);
  field("outcome", v.outcome, true);
  field("reason", v.reason, !v.reason.empty());
  field("breaches", v.breaches, !v.breaches.empty());
  field("claims", v.claims, true);
  field("launches", v.launches, true);
  field("served", v.served, !v.served.empty());
  field("witness", v.witness, !v.witness.empty());
  field("unpinned", v.unpinned, !v.unpinned.empty());
  field("inside", v.inside, !v.unpinned.empty());
  field("excluded", v.excluded, !v.excluded.empty());
  field("about", v.about, !v.about.empty());
  field("ranks", v.ranks, !v.ranks.empty());
  field("seconds", v.seconds, true);
}

json::Value json_of(const std::string& s) { return s; }
json::Value json_of(int64_t n) { return n; }
json::Value json_of(int n) { return n; }
json::Value json_of(bool b) { return b; }
json::Value json_of(double d) { return d; }
json::Value json_of(Outcome o) { return name_of(o); }
json::Value json_of(const std::optional<uint32_t>& n) { return *n; }
json::Value json_of(const std::optional<int64_t>& n) { return *n; }
json::Value json_of(const std::vector<std::string>& list) {
  json::Value out = json::array();
  for (const std::string& s : list) out.push(s);
  return out;
}
json::Value json_of(const std::vector<Breach>& list) {
  json::Value out = json::array();
  for (const Breach& b : list) {
    json::Value& object = out.push(json::object());
    visit_breach(b, [&](const char* name, const auto& member, bool written) {
      if (written) object.set(name, json_of(member));
    });
  }
  return out;
}

// A value of another type than the member's is passed over.
void read(const json::Value& from, std::string& to) {
  if (from.string()) to = *from.string();
}
void read(const json::Value& from, int64_t& to) { to = from.to_int().value_or(to); }
void read(const json::Value& from, int& to) { to = static_cast<int>(from.to_int().value_or(to)); }
void read(const json::Value&, bool& to) { to = true; }  // false is not written
void read(const json::Value& from, double& to) { to = from.to_double().value_or(to); }
void read(const json::Value& from, Outcome& to) {
  if (from.string()) to = outcome_named(*from.string()).value_or(to);
}
void read(const json::Value& from, std::optional<uint32_t>& to) {
  if (const auto n = from.to_int()) to = static_cast<uint32_t>(*n);
}
void read(const json::Value& from, std::optional<int64_t>& to) { to = from.to_int(); }
void read(const json::Value& from, std::vector<std::string>& to) {
  if (!from.array()) return;
  for (const json::Value& element : *from.array())
    if (element.string()) to.push_back(*element.string());
}
void read(const json::Value& from, std::vector<Breach>& to) {
  if (!from.array()) return;
  for (const json::Value& element : *from.array())
    visit_breach(to.emplace_back(), [&](const char* name, auto& member, bool) {
      if (const json::Value* found = element.find(name)) read(*found, member);
    });
}

}  // namespace

std::string_view name_of(Outcome o) { return kOutcomes[static_cast<size_t>(o)]; }

std::optional<Outcome> outcome_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kOutcomes); ++i)
    if (kOutcomes[i] == name) return static_cast<Outcome>(i);
  return {};
}

Breach& Breach::of_plane(const Plane& p) {
  plane = p.name;
  encoding = info(p.encoding).name;
  return *this;
}

Breach& Breach::at(const Problem* problem, const Plane& p, Place place) {
  of_plane(p);
  where = place_text(problem, p, place);
  row = place.row;
  col = place.col;
  in_padding = place.padding;
  return *this;
}

Breach complaint(std::string claim, std::string_view got, std::string message, std::string_view want) {
  Breach b;
  b.claim = std::move(claim);
  b.got = got;
  b.want = want;
  b.message = std::move(message);
  return b;
}

void add_kind(std::vector<std::string>& kinds, std::string_view kind) {
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.emplace_back(kind);
}

json::Value to_json(const Verdict& v) {
  json::Value out = json::object();
  visit_verdict(v, [&](const char* name, const auto& member, bool written) {
    if (written) out.set(name, json_of(member));
  });
  return out;
}

Result<Verdict> verdict_from_json(const json::Value& value) {
  const std::string outcome(value.text("outcome"));
  if (!outcome_named(outcome)) return Error{"a verdict needs an outcome, found '" + outcome + "'", 0, ""};
  Verdict v;
  visit_verdict(v, [&](const char* name, auto& member, bool) {
    if (const json::Value* found = value.find(name)) read(*found, member);
  });
  return v;
}

}  // namespace assay
