#include "src/engine/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/engine/row_budget.h"
#include "src/engine/runtime.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

/// What a request was told.
struct Told {
  std::vector<TokenId> tokens;
  int ends = 0, stop_after = 0;
  std::string finish_reason, error;

  RequestEvents events() {
    RequestEvents e;
    e.on_token = [this](TokenId token, const TokenReport*) {
      tokens.push_back(token);
      return std::ssize(tokens) != stop_after;
    };
    e.on_end = [this](const TextReport& report) {
      ++ends;
      finish_reason = report.finish_reason;
      EXPECT_EQ(report.tokens, tokens);
    };
    e.on_error = [this](const std::string& what) {
      ++ends;
      error = what;
    };
    return e;
  }
};

class SessionTest : public TinyEngine {
 protected:
  static Engine make(SpeculationMethod method, double temperature, int sequences,
                     bool streamed = false) {
    EngineOptions o = options(method, 16, 5, temperature);
    if (method == SpeculationMethod::kNone) o.plan.tree_size = 0;
    if (streamed) o.plan.resident = 0;
    o.plan.max_sequences = sequences;
    return Engine(models_for(method), o);
  }
  static Request sampled(unsigned number, float temperature, bool reproducible) {
    Request r = request(prompt(number));
    r.sampling.temperature = temperature;
    r.seed = 11;
    r.sequence = number;
    r.reproducible = reproducible;
    return r;
  }
  static void run(Session& session) {
    while (session.step()) {
    }
  }
};

TEST_F(SessionTest, TextsThatAreAdmittedAtDifferentTimesShareSweepsAndStayAsTheyAreAlone) {
  for (const float temperature : {0.0f, 1.0f}) {
    Engine engine = make(SpeculationMethod::kSequoia, static_cast<double>(temperature), 3);
    std::vector<std::vector<TokenId>> alone;
    for (unsigned i = 0; i < 3; ++i)
      alone.push_back(engine.generate(sampled(i, temperature, false)).tokens);
    Session session(engine.runtime());
    std::vector<Told> told(3);
    int most = 0;
    for (unsigned i = 0; i < 3; ++i) {
      session.admit(sampled(i, temperature, false), told[i].events());
      for (int sweep = 0; sweep < 2; ++sweep) {
        ASSERT_TRUE(session.step());
        most = std::max(most, session.last_sweep().texts);
      }
    }
    run(session);
    EXPECT_EQ(most, 3);
    for (unsigned i = 0; i < 3; ++i) {
      EXPECT_EQ(told[i].tokens, alone[i]) << "text " << i << " at " << temperature;
      EXPECT_EQ(told[i].ends, 1);
      EXPECT_EQ(told[i].finish_reason, "length");
    }
    EXPECT_FALSE(session.step());
  }
}

TEST_F(SessionTest, TwoTextsThatShareSweepsReadHalfTheBytesOfTwoThatDoNot) {
  Engine engine = make(SpeculationMethod::kNone, 0, 2, true);
  const auto bytes_of = [&](bool together) {
    const std::uint64_t before = engine.runtime().link().disk_bytes;
    Session session(engine.runtime());
    session.admit(request(prompt(1)));
    if (!together) run(session);
    session.admit(request(prompt(2)));
    run(session);
    return static_cast<double>(engine.runtime().link().disk_bytes - before);
  };
  EXPECT_NEAR(bytes_of(true) / bytes_of(false), 0.5, 0.05);
}

TEST_F(SessionTest, ACancelledTextIsToldNothingMoreAndTheOthersAreUntouched) {
  Engine engine = make(SpeculationMethod::kSequoia, 1.0, 3);
  const std::vector<TokenId> expected[] = {engine.generate(sampled(0, 1.0f, false)).tokens,
                                           engine.generate(sampled(1, 1.0f, false)).tokens};
  const auto all = static_cast<int>(engine.runtime().target_weights->units().size());
  for (int at = 0; at < all; ++at) {
    SCOPED_TRACE(at);
    Session session(engine.runtime());
    std::vector<Told> told(3);
    Ticket third = 0;
    for (unsigned i = 0; i < 3; ++i)
      third = session.admit(sampled(i, 1.0f, false), told[i].events());
    session.step();
    const std::size_t before = told[2].tokens.size();
    int units = 0;
    session.step({}, [&](const Unit&) {
      if (units++ == at) session.cancel(third);  // in the middle of a sweep
    });
    run(session);
    EXPECT_EQ(told[2].tokens.size(), before);
    EXPECT_EQ(told[2].ends, 0);
    for (unsigned i = 0; i < 2; ++i) EXPECT_EQ(told[i].tokens, expected[i]);
  }
}

TEST_F(SessionTest, ATextStopsWithTheTokenThatItsReaderSaysIsTheLast) {
  Engine engine = make(SpeculationMethod::kSequoia, 0, 2);
  const std::vector<TokenId> whole = engine.generate(request(prompt(1))).tokens;
  const std::vector<TokenId> other = engine.generate(request(prompt(2))).tokens;
  for (int last = 1; last < 6; ++last) {
    Session session(engine.runtime());
    Told stopped, beside;
    stopped.stop_after = last;
    session.admit(request(prompt(1)), stopped.events());
    session.admit(request(prompt(2)), beside.events());
    run(session);
    EXPECT_EQ(stopped.tokens, std::vector(whole.begin(), whole.begin() + last));
    EXPECT_EQ(stopped.finish_reason, "stop");
    EXPECT_EQ(stopped.ends, 1);
    EXPECT_EQ(beside.tokens, other);
  }
}

TEST_F(SessionTest, TheSweepEndsEarlyWhenItsLastTextIsCancelledAndTheSessionGoesOn) {
  Engine engine = make(SpeculationMethod::kNone, 0, 1);
  const std::vector<TokenId> expected = engine.generate(request(prompt(2))).tokens;
  Session session(engine.runtime());
  Told first, second;
  const Ticket ticket = session.admit(request(prompt(1)), first.events());
  int units = 0;
  EXPECT_TRUE(session.step({}, [&](const Unit&) {
    if (++units == 2) session.cancel(ticket);
  }));
  EXPECT_EQ(units, 2);
  EXPECT_TRUE(first.tokens.empty());
  EXPECT_FALSE(session.step());
  session.admit(request(prompt(2)), second.events());
  run(session);
  EXPECT_EQ(second.tokens, expected);
}

TEST_F(SessionTest, AStoppedSweepCanBeMadeAgain) {
  Engine engine = make(SpeculationMethod::kSequoia, 1.0, 2);
  const std::vector<TokenId> expected = engine.generate(sampled(0, 1.0f, false)).tokens;
  Session session(engine.runtime());
  Told told;
  session.admit(sampled(0, 1.0f, false), told.events());
  bool more = true;
  for (int sweep = 0; more; ++sweep) {
    std::stop_source stop;
    int units = 0;
    EXPECT_THROW(session.step(stop.get_token(),
                              [&](const Unit&) {
                                if (units++ == sweep % 3) stop.request_stop();
                              }),
                 Stopped);
    more = session.step();
    if (told.ends > 0) break;
  }
  EXPECT_EQ(told.tokens, expected);
}

TEST_F(SessionTest, AReproducibleTextIsPlainSamplingsAloneBesideOthersAndWithAnyDraft) {
  std::vector<TokenId> expected;
  for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia,
                                         SpeculationMethod::kChain, SpeculationMethod::kTopK}) {
    Engine engine = make(method, 0.9, 3);
    for (const bool beside : {false, true}) {
      SCOPED_TRACE(std::string(name(method)) + (beside ? " beside others" : " alone"));
      Session session(engine.runtime());
      Told told, other;
      if (beside) {
        session.admit(sampled(5, 0.9f, false), other.events());
        session.step();
      }
      session.admit(sampled(3, 0.9f, true), told.events());
      run(session);
      if (expected.empty()) expected = told.tokens;
      EXPECT_EQ(told.tokens, expected);
      EXPECT_EQ(told.tokens.size(), static_cast<std::size_t>(kNew));
    }
  }
}

TEST_F(SessionTest, RefusesWhatCanNeverFitAndKeepsTheOthersWaitingInTheirOrder) {
  Engine engine = make(SpeculationMethod::kNone, 0, 1);
  Session session(engine.runtime());
  EXPECT_NE(error_of([&] { session.admit(request(prompt(0, 33))); }).find("33 tokens"),
            std::string::npos);
  std::vector<int> ended;
  for (int i = 0; i < 3; ++i) {
    RequestEvents events;
    events.on_end = [&ended, i](const TextReport&) { ended.push_back(i); };
    session.admit(request(prompt(static_cast<unsigned>(i))), events);
  }
  run(session);
  EXPECT_EQ(ended, (std::vector{0, 1, 2}));
}

TEST_F(SessionTest, AdmitsAndCancelsFromOtherThreadsWhileItSweeps) {
  Engine engine = make(SpeculationMethod::kSequoia, 0, 3);
  Session session(engine.runtime());
  constexpr int kThreads = 4, kEach = 6;
  std::atomic<int> ends = 0, callers = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        RequestEvents events;
        events.on_end = [&](const TextReport&) { ++ends; };
        Request r = request(prompt(static_cast<unsigned>(t * kEach + i)));
        r.max_new_tokens = 6;
        const Ticket ticket = session.admit(std::move(r), std::move(events));
        if (i % 2 == 1) session.cancel(ticket);
      }
      --callers;
    });
  while (callers > 0 || session.step()) session.step();
  for (std::thread& thread : threads) thread.join();
  run(session);
  EXPECT_GE(ends, kThreads * kEach / 2);
  EXPECT_LE(ends, kThreads * kEach);
}

TEST(RowShare, APromptHasHalfTheRowsAtLeastAndTakesAtMostThreeTimesWhatItTakesAlone) {
  constexpr int kPrompt = 2000;
  for (int behind_link = 1; behind_link < 3000; behind_link += 7)
    for (const int trees : {1, 2, 5, 16})
      for (const int nodes : {1, 8, 64, 300}) {
        SCOPED_TRACE(::testing::Message() << behind_link << " rows, " << trees << " x " << nodes);
        double swept = 0, sweeps = 0;
        int left = kPrompt;
        while (left > 0) {
          const RowShare share = share_rows(behind_link, trees, nodes, left);
          const int rows = share.prompt_rows + trees * share.tree_nodes;
          ASSERT_GE(share.tree_nodes, 1);
          ASSERT_LE(share.tree_nodes, nodes);
          ASSERT_LE(rows, std::max(2 * trees, behind_link + behind_link / 4));
          ASSERT_GE(share.prompt_rows, std::min(left, rows / 2));
          left -= share.prompt_rows;
          // A sweep takes what its bytes take, or its rows where they are more.
          swept += std::max(1.0, static_cast<double>(rows) / behind_link);
          ++sweeps;
        }
        const double alone = std::max(1.0, static_cast<double>(kPrompt) / behind_link);
        EXPECT_LE(swept, 3 * alone) << sweeps;
      }
}

TEST_F(SessionTest, ALongPromptIsSpreadOverTheSweepsOfThoseWhoWait) {
  for (const bool speculate : {false, true})
    for (const float temperature : {0.0f, 0.9f}) {
      SCOPED_TRACE(::testing::Message() << speculate << " at " << temperature);
      Engine engine = make(speculate ? SpeculationMethod::kSequoia : SpeculationMethod::kNone,
                           static_cast<double>(temperature), 3, true);
      const int behind_link = engine.plan().rows_behind_link;
      ASSERT_LT(behind_link, 10);  // this machine is slow
      const std::vector<TokenId> alone[] = {engine.generate(sampled(0, temperature, true)).tokens,
                                            engine.generate(sampled(1, temperature, true)).tokens,
                                            engine.generate(sampled(2, temperature, true)).tokens};
      Session session(engine.runtime());
      std::vector<Told> told(3);
      session.admit(sampled(0, temperature, true), told[0].events());
      session.step();
      EXPECT_EQ(session.last_sweep().prompt_rows, 19);  // alone: in one sweep
      for (unsigned i : {1u, 2u}) session.admit(sampled(i, temperature, true), told[i].events());
      int sweeps = 0, prompt_rows = 0;
      for (std::size_t before = told[0].tokens.size(); told[2].tokens.empty();
           before = told[0].tokens.size(), ++sweeps) {
        ASSERT_TRUE(session.step());
        const SweepReport& sweep = session.last_sweep();
        EXPECT_LE(sweep.prompt_rows + sweep.tree_nodes * 2, std::max(6, 2 * behind_link));
        EXPECT_TRUE(told[0].ends > 0 || told[0].tokens.size() > before);  // nobody stands still
        prompt_rows += sweep.prompt_rows;
      }
      EXPECT_GT(sweeps, 5);
      EXPECT_EQ(prompt_rows, 38);
      run(session);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(told[i].tokens, alone[i]) << i;
    }
}

TEST_F(SessionTest, TheFirstSweepCarriesAsMuchOfTheTreeAsPaysBesideThePrompt) {
  HardwareProfile slow = made_up_cost()->profile();  // rows of a prompt outlast the link
  slow.link_bytes_per_second = 1e5;
  slow.attention = slow.mlp = ::canopy::testing::line(1e-3, 5e-3);
  EngineOptions o = options(SpeculationMethod::kSequoia);
  o.plan.cost = std::make_shared<const CostModel>(slow);
  o.plan.resident = 0;
  Engine engine(models(true), o);
  Session session(engine.runtime());
  Told told;
  session.admit(request(prompt(1, 30)), told.events());
  ASSERT_TRUE(session.step());
  const int first = session.last_sweep().tree_nodes;
  EXPECT_EQ(session.last_sweep().prompt_rows, 29);
  ASSERT_TRUE(session.step());
  EXPECT_LT(first, session.last_sweep().tree_nodes);
  run(session);
  EXPECT_EQ(told.tokens,
            make(SpeculationMethod::kNone, 0, 1, false).generate(request(prompt(1, 30))).tokens);
}

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
    const KvPool& pool = engine.runtime().kv->pool();
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
      Session session(engine.runtime());
      std::vector<Told> told(3);
      for (unsigned i = 0; i < 3; ++i) {
        session.admit(asked(i, 250), told[i].events());
        if (later) session.step();
      }
      int rows = 0, most = 0;
      while (session.step()) {
        rows += session.last_sweep().prompt_rows;
        most = std::max(most, blocks_in_use(engine));
      }
      for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(told[i].tokens, alone[i]) << i;
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
  Session session(engine.runtime());
  std::vector<Told> told(2);
  std::vector<Ticket> tickets;
  for (unsigned i = 0; i < 2; ++i) tickets.push_back(session.admit(asked(i, 0), told[i].events()));
  int read = 0;
  while (session.step()) {
    EXPECT_LE(session.last_sweep().prompt_rows, kRows);
    if (const TextReport* first = session.so_far(tickets[0])) {
      EXPECT_GE(first->prompt_read, read);
      read = first->prompt_read;
    }
  }
  EXPECT_EQ(read, kPrompt);
  for (unsigned i = 0; i < 2; ++i) EXPECT_EQ(told[i].tokens, whole.generate(asked(i, 0)).tokens);
}

TEST_F(LongTexts, ReportHowMuchOfTheirPromptWasThereAlready) {
  Engine engine = make(SpeculationMethod::kSequoia, 1);
  EXPECT_EQ(engine.generate(asked(0, 250)).cached_tokens, 0);
  const TextReport second = engine.generate(asked(1, 250));
  EXPECT_EQ(second.cached_tokens, 250 / kKvBlock * kKvBlock);
  EXPECT_EQ(second.known_tokens, 250);  // the first differs from there on
  EXPECT_EQ(second.prompt_read, kPrompt);
}

TEST_F(LongTexts, HaveRoomForAsManyFullOnesAsWereAskedFor) {
  EngineOptions o = options(SpeculationMethod::kNone);
  o.plan.max_prompt = kPrompt;
  o.plan.context = kContext;
  o.plan.max_sequences = 3;
  o.plan.full_texts = 2;
  Engine engine(models(false), o);
  EXPECT_EQ(engine.plan().max_sequences, 3);
  EXPECT_EQ(engine.plan().kv_blocks, 2 * KvPool::blocks_for(engine.plan().slots));
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
    Session session(engine.runtime());
    std::vector<Told> told(3);
    for (unsigned i = 0; i < 3; ++i) session.admit(asked(i, 0), told[i].events());
    run(session);
    for (unsigned i = 0; i < 3; ++i) {
      EXPECT_EQ(told[i].tokens, alone[i]) << i << " " << told[i].error;
      EXPECT_EQ(told[i].ends, 1);
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
  Session session(engine.runtime());
  std::vector<Told> told(3);
  for (unsigned i = 0; i < 3; ++i) session.admit(asked(i), told[i].events());
  run(session);
  for (unsigned i = 0; i < 3; ++i)
    EXPECT_EQ(told[i].tokens, whole.generate(asked(i)).tokens) << told[i].error;
}

}  // namespace
}  // namespace canopy
