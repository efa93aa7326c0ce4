#include <gtest/gtest.h>

#include <algorithm>

#include "src/engine/device_name.h"
#include "src/machine/cpus.h"
#include "tests/engine/tiny_engine.h"
#include "tests/thread_cpus.h"

namespace canopy {
namespace {

const std::filesystem::path kTarget = std::filesystem::path(CANOPY_TEST_DATA) / "model" / "llama2";

/// An engine that streams all it can.
Engine make(const DeviceChoice& device) {
  ModelFiles files{Checkpoint::open(kTarget), std::nullopt, nullptr};
  files.tokenizer = std::make_unique<NumberTokenizer>(files.target.config().vocab,
                                                      files.target.config().end_tokens);
  EngineOptions options;
  options.device = device;
  options.plan.resident = 0;
  options.plan.max_prompt = 4;
  options.plan.context = 8;
  return Engine(std::move(files), options);
}

TextReport run(Engine& engine) {
  const std::vector<TokenId> prompt{5, 6, 7};
  Request request;
  request.prompt = prompt;
  request.max_new_tokens = 3;
  request.ignore_end = true;
  return engine.generate(request);
}

TEST(EnginePlacement, CpusOfTheUserBindComputeAndReader) {
  const int cpu = allowed_cpus().back();
  Engine engine = make({.cpus = {cpu}});
  EXPECT_EQ(engine.placement().threads, 1);
  EXPECT_EQ(engine.placement().cpus, std::vector{cpu});
  run(engine);
  for (const char* const name : {"compute", "reader"}) {
    const auto cpus = test::thread_cpus(name);
    ASSERT_EQ(cpus.size(), 1) << name;
    EXPECT_EQ(cpus.begin()->second, std::to_string(cpu)) << name;
  }
}

TEST(EnginePlacement, IsFreeWithoutThemOnOneNodeAndSaysSo) {
  if (Topology().nodes().size() > 1) GTEST_SKIP() << "several NUMA nodes";
  const std::string all = test::thread_cpus().begin()->second;
  Engine engine = make({});
  EXPECT_EQ(engine.placement().cpus, std::vector<int>{});
  EXPECT_EQ(engine.placement().numa_node, std::nullopt);
  EXPECT_NE(engine.placement().note.find("one NUMA node"), std::string::npos);
  run(engine);
  for (const auto& [id, cpus] : test::thread_cpus()) EXPECT_EQ(cpus, all);
}

TEST(EnginePlacement, TheTextIsTheSameWhereverItIsComputed) {
  Engine anywhere = make({}), bound = make({.cpus = {allowed_cpus().front()}});
  EXPECT_EQ(run(anywhere).tokens, run(bound).tokens);
}

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
