#pragma once

namespace canopy::cli {

/// What the program canopy does with its words. The exit code.
int run_program(int argc, char** argv);

}  // namespace canopy::cli
