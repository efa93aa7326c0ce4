#include "src/machine/process_memory.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/temp_dir.h"

namespace canopy {
namespace {

/// A /proc and a /sys of our own.
class SystemMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal:       16000 kB\nMemFree:  100 kB\nMemAvailable:   9000 kB\n");
  }
  void write(const std::string& path, const std::string& text) const { dir_.write(path, text); }
  SystemMemory read() const { return system_memory(dir_.path()); }

  TempDir dir_;
};

TEST_F(SystemMemoryTest, WithoutCgroupsTheMachineDecides) {
  EXPECT_EQ(read().total, 16000u * 1024);
  EXPECT_EQ(read().free(), 9000u * 1024);
  EXPECT_TRUE(read().cgroups.empty());
}

TEST_F(SystemMemoryTest, ALimitOfVersionTwoAnywhereAboveCounts) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "1000\n");
  write("sys/fs/cgroup/a/memory.max", "5000000\n");
  write("sys/fs/cgroup/a/memory.current", "3000000\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 500000\nactive_file 200000\n");
  ASSERT_EQ(read().cgroups.size(), 1u);
  EXPECT_EQ(read().cgroups[0].path, "/a");
  EXPECT_EQ(read().cgroups[0].lift,
            "echo max > " + (dir_.path() / "sys/fs/cgroup/a/memory.max").string());
  EXPECT_EQ(read().cgroups[0].used, 2'300'000u) << "page cache can be given back";
  EXPECT_EQ(read().free(), 2'700'000u);
}

TEST_F(SystemMemoryTest, VersionOneIsReadWhereItIsMountedAndItsWayToSayUnlimitedIsKnown) {
  write("proc/self/cgroup", "4:cpu,memory:/docker/x\n0::/\n");
  write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "4000000\n");
  write("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "1000000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000\n");
  ASSERT_EQ(read().cgroups.size(), 1u);
  EXPECT_EQ(read().free(), 3'000'000u);
}

TEST_F(SystemMemoryTest, InAContainerTheMountIsTheGroup) {
  write("proc/self/cgroup", "0::/not/mounted/here\n");
  write("sys/fs/cgroup/memory.max", "2000000\n");
  write("sys/fs/cgroup/memory.current", "2500000\n");
  EXPECT_EQ(read().free(), 0u) << "above its limit";
}

TEST_F(SystemMemoryTest, UnderStrictAccountingThePromisesOfTheKernelCount) {
  write("proc/meminfo",
        "MemTotal: 16000 kB\nMemAvailable: 9000 kB\nCommitLimit: 8000 kB\nCommitted_AS: 3000 kB\n");
  for (const char* heuristic : {"0\n", "1\n"}) {
    write("proc/sys/vm/overcommit_memory", heuristic);
    EXPECT_EQ(read().free(), 9000u * 1024);
  }
  write("proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(read().free(), 5000u * 1024);
}

TEST_F(SystemMemoryTest, WithoutProcItSaysSo) {
  std::filesystem::remove(dir_.path() / "proc/meminfo");
  EXPECT_THROW(read(), Error);
}

TEST(ProcessMemory, HoldsSomethingAndNeverMoreThanItsPeak) {
  EXPECT_GT(resident_memory(), 1u << 20);
  EXPECT_LE(resident_memory(), peak_resident_memory() + (1 << 20));
}

}  // namespace
}  // namespace canopy
