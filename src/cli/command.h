#pragma once
#include <boost/program_options.hpp>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/file.h"
#include "src/base/size_text.h"

namespace canopy::cli {

/// The user's mistake on the command line: exit code 2. Everything else that fails is an Error:
/// exit code 1.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One `canopy NAME ...`. run() gets the words after NAME and returns the exit code.
struct Command {
  std::string_view name, summary;
  int (*run)(const std::vector<std::string>& words);
};
/// What a first word chooses from: canopy itself (no name), or one of its commands.
struct CommandGroup {
  std::string_view name, summary;
  std::span<const Command> commands;
  std::string_view remark = {};  // the end of its help
};
/// The command whose name is words[0]; a page of their names for --help. Throws UsageError if there
/// is none.
int run_one_of(const CommandGroup& group, const std::vector<std::string>& words);

/// Parses `words` by `options`; adds --help, answers it on stdout with `usage` as its first lines
/// and returns nothing then. Where "model" is an option, a word without a flag is it. Unknown
/// flags, missing values and repeated ones throw UsageError. Flags are never guessed from a prefix.
std::optional<boost::program_options::variables_map> parse(
    const std::vector<std::string>& words, std::string_view usage,
    boost::program_options::options_description options);

/// The value of a flag, `otherwise` if it was not given. Throws UsageError if it is below `least`.
template <class T>
T at_least(const boost::program_options::variables_map& values, const std::string& flag, T least,
           T otherwise) {
  if (!values.count(flag)) return otherwise;
  const T value = values[flag].as<T>();
  if (!(value >= least))
    throw UsageError("--" + flag + ": must be at least " + std::to_string(least));
  return value;
}

/// "1G", "512M", "1.5GiB", "4096": bytes; K, M, G, T are powers of 1024. Throws UsageError naming
/// `flag`.
std::uint64_t parse_size(std::string_view flag, std::string_view text);
std::string lower_case(std::string text);  // of ASCII letters

/// "1,16,64": numbers with commas between, at least one. Throws UsageError naming `flag` if one is
/// not from `least` to `most`.
std::vector<int> parse_numbers(std::string_view flag, const std::string& text, int least, int most);

/// All of a file that a flag names, or of standard input for "-": read_file().
std::string read_text(const std::string& path, std::uint64_t most_bytes = kMostTextBytes,
                      const std::stop_token& stop = {});

}  // namespace canopy::cli
