// The program canopy with one kind of draft more, for tests/cli/toy_draft_test.py.
#include "src/cli/program.h"
#include "tests/speculation/toy_draft.h"

int main(int argc, char** argv) {
  canopy::testing::add_look_back();
  return canopy::cli::run_canopy(argc, argv);
}
