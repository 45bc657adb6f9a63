#include "compare/commands/bench_results.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "compare/subjects/plugin.h"

namespace assay {

namespace {

constexpr std::string_view kSchema = "assay.bench/1";

double per_second(double amount, const BenchRow& r) { return amount / r.median; }

}  // namespace

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

std::string seconds_text(double s) {
  return s < 1e-3 ? fmt::format("{:.2f} us", s * 1e6)
         : s < 1  ? fmt::format("{:.3f} ms", s * 1e3)
                  : fmt::format("{:.3f} s", s);
}

std::string row_text(const BenchRow& r) {
  std::string out =
      fmt::format("  {:<10} {}  median {:<10} min {:<10} {} samples  {:8.2f} Melem/s  {:8.3f} GB/s",
                  r.subject, r.temperature, seconds_text(r.median), seconds_text(r.least), r.samples,
                  per_second(static_cast<double>(r.elements), r) / 1e6,
                  per_second(static_cast<double>(r.bytes), r) / 1e9);
  if (r.copy > 0) out += fmt::format("  {:7.2f} x copy", r.median / r.copy);
  if (!r.note.empty()) out += "  " + r.note;
  return out;
}

json::Value to_json(const BenchRow& r) {
  json::Value out =
      json::object({{"line", r.line},
                    {"subject", r.subject},
                    {"temperature", r.temperature},
                    {"note", r.note},
                    {"samples", r.samples},
                    {"seconds", json::object({{"median", r.median}, {"min", r.least}, {"max", r.most}})},
                    {"bytes", r.bytes},
                    {"elements", r.elements},
                    {"bytes_per_second", per_second(static_cast<double>(r.bytes), r)},
                    {"elements_per_second", per_second(static_cast<double>(r.elements), r)}});
  if (r.copy > 0) {
    out.set("copy_seconds", r.copy);
    out.set("ratio_to_copy", r.median / r.copy);
  }
  return out;
}

std::string machine_of(const json::Value& facts, const Subject& subject) {
  if (subject.name() == "gpu" || takes_device_pointers(subject))
    for (const json::Value& s : *facts.find("subjects")->array())
      if (s.text("name") == "gpu") return std::string(s.text("detail"));
  return fmt::format("{}, {} cores", facts.text("cpu"), facts.find("cores")->to_int().value_or(0));
}

json::Value results_file(const json::Value& facts, json::Value machines, json::Value rows) {
  return json::object({{"schema", kSchema},
                       {"fingerprint", facts.text("fingerprint")},
                       {"machines", std::move(machines)},
                       {"doctor", facts},
                       {"results", std::move(rows)}});
}

Result<std::map<std::string, EarlierRow>> read_earlier(const std::string& path) {
  const auto file = json::read(path);
  if (!file) return file.error();
  if (file->text("schema") != kSchema)
    return Error{fmt::format("{}: expected schema \"{}\", found \"{}\"", path, kSchema, file->text("schema")),
                 0, ""};
  const json::Value *rows = file->find("results"), *machines = file->find("machines");
  if (!rows || !rows->array() || !machines || !machines->object())
    return Error{path + ": expected 'results' and 'machines'", 0, ""};
  std::map<std::string, EarlierRow> out;
  for (const json::Value& r : *rows->array()) {
    const json::Value* seconds = r.find("seconds");
    const auto m = seconds && seconds->find("median") ? seconds->find("median")->to_double() : std::nullopt;
    if (!m || !(*m > 0)) return Error{path + ": a result without a median time: " + json::dump(r), 0, ""};
    BenchRow row;
    row.line = r.text("line");
    row.subject = r.text("subject");
    row.temperature = r.text("temperature");
    out.emplace(row.key(), EarlierRow{*m, std::string(machines->text(row.subject))});
  }
  return out;
}

}  // namespace assay
