#pragma once
// Room src/cli: the command line: flags, progress, reports as text and JSON, exit codes.
// In: words and a terminal. Out: calls of the other rooms, and what they return, in print.
// Must not do: anything that a program linked to the library could need.
#include <exception>
#include <string>
#include <vector>

namespace canopy::cli {

/// Runs the program canopy. Returns the exit code.
int run_canopy(int argc, char** argv);

/// Does the same for a program of one command, as those in bench/: what `run` throws becomes a line
/// on stderr that begins with `name`, and an exit code.
int run_program(const std::string& name, const std::vector<std::string>& words,
                int (*run)(const std::vector<std::string>& words));

/// A command's end that is not the one asked for.
struct Failure {
  std::string text;  // for stderr, after the command's name
  int code = 1;      // of the exit
  bool reader_gone = false;
};
/// Puts in words what a command named `name` has thrown.
Failure failure_of(const std::exception_ptr& thrown, const std::string& name);

}  // namespace canopy::cli
