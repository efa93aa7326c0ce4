// canopy calibrate: measurements that plans are made from.
#include "src/cli/command.h"
#include "src/cli/commands/commands.h"

namespace canopy::cli {

int run_calibrate(const std::vector<std::string>& words) {
  static constexpr Command kMeasurements[] = {
      {"acceptance", "how many of a draft's guesses the model accepts", run_calibrate_acceptance},
      {"hardware", "what a step costs on this machine", run_calibrate_hardware},
  };
  return run_one_of({"calibrate", "Measures what plans are made from, and keeps it for later runs.",
                     kMeasurements},
                    words);
}

}  // namespace canopy::cli
