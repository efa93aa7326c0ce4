// canopy bench: a model's speed, or one of several other measurements, by its name.
#include <algorithm>
#include <filesystem>

#include "src/cli/command.h"
#include "src/cli/commands/commands.h"
#include "src/cli/ranks.h"

namespace canopy::cli {

int run_bench(const std::vector<std::string>& words) {
  static constexpr Command kBenches[] = {
      {"decode", "all methods of speculation on the same prompts", run_bench_decode,
       Sharing::kByRanks},
      {"link", "sweeps without computing, beside raw reads of the same disk", run_bench_link},
      {"offload", "steps of a model's shape that does not fit, without its weights",
       run_bench_offload},
  };
  const auto names_model = [](const std::string& word) {
    const auto is_word = [&](const Command& bench) { return bench.name == word; };
    return std::none_of(std::begin(kBenches), std::end(kBenches), is_word) &&
           std::filesystem::exists(word);
  };
  if (!words.empty() && (words[0].starts_with("-") || words == std::vector<std::string>{"help"} ||
                         names_model(words[0]))) {
    require_alone("bench");
    return run_bench_model(words);
  }
  return run_one_of({"bench", "Measures whole runs.", kBenches}, words);
}

}  // namespace canopy::cli
