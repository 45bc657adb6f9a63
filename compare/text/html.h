// What the pages of Assay share: escaping, the style sheet and the frame. A page is one file without scripts
// that loads nothing, light and dark, fit for paper and narrow screens.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace assay {

// Text for an element or an attribute of XML or HTML: five entities, line ends and tabs as references.
// Control characters, signs that turn the direction of writing, and bytes that are no UTF-8 become '?'.
std::string escaped(std::string_view text);

// "16,384".
std::string grouped(int64_t count);
// "61 %", "7.2 %". Only all of them are "100 %" and only none "0 %": what lies next to an end is "over 99.9
// %" or "under 0.1 %". Of nothing: "–".
std::string percent(int64_t part, int64_t whole);

// From the doctype to the open <main>: `title` is escaped here, `style` is CSS to go after what pages share.
std::string page_head(std::string_view title, std::string_view style = {});
std::string page_end();

}  // namespace assay
