#include "src/machine/cpus.h"

#include <gtest/gtest.h>

#include "tests/temp_dir.h"

namespace canopy {
namespace {

TEST(CpuQuota, IsTheLeastOfTheGroupsOfVersionTwo) {
  const TempDir dir;
  dir.write("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(cpu_quota(dir.path()), std::nullopt);
  dir.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), std::nullopt);
  dir.write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), 2.5);
  dir.write("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota(dir.path()), 0.5);
}

TEST(CpuQuota, OfVersionOneIsFoundBesideOtherControllers) {
  const TempDir dir;
  dir.write("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n");
  dir.write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  dir.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpu_quota(dir.path()), std::nullopt);
  dir.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cpu_quota(dir.path()), 3.0);
}

}  // namespace
}  // namespace canopy
