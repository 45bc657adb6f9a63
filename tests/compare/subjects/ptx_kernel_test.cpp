// Kernels from Triton and nvcc as PTX, run on the CPU: the verdicts of some, and launch files with mistakes.
#include "compare/subjects/ptx_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "compare/subjects/ptx_launch_file.h"
#include "fixtures/inputs.h"
#include "reference/subject.h"
#include "tests/compare/subjects/ptx_fixtures.h"

namespace assay {
namespace {

using namespace ptx_fixtures;

const char* const kFills[] = {"normal", "ties",     "edges",          "amax_edges", "nonfinite",
                              "wide",   "denormal", "negative_zeros", "zeros"};

TEST(PtxKernel, TritonsMxfp8RowsAreTheReference) {
  for (const char* name : {"mxfp8_rows_sm90", "mxfp8_rows_sm100", "mxfp8_rows_wide"}) {
    const auto subject = load(fixture(std::string(name) + ".json"));
    EXPECT_EQ(subject->name(), std::string("ptx:") + name);
    // The wide kernel was promised columns that are a multiple of 16.
    for (const char* shape : {"64x256", "3x1024", "33x112"})
      for (const char* fill : kFills) {
        if (fill == std::string("nonfinite")) continue;  // the next test
        const std::string line = std::string("quantize mxfp8 ") + shape + " bf16 dir=row fill=" + fill;
        EXPECT_EQ(difference(*subject, line), "") << name << ": " << line;
      }
  }
  EXPECT_EQ(difference(*load(fixture("mxfp8_rows_sm90.json")), "quantize mxfp8 33x70 bf16 dir=row fill=ties"),
            "");
}

// tl.max ignores a NaN beside a number, and of NaN alone makes a NaN: such a block gets the scale of a NaN
// where the reference starts at 0 (N5.1).
TEST(PtxKernel, TritonsMxfp8RowsDifferInBlocksOfNaNAloneAndNowhereElse) {
  const auto subject = load(fixture("mxfp8_rows_sm90.json")), reference = make_reference_subject();
  const Problem p = parsed("quantize mxfp8 64x256 bf16 dir=row fill=nonfinite");
  const auto inputs = make_inputs(p, *reference);
  ASSERT_TRUE(inputs);
  const Planes got = run(*subject, p, *inputs), want = run(*reference, p, *inputs);
  EXPECT_EQ(got[1], want[1]);  // every code is that of a NaN either way
  size_t parted = 0;
  for (size_t row = 0; row < 64; ++row)
    for (size_t block = 0; block < 8; ++block) {
      bool only_nan = true;
      for (size_t n = 0; n < 32; ++n) {
        uint16_t x = 0;
        std::memcpy(&x, (*inputs)[0].bytes.data() + 2 * (row * 256 + block * 32 + n), 2);
        only_nan &= (x & 0x7FFF) > 0x7F80;
      }
      const size_t at = row * 8 + block;
      EXPECT_EQ(got[0][at] != want[0][at], only_nan) << row << " " << block;
      parted += only_nan;
    }
  EXPECT_EQ(parted, 64u);
}

TEST(PtxKernel, NoOrderOfBlocksAndWarpsChangesAByte) {
  const auto subject = load(fixture("mxfp8_rows_sm90.json"));
  for (uint64_t order : {1, 2, 17}) {
    Environment env;
    env.order = order;
    env.poison = 0xA5;
    EXPECT_EQ(difference(*subject, "quantize mxfp8 33x112 bf16 dir=row fill=ties", env), "");
  }
}

TEST(PtxKernel, TritonsPlainDivisionByAConstantIsAProductWithItsReciprocal) {
  const auto plain = load(fixture("fp8_blocks.json")), exact = load(fixture("fp8_blocks_exact.json"));
  const std::string source = "quantize fp8_block 64x256 bf16 dir=row flavour=vllm.group fill=",
                    compiled = " scale_division=reciprocal";
  for (const char* fill : {"normal", "ties", "amax_edges", "wide"}) {
    // What the source says, with divisions that are rounded to nearest: vLLM's choices.
    EXPECT_EQ(difference(*exact, source + fill), "") << fill;
    // The same source with `/`: the scale is amax * fl(1 / 448), and no PTX promises its bits.
    EXPECT_EQ(difference(*plain, source + fill + compiled), "") << fill;
  }
  Served served;
  EXPECT_EQ(difference(*plain, source + "normal", {}, &served).substr(0, 13), "row.scale_inv");
  EXPECT_NE(served.by.find("not pinned: 16384 lanes of PTX line"), std::string::npos) << served.by;
  EXPECT_NE(served.by.find("div.full.f32"), std::string::npos) << served.by;
  EXPECT_NE(served.by.find("div.approx.f32"), std::string::npos) << served.by;
  EXPECT_EQ(difference(*exact, source + "normal", {}, &served), "");
  EXPECT_EQ(served.by.find("not pinned"), std::string::npos) << served.by;
}

TEST(PtxKernel, TritonsRowsWithAScaleEachAreTheReference) {
  const auto subject = load(fixture("fp8_tokens.json"));
  for (const char* shape : {"64x256", "5x1000"})
    for (const char* fill : {"normal", "ties", "edges", "wide", "zeros"})
      EXPECT_EQ(difference(*subject, std::string("quantize fp8_current ") + shape +
                                         " bf16 dir=row row_scaled=1 fill=" + fill),
                "")
          << shape << " " << fill;
}

TEST(PtxKernel, SaysWhatItDoesNotRun) {
  const auto subject = load(fixture("mxfp8_rows_wide.json"));
  EXPECT_EQ(difference(*subject, "quantize mxfp8 64x256 f16 dir=row"),
            "unsupported: its launch file is for \"bf16\"");
  EXPECT_EQ(difference(*subject, "quantize mxfp8 64x256 bf16 dir=both"),
            "unsupported: its launch file is for \"dir=row\"");
  EXPECT_EQ(difference(*subject, "quantize mxfp8 0x256 bf16 dir=row"), "");
  Environment env;
  env.alignment = 2;
  EXPECT_EQ(difference(*subject, "quantize mxfp8 64x256 bf16 dir=row", env),
            "its pointers are multiples of 16, and alignment=2 breaks that promise");
}

TEST(PtxKernel, MistakesInALaunchFileAreToldWithTheSignature) {
  const auto with = [](const std::string& from, const std::string& to) {
    Copy copy("mxfp8_rows_sm90");
    copy.change(copy.json, from, to);
    return copy.error();
  };
  const std::string signature = "entry mxfp8_rows(.u64 .ptr mxfp8_rows_param_0, ";
  EXPECT_EQ(with("\"x\"", "\"x\""), "");
  EXPECT_NE(with("\"i32:rows\"", "\"i64:rows\"").find(signature), std::string::npos);
  EXPECT_NE(with("\"i32:rows\"", "\"i64:rows\"")
                .find("argument \"i64:rows\": parameter mxfp8_rows_param_3 takes 4 bytes, not 8"),
            std::string::npos);
  EXPECT_NE(with("\"row.data\",", "").find("has 8 parameters, and \"args\" has 7"), std::string::npos);
  EXPECT_NE(with("\"x\"", "\"f99:x\"").find("has an unknown kind"), std::string::npos);
  EXPECT_NE(with("\"entry\": \"mxfp8_rows\"", "\"entry\": \"other\"")
                .find("the module has no entry 'other'; it has mxfp8_rows"),
            std::string::npos);
  EXPECT_NE(with("\"grid\"", "\"grib\"").find("unknown key \"grib\""), std::string::npos);
  // A word that no line has would make every line unsupported.
  for (const char* words :
       {"dir=row element=e5m2\"", "dir=row sr_rule=integer col.rht_sum=butterfly\"", "dir=row 64x256\""})
    EXPECT_EQ(with("dir=row\"", words), "") << words;
  for (const char* word : {"rund=rne", "row.rund=rne", "fp9", "quantise"})
    EXPECT_NE(with("dir=row\"", std::string("dir=row ") + word + "\"")
                  .find(std::string("no line has the word '") + word + "' of \"for\""),
              std::string::npos)
        << word;
  EXPECT_EQ(with("\"for\"", "\"stores\": \"at_once\", \"for\""), "");
  EXPECT_NE(with("\"for\"", "\"stores\": \"soon\", \"for\"").find("\"late\" or \"at_once\", found soon"),
            std::string::npos);
  EXPECT_EQ(with("\"for\"", "\"shuffles\": \"any\", \"for\""), "");
  EXPECT_EQ(with("\"for\"", "\"addresses\": \"lower_halves\", \"for\""), "");
  EXPECT_NE(with("\"for\"", "\"addresses\": \"any\", \"for\"").find("\"of_their_space\" or"),
            std::string::npos);
  EXPECT_NE(with("\"for\"", "\"shuffles\": \"late\", \"for\"").find("\"present\" or \"any\", found late"),
            std::string::npos);
  EXPECT_NE(with("mxfp8_rows_sm90.ptx", "absent.ptx").find("which cannot be read"), std::string::npos);
  EXPECT_NE(with("{", ""), "");
  Copy unknown("mxfp8_rows_sm90");
  unknown.change(unknown.ptx, "max.f32", "max.magic.f32");
  EXPECT_NE(unknown.error().find("unsupported form 'max.magic.f32'"), std::string::npos) << unknown.error();
}

TEST(PtxKernel, ALaunchCanBeTyped) {
  const auto file = read_ptx_launch_file(fixture("nvcc_mxfp8_rows.json"));
  ASSERT_TRUE(file);
  PtxLaunchWords words;  // the only entry needs no name
  words.ptx = file->ptx;
  const PtxLaunch& l = file->launches.at(0);
  words.grid = l.grid[0] + ", " + l.grid[1];
  words.block = l.block[0];
  for (const PtxArgument& a : l.args) words.args += (words.args.empty() ? "" : ", ") + a.spelled;
  for (const std::string& plane : file->zeroed) words.zeroed += (words.zeroed.empty() ? "" : ",") + plane;
  const auto subject = make_ptx_kernel_subject(words);
  ASSERT_TRUE(subject) << subject.error().text();
  EXPECT_EQ(difference(**subject, "quantize mxfp8 64x256 bf16 dir=row"), "");
  EXPECT_EQ((*subject)->name(), "ptx:nvcc_mxfp8_rows");
  EXPECT_EQ((*subject)->argument(), to_options(words));
  EXPECT_NE(to_options(words).find(" --grid '" + words.grid + "' --block " + words.block), std::string::npos)
      << to_options(words);

  const auto error_with = [&](auto change) {
    PtxLaunchWords wrong = words;
    change(wrong);
    const auto made = make_ptx_kernel_subject(wrong);
    return made ? std::string() : made.error().text();
  };
  EXPECT_NE(error_with([](auto& w) { w.args += ", null"; }).find("parameters, and \"args\" has"),
            std::string::npos);
  EXPECT_NE(error_with([](auto& w) { w.entry = "other"; }).find("the module has no entry 'other'"),
            std::string::npos);
  EXPECT_NE(error_with([](auto& w) { w.grid = "1,2,3,4"; }).find("--grid must be one to three sizes"),
            std::string::npos);
  EXPECT_NE(
      error_with([](auto& w) { w.args = "f99:x"; }).find("--args: argument \"f99:x\" has an unknown kind"),
      std::string::npos);
  EXPECT_NE(error_with([](auto& w) { w.args = ""; }).find("needs --args"), std::string::npos);
  EXPECT_NE(error_with([](auto& w) { w.grid = ""; }).find("--ptx needs --grid"), std::string::npos);
  EXPECT_NE(error_with([](auto& w) { w.grid = "0"; }).find("--grid: '0' is 0, and size 1 of a grid is 1 to"),
            std::string::npos);
  EXPECT_NE(error_with([](auto& w) { w.zeroed = "nope"; }).find("--zeroed names 'nope', which no launch"),
            std::string::npos);
  EXPECT_NE(error_with([](auto& w) { w.ptx = fixture(""); }).find("--ptx names "), std::string::npos);
}

// A kernel of its own: the PTX of a body, and its launch file.
Copy own_kernel(const std::string& body, const std::string& launch) {
  Copy copy("nvcc_mxfp8_rows");
  copy.ptx =
      ".version 8.7\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 tile[];\n"
      ".visible .entry k(.param .u64 x, .param .u64 y)\n{\n.reg .b32 %r<4>;\n" +
      body + "\nret;\n}\n";
  copy.json = "{ \"ptx\": \"nvcc_mxfp8_rows.ptx\", \"launches\": [{ \"entry\": \"k\", " + launch + " }] }";
  return copy;
}

// What is wrong whatever the line is, is refused before a line is read, and the error names the launch, the
// key and what it may hold.
void expect(const std::string& got, const std::string& words) {
  EXPECT_NE(got.find(words), std::string::npos) << got << "\nhas no: " << words;
}

TEST(PtxKernel, SizesOfALaunchAreInTheirRanges) {
  const std::string kArgs = "\"args\": [\"x\", \"row.data\"]", kLine = "quantize identity 32x32 bf16 dir=row";
  const auto error_of = [&](const std::string& launch) { return own_kernel("", launch).error(); };
  const auto at_line = [&](const std::string& launch) {
    return difference(*load(own_kernel("", launch).write()), kLine);
  };
  expect(error_of(kArgs), ": launches[0] needs \"grid\", one to three sizes");
  const std::pair<const char*, const char*> kAlways[] = {
      {"0", "'0' is 0, and size 1 of a grid is 1 to 2147483647"},
      {"-1", "'-1' is -1, and size 1 of a grid is 1 to 2147483647"},
      {"1,65536", "'65536' is 65536, and size 2 of a grid is 1 to 65535"},
      {"1,1,70000", "'70000' is 70000, and size 3 of a grid is 1 to 65535"},
      {"1, 1 / 0", "division by zero in ' 1 / 0'"},
      {"x", "unknown name 'x' in 'x'; the names are rows, cols, rng.seed, rng.offset, rng.member, keys of"},
      {"row.data.colz", "unknown name 'row.data.colz'"},
      {"cols + ", "column 8: expected a number or a name in 'cols + '"},
      {"half(cols, 2)", "unknown function 'half'"}};
  for (const auto& [grid, words] : kAlways) {
    const std::string got = error_of("\"grid\": \"" + std::string(grid) + "\", \"block\": 32, " + kArgs);
    expect(got, ".json: launches[0].grid: ");
    expect(got, words);
  }
  expect(error_of("\"grid\": 1, \"block\": [1, 1, 128], " + kArgs),
         "launches[0].block: '128' is 128, and size 3 of a block is 1 to 64");
  expect(error_of("\"grid\": 1, \"block\": 0, " + kArgs),
         "launches[0].block: '0' is 0, and size 1 of a block is 1 to 1024");
  expect(error_of("\"grid\": 1, \"block\": 1, \"shared\": -4, " + kArgs),
         "launches[0].shared: '-4' is -4, and a size of shared memory is 0 to 2147483647");
  // Of a line: a grid of 0 is refused too, unless the line is empty.
  expect(at_line("\"grid\": \"rows - 32\", \"block\": 32, " + kArgs),
         ": launches[0].grid: 'rows - 32' is 0, and size 1 of a grid is 1 to 2147483647");
  EXPECT_EQ(difference(*load(own_kernel("", "\"grid\": \"rows\", \"block\": \"rows\", " + kArgs).write()),
                       "quantize identity 0x32 bf16 dir=row"),
            "");
  expect(at_line("\"grid\": \"other.cols\", \"block\": 32, " + kArgs),
         "unknown name 'other.cols' in 'other.cols'; this line has rows, cols, rng.seed, rng.offset, "
         "rng.member, seed, and .rows .cols .padded_rows .padded_cols .bytes of x, row.data");
  expect(at_line("\"grid\": 1, \"block\": \"rows - 33\", " + kArgs), "launches[0].block: 'rows - 33' is -1");
  expect(at_line("\"grid\": \"rows * 65536 * 1024\", \"block\": 1, " + kArgs),
         "'rows * 65536 * 1024' is 2147483648, and size 1 of a grid");
}

TEST(PtxKernel, NumbersOfALaunchAreInTheRangesOfTheirTypes) {
  const auto error_of = [&](const std::string& launch) { return own_kernel("", launch).error(); };
  const std::pair<const char*, const char*> kNumbers[] = {
      {"i32:99999999999", "\"i32:99999999999\": '99999999999' is 99999999999, and i32 is -2147483648 to"},
      {"i32:2147483648", "'2147483648' is 2147483648, and i32 is -2147483648 to 2147483647"},
      {"u32:-1", "\"u32:-1\": '-1' is -1, and u32 is 0 to 4294967295"},
      {"u32:4294967296", "is 4294967296, and u32 is"},
      {"u64:-1", "'-1' is -1, and u64 is 0 to 18446744073709551615"},
      {"u64:18446744073709551616", "'18446744073709551616' is not an integer"},
      {"i64:9223372036854775808", "is 9223372036854775808, and i64 is -9223372036854775808 to"},
      {"scratch:-1", "'-1' is -1, and a size of memory is 0 to 4294967296"},
      {"f32:many", "unknown name 'many' in 'many'; the names are"},
      {"i32:", "column 1: expected a number or a name in ''"}};
  for (const auto& [argument, words] : kNumbers) {
    const std::string got =
        error_of("\"grid\": 1, \"block\": 1, \"args\": [\"" + std::string(argument) + "\", \"row.data\"]");
    expect(got, ": launches[0].args: argument \"" + std::string(argument) + "\": ");
    expect(got, words);
  }
  Copy copy("mxfp8_rows_sm90");
  copy.change(copy.json, "\"i32:cols\"", "\"i32:cols * 65536 * 256\"");
  expect(difference(*load(copy.write()), "quantize mxfp8 4x256 bf16 dir=row"),
         "argument \"i32:cols * 65536 * 256\": 'cols * 65536 * 256' is 4294967296, and i32 is -2147483648 to "
         "2147483647");
}

TEST(PtxKernel, ValuesAtTheEndsOfTheirRangesAreTaken) {
  for (const std::string argument : {"u64:18446744073709551615", "u64:rng.seed", "i64:-9223372036854775808",
                                     "i64:-9223372036854775807 - 1", "u64:9223372036854775808"}) {
    Copy copy = own_kernel("",
                           "\"grid\": 1, \"block\": 1, \"args\": [\"x\", \"row.data\", \"row.amax\", "
                           "\"row.scale_inv\", \"" +
                               argument + "\"]");
    copy.change(copy.ptx, ".u64 y", ".u64 y, .param .u64 a, .param .u64 s, .param .u64 z");
    const std::string got = difference(
        *load(copy.write()), "quantize nvfp4 32x32 bf16 dir=row round=sr rng=18446744073709551615,0,0");
    EXPECT_EQ(got.substr(0, 10), "row.amax: ") << argument << ": " << got;  // it writes nothing
  }
}

TEST(PtxKernel, OutputsThatAreZeroedAreGivenToALaunch) {
  const auto with = [](const std::string& zeroed) {
    Copy copy("mxfp8_rows_sm90");
    copy.change(copy.json, "\"zeroed\": [\n    \"row.scale_inv\"", "\"zeroed\": [\n    " + zeroed);
    return copy.error();
  };
  EXPECT_EQ(with("\"row.scale_inv\""), "");
  EXPECT_NE(with("\"row.scale_inv\", \"nope\"")
                .find("\"zeroed\" names 'nope', which no launch is given; the planes that they are given are "
                      "row.data, row.scale_inv, x"),
            std::string::npos);
  EXPECT_NE(with("\"col.scale_inv\"").find("names 'col.scale_inv', which no launch is given"),
            std::string::npos);
  EXPECT_NE(with("\"x\"").find("\"zeroed\" names x, which is an input"), std::string::npos) << with("\"x\"");
  // Whether another plane is an input, the line says.
  Copy zeroed = own_kernel("", "\"grid\": 1, \"block\": 1, \"args\": [\"row.data\", \"y\"]");
  zeroed.change(zeroed.json, "\"launches\"", "\"zeroed\": [\"row.data\"], \"launches\"");
  EXPECT_EQ(difference(*load(zeroed.write()), "dequantize fp8_current 8x8 f32 dir=row out=bf16"),
            "\"zeroed\" names row.data, which is an input of the line; expected outputs alone");
}

TEST(PtxKernel, TextsOfALaunchFileAreTexts) {
  const auto with = [](const std::string& from, const std::string& to) {
    Copy copy("mxfp8_rows_sm90");
    copy.change(copy.json, from, to);
    return copy.error();
  };
  EXPECT_NE(
      with("\"for\": \"quantize mxfp8 bf16 dir=row\"", "\"for\": 3")
          .find("\"for\" must be a text of words of a line, as \"quantize mxfp8 bf16 dir=row\" is, found"),
      std::string::npos);
  EXPECT_NE(
      with("\"entry\": \"mxfp8_rows\"", "\"entry\": 3").find("launches[0].entry must be the name of an"),
      std::string::npos);
  EXPECT_NE(
      with("\"ptx\": \"mxfp8_rows_sm90.ptx\"", "\"ptx\": []").find("\"ptx\" must be the name of a file"),
      std::string::npos);
  const std::string folder = with("\"ptx\": \"mxfp8_rows_sm90.ptx\"", "\"ptx\": \".\"");
  EXPECT_NE(folder.find("launches[0].ptx names "), std::string::npos) << folder;
  EXPECT_NE(folder.find(", which is a folder; expected a file of PTX text"), std::string::npos) << folder;
  Copy marked("mxfp8_rows_sm90");
  marked.ptx = "\xEF\xBB\xBF" + marked.ptx;
  EXPECT_NE(marked.error().find("which begins with a byte order mark"), std::string::npos) << marked.error();
}

TEST(PtxKernel, SharedMemoryThatTheLaunchDoesNotGiveIsToldWithItsKey) {
  const Copy copy =
      own_kernel("ld.shared.u32 %r0, [tile];", "\"grid\": 1, \"block\": 32, \"args\": [\"x\", \"row.data\"]");
  const std::string why = difference(*load(copy.write()), "quantize identity 32x32 bf16 dir=row");
  EXPECT_NE(why.find("outside shared memory of 0 bytes"), std::string::npos) << why;
  EXPECT_NE(why.find("launches[0].shared is 0, the bytes that the launch gives to .extern .shared"),
            std::string::npos)
      << why;
}

TEST(PtxKernel, ALoopWithoutAnEndIsNamedBeforeItsTimeIsUp) {
  const Copy copy = own_kernel("L: bra L;", "\"grid\": 1, \"block\": 32, \"args\": [\"x\", \"row.data\"]");
  const auto subject = make_ptx_kernel_subject(copy.write(), 1);
  ASSERT_TRUE(subject) << subject.error().text();
  const std::string why = difference(**subject, "quantize identity 32x32 bf16 dir=row");
  EXPECT_NE(why.find("kernel 'k' block (0,0,0) thread 0: bra runs in a launch that does not end"),
            std::string::npos)
      << why;
  EXPECT_NE(
      why.find("PTX line 8; a launch may take 50000000 instructions of warps and 0.5 s of the processor, "
               "and more under a greater --timeout"),
      std::string::npos)
      << why;
  EXPECT_EQ(why.find("blocks run one after the other"), std::string::npos) << why;
}

// Barriers and accesses of memory take so long that no limit of instructions ends them in time.
TEST(PtxKernel, ALoopThatTakesItsTimeIsNamedToo) {
  const Copy copy = own_kernel(
      ".reg .b64 %rd0; ld.param.u64 %rd0, [x]; L: ld.relaxed.gpu.global.u32 "
      "%r0, [%rd0]; bar.sync 0; bra L;",
      "\"grid\": 2, \"block\": 128, \"args\": [\"x\", \"row.data\"]");
  const auto subject = make_ptx_kernel_subject(copy.write(), 1);
  ASSERT_TRUE(subject) << subject.error().text();
  Environment watched;
  watched.order = 1;
  const std::string why = difference(**subject, "quantize identity 32x32 bf16 dir=row", watched);
  EXPECT_NE(why.find("runs in a launch that does not end: it has taken too much time"), std::string::npos)
      << why;
  EXPECT_NE(why.find("blocks run one after the other here, so that one that waits for a later one waits"),
            std::string::npos)
      << why;
}

TEST(PtxKernel, SwappedPlanesFail) {
  PtxLaunchWords words;
  words.ptx = fixture("nvcc_mxfp8_rows.ptx");
  words.grid = "cdiv(cols, 128), rows";
  words.block = "128";
  words.zeroed = "row.scale_inv";
  const auto with = [&](const std::string& planes) {
    words.args = planes + ", i32:cols, i32:row.scale_inv.padded_cols";
    const auto subject = make_ptx_kernel_subject(words);
    return subject ? difference(**subject, "quantize mxfp8 64x256 bf16 dir=row") : subject.error().text();
  };
  EXPECT_EQ(with("x, row.data, row.scale_inv"), "");
  EXPECT_NE(with("x, row.scale_inv, row.data"), "");
}

TEST(PtxKernel, SaysWhetherApproximateFunctionsCouldChangeTheBytes) {
  Served served;
  // The scale of a block is a quotient by div.approx, whose neighbour is another scale.
  difference(*load(fixture("fp8_blocks.json")), "quantize fp8_block 8x256 bf16 dir=row flavour=triton.group",
             {}, &served);
  EXPECT_NE(served.by.find("; depends on div.approx.f32 at PTX line "), std::string::npos) << served.by;
  // Of a power of two only the exponent is taken, and the elements are far from a half of their codes.
  Copy copy("nvcc_mxfp8_rows");
  copy.change(copy.ptx, "mul.rn.f32 \t%f5, %f21, %f20;",
              "{ .reg .f32 p; .reg .pred q; sqrt.approx.f32 p, 0f40400000; setp.gt.f32 q, p, 0f3F800000; "
              "selp.f32 p, %f20, %f21, "
              "q; mul.rn.f32 %f5, %f21, p; }");
  const auto by_of = [&](const Copy& c) {
    difference(*load(c.write()), "quantize mxfp8 64x256 bf16 dir=row", {}, &served);
    return served.by;
  };
  EXPECT_NE(
      by_of(copy).find("; independent of approximate functions (1 lines); the same with an H100's results "
                       "of them"),
      std::string::npos)
      << served.by;
  // 2^-1.0000001 is 3EFFFFFF, and an H100 gives 3EFFFFFE.
  Copy power("nvcc_mxfp8_rows");
  power.change(power.ptx, "mul.rn.f32 \t%f5, %f21, %f20;",
               "{ .reg .f32 p; .reg .pred q; ex2.approx.ftz.f32 p, 0fBF800001; setp.eq.f32 q, p, 0f3EFFFFFE; "
               "selp.f32 p, %f21, %f20, q; mul.rn.f32 %f5, %f21, p; }");
  EXPECT_NE(
      by_of(power).find("; depends on approximate functions: an H100's results of them give other bytes"),
      std::string::npos)
      << served.by;
  EXPECT_EQ(served.by.find("; independent of approximate"), std::string::npos) << served.by;
  EXPECT_EQ(by_of(Copy("nvcc_mxfp8_rows")).find("approximate"), std::string::npos) << served.by;
}

TEST(PtxKernel, SaysWhetherContractionCouldChangeTheBytes) {
  Served served;
  const auto by_of = [&](const Copy& copy) {
    difference(*load(copy.write()), "quantize mxfp8 64x256 bf16 dir=row", {}, &served);
    return served.by;
  };
  EXPECT_EQ(by_of(Copy("nvcc_mxfp8_rows")).find("contraction"), std::string::npos) << served.by;
  // In place of the product that scales an element: the same and a zero added, and a sum that leaves the
  // error of the product's rounding, which is none unless both are fused.
  const char* const kProduct = "mul.rn.f32 \t%f5, %f21, %f20;";
  for (const auto& [instead, words] :
       {std::pair{"{ .reg .f32 p; mul.f32 p, %f21, %f20; add.f32 %f5, p, 0f80000000; }",
                  "; independent of contraction (1 pairs)"},
        std::pair{"{ .reg .f32 p, q; mul.rn.f32 q, %f21, 0f3EAAAAAB; mul.f32 p, %f21, 0f3EAAAAAB; sub.f32 "
                  "%f5, p, q; "
                  "mul.rn.f32 %f5, %f5, 0f4E800000; }",
                  "; depends on contraction at "}}) {
    Copy copy("nvcc_mxfp8_rows");
    copy.change(copy.ptx, kProduct, instead);
    EXPECT_NE(by_of(copy).find(words), std::string::npos) << served.by;
  }
}

// A trap, or a loop without an end, of the fused run alone is not the kernel's own.
TEST(PtxKernel, WhatAnotherWayWouldBreakDependsOnIt) {
  for (const char* breaks : {"@q trap;", "L: @q bra L;"}) {
    Copy copy("nvcc_mxfp8_rows");
    copy.change(
        copy.ptx, "mul.rn.f32 \t%f5, %f21, %f20;",
        std::string("mul.rn.f32 \t%f5, %f21, %f20; { .reg .f32 p, r, d; .reg .pred q; mul.rn.f32 r, %f21, "
                    "0f3EAAAAAB; mul.f32 p, %f21, 0f3EAAAAAB; sub.f32 d, p, r; setp.ne.f32 q, d, "
                    "0f00000000; ") +
            breaks + " }");
    Served served;
    EXPECT_EQ(difference(*load(copy.write()), "quantize mxfp8 64x256 bf16 dir=row", {}, &served), "");
    EXPECT_NE(served.by.find("; depends on contraction at "), std::string::npos) << served.by;
    EXPECT_NE(served.by.find(", with which it fails: kernel '"), std::string::npos) << served.by;
  }
}

TEST(PtxKernel, WhatAKernelDoesWrongIsToldWithTheLineOfItsSource) {
  Copy copy("mxfp8_rows_sm90");
  copy.change(copy.json, "\"i32:cols\"", "\"i32:cols+2\"");
  const std::string why = difference(*load(copy.write()), "quantize mxfp8 64x256 bf16 dir=row");
  EXPECT_NE(why.find("kernel 'mxfp8_rows' block ("), std::string::npos) << why;
  EXPECT_NE(why.find("outside every allocation; nearest below '"), std::string::npos) << why;
  EXPECT_NE(why.find("kernels.py:"), std::string::npos) << why;
}

TEST(PtxLaunchFile, ExpressionsHaveTheirUsualRanks) {
  const auto value = [](const std::string& text) {
    const auto v = evaluate(text, [](std::string_view name) {
      return name == "rows"            ? std::optional<int64_t>(33)
             : name == "row.data.cols" ? std::optional<int64_t>(70)
                                       : std::nullopt;
    });
    return v ? std::to_string(*v) : v.error().text();
  };
  EXPECT_EQ(value("1 + 2 * 3 - 4 / 2"), "5");
  EXPECT_EQ(value("-(rows % 10) * 2"), "-6");
  EXPECT_EQ(value("cdiv(rows, 32) * max(row.data.cols, 64)"), "140");
  EXPECT_EQ(value("10 - 3 - 2"), "5");
  EXPECT_EQ(value("min(2, min(1, 3))"), "1");
  EXPECT_EQ(value("rows + "), "column 8: expected a number or a name in 'rows + '");
  EXPECT_EQ(value("cols"), "column 5: unknown name 'cols' in 'cols'");
  EXPECT_EQ(value("1 / 0"), "column 6: division by zero in '1 / 0'");
  EXPECT_EQ(value("9223372036854775807 + 1"), "column 24: more than 64 bits in '9223372036854775807 + 1'");
  EXPECT_EQ(value("1 2"), "column 3: expected an operator in '1 2'");
  EXPECT_NE(value(std::string(5000, '(')).find("too deep"), std::string::npos);
}

}  // namespace
}  // namespace assay
