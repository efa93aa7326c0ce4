// The engine on a device with memory of its own.
#include <gtest/gtest.h>

#include <map>

#include "src/base/error.h"
#include "src/convert/random_checkpoint.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {
namespace {

/// On the emulated device, and on a GPU where there is one.
class DeviceTest : public TinyEngine, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "cuda" && find_gpus().all.empty()) GTEST_SKIP() << find_gpus().why_none;
  }
  static constexpr std::size_t kRoom = std::size_t{4} << 30;  // for a GPU's driver and libraries
  struct Way {
    const char* name;
    std::optional<std::uint64_t> resident;  // on the device
    bool from_disk;
  };
  static constexpr Way kWays[] = {{"all on the device", std::nullopt, false},
                                  {"some on the device, the others on the host", 40'000, false},
                                  {"all on the host", 0, false},
                                  {"some on the device, the others on disk", 40'000, true},
                                  {"all on disk", 0, true}};

  /// The made-up machine with such a device.
  static const CostModel& cost() {
    static const CostModel with_uploads([] {
      HardwareProfile p = made_up_cost().profile();
      p.upload_bytes_per_second = 2e10;
      return p;
    }());
    return with_uploads;
  }
  /// An engine on a GPU of so many bytes; the GPU is the engine's.
  static Engine make_on(std::size_t memory, EngineOptions o, EmulatedCuda** device = nullptr) {
    o.plan.cost = &cost();
    o.make_device = [=]() -> std::unique_ptr<Device> {
      if (GetParam() == "cuda") return make_device({.kind = "cuda", .gpu_memory = kRoom + memory});
      auto made = std::make_unique<EmulatedCuda>(EmulatedCuda::Options{.memory = memory});
      if (device) *device = made.get();
      return made;
    };
    return Engine(models(o.plan.spec != Spec::kNone), o);
  }
};

TEST_P(DeviceTest, TheTextIsTheSameWhereverWeightsRestAndWhateverTheTree) {
  std::map<Spec, std::vector<TokenId>> texts;
  const std::vector<TokenId> p = prompt(1);
  for (const Way& way : kWays)
    for (const Spec spec : {Spec::kNone, Spec::kChain, Spec::kSequoia}) {
      // A GPU's products depend on the number of rows in their last bits, so that trees of another
      // size may turn a tie.
      std::vector<TokenId>& expected = texts[GetParam() == "cuda" ? spec : Spec::kAuto];
      SCOPED_TRACE(std::string(way.name) + ", " + name(spec));
      EngineOptions o = options(spec, spec == Spec::kNone ? 0 : 9, 0);
      o.plan.resident = way.resident;
      o.plan.from_disk = way.from_disk;
      Engine engine = make_on(std::size_t{1} << 30, o);
      const BatchReport report = engine.generate(std::vector{request(p)});
      if (expected.empty()) expected = report.texts.front().tokens;
      EXPECT_EQ(report.texts.front().tokens, expected);
      const Plan::DevicePart& part = *engine.plan().device;
      EXPECT_EQ(engine.plan().resident, !way.resident && !way.from_disk);
      EXPECT_EQ(engine.plan().sweep_bytes > 0, way.from_disk);
      EXPECT_EQ(report.link.disk_bytes > 0, way.from_disk);
      EXPECT_GE(report.link.upload_bytes + engine.plan().ring_bytes,
                part.upload_bytes * static_cast<std::uint64_t>(report.sweeps - 1));
    }
}

TEST_P(DeviceTest, SampledTextIsTheSameWhereverWeightsRestAndHoweverKernelsAreLaunched) {
  std::vector<TokenId> expected;
  const std::vector<TokenId> p = prompt(2);
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    for (const bool graphs : {true, false}) {
      EngineOptions o = options(Spec::kSequoia, 12, 4, 0.8);
      o.plan.resident = way.resident;
      o.plan.from_disk = way.from_disk;
      o.graphs = graphs;
      Engine engine = make_on(std::size_t{1} << 30, o);
      GenerateRequest r = request(p);
      r.sampling.temperature = 0.8f;
      const std::vector<TokenId> text = engine.generate(r).tokens;
      if (expected.empty()) expected = text;
      EXPECT_EQ(text, expected) << (graphs ? "graphs" : "kernel by kernel");
    }
  }
}

TEST_P(DeviceTest, TakesNoMoreOfTheDeviceThanPlannedOnAnyBudget) {
  if (GetParam() == "cuda") GTEST_SKIP() << "the device does not tell what it held";
  EmulatedCuda* device = nullptr;
  EngineOptions o = options(Spec::kSequoia, 9, 0);
  std::uint64_t least = 0;
  {
    o.plan.resident = 0;
    Engine engine = make_on(std::size_t{1} << 30, o, &device);
    for (const LedgerEntry& entry : engine.plan().device->ledger)
      if (entry.what != "target ring") least += entry.bytes;
  }
  o.plan.resident.reset();
  const std::vector<TokenId> p = prompt(3);
  std::uint64_t uploaded_before = UINT64_MAX;
  for (const std::uint64_t more : {200'000u, 300'000u, 500'000u, 2'000'000u}) {
    SCOPED_TRACE(more);
    Engine engine = make_on(least + more, o, &device);
    const Plan& plan = engine.plan();
    EXPECT_EQ(plan.device->memory, least + more);
    EXPECT_LE(plan.device->total(), plan.device->memory);
    engine.generate(request(p));
    EXPECT_LE(device->card().most_held(), plan.device->total());
    EXPECT_LE(plan.device->upload_bytes, uploaded_before);
    uploaded_before = plan.device->upload_bytes;
  }
  EXPECT_EQ(uploaded_before, 0u);  // all rest there in the end
}

TEST_P(DeviceTest, SaysWhichBudgetIsTooSmallAndTheLeastThatWouldDo) {
  if (GetParam() == "cuda") GTEST_SKIP() << "a driver takes more than these budgets";
  EngineOptions o = options(Spec::kNone);
  const std::string why = error_of([&] { make_on(100'000, o); });
  EXPECT_NE(why.find("a GPU memory budget of 0.1 MiB is too small"), std::string::npos) << why;
  EXPECT_NE(why.find("target: a ring of two units"), std::string::npos) << why;
  o.plan.memory = 1 << 20;
  const std::string host = error_of([&] { make_on(std::size_t{1} << 30, o); });
  EXPECT_NE(host.find("a memory budget of 1.0 MiB is too small"), std::string::npos) << host;
}

TEST_P(DeviceTest, KeepsKeysAndValuesIn16BitsUnlessToldOtherwise) {
  EngineOptions o = options(Spec::kNone);
  EXPECT_EQ(make_on(std::size_t{1} << 30, o).plan().kv.k, DType::kF16);
  EXPECT_EQ(make_on(std::size_t{1} << 30, o).plan().kv.v, DType::kF16);
  o.plan.kv = DType::kF32;
  EXPECT_EQ(make_on(std::size_t{1} << 30, o).plan().kv.v, DType::kF32);
}

TEST_P(DeviceTest, RunsRandomWeightsOfAShapeWhoseLayersShareTheirBytes) {
  ModelConfig shape = Checkpoint::open(kTarget).config();
  shape.layers = 12;
  shape.hidden_dim = 96;  // whole blocks of packed weights
  for (const DType type : {DType::kBF16, DType::kQ4_0}) {
    SCOPED_TRACE(name(type));
    ModelFiles files{write_random_checkpoint({shape, type}, dir_->path() / "random"), std::nullopt,
                     nullptr};
    files.draft = Checkpoint::open(draft_);
    files.tokenizer = std::make_unique<NumberTokenizer>(shape.vocab, std::vector<TokenId>{});
    EngineOptions o = options(Spec::kChain, 5);
    o.plan.cost = &cost();
    o.plan.resident = 0;
    o.synthetic_acceptance = Acceptance{{1.0}};
    o.make_device = [] {
      return GetParam() == "cuda" ? make_device({.kind = "cuda"})
                                  : std::make_unique<EmulatedCuda>();
    };
    Engine engine(std::move(files), o);
    std::uint64_t host = 0;
    for (const LedgerEntry& entry : engine.plan().ledger)
      if (entry.what.starts_with("target weights")) host = entry.bytes;
    EXPECT_GT(engine.plan().device->upload_bytes, 2 * host);
    const std::vector<TokenId> p = prompt(4);
    const BatchReport report = engine.generate(std::vector{request(p)});
    for (const int tokens : report.texts.front().step_tokens) EXPECT_EQ(tokens, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, ::testing::Values("emulated", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace canopy
