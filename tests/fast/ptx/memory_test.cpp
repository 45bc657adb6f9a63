// Loads and stores of whole warps: what the lanes of every pattern move is what each would move alone, and
// one lane that is wrong among 31 that are right is found without any check switched on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr size_t kLanesOfWarp = 32, kSlots = 2 * kLanesOfWarp;
using Slots = std::array<uint32_t, kLanesOfWarp>;  // where each lane's vector lies, in vectors

Slots slots_of(const std::string& pattern) {
  Slots out{};
  for (uint32_t l = 0; l < kLanesOfWarp; ++l)
    out[l] = pattern == "row"        ? l
             : pattern == "shifted"  ? l + 1
             : pattern == "reversed" ? 31 - l
             : pattern == "apart"    ? 2 * l
             : pattern == "one"      ? 5
                                     : l * 7 % 32;
  return out;
}

// Each lane moves one vector from `in` at its slot to `out` at its slot, through shared memory if asked.
struct Move {
  std::string type;
  unsigned vector = 1;
  std::string from, to;
  bool shared = false, odd = false;  // odd: only lanes with odd numbers move
  unsigned bytes() const { return static_cast<unsigned>(std::stoi(type.substr(1))) / 8 * vector; }
};
std::string registers_of(unsigned vector) {
  std::string out;
  for (unsigned k = 0; k < vector; ++k) out += (k ? ", %v" : "%v") + std::to_string(k);
  return vector > 1 ? "{" + out + "}" : out;
}
std::string text_of(const Move& m) {
  const std::string bytes = std::to_string(m.bytes()), values = registers_of(m.vector),
                    what = (m.vector > 1 ? ".v" + std::to_string(m.vector) : "") + "." + m.type,
                    guard = m.odd ? "@%p0 " : "";
  const std::string space = m.shared ? ".shared" : ".global", base = m.shared ? "%tile" : "%in";
  return kernel_text(
      ".param .u64 in, .param .u64 out, .param .u64 slots",
      ".reg .pred %p<2>;\n.reg .b32 %t, %l, %i;\n.reg .b64 %in, %out, %s, %tile, %at;\n.reg .b" +
          std::to_string(std::max(16, std::stoi(m.type.substr(1)))) + " %v<8>;\n.shared .align 32 .b8 tile[" +
          std::to_string(kSlots * m.bytes()) +
          "];\nmov.u32 %t, %tid.x;\nmov.u32 %l, %laneid;\nand.b32 %i, %t, 1;\nsetp.ne.u32 %p0, %i, 0;\n"
          "ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nld.param.u64 %s, [slots];\n"
          "mov.u64 %tile, tile;\nmad.wide.u32 %s, %t, 8, %s;\n" +
          (m.shared ? "mov.u32 %i, 0;\nCOPY:\nmad.wide.u32 %at, %i, " + bytes + ", %in;\nld.global" + what +
                          " " + values + ", [%at];\nmad.wide.u32 %at, %i, " + bytes + ", %tile;\nst.shared" +
                          what + " [%at], " + values + ";\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p1, %i, " +
                          std::to_string(kSlots) + ";\n@%p1 bra COPY;\n"
                    : "") +
          "ld.global.u32 %i, [%s];\nmad.wide.u32 %at, %i, " + bytes + ", " + base + ";\n" + guard + "ld" +
          space + what + " " + values + ", [%at];\nld.global.u32 %i, [%s+4];\nmad.wide.u32 %at, %i, " +
          bytes + ", %out;\n" + guard + "st.global" + what + " [%at], " + values + ";\nret;");
}

std::vector<std::byte> moved(const Move& m, const std::vector<std::byte>& in, const Slots& from,
                             const Slots& to) {
  Module module(text_of(m));
  std::vector<std::byte> out(kSlots * m.bytes() + 64, std::byte{0x55});
  auto* aligned = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uint64_t>(out.data()), 32));
  std::vector<std::byte> source(in.size() + 64);
  auto* input = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uint64_t>(source.data()), 32));
  std::copy(in.begin(), in.end(), input);
  std::vector<uint32_t> slots;
  for (size_t l = 0; l < kLanesOfWarp; ++l) slots.push_back(from[l]), slots.push_back(to[l]);
  Memory memory;
  memory.add(input, in.size(), "in", false);
  memory.add(aligned, kSlots * m.bytes(), "out");
  memory.add(slots.data(), slots.size() * 4, "slots", false);
  Launch launch;
  launch.block = {kLanesOfWarp, 1, 1};
  launch.parameters = parameters_of(module.entry("kernel"),
                                    {reinterpret_cast<uint64_t>(input), reinterpret_cast<uint64_t>(aligned),
                                     reinterpret_cast<uint64_t>(slots.data())});
  run(module, "kernel", launch, memory);
  return {aligned, aligned + kSlots * m.bytes()};
}

TEST(PtxMemory, EveryWidthMovesEveryPattern) {
  Draw draw;
  for (const char* type : {"b8", "b16", "b32", "b64"})
    for (const unsigned vector : {1u, 2u, 4u, 8u})
      for (const auto& [from, to] :
           std::initializer_list<std::pair<const char*, const char*>>{{"row", "row"},
                                                                      {"shifted", "reversed"},
                                                                      {"apart", "row"},
                                                                      {"one", "mixed"},
                                                                      {"row", "one"},
                                                                      {"mixed", "apart"},
                                                                      {"reversed", "shifted"}})
        for (const auto& [shared, odd] :
             {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
          const Move m{type, vector, from, to, shared, odd};
          if (m.bytes() > 32 || (vector == 8 && m.type != "b32")) continue;
          std::vector<std::byte> in(kSlots * m.bytes());
          for (std::byte& b : in) b = static_cast<std::byte>(draw());
          const Slots begin = slots_of(from), end = slots_of(to);
          std::vector<std::byte> want(in.size(), std::byte{0x55});
          for (size_t l = odd ? 1 : 0; l < kLanesOfWarp; l += odd ? 2 : 1)
            std::copy_n(in.begin() + static_cast<long>(begin[l] * m.bytes()), m.bytes(),
                        want.begin() + static_cast<long>(end[l] * m.bytes()));
          EXPECT_EQ(moved(m, in, begin, end), want) << type << " v" << vector << " " << from << " to " << to
                                                    << (shared ? " shared" : "") << (odd ? " odd lanes" : "");
        }
}

std::string error_of(const Move& m, Slots from, Slots to) {
  try {
    moved(m, std::vector<std::byte>(kSlots * m.bytes()), from, to);
  } catch (const Fault& e) {
    return e.what();
  }
  return "";
}

TEST(PtxMemory, OneLaneOutsideIsNamed) {
  const Slots row = slots_of("row");
  for (const uint32_t far : {uint32_t{kSlots}, 0x7FFFFFFFu})
    for (const bool shared : {false, true}) {
      Slots wrong = row;
      wrong[17] = far;
      const Move m{"b32", 2, "row", "row", shared};
      EXPECT_NE(error_of(m, wrong, row).find("thread 17: ld"), std::string::npos) << far << shared;
      EXPECT_NE(error_of(m, row, wrong).find("thread 17: st"), std::string::npos) << far << shared;
    }
  EXPECT_EQ(error_of({"b32", 2, "row", "row"}, row, row), "");
}

TEST(PtxMemory, OneLaneThatIsMisalignedIsNamed) {
  for (const char* space : {"global", "shared"}) {
    Module module(kernel_text(
        ".param .u64 out",
        ".reg .pred %p;\n.reg .b32 %t, %v;\n.reg .b64 %at, %tile;\n.shared .align 16 .b8 tile[256];\n"
        "mov.u32 %t, %tid.x;\nsetp.eq.u32 %p, %t, 17;\nld.param.u64 %at, [out];\nmov.u64 %tile, tile;\n" +
            std::string(space == std::string("shared") ? "mov.u64 %at, %tile;\n" : "") +
            "mad.wide.u32 %at, %t, 4, %at;\n@%p add.u64 %at, %at, 1;\nst." + space +
            ".b32 [%at], %t;\nret;"));
    std::vector<uint32_t> out(64);
    Memory memory;
    memory.add(out.data(), out.size() * 4, "out");
    Launch launch;
    launch.block = {kLanesOfWarp, 1, 1};
    launch.parameters = parameters_of(module.entry("kernel"), {reinterpret_cast<uint64_t>(out.data())});
    try {
      run(module, "kernel", launch, memory);
      FAIL() << space;
    } catch (const Fault& e) {
      EXPECT_NE(std::string(e.what()).find("thread 17: st"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("no multiple"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace assay::ptx
