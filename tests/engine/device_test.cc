// The engine on a device with memory of its own.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "offload/experts/expert_cache.h"
#include "offload/experts/uploaded_experts.h"
#include "offload/residency.h"
#include "src/base/error.h"
#include "src/convert/enlarge/random_checkpoint.h"
#include "src/machine/process_memory.h"
#include "tests/engine/small_numbers.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {
namespace {

class WithUploads : public TinyEngine {
 protected:
  /// The made-up machine with such a device.
  static std::shared_ptr<const CostModel> cost() {
    static const auto with_uploads = std::make_shared<const CostModel>([] {
      HardwareProfile p = made_up_cost()->profile();
      p.upload_bytes_per_second = 2e10;
      return p;
    }());
    return with_uploads;
  }
};

/// On the emulated device, and on a GPU where there is one.
class DeviceTest : public WithUploads, public ::testing::WithParamInterface<std::string> {
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

  /// An engine on a GPU of `memory` bytes; the GPU is the engine's.
  static Engine make_on(std::size_t memory, EngineOptions o, EmulatedCuda** device = nullptr,
                        std::optional<ModelFiles> files = {}) {
    o.plan.cost = cost();
    o.make_device = [=]() -> std::unique_ptr<Device> {
      if (GetParam() == "cuda") return make_device({.kind = "cuda", .gpu_memory = kRoom + memory});
      auto made = std::make_unique<EmulatedCuda>(EmulatedCuda::Options{.memory = memory});
      if (device) *device = made.get();
      return made;
    };
    if (!files) files = models(o.plan.method != SpeculationMethod::kNone);
    return Engine(std::move(*files), o);
  }
};

TEST_P(DeviceTest, AMixturesTextIsTheSameWhereverItsExpertsRest) {
  std::map<SpeculationMethod, std::vector<TokenId>> texts;
  for (const Way& way : kWays)
    for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia}) {
      std::vector<TokenId>& expected =
          texts[GetParam() == "cuda" ? method : SpeculationMethod::kAuto];
      SCOPED_TRACE(std::string(way.name) + ", " + name(method));
      EngineOptions o = options(method, method == SpeculationMethod::kNone ? 0 : 9, 0);
      o.plan.resident = way.resident;
      o.plan.from_disk = way.from_disk;
      const Checkpoint mixture = Checkpoint::open(test_data() / "model" / "qwen3_moe");
      ModelFiles files{mixture, std::nullopt,
                       std::make_unique<NumberTokenizer>(97, std::vector<TokenId>{})};
      if (method != SpeculationMethod::kNone) files.draft = mixture;
      Engine engine = make_on(std::size_t{1} << 30, o, nullptr, std::move(files));
      Request r = request(prompt(1));
      for (TokenId& token : r.prompt) token %= 97;
      const std::vector<TokenId> text = engine.generate(r).tokens;
      if (expected.empty()) expected = text;
      EXPECT_EQ(text, expected);
    }
}

TEST_P(DeviceTest, AMixturesExpertsStayAsFarAsThereIsRoomAndTheTextIsTheSame) {
  const Checkpoint mixture = Checkpoint::open(test_data() / "model" / "qwen3_moe");
  const SweepLayout apart = lay_out_sweep(mixture, ExpertsAre::kApart);
  const std::uint64_t shared = uploaded_bytes(apart, none_resident(apart)),
                      slot = UploadedExperts::slot_bytes(apart);
  std::vector<TokenId> expected;
  std::uint64_t misses_before = UINT64_MAX;
  for (const std::uint64_t stay :
       {std::uint64_t{0}, apart.experts.size() / 2, apart.experts.size()}) {
    SCOPED_TRACE(stay);
    EngineOptions o = options(SpeculationMethod::kNone, 0, 0);
    o.plan.resident = shared + stay * slot;
    o.verify_weights = true;
    ModelFiles files{mixture, std::nullopt,
                     std::make_unique<NumberTokenizer>(97, std::vector<TokenId>{})};
    EmulatedCuda* device = nullptr;
    Engine engine = make_on(std::size_t{1} << 30, o, &device, std::move(files));
    const Plan& plan = engine.plan();
    EXPECT_EQ(plan.weights.experts.stay, static_cast<int>(stay));
    EXPECT_TRUE(std::ranges::any_of(engine.notes(), [](const std::string& note) {
      return note.starts_with("weights are not verified");
    }));
    EXPECT_EQ(plan.resident_bytes, shared + stay * slot);
    EXPECT_EQ(plan.sweep_bytes, 0u);
    Request r = request(prompt(1));
    for (TokenId& token : r.prompt) token %= 97;
    const BatchReport report = engine.generate(std::vector{r});
    if (expected.empty()) expected = report.texts.front().tokens;
    EXPECT_EQ(report.texts.front().tokens, expected);
    EXPECT_EQ(report.link.upload_bytes, report.link.expert_misses * slot);
    EXPECT_GT(report.link.expert_misses, 0u);
    EXPECT_LT(report.link.expert_misses, misses_before);
    EXPECT_EQ(report.link.disk_bytes, 0u);
    misses_before = report.link.expert_misses;
    if (stay == apart.experts.size()) {
      EXPECT_LE(report.link.expert_misses, apart.experts.size());
    }
    if (device) {
      EXPECT_LE(device->card().most_held(), plan.device->total());
    }
  }
}

TEST_P(DeviceTest, ExpertsThatTheHostDoesNotHoldComeFromDiskAndTheTextIsTheSame) {
  if (GetParam() == "cuda") GTEST_SKIP() << "a driver's memory is not of this budget";
  // Experts of megabytes, of which the process's own memory, which comes and goes, hides none.
  ModelConfig shape = Checkpoint::open(test_data() / "model" / "qwen3_moe").config();
  shape.experts.hidden_dim = 8192;
  const std::filesystem::path file = dir_->path() / "mixture";
  const Checkpoint mixture =
      lay_out_random_checkpoint({shape, DType::kBF16}, LayerBytes::kOwn, file);
  const SweepLayout apart = lay_out_sweep(mixture, ExpertsAre::kApart);
  write_small_numbers(file, apart);
  const std::uint64_t slot = ExpertCache::slot_bytes(apart);
  std::vector<TokenId> expected;
  std::uint64_t besides = 0;  // the process as it stood
  for (const std::uint64_t fewer : {0u, 4u}) {
    SCOPED_TRACE(fewer);
    EngineOptions o = options(SpeculationMethod::kNone, 0, 0);
    o.plan.resident =
        uploaded_bytes(apart, none_resident(apart)) + 3 * UploadedExperts::slot_bytes(apart);
    if (fewer > 0) o.plan.memory = resident_memory() + besides - fewer * slot;
    Engine engine =
        make_on(std::size_t{1} << 30, o, nullptr,
                ModelFiles{mixture, std::nullopt,
                           std::make_unique<NumberTokenizer>(97, std::vector<TokenId>{})});
    const Plan& plan = engine.plan();
    if (fewer == 0) besides = plan.total() - plan.ledger.front().bytes;
    EXPECT_EQ(plan.device->host_expert_slots > 0, fewer > 0);
    EXPECT_LE(plan.total(), plan.memory);
    EXPECT_EQ(plan.weights.host_experts.bytes > 0, fewer > 0);
    Request r = request(std::vector<TokenId>{3, 1, 4, 1, 5});
    r.max_new_tokens = 6;
    const BatchReport report = engine.generate(std::vector{r});
    if (expected.empty()) expected = report.texts.front().tokens;
    EXPECT_EQ(report.texts.front().tokens, expected);
    EXPECT_EQ(report.link.disk_bytes > 0, fewer > 0);
    EXPECT_GT(report.link.upload_bytes, 0u);
  }
}

TEST_P(DeviceTest, SaysWhenExpertsTravelWithTheirLayers) {
  EngineOptions o = options(SpeculationMethod::kNone, 0, 0);
  o.plan.resident = 0;
  const Engine engine =
      make_on(std::size_t{1} << 30, o, nullptr,
              ModelFiles{Checkpoint::open(test_data() / "model" / "qwen3_moe"), std::nullopt,
                         std::make_unique<NumberTokenizer>(97, std::vector<TokenId>{})});
  ASSERT_FALSE(engine.notes().empty());
  EXPECT_NE(engine.notes()[0].find("layers travel to the GPU with all of their experts"),
            std::string::npos)
      << engine.notes()[0];
}

TEST_P(DeviceTest, TheTextIsTheSameWhereverWeightsRestAndWhateverTheTree) {
  std::map<SpeculationMethod, std::vector<TokenId>> texts;
  const std::vector<TokenId> p = prompt(1);
  for (const Way& way : kWays)
    for (const SpeculationMethod method :
         {SpeculationMethod::kNone, SpeculationMethod::kChain, SpeculationMethod::kSequoia}) {
      // A GPU's products depend on the number of rows in their last bits, so that trees of another
      // size may turn a tie.
      std::vector<TokenId>& expected =
          texts[GetParam() == "cuda" ? method : SpeculationMethod::kAuto];
      SCOPED_TRACE(std::string(way.name) + ", " + name(method));
      EngineOptions o = options(method, method == SpeculationMethod::kNone ? 0 : 9, 0);
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
      EngineOptions o = options(SpeculationMethod::kSequoia, 12, 4, 0.8);
      o.plan.resident = way.resident;
      o.plan.from_disk = way.from_disk;
      o.graphs = graphs;
      Engine engine = make_on(std::size_t{1} << 30, o);
      Request r = request(p);
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
  EngineOptions o = options(SpeculationMethod::kSequoia, 9, 0);
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
  EngineOptions o = options(SpeculationMethod::kNone);
  const std::string why = error_of([&] { make_on(100'000, o); });
  EXPECT_NE(why.find("a GPU memory budget of 0.1 MiB is too small"), std::string::npos) << why;
  EXPECT_NE(why.find("target: a ring of two units"), std::string::npos) << why;
  o.plan.memory = 1 << 20;
  const std::string host = error_of([&] { make_on(std::size_t{1} << 30, o); });
  EXPECT_NE(host.find("a memory budget of 1.0 MiB is too small"), std::string::npos) << host;
}

TEST_P(DeviceTest, KeepsKeysAndValuesIn16BitsUnlessToldOtherwise) {
  EngineOptions o = options(SpeculationMethod::kNone);
  EXPECT_EQ(make_on(std::size_t{1} << 30, o).plan().kv.k, DType::kF16);
  EXPECT_EQ(make_on(std::size_t{1} << 30, o).plan().kv.v, DType::kF16);
  o.plan.kv = DType::kF32;
  EXPECT_EQ(make_on(std::size_t{1} << 30, o).plan().kv.v, DType::kF32);
}

TEST_P(DeviceTest, ReadsALayersWeightsOnceForAsManyRowsAsTreesHave) {
  const auto on_gpu = make_on(std::size_t{1} << 30, options(SpeculationMethod::kNone)).plan();
  EXPECT_EQ(on_gpu.target_limits.chunk, 1024);
  EXPECT_EQ(Transformer::Limits().chunk, 256);
}

TEST_P(DeviceTest, RunsRandomWeightsOfAShapeWhoseLayersShareTheirBytes) {
  ModelConfig shape = Checkpoint::open(kTarget).config();
  shape.layers = 12;
  shape.hidden_dim = 96;  // whole blocks of packed weights
  for (const DType type : {DType::kBF16, DType::kQ4_0}) {
    SCOPED_TRACE(name(type));
    ModelFiles files{
        write_random_checkpoint({shape, type}, LayerBytes::kShared, dir_->path() / "random"),
        std::nullopt, nullptr};
    files.draft = Checkpoint::open(draft_);
    files.tokenizer = std::make_unique<NumberTokenizer>(shape.vocab, std::vector<TokenId>{});
    EngineOptions o = options(SpeculationMethod::kChain, 5);
    o.plan.cost = cost();
    o.plan.resident = 0;
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
    const BatchReport report = engine.generate(std::vector{request(p)}, {}, {}, Acceptance{{1.0}});
    for (const int tokens : report.texts.front().step_tokens) EXPECT_EQ(tokens, 5);
  }
}

/// Engines on the emulated device, whose driver takes memory as a GPU's does.
class DriverTest : public WithUploads {
 protected:
  /// A driver that is as greedy, for a tiny model, as a GPU's is for a large one.
  static constexpr DriverShare kGreedy{
      .unit = 4096, .fixed = 300'000, .graph = 9'000, .of_pinned = 0.05};

  /// One that leaves room for a smaller ring.
  static constexpr DriverShare kModest{
      .unit = 256, .fixed = 4'000, .graph = 9'000, .of_pinned = 0.05};

  static Engine make_with(const EmulatedCuda::Options& card, EngineOptions o,
                          EmulatedCuda** device = nullptr, std::int64_t fail_at = 0) {
    o.plan.cost = cost();
    o.make_device = [=] {
      auto made = std::make_unique<EmulatedCuda>(card);
      if (fail_at > 0) made->card().fail_at(fail_at);
      if (device) *device = made.get();
      return made;
    };
    return Engine(models(o.plan.method != SpeculationMethod::kNone), o);
  }
  /// Returns the bytes that must be on such a card besides the ring.
  static std::uint64_t least_of(EngineOptions o, const DriverShare& driver) {
    o.plan.resident = 0;
    const Engine engine = make_with({.memory = std::size_t{1} << 30, .driver = driver}, o);
    std::uint64_t least = 0;
    for (const LedgerEntry& entry : engine.plan().device->ledger)
      if (entry.what != kRingEntry) least += entry.bytes;
    return least;
  }
  static EngineOptions with_graphs() {
    EngineOptions o = options(SpeculationMethod::kSequoia, 12, 4, 0.8);
    o.graphs = true;
    return o;
  }
  static std::vector<TokenId> text_of(Engine& engine) {
    const std::vector<TokenId> p = prompt(2);
    Request r = request(p);
    r.sampling.temperature = 0.8f;
    return engine.generate(r).tokens;
  }
};

TEST_F(DriverTest, AFullCardHasRoomForKernelsGraphsAndTablesThatTheDriverMakesLater) {
  const EngineOptions o = with_graphs();
  const std::uint64_t least = least_of(o, kGreedy);
  std::vector<TokenId> expected;
  for (const std::uint64_t more : {200'000u, 260'000u, 500'000u, 5'000'000u}) {
    SCOPED_TRACE(more);
    EmulatedCuda* device = nullptr;
    Engine engine = make_with({.memory = least + more, .driver = kGreedy}, o, &device);
    const Plan& plan = engine.plan();
    const std::vector<TokenId> text = text_of(engine);
    if (expected.empty()) expected = text;
    EXPECT_EQ(text, expected);
    EXPECT_EQ(engine.notes(), Notes{});
    EXPECT_LE(plan.device->total(), plan.device->memory);
    EXPECT_LE(device->card().most_held(), plan.device->total());
    if (plan.resident) continue;
    EXPECT_GT(device->card().most_held() + kGreedy.unit + kGreedy.fixed, plan.device->memory)
        << "the card is not full";
  }
}

TEST_F(DriverTest, ARingThatDoesNotFitAfterAllIsSmallerAndANoteSaysSo) {
  EngineOptions o = with_graphs();
  EmulatedCuda::Options card{.memory = least_of(o, kModest) + 400'000, .driver = kModest};
  o.plan.resident = 0;
  EmulatedCuda* device = nullptr;
  std::uint64_t planned = 0;
  {
    const Engine engine = make_with(card, o, &device);
    planned = engine.plan().ring_bytes;
    card.unseen = device->card().free_bytes() + planned / 16;
  }
  const Engine smaller = make_with(card, o);
  EXPECT_LT(smaller.plan().ring_bytes, planned);
  ASSERT_EQ(smaller.notes().size(), 1u);
  EXPECT_NE(smaller.notes().front().find("less memory left than it reported"), std::string::npos);
  card.unseen = card.memory / 2;
  const std::string why = error_of([&] { make_with(card, o); });
  EXPECT_NE(why.find("out of memory"), std::string::npos) << why;
}

TEST_F(DriverTest, ASmallerRingLeavesRoomForKernelsThatLoadLater) {
  EngineOptions o = with_graphs();
  EmulatedCuda::Options card{.memory = least_of(o, kModest) + 400'000, .driver = kModest};
  o.plan.resident = 0;
  EmulatedCuda* device = nullptr;
  std::vector<TokenId> expected;
  {
    Engine engine = make_with(card, o, &device);
    card.unseen = device->card().free_bytes() + engine.plan().ring_bytes / 16;
    expected = text_of(engine);
  }
  Engine smaller = make_with(card, o, &device);
  ASSERT_EQ(smaller.notes().size(), 1u);
  EXPECT_EQ(text_of(smaller), expected);
  EXPECT_LE(device->card().most_held(), card.memory - card.unseen);
}

TEST_F(DriverTest, KernelsThatALongTextNeedsAreLoadedBeforeTheirGraphIsMade) {
  EngineOptions o = with_graphs();
  o.plan.context = 1024;  // in chunks of keys that are merged, but not while the text is short
  Engine engine = make_with({}, o);
  text_of(engine);
  EXPECT_EQ(engine.notes(), Notes{});
}

TEST_F(DriverTest, WhereGraphsAreRefusedTheDraftGoesOnWithoutThemAndANoteSaysSo) {
  const EngineOptions o = with_graphs();
  Engine engine = make_with({}, o), without = make_with({.graphs = false}, o);
  EXPECT_EQ(text_of(without), text_of(engine));
  EXPECT_EQ(engine.notes(), Notes{});
  ASSERT_EQ(without.notes().size(), 1u);
  EXPECT_NE(without.notes().front().find("launched one by one"), std::string::npos);
}

TEST_F(DriverTest, AFailureAtAnyCallIsThrownAsItWas) {
  for (const bool from_disk : {false, true}) {
    EngineOptions o = with_graphs();
    o.plan.resident = 40'000;
    o.plan.from_disk = from_disk;
    EmulatedCuda* device = nullptr;
    std::int64_t calls = 0;
    {
      Engine engine = make_with({}, o, &device);
      text_of(engine);
      calls = device->card().calls();
    }
    ASSERT_GT(calls, 1000);
    // Half of them: how often a stream is asked whether it is done differs from run to run.
    for (std::int64_t call = 1; call < calls / 2; call += call < 90 ? 9 : 1 + calls / 23) {
      SCOPED_TRACE(::testing::Message()
                   << "call " << call << " of " << calls << ", from disk " << from_disk);
      const std::string why = error_of([&] {
        Engine engine = make_with({}, o, nullptr, call);
        text_of(engine);
      });
      EXPECT_EQ(why.find(EmulatedCard::kFailure), 0u) << why;
    }
  }
}

TEST_F(DriverTest, ATraceShowsEachUpload) {
  EngineOptions o = options(SpeculationMethod::kSequoia, 9, 0);
  o.plan.resident = 0;
  const std::filesystem::path file = dir_->path() / "uploads.json";
  int steps = 0, units = 0;
  std::uint64_t bytes = 0;
  {
    Trace trace(file);
    o.trace = &trace;
    Engine engine = make_with({}, o);
    const std::vector<TokenId> p = prompt(3);
    steps = engine.generate(request(p)).steps;
    for (const Tier tier : engine.plan().residency.unit) units += tier != Tier::kDevice ? 1 : 0;
    bytes = engine.plan().device->upload_bytes;
  }
  int uploads = 0;
  std::uint64_t uploaded = 0;
  double end = 0;
  std::ifstream in(file);
  for (const auto& event : nlohmann::json::parse(in)) {
    if (event.at("ph") != "X") continue;
    const auto lane = static_cast<Trace::Lane>(event.at("tid").get<int>());
    EXPECT_GE(event.at("dur").get<double>(), 0);
    if (lane != Trace::Lane::kUpload) continue;
    ++uploads;
    uploaded += event.at("args").at("bytes").get<std::uint64_t>();
    EXPECT_GE(event.at("ts").get<double>(), end - 1) << "two copies of one stream overlap";
    end = event.at("ts").get<double>() + event.at("dur").get<double>();
  }
  EXPECT_GE(uploads, steps * units);
  EXPECT_GE(uploaded, static_cast<std::uint64_t>(steps) * bytes);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTest, ::testing::Values("emulated", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace canopy
