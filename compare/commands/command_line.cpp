#include "compare/commands/command_line.h"

#include <utility>

#include <CLI/CLI.hpp>

namespace assay {

CommandOption& CommandOption::required(bool yes) {
  option_->required(yes);
  return *this;
}

CommandOption& CommandOption::positive() {
  option_->check(CLI::PositiveNumber);
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
  return CommandOption(app_->add_option(names, target, help));
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

void refuse_missing_argument(const std::string& name) { throw CLI::RequiredError(name); }

}  // namespace assay
