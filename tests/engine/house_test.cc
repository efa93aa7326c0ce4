// Texts that come and go: what is planned for one and for a full house, and what sweeps they get.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/base/file.h"
#include "src/checkpoint/checkpoint.h"
#include "src/convert/enlarge/random_checkpoint.h"
#include "src/engine/engine_parts.h"
#include "src/engine/replanner.h"
#include "src/engine/session.h"
#include "src/speculation/drafters/model_drafter.h"
#include "tests/engine/session_kit.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

/// Plans for the shapes of SmolLM2-1.7B and of a small draft, by a profile that was measured once
/// and stored: no weight is read.
class HousePlan : public ::testing::Test {
 protected:
  static const ModelSweeps& sweeps() {
    static const Checkpoint target = laid_out(24, 2048, 8192, 32),
                            draft = laid_out(30, 576, 1536, 3, DType::kQ4_0);
    static const ModelSweeps both = lay_out_models(target, draft);
    return both;
  }
  static PlanRequest request(std::uint64_t memory, int places) {
    PlanRequest request;
    request.memory = memory;
    request.max_sequences = request.least_sequences = places;
    request.context = 2048;
    request.cost = cost();
    plan_for_conversations(request, true);
    return request;
  }
  static Plan plan(const PlanRequest& request) {
    return make_plan(request, sweeps(), 20 * kMiB, scratch);
  }
  static MemoryPlan memory(const Decisions& decisions, const PlanRequest& request) {
    return plan_memory(decisions, request, sweeps(), 20 * kMiB, scratch);
  }

 private:
  /// Bytes for about two cores, whatever instructions those that run the test have.
  static std::size_t scratch(const Workload&) { return 4 * kMiB; }
  static std::shared_ptr<const CostModel> cost() {
    static const auto cost = std::make_shared<const CostModel>(hardware_profile_from_json(
        read_file(test_data() / "engine" / "profile.json", kMiB, FileKind::kOfUser)));
    return cost;
  }
  static Checkpoint laid_out(int layers, int dim, int hidden, int kv_heads,
                             DType type = DType::kBF16) {
    const std::string config =
        R"({"model_type": "llama", "num_hidden_layers": )" + std::to_string(layers) +
        R"(, "hidden_size": )" + std::to_string(dim) + R"(, "intermediate_size": )" +
        std::to_string(hidden) + R"(, "num_attention_heads": )" + std::to_string(dim / 64) +
        R"(, "num_key_value_heads": )" + std::to_string(kv_heads) +
        R"(, "vocab_size": 49152, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})";
    return lay_out_random_checkpoint({shape_from_config(config), type}, LayerBytes::kOwn, "shape");
  }
};

TEST_F(HousePlan, MoreMemoryNeverMakesATextSlower) {
  for (const int places : {1, 4}) {
    double before = 1e9;
    for (std::uint64_t memory = 2048 * kMiB; memory <= 6144 * kMiB; memory += 256 * kMiB) {
      SCOPED_TRACE(std::to_string(places) + " places, " + std::to_string(memory / kMiB) + " MiB");
      const Plan p = plan(request(memory, places));
      const double now = p.prediction->best.per_token().count();
      EXPECT_LE(now, 1.002 * before);  // two choices, each worth it from a thousandth on
      before = std::min(before, now);
      EXPECT_LE(p.total(), memory);
      EXPECT_EQ(p.max_sequences, places);
    }
  }
}

TEST_F(HousePlan, RowsBelongToTheSweepAndAnyNumberOfTextsSharesThem) {
  const Plan p = plan(request(3072 * kMiB, 8));
  ASSERT_TRUE(p.adaptive);
  const TreeRoom& room = p.policy.room;
  EXPECT_EQ(p.target_limits.max_tree, room.nodes);
  EXPECT_EQ(p.slots, p.context + room.nodes);
  EXPECT_EQ(p.prediction->best.sequences, 1);
  EXPECT_GT(p.prediction->best.shape.size(), p.prediction->full.shape.size())
      << "a text that is alone has the rows of all";
  EXPECT_LT(room.nodes, 8 * p.prediction->best.shape.size()) << "not for each place as many";
  EXPECT_EQ(p.prediction->full.sequences, 8);
  PlannerInput input;
  input.cost = p.cost.get();
  input.acceptance = p.acceptance;
  for (int texts = 1; texts <= 8; ++texts) {
    const auto choice = choose_within(input, p.weights, room, texts);
    ASSERT_TRUE(choice) << texts;
    EXPECT_LE(choice->best.shape.size() * texts, room.nodes);
    EXPECT_TRUE(room.holds(TreeRoom::of(choice->best.shape).for_texts(texts)));
  }
}

TEST_F(HousePlan, OneTextIsAsFastAsWithOnePlaceButForTheMemoryOfTheOthers) {
  const double alone = plan(request(4096 * kMiB, 1)).prediction->best.per_token().count();
  const Plan house = plan(request(4096 * kMiB, 8));
  EXPECT_NE(house.method, SpeculationMethod::kNone);
  EXPECT_LT(house.prediction->best.per_token().count(), 1.6 * alone);
  EXPECT_TRUE(house.notes.empty());
}

/// Several processes of one run: one decides, for the smallest budget.
TEST_F(HousePlan, EachProcessLaysOutItsOwnMemoryForTheSameDecisions) {
  const Plan least = plan(request(3072 * kMiB, 4));
  const Decisions& decided = least;
  const MemoryPlan same = memory(decided, request(3072 * kMiB, 4));
  const MemoryPlan more = memory(decided, request(4096 * kMiB, 4));
  const auto lines = [](const MemoryPlan& plan) {
    std::vector<std::pair<std::string, std::uint64_t>> all;
    for (const LedgerEntry& entry : plan.ledger) all.emplace_back(entry.what, entry.bytes);
    return all;
  };
  EXPECT_EQ(lines(same), lines(least));
  EXPECT_EQ(same.residency.unit, least.residency.unit);
  EXPECT_EQ(same.ring_bytes, least.ring_bytes);
  EXPECT_GT(more.resident_bytes, least.resident_bytes + 900 * kMiB);
  EXPECT_LE(more.total(), 4096 * kMiB);
  auto of_texts = lines(more), of_least = lines(least);
  ASSERT_EQ(of_texts.size(), of_least.size());
  of_texts.resize(of_texts.size() - 2);  // but for weights at rest and the ring
  of_least.resize(of_least.size() - 2);
  EXPECT_EQ(of_texts, of_least);
  EXPECT_THROW(memory(decided, request(512 * kMiB, 4)), BudgetError);
}

TEST_F(HousePlan, PlainDecodingIsPredictedToReadWhatGaveWayToAFullText) {
  PlanRequest asked = request(3072 * kMiB, 1);
  asked.method = SpeculationMethod::kNone;
  const Plan p = plan(asked);
  EXPECT_EQ(p.prediction->best.sweep_bytes, p.sweep_bytes);
  EXPECT_EQ(p.prediction->full.sweep_bytes, p.full_sweep_bytes);
  EXPECT_GT(p.full_sweep_bytes, p.sweep_bytes);
}

TEST_F(HousePlan, ADraftThatAFullHouseDoesNotUseStaysForOneText) {
  PlanRequest asked = request(4096 * kMiB, 8);
  HardwareProfile slow = asked.cost->profile();  // more rows than one are dear
  slow.layers[0].mlp = Curve::fit(std::vector<Sample>{
      {1, Seconds(0.01)}, {16, Seconds(0.011)}, {17, Seconds(0.05)}, {64, Seconds(0.4)}});
  asked.cost = std::make_shared<const CostModel>(slow);
  const Plan p = plan(asked);
  EXPECT_NE(p.method, SpeculationMethod::kNone);
  EXPECT_GT(p.prediction->best.shape.size(), 1);
  EXPECT_LE(p.prediction->full.shape.size(), 2);
}

TEST_F(HousePlan, WhatNobodyAskedForGivesWayTheContextFirstThenPlacesThenTheDraft) {
  PlanRequest open = request(0, 4);
  open.context = 8192;
  open.least_sequences = 1;
  plan_for_conversations(open, false);
  int context = 8192, places = 4;
  bool drafted = true;
  std::string seen;
  for (std::uint64_t memory = 6144 * kMiB;; memory -= 64 * kMiB) {
    open.memory = memory;
    std::optional<Plan> p;
    if (!error_of([&] { p = plan(open); }).empty()) break;
    SCOPED_TRACE(memory / kMiB);
    EXPECT_LE(p->total(), memory);
    const bool drafts = p->method != SpeculationMethod::kNone;
    EXPECT_EQ(p->notes.size(), (p->context < 8192) + (p->max_sequences < 4) + !drafts);
    if (drafts) {
      EXPECT_LE(p->context, context);
      EXPECT_LE(p->max_sequences, places);
      EXPECT_TRUE(p->max_sequences == 4 || p->context == 512);
      if (p->context < context && context == 8192) seen += "context ";
      if (p->max_sequences < places && places == 4) seen += "places ";
      context = p->context;
      places = p->max_sequences;
    } else if (drafted) {
      seen += "draft";
    }
    EXPECT_TRUE(drafted || !drafts);
    drafted = drafts;
  }
  EXPECT_EQ(seen, "context places draft");
}

TEST_F(HousePlan, WhatWasAskedForIsRefusedWithWhatItNeeds) {
  PlanRequest asked = request(768 * kMiB, 4);
  asked.context = 8192;
  plan_for_conversations(asked, true);
  EXPECT_NE(error_of([&] { plan(asked); }).find("are needed"), std::string::npos);
  asked.least_sequences = 1;  // the context is what does not fit
  EXPECT_NE(error_of([&] { plan(asked); }).find("are needed"), std::string::npos);
}

TEST_F(HousePlan, AnIdleDraftIsNamedWithWhatItWouldTake) {
  PlanRequest asked = request(4096 * kMiB, 1);
  asked.acceptance = Acceptance{{1e-5, 1e-5}};
  const Plan useless = plan(asked);
  ASSERT_EQ(useless.notes.size(), 1u);
  EXPECT_NE(useless.notes[0].find("the draft is not used"), std::string::npos);
  EXPECT_NE(useless.notes[0].find("without; it takes at least"), std::string::npos);
  asked = request(0, 1);
  for (asked.memory = 4096 * kMiB; plan(asked).method != SpeculationMethod::kNone;)
    asked.memory -= 64 * kMiB;
  const std::string note = plan(asked).notes.at(0);
  EXPECT_NE(note.find("with it at least"), std::string::npos) << note;
}

/// Texts that come and go on a tiny model, and the sweeps that they get.
class House : public SessionTest {
 protected:
  static constexpr int kTexts = 4, kLong = 120;
  static EngineOptions house(double temperature) {
    EngineOptions o = options(SpeculationMethod::kAuto, 0, 0, temperature);
    o.plan.context = 32 + kLong;
    o.plan.max_sequences = o.plan.least_sequences = kTexts;
    o.plan.memory = 1u << 30;
    o.plan.resident = 0;
    plan_for_conversations(o.plan, true);
    return o;
  }
  static Request asked(unsigned number, double temperature, bool edited) {
    Request r = request(prompt(number));
    r.max_new_tokens = kLong;
    r.sampling.temperature = static_cast<float>(temperature);
    r.seed = number;
    r.reproducible = true;
    if (edited) r.edits.repetition = 1.3f;
    return r;
  }
};

TEST_F(House, TheFirstSweepAfterTextsCameOrWentHasTheShapeForThoseThatAreThere) {
  Engine engine(models(true), house(0));
  const Plan& plan = engine.plan();
  ASSERT_TRUE(plan.adaptive);
  const int one = plan.prediction->best.shape.size(), full = plan.prediction->full.shape.size();
  ASSERT_GT(one, full);
  Session session = engine.open_session();
  std::vector<Received> received(kTexts);
  std::vector<Ticket> tickets;
  std::string table;
  const auto sweep = [&] {  // its trees' nodes
    EXPECT_TRUE(session.step());
    const SweepReport& last = session.last_sweep();
    table +=
        std::to_string(last.texts) + " texts of " + std::to_string(last.tree_nodes) + " nodes\n";
    EXPECT_LE(last.texts * last.tree_nodes, plan.policy.room.nodes) << table;
    return last.tree_nodes;
  };
  const auto admit = [&](unsigned i) {  // a token is no prompt that must be read first
    Request r = asked(i, 0, false);
    r.prompt.resize(1);
    tickets.push_back(session.admit(std::move(r), received[i].events()));
  };
  admit(0);
  EXPECT_EQ(sweep(), one) << table;
  EXPECT_EQ(sweep(), one) << table;
  for (unsigned i = 1; i < kTexts; ++i) admit(i);
  EXPECT_EQ(sweep(), full) << table;
  EXPECT_EQ(sweep(), full) << table;
  for (unsigned i = 1; i < kTexts; ++i) session.cancel(tickets[i]);
  EXPECT_GE(sweep(), 2 * full) << table;
  admit(1);
  EXPECT_LE(2 * sweep(), plan.policy.room.nodes) << table;
}

TEST_F(House, ASessionBeginsWithTheShapeForTheTextsThatAreThereNotForOne) {
  Engine engine(models(true), house(0));
  Session session = engine.open_session();
  std::vector<Received> received(kTexts);
  for (unsigned i = 0; i < kTexts; ++i) {
    Request r = asked(i, 0, false);
    r.prompt.resize(1);
    session.admit(std::move(r), received[i].events());
  }
  ASSERT_TRUE(session.step());
  EXPECT_EQ(session.last_sweep().tree_nodes, engine.plan().prediction->full.shape.size());
}

TEST_F(House, TextsArePlainDecodingsWhateverElseIsThere) {
  for (const double temperature : {0.0, 0.8}) {
    for (const bool edited : {false, true}) {
      EngineOptions plain_options = options(SpeculationMethod::kNone);
      plain_options.plan.context = 32 + kLong;
      Engine plain(models(false), plain_options);
      Engine engine(models(true), house(temperature));
      Session session = engine.open_session();
      std::vector<Received> received(2 * kTexts);
      const auto admit = [&](unsigned i) {
        session.admit(asked(i, temperature, edited), received[i].events());
      };
      for (unsigned i = 0; i < 2 * kTexts; ++i) {  // one, then more, then as many as there are
        admit(i);
        for (unsigned sweep = 0; sweep < i % 3; ++sweep) session.step();
      }
      run(session);
      for (unsigned i = 0; i < 2 * kTexts; ++i)
        EXPECT_EQ(received[i].tokens, plain.generate(asked(i, temperature, edited)).tokens)
            << i << " " << temperature << " " << edited << received[i].error;
    }
  }
}

/// A replanner's decisions on a machine whose draft takes long to read.
TEST_F(House, WhatADraftHasMissedIsPricedBeforeTreesComeBack) {
  EngineOptions o = house(0);
  HardwareProfile p = o.plan.cost->profile();
  p.drafting = {testing::line(1e-4, 1e-3), testing::line(1e-4, 1e-3), Seconds(0)};
  o.plan.cost = std::make_shared<const CostModel>(p);
  Engine engine(models(true), o);
  ASSERT_TRUE(engine.plan().adaptive);
  const auto shape_with = [&](int missed, int left) {
    Replanner replanner(engine.plan(), false);
    AcceptanceTracker text = replanner.tracker();
    const SharingTexts texts{{&text}, 50, missed, left};
    replanner.before_sweep(texts, *engine.parts().drafter());
    return replanner.shape().size();
  };
  EXPECT_GT(shape_with(0, 100), 1);
  EXPECT_GT(shape_with(100, 10000), 1);
  EXPECT_EQ(shape_with(1000, 10), 1) << "ten tokens are not worth a second of reading";
}

}  // namespace
}  // namespace canopy
