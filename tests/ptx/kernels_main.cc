// The tests of kernels, with kernels as nvcc wrote them down in PTX in place of those that the
// host's compiler made. Of the environment:
//   CANOPY_PTX       the file. Where there is none, as there was no CUDA compiler, the exit status
//                    is 77, for ctest to skip.
//   CANOPY_PTX_SEED  threads take turns at random, by this number
//   CANOPY_PTX_ALL   not empty: each kernel of the file must have run
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>

#include "tests/ptx/ptx_runner.h"

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class FailedTests final : public canopy::ptx::Faults {
 public:
  void add(const std::string& fault) override { ADD_FAILURE() << fault; }
};

/// Is the last of all tests.
class EachKernelRan final : public testing::Environment {
 public:
  explicit EachKernelRan(const canopy::ptx::Module& module) : module_(module) {}
  void TearDown() override {
    const std::size_t all = module_.types().size(), used = module_.used().size();
    std::cout << used << " of " << all << " kernels ran\n";
    if (variable("CANOPY_PTX_ALL").empty()) return;
    std::set<std::string> missing;
    for (const std::string& type : module_.types()) missing.insert(canopy::ptx::short_name(type));
    for (const canopy::ptx::Kernel* kernel : module_.used()) missing.erase(kernel->name);
    for (const std::string& name : missing) ADD_FAILURE() << "no test runs " << name;
  }

 private:
  const canopy::ptx::Module& module_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr int kSkipped = 77;
  const std::string file = variable("CANOPY_PTX"), seed = variable("CANOPY_PTX_SEED");
  if (!std::filesystem::exists(file)) {
    std::cout << "skipped: there is no PTX, as there was no CUDA compiler (CANOPY_PTX=" << file
              << ")\n";
    return kSkipped;
  }
  FailedTests failed;
  canopy::ptx::PtxRunner runner(canopy::ptx::read_text(file),
                                {seed.empty() ? 0 : std::stoull(seed)}, failed);
  testing::AddGlobalTestEnvironment(new EachKernelRan(runner.module()));
  return RUN_ALL_TESTS();
}
