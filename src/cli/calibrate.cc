// canopy calibrate: measurements that plans are made from.
#include <iostream>

#include "src/cli/command.h"
#include "src/cli/commands.h"

namespace canopy::cli {

namespace {

constexpr Command kMeasurements[] = {
    {"acceptance", "how many of a draft's guesses the model accepts", run_calibrate_acceptance},
    {"hardware", "what a step costs on this machine", run_calibrate_hardware},
};

void print_usage(std::ostream& out) {
  out << "usage: canopy calibrate WHAT -m MODEL [-md DRAFT] [FLAG ...]\n\n"
         "Measures what plans are made from, and keeps it for later runs.\n\n";
  for (const Command& what : kMeasurements)
    out << "  " << what.name << std::string(12 - what.name.size(), ' ') << what.summary << "\n";
  out << "\ncanopy calibrate WHAT --help tells the flags of each.\n";
}

}  // namespace

int run_calibrate(const std::vector<std::string>& words) {
  if (words.empty()) {
    print_usage(std::cerr);
    return 2;
  }
  if (words[0] == "--help" || words[0] == "-h") {
    print_usage(std::cout);
    return 0;
  }
  for (const Command& what : kMeasurements)
    if (what.name == words[0]) return what.run({words.begin() + 1, words.end()});
  throw UsageError("'" + words[0] + "' is nothing to calibrate; see canopy calibrate --help");
}

}  // namespace canopy::cli
