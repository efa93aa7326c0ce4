// Acceptance files, measured and learned ones.
#include "planner/acceptance_file.h"
#include "planner/learned_acceptance.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  reads([&] {
    const MeasuredAcceptance measured = acceptance_from_json(input);
    const std::string written = to_json(measured);
    expect(to_json(acceptance_from_json(written)) == written, "a file that is read as written");
    reads([&] { expect(best_tree(8, 4, measured.acceptance).size() == 8, "a tree as asked for"); });
  });
  reads([&] {
    const LearnedAcceptance learned = LearnedAcceptance::from_json(input);
    const std::string written = learned.to_json();
    expect(LearnedAcceptance::from_json(written).to_json() == written,
           "a file that is read as written");
    double sum = 0;
    for (const double share : learned.estimate({{.5, .2}}).accept) sum += share;
    expect(sum >= 0 && sum <= 1 + 1e-9, "shares of one");
  });
}

}  // namespace canopy::fuzz
