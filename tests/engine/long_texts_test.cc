#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/engine/session_kit.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

/// Texts of some hundred tokens.
class LongTexts : public SessionTest {
 protected:
  static constexpr int kPrompt = 300, kContext = 340;
  static Engine make(SpeculationMethod method, int sequences,
                     std::optional<std::uint64_t> kv_memory = {}, int prompt_rows = 0) {
    EngineOptions o = options(method, 16, 5, 1.0);
    o.plan.prompt_rows = prompt_rows;
    if (method == SpeculationMethod::kNone) o.plan.tree_size = 0;
    o.plan.max_prompt = kPrompt;
    o.plan.context = kContext;
    o.plan.max_sequences = sequences;
    o.plan.kv_memory = kv_memory;
    return Engine(models_for(method), o);
  }
  /// Texts i and j have their first `common` tokens in common.
  static Request asked(unsigned number, int common) {
    std::vector<TokenId> tokens = prompt(100, kPrompt);
    const std::vector<TokenId> own = prompt(number, kPrompt);
    std::copy(own.begin() + common, own.end(), tokens.begin() + common);
    Request r = request(tokens);
    r.sampling.temperature = 1;
    r.seed = 5;
    r.sequence = number;
    r.reproducible = true;
    r.max_new_tokens = 30;
    return r;
  }
  static int blocks_in_use(Engine& engine) {
    const KvPool& pool = engine.kv_pool();
    return pool.blocks() - pool.free_blocks();
  }
};

TEST_F(LongTexts, WithACommonBeginningHoldItOnceAndHaveTheBitsOfTextsThatDoNot) {
  for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia}) {
    std::vector<std::vector<TokenId>> alone;
    for (unsigned i = 0; i < 3; ++i)
      alone.push_back(make(method, 1).generate(asked(i, 250)).tokens);
    Engine engine = make(method, 3);
    for (const bool later : {false, true}) {
      SCOPED_TRACE(::testing::Message() << name(method) << (later ? ", later" : ""));
      Session session = engine.open_session();
      std::vector<Received> received(3);
      for (unsigned i = 0; i < 3; ++i) {
        session.admit(asked(i, 250), received[i].events());
        if (later) session.step();
      }
      int rows = 0, most = 0;
      while (session.step()) {
        rows += session.last_sweep().prompt_rows;
        most = std::max(most, blocks_in_use(engine));
      }
      for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(received[i].tokens, alone[i]) << i;
      EXPECT_TRUE(later || rows <= 299 + 2 * (299 - 192)) << rows;  // three blocks are read once
      EXPECT_LE(most, 6 + 2 * 3);
    }
  }
}

TEST_F(LongTexts, AreReadInPiecesWhereASweepTakesNoMoreRows) {
  constexpr int kRows = 64;
  Engine whole = make(SpeculationMethod::kSequoia, 2);
  Engine engine = make(SpeculationMethod::kSequoia, 2, {}, kRows);
  EXPECT_EQ(engine.plan().target_limits.max_nodes,
            kRows + engine.plan().max_sequences * engine.plan().policy.shape.size());
  Session session = engine.open_session();
  std::vector<Received> received(2);
  std::vector<Ticket> tickets;
  for (unsigned i = 0; i < 2; ++i)
    tickets.push_back(session.admit(asked(i, 0), received[i].events()));
  int read = 0;
  while (session.step()) {
    EXPECT_LE(session.last_sweep().prompt_rows, kRows);
    if (const TextReport* first = session.so_far(tickets[0])) {
      EXPECT_GE(first->prompt_read, read);
      read = first->prompt_read;
    }
  }
  EXPECT_EQ(read, kPrompt);
  for (unsigned i = 0; i < 2; ++i)
    EXPECT_EQ(received[i].tokens, whole.generate(asked(i, 0)).tokens);
}

TEST_F(LongTexts, ReportHowMuchOfTheirPromptWasThereAlready) {
  Engine engine = make(SpeculationMethod::kSequoia, 1);
  EXPECT_EQ(engine.generate(asked(0, 250)).cached_tokens, 0);
  const TextReport second = engine.generate(asked(1, 250));
  EXPECT_EQ(second.cached_tokens, 250 / kKvBlock * kKvBlock);
  EXPECT_EQ(second.known_tokens, 250);  // the first differs from there on
  EXPECT_EQ(second.prompt_read, kPrompt);
}

TEST_F(LongTexts, HaveRoomForAsManyFullOnesAsWereAskedForNextToShortOnes) {
  EngineOptions o = options(SpeculationMethod::kNone);
  o.plan.max_prompt = kPrompt;
  o.plan.context = 2000;
  o.plan.max_sequences = 3;
  o.plan.full_texts = 2;
  Engine engine(models(false), o);
  EXPECT_EQ(engine.plan().max_sequences, 3);
  EXPECT_EQ(engine.plan().kv_blocks,
            2 * KvPool::blocks_for(2000) + KvPool::blocks_for(512) + KvPool::blocks_for(3));
}

TEST_F(LongTexts, WaitWithTheirTokensWhereThePoolIsFullAndAreWrittenAllTheSame) {
  std::vector<std::vector<TokenId>> alone;
  for (unsigned i = 0; i < 3; ++i)
    alone.push_back(make(SpeculationMethod::kSequoia, 1).generate(asked(i, 0)).tokens);
  Engine whole = make(SpeculationMethod::kSequoia, 3);
  const ModelFiles& files = whole.models();
  const std::uint64_t block = KvPool::bytes_needed(files.target.config(), 1, whole.plan().kv) +
                              KvPool::bytes_needed(files.draft->config(), 1, whole.plan().kv);
  for (const std::uint64_t blocks : {6, 7, 10, 11, 17}) {
    SCOPED_TRACE(blocks);
    Engine engine = make(SpeculationMethod::kSequoia, 3, blocks * block);
    EXPECT_EQ(engine.plan().kv_blocks, static_cast<int>(blocks));
    Session session = engine.open_session();
    std::vector<Received> received(3);
    for (unsigned i = 0; i < 3; ++i) session.admit(asked(i, 0), received[i].events());
    run(session);
    for (unsigned i = 0; i < 3; ++i) {
      EXPECT_EQ(received[i].tokens, alone[i]) << i << " " << received[i].error;
      EXPECT_EQ(received[i].ends, 1);
    }
  }
  EXPECT_NE(
      error_of([&] { make(SpeculationMethod::kSequoia, 3, 5 * block); }).find("keys and values"),
      std::string::npos);
}

TEST_F(SessionTest, ATextThatIsSentBackMayBeLongerThanThePromptsThatWerePlannedFor) {
  constexpr int kShort = 8, kMany = 250;
  const auto asked = [](unsigned number) {
    Request r = request(prompt(number, kShort));
    r.max_new_tokens = kMany;
    return r;
  };
  const auto engine_with = [&](std::optional<std::uint64_t> kv_memory) {
    EngineOptions o = options(SpeculationMethod::kNone);
    o.plan.max_prompt = kShort;
    o.plan.context = kShort + kMany;
    o.plan.max_sequences = 3;
    o.plan.kv_memory = kv_memory;
    return Engine(models(false), o);
  };
  Engine whole = engine_with({});
  const std::uint64_t block =
      KvPool::bytes_needed(whole.models().target.config(), 1, whole.plan().kv);
  Engine engine = engine_with(8 * block);
  ASSERT_EQ(engine.plan().kv_blocks, 8);
  Session session = engine.open_session();
  std::vector<Received> received(3);
  for (unsigned i = 0; i < 3; ++i) session.admit(asked(i), received[i].events());
  run(session);
  for (unsigned i = 0; i < 3; ++i)
    EXPECT_EQ(received[i].tokens, whole.generate(asked(i)).tokens) << received[i].error;
}

}  // namespace
}  // namespace canopy
