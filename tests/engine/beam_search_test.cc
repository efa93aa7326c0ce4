#include "src/engine/beam/beam_search.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

class BeamSearch : public TinyEngine {
 protected:
  static BeamReport search(BeamRoom room, unsigned p, double penalty = 1, bool self_draft = false,
                           bool ignore_end = false) {
    EngineOptions o = options(SpeculationMethod::kAuto);
    o.plan.cost = nullptr;
    o.plan.beams = room;
    ModelFiles files = models(room.levels > 0);
    if (self_draft) files.draft = Checkpoint::open(kTarget);
    Engine engine(std::move(files), o);
    return engine.search({prompt(p), penalty, room.tokens, ignore_end});
  }
  static void expect_same(const BeamReport& a, const BeamReport& b) {
    ASSERT_EQ(a.texts.size(), b.texts.size());
    for (std::size_t i = 0; i < a.texts.size(); ++i) {
      EXPECT_EQ(a.texts[i].tokens, b.texts[i].tokens) << i;
      EXPECT_EQ(a.texts[i].log_probability, b.texts[i].log_probability) << i;  // every bit
      EXPECT_EQ(a.texts[i].score, b.texts[i].score) << i;
      EXPECT_EQ(a.texts[i].ended, b.texts[i].ended) << i;
    }
  }
};

TEST_F(BeamSearch, OfOneBeamIsGreedyDecoding) {
  Engine plain = make(SpeculationMethod::kNone);
  for (unsigned p = 0; p < 4; ++p) {
    const TextReport expected = plain.generate(request(prompt(p)));
    EXPECT_EQ(search({1, 0, 0, kNew}, p, 1, false, true).texts.front().tokens, expected.tokens)
        << p;
    EXPECT_EQ(search({1, 2, 3, kNew}, p, 1, false, true).texts.front().tokens, expected.tokens)
        << p;
  }
}

TEST_F(BeamSearch, WithADraftFindsWhatItFindsWithoutOne) {
  int levels = 0, sweeps = 0;
  for (unsigned p = 0; p < 3; ++p)
    for (const int beams : {2, 3, 5})
      for (const double penalty : {0.0, 1.0, 2.0}) {
        const BeamReport plain = search({beams, 0, 0, 24}, p, penalty);
        EXPECT_EQ(plain.batch.sweeps, plain.batch.tokens);
        for (const int more : {1, 2, 4}) {
          SCOPED_TRACE(::testing::Message() << p << " " << beams << " " << penalty << " " << more);
          const BeamReport drafted = search({beams, more * beams, 3, 24}, p, penalty);
          expect_same(drafted, plain);
          EXPECT_EQ(drafted.batch.tokens, plain.batch.tokens);
          levels += drafted.batch.tokens;
          sweeps += drafted.batch.sweeps;
        }
      }
  EXPECT_GT(levels, sweeps);  // the draft does help
  EXPECT_LT(levels, 4 * sweeps);
}

TEST_F(BeamSearch, TakesEveryLevelOfADraftThatIsTheTarget) {
  const BeamReport report = search({2, 8, 3, 21}, 1, 1, true);
  EXPECT_EQ(report.batch.tokens, 21);
  EXPECT_LE(report.batch.sweeps, 8);  // three drafted levels and one beyond; ends are not drafted
}

TEST_F(BeamSearch, TakesEveryLevelOfADraftWithABeamForEachToken) {
  for (unsigned p = 0; p < 4; ++p) {
    const BeamReport all = search({1, 97, 1, 24}, p, 1, false, true);
    EXPECT_EQ(all.batch.sweeps, 12) << p;  // the drafted level and one beyond
    expect_same(all, search({1, 0, 0, 24}, p, 1, false, true));
  }
  EXPECT_GT(search({1, 1, 1, 24}, 0, 1, false, true).batch.sweeps, 12);
}

TEST_F(BeamSearch, OfMoreBeamsThanThereAreTokensIsRefused) {
  const auto error = [](BeamRoom room) { return error_of([&] { search(room, 0); }); };
  EXPECT_NE(error({98, 0, 0, 4}).find("97 tokens; give --num-beams"), std::string::npos);
  EXPECT_NE(error({1, 98, 1, 4}).find("97 tokens; give --draft-beams"), std::string::npos);
  EXPECT_EQ(error({97, 97, 1, 2}), "");
}

TEST_F(BeamSearch, OfTokensThatAreDecidedTogetherFindsTheSameWithADraftAndIsLabelled) {
  Engine plain = make(SpeculationMethod::kNone);
  int other = 0;
  for (unsigned p = 0; p < 4; ++p) {
    const auto greedy = plain.generate(request(prompt(p))).tokens;
    EXPECT_EQ(search({4, 0, 0, kNew, 1}, p, 0, false, true).texts.front().tokens, greedy);
    for (const int joint : {2, 3, 7}) {
      const BeamReport alone = search({4, 0, 0, kNew, joint}, p, 0, false, true);
      expect_same(search({4, 8, 3, kNew, joint}, p, 0, false, true), alone);
      EXPECT_EQ(alone.texts.front().tokens.size(), greedy.size());
      EXPECT_LE(alone.target_rows, 20 + kNew * (1 + 4 * joint));  // no more than a block's rows
      other += alone.texts.front().tokens != greedy;
    }
  }
  EXPECT_GT(other, 0);
  EngineOptions o = options(SpeculationMethod::kAuto);
  o.plan.beams = BeamRoom{2, 0, 0, 8, 4};
  EXPECT_NE(Engine(models(false), o).plan().changes().value_or("").find("4 tokens"),
            std::string::npos);
  o.plan.beams->joint = 0;
  EXPECT_FALSE(Engine(models(false), o).plan().changes());
}

TEST_F(BeamSearch, ATextThatDoesNotFitIsRefused) {
  EngineOptions o = options(SpeculationMethod::kAuto);
  o.plan.cost = nullptr;
  o.plan.beams = BeamRoom{2, 0, 0, 8};
  Engine engine(models(false), o);
  EXPECT_NE(error_of([&] {
              engine.search({prompt(1), 1, 9, false});
            }).find("do not fit"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              engine.search({{}, 1, 8, false});
            }).find("do not fit"),
            std::string::npos);
  EXPECT_EQ(engine.search({prompt(1), 1, 8, false}).texts.size(), 2u);
}

}  // namespace
}  // namespace canopy
