#include "src/speculation/growers/frontier_grower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/base/error.h"
#include "tests/speculation/tiny_draft.h"

namespace canopy::testing {
namespace {

/// Asks for the nodes of a script, level by level, and keeps the rows that come.
class Script final : public Grower {
 public:
  explicit Script(std::vector<std::vector<DraftedNode>> levels) : levels_(std::move(levels)) {}

  std::vector<DraftedNode> take(std::span<const DraftedRow> rows) override {
    for (const DraftedRow& row : rows) {
      if (row.best != nullptr) best.push_back(*row.best);
      drawn.emplace_back(row.drawn.begin(), row.drawn.end());
      judged.emplace_back(row.judged.begin(), row.judged.end());
    }
    return at_ < levels_.size() ? levels_[at_++] : std::vector<DraftedNode>{};
  }
  GrownTree finish() override { return {TokenTree(0), {0}}; }

  std::vector<std::vector<float>> drawn, judged;
  std::vector<BestTokens> best;

 private:
  std::vector<std::vector<DraftedNode>> levels_;
  std::size_t at_ = 0;
};

struct FrontierGrowerTest : public TinyDraft {
  static constexpr int kTexts = 3;

  ShapeGrower::Config room(Growth::Kind kind, Drawing drawing = Drawing::kTopK) const {
    ShapeGrower::Config c;
    c.shape = TreeShape::chain(16);
    c.drawing = drawing;
    c.vocab = config.vocab;
    c.max_requests = kTexts;
    c.room = TreeRoom{16, 16, 8, 16}.for_texts(kTexts);
    c.growth.kind = kind;
    return c;
  }

  /// The probabilities that follow a text.
  std::vector<float> row_after(const Tokens& text, const Sampling& sampling) {
    KvCache kv = cache();
    const TensorView logits = logits_after(text, kv);
    const Buffer to = device->allocate(logits.bytes());
    const TensorView p(to.data(), DType::kF32, {1, config.vocab});
    device->ops().probabilities(*stream, logits, sampling, p);
    return download(p);
  }
};

/// The text of each node that a script has run, in their order.
std::vector<Tokens> texts_of(const Tokens& text,
                             const std::vector<std::vector<DraftedNode>>& levels) {
  std::vector<Tokens> texts{text};
  for (const auto& level : levels)
    for (const DraftedNode& node : level) {
      texts.push_back(texts[static_cast<std::size_t>(node.parent)]);
      texts.back().push_back(node.token);
    }
  return texts;
}

TEST_F(FrontierGrowerTest, GivesEachNodesRowBitForBitAsOfItsPathAlone) {
  const std::vector<std::vector<std::vector<DraftedNode>>> scripts{
      {{{1, 0}, {2, 0}, {3, 0}}, {{4, 1}, {5, 3}, {6, 3}}, {{7, 5}}},
      {},
      // A chain that is asked for at once, as guesses are, then more after its middle.
      {{{1, 0}, {2, 1}, {3, 2}}, {{4, 2}, {5, 4}}, {{6, 5}}}};
  for (const float temperature : {0.0f, 0.7f}) {
    const Sampling sampling{.temperature = temperature, .top_p = 0.9f};
    const Sampling expected = temperature > 0 ? sampling : Sampling{.temperature = 1};
    FrontierGrower frontier(*device, room(Growth::Kind::kGraph));
    std::vector<Tokens> texts{{3, 1, 4}, {1}, {5, 9, 2, 6}};
    std::vector<KvCache> caches;
    std::vector<std::unique_ptr<Script>> growers;
    std::vector<FrontierGrower::Request> requests;
    for (std::size_t r = 0; r < scripts.size(); ++r) caches.push_back(cache());
    for (std::size_t r = 0; r < scripts.size(); ++r) {
      growers.push_back(std::make_unique<Script>(scripts[r]));
      requests.push_back({{texts[r], &caches[r], sampling, {}}, growers[r].get()});
    }
    const std::vector<Draft> drafts = frontier.grow(model, requests, *stream, {});
    for (std::size_t r = 0; r < scripts.size(); ++r) {
      const std::vector<Tokens> run = texts_of(texts[r], scripts[r]);
      ASSERT_EQ(growers[r]->drawn.size(), run.size());
      EXPECT_EQ(drafts[r].drafted, static_cast<int>(run.size()));
      for (std::size_t i = 0; i < run.size(); ++i) {
        EXPECT_EQ(growers[r]->drawn[i], row_after(run[i], expected)) << r << " " << i;
        EXPECT_EQ(growers[r]->judged[i], growers[r]->drawn[i]);
      }
      EXPECT_EQ(caches[r].length(), static_cast<int>(texts[r].size()) - 1);  // all but the root
    }
  }
}

TEST_F(FrontierGrowerTest, JudgesConfidenceByThePlainSoftmaxWhateverIsDrawn) {
  const Sampling sampling{.temperature = 0.5f, .top_k = 3};
  FrontierGrower frontier(*device, room(Growth::Kind::kConfidence));
  const Tokens text{3, 1, 4};
  const std::vector<std::vector<DraftedNode>> script{{{1, 0}}, {{2, 1}}};
  KvCache kv = cache();
  Script grower(script);
  const FrontierGrower::Request request{{text, &kv, sampling, {}}, &grower};
  frontier.grow(model, {&request, 1}, *stream, {});
  const std::vector<Tokens> run = texts_of(text, script);
  for (std::size_t i = 0; i < run.size(); ++i) {
    EXPECT_EQ(grower.drawn[i], row_after(run[i], sampling));
    EXPECT_EQ(grower.judged[i], row_after(run[i], {.temperature = 1}));
  }
}

TEST_F(FrontierGrowerTest, GivesValuedTreesTheBestOfEachNodesRowAsOfItsPathAlone) {
  const std::vector<std::vector<DraftedNode>> script{
      {{1, 0}, {2, 0}, {3, 0}}, {{4, 1}, {5, 3}}, {{7, 5}}};
  for (const float temperature : {0.0f, 0.7f}) {
    const Sampling sampling{.temperature = temperature, .top_p = 0.9f};
    const Sampling whole{.temperature = temperature > 0 ? temperature : 1};  // nothing is cut off
    FrontierGrower frontier(*device, room(Growth::Kind::kValued));
    const Tokens texts[] = {{3, 1, 4}, {1}};
    std::vector<KvCache> caches;
    for (int r = 0; r < 2; ++r) caches.push_back(cache());
    Script first(script), second({script[0]});
    const FrontierGrower::Request requests[] = {{{texts[0], &caches[0], sampling, {}}, &first},
                                                {{texts[1], &caches[1], sampling, {}}, &second}};
    const std::vector<Draft> drafts = frontier.grow(model, requests, *stream, {});
    for (std::size_t r = 0; r < 2; ++r) {
      const Script& grower = r == 0 ? first : second;
      const std::vector<std::vector<DraftedNode>> one_level{script[0]};
      const std::vector<Tokens> run = texts_of(texts[r], r == 0 ? script : one_level);
      ASSERT_EQ(grower.best.size(), run.size());
      EXPECT_EQ(drafts[r].drawing, Drawing::kTopK);
      for (std::size_t i = 0; i < run.size(); ++i) {
        const std::vector<float> p = row_after(run[i], whole);
        const BestTokens& best = grower.best[i];
        ASSERT_EQ(best.row.count, kChanceRanks);
        std::vector<TokenId> order(p.size());
        std::iota(order.begin(), order.end(), 0);
        const auto of = [&](TokenId token) { return p[static_cast<std::size_t>(token)]; };
        std::stable_sort(order.begin(), order.end(),
                         [&](TokenId a, TokenId b) { return of(a) > of(b); });
        order.resize(kChanceRanks);
        EXPECT_EQ(best.tokens, order);
        double entropy = 0;
        for (const float one : p)
          entropy -= static_cast<double>(one) * std::log(static_cast<double>(one));
        EXPECT_NEAR(best.row.entropy, entropy, 1e-5);
        for (std::size_t k = 0; k < order.size(); ++k)
          EXPECT_NEAR(best.row.probability[k], of(order[k]), 1e-6f * of(order[k]));
      }
    }
  }
}

TEST_F(FrontierGrowerTest, KeepsTheRowsThatAVerifierAsksFor) {
  const Sampling sampling{.temperature = 0.8f};
  FrontierGrower frontier(*device, room(Growth::Kind::kReach, Drawing::kSequoia));
  const Tokens texts[] = {{3, 1, 4}, {2, 7}};
  const std::vector<std::vector<DraftedNode>> script{{{1, 0}}, {{2, 1}}, {{3, 2}}};
  std::vector<KvCache> caches;
  for (int r = 0; r < 2; ++r) caches.push_back(cache());
  Script first(script), second({script[0]});
  const FrontierGrower::Request requests[] = {{{texts[0], &caches[0], sampling, {}}, &first},
                                              {{texts[1], &caches[1], sampling, {}}, &second}};
  const std::vector<Draft> drafts = frontier.grow(model, requests, *stream, {});
  for (std::size_t r = 0; r < 2; ++r) {
    const Script& grower = r == 0 ? first : second;
    for (std::size_t i = 0; i < grower.drawn.size(); ++i) {
      std::vector<float> row(static_cast<std::size_t>(config.vocab));
      device->download(*stream, std::as_writable_bytes(std::span(row)),
                       drafts[r].q.rows(static_cast<std::int64_t>(i), 1).data());
      stream->synchronize();
      EXPECT_EQ(row, grower.drawn[i]) << r << " " << i;
    }
  }
}

TEST_F(FrontierGrowerTest, LeavesEachCacheAsItWasWhenItIsStoppedOrHasNoRoom) {
  FrontierGrower frontier(*device, room(Growth::Kind::kGraph));
  const Tokens text{3, 1, 4};
  KvCache kv = cache();
  std::stop_source stop;
  stop.request_stop();
  Script grower({{{1, 0}}});
  const FrontierGrower::Request request{{text, &kv, {}, {}}, &grower};
  EXPECT_THROW(frontier.grow(model, {&request, 1}, *stream, stop.get_token()), Stopped);
  EXPECT_EQ(kv.length(), 0);
  Script wide({std::vector<DraftedNode>(30, {1, 0})});
  const FrontierGrower::Request too_wide{{text, &kv, {}, {}}, &wide};
  EXPECT_THROW(frontier.grow(model, {&too_wide, 1}, *stream, {}), Error);
  EXPECT_EQ(kv.length(), 0);
}

TEST_F(FrontierGrowerTest, TakesTheMemoryThatIsPlanned) {
  for (const Growth::Kind kind : {Growth::Kind::kGraph, Growth::Kind::kConfidence})
    for (const Drawing drawing : {Drawing::kTopK, Drawing::kSequoia}) {
      const ShapeGrower::Config c = room(kind, drawing);
      const std::size_t row = static_cast<std::size_t>(config.vocab) * sizeof(float);
      const std::size_t q = kTexts * (uses_q(drawing) ? 16 : 8) * row;
      const std::size_t judged = kind == Growth::Kind::kConfidence ? kTexts * 8 * row : 0;
      EXPECT_EQ(FrontierGrower::device_bytes(c), q + judged);
    }
  // Bytes of a valued tree's row: 16 tokens, their probabilities, its entropy.
  EXPECT_EQ(FrontierGrower::device_bytes(room(Growth::Kind::kValued)),
            kTexts * 8 * (2 * kChanceRanks + 1) * sizeof(float));
}

}  // namespace
}  // namespace canopy::testing
