// Weights that are not numbers: an error that says where, on every device, by every way to a token.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/engine/beam/beam_search.h"
#include "src/measure/perplexity.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {
namespace {

class NotFiniteWeights : public TinyEngine, public ::testing::WithParamInterface<std::string> {
 protected:
  /// A copy of the model, one weight of `tensor` replaced by these bits of a BF16.
  std::filesystem::path damaged(const std::string& tensor, std::uint16_t bits) {
    const auto to = copies_.path() / (tensor + "-" + std::to_string(bits));
    if (std::filesystem::exists(to)) return to;
    std::filesystem::copy(kTarget, to);
    const std::uint64_t at = Checkpoint::open(to).find(tensor)->offset;
    std::fstream file(to / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(&bits), sizeof bits);
    return to;
  }
  Engine make(ModelFiles files, SpeculationMethod method, double temperature) {
    files.tokenizer = models(false).tokenizer;
    EngineOptions o = options(method, method == SpeculationMethod::kNone ? 0 : 8,
                              method == SpeculationMethod::kNone ? 0 : 4, temperature);
    o.plan.logit_rows = 15;
    if (GetParam() == "emulated") o.make_device = [] { return std::make_unique<EmulatedCuda>(); };
    return Engine(std::move(files), o);
  }
  std::string message_of(Engine engine, float temperature) {
    const std::vector<TokenId> p = prompt(1);
    Request r = request(p);
    r.sampling.temperature = temperature;
    return error_of([&] { engine.generate({&r, 1}, {}, {}); });
  }

  TempDir copies_;
};

TEST_P(NotFiniteWeights, StopTheTextAndNameTheLayerAtEveryTemperature) {
  struct Case {
    const char *tensor, *place;
  };
  for (const Case& c : {Case{"model.layers.1.mlp.down_proj.weight", "the MLP of layer 1"},
                        Case{"model.layers.0.self_attn.o_proj.weight", "the attention of layer 0"},
                        Case{"lm_head.weight", "the head"}})
    for (const unsigned bits : {0x7fc0u, 0xffc0u, 0x7f80u, 0xff80u})  // NaN, -NaN, inf, -inf
      for (const float temperature : {0.0f, 1.0f})
        for (const SpeculationMethod method :
             {SpeculationMethod::kNone, SpeculationMethod::kSequoia}) {
          SCOPED_TRACE(::testing::Message()
                       << c.tensor << " " << bits << " at " << temperature << " " << name(method));
          ModelFiles files{Checkpoint::open(damaged(c.tensor, static_cast<std::uint16_t>(bits))),
                           std::nullopt, nullptr};
          if (method != SpeculationMethod::kNone) files.draft = Checkpoint::open(draft_);
          const std::string message = message_of(
              make(std::move(files), method, static_cast<double>(temperature)), temperature);
          EXPECT_NE(message.find(c.place), std::string::npos) << message;
          EXPECT_NE(message.find(c.tensor), std::string::npos) << message;  // the file's name
        }
}

TEST_P(NotFiniteWeights, StopTheScoringOfAText) {
  Engine engine = make({Checkpoint::open(damaged("model.layers.1.mlp.down_proj.weight", 0x7fc0)),
                        std::nullopt, nullptr},
                       SpeculationMethod::kNone, 0);
  const std::vector<TokenId> text = prompt(1, 16);
  const std::string message = error_of([&] { measure_loss(engine, text, 16); });
  EXPECT_NE(message.find("the MLP of layer 1"), std::string::npos) << message;
}

TEST_P(NotFiniteWeights, StopThePromptThatIsScoredAndNameTheLayer) {
  for (const int rows : {0, 6}) {  // of a sweep: the prompt is read at once, or in pieces
    SCOPED_TRACE(rows);
    ModelFiles files{Checkpoint::open(damaged("model.layers.1.mlp.down_proj.weight", 0x7fc0)),
                     std::nullopt, models(false).tokenizer};
    EngineOptions o = options(SpeculationMethod::kNone);
    o.plan.prompt_rows = rows;
    if (GetParam() == "emulated") o.make_device = [] { return std::make_unique<EmulatedCuda>(); };
    Engine engine(std::move(files), o);
    Request r = request(prompt(1));
    r.prompt_logprobs = 0;
    r.max_new_tokens = 0;
    const std::string message = error_of([&] { engine.generate(r); });
    EXPECT_NE(message.find("the MLP of layer 1"), std::string::npos) << message;
  }
}

TEST_P(NotFiniteWeights, EndABeamSearchAndNameTheModel) {
  const std::filesystem::path bad = damaged("model.layers.1.mlp.down_proj.weight", 0x7fc0);
  const auto message_of_search = [&](const std::filesystem::path& target,
                                     const std::filesystem::path& draft) {
    EngineOptions o = options(SpeculationMethod::kAuto);
    o.plan.cost = nullptr;
    o.plan.beams = BeamRoom{2, 4, 2, 8};
    if (GetParam() == "emulated") o.make_device = [] { return std::make_unique<EmulatedCuda>(); };
    ModelFiles files{Checkpoint::open(target), Checkpoint::open(draft), nullptr};
    files.tokenizer = models(false).tokenizer;
    Engine engine(std::move(files), o);
    return error_of([&] { engine.search({prompt(1), 1, 8, false}); });
  };
  EXPECT_NE(message_of_search(bad, kTarget).find("the MLP of layer 1"), std::string::npos);
  EXPECT_EQ(message_of_search(kTarget, bad).find(kDraftNotFinite), 0u);
  EXPECT_EQ(message_of_search(kTarget, kTarget), "");
}

TEST_P(NotFiniteWeights, OfADraftAreItsOwn) {
  for (const float temperature : {0.0f, 1.0f}) {
    ModelFiles files{Checkpoint::open(kTarget),
                     Checkpoint::open(damaged("model.layers.0.mlp.down_proj.weight", 0x7fc0)),
                     nullptr};
    const std::string message = message_of(
        make(std::move(files), SpeculationMethod::kSequoia, static_cast<double>(temperature)),
        temperature);
    EXPECT_NE(message.find("the draft's logits"), std::string::npos) << message;
  }
}

TEST_P(NotFiniteWeights, OfADraftsDraftAreItsOwn) {
  EngineOptions o = options(SpeculationMethod::kHierarchy, 7);
  o.plan.inner.reset();
  if (GetParam() == "emulated") o.make_device = [] { return std::make_unique<EmulatedCuda>(); };
  ModelFiles files = models(true);
  files.inner = Checkpoint::open(damaged("model.layers.0.mlp.down_proj.weight", 0x7fc0));
  const std::string message = message_of(Engine(std::move(files), o), 0);
  EXPECT_NE(message.find("the draft's draft"), std::string::npos) << message;
  EXPECT_NE(message.find(kDraftNotFinite), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Devices, NotFiniteWeights, ::testing::Values("cpu", "emulated"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace canopy
