// Bulk copies (9.7.9.25.4, 9.7.9.25.5): what they move, when they arrive, and what a kernel does wrong with
// them. Expected tiles are computed here by their definition, element by element.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <numeric>

#include "fast/ptx/slice.h"
#include "fast/ptx/tensor_map.h"
#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr unsigned kThreads = 64, kTileBytes = 2048;

// %r3 is `tile`, %r4 `bar`, %r0 the thread, %p0 thread 0; %rd1 `out`, %rd2 `in`, %rd5 the map of `in`, %rd6
// that of `out`.
std::string bulk_kernel(const std::string& body) {
  return kernel_text(
      ".param .u64 out, .param .u64 in, .param .align 64 .b8 in_map[128], .param .align 64 .b8 out_map[128]",
      ".reg .pred %p<8>;\n.reg .b16 %h<4>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<12>;\n"
      ".shared .align 128 .b8 tile[4096];\n.shared .align 8 .b64 bar;\n"
      "ld.param.u64 %rd1, [out];\nld.param.u64 %rd2, [in];\nmov.u32 %r0, %tid.x;\nmov.u32 %r3, tile;\n"
      "mov.u32 %r4, bar;\nsetp.eq.u32 %p0, %r0, 0;\nmov.b64 %rd5, in_map;\ncvta.param.u64 %rd5, %rd5;\n"
      "mov.b64 %rd6, out_map;\ncvta.param.u64 %rd6, %rd6;\n@%p0 mbarrier.init.shared.b64 [%r4], 1;\n"
      "@%p0 fence.mbarrier_init.release.cluster;\nbar.sync 0;\n" +
          body + "\nret;");
}

struct Tried {
  std::vector<uint8_t> out = std::vector<uint8_t>(8192), in = std::vector<uint8_t>(8192);
  Counters counters;
  std::string error;
};

std::array<std::byte, kTensorMapBytes> map_over(const void* at, TensorMap m) {
  m.address = reinterpret_cast<uint64_t>(at);
  return encode(m);
}

template <class F> void with_launch(const std::string& body, const TensorMap& shape, Tried& t, F f) {
  // Tensors begin at multiples of 16 bytes.
  std::vector<std::byte> in(t.in.size() + 64), out(t.out.size() + 64);
  auto* const in_at = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uint64_t>(in.data()), 64));
  auto* const out_at = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uint64_t>(out.data()), 64));
  for (size_t n = 0; n < t.in.size(); ++n) t.in[n] = static_cast<uint8_t>(n * 7 + n / 256 + 1);
  std::memcpy(in_at, t.in.data(), t.in.size());
  std::memset(out_at, 0xEE, t.out.size());
  try {
    Module m(bulk_kernel(body));
    Memory memory;
    memory.add(out_at, t.out.size(), "out");
    memory.add(in_at, t.in.size(), "in", false);
    Launch launch;
    launch.block = {kThreads, 1, 1};
    const Entry& e = m.entry("kernel");
    launch.parameters.resize(e.parameter_bytes);
    const auto put = [&](size_t n, const void* from, size_t bytes) {
      std::memcpy(launch.parameters.data() + e.parameters[n].offset, from, bytes);
    };
    put(0, &out_at, 8), put(1, &in_at, 8);
    const auto in_map = map_over(in_at, shape), out_map = map_over(out_at, shape);
    put(2, in_map.data(), in_map.size()), put(3, out_map.data(), out_map.size());
    f(m, launch, memory);
  } catch (const Fault& e) {
    t.error = e.what();
  }
  std::memcpy(t.out.data(), out_at, t.out.size());
}

// A tensor of 2 bytes an element, 40 rows of 50 elements with 128 bytes between them, and a box of 16x32.
TensorMap plain_map() {
  TensorMap m;
  m.rank = 2, m.element_bytes = 2;
  m.sizes = {50, 40}, m.strides = {2, 128}, m.box = {32, 16};
  return m;
}

Tried tried(const std::string& body, const std::vector<uint64_t>& orders = {0, 1, 2, 3},
            const TensorMap& map = plain_map()) {
  Tried t;
  with_launch(body, map, t, [&](Module& m, const Launch& launch, const Memory& memory) {
    for (const uint64_t order : orders) {
      RunOptions options;
      options.order = order, options.check = order != 0, options.count = true;
      t.counters = run(m, "kernel", launch, memory, options);
    }
  });
  return t;
}
void expect_fault(const Tried& t, const std::vector<std::string>& words) {
  for (const std::string& w : words)
    EXPECT_NE(t.error.find(w), std::string::npos) << w << " is not in: " << t.error;
}

const std::string kWait = "AGAIN:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0;\n@!%p1 bra AGAIN;\n";
// 2048 bytes from `in` to `tile`, then thread by thread from `tile` to `out`, 32 bytes each.
std::string expect_bytes(const std::string& bytes) {
  return "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], " + bytes + ";\n";
}
const std::string kLoadIt =
    "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd2], 2048, [%r4];\n";
const std::string kToOut =
    "mad.lo.u32 %r5, %r0, 32, %r3;\nmad.wide.u32 %rd7, %r0, 32, %rd1;\n"
    "ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r5];\nst.global.v4.u32 [%rd7], {%r8, %r9, %r10, %r11};\n"
    "ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r5+16];\nst.global.v4.u32 [%rd7+16], {%r8, %r9, %r10, "
    "%r11};\n";
const std::string kFill =
    "mad.lo.u32 %r5, %r0, 32, %r3;\nmad.lo.u32 %r6, %r0, 77, 5;\n"
    "st.shared.v4.u32 [%r5], {%r6, %r0, %r6, %r0};\nst.shared.v4.u32 [%r5+16], {%r0, %r6, %r0, %r6};\n";
const std::string kFence = "fence.proxy.async.shared::cta;\n", kBarrier = "bar.sync 0;\n";
const std::string kStoreIt = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 2048;\n";
const std::string kCommit = "@%p0 cp.async.bulk.commit_group;\n";
const std::string kRead = "@%p0 cp.async.bulk.wait_group.read 0;\n",
                  kWritten = "@%p0 cp.async.bulk.wait_group 0;\n";

TEST(PtxBulk, BytesArriveAtTheirMbarrier) {
  const Tried t = tried(expect_bytes("2048") + kLoadIt + kWait + kToOut);
  ASSERT_EQ(t.error, "");
  for (unsigned n = 0; n < kTileBytes; ++n) EXPECT_EQ(t.out[n], t.in[n]) << n;
  EXPECT_EQ(t.counters.loads.bytes, 2048u);
  EXPECT_EQ(t.counters.loads.sectors, 64u);
  // In two halves, of which the second expects its bytes when it has been issued.
  const Tried halves = tried(
      replaced(kLoadIt, "2048", "1024") +
      "@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3+1024], [%rd2+1024], 1024, "
      "[%r4+0];\n" +
      expect_bytes("2048") + kWait + kToOut);
  ASSERT_EQ(halves.error, "");
  for (unsigned n = 0; n < kTileBytes; ++n) EXPECT_EQ(halves.out[n], halves.in[n]) << n;
}

// The lower halves of generic addresses count, of what a copy writes and of its mbarrier
// (RunOptions::generic_as_shared).
TEST(PtxBulk, GenericAddressesAreThoseOfSharedMemoryWhereThatIsAllowed) {
  const std::string body =
      expect_bytes("2048") +
      "mov.u64 %rd8, tile;\ncvta.shared.u64 %rd8, %rd8;\nmov.u64 %rd9, bar;\ncvta.shared.u64 %rd9, %rd9;\n" +
      replaced(replaced(kLoadIt, "[%r3]", "[%rd8]"), "[%r4]", "[%rd9]") + kWait + kToOut;
  for (const bool allowed : {false, true}) {
    Tried t;
    with_launch(body, plain_map(), t, [&](Module& m, const Launch& launch, const Memory& memory) {
      RunOptions options;
      options.check = true, options.generic_as_shared = allowed;
      run(m, "kernel", launch, memory, options);
    });
    if (!allowed) {
      expect_fault(t, {"is given a generic address, and .shared asks for one of shared memory"});
      continue;
    }
    ASSERT_EQ(t.error, "");
    for (unsigned n = 0; n < kTileBytes; ++n) EXPECT_EQ(t.out[n], t.in[n]) << n;
  }
}

// Threads set `out` to words that %r10 and %r11 hold in turn, and the tile to %r8 and %r9; one reduces the
// tile into `out`.
std::string reduction(const std::string& operation, const std::string& words) {
  return words +
         "mad.lo.u32 %r5, %r0, 32, %r3;\nmad.wide.u32 %rd7, %r0, 32, %rd1;\n"
         "st.shared.v4.u32 [%r5], {%r8, %r9, %r8, %r9};\nst.shared.v4.u32 [%r5+16], {%r9, %r8, %r9, %r8};\n"
         "st.global.v4.u32 [%rd7], {%r10, %r11, %r10, %r11};\n"
         "st.global.v4.u32 [%rd7+16], {%r11, %r10, %r11, %r10};\nfence.proxy.async;\n" +
         kBarrier + "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group." + operation +
         " [%rd1], [%r3], 2048" + (operation.starts_with("L2") ? ", %rd2" : "") + ";\n" + kCommit + kWritten;
}
// Thread t: its number times 77 and 5 more, and the complement of its number; against 4660 and -9.
const std::string kWholeWords =
    "mad.lo.u32 %r8, %r0, 77, 5;\nnot.b32 %r9, %r0;\nmov.u32 %r10, 4660;\nmov.u32 %r11, -9;\n";
template <class T, class F>
void expect_reduced(const std::string& operation, const std::string& words, F rule,
                    const std::function<std::array<uint32_t, 4>(uint32_t)>& of) {
  for (const uint64_t order : {0, 1, 2}) {
    const Tried t = tried(reduction(operation, words), {order});
    ASSERT_EQ(t.error, "") << operation;
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      const auto w = of(thread);
      const std::array<uint32_t, 8> tile = {w[0], w[1], w[0], w[1], w[1], w[0], w[1], w[0]},
                                    before = {w[2], w[3], w[2], w[3], w[3], w[2], w[3], w[2]};
      std::array<T, 32 / sizeof(T)> a, b, got;
      std::memcpy(a.data(), before.data(), 32), std::memcpy(b.data(), tile.data(), 32);
      std::memcpy(got.data(), t.out.data() + 32 * thread, 32);
      for (size_t n = 0; n < a.size(); ++n)
        EXPECT_EQ(got[n], rule(a[n], b[n])) << operation << " " << thread << " " << n;
    }
    EXPECT_EQ(t.out[2048], 0xEE);
  }
}
template <class T, class F> void expect_reduced_words(const std::string& operation, F rule) {
  expect_reduced<T>(operation, kWholeWords, rule, [](uint32_t t) {
    return std::array<uint32_t, 4>{t * 77 + 5, ~t, 4660, static_cast<uint32_t>(-9)};
  });
}

TEST(PtxBulk, ReductionsCombineElementByElement) {
  expect_reduced_words<uint32_t>("add.u32", [](uint32_t a, uint32_t b) { return a + b; });
  expect_reduced_words<int32_t>(
      "add.s32", [](int32_t a, int32_t b) { return static_cast<int32_t>(uint32_t(a) + uint32_t(b)); });
  expect_reduced_words<uint64_t>("add.u64", [](uint64_t a, uint64_t b) { return a + b; });
  expect_reduced_words<uint32_t>("min.u32", [](uint32_t a, uint32_t b) { return std::min(a, b); });
  expect_reduced_words<int32_t>("min.s32", [](int32_t a, int32_t b) { return std::min(a, b); });
  expect_reduced_words<int64_t>("max.s64", [](int64_t a, int64_t b) { return std::max(a, b); });
  expect_reduced_words<uint64_t>("L2::cache_hint.max.u64",
                                 [](uint64_t a, uint64_t b) { return std::max(a, b); });
  expect_reduced_words<uint32_t>("and.b32", [](uint32_t a, uint32_t b) { return a & b; });
  expect_reduced_words<uint64_t>("or.b64", [](uint64_t a, uint64_t b) { return a | b; });
  expect_reduced_words<uint32_t>("xor.b32", [](uint32_t a, uint32_t b) { return a ^ b; });
  expect_reduced_words<uint32_t>("inc.u32", [](uint32_t a, uint32_t b) { return a >= b ? 0 : a + 1; });
  expect_reduced_words<uint32_t>("dec.u32",
                                 [](uint32_t a, uint32_t b) { return a == 0 || a > b ? b : a - 1; });
  expect_reduced<float>(
      "add.f32",
      "cvt.rn.f32.u32 %r8, %r0;\nneg.f32 %r9, %r8;\nmov.b32 %r10, 0f3E000001;\nmov.b32 %r11, 0f80000000;\n",
      [](float a, float b) { return a + b; },
      [](uint32_t t) {
        const auto v = static_cast<float>(t);
        return std::array<uint32_t, 4>{std::bit_cast<uint32_t>(v), std::bit_cast<uint32_t>(-v), 0x3E000001u,
                                       0x80000000u};
      });
}

TEST(PtxBulk, ReductionsAreCopiesThatArriveLateAndDoNotRaceWithEachOther) {
  const std::string add = reduction("add.u32", kWholeWords);
  const std::string twice =
      replaced(add, kCommit,
               replaced(kCommit, "@%p0",
                        "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 "
                        "[%rd1], [%r3], 2048;\n@%p0"));
  const Tried t = tried(twice, {1});
  ASSERT_EQ(t.error, "");
  uint32_t first = 0;
  std::memcpy(&first, t.out.data(), 4);
  EXPECT_EQ(first, 4660u + 5u + 5u);
  expect_fault(tried(replaced(add, "fence.proxy.async;\n", ""), {1}),
               {"no fence.proxy.async stands between the two"});
  expect_fault(tried(replaced(add, kWritten, "") +
                         "@%p0 ld.global.u32 %r12, [%rd1];\n@%p0 st.global.u32 [%rd1], %r12;\n",
                     {1}),
               {"nobody has waited for that copy"});
  expect_fault(tried(replaced(add, "2048;\n@", "2040;\n@")),
               {"needs a size that is a multiple of 16, and is given 2040"});
  expect_fault(tried(replaced(add, "add.u32", "add.f16")), {"unsupported form"});
  expect_fault(tried(replaced(add, "add.u32", "add.s64")), {"unsupported form"});
  // What reads the place that is combined reads a value that nobody wrote.
  expect_fault(
      tried(replaced(add, "st.global.v4.u32 [%rd7+16], {%r11, %r10, %r11, %r10};\n", "") +
                "@%p0 ld.global.u32 %r12, [%rd1+16];\nsetp.eq.u32 %p4, %r12, 0;\n@%p4 bra END;\nEND:\n",
            {1}),
      {"undefined"});
}

TEST(PtxBulk, WhoeverDoesNotWaitForALoadIsNamed) {
  expect_fault(tried(expect_bytes("2048") + kLoadIt),
               {"is not waited for: the block ends before it has written to its shared memory"});
  expect_fault(tried(expect_bytes("2048") + kLoadIt + kToOut, {1}),
               {"of 16 bytes reads a byte that thread 0 writes", "nobody has waited for that copy"});
  expect_fault(
      tried(expect_bytes("2048") + kLoadIt + kBarrier + replaced(kWait, "], 0", "], 1") + kToOut, {2}),
      {"nobody has waited for that copy"});
  // A wrong number of bytes: more than come, or fewer.
  expect_fault(tried(expect_bytes("4096") + kLoadIt + kWait + kToOut),
               {"deadlock", "phase 0, where 1 of 1 arrivals have come and 2048 bytes of copies are missing"});
  expect_fault(tried(expect_bytes("16") + kLoadIt + kWait + kToOut),
               {"deadlock", "2032 bytes have come that nobody expected"});
  // A buffer that is filled again before all have read it.
  const std::string again = expect_bytes("2048") + kLoadIt + kWait + kToOut + "%SYNC%" +
                            expect_bytes("2048") + kLoadIt +
                            replaced(replaced(kWait, "AGAIN", "MORE"), "], 0", "], 1");
  EXPECT_EQ(tried(replaced(again, "%SYNC%", kBarrier)).error, "");
  expect_fault(tried(replaced(again, "%SYNC%", "")), {"(ld.shared.v4.u32)", "or barrier orders"});
  // Without checks poison is seen: a copy arrives when nobody can go on without it.
  const Tried early = tried(expect_bytes("2048") + kLoadIt + kToOut + kWait, {0});
  ASSERT_EQ(early.error, "");
  EXPECT_EQ(early.out[5], 0x7F);
}

TEST(PtxBulk, StoresNeedAFenceOfProxiesAndAWait) {
  const Tried t = tried(kFill + kFence + kBarrier + kStoreIt + kCommit + kRead);
  ASSERT_EQ(t.error, "");
  for (unsigned n = 0; n < kThreads; ++n) {
    uint32_t words[8];
    std::memcpy(words, t.out.data() + 32 * size_t{n}, 32);
    EXPECT_EQ(words[0], 77 * n + 5);
    EXPECT_EQ(words[7], 77 * n + 5);
    EXPECT_EQ(words[4], n);
  }
  // The fence may also stand behind the barrier, in the thread that copies.
  EXPECT_EQ(tried(kFill + kBarrier + "fence.proxy.async;\n" + kStoreIt + kCommit + kWritten).error, "");
  const std::string bare = kFill + kBarrier + kStoreIt + kCommit + kRead;
  expect_fault(tried(bare), {"cp.async.bulk.global.shared::cta.bulk_group reads a byte that thread",
                             "(st.shared.v4.u32), and no fence.proxy.async stands between the two"});
  // One thread's fence is not that of the others.
  expect_fault(tried(kFill + "@%p0 " + kFence + kBarrier + kStoreIt + kCommit + kRead),
               {"no fence.proxy.async"});
  expect_fault(tried(kFill + kFence + kStoreIt + kCommit + kRead), {"a byte that thread", "barrier orders"});
  // Who overwrites what is still read, or reads what is not written yet; a block may end before that.
  const std::string stored = kFill + kFence + kBarrier + kStoreIt + kCommit;
  EXPECT_EQ(tried(stored).error, "");
  expect_fault(tried(stored + "@%p0 st.shared.u32 [%r3], %r0;\n" + kRead),
               {"writes a byte that thread 0 reads", "nobody has waited for that copy"});
  EXPECT_EQ(tried(stored + kRead + "@%p0 st.shared.u32 [%r3], %r0;\n").error, "");
  const std::string reads_back = "@%p0 ld.global.u32 %r6, [%rd1];\n@%p0 st.global.u32 [%rd1+4096], %r6;\n";
  expect_fault(tried(stored + kRead + reads_back),
               {"ld.global.u32 of 4 bytes reads a byte", "nobody has waited"});
  EXPECT_EQ(tried(stored + kWritten + reads_back).error, "");
  // The second of two groups may still be on its way.
  const std::string two =
      kFill + kFence + kBarrier + replaced(kStoreIt, "2048", "1024") + kCommit +
      "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1+1024], [%r3+1024], 1024;\n" + kCommit +
      replaced(kRead, " 0;", " 1;");
  expect_fault(tried(two + "@%p0 st.shared.u32 [%r3+1024], %r0;\n" + kRead), {"nobody has waited"});
  EXPECT_EQ(tried(two + "@%p0 st.shared.u32 [%r3], %r0;\n" + kRead).error, "");
}

TEST(PtxBulk, WrongAddressesAndSizesAreNamed) {
  const auto load = [](const std::string& operands) {
    return tried(expect_bytes("2048") +
                 "@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes " + operands + ";\n" +
                 kWait);
  };
  expect_fault(load("[%r3+8], [%rd2], 2048, [%r4]"),
               {"an offset in shared memory that is a multiple of 16", "8"});
  expect_fault(load("[%r3], [%rd2+4], 2048, [%r4]"),
               {"an address in global memory that is a multiple of 16"});
  expect_fault(load("[%r3], [%rd2], 2040, [%r4]"), {"a size that is a multiple of 16, and is given 2040"});
  expect_fault(load("[%r3], [%rd2+6160], 2048, [%r4]"), {"thread 0:", "outside every allocation", "'in'"});
  expect_fault(load("[%r3+3072], [%rd2], 2048, [%r4]"), {"outside shared memory of"});
  expect_fault(load("[%r3], [%rd2], 2048, [%r3]"), {"finds no mbarrier at shared offset 0"});
  expect_fault(load("[%r3+2048], [%rd2], 2064, [%r4]"), {"reaches into the mbarrier at shared offset 4096"});
  expect_fault(tried("@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 16;\n"),
               {"writes to 'in', which is an input"});
  expect_fault(
      tried("@%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 16;\n" + kCommit + kRead, {1}),
      {"thread 0:", "stores an undefined value to 'out'"});
  expect_fault(tried("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
                     "[%r3], [%r3], 16, [%r4];\n"),
               {"unsupported"});
}

// What lies in `tile` behind a tensor load, by its definition.
std::vector<uint8_t> box_of(const std::vector<uint8_t>& in, const TensorMap& m,
                            const std::vector<int>& first) {
  std::vector<uint8_t> out(m.box_bytes());
  for (uint64_t n = 0; n < out.size() / m.element_bytes; ++n) {
    uint64_t left = n, from = 0;
    bool inside = true;
    for (uint32_t d = 0; d < m.rank; ++d) {
      const int64_t at = first[d] + static_cast<int64_t>(left % m.box[d]);
      left /= m.box[d];
      inside = inside && at >= 0 && static_cast<uint64_t>(at) < m.sizes[d];
      from += static_cast<uint64_t>(at) * m.strides[d];
    }
    // The atoms of a row change places with the row: as the figures of 5.5.5 show it.
    uint64_t to = n * m.element_bytes;
    if (m.swizzle) {
      const uint64_t atoms = m.swizzle / m.atom, line = to / 128 % atoms, atom = to / m.atom % atoms;
      to = to - atom * m.atom + (atom ^ line) * m.atom;
    }
    for (uint32_t b = 0; b < m.element_bytes; ++b) out[to + b] = inside ? in[from + b] : 0;
  }
  return out;
}

void expect_box(const TensorMap& m, const std::vector<int>& first) {
  std::string at;
  for (const int c : first) at += (at.empty() ? "" : ", ") + std::to_string(c);
  const Tried t = tried(
      expect_bytes(std::to_string(m.box_bytes())) + "@%p0 cp.async.bulk.tensor." + std::to_string(m.rank) +
          "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd5, {" + at + "}], [%r4];\n" +
          kWait + "mov.u32 %r12, " + std::to_string(m.box_bytes()) +
          ";\nmad.lo.u32 %r13, %r0, 32, 32;\nsetp.gt.u32 %p3, %r13, %r12;\n@%p3 bra OUT;\n" + kToOut +
          "OUT:\n",
      {0, 1, 2}, m);
  ASSERT_EQ(t.error, "") << at;
  const std::vector<uint8_t> expected = box_of(t.in, m, first);
  const size_t whole = expected.size() / 32 * 32;
  EXPECT_TRUE(
      std::equal(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(whole), t.out.begin()))
      << at;
}

TEST(PtxBulk, BoxesOfATensorWithZerosOutside) {
  for (const std::vector<int>& first : std::vector<std::vector<int>>{{0, 0},
                                                                     {16, 8},
                                                                     {8, 5},
                                                                     {24, 24},
                                                                     {40, 30},
                                                                     {48, 39},
                                                                     {-8, -3},
                                                                     {56, 0},
                                                                     {0, 40},
                                                                     {-32, 0},
                                                                     {-40, 100}})
    expect_box(plain_map(), first);
  for (const auto& [swizzle, atom] :
       {std::pair{32u, 16u}, {64u, 16u}, {128u, 16u}, {128u, 32u}, {128u, 64u}}) {
    TensorMap m = plain_map();
    m.swizzle = swizzle, m.atom = atom, m.box = {swizzle / 2, 16};
    for (const std::vector<int>& first : std::vector<std::vector<int>>{{0, 0}, {8, 3}, {16, 30}})
      expect_box(m, first);
  }
  TensorMap bytes = plain_map();
  bytes.element_bytes = 1, bytes.sizes = {100, 40}, bytes.strides = {1, 128}, bytes.box = {64, 8};
  expect_box(bytes, {48, 36});
  TensorMap line = plain_map();
  line.rank = 1, line.element_bytes = 4, line.sizes = {1001}, line.strides = {4}, line.box = {128};
  expect_box(line, {900});
  TensorMap cube = plain_map();
  cube.rank = 5, cube.element_bytes = 2, cube.sizes = {14, 3, 5, 2, 3}, cube.strides = {2, 32, 96, 480, 960};
  cube.box = {8, 2, 2, 2, 2};
  expect_box(cube, {8, 2, 4, 0, 1});
  cube.rank = 3;
  expect_box(cube, {8, -1, 3});
}

// Elements of 4 bits are counted two to a byte, and lie without gaps on both sides.
TEST(PtxBulk, BoxesOfElementsOfHalfAByte) {
  TensorMap bytes = plain_map(), halves = plain_map();
  bytes.element_bytes = 1, bytes.sizes = {50, 40}, bytes.strides = {1, 128}, bytes.box = {32, 8};
  halves = bytes;
  halves.half_bytes = true, halves.sizes = {100, 40}, halves.box = {64, 8};
  EXPECT_EQ(halves.box_bytes(), bytes.box_bytes());
  const auto loaded = [](const TensorMap& m, const std::string& at) {
    return tried(
        expect_bytes("256") +
            "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], "
            "[%rd5, {" +
            at + "}], [%r4];\n" + kWait + "setp.gt.u32 %p3, %r0, 7;\n@%p3 bra OUT;\n" + kToOut + "OUT:\n",
        {0, 1}, m);
  };
  for (const auto& [first, byte] :
       {std::pair{"0, 0", "0, 0"}, {"96, 36", "48, 36"}, {"-32, -2", "-16, -2"}}) {
    const Tried half = loaded(halves, first), whole = loaded(bytes, byte);
    ASSERT_EQ(half.error, "");
    EXPECT_EQ(half.out, whole.out) << first;
  }
  EXPECT_NE(loaded(halves, "0, 0").out, loaded(halves, "32, 0").out);
  for (const char* element : {"1", "30", "33"})
    expect_fault(loaded(halves, std::string(element) + ", 0"),
                 {"begins at element " + std::string(element) + " of a row"});
  const auto refused = [&](auto change) {
    TensorMap m = halves;
    change(m);
    EXPECT_THROW(encode(m), Fault);
  };
  refused([](TensorMap& m) { m.box[0] = 33; });
  refused([](TensorMap& m) { m.sizes[0] = 99; });
  refused([](TensorMap& m) { m.box[0] = 16; });  // rows of 8 bytes
  refused([](TensorMap& m) { m.element_bytes = 2; });
}

// A store reads as late as the text allows, or when it is issued.
TEST(PtxBulk, StoresMayReadAtOnce) {
  const std::string body =
      kFill + kFence + kBarrier + kStoreIt + kCommit + "@%p0 st.shared.u32 [%r3], 123456;\n" + kRead;
  const auto first_word = [&](bool at_once, bool check) {
    Tried t;
    with_launch(body, plain_map(), t, [&](Module& m, const Launch& launch, const Memory& memory) {
      RunOptions options;
      options.stores_at_once = at_once, options.check = check;
      run(m, "kernel", launch, memory, options);
    });
    EXPECT_EQ(t.error.empty(), !check) << t.error;
    uint32_t word = 0;
    std::memcpy(&word, t.out.data(), 4);
    return word;
  };
  EXPECT_EQ(first_word(false, false), 123456u);
  EXPECT_EQ(first_word(true, false), 5u);
  first_word(true, true);  // with checks the missing wait is an error either way
}

// What an H100 ends as an illegal instruction, outside of the tensor as well.
TEST(PtxBulk, ABoxBeginsAtAMultipleOf16Bytes) {
  const auto loaded = [](const std::string& at) {
    return tried(expect_bytes("1024") +
                     "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                     "[%r3], [%rd5, {" +
                     at + "}], [%r4];\n" + kWait,
                 {0});
  };
  EXPECT_EQ(loaded("-8, 5").error, "");
  for (const char* element : {"3", "-4", "900"})
    expect_fault(loaded(std::string(element) + ", 5"),
                 {"PTX line", "begins at element " + std::string(element) + " of a row",
                  "no multiple of 16 bytes", "illegal instruction"});
  expect_fault(tried(kFill + kFence + kBarrier +
                     "@%p0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd6, {30, 35}], [%r3];\n" +
                     kCommit + kRead),
               {"begins at element 30 of a row"});
}

TEST(PtxBulk, ABoxIsStoredInsideTheTensorAlone) {
  const Tried t =
      tried(kFill + kFence + kBarrier +
            "@%p0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd6, {24, 35}], [%r3];\n" +
            kCommit + kRead);
  ASSERT_EQ(t.error, "");
  for (unsigned row = 0; row < 40; ++row)
    for (unsigned column = 0; column < 64; ++column) {
      uint16_t v = 0;
      std::memcpy(&v, t.out.data() + 128 * row + 2 * column, 2);
      const unsigned word = ((row - 35) * 32 + (column - 24)) / 2, thread = word / 8;
      const bool inside = row >= 35 && column >= 24 && column < 50;
      const uint32_t filled = (word % 8 < 4) == (word % 2 == 0) ? 77 * thread + 5 : thread;
      EXPECT_EQ(v, inside ? static_cast<uint16_t>(filled >> (column % 2 ? 16 : 0)) : 0xEEEE)
          << row << "," << column;
    }
}

TEST(PtxBulk, WrongTensorCopiesAreNamed) {
  const auto load = [](const std::string& operands, const std::string& rank = "2d") {
    return tried(expect_bytes("1024") + "@%p0 cp.async.bulk.tensor." + rank +
                 ".shared::cta.global.mbarrier::complete_tx::bytes " + operands + ";\n" + kWait);
  };
  EXPECT_EQ(load("[%r3], [%rd5, {0, 0}], [%r4]").error, "");
  expect_fault(load("[%r3+16], [%rd5, {0, 0}], [%r4]"), {"multiple of 128, and is given 16"});
  expect_fault(load("[%r3], [%rd5, {0, 0, 0}], [%r4]", "3d"), {"names 3 coordinates", "has 2 dimensions"});
  expect_fault(load("[%r3], [%rd2, {0, 0}], [%r4]"), {"is given an address of no tensor map"});
  expect_fault(load("[%r3], [%rd5+32, {0, 0}], [%r4]"), {"no multiple of them"});
  expect_fault(load("[%r3], [%rd5, {0}], [%r4]"), {"needs 2 coordinates, not 1"});
  expect_fault(load("[%r3], [%rd5], [%r4]"), {"needs coordinates behind its tensor map"});
  expect_fault(load("[%r3], [%rd5, {%r9, 0}], [%r4]"), {"PTX line"});
  TensorMap beyond = plain_map();
  beyond.sizes = {50, 400};
  expect_fault(tried(expect_bytes("1024") +
                         "@%p0 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes "
                         "[%r3], [%rd5, {0, "
                         "60}], [%r4];\n" +
                         kWait,
                     {0}, beyond),
               {"outside every allocation; nearest below 'in'"});
  // A box of 256^5 elements is refused before anybody counts them.
  TensorMap huge = plain_map();
  huge.rank = 5, huge.sizes = {256, 256, 256, 256, 256}, huge.strides = {2, 512, 512, 512, 512};
  huge.box = {256, 256, 256, 256, 256};
  expect_fault(
      tried(
          "@%p0 cp.async.bulk.tensor.5d.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%rd5, {0, 0, "
          "0, 0, 0}], [%r4];\n",
          {0}, huge),
      {"of 2199023255552 bytes outside shared memory"});
  const auto refused = [](auto change) {
    TensorMap m = plain_map();
    change(m);
    try {
      encode(m);
    } catch (const Fault& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(refused([](TensorMap& m) { m.strides[1] = 100; }).find("multiples of 16 bytes"),
            std::string::npos);
  EXPECT_NE(refused([](TensorMap& m) { m.box[0] = 7; }).find("rows are multiples of 16"), std::string::npos);
  EXPECT_NE(refused([](TensorMap& m) { m.box[1] = 257; }).find("1 to 256"), std::string::npos);
  EXPECT_NE(refused([](TensorMap& m) { m.address = 8; }).find("multiple of 16"), std::string::npos);
  EXPECT_NE(refused([](TensorMap& m) { m.swizzle = 64, m.atom = 32; }).find("by 64 bytes atoms of 32"),
            std::string::npos);
  EXPECT_NE(refused([](TensorMap& m) { m.swizzle = 128; }).find("swizzles by 128 bytes"), std::string::npos);
  EXPECT_NE(refused([](TensorMap& m) { m.rank = 6; }).find("1 to 5 dimensions"), std::string::npos);
  EXPECT_NE(refused([](TensorMap& m) { m.sizes[1] = 0; }).find("0 elements"), std::string::npos);
}

TEST(PtxBulk, ParametersHaveGenericAddresses) {
  const Tried t = tried(
      "ld.u64 %rd7, [%rd5+8];\nisspacep.param %p1, %rd5;\nisspacep.global %p2, %rd5;\nisspacep.param %p3, "
      "%rd2;\n"
      "isspacep.shared %p4, %rd5;\nselp.b32 %r8, 1, 0, %p1;\nselp.b32 %r9, 1, 0, %p2;\nselp.b32 %r10, 1, 0, "
      "%p3;\n"
      "selp.b32 %r11, 1, 0, %p4;\nsub.u64 %rd7, %rd7, %rd2;\n@%p0 st.global.u64 [%rd1], %rd7;\n"
      "@%p0 st.global.v4.u32 [%rd1+16], {%r8, %r9, %r10, %r11};\n");
  ASSERT_EQ(t.error, "");
  uint64_t apart = 1;
  uint32_t in_window[4];
  std::memcpy(&apart, t.out.data(), 8), std::memcpy(in_window, t.out.data() + 16, 16);
  EXPECT_EQ(apart, 0u);  // the map begins with its mark and the address of `in`
  EXPECT_EQ(std::vector<uint32_t>(in_window, in_window + 4), (std::vector<uint32_t>{1, 1, 0, 0}));
  expect_fault(tried("st.u32 [%rd5], %r0;\n"), {"writes to parameters"});
  expect_fault(tried("ld.u64 %rd7, [%rd6+128];\n"), {"outside the parameters of"});
}

TEST(PtxBulk, ASliceGoesThroughThem) {
  Tried t;
  std::vector<SliceStep> steps;
  with_launch(expect_bytes("2048") + kLoadIt + kWait + kBarrier + kFence + kStoreIt + kCommit + kRead,
              plain_map(), t, [&](Module& m, const Launch& launch, const Memory& memory) {
                steps = slice_behind(
                    [&](Recorder& r) {
                      RunOptions options;
                      options.recorder = &r;
                      run(m, "kernel", launch, memory, options);
                    },
                    "out", uint64_t{8} * 1236, 32);
              });
  ASSERT_EQ(t.error, "");
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps[0].memory, "in");
  EXPECT_EQ(steps[0].offset, 1236u);
  EXPECT_NE(steps[0].text.find("cp.async.bulk.shared::cluster.global"), std::string::npos) << steps[0].text;
  EXPECT_EQ(steps[3].memory, "out");
}

}  // namespace
}  // namespace assay::ptx
