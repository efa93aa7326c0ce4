// canopy bench: measurements of whole runs.
#include <iostream>

#include "src/cli/command.h"
#include "src/cli/commands.h"

namespace canopy::cli {

int run_bench(const std::vector<std::string>& words) {
  static constexpr Command kBenches[] = {
      {"decode", "all methods of speculation on the same prompts", run_bench_decode},
      {"offload", "steps of a model's shape, without its weights, on a GPU", run_bench_offload},
  };
  return run_one_of("bench", "Measures whole runs.", kBenches, words);
}

}  // namespace canopy::cli
