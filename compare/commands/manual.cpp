#include "compare/commands/manual.h"

#include <string_view>

#include <fmt/format.h>

#include "compare/commands/command_line.h"
#include "compare/report/build.h"
#include "contract/words.h"

namespace assay {

namespace {

using std::string;

// Text as man(7) wants it: a backslash and a hyphen are escaped, and no line begins with a dot or an
// apostrophe.
string escaped(std::string_view text) {
  string out;
  for (const char c : text) {
    const bool begins = out.empty() || out.back() == '\n';
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\' || c == '-') out += '\\';
    out += c;
  }
  return out;
}

// Lines that stay as they are.
string verbatim(std::string_view text) { return fmt::format(".nf\n{}\n.fi\n", escaped(text)); }

string option_text(const OptionInfo& option) {
  std::vector<string> names;
  for (const string& name : option.names) names.push_back("\\fB" + escaped(name) + "\\fR");
  if (option.names.empty()) names.push_back("\\fI" + escaped(option.argument) + "\\fR");
  const string words = option.words.empty() ? "" : fmt::format(" ({})", fmt::join(option.words, ", "));
  return fmt::format(".TP\n{}{}\n{}\n", fmt::join(names, ", "),
                     option.takes_value && !option.names.empty() ? " \\fIvalue\\fR" : "",
                     escaped(option.help + words));
}

}  // namespace

string manual_page(const CLI::App& program) {
  const HelpTexts texts = help_texts_of(program);
  string out = fmt::format(".TH ASSAY 1 \"\" \"assay {}\" \"\"\n", build::kVersion);
  out += ".SH NAME\nassay \\- a bit\\-exact test oracle for low\\-precision training\n";
  out += ".SH SYNOPSIS\n.B assay\n.I command\n[\\fIoptions\\fR] [\\fIwhat\\fR ...]\n";
  out += fmt::format(".SH DESCRIPTION\n{}\n.SH COMMANDS\n", escaped(texts.about));
  for (const CommandInfo& command : commands_of(program)) {
    out += fmt::format(".SS {}\n{}\n", escaped(command.name), escaped(command.help));
    for (const OptionInfo& option : command.options) out += option_text(option);
    if (!command.footer.empty()) out += ".PP\n" + verbatim(command.footer);
  }
  return out + ".SH WHAT IS JUDGED\n" + verbatim(texts.foot);
}

}  // namespace assay
