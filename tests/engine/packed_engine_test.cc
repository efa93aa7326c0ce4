// A packed target writes the text of the model that was packed, wherever its weights rest.
#include <gtest/gtest.h>

#include "src/convert/enlarge/inflate.h"
#include "src/convert/pack/pack.h"
#include "tests/convert/wide_model.h"
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

/// A golden model of each family, widened: its own rows are too short to be packed.
class PackedFamily : public PackedEngine, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    const auto silent = [](auto&&...) {};
    const std::string family = GetParam();
    std::filesystem::path agrees = own_ / "large";  // with the target, now and then, if it is noisy
    if (family.starts_with("opt") || family == "bloom") {
      test::write_wide_model(family, own_ / "large");
    } else {
      agrees = own_ / "small";
      inflate(test::tiny_model(family),
              {.output = own_ / "large", .small = agrees, .bytes = 2'000'000}, silent);
    }
    ASSERT_GT(pack(Checkpoint::open(own_ / "large"), own_ / "packed", 2, silent).packed, 0);
    write_noisy_copy(agrees, own_ / "draft", 0.05f);
  }
  std::vector<TokenId> text(const char* target, bool tree, bool streamed) const {
    ModelFiles files{Checkpoint::open(own_ / target), std::nullopt, nullptr};
    if (tree) files.draft = Checkpoint::open(own_ / "draft");
    files.tokenizer =
        std::make_unique<NumberTokenizer>(files.target.config().vocab, std::vector<TokenId>{});
    EngineOptions o =
        options(tree ? SpeculationMethod::kSequoia : SpeculationMethod::kNone, tree ? 12 : 0);
    o.plan.max_prompt = kPrompt;
    o.plan.context = kPrompt + kNew;
    if (streamed) o.plan.resident = 0;
    return PackedEngine::text(std::move(files), o);
  }
  static constexpr int kPrompt = 20;

 private:
  const TempDir own_;
};

TEST_P(PackedFamily, WritesTheSameTextStreamedAndResidentByTreeAndPlain) {
  const std::vector<TokenId> expected = text("large", false, false);
  ASSERT_EQ(expected.size(), std::size_t{kNew});
  for (const bool tree : {false, true})
    for (const bool streamed : {false, true})
      EXPECT_EQ(text("packed", tree, streamed), expected)
          << (tree ? "tree" : "plain") << (streamed ? ", streamed" : ", resident");
}

INSTANTIATE_TEST_SUITE_P(Goldens, PackedFamily,
                         ::testing::Values("llama2", "llama2_odd", "llama2_shards", "llama3",
                                           "llama_linear", "llama_yarn", "mistral", "qwen2",
                                           "qwen3", "smollm2", "ministral3", "mistral3", "seed_oss",
                                           "opt", "opt_after", "bloom"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace canopy
