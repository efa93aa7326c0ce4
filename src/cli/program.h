#pragma once
#include <string>
#include <vector>

namespace canopy::cli {

/// Runs the program canopy. Returns the exit code.
int run_canopy(int argc, char** argv);

/// Does the same for a program of one command, as those in bench/: what `run` throws becomes a line
/// on stderr that begins with `name`, and an exit code.
int run_program(const std::string& name, const std::vector<std::string>& words,
                int (*run)(const std::vector<std::string>& words));

}  // namespace canopy::cli
