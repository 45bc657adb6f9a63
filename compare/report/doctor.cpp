#include "compare/report/doctor.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <bit>
#include <cfenv>
#include <cfloat>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "compare/process/pool.h"
#include "compare/report/build.h"
#include "contract/line.h"

// Given by compare/CMakeLists.txt.
#ifndef ASSAY_FLAGS
#error "doctor.cpp needs the build facts of compare/CMakeLists.txt"
#endif

namespace assay {

namespace {

// Opaque to the optimizer, so that what is probed is the processor and the flags, not constant folding.
float opaque(float v) {
  volatile float hidden = v;
  return hidden;
}

[[gnu::noinline]] float multiply_add(float a, float b, float c) { return a * b + c; }

std::string compiler() {
#if defined __clang__
  return fmt::format("clang++ {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name"))
      if (const size_t at = line.find(": "); at != std::string::npos) return line.substr(at + 2);
  return "unknown processor";
}

std::string operating_system() {
  utsname u{};
  return uname(&u) == 0 ? fmt::format("{} {} {}", u.sysname, u.release, u.machine) : "unknown system";
}

std::string distribution() {
  std::ifstream in("/etc/os-release");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("PRETTY_NAME=\"")) return line.substr(13, line.size() - 14);
  return "";
}

json::Value vectors() {
  for (const std::string& root :
       {std::string("fixtures/vectors"), std::string(ASSAY_SOURCE_DIR "/fixtures/vectors")}) {
    std::error_code error;
    if (!std::filesystem::exists(root + "/index.json", error)) continue;
    int64_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(root, error))
      files += entry.path().extension() == ".safetensors";
    return json::object({{"path", root}, {"files", files}});
  }
  return {};
}

uint32_t digest(const std::string& text) {  // FNV-1a: to tell reports apart, not to protect them
  uint32_t h = 2166136261u;
  for (unsigned char c : text) h = (h ^ c) * 16777619u;
  return h;
}

const json::Value* subject_named(const json::Value& facts, std::string_view name) {
  for (const json::Value& s : *facts.find("subjects")->array())
    if (s.text("name") == name) return &s;
  return nullptr;
}

std::string fingerprint_of(const json::Value& facts, const std::vector<FloatProbe>& probes) {
  bool sound = true;
  for (const FloatProbe& p : probes) sound &= p.holds;
  const json::Value* gpu = subject_named(facts, "gpu");
  const std::string device = !gpu || !gpu->find("present")->to_bool().value_or(false) ? "no GPU"
                             : gpu->text("detail").empty()                            ? "GPU"
                                                           : std::string(gpu->text("detail"));
  return fmt::format("assay {} ({}), {} {}, {}, {}, {} cores, {}, {}, id {:08x}", build::kVersion,
                     facts.text("commit"), facts.text("compiler"), facts.text("build_type"), facts.text("os"),
                     facts.text("cpu"), facts.find("cores")->to_int().value_or(0),
                     sound ? "float ok" : "FLOAT ENVIRONMENT BROKEN", device, digest(json::dump(facts)));
}

}  // namespace

std::vector<FloatProbe> probe_float_environment() {
  std::vector<FloatProbe> out;
  auto probe = [&](std::string name, std::string expression, float found, float expected) {
    const uint32_t f = std::bit_cast<uint32_t>(found), e = std::bit_cast<uint32_t>(expected);
    out.push_back({std::move(name), f == e,
                   f == e ? "" : fmt::format("{} gives {:08X}, expected {:08X}", expression, f, e)});
  };
  const float smallest = std::bit_cast<float>(1u), least_normal = FLT_MIN;
  probe("round to nearest", "1 + 2^-24", opaque(1.0f) + opaque(0x1p-24f), 1.0f);
  probe("ties to even", "(1 + 2^-23) + 2^-24", opaque(0x1.000002p0f) + opaque(0x1p-24f), 0x1.000004p0f);
  probe("rounding mode of negatives", "-1 - 2^-24", opaque(-1.0f) - opaque(0x1p-24f), -1.0f);
  probe("subnormal results are kept", "2^-126 * 0.5", opaque(least_normal) * opaque(0.5f), 0x1p-127f);
  probe("subnormal operands are read", "2^-149 * 2^24", opaque(smallest) * opaque(0x1p24f), 0x1p-125f);
  // (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 exactly, and 0 when the product is rounded first.
  probe("no contraction", "(1 + 2^-12)^2 - (1 + 2^-11)",
        multiply_add(opaque(0x1.001p0f), opaque(0x1.001p0f), opaque(-0x1.002p0f)), 0.0f);
  probe("no excess precision", "FLT_MAX * 2 / 2", opaque(FLT_MAX) * opaque(2.0f) / opaque(2.0f), INFINITY);
  probe("division is correctly rounded", "1 / 49", opaque(1.0f) / opaque(49.0f),
        static_cast<float>(1.0 / 49.0));
  probe("square root is correctly rounded", "sqrt 2", std::sqrt(opaque(2.0f)),
        static_cast<float>(std::sqrt(2.0)));
  const bool nearest = std::fegetround() == FE_TONEAREST;
  out.push_back(
      {"rounding register", nearest, nearest ? "" : fmt::format("fegetround() is {}", std::fegetround())});
  return out;
}

json::Value doctor_facts(std::span<Subject* const> subjects) {
  const std::vector<FloatProbe> probes = probe_float_environment();
  json::Value floats = json::object(), list = json::array();
  for (const FloatProbe& p : probes) floats.set(p.name, p.holds ? json::Value(true) : json::Value(p.found));
  for (Subject* s : subjects) {
    const Support here = s->present();
    list.push(json::object({{"name", s->name()}, {"present", here.yes}, {"detail", here.why}}));
  }
  const std::string toolkit = ASSAY_CUDA_TOOLKIT;
  json::Value facts = json::object({{"schema", "assay.doctor/1"},
                                    {"version", build::kVersion},
                                    {"commit", build::kCommit},
                                    {"kernels", build::kKernels},
                                    {"line_version", kLineVersion},
                                    {"compiler", compiler()},
                                    {"flags", ASSAY_FLAGS},
                                    {"build_type", ASSAY_BUILD_TYPE},
                                    {"sanitizers", ASSAY_SANITIZERS},
                                    {"cuda_toolkit", toolkit.empty() ? json::Value() : json::Value(toolkit)},
                                    {"os", operating_system()},
                                    {"distribution", distribution()},
                                    {"cpu", processor()},
                                    {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
                                    {"float", std::move(floats)},
                                    {"subjects", std::move(list)},
                                    {"vectors", vectors()}});
  facts.set("fingerprint", fingerprint_of(facts, probes));
  return facts;
}

json::Value doctor_facts_in_child(const Subjects& subjects) {
  std::vector<Subject*> all;
  for (const auto& s : subjects.owned) all.push_back(s.get());
  const Result<std::string> text = in_child([&] { return json::dump(doctor_facts(all)); }, 60);
  if (text)
    if (Result<json::Value> facts = json::parse(*text)) return std::move(*facts);
  return {};
}

std::string fingerprint(std::span<Subject* const> subjects) {
  return std::string(doctor_facts(subjects).text("fingerprint"));
}

}  // namespace assay
