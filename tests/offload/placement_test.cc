#include "src/machine/placement.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <thread>

#include "kernels/device.h"
#include "offload/residency.h"
#include "offload/streamer.h"
#include "src/base/error.h"
#include "src/machine/cpus.h"
#include "src/machine/host_slab.h"
#include "tests/checkpoint/tiny_checkpoint.h"
#include "tests/temp_dir.h"
#include "tests/thread_cpus.h"

namespace canopy {
namespace {

namespace fs = std::filesystem;
using Cpus = std::vector<int>;

// CPUs 0-7 on node 0, 8-15 on node 1; cores (0, 1), (2, 3), ...
const char* const kTwoNodes = "node:2 core:4 pu:2";

TEST(Topology, CountsCpusCoresAndNodes) {
  const Topology two(kTwoNodes);
  EXPECT_EQ(two.nodes(), (Cpus{0, 1}));
  EXPECT_EQ(two.cpus().size(), 16);
  EXPECT_EQ(two.cpus_near(1), (Cpus{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(two.cpus_near(7), Cpus{});
  EXPECT_EQ(two.one_per_core(two.cpus()), (Cpus{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(two.one_per_core(Cpus{9, 8, 3, 5, 4, 99}), (Cpus{9, 3, 5, 99}));
  EXPECT_EQ(Topology("pu:3").nodes(), Cpus{0});
}

TEST(Topology, OfThisMachineHasTheCpusThatThisThreadMayUse) {
  const Topology here;
  EXPECT_EQ(here.cpus(), allowed_cpus());
  EXPECT_GE(here.one_per_core(here.cpus()).size(), 1);
  std::thread([&] {
    const Cpus one{allowed_cpus().back()};
    bind_thread(pthread_self(), one);
    EXPECT_EQ(Topology().cpus(), one);
  }).join();
}

TEST(Topology, RefusesWordsThatAreNoMachine) { EXPECT_THROW(Topology("no:such"), Error); }

/// The line of /proc/self/numa_maps about a slab: "7f.. prefer:0 anon=.. N0=..".
std::string numa_map_of(const HostSlab& slab) {
  std::ostringstream start;
  start << std::hex << reinterpret_cast<std::uintptr_t>(slab.data());
  std::ifstream maps("/proc/self/numa_maps");
  for (std::string line; std::getline(maps, line);)
    if (line.starts_with(start.str())) return line;
  return "";
}

TEST(HostSlab, LiesOnTheNodeThatItIsGivenButMayOverflow) {
  const Topology here;
  const int node = here.nodes().back();
  const HostSlab probe(1);
  if (const auto refusal = here.prefer(node, probe.bytes()))
    GTEST_SKIP() << "memory cannot be placed here: " << *refusal;
  if (!fs::exists("/proc/self/numa_maps")) GTEST_SKIP() << "this kernel has no numa_maps";
  const HostSlab slab(4u << 20, {&here, node});
  const std::string line = numa_map_of(slab);
  EXPECT_NE(line.find("prefer"), std::string::npos) << line;
  EXPECT_NE(line.find(" N" + std::to_string(node) + "="), std::string::npos) << line;
  EXPECT_EQ(numa_map_of(HostSlab(4u << 20)).find("prefer"), std::string::npos);
}

TEST(HostSlab, OnANodeThatIsNotThereIsRefused) {
  const Topology here;
  EXPECT_TRUE(here.prefer(1'000, HostSlab(1).bytes()));
  EXPECT_THROW(HostSlab(4096, {&here, 1'000}), Error);
}

/// Slabs, whole or in part, that lie where somebody asked for.
std::size_t preferring_maps() {
  std::ifstream maps("/proc/self/numa_maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("prefer") != std::string::npos;
  return count;
}

TEST(Streamer, PutsItsRingAndItsReaderWhereItIsTold) {
  const Topology here;
  const MemoryNode node{&here, here.nodes().front()};
  const HostSlab probe(1);
  const bool places = !here.prefer(node.node, probe.bytes());
  const std::size_t before = preferring_maps();
  const TempDir dir;
  const auto tiny = test::make_tiny(dir.path(), {});
  const auto device = make_device({.threads = 1});
  const Residency none = none_resident(tiny.sweep);
  StreamerOptions options{.ring_bytes = least_ring(tiny.sweep, none),
                          .reader_cpus = {allowed_cpus().back()}};
  if (places) options.ring_node = node;
  Streamer streamer(*device, tiny.sweep, none, options);
  const auto compute = device->make_stream("compute");
  streamer.acquire(0, *compute);  // now the reader is bound: it has read
  ASSERT_EQ(test::thread_cpus("reader").size(), 1);
  EXPECT_EQ(test::thread_cpus("reader").begin()->second, std::to_string(allowed_cpus().back()));
  if (!places || !fs::exists("/proc/self/numa_maps"))
    GTEST_SKIP() << "the ring's node cannot be seen here, or not be chosen";
  EXPECT_EQ(preferring_maps(), before + 1);
}

/// Lets this thread's calls of mbind fail with EPERM from now on, as under Docker's filter.
bool refuse_mbind() {
  const auto jump = [](unsigned k, unsigned char yes, unsigned char no) {
    return sock_filter{BPF_JMP | BPF_JEQ | BPF_K, yes, no, k};
  };
  sock_filter filter[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      jump(SYS_mbind, 0, 1),
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Topology, SaysHowToLiftARefusalOfMbind) {
  const Topology here;
  const int node = here.nodes().front();
  bool filtered = false;
  std::optional<std::string> refusal;
  std::thread([&] {
    filtered = refuse_mbind();
    refusal = here.prefer(node, HostSlab(1).bytes());
  }).join();
  if (!filtered) GTEST_SKIP() << "no seccomp filters here";
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->find("SYS_NICE"), std::string::npos) << *refusal;
}

TEST(Placement, ComputesOnePerCoreAndBindsNothingOnOneNode) {
  const Placement p = choose_placement(Topology("node:1 core:4 pu:2"), 0, {}, 0);
  EXPECT_EQ(p.threads, 4);
  EXPECT_EQ(p.cpus, Cpus{});
  EXPECT_EQ(p.reader_cpus, Cpus{});
  EXPECT_EQ(p.numa_node, std::nullopt);
  EXPECT_FALSE(p.refused);
  EXPECT_NE(p.note.find("one NUMA node"), std::string::npos) << p.note;
  EXPECT_EQ(choose_placement(Topology("node:1 core:4 pu:2"), 7, {}, 0).threads, 7);
}

TEST(Placement, TakesNoMoreThreadsThanACgroupGrantsTime) {
  const Topology four("node:1 core:4 pu:2");
  EXPECT_EQ(choose_placement(four, 0, {}, 0, 2.5).threads, 2);
  EXPECT_NE(choose_placement(four, 0, {}, 0, 2.5).note.find("cgroup"), std::string::npos);
  EXPECT_EQ(choose_placement(four, 0, {}, 0, 0.5).threads, 1);
  EXPECT_EQ(choose_placement(four, 0, {}, 0, 64).threads, 4);
  EXPECT_EQ(choose_placement(four, 0, {0, 2, 4}, 0, 2).cpus, (Cpus{0, 2}));
  EXPECT_EQ(choose_placement(four, 3, {}, 0, 1).threads, 3) << "asked for";
}

TEST(Placement, ComputesOnAllNodesWhereTheDisksIsUnknown) {
  const Placement p = choose_placement(Topology(kTwoNodes), 0, {}, std::nullopt);
  EXPECT_EQ(p.threads, 8);
  EXPECT_EQ(p.reader_cpus, Cpus{});
  EXPECT_EQ(p.numa_node, std::nullopt);
  EXPECT_NE(p.note.find("unknown"), std::string::npos) << p.note;
  const Placement other = choose_placement(Topology(kTwoNodes), 0, {}, 5);
  EXPECT_NE(other.note.find("may not use"), std::string::npos) << other.note;
}

TEST(Placement, SaysSoWhereTheKernelWillNotPlaceTheRing) {
  // Nothing can be placed on a made-up machine.
  const Placement p = choose_placement(Topology(kTwoNodes), 0, {}, 1);
  EXPECT_TRUE(p.refused);
  EXPECT_EQ(p.numa_node, std::nullopt);
  EXPECT_NE(p.note.find("cannot be placed"), std::string::npos) << p.note;
}

TEST(Placement, PutsRingAndReaderOnTheDisksNode) {
  // A made-up machine that hwloc takes for this one: the kernel has at least its node 0.
  setenv("HWLOC_SYNTHETIC", "node:2 core:1 pu:1", 1);
  setenv("HWLOC_THISSYSTEM", "1", 1);
  const Topology two;
  unsetenv("HWLOC_SYNTHETIC");
  unsetenv("HWLOC_THISSYSTEM");
  if (const auto refusal = two.prefer(0, HostSlab(1).bytes()))
    GTEST_SKIP() << "memory cannot be placed here: " << *refusal;
  if (two.cpus() != Cpus{0, 1}) GTEST_SKIP() << "this process may not use CPUs 0 and 1";
  const Placement p = choose_placement(two, 0, {}, 0);
  EXPECT_EQ(p.numa_node, 0);
  EXPECT_FALSE(p.refused);
  EXPECT_EQ(p.reader_cpus, Cpus{0});
  EXPECT_EQ(p.threads, 2);
  EXPECT_EQ(p.cpus, Cpus{});
  EXPECT_EQ(choose_placement(two, 0, {1, 0}, 0).reader_cpus, Cpus{0});
  const Placement far = choose_placement(two, 0, {1}, 0);
  EXPECT_EQ(far.reader_cpus, Cpus{1});
  EXPECT_EQ(far.numa_node, 0);
  EXPECT_NE(far.note.find("none of its CPUs"), std::string::npos) << far.note;
}

TEST(Placement, TakesOneCpuOfEachCoreFirst) {
  const Topology two(kTwoNodes);
  EXPECT_EQ(choose_placement(two, 0, {0, 1, 2, 3}, {}).cpus, (Cpus{0, 2}));
  EXPECT_EQ(choose_placement(two, 3, {0, 1, 2, 3}, {}).cpus, (Cpus{0, 2, 1}));
  EXPECT_EQ(choose_placement(two, 1, {9, 2}, {}).cpus, Cpus{9});
  EXPECT_EQ(choose_placement(two, 0, {9, 2}, {}).reader_cpus, (Cpus{9, 2}));
  EXPECT_THROW(choose_placement(two, 3, {0, 1}, {}), Error);
}

/// A sysfs in which the disk that holds this file is whatever a test says.
class FakeSysfs : public ::testing::Test {
 protected:
  FakeSysfs() {
    file_ = dir_.path() / "weights";
    std::ofstream(file_) << "x";
    struct stat status {};
    stat(file_.c_str(), &status);
    number_ = std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev));
    fs::create_directories(sys() / "dev/block");
  }
  fs::path sys() const { return dir_.path() / "sys"; }
  /// A PCI device with a node, and a disk of it.
  fs::path add_disk(const std::string& pci, const std::string& name, int node) {
    const fs::path device = sys() / "devices" / pci, disk = device / "block" / name;
    fs::create_directories(disk);
    std::ofstream(device / "numa_node") << node << "\n";
    return disk;
  }
  fs::path add_array(const std::string& name, const std::vector<fs::path>& disks) {
    const fs::path array = sys() / "devices/virtual/block" / name;
    fs::create_directories(array / "slaves");
    for (const fs::path& disk : disks)
      fs::create_directory_symlink(disk, array / "slaves" / disk.filename());
    return array;
  }
  std::optional<int> node_of(const fs::path& device) {
    fs::remove(sys() / "dev/block" / number_);
    fs::create_directories(device);
    fs::create_directory_symlink(device, sys() / "dev/block" / number_);
    return node_of_disk(file_, sys());
  }

  TempDir dir_;
  fs::path file_;
  std::string number_;
};

TEST_F(FakeSysfs, ADiskAndItsPartitionsAreOnTheControllersNode) {
  const fs::path disk = add_disk("pci0", "nvme0n1", 1);
  EXPECT_EQ(node_of(disk), 1);
  EXPECT_EQ(node_of(disk / "nvme0n1p2"), 1);
}

TEST_F(FakeSysfs, AMappingOfAnArrayIsWhereAllItsDisksAre) {
  const fs::path a = add_disk("pci0", "nvme0n1", 1), b = add_disk("pci1", "nvme1n1", 1),
                 c = add_disk("pci2", "nvme2n1", 0);
  EXPECT_EQ(node_of(add_array("dm-0", {add_array("md0", {a, b})})), 1);
  EXPECT_EQ(node_of(add_array("md1", {a, c})), std::nullopt);
}

TEST_F(FakeSysfs, AMultipathDiskIsWhereAllItsControllersAre) {
  const fs::path disk = add_disk("pci0", "nvme0c0n1", 1);
  const fs::path subsystem = sys() / "devices/virtual/nvme-subsystem/nvme-subsys0";
  fs::create_directories(subsystem);
  fs::create_directory_symlink(sys() / "devices/pci0", subsystem / "nvme0");
  EXPECT_EQ(node_of(subsystem / "nvme0n1"), 1);
  add_disk("pci1", "nvme1c0n1", 0);
  fs::create_directory_symlink(sys() / "devices/pci1", subsystem / "nvme1");
  EXPECT_EQ(node_of(subsystem / "nvme0n1"), std::nullopt);
}

TEST_F(FakeSysfs, IsUnknownWithoutANodeOrADevice) {
  EXPECT_EQ(node_of_disk(file_, sys()), std::nullopt);  // an overlay, btrfs, a network
  EXPECT_EQ(node_of(add_disk("pci0", "vda", -1)), std::nullopt);
  EXPECT_EQ(node_of(sys() / "devices/virtual/block/zram0"), std::nullopt);
  EXPECT_THROW(node_of_disk(dir_.path() / "nothing", sys()), Error);
}

TEST_F(FakeSysfs, TellsTheNodeOfAPciDevice) {
  const fs::path gpu = sys() / "bus" / "pci" / "devices" / "0000:3b:00.0";
  EXPECT_EQ(node_of_pci("0000:3b:00.0", sys()), std::nullopt);
  fs::create_directories(gpu);
  std::ofstream(gpu / "numa_node") << 1;
  EXPECT_EQ(node_of_pci("0000:3b:00.0", sys()), 1);
  std::ofstream(gpu / "numa_node") << -1;
  EXPECT_EQ(node_of_pci("0000:3b:00.0", sys()), std::nullopt);
}

TEST(NodeOfDisk, AsksTheRealSysfsWithoutFailing) {
  const auto node = node_of_disk("/proc/self/exe");
  EXPECT_GE(node.value_or(0), 0);
  EXPECT_EQ(node_of_disk("/proc/self/status"), std::nullopt);
}

}  // namespace
}  // namespace canopy
