// A hardware profile, and what is planned by it.
#include "planner/hardware_profile.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  reads([&] {
    const std::string written = to_json(hardware_profile_from_json(input));
    expect(to_json(hardware_profile_from_json(written)) == written,
           "a profile that is read as written");
  });
}

}  // namespace canopy::fuzz
