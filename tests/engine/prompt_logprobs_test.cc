// The log probabilities of a prompt's tokens: those of a plain forward, whatever shares the sweep.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "src/base/counting.h"
#include "src/engine/engine_parts.h"
#include "src/engine/token_score.h"
#include "src/measure/perplexity.h"
#include "tests/engine/session_kit.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

using Scores = std::vector<std::vector<std::pair<TokenId, double>>>;

/// The chosen token, then the likeliest, of each report.
Scores flat(std::span<const TokenReport> reports) {
  Scores scores;
  for (const TokenReport& report : reports) {
    auto& one = scores.emplace_back();
    one.emplace_back(report.chosen.token, report.chosen.logprob);
    for (const TokenLogprob& top : report.top) one.emplace_back(top.token, top.logprob);
  }
  return scores;
}

/// Events of a request whose prompt is scored.
struct Scored {
  Scores prompt;
  std::vector<TokenId> tokens;
  int prompts = 0, ends = 0, cached = 0;
  std::string finish_reason, error;

  RequestEvents events() {
    RequestEvents e;
    e.on_prompt = [this](std::span<const TokenId> text, std::span<const TokenReport> logprobs) {
      ++prompts;
      EXPECT_TRUE(tokens.empty());
      EXPECT_EQ(text.size(), logprobs.size() + 1);
      for (std::size_t i = 0; i < logprobs.size(); ++i)
        EXPECT_EQ(logprobs[i].chosen.token, text[i + 1]);
      prompt = flat(logprobs);
    };
    e.on_token = [this](TokenId token, const TokenReport*) {
      tokens.push_back(token);
      return true;
    };
    e.on_end = [this](const TextReport& report) {
      ++ends;
      cached = report.cached_tokens;
      finish_reason = report.finish_reason;
      EXPECT_EQ(flat(report.prompt_logprobs), prompt);
      EXPECT_EQ(report.tokens, tokens);
    };
    e.on_error = [this](const std::string& what) { error = what; };
    return e;
  }
};

class PromptLogprobs : public SessionTest {
 protected:
  static constexpr int kPrompt = 200, kContext = 240, kTop = 3;

  static EngineOptions wide(SpeculationMethod method, int sequences, bool streamed = false,
                            int prompt_rows = 0) {
    EngineOptions o = options(method, 16, 5, 1.0);
    if (method == SpeculationMethod::kNone) o.plan.tree_size = 0;
    if (streamed) o.plan.resident = 0;
    o.plan.prompt_rows = prompt_rows;
    o.plan.max_prompt = kPrompt;
    o.plan.context = kContext;
    o.plan.max_sequences = sequences;
    return o;
  }
  static Engine make(SpeculationMethod method, int sequences, bool streamed = false,
                     int prompt_rows = 0) {
    return Engine(models_for(method), wide(method, sequences, streamed, prompt_rows));
  }
  static Request scored(std::vector<TokenId> prompt, int most) {
    Request r = request(prompt);
    r.prompt_logprobs = kTop;
    r.max_new_tokens = most;
    return r;
  }
  /// Prompts of many lengths; some begin alike, within a block and after whole ones.
  static std::vector<Request> mixed() {
    std::vector<TokenId> longest = prompt(1, kPrompt), parted = prompt(2, kPrompt);
    std::copy(longest.begin(), longest.begin() + 130, parted.begin());
    std::vector<TokenId> at_a_block = prompt(3, 150);
    std::copy(longest.begin(), longest.begin() + 128, at_a_block.begin());
    return {scored(longest, 0),       scored(parted, 1),       scored(at_a_block, 6),
            scored(prompt(4, 40), 0), scored(prompt(5, 1), 0), scored(prompt(6, 1), 4),
            scored(prompt(7, 2), 1),  scored(longest, 3),      scored(prompt(8, 65), 0),
            scored(prompt(9, 64), 12)};
  }
  static std::vector<Scored> alone(const std::vector<Request>& requests) {
    std::vector<Scored> received(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Engine engine = make(SpeculationMethod::kNone, 1);
      Session session = engine.open_session();
      session.admit(requests[i], received[i].events());
      run(session);
      EXPECT_EQ(received[i].prompts, 1);
      EXPECT_EQ(received[i].ends, 1);
      EXPECT_EQ(received[i].finish_reason, "length");
      EXPECT_EQ(std::ssize(received[i].tokens), requests[i].max_new_tokens);
    }
    return received;
  }
};

TEST_F(PromptLogprobs, AreThoseOfAPlainForwardAndOfPerplexity) {
  constexpr int kTokens = 90;
  EngineOptions o = wide(SpeculationMethod::kNone, 1);
  o.plan.logit_rows = kTokens;
  Engine engine(models(false), o);
  const std::vector<TokenId> text = prompt(1, kTokens);
  Scored received;
  {
    Session session = engine.open_session();
    session.admit(scored(text, 0), received.events());
    run(session);
  }
  ASSERT_EQ(received.prompt.size(), text.size() - 1);
  double loss = 0;
  for (const auto& one : received.prompt) loss -= one.front().second;
  EXPECT_EQ(loss, measure_loss(engine, text, kTokens).sum);

  TargetModel& target = engine.parts().target();
  const KvCaches::Loan kv = target.kv().lend();
  const auto position = counting(0, text.size());
  const SequenceRows rows{{text, position, {}, 0, position}, kv.get(), 0};
  const ConstTensorView logits = target.forward({&rows, 1});
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const NodeId node = static_cast<NodeId>(i);
    const std::vector<float> row = target.download_rows(logits, {&node, 1});
    long double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<long double>(x));
    std::vector<TokenId> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
    });
    const auto expect = [&](TokenId token, const std::pair<TokenId, double>& got) {
      EXPECT_EQ(got.first, token);
      // Each of the sum's terms is rounded, and so is each step of it.
      EXPECT_NEAR(got.second,
                  static_cast<double>(row[static_cast<std::size_t>(token)] - std::log(sum)),
                  static_cast<double>(row.size()) * 4e-16);
    };
    ASSERT_EQ(received.prompt[i].size(), 1u + kTop);
    expect(text[i + 1], received.prompt[i][0]);
    for (std::size_t k = 0; k < kTop; ++k) expect(order[k], received.prompt[i][k + 1]);
    // A token is the likeliest where its number is the best one's: they are compared so.
    EXPECT_EQ(text[i + 1] == order[0],
              received.prompt[i][0].second == received.prompt[i][1].second);
  }
}

TEST_F(PromptLogprobs, OfManyPromptsInSharedSweepsAreThoseOfEachAloneBitForBit) {
  const std::vector<Request> requests = mixed();
  const std::vector<Scored> expected = alone(requests);
  struct Case {
    SpeculationMethod method;
    int sequences;
    bool streamed;
    int prompt_rows;
  };
  for (const Case& c :
       {Case{SpeculationMethod::kNone, 10, false, 0}, Case{SpeculationMethod::kNone, 4, true, 0},
        Case{SpeculationMethod::kNone, 3, false, 48},
        Case{SpeculationMethod::kSequoia, 10, false, 0},
        Case{SpeculationMethod::kSequoia, 4, true, 70}}) {
    SCOPED_TRACE(::testing::Message() << name(c.method) << ", " << c.sequences << " at a time, "
                                      << (c.streamed ? "streamed, " : "") << c.prompt_rows);
    Engine engine = make(c.method, c.sequences, c.streamed, c.prompt_rows);
    for (const bool again : {false, true}) {  // the second time the pool remembers them all
      Session session = engine.open_session();
      std::vector<Scored> received(requests.size());
      for (std::size_t i = 0; i < requests.size(); ++i)
        session.admit(requests[i], received[i].events());
      run(session);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(received[i].error, "");
        EXPECT_EQ(received[i].prompt, expected[i].prompt) << i << (again ? ", again" : "");
        EXPECT_EQ(received[i].tokens, expected[i].tokens) << i << (again ? ", again" : "");
        EXPECT_EQ(received[i].prompts, 1);
      }
    }
  }
}

TEST_F(PromptLogprobs, RideInOneSweepWhereItHasRoom) {
  Engine engine = make(SpeculationMethod::kNone, 8);
  Session session = engine.open_session();
  std::vector<Scored> received(8);
  for (unsigned i = 0; i < 8; ++i)
    session.admit(scored(prompt(i, 100), i % 2 == 0 ? 0 : 1), received[i].events());
  EXPECT_TRUE(session.step());
  EXPECT_EQ(session.last_sweep().prompt_rows, 8 * 99);
  for (const Scored& one : received) EXPECT_EQ(one.ends, 1);
  EXPECT_FALSE(session.step());
}

TEST_F(PromptLogprobs, DoNotChangeATextThatIsBeingWrittenNextToThem) {
  for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia}) {
    Engine engine = make(method, 3);
    const std::vector<TokenId> expected = engine.generate(request(prompt(20))).tokens;
    const std::vector<Request> requests = mixed();
    const std::vector<Scored> scores = alone(requests);
    Session session = engine.open_session();
    Received text;
    session.admit(request(prompt(20)), text.events());
    session.step();
    std::vector<Scored> received(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i)
      session.admit(requests[i], received[i].events());
    run(session);
    EXPECT_EQ(text.tokens, expected);
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(received[i].prompt, scores[i].prompt);
  }
}

TEST_F(PromptLogprobs, AreComputedAnewForWhatThePoolRemembersButOnceForEqualBeginnings) {
  Engine engine = make(SpeculationMethod::kNone, 2);
  const std::vector<TokenId> text = prompt(1, 150);
  Request unscored = request(text);
  unscored.max_new_tokens = 1;
  engine.generate(unscored);
  Scored first, second;
  {
    Session session = engine.open_session();
    session.admit(scored(text, 0), first.events());
    session.step();
    EXPECT_EQ(session.last_sweep().prompt_rows, 149);
    run(session);
    EXPECT_EQ(first.cached, 0);
  }
  Session session = engine.open_session();
  first = {};
  Request fewer = scored(text, 2);  // the second has some of what the first has
  fewer.prompt_logprobs = 1;
  session.admit(scored(text, 2), first.events());
  session.admit(fewer, second.events());
  int rows = 0;
  while (session.step()) rows += session.last_sweep().prompt_rows;
  EXPECT_EQ(rows, 149 + 149 - 128);
  EXPECT_EQ(second.cached, 128);
  ASSERT_EQ(second.prompt.size(), first.prompt.size());
  for (std::size_t i = 0; i < first.prompt.size(); ++i) {
    first.prompt[i].resize(2);
    EXPECT_EQ(second.prompt[i], first.prompt[i]) << i;
  }
}

TEST_F(PromptLogprobs, AskingForMoreAlternativesThanTheOtherHasReadsThePromptAgain) {
  Engine engine = make(SpeculationMethod::kNone, 2);
  const std::vector<TokenId> text = prompt(1, 150);
  Request fewer = scored(text, 0);
  fewer.prompt_logprobs = 1;
  Session session = engine.open_session();
  Scored first, second;
  session.admit(fewer, first.events());
  session.admit(scored(text, 0), second.events());
  session.step();
  EXPECT_EQ(session.last_sweep().prompt_rows, 2 * 149);
  for (const auto& one : second.prompt) EXPECT_EQ(one.size(), 1u + kTop);
  EXPECT_EQ(second.prompts, 1);
}

TEST_F(PromptLogprobs, OfACancelledPromptAreNotReportedAndTheOthersAreUntouched) {
  const std::vector<Request> requests{scored(prompt(1, kPrompt), 0), scored(prompt(2, kPrompt), 1),
                                      scored(prompt(1, kPrompt), 0)};
  const std::vector<Scored> expected = alone(requests);
  Engine engine = make(SpeculationMethod::kNone, 3, true, 100);
  const auto units = static_cast<int>(engine.parts().target().units().size());
  for (int gone = 0; gone < 3; ++gone)
    for (int at = 0; at < units; ++at) {
      SCOPED_TRACE(::testing::Message() << "text " << gone << " at unit " << at);
      Session session = engine.open_session();
      std::vector<Scored> received(3);
      std::vector<Ticket> tickets;
      for (std::size_t i = 0; i < 3; ++i)
        tickets.push_back(session.admit(requests[i], received[i].events()));
      session.step();
      int unit = 0;
      session.step({}, [&](const Unit&) {
        if (unit++ == at) session.cancel(tickets[static_cast<std::size_t>(gone)]);
      });
      run(session);
      for (int i = 0; i < 3; ++i) {
        const auto k = static_cast<std::size_t>(i);
        EXPECT_EQ(received[k].ends, i == gone ? 0 : 1);
        EXPECT_EQ(received[k].prompt, i == gone ? Scores() : expected[k].prompt);
      }
    }
}

TEST_F(PromptLogprobs, OfASweepThatWasStoppedAreMadeByTheNext) {
  const std::vector<Request> requests{scored(prompt(1, kPrompt), 0)};
  const std::vector<Scored> expected = alone(requests);
  Engine engine = make(SpeculationMethod::kNone, 1);
  Session session = engine.open_session();
  Scored received;
  session.admit(requests[0], received.events());
  std::stop_source stop;
  EXPECT_THROW(session.step(stop.get_token(),
                            [&](const Unit& unit) {
                              if (unit.kind == UnitKind::kMlp) stop.request_stop();
                            }),
               Stopped);
  EXPECT_EQ(received.prompts, 0);
  run(session);
  EXPECT_EQ(received.prompt, expected[0].prompt);
}

TEST_F(PromptLogprobs, SurviveThatATextIsSentBackForWantOfBlocks) {
  EngineOptions o = wide(SpeculationMethod::kNone, 3, false, 60);
  const Engine roomy(models(false), o);
  const ModelConfig config = Checkpoint::open(kTarget).config();
  o.plan.kv_memory = 5 * KvPool::bytes_needed(config, 1, roomy.plan().kv);
  std::vector<Request> requests;
  for (unsigned i = 0; i < 3; ++i) requests.push_back(scored(prompt(i, 120), 30));
  const std::vector<Scored> expected = alone(requests);
  Engine tight(models(false), o);
  ASSERT_EQ(tight.plan().kv_blocks, 5);
  Session session = tight.open_session();
  std::vector<Scored> received(3);
  for (std::size_t i = 0; i < 3; ++i) session.admit(requests[i], received[i].events());
  run(session);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(received[i].prompt, expected[i].prompt) << i;
    EXPECT_EQ(received[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(received[i].prompts, 1);
  }
}

TEST_F(PromptLogprobs, NeedNoDraftForATextOfOneToken) {
  Engine engine = make(SpeculationMethod::kSequoia, 2);
  for (const int most : {0, 1, 2}) {
    const TextReport report = engine.generate(scored(prompt(1, 60), most));
    EXPECT_EQ(std::ssize(report.tokens), most);
    EXPECT_EQ(report.checked_nodes > 0, most > 1);
    EXPECT_EQ(report.drafted_rows > 0, most > 1);
  }
}

TEST_F(PromptLogprobs, OfNoNewTokensLeaveRoomForPromptsThatFillTheContext) {
  EngineOptions o = wide(SpeculationMethod::kNone, 1);
  o.plan.max_prompt = o.plan.context;
  Engine engine(models(false), o);
  const std::vector<TokenId> text = prompt(1, kContext);
  EXPECT_EQ(std::ssize(engine.generate(scored(text, 0)).prompt_logprobs), kContext - 1);
  EXPECT_NE(error_of([&] { engine.generate(scored(text, 1)); }), "");
  EXPECT_NE(error_of([&] { engine.generate(scored(text, -1)); }), "");
}

TEST(TokenScore, HasTheSameBitsWhereverTheVocabularyIsCut) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<float> logits(97);
    for (float& x : logits) x = static_cast<float>(random() % 20) / 4;  // with many equals
    const auto chosen = static_cast<TokenId>(random() % logits.size());
    for (const int count : {0, 1, 5, 97, 200}) {
      TokenScore whole(chosen, count), cut(chosen, count);
      whole.add(0, logits);
      for (std::size_t first = 0; first < logits.size();) {
        const std::size_t n = std::min<std::size_t>(1 + random() % 40, logits.size() - first);
        cut.add(static_cast<std::int64_t>(first), std::span(logits).subspan(first, n));
        first += n;
      }
      const TokenReport a = std::move(whole).report(), b = std::move(cut).report();
      EXPECT_EQ(flat({&a, 1}), flat({&b, 1}));
      ASSERT_EQ(a.top.size(), std::min<std::size_t>(static_cast<std::size_t>(count), 97));
      for (std::size_t i = 1; i < a.top.size(); ++i)
        EXPECT_TRUE(
            a.top[i - 1].logprob > a.top[i].logprob ||
            (a.top[i - 1].logprob == a.top[i].logprob && a.top[i - 1].token < a.top[i].token));
    }
  }
}

}  // namespace
}  // namespace canopy
