// Errors of memory and order, planted one by one: each is named with kernel, block, thread, line and what
// lies there, and the same kernel without it passes.
#include <gtest/gtest.h>

#include "tests/fast/ptx/harness.h"

namespace assay::ptx {
namespace {

constexpr unsigned kThreads = 64, kBlocks = 2;

// A kernel whose thread has its own word of `out` at %rd1 and its number in %r0; `fresh` is a buffer that
// nobody wrote.
std::string kernel_of(const std::string& body) {
  return kernel_text(".param .u64 out, .param .u64 in, .param .u64 fresh",
                     ".reg .pred %p<8>;\n.reg .b16 %rs<4>;\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n"
                     ".shared .align 16 .b8 tile[1024];\n.local .align 4 .b8 own[16];\n"
                     "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmad.lo.u32 %r1, %r1, 64, %r0;\n"
                     "ld.param.u64 %rd0, [out];\nmad.wide.u32 %rd1, %r1, 4, %rd0;\nld.param.u64 %rd2, [in];\n"
                     "ld.param.u64 %rd3, [fresh];\nmov.u32 %r4, tile;\nmad.lo.u32 %r5, %r0, 4, %r4;\n" +
                         body + "\nret;");
}

std::string error_of(const std::string& body, uint64_t order = 0) {
  std::vector<uint32_t> out(kThreads * kBlocks), in(kThreads, 7), fresh(kThreads * kBlocks);
  try {
    Module m(kernel_of(body));
    Memory memory;
    memory.add(out.data(), out.size() * 4, "out");
    memory.add(in.data(), in.size() * 4, "in", false);
    memory.add(fresh.data(), fresh.size() * 4, "fresh", true, false);
    Launch launch;
    launch.grid = {kBlocks, 1, 1};
    launch.block = {kThreads, 1, 1};
    launch.parameters = parameters_of(
        m.entry("kernel"), {reinterpret_cast<uint64_t>(out.data()), reinterpret_cast<uint64_t>(in.data()),
                            reinterpret_cast<uint64_t>(fresh.data())});
    RunOptions options;
    options.order = order;
    options.check = true;
    options.most_instructions = 1u << 19;  // so that a kernel that does not end is told soon
    run(m, "kernel", launch, memory, options);
  } catch (const Fault& e) {
    return e.what();
  }
  return "";
}

struct Planted {
  const char* name;
  std::string body, mended;  // mended: the same without the error
  std::vector<const char*> words;
};

void PrintTo(const Planted& p, std::ostream* out) { *out << p.name; }

// Each block writes a word, does what orders nothing, and, where it comes second, reads the word of the first
// block, or, mended, its own.
Planted blocks_seem_ordered(const char* name, const std::string& by) {
  const auto body = [&](const std::string& other) {
    return "mov.u32 %r7, %ctaid.x;\nsetp.ne.u32 %p2, %r0, 0;\n@%p2 bra END;\nmad.wide.u32 %rd4, %r7, 4, "
           "%rd0;\natom.relaxed.gpu.global.add.u32 %r6, [%rd0], 1;\nst.shared.u32 [tile], 0;\n"
           "st.global.u32 [%rd4+8], 7;\n" +
           by + "\nsetp.ne.u32 %p0, %r6, 1;\n@%p0 bra END;\nxor.b32 %r8, %r7, " + other +
           ";\nmad.wide.u32 %rd5, %r8, 4, %rd0;\nld.global.u32 %r3, [%rd5+8];\nEND:";
  };
  return {name, body("1"), body("0"), {"blocks of one grid are not ordered"}};
}

const Planted kPlanted[] = {
    {"LoadBehindTheEnd",
     "ld.global.u32 %r2, [%rd1+256];\nst.global.u32 [%rd1], %r2;",
     "ld.global.u32 %r2, [%rd1+0];\nst.global.u32 [%rd1], %r2;",
     {"block (1,0,0) thread 0: ld.global.u32 of 4 bytes outside every allocation", "PTX line 21"}},
    {"StoreBeforeTheBegin",
     "st.global.u32 [%rd1+-4], %r0;",
     "st.global.u32 [%rd1+0], %r0;",
     {"thread 0: st.global.u32 of 4 bytes outside every allocation", "nearest"}},
    {"MisalignedLoad",
     "ld.global.u32 %r2, [%rd2+2];",
     "ld.global.u16 %rs2, [%rd2+2];",
     {"no multiple of them: 'in' (256 bytes), offset 2"}},
    {"StoreToAnInput",
     "st.global.u32 [%rd2], %r0;",
     "ld.global.u32 %r2, [%rd2];",
     {"writes to 'in', which is an input"}},
    {"SharedBehindTheEnd",
     "st.shared.u32 [%r5+1020], %r0;",
     "st.shared.u32 [%r5+252], %r0;",
     {"thread 1: st.shared.u32 of 4 bytes outside shared memory of 1024 bytes, offset 1024"}},
    {"RegisterNeverWritten",
     "st.global.u32 [%rd1], %r9;",
     "mov.u32 %r9, 1;\nst.global.u32 [%rd1], %r9;",
     {"stores an undefined value to 'out' (512 bytes), offset 0", "a register that nothing was written to"}},
    {"RegisterWrittenBySomeLanes",
     "setp.lt.u32 %p0, %r0, 40;\n@%p0 mov.u32 %r9, 1;\nst.global.u32 [%rd1], %r9;",
     "setp.lt.u32 %p0, %r0, 40;\n@%p0 mov.u32 %r9, 1;\n@%p0 st.global.u32 [%rd1], %r9;",
     {"thread 40: st.global.u32 stores an undefined value"}},
    {"UndefinedThroughArithmetic",
     "add.u32 %r2, %r9, 1;\nshl.b32 %r3, %r2, 4;\nst.global.u32 [%rd1], %r3;",
     "add.u32 %r2, %r0, 1;\nshl.b32 %r3, %r2, 4;\nst.global.u32 [%rd1], %r3;",
     {"stores an undefined value"}},
    {"SharedNeverWritten",
     "ld.shared.u32 %r2, [%r5];\nst.global.u32 [%rd1], %r2;",
     "st.shared.u32 [%r5], %r0;\nld.shared.u32 %r2, [%r5];\nst.global.u32 [%rd1], %r2;",
     {"stores an undefined value", "read at PTX line 21 (ld.shared.u32)"}},
    {"SharedWrittenInPart",
     "cvt.u16.u32 %rs0, %r0;\nst.shared.u16 [%r5], %rs0;\nld.shared.u32 %r2, [%r5];\nst.global.u32 [%rd1], "
     "%r2;",
     "cvt.u16.u32 %rs0, %r0;\nst.shared.u16 [%r5], %rs0;\nst.shared.u16 [%r5+2], %rs0;\nld.shared.u32 %r2, "
     "[%r5];\nst.global.u32 [%rd1], %r2;",
     {"stores an undefined value", "ld.shared.u32"}},
    {"LocalNeverWritten",
     "ld.local.u32 %r2, [own+4];\nst.global.u32 [%rd1], %r2;",
     "st.local.u32 [own+4], %r0;\nld.local.u32 %r2, [own+4];\nst.global.u32 [%rd1], %r2;",
     {"stores an undefined value", "ld.local.u32"}},
    {"BufferNeverWritten",
     "ld.global.u32 %r2, [%rd3];\nst.global.u32 [%rd1], %r2;",
     "ld.global.u32 %r2, [%rd2];\nst.global.u32 [%rd1], %r2;",
     {"stores an undefined value", "ld.global.u32"}},
    {"UndefinedAddress",
     "cvt.u64.u32 %rd4, %r9;\nadd.u64 %rd4, %rd4, %rd0;\nld.global.u32 %r2, [%rd4];",
     "cvt.u64.u32 %rd4, 4;\nadd.u64 %rd4, %rd4, %rd0;\nld.global.u32 %r2, [%rd4];",
     {"ld.global.u32 is given an undefined address"}},
    {"UndefinedBranch",
     "setp.eq.u32 %p0, %r9, 1;\n@%p0 bra A;\nA:",
     "setp.eq.u32 %p0, %r0, 1;\n@%p0 bra A;\nA:",
     {"bra is guarded by an undefined predicate"}},
    {"UndefinedThroughAShuffle",
     "setp.lt.u32 %p0, %r0, 40;\n@%p0 mov.u32 %r9, 5;\nshfl.sync.bfly.b32 %r2, %r9, 16, 31, "
     "-1;\nst.global.u32 [%rd1], %r2;",
     "mov.u32 %r9, 5;\nshfl.sync.bfly.b32 %r2, %r9, 16, 31, -1;\nst.global.u32 [%rd1], %r2;",
     {"thread 32: st.global.u32 stores an undefined value"}},
    {"UndefinedThroughTheCarry",
     "add.cc.u32 %r2, %r9, 1;\naddc.u32 %r3, 0, 0;\nst.global.u32 [%rd1], %r3;",
     "add.cc.u32 %r2, %r0, 1;\naddc.u32 %r3, 0, 0;\nst.global.u32 [%rd1], %r3;",
     {"st.global.u32 stores an undefined value", "a register that nothing was written to"}},
    {"ACarryThatNothingLeft",
     "addc.u32 %r3, 0, 0;\nst.global.u32 [%rd1], %r3;",
     "add.cc.u32 %r2, 0, 0;\naddc.u32 %r3, 0, 0;\nst.global.u32 [%rd1], %r3;",
     {"st.global.u32 stores an undefined value"}},
    {"UndefinedPredicateOfMemory",
     "ld.shared.u32 %r2, [%r5];\nsetp.eq.u32 %p0, %r2, 1;\n@%p0 bra A;\nA:",
     "st.shared.u32 [%r5], %r0;\nld.shared.u32 %r2, [%r5];\nsetp.eq.u32 %p0, %r2, 1;\n@%p0 bra A;\nA:",
     {"bra is guarded by an undefined predicate", "read at PTX line 21 (ld.shared.u32)"}},
    {"UndefinedThroughAShuffleByItself",
     "setp.eq.u32 %p0, %r0, 10;\n@!%p0 mov.u32 %r9, 10;\nshfl.sync.idx.b32 %r2, %r9, %r9, 31, "
     "-1;\nst.global.u32 [%rd1], %r2;",
     "mov.u32 %r9, 10;\nshfl.sync.idx.b32 %r2, %r9, %r9, 31, -1;\nst.global.u32 [%rd1], %r2;",
     {"st.global.u32 stores an undefined value"}},
    {"AtomicOnWhatNobodyWrote",
     "red.shared.add.u32 [tile], 1;",
     "st.shared.u32 [tile], 0;\nbar.sync 0;\nred.shared.add.u32 [tile], 1;",
     {"red.shared.add.u32 changes memory that nothing was written to: shared memory, offset 0"}},
    {"AtomicWithAnUndefinedOperand",
     "red.global.add.u32 [%rd0], %r9;",
     "red.global.add.u32 [%rd0], %r0;",
     {"red.global.add.u32 takes an undefined operand"}},
    {"ReadAsConstantBehindAWrite",
     "st.global.u32 [%rd1], %r0;\nld.global.nc.u32 %r2, [%rd1];",
     "st.global.u32 [%rd1], %r0;\nld.global.u32 %r2, [%rd1];",
     {"reads, as what nothing writes (.nc), a byte that thread 0 writes at PTX line 21"}},
    {"WriteBehindAReadAsConstant",
     "ld.global.nc.u32 %r2, [%rd1];\nst.global.u32 [%rd1], %r2;",
     "ld.global.u32 %r2, [%rd1];\nst.global.u32 [%rd1], %r2;",
     {"writes a byte that thread 0 reads, as what nothing writes (.nc), at PTX line 21"}},
    {"AtomicsForOneBlockAlone",
     "red.relaxed.cta.global.add.u32 [%rd0], 1;",
     "red.relaxed.gpu.global.add.u32 [%rd0], 1;",
     {"of 4 bytes changes, for its block alone (.cta, .cluster), a byte that block "}},
    // The block that comes second reads what the first wrote.
    {"AFenceForOneBlockAlone",
     "mov.u32 %r7, %ctaid.x;\nsetp.ne.u32 %p2, %r0, 0;\n@%p2 bra END;\nmad.wide.u32 %rd4, %r7, 4, %rd0;\n"
     "st.global.u32 [%rd4+8], 7;\nmembar.cta;\natom.global.add.u32 %r2, [%rd0], 1;\nmembar.cta;\n"
     "setp.ne.u32 %p0, %r2, 1;\n@%p0 bra END;\nxor.b32 %r8, %r7, 1;\nmad.wide.u32 %rd5, %r8, 4, %rd0;\n"
     "ld.global.u32 %r3, [%rd5+8];\nEND:",
     "mov.u32 %r7, %ctaid.x;\nsetp.ne.u32 %p2, %r0, 0;\n@%p2 bra END;\nmad.wide.u32 %rd4, %r7, 4, %rd0;\n"
     "st.global.u32 [%rd4+8], 7;\nmembar.gl;\natom.global.add.u32 %r2, [%rd0], 1;\nmembar.gl;\n"
     "setp.ne.u32 %p0, %r2, 1;\n@%p0 bra END;\nxor.b32 %r8, %r7, 1;\nmad.wide.u32 %rd5, %r8, 4, %rd0;\n"
     "ld.global.u32 %r3, [%rd5+8];\nEND:",
     {"ld.global.u32 of 4 bytes reads a byte that block "}},
    blocks_seem_ordered("AFenceForOneClusterAlone",
                        "fence.acq_rel.cluster;\natom.global.add.u32 %r2, [%rd0+4], 1;"),
    blocks_seem_ordered("AFenceAndAnAtomicOfSharedMemory", "membar.gl;\natom.shared.add.u32 %r2, [tile], 1;"),
    blocks_seem_ordered("BlocksThatAcquireAlone", "ld.acquire.gpu.global.u32 %r2, [%rd0+4];"),
    blocks_seem_ordered("BlocksThatReleaseAlone", "st.release.gpu.global.u32 [%rd0+4], 1;"),
    {"AReductionThatMeetsAWait",
     "setp.lt.u32 %p0, %r0, 32;\n@%p0 barrier.red.popc.u32 %r2, 1, %p0;\n@!%p0 barrier.sync 1;",
     "setp.lt.u32 %p0, %r0, 32;\nbarrier.red.popc.u32 %r2, 1, %p0;",
     {"barrier.sync meets barrier.red.popc.u32 of PTX line 22 at barrier 1; a reduction must be the same for "
      "all"}},
    {"ReductionsOfTwoKinds",
     "setp.lt.u32 %p0, %r0, 32;\n@%p0 barrier.red.popc.u32 %r2, 1, %p0;\n@!%p0 barrier.red.or.pred %p1, 1, "
     "%p0;",
     "setp.lt.u32 %p0, %r0, 32;\nbarrier.red.or.pred %p1, 1, %p0;",
     {"meets barrier.red.popc.u32 of PTX line 22 at barrier 1"}},
    {"AnArrivalThatNobodyCounts",
     "mov.u32 %r2, 0;\nbarrier.arrive 1, %r2;\nbarrier.sync 1;",
     "setp.lt.u32 %p0, %r0, 32;\nmov.u32 %r2, 64;\n@%p0 barrier.arrive 1, %r2;\n@!%p0 barrier.sync 1, %r2;",
     {"waits for 0 threads, and a multiple of 32 from 32 on is expected"}},
    {"MissingBarrier",
     "st.shared.u32 [%r5], %r0;\nxor.b32 %r6, %r5, 128;\nld.shared.u32 %r2, [%r6];",
     "st.shared.u32 [%r5], %r0;\nbar.sync 0;\nxor.b32 %r6, %r5, 128;\nld.shared.u32 %r2, "
     "[%r6];\nst.global.u32 [%rd1], %r2;",
     {"a byte that thread ", "no barrier of the block orders them", "shared memory, offset"}},
    {"MissingBarrierBehindTheRead",
     "st.shared.u32 [%r5], %r0;\nbar.sync 0;\nxor.b32 %r6, %r5, 128;\nld.shared.u32 %r2, [%r6];\nadd.u32 "
     "%r3, %r2, "
     "7;\nst.shared.u32 [%r5], %r3;",
     "st.shared.u32 [%r5], %r0;\nbar.sync 0;\nxor.b32 %r6, %r5, 128;\nld.shared.u32 %r2, [%r6];\nadd.u32 "
     "%r3, %r2, "
     "7;\nbar.sync 0;\nst.shared.u32 [%r5], %r3;",
     {"no barrier of the block orders them"}},
    {"LanesWithoutSyncwarp",
     "st.shared.u32 [%r5], %r0;\nxor.b32 %r6, %r5, 4;\nld.shared.u32 %r2, [%r6];\nst.global.u32 [%rd1], %r2;",
     "st.shared.u32 [%r5], %r0;\nbar.warp.sync -1;\nxor.b32 %r6, %r5, 4;\nld.shared.u32 %r2, "
     "[%r6];\nst.global.u32 [%rd1], %r2;",
     {"no bar.warp.sync or barrier orders these lanes"}},
    {"AShuffleOrdersNothing",
     "st.shared.u32 [%r5], %r0;\nshfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;\nxor.b32 %r6, %r5, "
     "4;\nld.shared.u32 %r2, [%r6];",
     "st.shared.u32 [%r5], %r0;\nbar.warp.sync -1;\nxor.b32 %r6, %r5, 4;\nld.shared.u32 %r2, [%r6];",
     {"no bar.warp.sync"}},
    {"SyncwarpOrdersOneWarpOnly",
     "st.shared.u32 [%r5], %r0;\nbar.warp.sync -1;\nxor.b32 %r6, %r5, 128;\nld.shared.u32 %r2, [%r6];",
     "st.shared.u32 [%r5], %r0;\nbar.warp.sync -1;\nxor.b32 %r6, %r5, 4;\nld.shared.u32 %r2, [%r6];",
     {"no barrier of the block orders them"}},
    {"OnlyTheReadersSync",
     "setp.lt.u32 %p0, %r0, 32;\n@%p0 st.shared.u32 [%r5], %r0;\n@!%p0 bar.warp.sync -1;\n@!%p0 "
     "ld.shared.u32 %r2, "
     "[%r5+-128];",
     "setp.lt.u32 %p0, %r0, 32;\n@%p0 st.shared.u32 [%r5], %r0;\nbar.sync 0;\n@!%p0 ld.shared.u32 %r2, "
     "[%r5+-128];",
     {"no barrier of the block orders them"}},
    {"TwoLanesStoreOneWord",
     "st.global.u32 [%rd0], %r1;",
     "st.global.u32 [%rd0], 7;",
     {"thread 1: st.global.u32 of 4 bytes writes a byte that thread 0 writes at PTX line 21 "
      "(st.global.u32)"}},
    {"TwoBlocksStoreOneWord",
     "mad.wide.u32 %rd1, %r0, 4, %rd0;\nst.global.u32 [%rd1], %r1;",
     "mad.wide.u32 %rd1, %r1, 4, %rd0;\nst.global.u32 [%rd1], %r1;",
     {"block (1,0,0) thread 0", "block (0,0,0) thread 0 writes", "blocks of one grid are not ordered"}},
    {"ABlockReadsWhatAnotherWrote",
     "st.global.u32 [%rd1], %r0;\nxor.b32 %r2, %r1, 64;\nmad.wide.u32 %rd4, %r2, 4, %rd0;\nld.global.u32 "
     "%r3, [%rd4];",
     "st.global.u32 [%rd1], %r0;\nxor.b32 %r2, %r1, 0;\nmad.wide.u32 %rd4, %r2, 4, %rd0;\nld.global.u32 %r3, "
     "[%rd4];",
     {"block (1,0,0)", "blocks of one grid are not ordered"}},
    {"PlainAmongAtomics",
     "red.global.max.u32 [%rd0], %r0;\nld.global.u32 %r2, [%rd0];",
     "red.global.max.u32 [%rd0], %r0;",
     {"reads a byte that thread ", "changes at PTX line 21 (red.global.max.u32)"}},
    {"RelaxedAtomicsOrderNothing",
     "st.shared.u32 [%r5], %r0;\natom.relaxed.gpu.global.add.u32 %r2, [%rd0], 1;\nxor.b32 %r6, %r5, "
     "128;\nld.shared.u32 %r2, [%r6];",
     "st.shared.u32 [%r5], %r0;\natom.acq_rel.gpu.global.add.u32 %r2, [%rd0], 1;\nmov.u32 %r6, "
     "%r5;\nld.shared.u32 %r2, [%r6];",
     {"no barrier of the block orders them"}},
    {"ABarrierForHalfOfTheBlock",
     "st.shared.u32 [%r5], %r0;\nsetp.lt.u32 %p0, %r0, 32;\n@%p0 bar.sync 1, 32;\n@!%p0 bar.sync 2, "
     "32;\nxor.b32 %r6, %r5, "
     "128;\nld.shared.u32 %r2, [%r6];",
     "st.shared.u32 [%r5], %r0;\nbar.sync 1, 64;\nxor.b32 %r6, %r5, 128;\nld.shared.u32 %r2, [%r6];",
     {"no barrier of the block orders them"}},
    {"ABarrierWithoutTheOthers",
     "setp.lt.u32 %p0, %r0, 32;\n@%p0 bar.sync 1, 64;",
     "bar.sync 1, 64;",
     {"is in a deadlock", "at barrier 1, where 32 of 64 threads have come"}},
    {"HalfAWarpAtAnAlignedBarrier",
     "and.b32 %r2, %r0, 16;\nsetp.eq.u32 %p0, %r2, 0;\n@%p0 bar.sync 0;\n@!%p0 bar.sync 0;",
     "bar.sync 0;",
     {"must be reached by the whole warp"}},
    {"AMaskWithoutTheLane",
     "shfl.sync.idx.b32 %r2, %r0, 0, 31, 0xffff;",
     "shfl.sync.idx.b32 %r2, %r0, 0, 31, 0xffffffff;",
     {"thread 16: shfl.sync.idx.b32 is carried out by a lane that its mask 0x0000ffff does not name"}},
    {"LanesThatWaitForEachOther",
     "and.b32 %r2, %r0, 16;\nsetp.eq.u32 %p0, %r2, 0;\n@%p0 shfl.sync.idx.b32 %r3, %r0, 0, 31, -1;\n@!%p0 "
     "vote.sync.all.pred %p1, %p0, -1;",
     "shfl.sync.idx.b32 %r3, %r0, 0, 31, -1;",
     {"is in a deadlock", "for lanes 0xffff0000"}},
    {"DivisionByZero",
     "sub.u32 %r2, %r0, 5;\ndiv.u32 %r2, %r0, %r2;",
     "add.u32 %r2, %r0, 5;\ndiv.u32 %r2, %r0, %r2;",
     {"thread 5: div.u32 divides by zero"}},
};

class PtxPlanted : public testing::TestWithParam<Planted> {};

TEST_P(PtxPlanted, IsNamedAndGoneWhenMended) {
  const Planted& p = GetParam();
  const std::string found = error_of(p.body);
  EXPECT_TRUE(found.starts_with("kernel 'kernel' block (")) << found;
  for (const char* words : p.words) EXPECT_NE(found.find(words), std::string::npos) << words << "\n" << found;
  for (const uint64_t order : {0, 1, 2, 3}) EXPECT_EQ(error_of(p.mended, order), "") << "order " << order;
}
// Whether accesses are ordered does not depend on who ran first.
TEST_P(PtxPlanted, IsFoundInEveryOrder) {
  for (const uint64_t order : {1, 2, 3}) EXPECT_NE(error_of(GetParam().body, order), "") << "order " << order;
}

INSTANTIATE_TEST_SUITE_P(Errors, PtxPlanted, testing::ValuesIn(kPlanted),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(PtxUndefined, WhatDecidesNothingMayBeUndefined) {
  // A selp that does not take it, an and that false decides, a value that goes through shared memory unread.
  EXPECT_EQ(error_of("setp.eq.u32 %p0, %r0, %r0;\nselp.b32 %r2, %r0, %r9, %p0;\nst.global.u32 [%rd1], %r2;"),
            "");
  EXPECT_EQ(error_of("setp.ne.u32 %p0, %r0, %r0;\nand.pred %p1, %p0, %p7;\n@%p1 st.global.u32 [%rd1], %r0;"),
            "");
  EXPECT_EQ(error_of("setp.eq.u32 %p0, %r0, %r0;\nor.pred %p1, %p7, %p0;\n@!%p1 st.global.u32 [%rd1], %r0;"),
            "");
  EXPECT_EQ(error_of("st.shared.u32 [%r5], %r9;\nst.shared.u32 [%r5], %r0;\nld.shared.u32 %r2, [%r5];\n"
                     "st.global.u32 [%rd1], %r2;"),
            "");
}

TEST(PtxUndefined, TheHalvesOfARegisterAreApart) {
  const std::string pack = "mov.b64 %rd4, {%r9, %r0};\n", store = "st.global.u32 [%rd1], %r2;";
  EXPECT_EQ(error_of(pack + "shr.u64 %rd4, %rd4, 32;\ncvt.u32.u64 %r2, %rd4;\n" + store), "");
  EXPECT_EQ(error_of(pack + "mov.b64 {%r3, %r2}, %rd4;\n" + store), "");
  EXPECT_EQ(error_of(pack + "st.local.u64 [own], %rd4;\nld.local.u32 %r2, [own+4];\n" + store), "");
  EXPECT_NE(error_of("mov.b64 %rd4, {%r0, %r9};\nshr.u64 %rd4, %rd4, 32;\ncvt.u32.u64 %r2, %rd4;\n" + store),
            "");
  EXPECT_NE(error_of(pack + "cvt.u32.u64 %r2, %rd4;\n" + store), "");
  EXPECT_NE(error_of(pack + "mov.b64 {%r2, %r3}, %rd4;\n" + store), "");
  EXPECT_NE(error_of(pack + "shr.u64 %rd4, %rd4, 31;\ncvt.u32.u64 %r2, %rd4;\n" + store), "");
  EXPECT_NE(error_of(pack + "st.local.u64 [own], %rd4;\nld.local.u32 %r2, [own];\n" + store), "");
}

TEST(PtxUndefined, TheBytesOfARegisterAreApart) {
  // Each leaves a defined byte 0 and an undefined byte 1 in %r2; $s is how it is stored.
  const std::string low = "st.global.u8 [%rd1], %r2;",
                    high = "shr.u32 %r2, %r2, 8;\nst.global.u8 [%rd1], %r2;";
  for (const std::string body : {
           // What Triton does where one element of a pair is not used.
           "mov.b32 %r3, 0x3f800000;\ncvt.rn.satfinite.e4m3x2.f32 %rs0, %r9, %r3;\ncvt.u32.u16 %r2, %rs0;\n",
           "cvt.u16.u32 %rs0, %r0;\nmov.b32 %r2, {%rs0, %rs3};\nprmt.b32 %r2, %r2, 0, 0x4420;\n",
           "and.b32 %r3, %r9, 0xff00;\nor.b32 %r2, %r0, %r3;\n",
           "shl.b32 %r3, %r9, 8;\nxor.b32 %r2, %r0, %r3;\n",
           "st.local.u8 [own], %r0;\nld.local.u32 %r2, [own];\n",
           "shl.b32 %r3, %r9, 8;\nor.b32 %r3, %r3, %r0;\nshfl.sync.idx.b32 %r2, %r3, 3, 31, -1;\n",
       }) {
    EXPECT_EQ(error_of(body + low), "") << body;
    EXPECT_NE(error_of(body + high).find("stores an undefined value"), std::string::npos) << body;
  }
}

// The lane to read and what is read from it in one register, of a part of the warp.
TEST(PtxUndefined, AShuffleMayReadItsOwnLane) {
  EXPECT_EQ(error_of("and.b32 %r2, %r0, 31;\nsetp.lt.u32 %p0, %r2, 8;\n@%p0 bra A;\nmov.u32 %r3, 9;\n"
                     "shfl.sync.idx.b32 %r3, %r3, %r3, 31, 0xffffff00;\nst.global.u32 [%rd1], %r3;\nA:"),
            "");
}

// Every lane of a warp gets a lock that the others wait for in a loop (forward progress of threads).
TEST(PtxSchedule, LanesThatSpinLetTheOwnerOfTheLockGoOn) {
  const std::string lock =
      "setp.ge.u32 %p1, %r0, 4;\n@%p1 bra END;\nSPIN:\natom.acquire.gpu.global.cas.b32 %r2, [%rd0], 0, "
      "1;\nsetp.ne.u32 %p0, "
      "%r2, 0;\n@%p0 bra SPIN;\nld.relaxed.gpu.global.u32 %r3, [%rd0+4];\nadd.u32 %r3, %r3, "
      "1;\nst.relaxed.gpu.global.u32 [%rd0+4], "
      "%r3;\natom.release.gpu.global.exch.b32 %r2, [%rd0], 0;\nEND:";
  for (const uint64_t order : {0u, 1u}) ASSERT_EQ(error_of(lock, order), "") << order;
}

// Two groups of lanes wait in loops of their own, and who lets them go stands between them, in front of them
// or behind them.
TEST(PtxSchedule, LanesThatSpinApartLetAThirdGoOn) {
  const std::string
      first = "W: ld.relaxed.cta.shared.b32 %r2, [tile];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra W;\nbra END;\n",
      second = "V: ld.relaxed.cta.shared.b32 %r2, [tile];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra V;\nbra END;\n",
      owner = "OWNER: st.relaxed.cta.shared.b32 [tile], 1;\nbra END;\n",
      begin =
          "setp.ne.u32 %p1, %r0, 0;\n@!%p1 st.shared.b32 [tile], 0;\nbar.sync 0;\n"
          "setp.eq.u32 %p1, %r0, 5;\n@%p1 bra OWNER;\nsetp.lt.u32 %p1, %r0, 9;\n@%p1 bra V;\nbra W;\n";
  for (const std::string& loops : {first + owner + second, owner + first + second, first + second + owner,
                                   second + owner + first, owner + second + first, second + first + owner})
    for (const uint64_t order : {0u, 1u, 2u, 3u})
      ASSERT_EQ(error_of(begin + loops + "END:", order), "") << loops << order;
}

TEST(PtxSchedule, LanesThatStandFurthestFirstGiveTheSameWithoutRelyingOnTheOrder) {
  // A block that counts on the lanes of a warp going on together finds another value.
  const std::string relies =
      "and.b32 %r2, %r0, 1;\nsetp.eq.u32 %p0, %r2, 0;\nactivemask.b32 %r3;\n@%p0 bra A;\nbra B;\nA:\nadd.u32 "
      "%r2, "
      "%r2, 2;\nB:\nactivemask.b32 %r3;\nst.global.u32 [%rd1], %r3;";
  const auto values = [&](uint64_t order) {
    std::vector<uint32_t> out(kThreads * kBlocks), in(kThreads);
    Module m(kernel_of(relies));
    Memory memory;
    memory.add(out.data(), out.size() * 4, "out");
    Launch launch;
    launch.grid = {kBlocks, 1, 1};
    launch.block = {kThreads, 1, 1};
    launch.parameters = parameters_of(m.entry("kernel"), {reinterpret_cast<uint64_t>(out.data()), 0, 0});
    RunOptions options;
    options.order = order;
    run(m, "kernel", launch, memory, options);
    return out;
  };
  EXPECT_EQ(values(0), std::vector<uint32_t>(kThreads * kBlocks, ~0u));
  EXPECT_NE(values(1), values(0));
}

}  // namespace
}  // namespace assay::ptx
