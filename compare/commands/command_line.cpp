#include "compare/commands/command_line.h"

#include <cmath>
#include <functional>
#include <utility>

#include "contract/words.h"

#include <CLI/CLI.hpp>

namespace assay {

namespace {

// The words of a check for membership, which CLI11 shows as "TEXT:{a,b}".
std::vector<std::string> words_of_type(const std::string& type) {
  const size_t open = type.find(":{"), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  std::vector<std::string> words;
  for (std::string_view word : words_of(std::string_view(type).substr(open + 2, close - open - 2), ','))
    words.emplace_back(word);
  return words;
}

OptionInfo info_of(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  if (option.get_positional()) info.argument = option.get_name();
  info.help = option.get_description();
  info.takes_value = option.get_items_expected_max() > 0;
  info.words = words_of_type(option.get_type_name());
  return info;
}

// Of a finite number. `expected` says which are good.
CLI::Validator number_check(const std::string& expected, const std::string& name,
                            const std::function<bool(double)>& good) {
  return {[=](const std::string& text) {
            double value = 0;
            const bool fits = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && good(value);
            return fits ? "" : "expected " + expected + ", found " + text;
          },
          name};
}

}  // namespace

std::vector<CommandInfo> commands_of(const CLI::App& program) {
  std::vector<CommandInfo> commands;
  for (const CLI::App* app : program.get_subcommands([](const CLI::App*) { return true; })) {
    CommandInfo& command =
        commands.emplace_back(CommandInfo{app->get_name(), app->get_description(), app->get_footer(), {}});
    for (const CLI::Option* option : app->get_options()) command.options.push_back(info_of(*option));
  }
  return commands;
}

HelpTexts help_texts_of(const CLI::App& program) { return {program.get_description(), program.get_footer()}; }

CommandOption& CommandOption::required(bool yes) {
  option_->required(yes);
  return *this;
}

CommandOption& CommandOption::positive() {
  option_->check(number_check("a number above 0", "POSITIVE", [](double value) { return value > 0; }));
  return *this;
}

CommandOption& CommandOption::seconds() {
  positive();
  return may_end_in_s();
}

CommandOption& CommandOption::seconds_or_zero() {
  option_->check(number_check("0 or a number above it", "SECONDS", [](double value) { return value >= 0; }));
  return may_end_in_s();
}

CommandOption& CommandOption::may_end_in_s() {
  // Checks see what the transformations before them left. CLI11 runs those that were added last first.
  option_->transform(CLI::Validator(
      [](std::string& text) {
        if (text.size() > 1 && text.ends_with('s')) text.pop_back();
        return std::string();
      },
      ""));
  return *this;
}

CommandOption& CommandOption::range(int low, int high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

CommandOption& CommandOption::one_of(std::initializer_list<const char*> words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

CommandOption& CommandOption::show_default() {
  option_->capture_default_str();
  return *this;
}

Command::Command(CLI::App& program, const std::string& name, const std::string& help)
    : app_(program.add_subcommand(name, help)) {}

CommandOption Command::option(const std::string& names, std::string& target, const std::string& help) {
  return CommandOption(app_->add_option(names, target, help));
}

CommandOption Command::option(const std::string& names, std::vector<std::string>& target,
                              const std::string& help) {
  return CommandOption(app_->add_option(names, target, help));
}

CommandOption Command::option(const std::string& names, double& target, const std::string& help) {
  return CommandOption(app_->add_option(names, target, help));
}

CommandOption Command::option(const std::string& names, int& target, const std::string& help) {
  return CommandOption(app_->add_option(names, target, help));
}

CommandOption Command::option(const std::string& names, int64_t& target, const std::string& help) {
  return CommandOption(app_->add_option(names, target, help));
}

CommandOption Command::option(const std::string& names, size_t& target, const std::string& help) {
  CLI::Option* option = app_->add_option(names, target, help);
  // CLI11 takes -1 for the largest number, and larger numbers as well.
  option->check([](const std::string& text) {
    return parse_integer<size_t>(text) ? std::string()
                                       : "expected an integer from 0 to 2^64-1, found " + text;
  });
  return CommandOption(option);
}

void Command::flag(const std::string& names, bool& target, const std::string& help) {
  app_->add_flag(names, target, help);
}

void Command::flag(const std::string& names, std::function<void()> when_given, const std::string& help) {
  app_->add_flag_callback(names, std::move(when_given), help);
}

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::callback(std::function<void()> when_called) { app_->callback(std::move(when_called)); }

void refuse_argument(const std::string& name, const std::string& why) {
  throw CLI::ValidationError(name, why);
}

}  // namespace assay
