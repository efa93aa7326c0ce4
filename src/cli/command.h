#pragma once
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace canopy::cli {

/// The user's mistake on the command line: exit code 2. Everything else that fails is an Error:
/// exit code 1.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// kByRanks: processes that mpirun has started can share a command (src/cli/ranks.h).
enum class Sharing : bool { kNone, kByRanks };

/// One `canopy NAME ...`. run() gets the words after NAME and returns the exit code.
struct Command {
  std::string_view name, summary;
  int (*run)(const std::vector<std::string>& words);
  Sharing sharing = Sharing::kNone;
};
/// Choices of a first word: canopy itself (no name), or one of its commands.
struct CommandGroup {
  std::string_view name, summary;
  std::span<const Command> commands;
  std::string_view remark = {};  // the end of its help
};
/// The command whose name is words[0]; a page of their names for --help. Throws UsageError if there
/// is none.
int run_one_of(const CommandGroup& group, const std::vector<std::string>& words);

}  // namespace canopy::cli
