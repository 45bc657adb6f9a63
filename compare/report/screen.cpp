#include "compare/report/screen.h"

#include <algorithm>

#include <fmt/format.h>

#include "compare/arithmetic/codes.h"
#include "compare/text/printable.h"

namespace assay {

std::string printable_lines(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out += printable(text.substr(at, end - at));
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

std::string cause_text(const Breach& b) {
  std::string out;
  if (b.plane.empty() || b.of == 0) {  // nothing was counted: a trespass, an exception
    out = fmt::format("  cause    {}\n", b.message);
  } else {
    out = fmt::format("  cause    {} ({})   {} of {} {}differ     first at {}\n", b.plane, b.encoding,
                      b.differ, b.of, b.in_padding ? "padding elements " : "", b.where);
    const auto encoding = encoding_named(b.encoding);
    auto side = [&](const std::string& who, std::optional<uint32_t> code, const std::string& note) {
      if (encoding && code)
        out += fmt::format("           {:<10} {}   {}   {}{}\n", who, code_bits(*encoding, *code),
                           code_hex(*encoding, *code), value_text(*encoding, *code), note);
    };
    side(b.got, b.got_code, "");
    side(b.want, b.want_code,
         b.apart ? fmt::format("      {} code{} apart", *b.apart, *b.apart == 1 ? "" : "s") : "");
    if (!b.message.empty()) out += fmt::format("           {}\n", b.message);
  }
  for (const std::string& a : b.after) out += "  after    " + a + "\n";
  if (!b.hint.empty()) out += "  hint     " + b.hint + "\n";
  return printable_lines(out);
}

}  // namespace assay
