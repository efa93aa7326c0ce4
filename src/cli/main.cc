// canopy: exact inference of language models larger than memory. A file for each command is in
// commands/.
#include "src/cli/program.h"

int main(int argc, char** argv) { return canopy::cli::run_canopy(argc, argv); }
