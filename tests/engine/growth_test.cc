// Trees that the draft's own rows end, and rules that are not exact, in an engine.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/engine/engine_parts.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {
namespace {

using Growths = TinyEngine;

TEST_F(Growths, AnAdaptiveChainWritesPlainDecodingsText) {
  Engine plain = make(SpeculationMethod::kNone);
  EngineOptions o = options(SpeculationMethod::kAdaptive, 8);
  o.plan.cost = dear_drafts();
  Engine engine(models(true), o);
  EXPECT_GT(engine.plan().policy.growth.bound, 0.05);
  EXPECT_FALSE(engine.plan().adaptive);
  for (unsigned p = 0; p < 8; ++p)
    for (const float temperature : {0.0f, 1.0f}) {
      Request r = request(prompt(p));
      r.sampling.temperature = temperature;
      r.reproducible = true;
      r.seed = p;
      EXPECT_EQ(engine.generate(r).tokens, plain.generate(r).tokens) << p << " at " << temperature;
    }
}

TEST_F(Growths, AnAdaptiveChainDraftsLessWhereDraftsAreDear) {
  EngineOptions o = options(SpeculationMethod::kAdaptive, 8);
  const auto nodes = [&](const std::shared_ptr<const CostModel>& cost, double bound) {
    o.plan.cost = cost;
    Engine engine(models(true), o);
    Session session = engine.open_session();
    session.admit(request(prompt(1)));
    int nodes = 0, sweeps = 0;
    for (; session.step(); ++sweeps)
      for (const CheckedTree& tree : session.last_sweep().trees)
        nodes += static_cast<int>(tree.tokens.size());
    EXPECT_GE(engine.plan().policy.growth.bound, bound);
    return static_cast<double>(nodes) / sweeps;
  };
  const double dear = nodes(dear_drafts(), 0.05), cheap = nodes(made_up_cost(), 0);
  EXPECT_LT(dear, cheap);
  EXPECT_LE(cheap, 8);
}

TEST_F(Growths, AnAdaptiveChainThatIsNotGivenALengthMayBeLongerThanAFixedOne) {
  const Engine fixed = make(SpeculationMethod::kChain),
               adaptive = make(SpeculationMethod::kAdaptive);
  EXPECT_GT(adaptive.plan().policy.shape.size(), fixed.plan().policy.shape.size());
  EXPECT_EQ(adaptive.plan().policy.shape.levels(), adaptive.plan().policy.shape.size());
}

TEST_F(Growths, AdaptiveChainsShareSweepsAndKeepEachText) {
  EngineOptions o = options(SpeculationMethod::kAdaptive, 6);
  o.plan.cost = dear_drafts();
  o.plan.max_sequences = 3;
  Engine engine(models(true), o), plain = make(SpeculationMethod::kNone);
  std::vector<Request> requests;
  for (unsigned p = 0; p < 7; ++p) requests.push_back(request(prompt(p, 5 + static_cast<int>(p))));
  const BatchReport report = engine.generate(requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(report.texts[i].tokens, plain.generate(requests[i]).tokens) << i;
}

TEST_F(Growths, PenaltiesReachAnAdaptiveChain) {
  EngineOptions o = options(SpeculationMethod::kAdaptive, 6);
  Engine engine(models(true), o), plain = make(SpeculationMethod::kNone);
  Request r = request(prompt(4));
  r.edits.repetition = 1.3f;
  r.edits.presence = 0.5f;
  EXPECT_EQ(engine.generate(r).tokens, plain.generate(r).tokens);
}

TEST_F(Growths, AHierarchyWritesTheTextOfItsChainWhateverGuesses) {
  // Without costs an adaptive chain is never cut: the same tokens are drawn by the same numbers.
  EngineOptions alone = options(SpeculationMethod::kAdaptive, 7, 0, 1.0);
  alone.plan.cost = nullptr;
  Engine chain(models(true), alone);
  Engine plain = make(SpeculationMethod::kNone);
  for (const char* inner : {"copy:1", "ngram:2", "random"}) {
    EngineOptions o = options(SpeculationMethod::kHierarchy, 7, 0, 1.0);
    o.plan.inner = draft_source_named(inner);
    Engine engine(models(true), o);
    for (unsigned p = 0; p < 4; ++p)
      for (const float temperature : {0.0f, 1.0f}) {
        Request r = request(prompt(p));
        r.sampling.temperature = temperature;
        r.seed = p;
        const TextReport text = engine.generate(r), expected = chain.generate(r);
        EXPECT_EQ(text.tokens, expected.tokens) << inner << " " << p << " at " << temperature;
        EXPECT_EQ(text.step_tokens, expected.step_tokens);
        EXPECT_TRUE(temperature > 0 || text.tokens == plain.generate(r).tokens);
      }
  }
}

TEST_F(Growths, AHierarchyOfThreeModelsWritesTheTextOfItsChain) {
  const std::filesystem::path vague =
      write_noisy_copy(kTarget, dir_->path() / "draft's draft", 0.5f);
  EngineOptions alone = options(SpeculationMethod::kAdaptive, 7, 0, 1.0);
  alone.plan.cost = nullptr;
  alone.plan.max_sequences = 3;
  Engine chain(models(true), alone);
  for (const auto& path : {draft_, vague, kTarget}) {
    SCOPED_TRACE(path);
    EngineOptions o = options(SpeculationMethod::kHierarchy, 7, 0, 1.0);
    o.plan.inner.reset();
    o.plan.max_sequences = 3;
    ModelFiles files = models(true);
    files.inner = Checkpoint::open(path);
    Engine engine(std::move(files), o);
    EXPECT_EQ(engine.disk_bytes(),
              chain.disk_bytes() + resident_bytes(*engine.parts().sweeps().inner));
    for (const float temperature : {0.0f, 1.0f}) {
      std::vector<Request> requests;
      for (unsigned p = 0; p < 5; ++p) {
        requests.push_back(request(prompt(p)));
        requests.back().sampling.temperature = temperature;
        requests.back().seed = p;
      }
      const BatchReport report = engine.generate(requests);
      for (std::size_t p = 0; p < requests.size(); ++p) {
        const TextReport expected = chain.generate(requests[p]);
        EXPECT_EQ(report.texts[p].tokens, expected.tokens) << p << " at " << temperature;
        EXPECT_EQ(report.texts[p].step_tokens, expected.step_tokens);
      }
    }
  }
}

TEST_F(Growths, AHierarchysThirdModelIsInItsBudget) {
  EngineOptions o = options(SpeculationMethod::kHierarchy, 7);
  o.plan.inner.reset();
  ModelFiles files = models(true);
  files.inner = Checkpoint::open(draft_);
  const Engine engine(std::move(files), o);
  const auto entry = [&](const std::string& what) {
    for (const LedgerEntry& line : engine.plan().ledger)
      if (line.what.starts_with(what)) return line.bytes;
    return std::uint64_t{0};
  };
  EXPECT_EQ(entry("draft's draft weights"), entry("draft weights"));
  EXPECT_EQ(entry("draft's draft KV cache"), entry("draft KV cache"));
  EXPECT_GT(entry("draft's draft weights"), 0u);
}

TEST_F(Growths, AHierarchyNeedsASecondDraftAndNothingElseTakesOne) {
  EngineOptions o = options(SpeculationMethod::kHierarchy, 7);
  ModelFiles both = models(true);
  both.inner = Checkpoint::open(draft_);
  EXPECT_THROW(Engine(std::move(both), o), Error);
  o.plan.inner.reset();
  EXPECT_THROW(Engine(models(true), o), Error);
  o = options(SpeculationMethod::kChain, 7);
  o.plan.inner = draft_source_named("copy");
  EXPECT_THROW(Engine(models(true), o), Error);
}

constexpr SpeculationMethod kGraphs[] = {SpeculationMethod::kGsd, SpeculationMethod::kTsd,
                                         SpeculationMethod::kSsd, SpeculationMethod::kGsdSequoia,
                                         SpeculationMethod::kGsdRatio};

TEST_F(Growths, GraphsWritePlainDecodingsTextWithAnySettings) {
  Engine plain = make(SpeculationMethod::kNone);
  std::vector<Request> requests;
  std::vector<std::vector<TokenId>> texts;
  for (unsigned p = 0; p < 3; ++p) {
    requests.push_back(request(prompt(p)));
    texts.push_back(plain.generate(requests.back()).tokens);
  }
  int copied = 0, saved = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    EngineOptions o =
        options(kGraphs[random() % std::size(kGraphs)], 2 + static_cast<int>(random() % 40));
    o.plan.growth.children = 1 + static_cast<int>(random() % 5);
    o.plan.growth.steps = 1 + static_cast<int>(random() % 8);
    o.plan.growth.least = 0.02 * static_cast<double>(random() % 10);
    o.plan.growth.least_of_siblings = 0.1 * static_cast<double>(random() % 10);
    o.plan.growth.merge = 1 + static_cast<int>(random() % 3);
    o.plan.max_sequences = 3;
    Engine engine(models(true), o);
    EXPECT_FALSE(engine.plan().inexact);  // the ratio is exact at temperature 0
    EXPECT_FALSE(engine.plan().prediction);
    const BatchReport report = engine.generate(requests);
    for (std::size_t p = 0; p < texts.size(); ++p) {
      EXPECT_EQ(report.texts[p].tokens, texts[p]) << p;
      copied += report.texts[p].copied_steps;
      saved += kNew - report.texts[p].steps;
      EXPECT_GT(report.texts[p].drafted_rows, 0);
    }
  }
  EXPECT_GT(copied, 0);
  EXPECT_GT(saved, 200);
}

TEST_F(Growths, AReproducibleTextOfAGraphIsPlainSamplings) {
  Engine plain = make(SpeculationMethod::kNone);
  for (const SpeculationMethod method :
       {SpeculationMethod::kGsd, SpeculationMethod::kGsdSequoia, SpeculationMethod::kSsd}) {
    Engine engine = make(method, 16, 0, 1.0);
    for (unsigned p = 0; p < 3; ++p) {
      Request r = request(prompt(p));
      r.sampling.temperature = 1;
      r.reproducible = true;
      r.seed = p;
      EXPECT_EQ(engine.generate(r).tokens, plain.generate(r).tokens);
    }
  }
}

TEST_F(Growths, AModelDraftsWithWhatRestsOfItAndNothingMovesForThat) {
  for (const bool on_gpu : {false, true})
    for (const float temperature : {0.0f, 1.0f}) {
      SCOPED_TRACE(::testing::Message() << (on_gpu ? "emulated" : "cpu") << " at " << temperature);
      EngineOptions o = options(SpeculationMethod::kNone, 0, 0, static_cast<double>(temperature));
      o.plan.cost = nullptr;
      if (on_gpu) o.make_device = [] { return std::make_unique<EmulatedCuda>(); };
      Engine plain(models(false), o);
      o.plan.method = SpeculationMethod::kSelfSsd;
      o.plan.tree_size = 6;
      o.plan.resident_layers = 1;  // the fewest that it can draft with
      o.plan.growth.least = 0;
      o.plan.max_sequences = 3;
      Engine engine(models(false), o);
      EXPECT_FALSE(engine.plan().resident);
      std::vector<Request> requests;
      for (unsigned p = 0; p < 5; ++p) {
        requests.push_back(request(prompt(p)));
        requests.back().sampling.temperature = temperature;
        requests.back().reproducible = true;
        requests.back().seed = p;
      }
      const BatchReport report = engine.generate(requests);
      int steps = 0;
      for (std::size_t p = 0; p < requests.size(); ++p) {
        EXPECT_EQ(report.texts[p].tokens, plain.generate(requests[p]).tokens) << p;
        EXPECT_GT(report.texts[p].drafted_rows, 0);
        steps += report.texts[p].steps;
      }
      EXPECT_LT(steps, 5 * kNew);
    }
}

TEST_F(Growths, ADraftOfRestingUnitsReadsNothing) {
  EngineOptions o = options(SpeculationMethod::kSelfSsd, 6);
  o.plan.growth.least = 0;
  Engine engine(models(false), o);
  const std::uint64_t before = engine.link().disk_bytes;
  const TextReport text = engine.generate(request(prompt(1)));
  EXPECT_GT(text.drafted_rows, 2 * text.steps);
  const auto sweeps = static_cast<std::uint64_t>(text.steps) + 1;  // the next is read ahead
  EXPECT_LE(engine.link().disk_bytes - before, sweeps * engine.plan().sweep_bytes);
}

TEST_F(Growths, ADraftOfRestingUnitsNeedsSomeAtRestAndSomeThatTravel) {
  const auto why = [](EngineOptions o, bool with_draft) {
    return error_of([&] { Engine(models(with_draft), o); });
  };
  EngineOptions o = options(SpeculationMethod::kSelfSsd, 6);
  o.plan.resident_layers.reset();
  EXPECT_NE(why(o, false).find("none travel"), std::string::npos);
  for (const std::uint64_t too_few : {0, 1, 6144}) {
    o.plan.resident = too_few;
    EXPECT_NE(why(o, false).find("at least 0.0 MiB"), std::string::npos) << too_few;
  }
  o.plan.resident.reset();
  o.plan.resident_layers = 1;
  EXPECT_NE(why(o, true).find("no other draft"), std::string::npos);
  EXPECT_EQ(why(o, false), "");
  o.plan.memory = 1 << 20;
  EXPECT_NE(why(o, false).find("too small"), std::string::npos);
}

TEST_F(Growths, TheRatioOfGraphsIsLabelledWhereItIsNotExact) {
  Engine engine = make(SpeculationMethod::kGsdRatio, 16, 0, 1.0);
  ASSERT_TRUE(engine.plan().inexact);
  EXPECT_EQ(engine.plan().inexact->kind, InexactRule::Kind::kRatio);
  Request r = request(prompt(1));
  r.sampling.temperature = 1;
  EXPECT_EQ(std::ssize(engine.generate(r).tokens), kNew);
}

/// BiLD with this fallback and rollback.
EngineOptions bild(EngineOptions o, double fallback, double rollback) {
  o.plan.fallback = fallback;
  o.plan.rollback = rollback;
  return o;
}

TEST_F(Growths, BildThatIsNeverSureIsPlainDecodingBitForBit) {
  for (const double temperature : {0.0, 1.0}) {
    Engine plain = make(SpeculationMethod::kNone, 0, 0, temperature);
    Engine engine(models(true), bild(options(SpeculationMethod::kBild, 0, 0, temperature), 1.1, 2));
    EXPECT_EQ(engine.plan().inexact->kind, InexactRule::Kind::kRollback);
    for (unsigned p = 0; p < 4; ++p) {
      Request r = request(prompt(p));
      r.sampling.temperature = static_cast<float>(temperature);
      r.seed = p;
      const TextReport text = engine.generate(r);
      EXPECT_EQ(text.tokens, plain.generate(r).tokens);
      EXPECT_EQ(text.steps, kNew);
    }
  }
}

TEST_F(Growths, BildThatRollsAllBackWritesPlainDecodingsText) {
  Engine plain = make(SpeculationMethod::kNone);
  Engine engine(models(true), bild(options(SpeculationMethod::kBild), 0, 0));
  for (unsigned p = 0; p < 4; ++p) {
    const Request r = request(prompt(p));
    const TextReport text = engine.generate(r);
    EXPECT_EQ(text.tokens, plain.generate(r).tokens);
    EXPECT_EQ(text.steps, kNew);
  }
}

TEST_F(Growths, BildThatNeverFallsOrRollsBackTakesWholeRuns) {
  Engine engine(models(true), bild(options(SpeculationMethod::kBild, 8), 0, HUGE_VAL));
  for (const float temperature : {0.0f, 1.0f}) {
    Request r = request(prompt(1));
    r.sampling.temperature = temperature;
    EXPECT_EQ(engine.generate(r).steps, kNew / 8);
  }
}

TEST_F(Growths, BildKeepsTokensUpToTheFirstThatTheTargetThinksTooUnlikely) {
  constexpr double kMost = 1.5;
  Engine engine(models(true), bild(options(SpeculationMethod::kBild, 8), 0, kMost));
  int kept = 0, rolled_back = 0, unlikely = 0;
  for (unsigned p = 0; p < 8; ++p) {
    Session session = engine.open_session();
    Request r = request(prompt(p));
    r.sampling.temperature = p % 2 == 0 ? 0.0f : 1.0f;
    r.seed = p;
    r.logprobs = 97;  // of every token
    std::vector<TokenReport> received;
    RequestEvents events;
    events.on_token = [&](TokenId, const TokenReport* report) {
      received.push_back(*report);
      return true;
    };
    session.admit(r, events);
    for (std::size_t before = 0; session.step(); before = received.size()) {
      const CheckedTree& tree = session.last_sweep().trees.front();
      const std::size_t accepted = tree.path.size() - 1;
      if (received.size() - before <= accepted) continue;  // the text's end cut this step
      for (std::size_t i = 0; i < accepted; ++i, ++kept)
        EXPECT_LE(-received[before + i].chosen.logprob, kMost + 1e-6);
      const TokenReport& last = received[before + accepted];
      unlikely += -last.chosen.logprob > kMost ? 1 : 0;
      if (accepted + 1 == tree.tokens.size()) continue;
      ++rolled_back;
      for (const TokenLogprob& one : last.top)
        if (one.token == tree.tokens[accepted + 1]) {
          EXPECT_GT(-one.logprob, kMost - 1e-6) << "it was likely enough to stay";
        }
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(rolled_back, 20);
  EXPECT_GT(unlikely, 0);  // the target's own tokens may be
}

TEST_F(Growths, AreRefusedWithoutADraftModel) {
  for (const SpeculationMethod method :
       {SpeculationMethod::kGsd, SpeculationMethod::kGsdSequoia, SpeculationMethod::kBild,
        SpeculationMethod::kMtad, SpeculationMethod::kAdaptive}) {
    EXPECT_THROW(Engine(models(false), options(method, 4)), Error);
    EngineOptions o = options(method, 4);
    o.plan.draft = draft_source_named("copy");
    EXPECT_THROW(Engine(models(false), o), Error);
    o = options(method, 4);
    o.plan.lenience = 0.5;
    if (method == SpeculationMethod::kAdaptive) continue;
    EXPECT_THROW(Engine(models(true), o), Error);
  }
}

TEST_F(Growths, LenienceIsLabelledAndSavesSweeps) {
  for (const double temperature : {0.0, 1.0}) {
    EngineOptions o = options(SpeculationMethod::kSequoia, 12, 4, temperature);
    o.plan.lenience = 0.1;
    Engine lenient(models(true), o);
    ASSERT_TRUE(lenient.plan().inexact);
    EXPECT_EQ(lenient.plan().inexact->threshold, 0.1);
    EXPECT_TRUE(std::any_of(lenient.notes().begin(), lenient.notes().end(), [](const auto& note) {
      return note.find("not exactly the model's") != std::string::npos;
    }));
    o.plan.lenience = 1;
    Engine strict(models(true), o);
    EXPECT_FALSE(strict.plan().inexact);
    int lenient_steps = 0, strict_steps = 0;
    for (unsigned p = 0; p < 6; ++p) {
      Request r = request(prompt(p));
      r.sampling.temperature = static_cast<float>(temperature);
      r.seed = p;
      lenient_steps += lenient.generate(r).steps;
      strict_steps += strict.generate(r).steps;
    }
    EXPECT_LT(lenient_steps, strict_steps) << temperature;
  }
}

TEST_F(Growths, LenienceOfZeroKeepsEveryDraftedToken) {
  EngineOptions o = options(SpeculationMethod::kChain, 5);
  o.plan.lenience = 0;
  const TextReport text = Engine(models(true), o).generate(request(prompt(1)));
  EXPECT_EQ(text.steps, kNew / 5);
}

TEST_F(Growths, LenienceIsRefusedBesideOtherRules) {
  for (const SpeculationMethod method :
       {SpeculationMethod::kTopK, SpeculationMethod::kNaive, SpeculationMethod::kSpecTr}) {
    EngineOptions o = options(method, 6, 3);
    o.plan.shape = TreeShape::chain(3);
    o.plan.lenience = 0.5;
    EXPECT_THROW(Engine(models(true), o), Error);
  }
}

}  // namespace
}  // namespace canopy
