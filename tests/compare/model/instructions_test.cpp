// Which pipe an instruction takes, what is read of a listing, and how often its blocks ran.
#include <gtest/gtest.h>

#include "compare/model/pipes.h"
#include "compare/model/sass.h"
#include "compare/model/toolkit.h"
#include "tests/source_path.h"

namespace assay::model {
namespace {

TEST(ModelPipes, OfMachineInstructions) {
  for (const auto& [text, pipe] : {std::pair{"LOP3.LUT R1, R2, 0x7f, RZ, 0xc0, !PT", Pipe::alu},
                                   {"IMAD.WIDE.U32 R2, R3, 0x80, R4", Pipe::imad},
                                   {"FFMA R1, R2, R3, R4", Pipe::fma},
                                   {"F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R1, R2, R3, RZ", Pipe::alu},
                                   {"F2F.F64.F32 R2, R3", Pipe::special},
                                   {"I2FP.F32.U32 R2, R3", Pipe::alu},
                                   {"I2F.U32.RP R0, R84", Pipe::special},
                                   {"REDUX.MAX UR4, R2", Pipe::special},
                                   {"RED.E.MAX.STRONG.GPU desc[UR4][R2.64], R5", Pipe::memory},
                                   {"LDC.64 R2, c[0x0][0x218]", Pipe::control},
                                   {"LDG.E.128 R4, desc[UR8][R2.64]", Pipe::memory},
                                   {"ULDC.64 UR4, c[0x0][0x208]", Pipe::uniform},
                                   {"SHFL.BFLY PT, R3, R2, 0x1, 0x1f", Pipe::shuffle},
                                   {"VOTEU.ANY UR4, UPT, PT", Pipe::uniform},
                                   {"VOTE.ALL P0, P1", Pipe::alu},
                                   {"XYZZY R1", Pipe::other}})
    EXPECT_EQ(pipe_of_sass(text), pipe) << text;
}

TEST(ModelPipes, OfInstructionsOfPtx) {
  for (const auto& [text, pipe] :
       {std::pair<const char*, std::optional<Pipe>>{"add.s32 %r1, %r2, %r3;", Pipe::alu},
        {"@%p1 add.rn.f32 %f1, %f2, %f3;", Pipe::fma},
        {"@!%p1 bra $L__BB0_1;", Pipe::control},
        {"mad.lo.s32 %r1, %r2, %r3, %r4;", Pipe::imad},
        {"fma.rn.f32 %f1, %f2, %f3, %f4;", Pipe::fma},
        {"mul.f32 %f1, %f2, 0f43E00000;", Pipe::fma},
        {"cvt.rn.satfinite.e4m3x2.f32 %rs1, %f1, %f2;", Pipe::alu},
        {"cvt.rn.f32.u32 %f1, %r2;", Pipe::special},
        {"cvta.to.global.u64 %rd1, %rd2;", std::nullopt},
        {"mov.b32 %r1, %r2;", std::nullopt},
        {"mov.u32 %r1, %tid.x;", Pipe::control},
        {"ld.param.u64 %rd1, [x];", std::nullopt},
        {"ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];", Pipe::memory},
        {"redux.sync.max.u32 %r1, %r2, -1;", Pipe::special},
        {"red.global.max.u32 [%rd1], %r1;", Pipe::memory},
        {"div.rn.f32 %f1, %f2, %f3;", Pipe::special},
        {"xyzzy.b32 %r1;", Pipe::other}})
    EXPECT_EQ(pipe_of_ptx(text), pipe) << text;
}

// A loop of two machine instructions behind a head, a rare block that calls for a slow division, a division
// of whole numbers that is called from the loop, padding.
constexpr char kListing[] =
    "\t.target\tsm_90a\n"
    ".text.kernel:\n"
    "\t//## File \"kernel.ptx\", line 10\n"
    "        /*0000*/                   LDC R1, c[0x0][0x28] ;\n"
    "        /*0010*/                   S2R R82, SR_TID.X ;\n"
    ".L_x_1:\n"
    "\t//## File \"kernel.ptx\", line 20\n"
    "        /*0020*/                   STL [R1], R2 ;\n"
    "        /*0030*/                   CALL.REL.NOINC `($__internal_1_$__cuda_sm20_div_u64) ;\n"
    "        /*0040*/              @!P0 BRA `(.L_x_1) ;\n"
    "\t//## File \"kernel.ptx\", line 30\n"
    "        /*0050*/               @P1 EXIT ;\n"
    "        /*0060*/                   MOV R4, 0x10 ;\n"
    "        /*0070*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_rn_f32_slowpath) ;\n"
    "        /*0080*/                   EXIT ;\n"
    ".L_x_0:\n"
    "        /*0090*/                   BRA `(.L_x_0);\n"
    "        /*00a0*/                   NOP;\n"
    "$__internal_0_$__cuda_sm20_div_rn_f32_slowpath:\n"
    "        /*00b0*/                   FFMA R1, R2, R3, R4 ;\n"
    "        /*00c0*/                   RET.REL.NODEC R4 `(kernel) ;\n"
    "$__internal_1_$__cuda_sm20_div_u64:\n"
    "        /*00d0*/                   IMAD.HI.U32 R1, R2, R3, R4 ;\n"
    "        /*100e0*/                  XYZZY R1 ;\n"
    "        /*00f0*/                   RET.REL.NODEC R4 `(kernel) ;\n";

TEST(ModelSass, ABasicBlockRanAsOftenAsItsLines) {
  const Sass sass = read_sass(kListing);
  ASSERT_EQ(sass.code.size(), 14u) << "the padding and the trap before it are left out";
  EXPECT_EQ(sass.code[0].line, 10u);
  EXPECT_EQ(sass.code[4].text, "BRA `(.L_x_1)");
  EXPECT_EQ(sass.routines.size(), 2u);
  const SassCounts c = count_sass(sass, {{10, 1}, {20, 100}, {30, 1}});
  const auto of = [&](Pipe p) { return c.by_pipe[static_cast<size_t>(p)]; };
  EXPECT_EQ(of(Pipe::imad), 100) << "called from the loop";
  EXPECT_EQ(of(Pipe::fma), 0) << "a slow path of a float division does not run";
  EXPECT_EQ(c.local, 100);
  EXPECT_EQ(of(Pipe::alu), 0) << "nor does the block that calls it";
  EXPECT_EQ(c.unknown, std::vector<std::string>{"XYZZY"});
}

TEST(ModelToolkit, ReadsWhatPtxasSays) {
  const auto c = read_resources(
      "ptxas info    : 0 bytes gmem\nptxas info    : Function properties for kernel\n"
      "    416 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 190 registers, used 1 barriers, 416 bytes cumulative stack size, 2112 bytes "
      "smem\n");
  ASSERT_TRUE(c);
  EXPECT_EQ(c->registers, 190);
  EXPECT_EQ(c->stack, 416);
  EXPECT_EQ(c->spill_stores, 8);
  EXPECT_EQ(c->spill_loads, 12);
  EXPECT_EQ(c->static_shared, 2112u);
  EXPECT_FALSE(read_resources("ptxas fatal : Unsupported .version"));
}

TEST(ModelToolkit, SaysWhichNumberOfPtxasItCannotRead) {
  const auto error_of = [](const char* text) {
    const auto c = read_resources(text);
    return c ? std::string("it is read") : c.error().message;
  };
  EXPECT_EQ(error_of("Used 99999999999999999999 registers"),
            "ptxas -v says 'Used 99999999999999999999 registers', which is no number from 0 to 2147483647");
  EXPECT_EQ(error_of("Used 8 registers, 1.5 bytes smem"),
            "ptxas -v says '1.5 bytes smem', which is no number from 0 to 2147483647");
}

TEST(ModelToolkit, WithoutPtxasSaysWhatIsMissing) {
  Toolkit toolkit("/nonexistent/ptxas", "/nonexistent/nvdisasm");
  EXPECT_EQ(toolkit.ptxas_version(), "");
  const auto& machine =
      toolkit.machine(source_path("fixtures/triton/nvcc_mxfp8_rows.ptx"), "mxfp8_rows", Architecture::sm_90a);
  ASSERT_FALSE(machine);
  EXPECT_NE(machine.error().text().find("ptxas"), std::string::npos) << machine.error().text();
}

}  // namespace
}  // namespace assay::model
