#include "src/cli/output/aside.h"

#include <iostream>

namespace canopy::cli {

namespace {
bool quiet = false;  // set once, by the flags, before there is another thread
}  // namespace

std::ostream& aside() {
  static std::ostream nowhere(nullptr);
  return quiet ? nowhere : std::cerr;
}

void be_quiet() { quiet = true; }
bool is_quiet() { return quiet; }

}  // namespace canopy::cli
