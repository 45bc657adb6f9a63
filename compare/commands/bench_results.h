// Rows of `assay bench`: as a line of the screen, as JSON, and beside those of an earlier run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "contract/result.h"
#include "contract/subject.h"
#include "fixtures/json.h"

namespace assay {

struct BenchRow {
  std::string line, subject, temperature, note;      // temperature: "warm", "cold"
  double median = 0, least = 0, most = 0, copy = 0;  // seconds; no copy: 0
  int samples = 0;
  size_t bytes = 0;
  int64_t elements = 0;

  // What an earlier row is found by.
  std::string key() const { return subject + " " + temperature + " " + line; }
};

double median(std::vector<double> values);

std::string seconds_text(double seconds);
// One line of the screen, without its end.
std::string row_text(const BenchRow&);
json::Value to_json(const BenchRow&);

// What timings of a subject depend on: the GPU for gpu and plugins of device pointers, the processor for
// everything else.
std::string machine_of(const json::Value& doctor_facts, const Subject&);

// The file that --output writes.
json::Value results_file(const json::Value& doctor_facts, json::Value machines, json::Value rows);

struct EarlierRow {
  double median = 0;
  std::string machine;
};
// The rows of an earlier file by their key.
Result<std::map<std::string, EarlierRow>> read_earlier(const std::string& path);

}  // namespace assay
