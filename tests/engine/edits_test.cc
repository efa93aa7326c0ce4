// Texts whose logits are edited: the same whatever tree they are grown with, and those of plain
// decoding with the same edits, done here once more.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "src/base/error.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"
#include "tests/speculation/toy_constraint.h"

namespace canopy {
namespace {

using testing::ToyConstraint;

class EditsTest : public TinyEngine {
 protected:
  static int vocab() { return Checkpoint::open(kTarget).config().vocab; }

  /// Two of three tokens, depending on the text.
  static bool two_of_three(std::span<const TokenId> text, TokenId next) {
    const TokenId last = text.empty() ? 1 : text.back();
    return (next + last + static_cast<TokenId>(text.size())) % 3 != 0;
  }
  static LogitEditing some_edits() {
    LogitEditing editing;
    editing.repetition = 1.2f;
    editing.presence = 0.3f;
    editing.frequency = 0.2f;
    editing.bias = {{5, 1.0f}, {11, -INFINITY}, {17, -0.5f}};
    editing.constraint = std::make_shared<ToyConstraint>(vocab(), two_of_three);
    return editing;
  }
  /// Penalties alone, bias alone, and everything.
  static std::vector<LogitEditing> editings() {
    LogitEditing penalties, bias;
    penalties.repetition = 1.5f;
    penalties.frequency = 0.6f;
    bias.bias = {{3, 2.0f}, {4, 1.5f}};
    return {penalties, bias, some_edits()};
  }
  static Request edited(unsigned number, const LogitEditing& editing) {
    Request r = request(prompt(number));
    r.edits = editing;
    r.ignore_end = !editing.constraint;
    return r;
  }
};

/// Returns every token's log probability after a text, before edits: logits but for a constant.
std::vector<double> next_logprobs(Engine& engine, const std::vector<TokenId>& text, int vocab) {
  Request r;
  r.prompt = text;
  r.max_new_tokens = 1;
  r.ignore_end = true;
  r.logprobs = vocab;
  std::vector<double> out(static_cast<std::size_t>(vocab));
  const TextReport report = engine.generate(r);
  for (const TokenLogprob& t : report.logprobs[0].top)
    out[static_cast<std::size_t>(t.token)] = t.logprob;
  return out;
}

TEST_F(EditsTest, GreedyTextOfAnyTreeIsPlainGreedyTextWithTheSameEdits) {
  Engine plain = make(SpeculationMethod::kNone);
  const std::vector<LogitEditing> all = editings();
  std::vector<std::vector<TokenId>> expected;
  for (unsigned i = 0; i < all.size(); ++i) {
    expected.push_back(plain.generate(edited(i, all[i])).tokens);
    EXPECT_NE(expected.back(), plain.generate(request(prompt(i))).tokens)
        << "edits changed nothing";
  }
  int tokens = 0, steps = 0;
  for (const auto& [method, size] : {std::pair{SpeculationMethod::kChain, 5},
                                     {SpeculationMethod::kSequoia, 8},
                                     {SpeculationMethod::kSequoia, 64},
                                     {SpeculationMethod::kSpecInfer, 0}}) {
    SCOPED_TRACE(std::string(name(method)) + " " + std::to_string(size));
    Engine engine = make(method, size);
    for (unsigned i = 0; i < all.size(); ++i) {
      const TextReport report = engine.generate(edited(i, all[i]));
      EXPECT_EQ(report.tokens, expected[i]) << "edits " << i;
      tokens += static_cast<int>(report.tokens.size());
      steps += report.steps;
    }
  }
  EXPECT_GT(tokens, steps * 4 / 3) << "the draft never helped";
}

// The scores of a row by the definition, in doubles; what was banned is left out.
TEST_F(EditsTest, GreedyTextIsThatOfALoopThatEditsTheModelsOwnScores) {
  Engine plain = make(SpeculationMethod::kNone);
  // Bias and penalties that only subtract: for these log probabilities serve as logits do.
  LogitEditing editing = some_edits();
  editing.repetition = 1;
  std::vector<TokenId> text = prompt(2, 12), generated;
  const int n = vocab();
  std::map<TokenId, double> bias;
  for (const auto& [token, by] : editing.bias) bias[token] = static_cast<double>(by);
  while (std::ssize(generated) < 16) {
    const std::vector<double> scores = next_logprobs(plain, text, n);
    TokenId best = -1;
    double most = -INFINITY;
    for (TokenId t = 0; t < n; ++t) {
      const auto count = static_cast<double>(std::count(generated.begin(), generated.end(), t));
      const double score = scores[static_cast<std::size_t>(t)] + (bias.contains(t) ? bias[t] : 0) -
                           static_cast<double>(editing.frequency) * count -
                           (count > 0 ? static_cast<double>(editing.presence) : 0);
      if (!two_of_three(generated, t) || score <= most) continue;
      most = score;
      best = t;
    }
    generated.push_back(best);
    text.push_back(best);
  }
  Request r = edited(2, editing);
  r.prompt = prompt(2, 12);
  r.max_new_tokens = 16;
  EXPECT_EQ(plain.generate(r).tokens, generated);
  EXPECT_EQ(make(SpeculationMethod::kSequoia, 16).generate(r).tokens, generated);
}

TEST_F(EditsTest, AReproducibleTextIsTheSameWithAndWithoutADraft) {
  Engine plain = make(SpeculationMethod::kNone),
         drafted = make(SpeculationMethod::kSequoia, 16, 5, 0.8);
  for (unsigned seed = 0; seed < 4; ++seed) {
    Request r = edited(seed, some_edits());
    r.sampling = {0.8f, 0, 0.95f, 0.01f, 0.98f};
    r.seed = seed;
    r.reproducible = true;
    const std::vector<TokenId> text = plain.generate(r).tokens;
    EXPECT_EQ(drafted.generate(r).tokens, text);
    r.edits = {};
    EXPECT_NE(plain.generate(r).tokens, text);
  }
}

TEST_F(EditsTest, ADraftWhoseRowsAreMaskedLosesNoForcedToken) {
  LogitEditing forced;  // the text is fixed, and no model would write it
  const int n = vocab();
  forced.constraint =
      std::make_shared<ToyConstraint>(n, [n](std::span<const TokenId> text, TokenId next) {
        return next == static_cast<TokenId>((text.size() * 37 + 5) % static_cast<std::size_t>(n));
      });
  for (const double temperature : {0.0, 1.0})
    for (const SpeculationMethod method :
         {SpeculationMethod::kSequoia, SpeculationMethod::kSpecInfer, SpeculationMethod::kChain}) {
      SCOPED_TRACE(std::string(name(method)) + " at " + std::to_string(temperature));
      EngineOptions o = options(method, 0, 0, temperature);
      if (method == SpeculationMethod::kChain)
        o.plan.tree_size = 5;
      else
        o.plan.shape = TreeShape::from_parents({-1, 0, 0, 1, 1, 3, 4, 5, 5});  // 5 levels
      Engine engine(models(true), o);
      Request r = edited(1, forced);
      r.sampling.temperature = static_cast<float>(temperature);
      r.max_new_tokens = 25;
      const TextReport report = engine.generate(r);
      EXPECT_EQ(report.step_tokens, std::vector<int>(5, 5));
      for (std::size_t i = 0; i < report.tokens.size(); ++i)
        EXPECT_EQ(report.tokens[i],
                  static_cast<TokenId>((i * 37 + 5) % static_cast<std::size_t>(n)));
    }
}

TEST_F(EditsTest, ATextThatMustEndEndsThereThoughItsTreeGoesOn) {
  ModelFiles files = models(true);
  const TokenId end = 9;
  const int n = files.target.config().vocab;
  files.tokenizer = std::make_unique<NumberTokenizer>(n, std::vector{end});
  Engine engine(std::move(files), options(SpeculationMethod::kChain, 6));
  LogitEditing editing;  // three tokens, then the end, and nothing after it
  editing.constraint =
      std::make_shared<ToyConstraint>(n, [](std::span<const TokenId> text, TokenId next) {
        if (!text.empty() && text.back() == 9) return false;
        return next == (text.size() < 3 ? static_cast<TokenId>(20 + text.size()) : 9);
      });
  const TextReport report = engine.generate(edited(3, editing));
  EXPECT_EQ(report.finish_reason, "stop");
  EXPECT_EQ(report.tokens, (std::vector<TokenId>{20, 21, 22, end}));
  EXPECT_EQ(report.steps, 1);
}

TEST_F(EditsTest, WhereNoTokenMayFollowThatTextEndsInAnErrorAndTheOthersGoOn) {
  EngineOptions o = options(SpeculationMethod::kSequoia, 8);
  o.plan.max_sequences = 2;
  Engine engine(models(true), o);
  const std::vector<TokenId> alone = engine.generate(edited(0, some_edits())).tokens;
  LogitEditing dead;
  dead.constraint = std::make_shared<ToyConstraint>(
      vocab(),
      [](std::span<const TokenId> text, TokenId next) { return text.size() < 6 && next % 2 == 0; });
  Session session = engine.open_session();
  std::string error;
  std::vector<TokenId> tokens, before_error;
  RequestEvents ends, goes_on;
  ends.on_token = [&](TokenId t, const TokenReport*) {
    before_error.push_back(t);
    return true;
  };
  ends.on_end = [&](const TextReport&) { ADD_FAILURE(); };
  ends.on_error = [&](const std::string& what) { error = what; };
  session.admit(edited(1, dead), std::move(ends));
  goes_on.on_token = [&](TokenId t, const TokenReport*) {
    tokens.push_back(t);
    return true;
  };
  session.admit(edited(0, some_edits()), std::move(goes_on));
  while (session.step()) {
  }
  EXPECT_NE(error.find("the text cannot go on: the toy has no token"), std::string::npos) << error;
  EXPECT_LE(before_error.size(), 6u);
  EXPECT_EQ(tokens, alone);
}

TEST_F(EditsTest, ATextThatWaitsForRoomKeepsItsEdits) {
  EngineOptions o = options(SpeculationMethod::kSequoia, 8);
  o.plan.max_sequences = 2;
  o.plan.max_prompt = 60;
  o.plan.context = 60 + kNew;
  Engine roomy(models(true), o);
  // Keys and values for one whole text and the beginning of another.
  const std::uint64_t bytes = static_cast<std::uint64_t>(roomy.plan().kv_blocks) * 3 / 4;
  const ModelConfig t = Checkpoint::open(kTarget).config();
  o.plan.kv_memory = bytes * (KvPool::bytes_needed(t, 1, roomy.plan().kv) * 2);
  Engine tight(models(true), o);
  ASSERT_LT(tight.plan().kv_blocks, roomy.plan().kv_blocks);
  std::vector<Request> requests;
  for (unsigned i = 0; i < 2; ++i) {
    Request r = edited(i, some_edits());
    r.prompt = prompt(i, 55);
    requests.push_back(r);
  }
  const BatchReport expected = roomy.generate(requests), report = tight.generate(requests);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(report.texts[i].tokens, expected.texts[i].tokens);
  EXPECT_GT(report.sweeps, expected.sweeps) << "nobody had to wait";
}

TEST_F(EditsTest, LogProbabilitiesAreThoseOfTheModelBeforeEdits) {
  Engine plain = make(SpeculationMethod::kNone);
  Request r = edited(4, some_edits());
  r.max_new_tokens = 1;
  r.logprobs = 3;
  const TokenReport edited_report = plain.generate(r).logprobs[0];
  const std::vector<double> own = next_logprobs(plain, r.prompt, vocab());
  for (const TokenLogprob& t : edited_report.top)
    EXPECT_EQ(t.logprob, own[static_cast<std::size_t>(t.token)]);
  EXPECT_EQ(edited_report.chosen.logprob,
            own[static_cast<std::size_t>(edited_report.chosen.token)]);
}

TEST_F(EditsTest, WhatTextsTeachOfTheDraftIsOfTextsWithoutEdits) {
  EngineOptions o = options(SpeculationMethod::kSequoia, 8);
  Engine engine(models(true), o);
  const Request with = edited(1, some_edits()), without = request(prompt(1));
  EXPECT_EQ(engine.generate({&with, 1}).learned.positions(), 0);
  EXPECT_GT(engine.generate({&without, 1}).learned.positions(), 0);
}

TEST_F(EditsTest, RequestsThatCannotBeServedAreRefusedWhenTheyAreAdmitted) {
  Engine engine = make(SpeculationMethod::kNone);
  const auto error = [&](const auto& change) {
    Request r = edited(0, some_edits());
    change(r);
    return error_of([&] { engine.open_session().admit(r); });
  };
  EXPECT_EQ(error([](Request&) {}), "");
  EXPECT_NE(error([](Request& r) { r.ignore_end = true; }).find("end token"), std::string::npos);
  EXPECT_NE(error([](Request& r) {
              r.edits.bias = {{100000, 1.0f}};
            }).find("100000"),
            std::string::npos);
  EXPECT_NE(error([](Request& r) { r.edits.repetition = 0; }).find("repetition"),
            std::string::npos);
  EXPECT_NE(error([](Request& r) { r.sampling.temperature = 1e9f; }).find("temperature"),
            std::string::npos);
  EXPECT_NE(error([](Request& r) { r.sampling.min_p = 2; }).find("min-p"), std::string::npos);
  EXPECT_NE(error([](Request& r) { r.sampling.typical_p = 0; }).find("typical-p"),
            std::string::npos);
}

}  // namespace
}  // namespace canopy
