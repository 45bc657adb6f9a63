// How a command tells the program about its options. CLI11 reads them, but its header costs each unit that
// includes it six seconds, so the commands see this face alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace assay {

// One option or argument that was added to a command, to say more about it.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}
  CommandOption& required(bool yes = true);
  CommandOption& positive();                // a number above zero
  CommandOption& seconds();                 // the same, which may end in "s"
  CommandOption& seconds_or_zero();         // the same, or 0
  CommandOption& range(int low, int high);  // an integer, ends included
  CommandOption& one_of(std::initializer_list<const char*> words);
  CommandOption& show_default();  // the help shows what the target holds now

 private:
  CommandOption& may_end_in_s();

  CLI::Option* option_;
};

// One command of the program. Names are written as CLI11 takes them: "--jobs,-j", "what". A target must live
// until the command line has been read.
class Command {
 public:
  Command(CLI::App& program, const std::string& name, const std::string& help);

  CommandOption option(const std::string& names, std::string& target, const std::string& help);
  CommandOption option(const std::string& names, std::vector<std::string>& target, const std::string& help);
  CommandOption option(const std::string& names, double& target, const std::string& help);
  CommandOption option(const std::string& names, int& target, const std::string& help);
  CommandOption option(const std::string& names, int64_t& target, const std::string& help);
  CommandOption option(const std::string& names, size_t& target, const std::string& help);
  void flag(const std::string& names, bool& target, const std::string& help);
  void flag(const std::string& names, std::function<void()> when_given, const std::string& help);

  void footer(const std::string& text);              // the last lines of its help
  void callback(std::function<void()> when_called);  // what the command does

 private:
  CLI::App* app_;
};

// A command as its help shows it.
struct OptionInfo {
  std::vector<std::string> names;  // "--jobs", "-j"; empty for an argument
  std::string argument;            // "what", of an argument
  std::string help;
  bool takes_value = false;
  std::vector<std::string> words;  // the only values it takes, where there is such a list
};
struct CommandInfo {
  std::string name, help, footer;
  std::vector<OptionInfo> options;
};
// Those of the program, in the order of its help. Each has --help.
std::vector<CommandInfo> commands_of(const CLI::App& program);
// The first lines of the program's help, and its last.
struct HelpTexts {
  std::string about, foot;
};
HelpTexts help_texts_of(const CLI::App& program);

// What a command throws when an argument cannot be taken, or is absent: bad usage, exit status 2.
[[noreturn]] void refuse_argument(const std::string& name, const std::string& why);

}  // namespace assay
