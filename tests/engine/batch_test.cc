#include <gtest/gtest.h>

#include <set>

#include "src/base/error.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

constexpr int kTexts = 5;

/// Several texts in one sweep. Prompts and lengths differ; shapes are given, so that a tree is the
/// same however many share the sweep.
class Batch : public TinyEngine {
 protected:
  static Engine make(SpeculationMethod method, double temperature, int sequences) {
    EngineOptions o = options(method, 0, 0, temperature);
    o.plan.max_sequences = sequences;
    // The bound of an adaptive chain depends on how many share a sweep; without costs it is 0.
    // Nor are prompts then spread over the sweeps of a model that streams.
    if (row_of(method).growth == Growth::Kind::kReach || drafts_with_itself(method))
      o.plan.cost = nullptr;
    if (method == SpeculationMethod::kMtad)
      o.plan.joint_tokens = 4;
    else if (row_of(method).form == TreeForm::kChain || row_of(method).form == TreeForm::kGraph ||
             row_of(method).growth == Growth::Kind::kValued)
      o.plan.tree_size = 5;
    else if (method != SpeculationMethod::kNone)
      o.plan.shape = TreeShape::from_parents({-1, 0, 0, 0, 1, 1, 2, 4});
    return Engine(models_for(method), o);
  }
  Batch() {
    for (unsigned i = 0; i < 12; ++i)
      prompts_.push_back(prompt(i, 1 + 7 * static_cast<int>(i) % 30));
  }
  std::vector<Request> requests(int count, double temperature) const {
    std::vector<Request> all;
    for (int i = 0; i < count; ++i) {
      Request r = request(prompts_[static_cast<std::size_t>(i)]);
      r.sampling.temperature = static_cast<float>(temperature);
      r.seed = 7;
      r.sequence = static_cast<std::uint32_t>(i);
      r.max_new_tokens = kNew - 5 * (i % 3);
      all.push_back(r);
    }
    return all;
  }
  static std::vector<TextReport> each_alone(SpeculationMethod method, double temperature,
                                            std::span<const Request> requests) {
    Engine engine = make(method, temperature, 1);
    std::vector<TextReport> texts;
    for (const Request& r : requests) texts.push_back(engine.generate(r));
    return texts;
  }
  static std::vector<double> logprobs(const TextReport& report) {
    std::vector<double> all;
    for (const TokenReport& token : report.logprobs) {
      all.push_back(token.chosen.logprob);
      for (const TokenLogprob& top : token.top) all.push_back(top.logprob);
    }
    return all;
  }

  std::vector<std::vector<TokenId>> prompts_;
};

TEST_F(Batch, GivesEachPromptTheTextThatItHasAloneBitForBitWithEveryMethod) {
  for (const Method& row : kMethods) {
    const SpeculationMethod method = row.id;
    if (method == SpeculationMethod::kAuto) continue;
    for (const double temperature : {0.0, 1.0}) {
      SCOPED_TRACE(row.name + std::string(" at temperature ") + std::to_string(temperature));
      std::vector<Request> all = requests(kTexts, temperature);
      for (Request& r : all) r.logprobs = 2;
      const std::vector<TextReport> alone = each_alone(method, temperature, all);
      const BatchReport together = make(method, temperature, kTexts).generate(all);
      int most = 0, tokens = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(together.texts[i].tokens, alone[i].tokens) << "text " << i;
        EXPECT_EQ(together.texts[i].finish_reason, "length");
        // Valued trees follow what all texts have shown: a text is the same, not its steps, nor the
        // slots of its nodes, which a logarithm's last bits depend on.
        if (row.growth != Growth::Kind::kValued || temperature > 0) {
          EXPECT_EQ(together.texts[i].steps, alone[i].steps);
          EXPECT_EQ(logprobs(together.texts[i]), logprobs(alone[i]));
        }
        most = std::max(most, together.texts[i].steps);
        tokens += static_cast<int>(alone[i].tokens.size());
      }
      EXPECT_EQ(together.sweeps, most);  // all share each sweep
      EXPECT_EQ(together.tokens, tokens);
    }
  }
}

TEST_F(Batch, OfMoreTextsThanShareASweepLetsTheNextTakeTheCachesOfOneThatEnded) {
  const std::vector<Request> all = requests(12, 1.0);
  const std::vector<TextReport> alone = each_alone(SpeculationMethod::kSequoia, 1.0, all);
  int steps = 0;
  for (const TextReport& text : alone) steps += text.steps;
  for (const int sequences : {2, 3, 11}) {
    SCOPED_TRACE(sequences);
    Engine engine = make(SpeculationMethod::kSequoia, 1.0, sequences);
    EXPECT_EQ(engine.plan().max_sequences, sequences);
    std::vector<std::size_t> done;
    GenerateEvents events;
    events.on_text = [&](std::size_t i, const TextReport& text) {
      EXPECT_EQ(text.tokens, alone[i].tokens);
      done.push_back(i);
    };
    std::size_t received = 0;
    events.on_token = [&](std::size_t, TokenId) { return ++received != 0; };
    events.on_step = [&](const StepProgress& step) {
      EXPECT_EQ(step.texts_done, static_cast<int>(done.size()));
    };
    const BatchReport report = engine.generate(all, events);
    EXPECT_EQ(received, static_cast<std::size_t>(report.tokens));
    EXPECT_EQ(std::set(done.begin(), done.end()).size(), all.size());
    EXPECT_EQ(done.size(), all.size());
    // A place is idle only while the last texts end.
    EXPECT_GE(report.sweeps * sequences, steps);
    EXPECT_LE((report.sweeps - kNew) * sequences, steps);
  }
}

TEST_F(Batch, ATextThatEndsEarlyDoesNotDisturbTheOthers) {
  std::vector<Request> all = requests(kTexts, 0.0);
  const std::vector<TextReport> whole = each_alone(SpeculationMethod::kSequoia, 0.0, all);
  const TokenId end = whole[2].tokens[3];
  ModelFiles files = models(true);
  files.tokenizer =
      std::make_unique<NumberTokenizer>(files.target.config().vocab, std::vector{end});
  EngineOptions o = options(SpeculationMethod::kSequoia, 8);
  o.plan.max_sequences = kTexts;
  Engine engine(std::move(files), o);
  all[2].ignore_end = false;
  all[4].max_new_tokens = 1;
  const BatchReport report = engine.generate(all);
  const auto& ended = whole[2].tokens;
  EXPECT_EQ(report.texts[2].tokens,
            std::vector<TokenId>(ended.begin(), std::find(ended.begin(), ended.end(), end) + 1));
  EXPECT_EQ(report.texts[2].finish_reason, "stop");
  EXPECT_EQ(report.texts[4].tokens, std::vector{whole[4].tokens.front()});
  EXPECT_EQ(report.texts[4].finish_reason, "length");
  for (const std::size_t i : {0, 1, 3}) EXPECT_EQ(report.texts[i].tokens, whole[i].tokens);
}

TEST_F(Batch, StoppedAnywhereKeepsWhatIsThereAndGoesOnWorking) {
  Engine engine = make(SpeculationMethod::kSequoia, 1.0, 3);
  const std::vector<Request> all = requests(7, 1.0);
  const BatchReport whole = engine.generate(all);
  int units = 0;
  GenerateEvents count;
  count.on_step = [&](const StepProgress&) { ++units; };
  engine.generate(all, count);
  bool some_done = false;
  for (int after = 0; after < units; after += 1 + units / 20) {
    SCOPED_TRACE(after);
    std::stop_source stop;
    if (after == 0) stop.request_stop();
    int seen = 0;
    std::set<std::size_t> done;
    GenerateEvents events;
    events.on_step = [&](const StepProgress&) {
      if (++seen == after) stop.request_stop();
    };
    events.on_text = [&](std::size_t i, const TextReport&) { done.insert(i); };
    const BatchReport report = engine.generate(all, events, stop.get_token());
    EXPECT_LT(done.size(), all.size());
    some_done |= !done.empty();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& kept = report.texts[i].tokens;
      const auto& expected = whole.texts[i].tokens;
      EXPECT_EQ(report.texts[i].finish_reason, done.contains(i) ? "length" : "cancelled");
      ASSERT_LE(kept.size(), expected.size());
      EXPECT_TRUE(std::equal(kept.begin(), kept.end(), expected.begin()));
      EXPECT_EQ(kept.size() == expected.size(), done.contains(i));
    }
    EXPECT_EQ(engine.generate(all[1]).tokens, whole.texts[1].tokens);
  }
  EXPECT_TRUE(some_done);
}

TEST_F(Batch, SamplesOfOnePromptDifferAndDoNotDependOnHowManyThereAre) {
  std::vector<Request> all(9, requests(1, 1.0).front());
  for (std::size_t i = 0; i < all.size(); ++i) all[i].sequence = static_cast<std::uint32_t>(i);
  const BatchReport nine = make(SpeculationMethod::kSequoia, 1.0, 9).generate(all);
  const BatchReport four =
      make(SpeculationMethod::kSequoia, 1.0, 2).generate(std::span(all).first(4));
  std::set<std::vector<TokenId>> texts;
  for (std::size_t i = 0; i < all.size(); ++i) texts.insert(nine.texts[i].tokens);
  EXPECT_EQ(texts.size(), all.size());
  for (std::size_t i = 0; i < four.texts.size(); ++i)
    EXPECT_EQ(four.texts[i].tokens, nine.texts[i].tokens);
}

TEST_F(Batch, ReadsTheWeightsOncePerSweepForAllOfIt) {
  EngineOptions o = options(SpeculationMethod::kNone);
  o.plan.resident = 0;
  o.plan.max_sequences = kTexts;
  Engine engine(models(false), o);
  const auto read_per_sweep = [&](int texts) {
    const BatchReport report = engine.generate(requests(texts, 0.0));
    return static_cast<double>(report.link.disk_bytes) / (report.sweeps - 1);
  };
  // Not five times as much; how far the ring has read ahead differs by up to a sweep of 39.
  EXPECT_LT(read_per_sweep(kTexts), 1.1 * read_per_sweep(1));
}

TEST_F(Batch, RefusesAPromptThatDoesNotFitBeforeAnythingIsRun) {
  Engine engine = make(SpeculationMethod::kSequoia, 0.0, 2);
  std::vector<Request> all = requests(3, 0.0);
  const std::vector<TokenId> long_prompt = prompt(0, 33);
  all[2].prompt = long_prompt;
  GenerateEvents events;
  events.on_step = [](const StepProgress&) { FAIL() << "something was run"; };
  EXPECT_NE(error_of([&] { engine.generate(all, events); }).find("33 tokens does not fit"),
            std::string::npos);
  all.pop_back();
  EXPECT_EQ(engine.generate(all).texts.size(), 2u);
}

class BatchPlan : public Batch {
 protected:
  static Plan plan(SpeculationMethod method, int sequences, std::uint64_t memory = 1u << 30,
                   int tree = 0) {
    PlanRequest request = options(method, tree).plan;
    request.max_sequences = sequences;
    request.memory = memory;
    const ModelFiles files = models_for(method);
    return make_plan(request, lay_out_models(files.target, files.draft), 0,
                     scratch_of(*make_device({})));
  }
};

TEST_F(BatchPlan, HasRoomForAsManySequencesAsPayAndAreAskedFor) {
  for (const Method& row : kMethods) {
    const SpeculationMethod method = row.id;
    SCOPED_TRACE(row.name);
    for (const int sequences : {1, 2, 3, 7, 20, 1000}) {
      const Plan p = plan(method, sequences);
      const int nodes = p.policy.shape.size();
      EXPECT_GE(p.max_sequences, std::min(sequences, 2));
      EXPECT_LE(p.max_sequences, sequences);
      EXPECT_LE(nodes * p.max_sequences, 1024);
      EXPECT_EQ(p.policy.max_requests, p.max_sequences);
    }
  }
  EXPECT_EQ(plan(SpeculationMethod::kSequoia, 4, 1u << 30, 16).policy.shape.size(), 16);
}

TEST_F(BatchPlan, AGivenTreeIsAsLargeAsItIsSoFewerShareASweep) {
  PlanRequest request = options(SpeculationMethod::kSequoia).plan;
  request.shape = TreeShape::sequences(7, 9);  // 64 nodes
  request.max_sequences = 1000;
  request.memory = 1u << 30;
  const ModelFiles files = models(true);
  const Plan p = make_plan(request, lay_out_models(files.target, files.draft), 0,
                           scratch_of(*make_device({})));
  EXPECT_EQ(p.max_sequences, 4);
  EXPECT_FALSE(p.adaptive);
}

TEST_F(BatchPlan, HasFewerSequencesWhereMemoryIsShortAndRefusesOnlyWhereOneDoesNotFit) {
  const Plan one = plan(SpeculationMethod::kSequoia, 1),
             many = plan(SpeculationMethod::kSequoia, 8, 1u << 30, 16);
  EXPECT_EQ(many.max_sequences, 8);
  int before = 9;
  bool refused = false;
  std::set<int> seen;
  for (std::uint64_t memory = many.total(); !refused; memory -= 64 << 10) {
    const std::string why = error_of([&] {
      const Plan p = plan(SpeculationMethod::kSequoia, 8, memory, 16);
      EXPECT_LE(p.total(), memory);
      EXPECT_LE(p.max_sequences, before);
      seen.insert(before = p.max_sequences);
    });
    refused = !why.empty();
    EXPECT_EQ(refused, why.find("target KV cache, ") != std::string::npos) << why;
  }
  EXPECT_EQ(before, 1);
  EXPECT_GT(seen.size(), 3u);
}

}  // namespace
}  // namespace canopy
