// Plugins of device pointers, on a device that is host memory under another name: what goes in and comes out,
// guards, errors, absence, times.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "compare/commands/bench.h"
#include "compare/judge/cases.h"
#include "compare/subjects/plugin.h"
#include "contract/line.h"
#include "fixtures/json.h"
#include "reference/subject.h"

namespace assay {
namespace {

class PretendDevice final : public DeviceMemory {
 public:
  explicit PretendDevice(Support present = {}) : present_(std::move(present)) {}
  ~PretendDevice() override { EXPECT_TRUE(blocks_.empty()) << blocks_.size() << " blocks were not released"; }
  Support present() const override { return present_; }
  void* allocate(size_t bytes) override {
    return *blocks_.insert(std::aligned_alloc(256, (bytes + 255) / 256 * 256)).first;
  }
  void release(void* block) noexcept override {
    EXPECT_EQ(blocks_.erase(block), 1u);
    std::free(block);
  }
  void to_device(void* device, const void* host, size_t bytes) override { std::memcpy(device, host, bytes); }
  void to_host(void* host, const void* device, size_t bytes) override { std::memcpy(host, device, bytes); }
  void synchronize() override {
    if (const char* error = std::getenv("ASSAY_TEST_DEVICE_ERROR")) throw std::runtime_error(error);
  }
  std::vector<std::chrono::nanoseconds> time(const std::function<void()>& run, int repeats,
                                             bool cold) override {
    run();
    return std::vector<std::chrono::nanoseconds>(static_cast<size_t>(repeats),
                                                 std::chrono::nanoseconds(cold ? 4000 : 3000));
  }

 private:
  Support present_;
  std::set<void*> blocks_;
};

Subjects with(const std::string& name, Support present = {}) {
  Subjects s;
  s.owned.push_back(make_reference_subject());
  auto plugin = make_plugin_subject(std::string(ASSAY_PLUGIN_DIR "/libfaulty_plugin_") + name + ".so",
                                    std::make_shared<PretendDevice>(std::move(present)));
  EXPECT_TRUE(plugin) << plugin.error().text();
  s.owned.push_back(std::move(*plugin));
  return s;
}

Verdict judge_line(const Subjects& subjects, const std::string& line, const std::string& environment = "") {
  RunSettings settings;
  settings.subjects = {std::string(subjects.owned.back()->name())};
  settings.jobs = 1;
  settings.claims.environment = *parse_environment(environment);
  return run_one(*parse_line(line), subjects, settings).at(0);
}

constexpr const char* kCase = "quantize mxfp8 33x70 bf16 dir=row fill=ties seed=3";

TEST(DevicePlugin, RightOnePasses) {
  for (const char* environment : {"", "alignment=16,poison=00", "alignment=1"}) {
    const Verdict v = judge_line(with("device"), kCase, environment);
    EXPECT_EQ(v.outcome, Outcome::passed)
        << environment << ": " << v.reason << (v.breaches.empty() ? "" : v.breaches[0].message);
  }
  EXPECT_EQ(judge_line(with("device"), "quantize mxfp8 0x70 bf16 dir=row").breaches.size(), 0u);
  EXPECT_TRUE(takes_device_pointers(*with("device").owned.back()));
  EXPECT_FALSE(takes_device_pointers(*with("none").owned.back()));
  EXPECT_FALSE(takes_device_pointers(*with("none").owned.front()));
}

// examples/plugin_cuda with its kernel run as a loop: everything but the launch.
TEST(DevicePlugin, TheCudaExamplePasses) {
  const std::string path = ASSAY_PLUGIN_DIR "/libexample_plugin_cuda_on_host.so";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "it needs CUDA's headers";
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  subjects.owned.push_back(std::move(*make_plugin_subject(path, std::make_shared<PretendDevice>())));
  for (const char* fill : {"normal", "ties", "edges", "amax_edges", "nonfinite", "wide", "denormal"})
    for (const char* element : {"e4m3", "e5m2"})
      for (const char* shape : {"64x256", "33x70", "0x64"}) {
        const std::string line =
            std::string("quantize mxfp8 ") + shape + " bf16 dir=row element=" + element + " fill=" + fill;
        const Verdict v = judge_line(subjects, line);
        EXPECT_TRUE(v.outcome == Outcome::passed || (v.outcome == Outcome::mistrusted && shape[0] == '0'))
            << line << ": " << name_of(v.outcome) << " " << v.reason
            << (v.breaches.empty()
                    ? ""
                    : " " + v.breaches[0].claim + " " + v.breaches[0].plane + " " + v.breaches[0].where);
      }
  EXPECT_EQ(judge_line(subjects, "quantize mxfp8 64x256 bf16 dir=row mx_scale=floor").reason,
            "not mx_scale=floor");
}

TEST(DevicePlugin, WritesOutsideAndIntoInputsAreGuarded) {
  const Verdict outside = judge_line(with("device_out_of_bounds"), kCase);
  ASSERT_EQ(outside.outcome, Outcome::failed) << outside.reason;
  EXPECT_EQ(outside.breaches.at(0).claim, "guard");
  EXPECT_NE(outside.breaches[0].message.find("row.data: byte 0 past the end was written (55)"),
            std::string::npos)
      << outside.breaches[0].message;
  const Verdict input = judge_line(with("device_writes_input"), kCase);
  ASSERT_EQ(input.outcome, Outcome::failed) << input.reason;
  EXPECT_EQ(input.breaches.at(0).claim, "guard");
  EXPECT_NE(input.breaches[0].message.find("x: byte 5 of this input was written"), std::string::npos)
      << input.breaches[0].message;
}

// An error of the device outlives the call that made it, so the worker ends with it.
TEST(DevicePlugin, AnErrorOfTheDeviceCostsOneCase) {
  const Verdict v = judge_line(with("device_late_error"), kCase);
  EXPECT_EQ(v.outcome, Outcome::crashed);
  EXPECT_NE(v.reason.find("an illegal memory access was encountered"), std::string::npos) << v.reason;
}

TEST(DevicePlugin, WithoutADeviceItIsSkipped) {
  const Verdict v = judge_line(with("device", {false, "no GPU: the driver reports none"}), kCase);
  EXPECT_EQ(v.outcome, Outcome::skipped);
  EXPECT_NE(v.reason.find("it takes device pointers (assay_plugin_memory): no GPU: the driver reports none"),
            std::string::npos)
      << v.reason;
  const auto alone = make_plugin_subject(ASSAY_PLUGIN_DIR "/libfaulty_plugin_device.so");
  EXPECT_NE((*alone)->present().why.find("no device memory to give"), std::string::npos)
      << (*alone)->present().why;
  const auto nowhere = make_plugin_subject(ASSAY_PLUGIN_DIR "/libfaulty_plugin_nowhere.so");
  EXPECT_NE((*nowhere)->present().why.find("assay_plugin_memory returned 7"), std::string::npos)
      << (*nowhere)->present().why;
}

std::string bench(const std::string& name, int status = 0) {
  const Subjects subjects = with(name);
  BenchOptions options;
  options.subjects = {std::string(subjects.owned.back()->name())};
  options.entries = {entry_of(*parse_line(kCase))};
  options.repetitions = 3;
  options.min_time = 0.001;
  options.output = testing::TempDir() + "assay_bench_plugin.json";
  std::ostringstream out, err;
  EXPECT_EQ(run_bench(options, subjects, out, err), status) << out.str() << err.str();
  return out.str();
}

TEST(PluginBench, AHostPluginIsTimedByAClock) {
  const std::string said = bench("none");
  EXPECT_NE(said.find(" warm  median "), std::string::npos) << said;
  EXPECT_NE(said.find(" x copy"), std::string::npos) << said;
  EXPECT_NE(said.find("1 timed, 0 failed, 0 skipped"), std::string::npos) << said;
}

TEST(PluginBench, ItsOwnTimesAreTaken) {
  const std::string said = bench("timed");
  EXPECT_NE(said.find(" warm  median 2.00 us    min 1.00 us    3 samples"), std::string::npos) << said;
  EXPECT_NE(said.find(" x copy"), std::string::npos) << said;
}

// No GPU copies beside it here, so that there is no ratio.
TEST(PluginBench, ADevicePluginIsTimedByTheDevice) {
  const std::string said = bench("device");
  EXPECT_NE(said.find(" warm  median 3.00 us "), std::string::npos) << said;
  EXPECT_NE(said.find(" cold  median 4.00 us "), std::string::npos) << said;
  EXPECT_EQ(said.find(" x copy"), std::string::npos) << said;
  const auto file = json::read(testing::TempDir() + "assay_bench_plugin.json");
  ASSERT_TRUE(file) << file.error().text();
  EXPECT_EQ((*file->find("results")->array())[0].find("ratio_to_copy"), nullptr);
  const std::string own = bench("device_timed");  // warm runs by its own clock, cold ones by the device's
  EXPECT_NE(own.find(" warm  median 2.00 us "), std::string::npos) << own;
  EXPECT_NE(own.find(" cold  median 4.00 us "), std::string::npos) << own;
}

TEST(PluginBench, AWrongOneHasNoTime) {
  const std::string said = bench("rounding", 1);
  EXPECT_NE(said.find("not timed: failed (claim parity)"), std::string::npos) << said;
}

}  // namespace
}  // namespace assay
