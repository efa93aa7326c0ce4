// A packed target writes the text of the model that was packed, wherever its weights rest.
#include <gtest/gtest.h>

#include "src/convert/inflate.h"
#include "src/convert/pack.h"
#include "tests/engine/tiny_engine.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {
namespace {

class PackedEngine : public TinyEngine {
 protected:
  static void SetUpTestSuite() {
    TinyEngine::SetUpTestSuite();
    const auto silent = [](auto&&...) {};
    // The target's own rows are too short to be packed.
    inflate(Checkpoint::open(kTarget),
            {.output = large(), .small = dir_->path() / "small", .bytes = 2'000'000}, silent);
    ASSERT_GT(pack(Checkpoint::open(large()), packed(), 2, silent).packed, 0);
  }
  static std::filesystem::path large() { return dir_->path() / "large"; }
  static std::filesystem::path packed() { return dir_->path() / "packed"; }

  static ModelFiles models_with(const std::filesystem::path& target, bool with_draft) {
    ModelFiles files = models(with_draft);
    files.target = Checkpoint::open(target);
    return files;
  }
  static std::vector<TokenId> text(ModelFiles files, const EngineOptions& o) {
    Engine engine(std::move(files), o);
    const std::vector<TokenId> p = prompt(3);
    Request r = request(p);
    r.sampling.temperature = static_cast<float>(o.plan.temperature);
    const BatchReport report = engine.generate(std::vector{r});
    return report.texts.front().tokens;
  }
};

TEST_F(PackedEngine, WritesTheTextOfTheModelThatWasPacked) {
  for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia})
    for (const bool from_disk : {false, true})
      for (const double temperature : {0.0, 0.9}) {
        SCOPED_TRACE(::testing::Message() << name(method) << ", from disk: " << from_disk
                                          << ", temperature " << temperature);
        const bool tree = method != SpeculationMethod::kNone;
        EngineOptions o = options(method, tree ? 12 : 0, tree ? 4 : 0, temperature);
        if (from_disk) o.plan.resident = 0;
        EXPECT_EQ(text(models_with(packed(), tree), o), text(models_with(large(), tree), o));
      }
}

TEST_F(PackedEngine, OnADeviceWithMemoryOfItsOwn) {
  HardwareProfile profile = made_up_cost()->profile();
  profile.upload_bytes_per_second = 2e10;
  EngineOptions o = options(SpeculationMethod::kSequoia, 9, 3);
  o.plan.cost = std::make_shared<const CostModel>(profile);
  o.make_device = [] {
    return std::make_unique<EmulatedCuda>(EmulatedCuda::Options{.memory = std::size_t{1} << 30});
  };
  for (const std::optional<std::uint64_t> resident :
       {std::optional<std::uint64_t>(), std::optional<std::uint64_t>(40'000),
        std::optional<std::uint64_t>(0)})
    for (const bool from_disk : {false, true}) {
      if (from_disk && !resident) continue;
      SCOPED_TRACE(::testing::Message()
                   << "resident " << resident.value_or(1) << ", from disk " << from_disk);
      o.plan.resident = resident;
      o.plan.from_disk = from_disk;
      EXPECT_EQ(text(models_with(packed(), true), o), text(models_with(large(), true), o));
    }
}

}  // namespace
}  // namespace canopy
