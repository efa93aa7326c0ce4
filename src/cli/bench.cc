// canopy bench: a model's speed, or one of several other measurements, by its name.
#include <iostream>

#include "src/cli/command.h"
#include "src/cli/commands.h"

namespace canopy::cli {

int run_bench(const std::vector<std::string>& words) {
  if (!words.empty() && words[0].starts_with("-")) return run_bench_model(words);
  static constexpr Command kBenches[] = {
      {"decode", "all methods of speculation on the same prompts", run_bench_decode},
      {"link", "sweeps without computing, beside raw reads of the same disk", run_bench_link},
      {"offload", "steps of a model's shape that does not fit, without its weights",
       run_bench_offload},
  };
  return run_one_of("bench", "Measures whole runs.", kBenches, words);
}

}  // namespace canopy::cli
