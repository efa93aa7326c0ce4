#include "src/machine/energy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "src/base/error.h"
#include "tests/temp_dir.h"

namespace canopy {
namespace {

constexpr const char* kNoNvml = "no such library";

/// A machine of files.
class EnergyMeterTest : public testing::Test {
 protected:
  void domain(const std::string& place, const std::string& name, std::uint64_t microjoules,
              std::uint64_t range = 262'143'328'850) {
    const auto folder = dir_ / "sys/class/powercap" / place;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "name") << name << "\n";
    std::ofstream(folder / "max_energy_range_uj") << range << "\n";
    std::ofstream(folder / "energy_uj") << microjoules << "\n";
  }
  /// Writes a server of two sockets, with all that real ones list besides their packages.
  void two_sockets(std::uint64_t base) {
    domain("intel-rapl:0", "package-0", base + 1'000'000);
    domain("intel-rapl:0:0", "core", base + 900'000);
    domain("intel-rapl:0:1", "dram", base + 300'000);
    domain("intel-rapl:1", "package-1", base + 2'000'000);
    domain("intel-rapl:1:0", "dram", base + 400'000);
    domain("intel-rapl:2", "psys", base + 9'000'000);
    domain("intel-rapl-mmio:0", "package-0", base + 1'000'000);
  }

  TempDir dir_;
};

TEST_F(EnergyMeterTest, CountsPackagesAndTheirMemoryOnceAndNothingInsideOrAroundThem) {
  two_sockets(0);
  EnergyMeter meter(dir_.path(), kNoNvml);
  EXPECT_EQ(meter.counters(), (std::vector<std::string>{"RAPL package-0", "RAPL dram-0",
                                                        "RAPL package-1", "RAPL dram-1"}));
  EXPECT_EQ(meter.read(), Joules(4, 0.0));
  two_sockets(5'000'000);
  EXPECT_EQ(meter.read(), Joules(4, 5.0));
  EXPECT_EQ(meter.missing().size(), 1u);  // NVML
}

TEST_F(EnergyMeterTest, TakesThePlatformWhereNoPackageCounts) {
  domain("intel-rapl:0", "psys", 7);
  EXPECT_EQ(EnergyMeter(dir_.path(), kNoNvml).counters(), (std::vector<std::string>{"RAPL psys"}));
}

TEST_F(EnergyMeterTest, ACounterThatBeginsAgainWentToItsRangeBefore) {
  domain("intel-rapl:0", "package-0", 90, 100);
  EnergyMeter meter(dir_.path(), kNoNvml);
  domain("intel-rapl:0", "package-0", 20, 100);
  EXPECT_DOUBLE_EQ(meter.read().at(0), 30e-6);
  domain("intel-rapl:0", "package-0", 19, 100);
  EXPECT_DOUBLE_EQ(meter.read().at(0), 129e-6);
}

TEST_F(EnergyMeterTest, SaysWhyThereIsNoCounter) {
  EnergyMeter meter(dir_.path(), kNoNvml);
  EXPECT_TRUE(meter.counters().empty());
  EXPECT_TRUE(meter.read().empty());
  ASSERT_EQ(meter.missing().size(), 2u);
  EXPECT_NE(meter.missing()[0].find("sys/class/powercap has no intel-rapl domain"),
            std::string::npos);
  EXPECT_NE(meter.missing()[1].find("no such library"), std::string::npos) << meter.missing()[1];
}

TEST_F(EnergyMeterTest, SaysThatTheKernelKeepsACounterForRoot) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read anything";
  domain("intel-rapl:0", "package-0", 1);
  chmod((dir_ / "sys/class/powercap/intel-rapl:0/energy_uj").c_str(), 0);
  const EnergyMeter meter(dir_.path(), kNoNvml);
  EXPECT_TRUE(meter.counters().empty());
  EXPECT_NE(meter.missing()[0].find("Permission denied; root may read it"), std::string::npos);
}

TEST_F(EnergyMeterTest, ACounterLostMidwayIsUnknownFromThenOnAndTheOthersGoOn) {
  two_sockets(0);
  EnergyMeter meter(dir_.path(), kNoNvml);
  std::filesystem::remove(dir_ / "sys/class/powercap/intel-rapl:0/energy_uj");
  for (int reading = 0; reading < 2; ++reading) {
    const Joules joules = meter.read();
    EXPECT_TRUE(std::isnan(joules[0]));
    EXPECT_EQ(joules[1], 0);
    ASSERT_EQ(meter.missing().size(), 2u);
    EXPECT_NE(meter.missing()[1].find("energy_uj: No such file"), std::string::npos);
  }
}

TEST_F(EnergyMeterTest, CountsEachGpuThatCanAndNamesThoseThatCannot) {
  EnergyMeter meter(dir_.path(), CANOPY_FAKE_NVML);
  ASSERT_EQ(meter.counters(), std::vector<std::string>{"GPU 0, Fake H100"});
  EXPECT_DOUBLE_EQ(meter.read()[0], 2);
  EXPECT_DOUBLE_EQ(meter.read()[0], 4);
  EXPECT_EQ(meter.missing().back(), "GPU 1, Fake K80: Not Supported");
}

TEST(Joules, AreSubtractedAndSummedByCounter) {
  Joules sum;
  sum += Joules{3, 4} - Joules{1, 1};
  sum += Joules{1, 1};
  EXPECT_EQ(sum, (Joules{3, 4}));
  EXPECT_THROW((sum += Joules{1}), Error);
}

}  // namespace
}  // namespace canopy
