#include "compare/commands/completion.h"

#include <cstdio>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "compare/commands/manual.h"
#include "contract/format.h"
#include "contract/line.h"
#include "contract/problem.h"
#include "contract/recipes.h"
#include "contract/words.h"

namespace assay {

namespace {

using std::string;

// The values of a key that is a choice of words; none for numbers and what else a key takes.
std::vector<string> choices_of(const KeyInfo& key) {
  std::vector<string> choices;
  for (const std::string_view word : words_of(key.values, '|')) {
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != word.npos) return {};
    choices.emplace_back(word);
  }
  return choices.size() > 1 ? choices : std::vector<string>{};
}

// What may stand in a quoted line: its first word, its second, and its keys.
string line_words() {
  std::vector<string> formats, keys;
  for (const FormatInfo& f : kFormats) formats.emplace_back(f.name);
  string values;
  for (const std::span<const KeyInfo> table : {line_keys(), role_keys()})
    for (const KeyInfo& key : table) {
      keys.push_back(fmt::format("{}=", key.name));
      if (const auto words = choices_of(key); !words.empty())
        values += fmt::format("      {}) words='{}' ;;\n", key.name, fmt::join(words, " "));
    }
  return fmt::format(
      "  local ops='{}' formats='{}'\n"
      "  local keys='{}'\n"
      "  case $key in\n{}      *) words= ;;\n  esac\n",
      fmt::join(kOps, " "), fmt::join(formats, " "), fmt::join(keys, " "), values);
}

// The case of one command: its options, and after an option its words.
string bash_case(const CommandInfo& command) {
  std::vector<string> names;
  string after;
  for (const OptionInfo& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (option.names.empty() || !option.takes_value) continue;
    after += fmt::format("        {}) words='{}'; files={} ;;\n", fmt::join(option.names, "|"),
                         fmt::join(option.words, " "), option.words.empty() ? "yes" : "");
  }
  return fmt::format("    {})\n      case $previous in\n{}        *) words='{}' ;;\n      esac ;;\n",
                     command.name, after, fmt::join(names, " "));
}

const char kBashHead[] =
    "# bash completion for assay. Made by `assay completion bash`; load it with: source <(assay completion "
    "bash)\n"
    "# A line in quotes: its last word is completed. bash has the text without the quote, which stays.\n"
    "_assay_line() {\n"
    "  local text=${1:1} last before key= words= at\n"
    "  last=${text##* } before=${text%\"$last\"}\n"
    "  case $last in *=*) key=${last%%=*}; key=${key#row.}; key=${key#col.} ;; esac\n";
const char kBashLineTail[] =
    "  if [ -n \"$key\" ]; then\n"
    "    before=$before${last%%=*}= last=${last#*=}\n"
    "  else\n"
    "    at=($before)\n"
    "    case ${#at[@]} in 0) words=$ops ;; 1) words=$formats ;; 2|3) words= ;; *) words=$keys ;; esac\n"
    "  fi\n"
    "  local word\n"
    "  for word in $(compgen -W \"$words\" -- \"$last\"); do COMPREPLY+=(\"$before$word\"); done\n"
    "  compopt -o nospace 2>/dev/null\n"
    "}\n";
const char kBashMain[] =
    "_assay() {\n"
    "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= words= files= "
    "word\n"
    "  COMPREPLY=()\n"
    "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
    "    case $word in -*) ;; *) command=$word; break ;; esac\n"
    "  done\n"
    "  case $current in [\\'\\\"]*) _assay_line \"$current\"; return ;; esac\n"
    "  case $command in\n";

}  // namespace

string bash_completion(std::span<const CommandInfo> commands) {
  std::vector<string> names;
  string cases;
  for (const CommandInfo& command : commands) {
    names.push_back(command.name);
    cases += bash_case(command);
  }
  return string(kBashHead) + line_words() + kBashLineTail + kBashMain +
         fmt::format("    '') words='{} --help --version' ;;\n", fmt::join(names, " ")) + cases +
         "  esac\n"
         "  case $command-$current in\n"
         "    -*|*--*) ;;\n"
         "    *) [ -n \"$files\" ] || words=\"$words scenarios ranks roles $(assay list --suites "
         "2>/dev/null)\"; files=yes ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  [ -z \"$files\" ] || COMPREPLY+=($(compgen -f -- \"$current\"))\n"
         "}\n"
         "complete -o filenames -F _assay assay\n";
}

namespace {

// Text within the single quotes of a shell and the brackets of _arguments.
string within_quotes(std::string_view text) {
  string out;
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\') out += string("\\") + c;
    else out += c;
  }
  return out;
}

string zsh_option(const OptionInfo& option) {
  const string value = !option.takes_value    ? ""
                       : option.words.empty() ? ":value:_files"
                                              : fmt::format(":value:({})", fmt::join(option.words, " "));
  if (option.names.empty()) return "        '*:what:_assay_what'";
  std::vector<string> rows;
  for (const string& name : option.names)
    rows.push_back(fmt::format("        '{}[{}]{}'", name, within_quotes(option.help), value));
  return fmt::format("{}", fmt::join(rows, " \\\n"));
}

}  // namespace

string zsh_completion(std::span<const CommandInfo> commands) {
  string names, cases;
  for (const CommandInfo& command : commands) {
    names += fmt::format("    '{}:{}'\n", command.name, within_quotes(command.help));
    std::vector<string> options;
    for (const OptionInfo& option : command.options) options.push_back(zsh_option(option));
    cases += fmt::format("    {})\n      _arguments \\\n{} ;;\n", command.name, fmt::join(options, " \\\n"));
  }
  return fmt::format(
      "#compdef assay\n"
      "# zsh completion for assay. Made by `assay completion zsh`; keep it as _assay in a folder of $fpath.\n"
      "_assay_what() {{\n"
      "  _alternative \"suites:suite:(scenarios ranks roles $(assay list --suites 2>/dev/null))\" "
      "'files:file:_files'\n"
      "}}\n"
      "_assay() {{\n"
      "  local -a commands\n"
      "  commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local command=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $command in\n{}  esac\n"
      "}}\n"
      "compdef _assay assay\n",
      names, cases);
}

void register_completion(Program& program) {
  const auto shell = std::make_shared<string>();
  Command c(program.app, "completion",
            "print what bash or zsh needs to complete commands, options and lines");
  c.footer(
      "Examples:\n"
      "  source <(assay completion bash)\n"
      "  assay completion zsh > ~/.zfunc/_assay      # a folder of $fpath");
  c.option("shell", *shell, "bash or zsh").required().one_of({"bash", "zsh"});
  c.callback([&program, shell] {
    const std::vector<CommandInfo> commands = commands_of(program.app);
    fmt::print("{}", *shell == "bash" ? bash_completion(commands) : zsh_completion(commands));
  });
  Command manual(program.app, "manual", "print the page assay(1), for man");
  manual.footer("Examples:\n  assay manual > assay.1 && man ./assay.1");
  manual.callback([&program] { fmt::print("{}", manual_page(program.app)); });
}

}  // namespace assay
