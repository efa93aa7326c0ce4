#include "src/cli/version.h"

#include <ostream>
#include <string_view>

namespace canopy::cli {

namespace {
#include "build_description.inc"
}  // namespace

std::string version_line() {
  std::string line = "canopy " CANOPY_VERSION;
  if (!kCommit.empty()) line.append(" (commit ").append(kCommit).append(")");
  return line;
}

void print_version(std::ostream& out) {
  out << version_line() << "\nbuilt with: " << kCompiler << "\ndevices: " << kDevices << "\n";
}

}  // namespace canopy::cli
