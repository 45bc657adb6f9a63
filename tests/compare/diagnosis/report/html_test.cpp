#include "compare/diagnosis/report/html.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "compare/text/html.h"
#include "tests/compare/diagnosis/sample_diagnosis.h"

namespace assay {
namespace {

using std::string;

size_t count(const string& text, const string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}
void expect_in(const string& text, const string& part) {
  EXPECT_NE(text.find(part), string::npos) << "'" << part << "' is not in the page";
}
void expect_out(const string& text, const string& part) {
  EXPECT_EQ(text.find(part), string::npos) << "'" << part << "' is in the page";
}

TEST(Page, EscapesWhatIsMarkupOrNoText) {
  EXPECT_EQ(escaped("a<b>&\"'\n\t"), "a&lt;b&gt;&amp;&quot;&apos;&#10;&#9;");
  EXPECT_EQ(escaped(string("\0\x1b\x7f", 3)), "???");
  EXPECT_EQ(escaped("\xC3\xA9 \xE2\x80\x93 \xF0\x9F\x8C\x8D"), "\xC3\xA9 \xE2\x80\x93 \xF0\x9F\x8C\x8D");
  EXPECT_EQ(escaped("\xC3"), "?");                      // cut short
  EXPECT_EQ(escaped("\xC0\xAF\xE0\x80\xAF"), "?????");  // overlong
  EXPECT_EQ(escaped("\xED\xA0\x80"), "???");            // a surrogate
  EXPECT_EQ(escaped("\xEF\xBF\xBF"), "???");            // U+FFFF, which XML forbids
  EXPECT_EQ(escaped("\xF4\x90\x80\x80"), "????");       // beyond U+10FFFF
  EXPECT_EQ(escaped("\xE2\x80\xAE"
                    "abc"),
            "???abc");  // would print "cba"
}

TEST(Page, CountsAndSharesThatDoNotLie) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-123456), "-123,456");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::max()), "9,223,372,036,854,775,807");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(percent(0, 5), "0 %");
  EXPECT_EQ(percent(5, 5), "100 %");
  EXPECT_EQ(percent(1, 1000000), "under 0.1 %");
  EXPECT_EQ(percent(999999, 1000000), "over 99.9 %");
  EXPECT_EQ(percent(1, 3), "33.3 %");
  EXPECT_EQ(percent(3, 0), "–");
}

TEST(ReportPage, SaysTheVerdictFirst) {
  const string page = diagnosis_page(samples::certain());
  for (const char* part :
       {"<h1>E8M0 scale from the floored exponent</h1>", ">certain</span>",
        "quantize mxfp8 64x256 bf16 dir=both seed=7", "made by plugin:mine", "block scale, rows",
        "509 of 512 differ", "numerics.mx_scale=floor", "clause N17.6",
        "the amax of a block misses its last element", "<dd class=\"large\">1.2 %</dd>", "Same bytes twice"})
    expect_in(page, part);
  EXPECT_LT(page.find("<h1>"), page.find("<h2>Stages"));
  EXPECT_LT(page.find("<h2>Stages"), page.find("<h2>Where"));
  EXPECT_LT(page.find("<h2>Where"), page.find("<h2>Causes"));
}

TEST(ReportPage, SaysWhatWasNeverWrittenAndWhatWasNotLookedAt) {
  Diagnosis d = samples::certain();
  for (const char* text : {"Never written", "Searched", "other causes may also match"})
    expect_out(diagnosis_page(d), text);
  d.unwritten = {"33 elements of row.data still hold the poison: never written, all in column 69"};
  d.part = "rows 0..255, columns 0..1023";
  d.cut_short = true;
  const string page = diagnosis_page(d);
  for (const char* text : {"all in column 69", "rows 0..255, columns 0..1023", "other causes may also match"})
    expect_in(page, text);
  d.confidence = Confidence::random;
  expect_in(diagnosis_page(d), ">not written</span>");
  expect_in(diagnosis_page(d), "<h1>Elements are never written</h1>");
}

TEST(ReportPage, HoldsItsEvidence) {
  const Diagnosis d = samples::certain();
  const string page = diagnosis_page(d);
  EXPECT_EQ(count(page, "<li class=\"differs\">"), 1u);
  EXPECT_EQ(count(page, "<li class=\"follows\">"), 1u);
  EXPECT_EQ(count(page, "<title>rows "), 64u);                           // tiles
  expect_in(page, "<title>rows 8–15, columns 128–159: 7 of 8</title>");  // the one at 12
  EXPECT_EQ(count(page, "<table class=\"histogram\">"),
            5u);  // two of the scales, three of the data; none of planes that are equal
  expect_out(page, "the 0 that differ");
  EXPECT_EQ(count(page, "<tr class=\"parts\">"), 1u);
  EXPECT_LT(page.find("<tr class=\"parts\">"), page.find("scale, a power of two"));
  expect_in(page, "rng.offset+4");
  expect_in(page, "assay run &apos;quantize mxfp8 1x32 bf16 fill=literal:3fa2&apos; --plugin ./libmine.so");
  expect_in(page, "why/reproducer.cpp");
}

TEST(ReportPage, TellsExactCausesFromRunnersUp) {
  const string one = diagnosis_page(samples::certain()), two = diagnosis_page(samples::equivalent()),
               none = diagnosis_page(samples::partial());
  expect_in(one, "Exact: makes every byte that came");
  expect_in(two, "or one other that this input cannot tell from it");
  expect_in(two, "assay explain &apos;quantize mxfp8 32x64 f32 fill=ties&apos; --plugin ./libmine.so");
  expect_out(none, "Exact: makes every byte that came");
  expect_in(none, "<h1>In part: E8M0 scale from the floored exponent</h1>");
  expect_in(none, "column % 32 == 31");
  expect_out(none, "Same bytes twice");
  const string last = diagnosis_page(samples::unexplained());
  expect_in(last, "<h1>Unexplained, and first seen in the block scale</h1>");
  expect_in(last, "None of them explains any of the differences.");
}

// Of two runs that differ, the first one's bytes may have causes that this input cannot tell apart.
TEST(ReportPage, OfTwoRunsThatDifferNamesTheEquivalentsToo) {
  Diagnosis two = samples::equivalent();
  two.confidence = Confidence::random;
  two.runs = {"two runs under the same conditions differ"};
  const string page = diagnosis_page(two);
  expect_in(page, ">not repeatable</span>");
  expect_in(page, "or one other that this input cannot tell from it");
}

TEST(ReportPage, WithoutDifferencesAccusesNobody) {
  const string page = diagnosis_page(samples::equal());
  expect_in(page, "<h1>Nothing differs</h1>");
  for (const char* part : {"<h2>Causes", "<h2>Where", "class=\"differs\"", "histogram\"", "<rect"})
    expect_out(page, part);
  const string random = diagnosis_page(samples::random());
  expect_in(random, "<h1>Two runs on the same input differ</h1>");
  expect_out(random, "<h2>Causes");
  EXPECT_EQ(count(diagnosis_page(Diagnosis{}), "<section>"), 0u);
}

TEST(ReportPage, LeavesNothingOfAHostileString) {
  const string page =
      diagnosis_page(samples::hostile(), json::object({{"version", "<script>alert(3)</script>"}}));
  for (const char* part : {"<script", "<img", "</title></style>", "\x01", "\xFF", "\xE2\x80\xAE"})
    expect_out(page, part);
  EXPECT_EQ(count(page, "<code>"), count(page, "</code>"));
  EXPECT_EQ(count(page, "</style>"), 1u);
  EXPECT_EQ(count(page, "</title>"), 1u + 64u);
  expect_in(page,
            "content=\"default-src 'none'; style-src 'unsafe-inline'\"");  // were something left, the browser
                                                                           // would neither run nor load it
}

TEST(ReportPage, TakesTheLargestTensors) {
  const Diagnosis d = samples::large();
  const string page = diagnosis_page(d);
  EXPECT_EQ(count(page, "<title>rows "), 4096u);
  expect_in(page, "9,223,372,036,854,775,807");
  expect_in(page, "rows 64,512–65,535, columns 64,512–65,535");
  EXPECT_LT(page.size(), size_t{2} << 20);
  Diagnosis broken = d;
  broken.heat->differ.pop_back();
  EXPECT_EQ(count(diagnosis_page(broken), "<title>rows "), 0u);
  broken.heat->of.pop_back();  // a map that does not fit its own size is left out, not read beyond its end
  EXPECT_EQ(count(diagnosis_page(broken), "<title>rows "), 0u);
}

TEST(ReportPage, TilesThatHoldNothingAreJoined) {
  // Scales of blocks of 1 x 4 tiles: only every fourth tile holds one; rows go in pairs.
  Diagnosis d = samples::certain();
  HeatMap h{"row.scale_inv", 1, 8, 4, 8, std::vector<int64_t>(32), std::vector<int64_t>(32)};
  for (size_t r : {0, 2})
    for (size_t c : {0, 4}) h.of[r * 8 + c] = 1;
  h.differ[2 * 8 + 4] = 1;
  d.heat = h;
  const string page = diagnosis_page(d);
  EXPECT_EQ(count(page, "<title>rows "), 4u);
  expect_in(page, "Tiles of 2 × 32 elements. 1 of 4 tiles hold differences");
  expect_in(page, "<title>rows 2–3, columns 32–63: 1 of 1</title>");
  expect_in(page, "<title>rows 0–1, columns 32–63: 0 of 1</title>");
}

TEST(ReportPage, OfAPackNothingIsRun) {
  Diagnosis d = samples::equivalent();
  d.subject = "pack a.safetensors:0";
  d.argument = "";
  const string page = diagnosis_page(d);
  expect_in(page, "<pre><code>quantize mxfp8 32x64 f32 fill=ties</code></pre>");
  expect_in(page, "<pre><code>quantize mxfp8 1x32 bf16 fill=literal:3fa2</code></pre>");
}

TEST(ReportPage, ARunnerUpThatBreaksOthersSaysSo) {
  Diagnosis d = samples::certain();
  d.explanations[1].repaired = d.explanations[1].differ;
  d.explanations[1].agree = d.explanations[1].of - 96;
  expect_in(
      diagnosis_page(d),
      "<dd class=\"large\">100 %</dd><dd>the amax of a block misses its last element; breaks 96 others</dd>");
}

TEST(ReportPage, TilesEndWithTheTensor) {
  Diagnosis d = samples::certain();
  d.line = "quantize mxfp8 60x250 bf16";
  expect_in(diagnosis_page(d), "<title>rows 56–59, columns 224–249: 4 of 8</title>");
}

TEST(ReportPage, IsWrittenOrSaysWhyNot) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("assay_page_" + std::to_string(::getpid()) + ".html");
  const auto none = write_diagnosis_page(samples::certain(), file.string());
  ASSERT_FALSE(none) << none->text();
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), diagnosis_page(samples::certain()));
  std::filesystem::remove(file);
  const auto error = write_diagnosis_page(samples::certain(), "/nowhere/at/all.html");
  ASSERT_TRUE(error);
  expect_in(error->text(), "/nowhere/at/all.html");
}

}  // namespace
}  // namespace assay
