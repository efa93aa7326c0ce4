// Commands by their names: canopy's own, and those of its groups.
#include <iostream>

#include "src/cli/command.h"
#include "src/cli/options/spelling.h"
#include "src/cli/ranks.h"

namespace canopy::cli {

namespace {

void print_help(const CommandGroup& group, std::ostream& out) {
  const std::string name = group.name.empty() ? "canopy" : "canopy " + std::string(group.name);
  const std::string what = group.name.empty() ? " COMMAND" : " WHAT";
  out << "usage: " << name << what << " [FLAG ...]      " << name << what << " --help\n\n"
      << group.summary << "\n\n";
  for (const Command& command : group.commands)
    out << "  " << command.name << std::string(14 - command.name.size(), ' ') << command.summary
        << "\n";
  out << group.remark;
}

/// Throws UsageError naming what comes near, or all.
const Command& find_command(const CommandGroup& group, const std::string& word) {
  std::vector<std::string> names;
  std::string all = "; there are";
  for (const Command& command : group.commands) {
    if (command.name == word) return command;
    all += (names.empty() ? " " : ", ") + std::string(command.name);
    names.emplace_back(command.name);
  }
  const std::string near = did_you_mean(word, names);
  throw UsageError(
      (group.name.empty() ? "unknown command '" : "unknown '" + std::string(group.name) + " ") +
      word + "'" + (near.empty() ? all : near));
}

}  // namespace

int run_one_of(const CommandGroup& group, const std::vector<std::string>& words) {
  if (words.empty()) {
    print_help(group, std::cerr);
    return 2;
  }
  std::vector<std::string> rest(words.begin() + 1, words.end());
  if (words[0] == "--help" || words[0] == "-h" || (words[0] == "help" && rest.empty())) {
    print_help(group, std::cout);
    return 0;
  }
  if (words[0] != "help") {
    const Command& command = find_command(group, words[0]);
    if (command.sharing == Sharing::kNone) require_alone(std::string(command.name));
    return command.run(rest);
  }
  rest.emplace_back("--help");  // "help link" is "link --help"
  return run_one_of(group, rest);
}

}  // namespace canopy::cli
