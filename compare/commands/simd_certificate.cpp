#include "compare/commands/simd_certificate.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include <fmt/format.h>

#include "fixtures/files.h"
#include "fixtures/json.h"

namespace assay {

namespace {

using std::string;

// The processor as Linux has it: "AMD EPYC, cpu family 26, model 2, stepping 1". Its name alone may stand for
// several generations.
string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::map<string, string> first;
  for (string line; std::getline(file, line) && !line.empty();)
    if (const size_t colon = line.find(": "); colon != string::npos)
      first.emplace(line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1), line.substr(colon + 2));
  string out = first.contains("model name") ? first["model name"] : "unknown";
  for (const char* word : {"cpu family", "model", "stepping"})
    if (first.contains(word)) out += fmt::format(", {} {}", word, first[word]);
  return out;
}

}  // namespace

Acceptor* acceptor_of(const Subjects& subjects) {
  Subject* const simd = subjects.find("simd");
  return simd && simd->present().yes ? dynamic_cast<Acceptor*>(simd) : nullptr;
}

string simd_certificate_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache) return string(cache) + "/assay/simd-certificate.json";
  const char* home = std::getenv("HOME");
  return home && *home ? string(home) + "/.cache/assay/simd-certificate.json" : string();
}

std::set<string, std::less<>> certified_targets(const string& path, const Acceptor& acceptor) {
  if (path.empty()) return {};
  const auto file = json::read(path);
  if (!file || file->text("processor") != processor() || file->text("sources") != acceptor.sources())
    return {};
  std::set<string, std::less<>> out;
  const json::Value* targets = file->find("targets");
  if (!targets || !targets->array()) return {};
  for (const json::Value& target : *targets->array())
    if (const auto* name = target.string()) out.insert(*name);
  return out;
}

string keep_certificate(const string& path, const Acceptor& acceptor) {
  if (path.empty()) return "the result was not kept: neither XDG_CACHE_HOME nor HOME is set";
  auto targets = certified_targets(path, acceptor);
  targets.emplace(acceptor.target());
  json::Value list = json::array();
  for (const string& target : targets) list.push(target);
  const json::Value file = json::object({{"schema", "assay.simd_certificate"},
                                         {"version", 1},
                                         {"processor", processor()},
                                         {"sources", acceptor.sources()},
                                         {"targets", std::move(list)}});
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (const auto failed = write_file(path, json::dump(file, 1) + "\n"))
    return "the result was not kept: " + failed->text();
  return fmt::format("kept in {}: `assay check` may use {} on this processor", path, acceptor.target());
}

}  // namespace assay
