#include "planner/hardware_profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "src/base/error.h"
#include "tests/error_of.h"
#include "tests/planner/made_up.h"

namespace canopy {
namespace {

using testing::made_up_profile;

TEST(HardwareProfile, ComesBackFromItsTextAsItWas) {
  const std::string text = to_json(made_up_profile());
  EXPECT_EQ(to_json(hardware_profile_from_json(text)), text);
  HardwareProfile there = made_up_profile();
  there.modelled = true;
  there.memory_bytes = 160ull << 30;
  there.gpu_memory_bytes = 48ull << 30;
  there.link_slowing = 0.25;
  const HardwareProfile back = hardware_profile_from_json(to_json(there));
  EXPECT_TRUE(back.modelled);
  EXPECT_EQ(back.memory_bytes, there.memory_bytes);
  EXPECT_EQ(back.gpu_memory_bytes, there.gpu_memory_bytes);
  EXPECT_EQ(back.link_slowing, there.link_slowing);
  EXPECT_FALSE(hardware_profile_from_json(text).modelled);
  HardwareProfile kinds = made_up_profile();
  kinds.layers.push_back({testing::line(1e-3, 1e-5),
                          {},
                          {Seconds(0), Seconds(2e-8)},
                          ContextCost{Seconds(4e-9), Seconds(1e-9)}});
  kinds.layers.push_back({{}, testing::line(2e-3, 1e-5), {}});
  const HardwareProfile read = hardware_profile_from_json(to_json(kinds));
  ASSERT_EQ(read.layers.size(), 3U);
  EXPECT_EQ(to_json(read), to_json(kinds));
  EXPECT_TRUE(read.layers[1].mlp.knots().empty());
  EXPECT_EQ(read.layers[0].context.once, Seconds(3e-8));
  EXPECT_EQ(read.layers[1].context.once, Seconds(0));
  EXPECT_FALSE(read.layers[0].context_at_rest.has_value());
  EXPECT_EQ(read.layers[1].context_at_rest.value().once, Seconds(4e-9));
  EXPECT_EQ(read.layers[1].context.per_row, Seconds(2e-8));
  EXPECT_TRUE(read.layers[2].attention.knots().empty());
  HardwareProfile alone = made_up_profile();
  alone.drafting.reset();
  EXPECT_FALSE(hardware_profile_from_json(to_json(alone)).drafting.has_value());
}

TEST(HardwareProfile, WrongMembersThatMayBeMissingAreNamedToo) {
  const auto whole = nlohmann::json::parse(to_json(made_up_profile()));
  for (const auto& [member, value] : {std::pair<std::string, nlohmann::json>{"modelled", 1},
                                      {"at_rest", 0.5},
                                      {"context_once", "1"},
                                      {"context_at_rest", -1},
                                      {"memory_bytes", "160G"},
                                      {"link_slowing", 1},
                                      {"gpu_memory_bytes", 1e30}}) {
    auto broken = whole;
    broken[member] = value;
    EXPECT_NE(error_of([&] { hardware_profile_from_json(broken.dump()); }).find(member),
              std::string::npos);
  }
}

TEST(HardwareProfile, EveryMissingOrWrongMemberIsNamed) {
  const auto whole = nlohmann::json::parse(to_json(made_up_profile()));
  for (const auto& [member, value] : whole.items()) {
    if (member == "drafting" || member == "context_once") continue;  // may be missing
    auto broken = whole;
    const auto read = [&] { hardware_profile_from_json(broken.dump()); };
    if (member != "code") {  // may be missing, too
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
