#include "src/engine/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/engine/engine_parts.h"
#include "src/engine/row_budget.h"
#include "tests/engine/session_kit.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

TEST_F(SessionTest, TextsThatAreAdmittedAtDifferentTimesShareSweepsAndStayAsTheyAreAlone) {
  for (const float temperature : {0.0f, 1.0f}) {
    Engine engine = make(SpeculationMethod::kSequoia, static_cast<double>(temperature), 3);
    std::vector<std::vector<TokenId>> alone;
    for (unsigned i = 0; i < 3; ++i)
      alone.push_back(engine.generate(sampled(i, temperature, false)).tokens);
    Session session = engine.open_session();
    std::vector<Received> received(3);
    int most = 0;
    for (unsigned i = 0; i < 3; ++i) {
      session.admit(sampled(i, temperature, false), received[i].events());
      for (int sweep = 0; sweep < 2; ++sweep) {
        ASSERT_TRUE(session.step());
        most = std::max(most, session.last_sweep().texts);
      }
    }
    run(session);
    EXPECT_EQ(most, 3);
    for (unsigned i = 0; i < 3; ++i) {
      EXPECT_EQ(received[i].tokens, alone[i]) << "text " << i << " at " << temperature;
      EXPECT_EQ(received[i].ends, 1);
      EXPECT_EQ(received[i].finish_reason, "length");
    }
    EXPECT_FALSE(session.step());
  }
}

TEST_F(SessionTest, TwoTextsThatShareSweepsReadHalfTheBytesOfTwoThatDoNot) {
  Engine engine = make(SpeculationMethod::kNone, 0, 2, true);
  const auto bytes_of = [&](bool together) {
    const std::uint64_t before = engine.link().disk_bytes;
    Session session = engine.open_session();
    session.admit(request(prompt(1)));
    if (!together) run(session);
    session.admit(request(prompt(2)));
    run(session);
    return static_cast<double>(engine.link().disk_bytes - before);
  };
  EXPECT_NEAR(bytes_of(true) / bytes_of(false), 0.5, 0.05);
}

TEST_F(SessionTest, ACancelledTextIsToldNothingMoreAndTheOthersAreUntouched) {
  Engine engine = make(SpeculationMethod::kSequoia, 1.0, 3);
  const std::vector<TokenId> expected[] = {engine.generate(sampled(0, 1.0f, false)).tokens,
                                           engine.generate(sampled(1, 1.0f, false)).tokens};
  const auto all = static_cast<int>(engine.parts().target().units().size());
  for (int at = 0; at < all; ++at) {
    SCOPED_TRACE(at);
    Session session = engine.open_session();
    std::vector<Received> received(3);
    Ticket third = 0;
    for (unsigned i = 0; i < 3; ++i)
      third = session.admit(sampled(i, 1.0f, false), received[i].events());
    session.step();
    const std::size_t before = received[2].tokens.size();
    int units = 0;
    session.step({}, [&](const Unit&) {
      if (units++ == at) session.cancel(third);  // in the middle of a sweep
    });
    run(session);
    EXPECT_EQ(received[2].tokens.size(), before);
    EXPECT_EQ(received[2].ends, 0);
    for (unsigned i = 0; i < 2; ++i) EXPECT_EQ(received[i].tokens, expected[i]);
  }
}

TEST_F(SessionTest, ATextStopsWithTheTokenThatItsReaderSaysIsTheLast) {
  Engine engine = make(SpeculationMethod::kSequoia, 0, 2);
  const std::vector<TokenId> whole = engine.generate(request(prompt(1))).tokens;
  const std::vector<TokenId> other = engine.generate(request(prompt(2))).tokens;
  for (int last = 1; last < 6; ++last) {
    Session session = engine.open_session();
    Received stopped, second;
    stopped.stop_after = last;
    session.admit(request(prompt(1)), stopped.events());
    session.admit(request(prompt(2)), second.events());
    run(session);
    EXPECT_EQ(stopped.tokens, std::vector(whole.begin(), whole.begin() + last));
    EXPECT_EQ(stopped.finish_reason, "stop");
    EXPECT_EQ(stopped.ends, 1);
    EXPECT_EQ(second.tokens, other);
  }
}

TEST_F(SessionTest, TheSweepEndsEarlyWhenItsLastTextIsCancelledAndTheSessionGoesOn) {
  Engine engine = make(SpeculationMethod::kNone, 0, 1);
  const std::vector<TokenId> expected = engine.generate(request(prompt(2))).tokens;
  Session session = engine.open_session();
  Received first, second;
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

TEST_F(SessionTest, AFailedReadEndsTheSessionAndEverybodyInItIsTold) {
  const TempDir dir;
  const std::filesystem::path target = write_noisy_copy(kTarget, dir.path() / "target", 0.08f);
  EngineOptions streamed = options(SpeculationMethod::kNone);
  streamed.plan.resident = 0;
  streamed.plan.max_sequences = 2;
  ModelFiles files = models(false);
  files.target = Checkpoint::open(target);
  Engine engine(std::move(files), streamed);
  Session session = engine.open_session();
  std::vector<Received> received(3);  // two share the sweeps, the third waits
  for (unsigned i = 0; i < 3; ++i) session.admit(request(prompt(i)), received[i].events());
  ASSERT_TRUE(session.step());
  std::filesystem::resize_file(target / "model.safetensors", 4096);
  // The ring may still hold some sweeps of so small a model.
  const std::string error = error_of([&] { run(session); });
  EXPECT_NE(error.find("model.safetensors"), std::string::npos) << error;
  for (const Received& text : received) {
    EXPECT_EQ(text.error, error);
    EXPECT_EQ(text.ends, 1);
    EXPECT_LT(text.tokens.size(), static_cast<std::size_t>(kNew));
  }
  EXPECT_NE(error_of([&] { session.admit(request(prompt(3))); }).find(error), std::string::npos);
}

TEST_F(SessionTest, AStoppedSweepCanBeMadeAgain) {
  Engine engine = make(SpeculationMethod::kSequoia, 1.0, 2);
  const std::vector<TokenId> expected = engine.generate(sampled(0, 1.0f, false)).tokens;
  Session session = engine.open_session();
  Received received;
  session.admit(sampled(0, 1.0f, false), received.events());
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
    if (received.ends > 0) break;
  }
  EXPECT_EQ(received.tokens, expected);
}

TEST_F(SessionTest, AReproducibleTextIsPlainSamplingsAloneBesideOthersAndWithAnyDraft) {
  std::vector<TokenId> expected;
  for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia,
                                         SpeculationMethod::kChain, SpeculationMethod::kTopK}) {
    Engine engine = make(method, 0.9, 3);
    for (const bool beside : {false, true}) {
      SCOPED_TRACE(std::string(name(method)) + (beside ? " beside others" : " alone"));
      Session session = engine.open_session();
      Received received, other;
      if (beside) {
        session.admit(sampled(5, 0.9f, false), other.events());
        session.step();
      }
      session.admit(sampled(3, 0.9f, true), received.events());
      run(session);
      if (expected.empty()) expected = received.tokens;
      EXPECT_EQ(received.tokens, expected);
      EXPECT_EQ(received.tokens.size(), static_cast<std::size_t>(kNew));
    }
  }
}

TEST_F(SessionTest, RefusesWhatCanNeverFitAndKeepsTheOthersWaitingInTheirOrder) {
  Engine engine = make(SpeculationMethod::kNone, 0, 1);
  Session session = engine.open_session();
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
  Session session = engine.open_session();
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
      Session session = engine.open_session();
      std::vector<Received> received(3);
      session.admit(sampled(0, temperature, true), received[0].events());
      session.step();
      EXPECT_EQ(session.last_sweep().prompt_rows, 19);  // alone: in one sweep
      for (unsigned i : {1u, 2u})
        session.admit(sampled(i, temperature, true), received[i].events());
      int sweeps = 0, prompt_rows = 0;
      for (std::size_t before = received[0].tokens.size(); received[2].tokens.empty();
           before = received[0].tokens.size(), ++sweeps) {
        ASSERT_TRUE(session.step());
        const SweepReport& sweep = session.last_sweep();
        EXPECT_LE(sweep.prompt_rows + sweep.tree_nodes * 2, std::max(6, 2 * behind_link));
        EXPECT_TRUE(received[0].ends > 0 ||
                    received[0].tokens.size() > before);  // nobody stands still
        prompt_rows += sweep.prompt_rows;
      }
      EXPECT_GT(sweeps, 5);
      EXPECT_EQ(prompt_rows, 38);
      run(session);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(received[i].tokens, alone[i]) << i;
    }
}

TEST_F(SessionTest, TheFirstSweepCarriesAsMuchOfTheTreeAsPaysBesideThePrompt) {
  HardwareProfile slow = made_up_cost()->profile();  // rows of a prompt outlast the link
  slow.link_bytes_per_second = 1e5;
  slow.layers[0].attention = slow.layers[0].mlp = ::canopy::testing::line(1e-3, 5e-3);
  EngineOptions o = options(SpeculationMethod::kSequoia);
  o.plan.cost = std::make_shared<const CostModel>(slow);
  o.plan.resident = 0;
  Engine engine(models(true), o);
  Session session = engine.open_session();
  Received received;
  session.admit(request(prompt(1, 30)), received.events());
  ASSERT_TRUE(session.step());
  const int first = session.last_sweep().tree_nodes;
  EXPECT_EQ(session.last_sweep().prompt_rows, 29);
  ASSERT_TRUE(session.step());
  EXPECT_LT(first, session.last_sweep().tree_nodes);
  run(session);
  EXPECT_EQ(received.tokens,
            make(SpeculationMethod::kNone, 0, 1, false).generate(request(prompt(1, 30))).tokens);
}

}  // namespace
}  // namespace canopy
