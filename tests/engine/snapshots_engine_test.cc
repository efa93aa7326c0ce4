// Turns and texts that begin with what earlier ones have read, of models with recurrent layers:
// only what follows a snapshot is read, and texts are those of an engine that reads them anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/recurrent_kit.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

class RecurrentTurns : public RecurrentEngine {
 protected:
  static constexpr int kFirst = 1000, kWhole = 1400;

  EngineOptions turns(SpeculationMethod method, int nodes, int sequences = 1) const {
    EngineOptions options = options_until(method, nodes, kWhole - 1, kWhole);
    options.plan.max_sequences = options.plan.texts = sequences;
    options.plan.reuses_texts = true;
    return options;
  }
  Engine open(const EngineOptions& options) const {
    return Engine(files(options.plan.method != SpeculationMethod::kNone && !options.plan.draft),
                  options);
  }
  /// The next turn's request, of a text so far.
  static Request next(const Request& before, const std::vector<TokenId>& answer, int more,
                      int tokens) {
    Request request = asked(9, more, tokens);
    std::vector<TokenId> prompt = before.prompt;
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    prompt.insert(prompt.end(), request.prompt.begin(), request.prompt.end());
    request.prompt = std::move(prompt);
    return request;
  }
  struct Turn {
    std::vector<TokenId> tokens;
    int rows = 0, cached = 0;  // of its prompt
  };
  static Turn run(Session& session, const Request& request) {
    Turn turn;
    RequestEvents events;
    events.on_end = [&](const TextReport& report) {
      turn.tokens = report.tokens;
      turn.cached = report.cached_tokens;
    };
    session.admit(request, std::move(events));
    while (session.step()) turn.rows += session.last_sweep().prompt_rows;
    return turn;
  }
  std::vector<TokenId> anew(const Request& request) const {
    return open(turns(SpeculationMethod::kNone, 0)).generate(request).tokens;
  }
};

TEST_P(RecurrentTurns, ASecondTurnAfterAThousandTokensReadsItsOwnTokensAndLessThanABlock) {
  const Request first = asked(1, kFirst, 70);
  const std::vector<TokenId> answer = anew(first);
  const Request second = next(first, answer, 25, 60);
  const std::vector<TokenId> expected = anew(second);
  std::vector<std::pair<std::string, EngineOptions>> all{
      {"plain", turns(SpeculationMethod::kNone, 0)},
      {"chain", turns(SpeculationMethod::kChain, 16)},
      {"sequoia", turns(SpeculationMethod::kSequoia, 64)},
      {"copy", turns(SpeculationMethod::kTopK, 48)}};
  all.back().second.plan.draft = draft_source_named("copy:1");
  for (const bool resident : {true, false})
    for (const auto& [what, options] : all) {
      SCOPED_TRACE(what + (resident ? ", resident" : ", streamed"));
      if (!resident && (what == "chain" || what == "copy")) continue;  // as long as the others
      EngineOptions own = options;
      if (!resident) own.plan.resident = 0;
      Engine engine = open(own);
      Session session = engine.open_session();
      const Turn one = run(session, first);
      EXPECT_EQ(one.tokens, answer);
      EXPECT_EQ(one.rows, kFirst - 1);
      const Turn two = run(session, second);
      EXPECT_EQ(two.tokens, expected);
      EXPECT_LT(two.rows, 25 + kKvBlock);
      EXPECT_EQ(two.cached, (kFirst + 69) / kKvBlock * kKvBlock);
      // Another answer to that turn: its prompt's end is still there.
      const Turn again = run(session, second);
      EXPECT_EQ(again.tokens, expected);
      EXPECT_LT(again.rows, kKvBlock);
    }
}

TEST_P(RecurrentTurns, TextsWithACommonBeginningCancelsAndStopsChangeNothing) {
  Request system = asked(1, 400, 0);
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) {
    Request request = next(system, {}, 100 + 40 * i, 90);
    for (std::size_t at = 400; at < request.prompt.size(); ++at)
      request.prompt[at] = (request.prompt[at] + 7 * i) % 89 + 3;
    requests.push_back(std::move(request));
  }
  std::vector<std::vector<TokenId>> alone;
  for (const Request& request : requests) alone.push_back(anew(request));
  EngineOptions options = turns(SpeculationMethod::kSequoia, 24, 3);
  options.plan.prompt_rows = 150;  // prompts are read in parts
  Engine engine = open(options);
  Session session = engine.open_session();
  int rows_of_last = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<Received> received(requests.size() + 1);
    for (std::size_t i = 0; i < requests.size(); ++i)
      session.admit(requests[i], received[i].events());
    const Ticket cancelled = session.admit(asked(7, 300), received.back().events());
    int rows = 0;
    for (int sweep = 1;; ++sweep) {
      if (sweep == 4 + round) session.cancel(cancelled);
      std::stop_source stop;
      int units = 0;
      try {
        if (!session.step(stop.get_token(), [&](const Unit&) {
              if (sweep % 3 == 0 && ++units == sweep % 7 + 2) stop.request_stop();
            }))
          break;
        rows += session.last_sweep().prompt_rows;
      } catch (const Stopped&) {
      }
    }
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(received[i].tokens, alone[i]) << "text " << i << " of round " << round;
    rows_of_last = rows;
  }
  int all = 0;
  for (const Request& request : requests) all += static_cast<int>(request.prompt.size());
  EXPECT_LT(rows_of_last, all / 2) << "what they have in common is read again and again";
}

TEST_P(RecurrentTurns, ATextThatWasSentBackGoesOnFromASnapshot) {
  std::vector<Request> requests;
  for (int i = 0; i < 2; ++i) requests.push_back(asked(i, 300, 200));
  std::vector<std::vector<TokenId>> alone;
  for (const Request& request : requests) alone.push_back(anew(request));
  EngineOptions options = options_until(SpeculationMethod::kNone, 0, 499, 500);
  options.plan.max_sequences = options.plan.texts = 2;
  options.plan.reuses_texts = true;
  const ModelConfig config = Checkpoint::open(target()).config();
  options.plan.kv_memory = 13 * KvPool::bytes_needed(config, 1, {});  // of 16 for both
  Engine engine = open(options);
  ASSERT_EQ(engine.plan().max_sequences, 2);
  Session session = engine.open_session();
  std::vector<Received> received(2);
  for (std::size_t i = 0; i < 2; ++i) session.admit(requests[i], received[i].events());
  int rows = 0, alone_for = 0;
  while (session.step()) {
    rows += session.last_sweep().prompt_rows;
    alone_for += received[0].ends + received[1].ends == 0 && session.last_sweep().texts == 1;
  }
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(received[i].tokens, alone[i]) << i;
  EXPECT_GT(alone_for, 0) << "nobody was sent back";
  EXPECT_GT(rows, 2 * 299);
  EXPECT_LT(rows, 2 * 299 + 299) << "it was read anew";
}

TEST_P(RecurrentTurns, APromptCacheHasTheSnapshots) {
  const Request first = asked(1, kFirst, 70);
  const TempDir dir;
  std::vector<TokenId> answer;
  {
    Engine engine = open(turns(SpeculationMethod::kSequoia, 24));
    answer = engine.generate(first).tokens;
    engine.save_prompts(dir / "prompts", "test");
  }
  const Request second = next(first, answer, 25, 60);
  const std::vector<TokenId> expected = anew(second);
  Engine engine = open(turns(SpeculationMethod::kSequoia, 24));
  const LoadedPrompts loaded = engine.load_prompts(dir / "prompts", "test");
  EXPECT_EQ(loaded.tokens, (kFirst + 69) / kKvBlock * kKvBlock);
  const TextReport report = engine.generate(second);
  EXPECT_EQ(report.tokens, expected);
  EXPECT_EQ(report.cached_tokens, loaded.tokens);
  // A snapshot whose bytes are others is not taken.
  std::fstream file(dir / "prompts", std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-5, std::ios::end);
  const int byte = file.get();
  file.seekp(-5, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  Engine other = open(turns(SpeculationMethod::kNone, 0));
  EXPECT_NE(error_of([&] { other.load_prompts(dir / "prompts", "test"); }).find("damaged"),
            std::string::npos);
}

TEST_P(RecurrentTurns, TheLedgerHasTheSnapshots) {
  const ModelConfig config = Checkpoint::open(target()).config();
  for (const int sequences : {1, 3}) {
    const Engine engine = open(turns(SpeculationMethod::kSequoia, 24, sequences));
    const Plan& plan = engine.plan();
    EXPECT_EQ(plan.snapshots, 2 * sequences + 1);
    for (const char* whose : {"target", "draft"}) {
      std::uint64_t bytes = 0;
      for (const LedgerEntry& entry : plan.ledger)
        if (entry.what.starts_with(std::string(whose) + " snapshots of recurrent layers, " +
                                   std::to_string(plan.snapshots) + " of "))
          bytes += entry.bytes;
      EXPECT_EQ(bytes, StateSnapshots::bytes_needed(config, plan.snapshots)) << whose;
      EXPECT_GT(bytes, 0U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, RecurrentTurns,
                         ::testing::Values("qwen3_5", "qwen3_5.gguf", "qwen3_5_moe", "qwen3_next"),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace canopy
