#include "src/speculation/drafters/head_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <random>

#include "src/base/error.h"

namespace canopy {
namespace {

using Tokens = std::vector<TokenId>;

/// Heads of random values, or of none, and rows that a target's head might have read.
class HeadDrafterTest : public ::testing::Test {
 protected:
  static constexpr int kDim = 24, kVocab = 61, kHeads = 3;

  std::vector<float>& values(std::size_t count, float deviation) {
    std::normal_distribution<float> normal;
    std::vector<float>& v = store_.emplace_back(count);
    for (float& x : v) x = deviation * normal(random_);
    return v;
  }
  static const std::byte* bytes(const std::vector<float>& v) {
    return reinterpret_cast<const std::byte*>(v.data());
  }
  HeadDrafter make(int blocks, bool own_matrices, float deviation, int nodes, int texts = 1) {
    HeadWeights weights;
    for (int head = 0; head < kHeads; ++head) {
      auto& of_head = weights.blocks.emplace_back();
      auto& w = w_.emplace_back();
      auto& b = b_.emplace_back();
      for (int block = 0; block < blocks; ++block) {
        w.push_back(&values(kDim * kDim, deviation));
        b.push_back(&values(kDim, deviation));
        of_head.push_back({WeightView(bytes(*w.back()), DType::kF32, kDim, kDim),
                           ConstTensorView(bytes(*b.back()), DType::kF32, {kDim})});
      }
    }
    for (int i = 0; i < (own_matrices ? kHeads : 1); ++i) {
      u_.push_back(&values(kVocab * kDim, 1.0f));
      weights.matrices.emplace_back(bytes(*u_.back()), DType::kF32, kVocab, kDim);
    }
    return HeadDrafter(*device, std::move(weights), {kDim, kVocab, nodes * texts, texts});
  }
  /// The best tokens of a head for what was read, by plain loops in f64.
  Tokens best_of(int head, std::span<const float> read) const {
    std::vector<double> z(read.begin(), read.end());
    const auto h = static_cast<std::size_t>(head);
    for (std::size_t block = 0; block < w_[h].size(); ++block) {
      std::vector<double> added(kDim);
      for (std::size_t i = 0; i < kDim; ++i) {
        double x = static_cast<double>((*b_[h][block])[i]);
        for (std::size_t j = 0; j < kDim; ++j)
          x += static_cast<double>((*w_[h][block])[i * kDim + j]) * z[j];
        added[i] = x / (1 + std::exp(-x));
      }
      for (std::size_t i = 0; i < kDim; ++i) z[i] += added[i];
    }
    const std::vector<float>& u = *u_[u_.size() == 1 ? 0 : h];
    std::vector<double> logits(kVocab);
    for (std::size_t t = 0; t < kVocab; ++t)
      for (std::size_t j = 0; j < kDim; ++j)
        logits[t] += static_cast<double>(u[t * kDim + j]) * z[j];
    Tokens order(kVocab);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    return order;
  }
  /// Goes on with a text after `node` of a tree of two nodes, for which these rows were read.
  void conclude(HeadDrafter& drafter, DraftState& state, const std::vector<float>& read,
                NodeId node) {
    const Draft draft = root_only(1);
    Verdict verdict{{0}, 5};
    if (node > 0) verdict.path.push_back(node);
    drafter.conclude(
        state, draft, verdict,
        ConstTensorView(bytes(read), DType::kF32, {std::ssize(read) / kDim, std::int64_t{kDim}}),
        *stream);
    stream->synchronize();
  }
  Draft grow(HeadDrafter& drafter, DraftState& state, const TreeShape& shape) {
    const Tokens text{3, 5};
    DraftRequest request;
    request.state = &state;
    request.text = text;
    return drafter.grow({&request, 1}, shape, *stream, {}).front();
  }

  std::unique_ptr<Device> device = make_device({.threads = 1});
  std::unique_ptr<Stream> stream = device->make_stream("test");
  std::mt19937 random_{3};
  std::deque<std::vector<float>> store_;
  std::vector<std::vector<std::vector<float>*>> w_, b_;
  std::vector<std::vector<float>*> u_;
};

TEST_F(HeadDrafterTest, EachLevelHasItsHeadsBestTokensBelowEachNode) {
  for (const int blocks : {1, 2})
    for (const bool own : {false, true}) {
      w_.clear(), b_.clear(), u_.clear();
      const TreeShape shape = TreeShape::branching(std::array{3, 2, 2});
      HeadDrafter drafter = make(blocks, own, 0.3f, shape.size());
      const auto state = drafter.open();
      const std::vector<float>& read = values(2 * kDim, 1.0f);
      for (const NodeId node : {0, 1}) {
        conclude(drafter, *state, read, node);
        const Draft draft = grow(drafter, *state, shape);
        ASSERT_EQ(draft.tree.size(), 1 + 3 + 6 + 12);
        EXPECT_EQ(draft.drawing, Drawing::kTopK);
        EXPECT_EQ(draft.tree.token(0), 5);
        const std::span<const float> row = std::span(read).subspan(
            static_cast<std::size_t>(node) * kDim, static_cast<std::size_t>(kDim));
        for (NodeId i = 0; i < draft.tree.size(); ++i) {
          EXPECT_EQ(draft.row[static_cast<std::size_t>(i)], -1);
          const TokenTree::Range children = draft.tree.children(i);
          EXPECT_EQ(children.count, shape.child_count(i));
          if (children.count == 0) continue;
          const Tokens best = best_of(draft.tree.depth(i), row);
          for (int k = 0; k < children.count; ++k)
            EXPECT_EQ(draft.tree.token(children.first + k), best[static_cast<std::size_t>(k)]);
        }
      }
    }
}

TEST_F(HeadDrafterTest, HeadsThatAddNothingGuessWhatTheModelsOwnHeadDoes) {
  HeadDrafter drafter = make(1, false, 0.0f, 16);
  const auto state = drafter.open();
  const std::vector<float>& read = values(kDim, 1.0f);
  conclude(drafter, *state, read, 0);
  const Draft draft = grow(drafter, *state, TreeShape::branching(std::array{4, 1, 1}));
  std::vector<double> logits(kVocab);
  for (std::size_t t = 0; t < kVocab; ++t)
    for (std::size_t j = 0; j < kDim; ++j)
      logits[t] += static_cast<double>((*u_[0])[t * kDim + j]) * static_cast<double>(read[j]);
  const auto best =
      static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  EXPECT_EQ(draft.tree.token(1), best);
  EXPECT_EQ(draft.tree.token(draft.tree.children(1).first), best);
}

TEST_F(HeadDrafterTest, ATextThatWasNotSweptHasARootAloneAndNoLevelIsBehindTheLastHead) {
  HeadDrafter drafter = make(1, true, 0.3f, 8, 2);
  const auto known = drafter.open(), fresh = drafter.open();
  EXPECT_THROW(drafter.open(), Error);
  conclude(drafter, *known, values(kDim, 1.0f), 0);
  const Tokens a{1, 2}, b{3};
  std::vector<DraftRequest> requests(2);
  requests[0].state = fresh.get(), requests[0].text = b;
  requests[1].state = known.get(), requests[1].text = a;
  const auto drafts = drafter.grow(requests, TreeShape::chain(7), *stream, {});
  EXPECT_EQ(drafts[0].tree.size(), 1);
  EXPECT_EQ(drafts[0].tree.token(0), 3);
  EXPECT_EQ(drafts[1].tree.size(), 1 + kHeads);
}

TEST_F(HeadDrafterTest, ATextsTreeDoesNotDependOnItsNeighbours) {
  HeadDrafter drafter = make(1, true, 0.3f, 8, 3);
  const TreeShape shape = TreeShape::branching(std::array{2, 1, 1});
  std::vector<std::unique_ptr<DraftState>> states;
  std::vector<DraftRequest> requests(3);
  const Tokens text{7};
  for (DraftRequest& request : requests) {
    states.push_back(drafter.open());
    conclude(drafter, *states.back(), values(kDim, 1.0f), 0);
    request.state = states.back().get(), request.text = text;
  }
  const auto together = drafter.grow(requests, shape, *stream, {});
  for (std::size_t i = 0; i < 3; ++i) {
    const auto alone = drafter.grow({&requests[i], 1}, shape, *stream, {}).front();
    EXPECT_TRUE(std::ranges::equal(alone.tree.tokens(), together[i].tree.tokens()));
  }
  EXPECT_FALSE(std::ranges::equal(together[0].tree.tokens(), together[1].tree.tokens()));
}

TEST_F(HeadDrafterTest, ValuesThatAreNotFiniteAreAnError) {
  HeadDrafter drafter = make(1, false, 0.3f, 8);
  const auto state = drafter.open();
  conclude(drafter, *state, std::vector<float>(kDim, NAN), 0);
  EXPECT_THROW(grow(drafter, *state, TreeShape::chain(3)), Error);
  EXPECT_THROW(grow(drafter, *state, TreeShape::chain(9)), Error) << "there is no room";
  EXPECT_THROW(drafter.conclude(*state, root_only(1), {{0}, 1}, {}, *stream), Error);
}

TEST(AcceptanceOfHeads, IsALevelsOwnAndNothingBehindTheLastHead) {
  const Acceptance acceptance = acceptance_of_heads(2, {{0.6, 0.2}, {0.4, 0.1}});
  EXPECT_EQ(acceptance.below(0), (std::vector{0.6, 0.2}));
  EXPECT_EQ(acceptance.below(1), (std::vector{0.4, 0.1}));
  EXPECT_EQ(acceptance.below(2), std::vector{0.0});
  const TreeShape shape = TreeShape::branching(std::array{2, 2});
  EXPECT_NEAR(expected_tokens(shape, acceptance), 1 + 0.8 * (1 + 0.5), 1e-12);
  EXPECT_EQ(best_tree(7, 9, acceptance).levels(), 3);
  // Heads that are all alike have the best tree of one vector for all levels.
  const Acceptance alike = acceptance_of_heads(3, {{0.5, 0.2, 0.1}});
  for (const int nodes : {2, 5, 9, 13})
    EXPECT_EQ(best_tree(nodes, 4, alike), best_tree(nodes, 4, Acceptance{{0.5, 0.2, 0.1}}));
}

}  // namespace
}  // namespace canopy
