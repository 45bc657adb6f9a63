// assay explain on packs, end to end: padding alone, cases that cannot be compared among others, and what
// somebody wrote into the pack.
#include "compare/commands/explain.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "compare/commands/check.h"
#include "compare/commands/identify.h"
#include "compare/commands/trace.h"
#include "fixtures/files.h"
#include "fixtures/json.h"
#include "fixtures/safetensors.h"
#include "reference/subject.h"
#include "tests/compare/diagnosis/planes.h"
#include "tests/compare/fakes.h"

namespace assay {
namespace {

namespace st = safetensors;

struct Told {
  int status = 0;
  std::string text, error, html;
  json::Value json;
};
std::string all_of(std::FILE* file) {
  std::string out;
  std::rewind(file);
  for (int c; (c = std::fgetc(file)) != EOF;) out += static_cast<char>(c);
  std::fclose(file);
  return out;
}
std::string own(const std::string& name) {
  return testing::TempDir() + "assay_explain_" +
         testing::UnitTest::GetInstance()->current_test_info()->name() + name;
}

Subjects reference_alone() {
  Subjects subjects;
  subjects.owned.push_back(make_reference_subject());
  return subjects;
}

Told explain(const std::string& path, const std::string& id = "") {
  ExplainOptions options;
  options.what = path;
  options.case_id = id;
  options.json = own(".json");
  options.html = own(".html");
  std::FILE *out = std::tmpfile(), *err = std::tmpfile();
  Told told;
  told.status = run_explain(options, reference_alone(), out, err);
  told.text = all_of(out);
  told.error = all_of(err);
  if (const auto json = json::read(options.json)) told.json = *json;
  if (const auto html = MappedFile::open(options.html))
    told.html.assign(reinterpret_cast<const char*>(html->bytes().data()), html->bytes().size());
  std::remove(options.json.c_str());
  std::remove(options.html.c_str());
  return told;
}

struct Recorded {
  std::string id, line;
  bool with_x = true;
  std::function<void(planes::Case&)> spoil = {};
};
std::string pack_of(const std::vector<Recorded>& cases) {
  std::vector<planes::Case> made;
  std::vector<st::Tensor> tensors;
  st::Metadata metadata;
  made.reserve(cases.size());
  for (const Recorded& r : cases) {
    planes::Case& c = made.emplace_back(r.line);
    if (r.spoil) r.spoil(c);
    for (const auto* list : {&c.inputs, &c.got})
      for (const PlaneData& p : *list)
        if (list == &c.got || r.with_x)
          tensors.push_back({r.id + "/" + p.plane.name,
                             st::dtype_of(p.plane.encoding),
                             {p.plane.padded.rows,
                              p.plane.packed ? static_cast<int64_t>(p.bytes.size()) / p.plane.padded.rows
                                             : p.plane.padded.cols},
                             p.bytes});
    metadata.emplace_back("assay.line." + r.id, r.line);
  }
  const std::string path = own(".safetensors");
  const auto error = st::write(path, tensors, metadata);
  EXPECT_FALSE(error) << error->text();
  return path;
}

const std::string kLine = "quantize mxfp8 32x64 bf16 dir=row";
void wrong_scale(planes::Case& c) {
  c.spoil("row.scale_inv", [](int64_t, int64_t, uint32_t code) { return code - 1; });
}

TEST(Explain, PaddingThatWasNeverCleared) {
  const auto uncleared = [](planes::Case& c) {
    PlaneData& p = c["row.scale_gemm"];
    for (int64_t i = 0; i < p.plane.padded.count(); ++i)
      if (place_of(p.plane, i).padding) set_code(p.plane, p.bytes, i, 0x7F);
  };
  const Told told =
      explain(pack_of({{"a", "quantize mxfp8 100x96 bf16 dir=row scales=gemm", true, uncleared}}));
  EXPECT_EQ(told.status, 1);
  EXPECT_TRUE(told.text.starts_with("EXPLAINED")) << told.text;
  for (const char* said :
       {"layout, rows", "layout DIFFERS", "row.scale_gemm padding (e8m0)  212 of 212",
        "padding was never cleared: its bytes that are not 0 are 7F   [padding.not_cleared, N6.4]",
        "all 9900 elements are right; only the padding is wrong"})
    EXPECT_NE(told.text.find(said), std::string::npos) << said << "\n" << told.text;
  EXPECT_EQ(told.json.text("confidence"), "certain");
  EXPECT_EQ(told.json.text("first_stage"), "layout");
  EXPECT_NE(told.html.find("padding was never cleared"), std::string::npos);
  EXPECT_EQ(explain(pack_of({{"a", "quantize mxfp8 100x96 bf16 dir=row scales=gemm"}})).status, 0);
  const auto compact = [](planes::Case& c) {
    PlaneData& p = c["row.scale_inv"];
    set_code(p.plane, p.bytes, 3, 0x7F);  // column 3 of 4
  };
  EXPECT_EQ(explain(pack_of({{"a", "quantize mxfp8 100x96 bf16 dir=row", true, compact}})).status, 0);
}

TEST(Explain, CasesThatCannotBeComparedAreNoted) {
  const std::string pack = pack_of(
      {{"a", kLine, false}, {"b", "quantize mxfp8 0x64 bf16 dir=row"}, {"c", kLine, true, wrong_scale}});
  const Told told = explain(pack);
  EXPECT_EQ(told.status, 1);
  EXPECT_NE(told.text.find(":c"), std::string::npos) << told.text;
  EXPECT_NE(told.error.find("note: not compared: "), std::string::npos) << told.error;
  EXPECT_NE(told.error.find(":a: the pack holds no plane x"), std::string::npos) << told.error;
  EXPECT_EQ(explain(pack, "a").status, 1);
  const Told empty = explain(pack, "b");
  EXPECT_EQ(empty.status, 0) << empty.error;
  EXPECT_NE(empty.text.find("the tensor has no elements"), std::string::npos) << empty.text;
  EXPECT_EQ(explain(pack_of({{"a", kLine, false}, {"c", kLine, false}})).status, 1);
}

// Codes alone: no search reads the scales, which the pack does not have.
TEST(Explain, CodesWithoutTheirScales) {
  for (const std::string format : {"mxfp8", "fp8_current", "fp8_block", "nvfp4", "mxfp4", "mxfp6"}) {
    const std::string line = "quantize " + format + " 128x128 bf16 dir=row";
    const Told told = explain(
        pack_of({{"a", line, true, [](planes::Case& c) {
                    std::erase_if(c.got, [](const PlaneData& p) { return !p.plane.name.ends_with(".data"); });
                    c.spoil("row.data", [](int64_t r, int64_t k, uint32_t code) {
                      return code ^ static_cast<uint32_t>((r * 7 + k * 5) % 11 == 0);
                    });
                  }}}));
    EXPECT_EQ(told.status, 1) << format << told.text << told.error;
    EXPECT_NE(told.text.find("row.data"), std::string::npos) << told.text;
  }
}

// A bit that is flipped in a recording is called that, by check too; no hypothesis that makes thousands of
// new differences is called its cause.
TEST(Explain, OneFlippedBitOfAPack) {
  const auto flipped = [](planes::Case& c) {
    c.spoil("row.data",
            [](int64_t r, int64_t k, uint32_t code) { return code ^ (r == 19 && k == 40 ? 0x10u : 0u); });
  };
  const std::string pack = pack_of({{"a", kLine, true, flipped}});
  const Told told = explain(pack);
  EXPECT_NE(told.text.find("cause      one flipped bit: bit 4 of row.data, row 19, column 40: "),
            std::string::npos)
      << told.text;
  EXPECT_NE(told.text.find("makes the only difference and nothing else"), std::string::npos) << told.text;
  std::ostringstream out, err;
  CheckOptions options;
  options.paths = {pack};
  EXPECT_EQ(run_check(options, reference_alone(), out, err), 1);
  EXPECT_NE(out.str().find("cause: one flipped bit: bit 4 of row.data"), std::string::npos) << out.str();
}

// What the three commands that judge a pack say of it.
struct Said {
  int status;
  std::string out, err;
};
std::array<Said, 3> said_of(const std::string& pack) {
  std::ostringstream check_out, check_err, trace_out, trace_err;
  CheckOptions options;
  options.paths = {pack};
  options.cause = false;
  const int check = run_check(options, reference_alone(), check_out, check_err);
  const Told told = explain(pack);
  const int trace = run_trace_of_pack(pack, "", {}, reference_alone(), trace_out, trace_err);
  return {Said{check, check_out.str(), check_err.str()}, Said{told.status, told.text, told.error},
          Said{trace, trace_out.str(), trace_err.str()}};
}
constexpr const char* kCommands[] = {"check", "explain", "trace"};

void without_planes(planes::Case& c) {
  for (PlaneData& p : c.got) p.plane.name.pop_back();
}

// What `assay check` says of a pack, `assay explain` and `assay trace` say too.
TEST(Explain, ItsStatusIsThatOfCheckAndTrace) {
  const auto all = [](const std::string& pack, int status) {
    const auto said = said_of(pack);
    for (size_t n = 0; n < said.size(); ++n)
      EXPECT_EQ(said[n].status, status) << kCommands[n] << "\n" << said[n].out << said[n].err;
  };
  const auto uncleared = [](planes::Case& c) {
    PlaneData& p = c["row.scale_gemm"];
    for (int64_t i = 0; i < p.plane.padded.count(); ++i)
      if (place_of(p.plane, i).padding) set_code(p.plane, p.bytes, i, 0x7F);
  };
  all(pack_of({{"a", kLine}, {"b", kLine}}), 0);
  all(pack_of({{"a", kLine, true, wrong_scale}}), 1);
  all(pack_of({{"a", kLine, false}, {"b", kLine}}), 1);  // one cannot be judged, and the other is right
  all(pack_of({{"a", kLine}, {"b", kLine, false}}), 1);
  all(pack_of({{"a", kLine, false}}), 1);
  all(pack_of({{"a", kLine, true, without_planes}}), 1);
  all(pack_of({{"a", "quantize mxfp8 100x96 bf16 dir=row scales=gemm", true, uncleared}}), 1);
  all(own("absent.safetensors"), 2);
  const std::string empty = own("empty.safetensors");
  ASSERT_FALSE(st::write(empty, {}, {{"assay.pack", "1"}}));
  all(empty, 2);
  std::remove(empty.c_str());
}

// A plane that is misspelt or absent is not judged, and a verdict must not hide that.
TEST(Explain, PlanesThatAreNotJudgedAreNamedBeforeTheVerdict) {
  const auto misspelt = [](planes::Case& c) { c["row.scale_inv"].plane.name = "row.scale_imv"; };
  const auto said = said_of(pack_of({{"a", kLine, true, misspelt}}));
  const std::string stray =
      "plane 'row.scale_imv' is not a plane of this line, and is not judged (did you mean 'row.scale_inv'?)";
  for (size_t n = 0; n < said.size(); ++n) {
    EXPECT_EQ(said[n].status, 1) << kCommands[n];
    for (const std::string& told : {stray, std::string("not judged, absent from the pack: row.scale_inv")})
      EXPECT_NE((said[n].out + said[n].err).find(told), std::string::npos) << kCommands[n] << "\n"
                                                                           << said[n].out << said[n].err;
  }
  const auto none = said_of(pack_of({{"a", kLine, true, without_planes}}));
  for (size_t n = 0; n < none.size(); ++n) {
    EXPECT_NE(none[n].out.find("plane 'row.dat' is not a plane of this line"), std::string::npos)
        << none[n].out;
    EXPECT_NE((none[n].out + none[n].err).find("so there is nothing to judge"), std::string::npos)
        << kCommands[n] << "\n"
        << none[n].out << none[n].err;
  }
}

TEST(Explain, AnUnwritablePathIsRefusedBeforeTheSearch) {
  const std::string pack = pack_of({{"a", kLine, true, wrong_scale}}), file = own("file");
  ASSERT_FALSE(write_file(file, "no folder"));
  for (const std::string& folder : {file, file + "/below", std::string("/proc/nothing/here")}) {
    ExplainOptions options;
    options.what = pack;
    options.reproducer = folder;
    std::FILE *out = std::tmpfile(), *err = std::tmpfile();
    EXPECT_EQ(run_explain(options, reference_alone(), out, err), 2) << folder;
    EXPECT_EQ(all_of(out), "") << folder;
    const std::string said = all_of(err);
    EXPECT_NE(said.find("--reproducer: cannot write"), std::string::npos) << said;
  }
  std::remove(file.c_str());
}

TEST(Explain, WhatAPackSaysIsNoCommand) {
  const std::string id = "::error::injected\n::error::injected\x1b[31m##[error]";
  const std::string pack = pack_of({{id, kLine, true, wrong_scale}, {"a" + id, kLine, false}});
  const Told told = explain(pack);
  EXPECT_EQ(told.status, 1);
  std::FILE* out = std::tmpfile();
  EXPECT_EQ(run_identify({{pack}, "", "", 5, 0, 60, false, false}, reference_alone(), out, out), 1);
  for (const std::string& text : {told.text, told.error, explain(pack, "a" + id).error, all_of(out)}) {
    EXPECT_NE(text.find("injected"), std::string::npos) << text;
    EXPECT_NE(text.find("\\x1b[31m"), std::string::npos) << text;
    for (const char* raw : {"\x1b", "\n::error", "##["}) EXPECT_EQ(text.find(raw), std::string::npos) << text;
    EXPECT_FALSE(text.starts_with("::")) << text;
  }
}

// What a subject makes of a line.
Told explain_subject(const std::string& line, fakes::Spoiled::Spoil spoil, bool cause = true,
                     double budget = 10) {
  ExplainOptions options;
  options.budget = budget;
  options.what = line;
  options.subject = "fake";
  options.cause = cause;
  options.json = own(".json");
  std::FILE *out = std::tmpfile(), *err = std::tmpfile();
  Told told;
  told.status = run_explain(options, fakes::with("fake", std::move(spoil)), out, err);
  told.text = all_of(out);
  told.error = all_of(err);
  if (const auto json = json::read(options.json)) told.json = *json;
  std::remove(options.json.c_str());
  return told;
}

const char kTail[] = "33 elements of row.data still hold the poison: never written, all in column 69";

TEST(Explain, ATailThatIsNeverWritten) {
  const Told told =
      explain_subject("quantize mxfp8 33x70 bf16 dir=row", [](auto&, auto out, const Environment& env) {
        for (size_t row = 0; row < 33; ++row)
          fakes::output(out, "row.data")->bytes[70 * row + 69] = std::byte{env.poison};
      });
  EXPECT_EQ(told.status, 1);
  EXPECT_TRUE(told.text.starts_with(kTail)) << told.text;
  EXPECT_NE(told.text.find("UNWRITTEN"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("column"), std::string::npos) << told.text;
  EXPECT_EQ(told.text.find("no coordinate tells"), std::string::npos) << told.text;
  EXPECT_EQ(told.json.text("confidence"), "random");
  ASSERT_TRUE(told.json.find("unwritten"));
  ASSERT_TRUE(told.json.find("heat")->object());
  EXPECT_FALSE(told.json.find("where")->array()->empty());
}

// A recording may leave compact padding as it was; a subject that runs here may not (N6.4), and `run` says so
// too.
TEST(Explain, CompactPaddingThatASubjectDidNotClear) {
  for (const bool poison : {false, true}) {
    const Told told =
        explain_subject("quantize mxfp8 33x70 bf16 dir=row", [&](auto&, auto out, const Environment& env) {
          const Buffer& scales = *fakes::output(out, "row.scale_inv");
          for (int64_t i = 0; scales.plane && i < scales.plane->padded.count(); ++i)
            if (place_of(*scales.plane, i).padding)
              scales.bytes[static_cast<size_t>(i)] = poison ? std::byte{env.poison} : std::byte{0x70};
        });
    EXPECT_EQ(told.status, 1);
    EXPECT_TRUE(told.text.starts_with("EXPLAINED")) << told.text;
    for (const char* said : {"row.scale_inv padding (e8m0)  413 of 413", "[padding.not_cleared, N6.4]",
                             "all 2409 elements are right; only the padding is wrong"})
      EXPECT_NE(told.text.find(said), std::string::npos) << said << "\n" << told.text;
  }
}

// `run` fails there by a claim of its own, and its report says to type `explain`.
TEST(Explain, MemoryBeyondTheMembersThatASubjectCleared) {
  const Told told = explain_subject("split mxfp8 96x64 bf16 groups=64,32 capacity=7000 dir=row",
                                    [](auto&, auto out, const Environment& env) {
                                      const Buffer& data = *fakes::output(out, "row.data");
                                      data.bytes.back() = std::byte{env.poison} ^ std::byte{0xFF};
                                    });
  EXPECT_EQ(told.status, 1);
  EXPECT_EQ(told.text, "");
  EXPECT_NE(told.error.find("every element is as it should be, but the claim untouched of row.data fails: "
                            "byte 855 beyond the members was written"),
            std::string::npos)
      << told.error;
}

// Offsets belong to no element, so neither the screen nor the JSON shows one.
TEST(Explain, WrongOffsetsHaveNoElement) {
  const std::string line = "split mxfp8 96x64 bf16 groups=32,32,32 dir=row";
  const auto explained = [&](const char* plane) {
    return explain_subject(line, [&](auto&, auto out, auto&) {
      for (std::byte& b : fakes::output(out, plane)->bytes) b = std::byte{0};
    });
  };
  const Told offsets = explained("row.scale_offsets");
  EXPECT_NE(offsets.text.find("\nEXPLAINED"), std::string::npos) << offsets.text;
  EXPECT_EQ(offsets.text.find("\n  element "), std::string::npos) << offsets.text;
  EXPECT_EQ(offsets.json.find("trace")->find("outputs")->array()->size(), 0U);
  const Told codes = explained("row.data");
  EXPECT_NE(codes.text.find("\n  element "), std::string::npos) << codes.text;
  EXPECT_NE(codes.json.find("trace")->find("outputs")->array()->size(), 0U);
}

TEST(Explain, AFaultBesideATailIsStillNamed) {
  const Told told =
      explain_subject("quantize mxfp8 33x70 bf16 dir=row", [](auto&, auto out, const Environment& env) {
        for (std::byte& scale : fakes::output(out, "row.scale_inv")->bytes)
          scale = static_cast<std::byte>(std::to_integer<int>(scale) + 1);
        for (size_t row = 0; row < 33; ++row)
          fakes::output(out, "row.data")->bytes[70 * row + 69] = std::byte{env.poison};
      });
  EXPECT_EQ(told.status, 1);
  EXPECT_NE(told.text.find(kTail), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("EXPLAINED"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("scale.up"), std::string::npos) << told.text;
  EXPECT_EQ(told.json.find("deterministic")->to_bool(), false);
}

TEST(Explain, ARaceBesideATailIsNotLost) {
  const Told told =
      explain_subject("quantize mxfp8 33x70 bf16 dir=row", [](auto&, auto out, const Environment& env) {
        const Buffer& data = *fakes::output(out, "row.data");
        for (size_t row = 0; row < 33; ++row) data.bytes[70 * row + 69] = std::byte{env.poison};
        for (size_t row = 0; row < 9; ++row) data.bytes[70 * row + 4] ^= static_cast<std::byte>(env.threads);
      });
  EXPECT_NE(told.text.find(kTail), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("9 other elements differ between the two runs too"), std::string::npos)
      << told.text;
}

TEST(Explain, TwoRunsThatDifferHaveAPlace) {
  const Told told =
      explain_subject("quantize mxfp8 64x128 bf16 dir=row", [](auto&, auto out, const Environment& env) {
        for (size_t row = 0; row < 64; ++row)
          fakes::output(out, "row.data")->bytes[128 * row + 5] ^= static_cast<std::byte>(env.threads);
      });
  EXPECT_EQ(told.status, 1);
  EXPECT_TRUE(
      told.text.starts_with("the bytes depend on the number of threads (--env threads=2): threads race, "))
      << told.text;
  EXPECT_NE(told.text.find("\nRANDOM"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("column == 5"), std::string::npos) << told.text;
}

// One thing of a run is changed at a time, and a subject that differs from itself has no such thing.
TEST(Explain, TwoRunsThatDifferDependOnSomething) {
  const auto told_of = [](const std::function<int(const Environment&)>& part) {
    return explain_subject("quantize mxfp8 64x128 bf16 dir=row",
                           [part](auto&, auto out, const Environment& env) {
                             for (std::byte& b : fakes::output(out, "row.data")->bytes)
                               b ^= static_cast<std::byte>(part(env) & 0x3F);
                           });
  };
  const Told order = told_of([](const Environment&env) { return static_cast<int>(env.order); }),
             poison = told_of([](const Environment&env) { return env.poison == 0x80 ? 1 : 0; }),
             both = told_of([](const Environment&env) { return env.threads == 2 && env.order == 17; }),
             random = told_of([](const Environment&) {
               return static_cast<int>(std::chrono::steady_clock::now().time_since_epoch().count() / 16);
             });
  for (const auto& [told, said] :
       {std::pair(&order, "the bytes depend on the order in which blocks and threads run (--env order=17): "),
        std::pair(&poison, "the bytes depend on what stood in its memory before (--env poison=80)"),
        std::pair(&both,
                  "the bytes depend on several things together (--env threads=2,order=17,poison=80); "),
        std::pair(&random, "runs under the same conditions differ: threads race, ")}) {
    EXPECT_TRUE(told->text.starts_with(said)) << told->text;
    EXPECT_EQ(told->json.find("runs")->array()->front().string()->find(said), 0u);
  }
  EXPECT_NE(order.text.find("the first run's bytes are right"), std::string::npos) << order.text;
}

// A run that ends is told with its reason, as one line of its own; and what there was no time to try is not
// claimed.
TEST(Explain, OfTwoRunsThatDifferNothingIsSaidThatWasNotSeen) {
  const char* const line = "quantize mxfp8 64x128 bf16 dir=row";
  const Told ends = explain_subject(line, [](auto&, auto, const Environment& env) {
    if (env.order == 17) throw std::runtime_error("one\n\033[31mtwo");
  });
  EXPECT_TRUE(ends.text.starts_with("another run (--env threads=2,order=17,poison=80): one\\n\\x1b[31mtwo\n"))
      << ends.text;
  EXPECT_NE(ends.text.find("the first run's bytes are right"), std::string::npos) << ends.text;
  EXPECT_EQ(ends.text.find("no coordinate tells"), std::string::npos) << ends.text;
  const Told late = explain_subject(
      line,
      [](auto&, auto out, const Environment& env) {
        if (env.poison == 0x80) fakes::output(out, "row.data")->bytes[0] ^= std::byte{1};
      },
      true, 1e-6);
  EXPECT_TRUE(late.text.starts_with("on what else the bytes depend was not tried: --budget was over\n"))
      << late.text;
}

// The first run has a cause of its own, and it is named under what differs.
TEST(Explain, TwoRunsThatDifferHaveACauseOfTheFirst) {
  const Told told =
      explain_subject("quantize mxfp8 64x128 bf16 dir=row", [](auto&, auto out, const Environment& env) {
        for (std::byte& scale : fakes::output(out, "row.scale_inv")->bytes)
          scale = static_cast<std::byte>(std::to_integer<int>(scale) + (env.order == 17 ? 2 : 1));
      });
  EXPECT_NE(told.text.find("\nRANDOM"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("what follows is of the first run's bytes"), std::string::npos) << told.text;
  EXPECT_NE(told.text.find("[scale.up"), std::string::npos) << told.text;
  EXPECT_EQ(told.json.text("confidence"), "random");
}

TEST(Explain, WhatDiffersIsSaidFirst) {
  const auto wrong = [](auto&, auto out, auto&) {
    for (std::byte& scale : fakes::output(out, "row.scale_inv")->bytes)
      scale = static_cast<std::byte>(std::to_integer<int>(scale) + 1);
  };
  const Told told = explain_subject("quantize mxfp8 32x64 bf16 dir=row", wrong);
  EXPECT_TRUE(
      told.text.starts_with("row.scale_inv (e8m0)   64 of 64 differ, first at row 0, columns 0..31: "))
      << told.text;
  EXPECT_LT(told.text.find("differ, first at"), told.text.find("EXPLAINED"));
  const Told quick = explain_subject("quantize mxfp8 32x64 bf16 dir=row", wrong, false);
  EXPECT_EQ(quick.status, 1);
  EXPECT_EQ(quick.json.find("cut_short")->to_bool(), true);
  EXPECT_NE(quick.text.find("none was found before the search was ended"), std::string::npos) << quick.text;
}

TEST(Explain, ALargeCaseIsSearchedWhereItFirstDiffers) {
  const std::string pack = pack_of({{"a", "quantize mxfp8 300x1100 bf16 dir=row", true, wrong_scale}});
  ExplainOptions options;
  options.what = pack;
  options.large = 1;
  std::FILE *out = std::tmpfile(), *err = std::tmpfile();
  EXPECT_EQ(run_explain(options, reference_alone(), out, err), 1);
  const std::string text = all_of(out);
  std::fclose(err);
  EXPECT_TRUE(text.starts_with("  cause    row.scale_inv (e8m0)   10500 of 10500 differ")) << text;
  EXPECT_NE(text.find("searched   rows 0..255, columns 0..1023"), std::string::npos) << text;
  EXPECT_NE(text.find("scale.down"), std::string::npos) << text;
  EXPECT_EQ(text.find("differ, first at"), std::string::npos)
      << text;  // it was told, in the tensor's own places
}

// No part of a plane shows that all of it is in another order.
TEST(Explain, AnOrderOfAWholeLargePlaneIsNamed) {
  const auto turned = [](planes::Case& c) {
    const Shape s = c["row.scale_inv"].plane.logical;
    c.spoil("row.scale_inv", [&](int64_t r, int64_t b, uint32_t) {
      const int64_t at = r * s.cols + b;  // as a matrix of the other shape would have it
      return c.code("row.scale_inv", at % s.rows, at / s.rows);
    });
  };
  ExplainOptions options;
  options.what = pack_of({{"a", "quantize fp8_block 512x2048 bf16 dir=row", true, turned}});
  options.large = 1;
  std::FILE *out = std::tmpfile(), *err = std::tmpfile();
  EXPECT_EQ(run_explain(options, reference_alone(), out, err), 1);
  const std::string text = all_of(out);
  std::fclose(err);
  EXPECT_NE(text.find("\nEXPLAINED "), std::string::npos) << text;
  EXPECT_NE(text.find("[layout.scale_inv:"), std::string::npos) << text;
}

TEST(Explain, AFileThatCannotBeWrittenIsRefusedBeforeTheRun) {
  ExplainOptions options;
  options.what = "quantize mxfp8 32x64 bf16 dir=row";
  options.html = own("/no/folder/page.html");
  std::FILE *out = std::tmpfile(), *err = std::tmpfile();
  EXPECT_EQ(run_explain(options, reference_alone(), out, err), 2);
  EXPECT_EQ(all_of(out), "");
  EXPECT_NE(all_of(err).find("--html: cannot write"), std::string::npos);
}

// Of a recording there are outputs: the first element that differs, beside the reference's.
TEST(Trace, ACaseOfAPack) {
  const std::string pack = pack_of({{"a", kLine}, {"b", kLine, true, wrong_scale}});
  std::ostringstream out, err;
  EXPECT_EQ(run_trace_of_pack(pack, "", {}, reference_alone(), out, err), 1) << err.str();
  EXPECT_NE(out.str().find(":b\n"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("<- parts here"), std::string::npos) << out.str();
  out.str("");
  EXPECT_EQ(run_trace_of_pack(pack, "a", {}, reference_alone(), out, err), 0) << err.str();
  EXPECT_EQ(run_trace_of_pack(pack, "c", {}, reference_alone(), out, err), 2);
  EXPECT_NE(err.str().find("holds no case 'c' (it has a, b)"), std::string::npos) << err.str();
}

TEST(Explain, TimeIsThatOfTheWholeAndALargeCaseIsShrunkCheaply) {
  // Halves of rows interleaved: no crop keeps it.
  const auto halves = [](planes::Case& c) {
    PlaneData& p = c["row.data"];
    const PlaneData& want = c.wanted("row.data");
    for (int64_t r = 0; r < 512; ++r)
      for (int64_t k = 0; k < 512; ++k)
        set_code(p.plane, p.bytes, index_of(p.plane, r, k),
                 code_at(want.plane, want.bytes, index_of(want.plane, r, k % 2 * 256 + k / 2)));
  };
  const std::string pack = pack_of({{"a", "quantize mxfp8 512x512 bf16 dir=row", true, halves}});
  const auto start = std::chrono::steady_clock::now();
  const Told told = explain(pack);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(told.status, 1);
  EXPECT_NE(told.json.text("reproducer").find("512x512 bf16 dir=row fill=literal:"), std::string::npos)
      << told.text;
  EXPECT_EQ(told.json.text("reproducer").find('+'), std::string::npos) << told.text;
  EXPECT_GT(told.json.find("seconds")->to_double().value_or(0), seconds / 2);
}

}  // namespace
}  // namespace assay
