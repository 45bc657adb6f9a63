#include "compare/commands/bad_usage.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "compare/commands/options.h"
#include "compare/text/printable.h"
#include "compare/text/shell.h"
#include "contract/line.h"
#include "contract/problem.h"
#include "contract/words.h"

namespace assay {

using std::string;
using std::string_view;

namespace {

// What stands where a command belongs. CLI11 would only say that some command is missing, or take the help
// that follows for its own.
void refuse_unknown_command(const CLI::App& app, const string& first) {
  if (first.empty() || first[0] == '-') return;
  std::vector<string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), first) != names.end()) return;
  const string near = nearest_word(first, std::vector<string_view>(names.begin(), names.end()));
  const string hint = near.empty() ? "" : ": did you mean " + near + "?";
  throw Refusal{fmt::format("no command '{}'{}; `assay --help` lists the commands", first, hint)};
}

bool is_option(const string& word) {
  return word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1]));
}

// The option that was probably meant by one of these words, which an app did not understand; nothing where
// none of them is an option.
std::optional<string> unknown_option(const CLI::App& app, const string& command) {
  const std::vector<string> left = app.remaining();
  const auto word = std::find_if(left.begin(), left.end(), is_option);
  if (word == left.end()) return std::nullopt;
  const string option = word->substr(0, word->find('='));
  std::vector<string> known;
  for (const CLI::Option* o : app.get_options())
    for (const string& name : o->get_lnames()) known.push_back("--" + name);
  const string near = nearest_word(option, std::vector<string_view>(known.begin(), known.end()));
  const string hint = near.empty() ? "" : fmt::format(": did you mean {}?", near);
  return fmt::format("no option '{}' of `{}`{}; `{} --help` lists its options", printable(option), command,
                     hint, command);
}

// A shape, or a key with its value: what tells a line from other words.
bool is_of_a_line(const string& word) {
  const size_t x = word.find('x');
  const bool shape = x != string::npos && x > 0 && std::isdigit(static_cast<unsigned char>(word[x - 1]));
  return shape || word.find('=') != string::npos;
}

// Words that begin a line, or the name of a cell of the parity matrix.
bool begins_a_line(const string& word) {
  return word == "roles" || word == "parity" ||
         std::find(std::begin(kOps), std::end(kOps), word) != std::end(kOps);
}

// `run quantize mxfp8 64x256 bf16 -v` with its line in quotes; nothing where the command takes no line, or
// none is without quotes.
std::optional<string> with_quotes(const CLI::App& command, const std::vector<string>& words) {
  const auto takes_lines = [](const CLI::Option* o) {
    return o->get_positional() && (o->get_name() == "what" || o->get_name() == "line");
  };
  const std::vector<const CLI::Option*> options = command.get_options();
  if (std::none_of(options.begin(), options.end(), takes_lines)) return std::nullopt;
  const auto begin = std::find_if(words.begin() + 1, words.end(), begins_a_line);
  const auto end = std::find_if(begin, words.end(), is_option);
  if (std::find_if(begin, end, is_of_a_line) == end) return std::nullopt;
  string out;
  for (auto word = words.begin(); word != begin; ++word) out += shell_word(*word) + " ";
  out += shell_word(fmt::format("{}", fmt::join(begin, end, " ")));
  for (auto word = end; word != words.end(); ++word) out += " " + shell_word(*word);
  return out;
}

// Whether the failure of a command comes from a line without quotes; says so.
bool tell_of_quotes(const CLI::App& app, const std::vector<string>& words) {
  const std::vector<CLI::App*> called = app.get_subcommands();
  const auto quoted = called.empty() ? std::nullopt : with_quotes(*called.front(), words);
  if (quoted) fmt::print(stderr, "assay: a line is one argument: put it in quotes\n  assay {}\n", *quoted);
  return quoted.has_value();
}

// An option that was given more often than it may be; CLI11 says "At Most 1 required".
std::optional<string> given_twice(const CLI::App& app) {
  for (const CLI::Option* o : app.get_options()) {
    const auto most = static_cast<size_t>(std::max(o->get_items_expected_max(), 1));
    if (o->get_lnames().empty() || o->get_items_expected_max() == 0 || o->results().size() <= most) continue;
    const string name = "--" + o->get_lnames().front();
    return fmt::format("{} takes one {}, found {}\n", name, name == "--plugin" ? "library" : "value",
                       o->results().size());
  }
  return std::nullopt;
}

string usage_error(const CLI::App& app, const CLI::ParseError& e) {
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&e))
    for (const CLI::App* command : app.get_subcommands())
      if (const auto text = given_twice(*command)) return *text;
  for (const CLI::App* command : app.get_subcommands())
    if (const auto text = unknown_option(*command, "assay " + command->get_name())) return *text + "\n";
  if (const auto text = unknown_option(app, "assay")) return *text + "\n";
  return CLI::FailureMessage::simple(&app, e);
}

}  // namespace

int parse_and_run(Program& program, int argc, char** argv) {
  CLI::App& app = program.app;
  const std::vector<string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty()) refuse_unknown_command(app, words.front());
  try {
    app.parse(argc, argv);
    return program.status;
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    if (!tell_of_quotes(app, words)) fmt::print(stderr, "assay: {}", usage_error(app, e));
    return kBadUsage;
  } catch (const Refusal&) {
    if (!tell_of_quotes(app, words)) throw;
    return kBadUsage;
  }
}

}  // namespace assay
