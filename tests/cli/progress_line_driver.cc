// Plays a script on the program's own progress line, for terminal_test.py: a JSON list of ["show",
// TEXT], ["text"], ["write", TEXT], ["columns", N] (waits for the terminal to have that many) and
// ["end"]. Prints "@" at its end, and waits to be killed.
#include <sys/ioctl.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/cli/output/progress_line.h"

namespace {

int columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

int main(int, char** argv) {
  canopy::cli::ProgressLine line(/*lines=*/false);
  std::ifstream file(argv[1]);
  for (const auto& step : nlohmann::json::parse(file)) {
    const std::string what = step[0];
    if (what == "show") line.show(step[1]);
    if (what == "text") line.make_way_for_text();
    if (what == "write") line.write(step[1]);
    if (what == "end") line.end();
    while (what == "columns" && columns() != step[1].get<int>()) usleep(1000);
  }
  std::cout << "@\n" << std::flush;
  pause();
}
