// Kernels of fixtures/triton as subjects: what they make beside what the reference makes, and copies with a
// changed text.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compare/subjects/ptx_kernel.h"
#include "compare/subjects/ptx_launch_file.h"
#include "contract/line.h"
#include "fixtures/inputs.h"
#include "reference/subject.h"
#include "tests/source_path.h"

namespace assay::ptx_fixtures {

// A line and fills on which a kernel gives the reference's bytes.
struct EqualKernel {
  const char* name;
  const char* line;
  const char* fills;
};
inline const EqualKernel kEqual[] = {
#include "tests/compare/subjects/triton_kernels.inc"
};

inline std::vector<std::string> words_of(const char* text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

inline std::string fixture(const std::string& name) { return source_path("fixtures/triton/") + name; }

inline std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

using Planes = std::vector<std::vector<std::byte>>;
inline Planes run(Subject& subject, const Problem& p, const std::vector<PlaneData>& inputs,
                  const Environment& env = {}, Served* served = nullptr) {
  const auto planes = output_planes(p);
  Planes bytes;
  std::vector<Buffer> out;
  for (const Plane& plane : planes) bytes.emplace_back(plane.bytes(), std::byte{env.poison});
  for (size_t n = 0; n < planes.size(); ++n) out.push_back({&planes[n], bytes[n]});
  const Served s = subject.run(p, views(inputs), out, env);
  if (served) *served = s;
  return bytes;
}

inline Problem parsed(const std::string& line) {
  auto p = parse_line(line);
  if (!p) throw std::runtime_error(line + ": " + p.error().text());
  return *p;
}

// "" where the kernel gives the reference's bytes; else the first plane that differs, what was thrown, or why
// it does not run.
inline std::string difference(Subject& subject, const std::string& line, const Environment& env = {},
                              Served* served = nullptr) {
  const Problem p = parsed(line);
  if (const Support s = subject.supports(p); !s.yes) return "unsupported: " + s.why;
  const auto reference = reference_behind(make_reference_subject(), subject);
  const auto inputs = make_inputs(p, *reference);
  if (!inputs) return inputs.error().text();
  const Planes want = run(*reference, p, *inputs);
  Planes got;
  try {
    got = run(subject, p, *inputs, env, served);
  } catch (const std::exception& e) {
    return e.what();
  }
  const auto planes = output_planes(p);
  for (size_t n = 0; n < planes.size(); ++n)
    if (got[n] != want[n]) {
      size_t count = 0;
      for (size_t k = 0; k < want[n].size(); ++k) count += got[n][k] != want[n][k];
      return planes[n].name + ": " + std::to_string(count) + " of " + std::to_string(want[n].size()) +
             " bytes";
    }
  return "";
}

inline std::unique_ptr<Subject> load(const std::string& path) {
  auto subject = make_ptx_kernel_subject(path);
  if (!subject) throw std::runtime_error(subject.error().text());
  return std::move(*subject);
}

// A copy of a fixture in a folder of its own, with one text changed.
class Copy {
 public:
  explicit Copy(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() / ("assay-ptx-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    json = text_of(fixture(name + ".json"));
    if (const auto file = read_ptx_launch_file(fixture(name + ".json")); file && file->launches.size() > 1)
      for (const PtxLaunch& l : file->launches)
        more[std::filesystem::path(l.ptx).filename().string()] = text_of(l.ptx);
    else ptx = text_of(fixture(name + ".ptx"));
    name_ = name;
  }
  ~Copy() { std::filesystem::remove_all(folder_); }
  std::string write() const {
    if (!ptx.empty()) std::ofstream(folder_ / (name_ + ".ptx")) << ptx;
    for (const auto& [file, text] : more) std::ofstream(folder_ / file) << text;
    std::ofstream(folder_ / (name_ + ".json")) << json;
    return (folder_ / (name_ + ".json")).string();
  }
  std::string error() const {
    const auto subject = make_ptx_kernel_subject(write());
    return subject ? "" : subject.error().text();
  }
  void change(std::string& text, const std::string& from, const std::string& to) const {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  // The same in whichever text of the kernel has it.
  void change_text(const std::string& from, const std::string& to) {
    for (auto& [file, text] : more)
      if (text.find(from) != std::string::npos) return change(text, from, to);
    change(ptx, from, to);
  }
  // How often a text stands in those of the kernel.
  size_t count(const std::string& words) const {
    std::string all = ptx;
    for (const auto& [file, text] : more) all += "\n" + text;
    size_t n = 0;
    for (size_t at = 0; (at = all.find(words, at)) != std::string::npos; at += words.size()) ++n;
    return n;
  }
  std::string json, ptx;
  std::map<std::string, std::string> more;  // texts of a launch file with several, by their names

 private:
  std::filesystem::path folder_;
  std::string name_;
};

}  // namespace assay::ptx_fixtures
