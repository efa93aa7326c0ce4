// Engines of ranks that share a model's rows: the first one's texts are those of one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "offload/residency.h"
#include "src/engine/ranks/follow.h"
#include "src/engine/ranks/plan_together.h"
#include "src/engine/session.h"
#include "tests/cluster/thread_ranks.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

class RanksEngine : public TinyEngine {
 protected:
  static constexpr std::int64_t kBlock = 16;  // rows: each rank of three has some of a tiny model

  /// Texts that an engine gives, alone or as the first of several.
  using Use = std::function<std::vector<std::vector<TokenId>>(Engine&)>;
  using Models = std::function<ModelFiles(int rank)>;

  /// The texts of the first of `parts` ranks, whose options `change` may differ by rank.
  static std::vector<std::vector<TokenId>> texts_of_ranks(
      const std::vector<std::int64_t>& parts, const Models& open, const EngineOptions& options,
      const Use& use, std::vector<std::string>* errors = nullptr,
      const std::function<void(int rank, EngineOptions&)>& change = {}) {
    std::vector<std::vector<TokenId>> texts;
    const auto all = on_ranks(
        parts,
        [&](Cluster& cluster) {
          EngineOptions own = options;
          own.device.threads = 1;
          own.cluster = &cluster;
          const int rank = cluster.share().rank;
          if (change) change(rank, own);
          if (rank != 0) return follow([&] { return std::move(open(rank).target); }, own);
          Engine engine(open(rank), own);
          texts = use(engine);
          end_followers(cluster);
        },
        {}, kBlock);
    if (errors != nullptr)
      *errors = all;
    else
      for (const std::string& error : all) EXPECT_EQ(error, "");
    return texts;
  }
  static void expect_equal(const Models& open, const EngineOptions& options, const Use& use) {
    Engine alone(open(0), options);
    const auto expected = use(alone);
    for (const std::vector<std::int64_t>& parts :
         {std::vector<std::int64_t>{1}, {1, 1}, {2, 1}, {1, 1, 1}})
      EXPECT_EQ(texts_of_ranks(parts, open, options, use), expected) << parts.size() << " ranks";
  }
  static Models models_of(SpeculationMethod method) {
    return [=](int) { return models_for(method); };
  }
  static Use one_text(const Request& request) {
    return [=](Engine& engine) {
      return std::vector<std::vector<TokenId>>{engine.generate(request).tokens};
    };
  }
  static Use texts(const std::vector<Request>& requests) {
    return [=](Engine& engine) {
      std::vector<std::vector<TokenId>> all;
      for (const TextReport& report : engine.generate(requests).texts) all.push_back(report.tokens);
      return all;
    };
  }
};

TEST_F(RanksEngine, WritesThePlainTextOfOneProcess) {
  expect_equal(models_of(SpeculationMethod::kNone), options(SpeculationMethod::kNone),
               one_text(request(prompt(1))));
}

TEST_F(RanksEngine, FollowsOneEngineAfterAnother) {
  const Request asked = request(prompt(1));
  Engine alone(models_for(SpeculationMethod::kNone), options(SpeculationMethod::kNone));
  const std::vector<TokenId> expected = alone.generate(asked).tokens;
  const auto use = [&](SpeculationMethod method, Cluster& cluster) {
    EngineOptions own = options(method);
    own.device.threads = 1;
    own.cluster = &cluster;
    return own;
  };
  const auto errors = on_ranks(
      {1, 1},
      [&](Cluster& cluster) {
        if (cluster.share().rank != 0)
          return follow([&] { return std::move(models_for(SpeculationMethod::kNone).target); },
                        use(SpeculationMethod::kNone, cluster));
        for (const SpeculationMethod method :
             {SpeculationMethod::kNone, SpeculationMethod::kChain, SpeculationMethod::kNone}) {
          Engine engine(models_for(method), use(method, cluster));
          engine.check_ranks();
          EXPECT_EQ(engine.generate(asked).tokens, expected);
        }
        end_followers(cluster);
      },
      {}, kBlock);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(RanksEngine, WritesTheTextOfOneProcessWithChainsAndTreesOfADraft) {
  for (const auto& [method, nodes, levels] : {std::tuple{SpeculationMethod::kChain, 6, 0},
                                              {SpeculationMethod::kSequoia, 16, 5},
                                              {SpeculationMethod::kTopK, 12, 4}})
    expect_equal(models_of(method), options(method, nodes, levels), one_text(request(prompt(2))));
}

TEST_F(RanksEngine, WritesSampledTextsOfOneProcess) {
  for (const bool reproducible : {false, true}) {
    Request sampled = request(prompt(3));
    sampled.sampling.temperature = 0.9f;
    sampled.seed = 7;
    sampled.reproducible = reproducible;
    expect_equal(models_of(SpeculationMethod::kSequoia),
                 options(SpeculationMethod::kSequoia, 16, 5, 0.9), one_text(sampled));
  }
}

TEST_F(RanksEngine, WritesTheTextOfOneProcessWhereWeightsAreStreamed) {
  EngineOptions streamed = options(SpeculationMethod::kSequoia, 16, 5);
  streamed.plan.resident = 0;
  expect_equal(models_of(SpeculationMethod::kSequoia), streamed, one_text(request(prompt(4))));
}

TEST_F(RanksEngine, KeepsTextsThatShareSweepsAndBlocks) {
  EngineOptions shared = options(SpeculationMethod::kSequoia, 8, 3);
  shared.plan.max_sequences = 3;
  shared.plan.max_prompt = 160;
  shared.plan.context = 160 + kNew;
  std::vector<Request> requests;
  for (unsigned p = 0; p < 5; ++p) requests.push_back(request(prompt(p, 20)));
  requests.push_back(request(prompt(9, 150)));
  requests.push_back(request(prompt(9, 150)));  // adopts the blocks of the one before
  expect_equal(models_of(SpeculationMethod::kSequoia), shared, texts(requests));
}

TEST_F(RanksEngine, KeepsTextsThatWaitForRoomInTheKvPool) {
  constexpr int kShort = 8, kMany = 200;
  EngineOptions o = options(SpeculationMethod::kNone);
  o.plan.max_prompt = kShort;
  o.plan.context = kShort + kMany;
  o.plan.max_sequences = 3;
  const Engine roomy(models(false), o);
  o.plan.kv_memory = 8 * KvPool::bytes_needed(roomy.models().target.config(), 1, roomy.plan().kv);
  std::vector<Request> requests;
  for (unsigned p = 0; p < 3; ++p) {
    requests.push_back(request(prompt(p, kShort)));
    requests.back().max_new_tokens = kMany;
  }
  expect_equal(models_of(SpeculationMethod::kNone), o, texts(requests));
}

TEST_F(RanksEngine, WritesTheTextOfOneProcessOfAMixtureWhoseExpertsAreCached) {
  const Models mixture = [](int) {
    ModelFiles files{Checkpoint::open(test_data() / "model" / "mixtral"), std::nullopt, nullptr};
    files.tokenizer = std::make_unique<NumberTokenizer>(files.target.config().vocab,
                                                        files.target.config().end_tokens);
    return files;
  };
  EngineOptions o = options(SpeculationMethod::kNone);
  Request one = request(prompt(5));
  for (TokenId& token : one.prompt) token %= mixture(0).target.config().vocab;
  for (const bool streamed : {false, true}) {
    if (streamed) o.plan.resident = 0;
    expect_equal(mixture, o, one_text(one));
  }
}

TEST_F(RanksEngine, ReadsOnlyItsRows) {
  EngineOptions streamed = options(SpeculationMethod::kNone);
  streamed.plan.resident = 0;
  Engine alone(models_for(SpeculationMethod::kNone), streamed);
  std::uint64_t bytes = 0;
  texts_of_ranks({1, 1, 1}, models_of(SpeculationMethod::kNone), streamed, [&](Engine& engine) {
    bytes = engine.plan().sweep_bytes;
    return std::vector<std::vector<TokenId>>();
  });
  EXPECT_GT(bytes, 0u);
  EXPECT_LT(bytes, alone.plan().sweep_bytes);
}

TEST_F(RanksEngine, RefusesRanksWithAnotherModelOnAllOfThem) {
  std::vector<std::string> errors;
  texts_of_ranks(
      {1, 1},
      [&](int rank) {
        ModelFiles files = models(false);
        if (rank == 1) files.target = Checkpoint::open(draft_);
        return files;
      },
      options(SpeculationMethod::kNone), one_text(request(prompt(1))), &errors);
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("do not agree: the model's fingerprint is"), std::string::npos) << error;
    EXPECT_NE(error.find("rank 1 (this process)"), std::string::npos) << error;
  }
}

/// The second rank's own copy of the model is cut off while texts are written.
TEST_F(RanksEngine, EndsAllWithTheErrorOfARankWhoseFileIsCutOff) {
  const TempDir dir;
  std::filesystem::copy(kTarget, dir / "copy");
  const std::filesystem::path file = dir / "copy" / "model.safetensors";
  EngineOptions streamed = options(SpeculationMethod::kNone);
  streamed.plan.resident = 0;
  std::vector<std::string> errors;
  const auto start = Clock::now();
  texts_of_ranks(
      {1, 1},
      [&](int rank) {
        ModelFiles files = models(false);
        if (rank == 1) files.target = Checkpoint::open(dir / "copy");
        return files;
      },
      streamed,
      [&](Engine& engine) {
        GenerateEvents events;
        events.on_token = [&](std::size_t, TokenId) {
          std::filesystem::resize_file(file, 4096);
          return true;
        };
        const Request one = request(prompt(1));
        engine.generate({&one, 1}, events);
        return std::vector<std::vector<TokenId>>();
      },
      &errors);
  for (const std::string& error : errors)
    EXPECT_NE(error.find(file.string()), std::string::npos) << error;
  EXPECT_NE(errors[0].find("rank 1 (this process): "), std::string::npos) << errors[0];
  EXPECT_LT(since(start), Seconds(30));  // no timeout has to end
}

TEST_F(RanksEngine, PlansEachRankInItsOwnBudget) {
  EngineOptions o = options(SpeculationMethod::kNone);
  std::vector<std::string> errors;
  const std::uint64_t plenty = std::uint64_t{1} << 30;
  const auto with_second = [&](std::uint64_t bytes) {
    return texts_of_ranks(
        {1, 1}, models_of(SpeculationMethod::kNone), o, one_text(request(prompt(1))), &errors,
        [=](int rank, EngineOptions& own) { own.plan.memory = rank == 0 ? plenty : bytes; });
  };
  EXPECT_EQ(with_second(plenty / 2).size(), 1u);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  with_second(std::uint64_t{8} << 20);
  for (const std::string& error : errors)
    EXPECT_NE(error.find("memory budget"), std::string::npos) << error;
  EXPECT_NE(errors[0].find("rank 1 (this process): "), std::string::npos) << errors[0];
}

TEST_F(RanksEngine, RefusesWhatSeveralProcessesCannotDo) {
  std::vector<std::string> errors;
  texts_of_ranks({1, 1}, models_of(SpeculationMethod::kSelfSsd),
                 options(SpeculationMethod::kSelfSsd, 4, 2), one_text(request(prompt(1))), &errors);
  EXPECT_NE(errors[0].find("drafts with its own layers"), std::string::npos) << errors[0];
  Request scored = request(prompt(1));
  scored.prompt_logprobs = 0;
  texts_of_ranks({1, 1}, models_of(SpeculationMethod::kNone), options(SpeculationMethod::kNone),
                 one_text(scored), &errors);
  EXPECT_NE(errors[0].find("log probabilities of a prompt"), std::string::npos) << errors[0];
}

TEST_F(RanksEngine, GoesOnAfterATextWasCancelled) {
  EngineOptions o = options(SpeculationMethod::kNone);
  const Use use = [](Engine& engine) {
    std::vector<std::vector<TokenId>> all;
    Session session = engine.open_session();
    const Request one = request(prompt(6));
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<TokenId> got;
      Ticket ticket = 0;
      RequestEvents events;
      events.on_token = [&](TokenId token, const TokenReport*) {
        got.push_back(token);
        return true;
      };
      ticket = session.admit(one, std::move(events));
      int sweeps = 0;
      // Within a sweep of the first turn nobody is left: the sweep stops on all ranks.
      while (session.step({}, [&](const Unit&) {
        if (turn == 0 && sweeps == 4) session.cancel(ticket);
      }))
        ++sweeps;
      all.push_back(got);
    }
    EXPECT_LT(all[0].size(), all[1].size());
    all.erase(all.begin());
    return all;
  };
  expect_equal(models_of(SpeculationMethod::kNone), o, use);
}

TEST_F(RanksEngine, AreAsFastAsTheOneWhoseReadsTakeLongest) {
  const ModelFiles models = models_for(SpeculationMethod::kNone);
  for (const std::vector<std::int64_t>& parts :
       {std::vector<std::int64_t>{1, 1}, {1, 1, 1}, {1, 2, 1}}) {
    double most = 0;
    std::vector<double> seconds;  // as each rank sees it, of disks as fast as the parts
    for (int rank = 0; rank < std::ssize(parts); ++rank) {
      const Share share{rank, parts, kBlock};
      const SweepLayout sweep = lay_out_sweep(models.target, ExpertsAre::kInUnits, share);
      const double own = static_cast<double>(travelling_bytes(sweep, none_resident(sweep))) /
                         static_cast<double>(parts[static_cast<std::size_t>(rank)]);
      most = std::max(most, own);
      seconds.push_back(own * network_of(models.target, share, {}).reads);
    }
    for (const double as_seen : seconds) EXPECT_NEAR(as_seen, most, 1e-9 * most);
  }
  EXPECT_GT(network_of(models.target, {2, {1, 1, 1}, kBlock}, {}).reads, 1.01)
      << "blocks do not divide the rows";
}

}  // namespace
}  // namespace canopy
