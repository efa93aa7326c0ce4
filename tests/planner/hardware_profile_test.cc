#include "planner/hardware_profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "src/base/error.h"
#include "tests/error_of.h"
#include "tests/planner/made_up.h"

namespace canopy {
namespace {

using testing::made_up_profile;

TEST(HardwareProfile, ComesBackFromItsTextAsItWas) {
  const std::string text = to_json(made_up_profile());
  EXPECT_EQ(to_json(hardware_profile_from_json(text)), text);
  HardwareProfile alone = made_up_profile();
  alone.drafting.reset();
  EXPECT_FALSE(hardware_profile_from_json(to_json(alone)).drafting.has_value());
}

TEST(HardwareProfile, EveryMissingOrWrongMemberIsNamed) {
  const auto whole = nlohmann::json::parse(to_json(made_up_profile()));
  for (const auto& [member, value] : whole.items()) {
    if (member == "drafting") continue;  // may be missing
    auto broken = whole;
    const auto read = [&] { hardware_profile_from_json(broken.dump()); };
    if (member != "code") {  // likewise
      broken.erase(member);
      EXPECT_NE(error_of(read).find("\"" + member + "\""), std::string::npos) << member;
    }
    broken[member] = nlohmann::json{{"a", 1}};
    EXPECT_NE(error_of(read).find("\"" + member + "\""), std::string::npos) << member;
  }
  for (const char* text : {"", "[]", "7", "{\"canopy_hardware\": 99}"})
    EXPECT_THROW(hardware_profile_from_json(text), Error) << text;
}

}  // namespace
}  // namespace canopy
