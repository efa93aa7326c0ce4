// Texts whose rotary frequencies change with their length (longrope), through the whole engine: one
// that grows out of the original length is read again, and beginnings are shared among texts of one
// kind alone.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/engine/beam/beam_search.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

class Longrope : public TinyEngine {
 protected:
  static constexpr int kOriginal = 120;

  void SetUp() override {
    const std::filesystem::path source = test_data() / "model" / "phi3_longrope";
    std::filesystem::create_directories(model());
    std::filesystem::copy(source / "model.safetensors", model() / "model.safetensors");
    auto config = nlohmann::json::parse(std::ifstream(source / "config.json"));
    config["original_max_position_embeddings"] = kOriginal;
    std::ofstream(model() / "config.json") << config;
    write_noisy_copy(model(), own_ / "draft", 0.05f);
  }
  std::filesystem::path model() const { return own_ / "model"; }

  Engine make(SpeculationMethod method = SpeculationMethod::kNone, int texts = 1,
              int nodes = 0) const {
    ModelFiles files{Checkpoint::open(model()), std::nullopt, nullptr};
    if (method != SpeculationMethod::kNone) files.draft = Checkpoint::open(own_ / "draft");
    files.tokenizer = std::make_unique<NumberTokenizer>(97, std::vector<TokenId>{});
    EngineOptions o = options(method, nodes);
    o.plan.max_prompt = 200;
    o.plan.context = 220;
    o.plan.max_sequences = texts;
    return Engine(std::move(files), o);
  }
  static Request asked(int prompt, int tokens) {
    Request request;
    for (int i = 0; i < prompt; ++i) request.prompt.push_back(i * i % 89);
    request.max_new_tokens = tokens;
    request.ignore_end = true;
    request.logprobs = 1;
    return request;
  }
  static void expect_same(const TextReport& one, const TextReport& other) {
    EXPECT_EQ(one.tokens, other.tokens);
    ASSERT_EQ(one.logprobs.size(), other.logprobs.size());
    for (std::size_t i = 0; i < one.logprobs.size(); ++i)
      EXPECT_EQ(one.logprobs[i].chosen.logprob, other.logprobs[i].chosen.logprob) << i;
  }
  static int rereads(const Engine& engine) {
    int count = 0;
    for (const std::string& note : engine.notes())
      count += note.find("grown beyond 120 tokens") != std::string::npos ? 1 : 0;
    return count;
  }

  const TempDir own_;
};

TEST_F(Longrope, EachTokenIsTheOneThatFollowsAPromptOfTheSameText) {
  constexpr int kPrompt = 115;
  const TextReport grown = make().generate(asked(kPrompt, 10));
  Request request = asked(kPrompt, 1);
  for (std::size_t i = 0; i < grown.tokens.size(); ++i) {
    const TextReport next = make().generate(request);
    EXPECT_EQ(next.tokens.at(0), grown.tokens[i]) << i;
    EXPECT_EQ(next.logprobs.at(0).chosen.logprob, grown.logprobs[i].chosen.logprob) << i;
    request.prompt.push_back(grown.tokens[i]);
  }
}

TEST_F(Longrope, TreesAcrossTheBoundaryGivePlainDecodingsText) {
  const TextReport plain = make().generate(asked(100, 60));
  for (const SpeculationMethod method :
       {SpeculationMethod::kChain, SpeculationMethod::kSequoia, SpeculationMethod::kGsd}) {
    Engine engine = make(method, 1, 16);
    const TextReport report = engine.generate(asked(100, 60));
    expect_same(report, plain);
    EXPECT_LT(report.steps, 60) << "no draft was ever right";
  }
}

TEST_F(Longrope, TextsOfBothLengthsShareSweeps) {
  std::vector<Request> requests{asked(100, 60), asked(119, 40), asked(150, 40)};
  Engine engine = make(SpeculationMethod::kSequoia, 3, 8);
  const BatchReport report = engine.generate(requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    expect_same(report.texts[i], make().generate(requests[i]));
}

TEST_F(Longrope, ANoteSaysThatATextWasReadAgain) {
  Engine engine = make();
  engine.generate(asked(110, 11));  // the last follows 120 tokens
  EXPECT_EQ(rereads(engine), 0);
  engine.generate(asked(121, 11));
  EXPECT_EQ(rereads(engine), 0);
  engine.generate(asked(110, 12));
  EXPECT_EQ(rereads(engine), 1);
}

TEST_F(Longrope, BeginningsAreSharedAmongTextsOfOneKindAlone) {
  Engine engine = make();
  const std::vector<TextReport> alone{make().generate(asked(100, 8)),
                                      make().generate(asked(150, 8))};
  const int cached[] = {0, 0, 64, 128};
  for (const std::size_t i : {0u, 1u, 2u, 3u}) {
    const TextReport report = engine.generate(asked(i % 2 == 0 ? 100 : 150, 8));
    EXPECT_EQ(report.cached_tokens, cached[i]) << i;
    expect_same(report, alone[i % 2]);
  }
}

TEST_F(Longrope, APromptCacheKeepsThemApart) {
  const std::filesystem::path file = own_ / "texts.kv";
  Engine first = make();
  const std::vector<TextReport> alone{first.generate(asked(100, 8)), first.generate(asked(150, 8))};
  first.save_prompts(file, "code");
  Engine second = make();
  EXPECT_EQ(second.load_prompts(file, "code").tokens, 64 + 128);
  for (const std::size_t i : {0u, 1u}) {
    const TextReport report = second.generate(asked(i == 0 ? 100 : 150, 8));
    EXPECT_EQ(report.cached_tokens, i == 0 ? 64 : 128);
    expect_same(report, alone[i]);
  }
}

TEST_F(Longrope, PromptsAreScoredByTheFrequenciesOfTheirOwnLength) {
  std::vector<Request> requests{asked(100, 1), asked(150, 1)};
  for (Request& request : requests) request.prompt_logprobs = 0;
  Engine together = make(SpeculationMethod::kNone, 2);
  const BatchReport report = together.generate(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const TextReport alone = make().generate(requests[i]);
    const auto& scores = report.texts[i].prompt_logprobs;
    ASSERT_EQ(scores.size(), alone.prompt_logprobs.size());
    for (std::size_t k = 0; k < scores.size(); ++k)
      EXPECT_EQ(scores[k].chosen.logprob, alone.prompt_logprobs[k].chosen.logprob) << k;
  }
  EXPECT_NE(report.texts[0].prompt_logprobs[50].chosen.logprob,
            report.texts[1].prompt_logprobs[50].chosen.logprob);
}

TEST_F(Longrope, BeamsDoNotGrowBeyondTheBoundary) {
  const auto search = [&](int prompt, int tokens) {
    ModelFiles files{Checkpoint::open(model()), std::nullopt, nullptr};
    files.tokenizer = std::make_unique<NumberTokenizer>(97, std::vector<TokenId>{});
    EngineOptions o = options(SpeculationMethod::kNone);
    o.plan.max_prompt = 200;
    o.plan.context = 220;
    o.plan.beams = BeamRoom{2, 0, 0, 12};
    Engine engine(std::move(files), o);
    const BeamRequest request{asked(prompt, 1).prompt, 1.0, tokens, true};
    return engine.search(request).texts.front().tokens;
  };
  EXPECT_NE(error_of([&] { search(115, 12); }).find("beyond 120 tokens"), std::string::npos);
  for (const int prompt : {109, 121})  // the last token follows 120 tokens, or all follow more
    EXPECT_EQ(search(prompt, 12).size(), 12u);
}

}  // namespace
}  // namespace canopy
