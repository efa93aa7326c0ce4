// MTAD in an engine: what its joint threshold promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

using JointThreshold = TinyEngine;

/// MTAD with these beams, tokens and threshold.
EngineOptions mtad(EngineOptions o, int beams, int gamma, double threshold) {
  o.plan.growth.beams = beams;
  o.plan.joint_tokens = gamma;
  o.plan.joint_threshold = threshold;
  return o;
}

TEST_F(JointThreshold, MtadOfThresholdZeroTakesWholeChains) {
  for (const float temperature : {0.0f, 1.0f})
    for (const int beams : {1, 4}) {
      Engine engine(models(true), mtad(options(SpeculationMethod::kMtad), beams, 4, 0));
      Request r = request(prompt(1));
      r.sampling.temperature = temperature;
      const TextReport text = engine.generate(r);
      EXPECT_TRUE(temperature > 0 || text.steps == kNew / 5);
      EXPECT_GE(text.drafted_rows, text.steps * (1 + 3 * beams));
    }
}

TEST_F(JointThreshold, MtadOfThresholdOneIsPlainDecodingBitForBit) {
  for (const double temperature : {0.0, 1.0}) {
    Engine plain = make(SpeculationMethod::kNone, 0, 0, temperature);
    Engine engine(models(true),
                  mtad(options(SpeculationMethod::kMtad, 0, 0, temperature), 4, 4, 1));
    EXPECT_EQ(engine.plan().inexact->threshold, 1);
    for (unsigned p = 0; p < 4; ++p) {
      Request r = request(prompt(p));
      r.sampling.temperature = static_cast<float>(temperature);
      r.seed = p;
      EXPECT_EQ(engine.generate(r).tokens, plain.generate(r).tokens);
    }
  }
}

/// A model alone: ln of the probability of each token after a text, at temperature 1.
class Alone {
 public:
  explicit Alone(const std::filesystem::path& path) : engine_(open(path), options()) {}
  std::vector<double> operator()(std::span<const TokenId> text) {
    Request r;
    r.prompt = {text.begin(), text.end()};
    r.max_new_tokens = 1;
    r.ignore_end = true;
    r.logprobs = 97;
    const TextReport report = engine_.generate(r);
    std::vector<double> log_q(97, -HUGE_VAL);
    for (const TokenLogprob& one : report.logprobs.front().top)
      log_q[static_cast<std::size_t>(one.token)] = one.logprob;
    return log_q;
  }

 private:
  static EngineOptions options() {
    EngineOptions o;
    o.device.threads = 2;
    o.plan.method = SpeculationMethod::kNone;
    o.plan.max_prompt = 80;
    o.plan.context = 96;
    return o;
  }
  static ModelFiles open(const std::filesystem::path& path) {
    ModelFiles files{Checkpoint::open(path), std::nullopt, nullptr};
    const ModelConfig& config = files.target.config();
    files.tokenizer = std::make_unique<NumberTokenizer>(config.vocab, config.end_tokens);
    return files;
  }
  Engine engine_;
};

/// Visits each whole step, with the places of its first token and of its last.
template <class Visit>
void for_steps(const TextReport& text, const Visit& visit) {
  std::size_t at = 0;
  for (const int tokens : text.step_tokens) {
    const std::size_t last = at + static_cast<std::size_t>(tokens) - 1;
    if (last >= text.tokens.size()) return;
    visit(at, last);
    at = last + 1;
  }
}

TEST_F(JointThreshold, MtadKeepsItsPromiseOfLikelihoodOnEveryRun) {
  // Lemma A.1: sum log p(text) >= steps log tau + sum log q(kept) + sum log p(each step's last).
  Alone draft(draft_);
  int kept = 0, less_likely = 0;
  for (const float temperature : {0.0f, 1.0f})
    for (const double tau : {0.05, 0.3, 0.8})
      for (unsigned p = 0; p < 2; ++p) {
        SCOPED_TRACE(::testing::Message() << temperature << " " << tau << " " << p);
        Engine engine(models(true), mtad(options(SpeculationMethod::kMtad), 4, 4, tau));
        Request r = request(prompt(p));
        r.sampling.temperature = temperature;
        r.seed = p;
        r.logprobs = 1;
        const TextReport text = engine.generate(r);
        std::vector<TokenId> all = r.prompt;
        all.insert(all.end(), text.tokens.begin(), text.tokens.end());
        double of_text = 0, promised = 0;
        for_steps(text, [&](std::size_t first, std::size_t last) {
          double log_p = 0, log_q = 0;
          for (std::size_t i = first; i < last; ++i) {
            log_p += text.logprobs[i].chosen.logprob;
            log_q += draft(std::span(all).first(r.prompt.size() +
                                                i))[static_cast<std::size_t>(text.tokens[i])];
            ++kept;
          }
          // Logits of some ten units in f32, and another order of additions: below 1e-4 a token.
          const double rounding = 1e-4 * static_cast<double>(last - first);
          if (last > first) {
            EXPECT_GT(log_p - log_q, std::log(tau) - rounding);
          }
          less_likely += log_p - log_q < -0.1 ? 1 : 0;
          const double of_last = text.logprobs[last].chosen.logprob;
          of_text += log_p + of_last;
          promised += std::log(tau) + log_q + of_last - rounding;
        });
        EXPECT_GE(of_text, promised);
      }
  EXPECT_GT(kept, 100);
  EXPECT_GT(less_likely, 0);  // tau was of use
}

TEST_F(JointThreshold, MtadOfADraftThatIsTheTargetKeepsAll) {
  ModelFiles same = models(false);
  same.draft = Checkpoint::open(kTarget);
  Engine engine(std::move(same), mtad(options(SpeculationMethod::kMtad), 4, 4, 0.3));
  EXPECT_EQ(engine.generate(request(prompt(2))).steps, kNew / 5);
}

TEST_F(JointThreshold, MtadOfOneTokenOneBeamAndThresholdZeroTakesTurns) {
  Alone draft(draft_), target(kTarget);
  Engine engine(models(true), mtad(options(SpeculationMethod::kMtad), 1, 1, 0));
  int apart = 0;
  for (unsigned p = 0; p < 3; ++p) {
    const Request r = request(prompt(p));
    const TextReport text = engine.generate(r);
    EXPECT_EQ(text.steps, kNew / 2);
    std::vector<TokenId> all = r.prompt;
    for (std::size_t i = 0; i < text.tokens.size(); ++i) {
      const auto best = [&](Alone& model) {
        const std::vector<double> row = model(all);
        return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
      };
      const TokenId of_draft = best(draft), of_target = best(target);
      EXPECT_EQ(text.tokens[i], i % 2 == 0 ? of_draft : of_target) << p << " " << i;
      apart += of_draft != of_target ? 1 : 0;
      all.push_back(text.tokens[i]);
    }
  }
  EXPECT_GT(apart, 0);
}

TEST_F(JointThreshold, MoreBeamsThanThereAreTokensAreRefused) {
  const auto error = [](int beams) {
    return error_of(
        [&] { Engine(models(true), mtad(options(SpeculationMethod::kMtad), beams, 2, 0.1)); });
  };
  EXPECT_NE(error(98).find("98 beams of the draft: there are 97 tokens; give --beams"),
            std::string::npos);
  EXPECT_EQ(error(97), "");
}

}  // namespace
}  // namespace canopy
