// How a launch is prepared for a GPU: its text, its memory and its addresses. The driver is a fake
// (fake_driver.c).
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "fast/ptx/run.h"
#include "fast/ptx/tensor_map.h"
#include "fast/silicon/device_launch.h"
#include "fast/silicon/device_text.h"

namespace assay::silicon {
namespace {

constexpr const char* kText = R"(.version 9.4
.target sm_100a
.address_size 64
.file 1 "kernel.cu"
.global .align 4 .b8 table[8];
.func twice() { ret; }
.visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 bytes)
{
.reg .b64 %rd<3>;
.reg .b32 %r<4>;
.reg .pred %p;
.loc 1 3 5
ld.param.u64 %rd0, [to];
ld.param.u64 %rd1, [from];
ld.param.u32 %r0, [bytes];
mov.u32 %r1, 0;
AGAIN:
ld.global.u8 %r2, [%rd1];
st.global.u8 [%rd0], %r2;
add.u64 %rd0, %rd0, 1;
add.u64 %rd1, %rd1, 1;
add.u32 %r1, %r1, 1;
setp.lt.u32 %p, %r1, %r0;
@%p bra AGAIN;
ret;
}
.entry copy_of_copy()
{
{ ret; }
}
.entry broken() { ret; }
.section .debug_str
{
$L__info_string0:
.b8 95
}
)";

const std::function<void()> kNothing = [] {};

struct Copying {
  std::array<std::byte, 24> to{}, from{};
  ptx::Module module{kText};
  ptx::Memory memory;
  ptx::Launch launch;
  Copying() {
    for (size_t n = 0; n < from.size(); ++n) from[n] = static_cast<std::byte>(n + 1);
    memory.add(to.data(), to.size(), "to");
    memory.add(from.data(), from.size(), "from", false);
    launch.parameters.resize(24);
    const uint64_t addresses[] = {reinterpret_cast<uint64_t>(to.data()),
                                  reinterpret_cast<uint64_t>(from.data() + 8)};
    const uint32_t bytes = 16;
    std::memcpy(launch.parameters.data(), addresses, sizeof addresses);
    std::memcpy(launch.parameters.data() + 16, &bytes, sizeof bytes);
    launch.parameters.resize(module.entry("copy").parameter_bytes);
  }
};
const Contents& of(const std::vector<Contents>& all, const std::string& name) {
  for (const Contents& c : all)
    if (c.name == name) return c;
  throw std::runtime_error("no " + name);
}

TEST(Silicon, TextHasOneEntryAndNothingForDebuggers) {
  const ptx::Module module(kText);
  const std::string text = device_text(module, "copy", "sm_90a", "9.0");
  for (const char* there : {".version 9.0\n", ".target sm_90a\n", ".entry copy(", ".func twice", "table[8]"})
    EXPECT_NE(text.find(there), std::string::npos) << there;
  for (const char* gone : {"copy_of_copy", "broken", ".loc", ".file", ".section", "info_string"})
    EXPECT_EQ(text.find(gone), std::string::npos) << gone;
  EXPECT_NO_THROW(ptx::Module{text});
  EXPECT_NE(device_text(module, "copy_of_copy", "sm_90a", "9.0").find("copy_of_copy"), std::string::npos);
}

TEST(Silicon, ALaunchMovesTheMemoryThatItIsGiven) {
  Copying c;
  const auto before = contents_of(c.module, c.memory);
  ptx::run(c.module, "copy", c.launch, c.memory);
  const auto after = launch_on_device(c.module, "copy", c.launch, before, kNothing);
  ASSERT_EQ(after.size(), 3u);  // two allocations and the module's variable
  EXPECT_TRUE(std::equal(c.to.begin(), c.to.end(), of(after, "to").bytes.begin()));
  EXPECT_EQ(of(after, "to").bytes[0], std::byte{9});
  EXPECT_EQ(of(after, "from").bytes, of(before, "from").bytes);
}

// On the device, addresses and tensor maps in memory point to the device's memory.
TEST(Silicon, AddressesInMemoryAreTranslated) {
  Copying c;
  alignas(64) std::array<std::byte, 256> words{};
  const auto address = reinterpret_cast<uint64_t>(c.from.data()) + 3;
  std::memcpy(words.data() + 8, &address, sizeof address);
  alignas(16) std::array<std::byte, 256> tensor{};
  ptx::TensorMap map;
  map.address = reinterpret_cast<uint64_t>(tensor.data()), map.rank = 1, map.sizes[0] = 256, map.box[0] = 64;
  const auto encoded = ptx::encode(map);
  std::memcpy(words.data() + 64, encoded.data(), encoded.size());
  c.memory.add(words.data(), words.size(), "words");
  c.memory.add(tensor.data(), tensor.size(), "tensor");
  const auto after = launch_on_device(c.module, "copy", c.launch, contents_of(c.module, c.memory), kNothing);
  const Contents& w = of(after, "words");
  ASSERT_EQ(w.addresses.size(), 1 + ptx::kTensorMapBytes / 8);
  EXPECT_EQ(w.addresses[0], 8u);
  EXPECT_EQ(w.addresses[1], 64u);
  uint64_t there = 0;
  std::memcpy(&there, w.bytes.data() + 8, sizeof there);
  EXPECT_NE(there, address);
  EXPECT_EQ(there % 256, address % 256);  // as the data lie in the process
}

TEST(Silicon, WhatTheDriverRefusesAndWhatEndsAreTold) {
  Copying c;
  const auto why = [&](const std::string& text, const std::string& entry) -> std::string {
    ptx::Module module(text);
    ptx::Launch launch;
    launch.parameters.resize(module.entry(entry).parameter_bytes);
    try {
      launch_on_device(module, entry, launch, {}, kNothing);
    } catch (const Refused& r) {
      return "refused: " + r.why;
    } catch (const Ended& e) {
      return "ended: " + e.why;
    }
    return "";
  };
  const std::string head = ".version 9.0\n.target sm_90a\n.address_size 64\n";
  EXPECT_EQ(why(head + ".entry refused() { ret; }\n", "refused"), "refused: line 7: refused");
  EXPECT_EQ(why(head + ".entry refused() { ret; }\n", "refused"), "refused: as before");
  EXPECT_EQ(why(kText, "broken"), "ended: CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(why(kText, "copy_of_copy"), "");
}

}  // namespace
}  // namespace assay::silicon
