// The device that a user's word stands for.
#include "src/engine/device_name.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

TEST(DeviceName, AutoIsTheFirstGpuThatCanBeUsed) {
  const auto chosen = device_named("auto", Gpus{{{"L40", 1, "", 2}, {"L40", 1, "", 3}}, ""});
  EXPECT_EQ(chosen->kind, "cuda");
  EXPECT_EQ(chosen->ordinal, 2);
  EXPECT_EQ(chosen->note, "");
}

TEST(DeviceName, AutoIsTheCpuAndSaysWhyWhereThereIsAGpuThatCannotBeUsed) {
  const auto none = device_named("auto", Gpus{{}, "no NVIDIA driver is installed"});
  EXPECT_EQ(none->kind, "cpu");
  EXPECT_EQ(none->note, "");
  const auto refused = device_named("auto", Gpus{{}, "the driver is too old", true});
  EXPECT_EQ(refused->kind, "cpu");
  EXPECT_EQ(refused->note, "all is computed on the CPU: the driver is too old");
}

TEST(DeviceName, ADeviceThatIsNamedIsTakenAtItsWord) {
  const Gpus refused{{}, "too old", true};
  EXPECT_EQ(device_named("cpu", refused)->note, "");
  EXPECT_EQ(device_named("cuda", refused)->kind, "cuda");
  EXPECT_EQ(device_named("cuda:3", refused)->ordinal, 3);
  for (const char* wrong : {"gpu", "cuda:", "cuda:-1", "cuda:1x"})
    EXPECT_FALSE(device_named(wrong, refused).has_value()) << wrong;
}

class NotesOfADevice : public TinyEngine {};

TEST_F(NotesOfADevice, ReachTheUser) {
  EngineOptions o = options(SpeculationMethod::kNone);
  o.device.note = "all is computed on the CPU: the driver is too old";
  const Notes notes = Engine(models(false), o).notes();
  EXPECT_NE(std::find(notes.begin(), notes.end(), o.device.note), notes.end());
}

}  // namespace
}  // namespace canopy
