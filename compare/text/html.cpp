#include "compare/text/html.h"

#include <fmt/format.h>

#include "compare/text/printable.h"

namespace assay {

namespace {

// Colours are named by what they say; every text colour is at least 4.5 to 1 on each ground it stands on
// (tests/browser measures it). Paper is always light.
constexpr std::string_view kStyle = R"css(
:root{color-scheme:light;--ground:#fcfcfa;--raised:#f3f3ef;--ink:#1d1d1b;--quiet:#5b5b56;--rule:#d8d8d2;--strong:#8a8a83;
--good:#1c6631;--good-ground:#dcf1e0;--warn:#734700;--warn-ground:#fbeecb;--bad:#9b1c0c;--bad-ground:#fae0db;--bar:#c9683c}
@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--ground:#161716;--raised:#212220;--ink:#e9e9e4;--quiet:#a8a8a1;--rule:#3b3c39;--strong:#73746e;
--good:#8ed8a1;--good-ground:#17351f;--warn:#f0c266;--warn-ground:#42350f;--bad:#ffa091;--bad-ground:#4d1a14;--bar:#d07b50}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);font:1rem/1.55 system-ui,-apple-system,"Segoe UI","Noto Sans","DejaVu Sans",sans-serif}
main{margin:0 auto;padding:2.5rem 1.5rem 4rem;overflow-wrap:break-word}
h1{font-size:1.75rem;line-height:1.25;font-weight:650;letter-spacing:-.01em;margin:.2rem 0 .6rem;text-wrap:balance}
h2{font-size:1.15rem;line-height:1.3;font-weight:650;margin:2.6rem 0 .7rem}
h3{font-size:.95rem;font-weight:650;margin:1.2rem 0 .4rem}
p{margin:.4rem 0;max-width:70ch}
.quiet{color:var(--quiet)}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em;unicode-bidi:isolate}
code{overflow-wrap:anywhere}
pre{margin:.5rem 0;padding:.7rem .9rem;background:var(--raised);border:1px solid var(--rule);border-radius:.35rem;white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.45}
pre code{font-size:inherit;user-select:all;-webkit-user-select:all;display:block}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem;line-height:1.4}
caption{text-align:left;color:var(--quiet);padding:0 0 .35rem}
th,td{padding:.32rem .9rem .32rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
th{font-weight:600}
thead th{color:var(--quiet);font-weight:500;border-bottom-color:var(--strong);vertical-align:bottom}
tbody th{font-weight:500}
.n{text-align:right;white-space:nowrap}
.scroll{overflow-x:auto}
@media print{
:root{--ground:#fff}html{font-size:9.5pt}main{max-width:none;padding:0}h2{margin-top:1.6rem}
h2,h3,caption{break-after:avoid}tr,li,pre{break-inside:avoid}thead{display:table-header-group}
.scroll{overflow:visible}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
)css";

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else if (c == '\'') out += "&apos;";
    else if (c == '\n') out += "&#10;";
    else if (c == '\t') out += "&#9;";
    else if (c >= 0x20 && c < 0x7F) out += static_cast<char>(c);
    else if (const size_t length = c < 0x80 ? 0 : utf8_sequence(text, i)) {
      out += text.substr(i, length);
      i += length - 1;
    } else {
      out += '?';
    }
  }
  return out;
}

std::string grouped(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t sign = count < 0;
  for (size_t at = digits.size(); at > sign + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string percent(int64_t part, int64_t whole) {
  if (whole <= 0) return "–";
  if (part <= 0) return "0 %";
  if (part >= whole) return "100 %";
  const double share = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return share < 0.1 ? "under 0.1 %" : share > 99.9 ? "over 99.9 %" : fmt::format("{:.1f} %", share);
}

std::string page_head(std::string_view title, std::string_view style) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n",
      escaped(title), kStyle, style);
}

std::string page_end() { return "</main>\n</body>\n</html>\n"; }

}  // namespace assay
