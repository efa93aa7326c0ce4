#include "src/cli/version.h"

#include <ostream>
#include <string_view>

namespace canopy::cli {

namespace {
#include "build_description.inc"
}  // namespace

void print_version(std::ostream& out) {
  out << "canopy " CANOPY_VERSION;
  if (!kCommit.empty()) out << " (commit " << kCommit << ")";
  out << "\nbuilt with: " << kCompiler << "\ndevices: " << kDevices << "\n";
}

}  // namespace canopy::cli
