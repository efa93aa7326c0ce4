#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "kernels/device.h"
#include "src/base/error.h"
#include "src/machine/cpus.h"
#include "tests/thread_cpus.h"

namespace canopy {
namespace {

/// The threads that are there before a device is made.
std::map<int, std::string> threads_now() {
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first
  return test::thread_cpus();
}

/// Returns the CPUs of the threads that `before` does not have, sorted.
std::vector<std::string> cpus_of_new_threads(const std::map<int, std::string>& before) {
  std::vector<std::string> cpus;
  for (const auto& [id, list] : test::thread_cpus())
    if (!before.count(id)) cpus.push_back(list);
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

TEST(Affinity, AnUnboundDeviceRunsWhereItsMakerMay) {
  const auto before = threads_now();
  const auto device = make_device({.threads = 3});
  const auto stream = device->make_stream("compute");
  const std::string all = before.begin()->second;
  EXPECT_EQ(cpus_of_new_threads(before), (std::vector{all, all, all}));
}

TEST(Affinity, OneCpuTakesTheStreamAndEveryWorker) {
  const int cpu = allowed_cpus().back();
  const auto before = threads_now();
  const auto device = make_device({.threads = 3, .cpus = {cpu}});
  const auto stream = device->make_stream("compute");
  const std::string only = std::to_string(cpu);
  EXPECT_EQ(cpus_of_new_threads(before), (std::vector{only, only, only}));
}

TEST(Affinity, TheStreamIsWorkerZeroAndEachWorkerHasItsOwnCpu) {
  const std::vector<int> allowed = allowed_cpus();
  if (allowed.size() < 2) GTEST_SKIP() << "one CPU";
  const int first = allowed[1], second = allowed[0];
  const auto before = threads_now();
  const auto device = make_device({.cpus = {first, second}});
  EXPECT_EQ(cpus_of_new_threads(before), std::vector{std::to_string(second)});
  const auto with_worker = test::thread_cpus();
  const auto stream = device->make_stream("compute");
  EXPECT_EQ(cpus_of_new_threads(with_worker), std::vector{std::to_string(first)});
}

TEST(Affinity, ACpuThatIsNotThereIsRefusedByItsNumber) {
  for (const int cpu : {-1, 1'000'000}) {
    try {
      make_device({.threads = 2, .cpus = {0, cpu}});
      FAIL() << "bound to CPU " << cpu;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("CPU " + std::to_string(cpu)), std::string::npos)
          << e.what();
    }
  }
}

}  // namespace
}  // namespace canopy
