#include "src/speculation/growers/shape_grower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "src/base/error.h"
#include "tests/kernels/emulated_cuda.h"
#include "tests/speculation/chi_square.h"
#include "tests/speculation/tiny_draft.h"
#include "tests/speculation/toy_constraint.h"

namespace canopy::testing {
namespace {

Tokens joined(Tokens text, std::span<const TokenId> more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

class ShapeGrowerTest : public TinyDraft {
 protected:
  std::vector<float> logits_after(const Tokens& text) {
    KvCache kv = cache();
    return download(TinyDraft::logits_after(text, kv));
  }
  Draft grow(ShapeGrower& grower, KvCache& kv, const Tokens& pending, Sampling sampling = {},
             StepRng rng = {}) {
    const ShapeGrower::Request request{pending, &kv, sampling, rng};
    return grower.grow(model, {&request, 1}, *stream).front();
  }
  Tokens path_of(const TokenTree& tree, NodeId node) {
    Tokens path;
    for (; node > 0; node = tree.parent(node)) path.insert(path.begin(), tree.token(node));
    return path;
  }
  /// Accepts the path to a node: into the draft's cache what the draft has run of it. Returns what
  /// it has not.
  Tokens accept(const Draft& draft, NodeId last, KvCache& kv) {
    std::vector<NodeId> known;
    Tokens pending;
    for (NodeId node = last; node >= 0; node = draft.tree.parent(node)) {
      const std::int32_t row = draft.row[static_cast<std::size_t>(node)];
      if (row >= 0)
        known.insert(known.begin(), row);
      else
        pending.push_back(draft.tree.token(node));
    }
    EXPECT_LE(pending.size(), 1u);  // only a leaf was never run
    kv.commit(known, *stream);
    return pending;
  }
  static Tokens tokens_of(const Draft& draft) {
    return {draft.tree.tokens().begin(), draft.tree.tokens().end()};
  }
  static Tokens children_of(const TokenTree& tree, NodeId node) {
    const TokenTree::Range range = tree.children(node);
    const auto tokens = tree.tokens().subspan(static_cast<std::size_t>(range.first),
                                              static_cast<std::size_t>(range.count));
    return {tokens.begin(), tokens.end()};
  }

  const TreeShape shape = TreeShape::from_parents({-1, 0, 0, 0, 1, 1, 3, 4, 5, 6, 8, 8});
  const Tokens prompt{3, 1, 4, 1, 5, 9, 2, 6};
  const Sampling sampled{0.8f, 0, 1.0f};
};

TEST_F(ShapeGrowerTest, FillsTheShapeWithTheBestTokensAfterEachPathAtTemperatureZero) {
  ShapeGrower grower(*device, {shape, Drawing::kTopK, config.vocab, 1});
  KvCache kv = cache();
  const Draft draft = grow(grower, kv, prompt);
  EXPECT_EQ(kv.length(), static_cast<int>(prompt.size()) - 1);
  ASSERT_EQ(draft.tree.size(), shape.size());
  EXPECT_EQ(draft.tree.token(0), prompt.back());
  for (NodeId node = 0; node < shape.size(); ++node) {
    SCOPED_TRACE(node);
    EXPECT_EQ(draft.tree.parent(node), shape.parent(node));
    const Tokens children = children_of(draft.tree, node);
    ASSERT_EQ(static_cast<int>(children.size()), shape.child_count(node));
    if (children.empty()) continue;
    const std::vector<float> logits = logits_after(joined(prompt, path_of(draft.tree, node)));
    Tokens order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    order.resize(children.size());
    EXPECT_EQ(children, order);
  }
}

TEST_F(ShapeGrowerTest, DrawsDistinctChildrenFromTheQThatItHandsOver) {
  ShapeGrower grower(*device, {shape, Drawing::kSequoia, config.vocab, 1});
  const Sampling sampling{0.8f, 20, 0.95f};
  // Logits stay within 30 of each other: three roundings of their quotients, then exp and log.
  constexpr float kRounding = 3 * 30 / 0.8f * 0x1p-23f + 8 * 0x1p-23f;
  for (std::uint64_t step = 0; step < 20; ++step) {
    SCOPED_TRACE(step);
    KvCache kv = cache();
    const Draft draft = grow(grower, kv, prompt, sampling, {1, 0, step});
    ASSERT_EQ(draft.q.dim(1), config.vocab);
    int inner = 0;
    for (NodeId node = 0; node < shape.size(); ++node) {
      const Tokens children = children_of(draft.tree, node);
      const std::int32_t row = draft.row[static_cast<std::size_t>(node)];
      if (children.empty()) {
        EXPECT_EQ(row, -1);
        continue;
      }
      EXPECT_EQ(row, inner++);
      const std::vector<float> q = download(draft.q.rows(row, 1));
      EXPECT_NEAR(std::accumulate(q.begin(), q.end(), 0.0), 1.0, 61 * 0x1p-23);
      EXPECT_EQ(std::set<TokenId>(children.begin(), children.end()).size(), children.size());
      for (const TokenId child : children) EXPECT_GT(q[static_cast<std::size_t>(child)], 0.0f);
      // q is the draft's distribution after this node: ratios are those of the logits.
      const auto logits = logits_after(joined(prompt, path_of(draft.tree, node)));
      const auto best = static_cast<std::size_t>(std::max_element(q.begin(), q.end()) - q.begin());
      for (std::size_t t = 0; t < q.size(); ++t)
        if (q[t] > 0) {
          EXPECT_NEAR(std::log(q[t] / q[best]), (logits[t] - logits[best]) / 0.8f, kRounding);
        }
    }
    EXPECT_EQ(draft.q.dim(0), inner);
  }
}

TEST_F(ShapeGrowerTest, DrawsEachChildByItsProbabilityOnEveryLevel) {
  // Grandchildren given children: as no uniform serves two levels, pairs are independent draws.
  config.vocab = 6;
  RandomWeights small(*device, config, 9);
  Transformer draft_model(
      *device, config, small,
      {.max_nodes = 16, .max_tree = 16, .max_logit_rows = 8, .max_context = 64, .chunk = 16});
  ShapeGrower grower(*device, {TreeShape::chain(3), Drawing::kSequoia, config.vocab, 1});
  std::map<std::pair<TokenId, TokenId>, int> counts;
  std::map<std::pair<TokenId, TokenId>, double> expected;
  const Tokens pending{2};
  for (std::uint64_t step = 0; step < 4000; ++step) {
    KvCache kv(*device, config, 8, {});
    const ShapeGrower::Request request{pending, &kv, {2.5f, 0, 1.0f}, {3, 0, step}};
    const Draft draft = grower.grow(draft_model, {&request, 1}, *stream).front();
    const std::vector<float> q = download(draft.q);
    const TokenId child = draft.tree.token(1);
    ++counts[{child, draft.tree.token(2)}];
    for (std::size_t t = 0; t < 6; ++t)
      expected[{child, static_cast<TokenId>(t)}] =
          static_cast<double>(q[static_cast<std::size_t>(child)]) * static_cast<double>(q[6 + t]);
  }
  EXPECT_TRUE(fits(counts, expected));
}

TEST_F(ShapeGrowerTest, DrawsSiblingsAsTheDrawingSays) {
  config.vocab = 6;
  RandomWeights small(*device, config, 9);
  Transformer draft_model(
      *device, config, small,
      {.max_nodes = 16, .max_tree = 16, .max_logit_rows = 8, .max_context = 64, .chunk = 16});
  const Tokens pending{2};
  for (const Drawing drawing :
       {Drawing::kNaive, Drawing::kSequoia, Drawing::kSpecInfer, Drawing::kSpecTr}) {
    SCOPED_TRACE(static_cast<int>(drawing));
    ShapeGrower grower(*device, {TreeShape::from_parents({-1, 0, 0}), drawing, config.vocab, 1});
    std::map<std::pair<TokenId, TokenId>, int> counts;
    std::vector<float> q;  // the same in each step
    for (std::uint64_t step = 0; step < 4000; ++step) {
      KvCache kv(*device, config, 8, {});
      const ShapeGrower::Request request{pending, &kv, {2.5f, 0, 1.0f}, {3, 0, step}};
      const Draft draft = grower.grow(draft_model, {&request, 1}, *stream).front();
      EXPECT_EQ(draft.drawing, drawing);
      ++counts[{draft.tree.token(1), draft.tree.token(2)}];
      q = download(draft.q);
    }
    std::map<std::pair<TokenId, TokenId>, double> expected;
    for (std::size_t a = 0; a < 6; ++a)
      for (std::size_t b = 0; b < 6; ++b) {
        const double qa = static_cast<double>(q[a]), qb = static_cast<double>(q[b]);
        expected[{static_cast<TokenId>(a), static_cast<TokenId>(b)}] =
            drawing != Drawing::kSequoia ? qa * qb
            : a == b                     ? 0
                                         : qa * qb / (1 - qa);
      }
    EXPECT_TRUE(fits(counts, expected));
  }
}

TEST_F(ShapeGrowerTest, GrowsTheSameTreeFromTheCacheAsFromTheWholeText) {
  for (const Drawing drawing : {Drawing::kTopK, Drawing::kSequoia, Drawing::kSpecInfer}) {
    ShapeGrower grower(*device, {shape, drawing, config.vocab, 1});
    KvCache kv = cache();
    Tokens text = prompt, pending = prompt;
    for (std::uint64_t step = 0; step < 8; ++step) {
      SCOPED_TRACE(step);
      const StepRng rng{2, 0, step};
      const Draft draft = grow(grower, kv, pending, sampled, rng);
      KvCache fresh = cache();
      EXPECT_EQ(tokens_of(draft), tokens_of(grow(grower, fresh, text, sampled, rng)));
      EXPECT_EQ(kv.length(), fresh.length());

      // Accept the path to some node, then a token of the target.
      const auto last = static_cast<NodeId>((5 * step + 3) % 12);
      pending = accept(draft, last, kv);
      pending.push_back(static_cast<TokenId>(step * 7 % 61));
      text = joined(joined(text, path_of(draft.tree, last)), {&pending.back(), 1});
    }
  }
}

TEST_F(ShapeGrowerTest, GrowsTheSameTreesFromCapturedLevels) {
  for (const Drawing drawing : {Drawing::kTopK, Drawing::kSequoia, Drawing::kSpecInfer}) {
    SCOPED_TRACE(static_cast<int>(drawing));
    ShapeGrower::Config of{shape, drawing, config.vocab, 2};
    ShapeGrower plain(*device, of);
    of.graphs = true;
    ShapeGrower captured(*device, of);
    std::vector<KvCache> caches;
    for (int i = 0; i < 4; ++i) caches.push_back(cache());  // two of each grower
    Tokens pending[] = {prompt, {8}};
    const auto step = [&](std::uint64_t number, Sampling sampling) {
      SCOPED_TRACE(number);
      std::vector<ShapeGrower::Request> requests[2];
      for (std::uint32_t i = 0; i < 4; ++i)
        requests[i / 2].push_back({pending[i % 2], &caches[i], sampling, {6, i % 2, number}});
      const std::vector<Draft> expected = plain.grow(model, requests[0], *stream);
      const std::vector<Draft> drafts = captured.grow(model, requests[1], *stream);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(tokens_of(drafts[i]), tokens_of(expected[i]));
        if (uses_q(drawing)) {
          EXPECT_EQ(download(drafts[i].q), download(expected[i].q));
        }
        const auto last = static_cast<NodeId>((5 * number + 3) % shape.size());
        accept(expected[i], last, caches[i]);
        pending[i] = accept(drafts[i], last, caches[2 + i]);
        pending[i].push_back(static_cast<TokenId>((number * 7 + i) % 61));
      }
    };
    for (std::uint64_t number = 0; number < 6; ++number) {
      step(number, sampled);
      EXPECT_EQ(captured.captured(), number > 0);
    }
    // The next step asks for other work than the graph holds: it is made anew.
    step(6, {0.5f, 0, 1.0f});
    EXPECT_FALSE(captured.captured());
    step(7, {0.5f, 0, 1.0f});
    EXPECT_TRUE(captured.captured());
    for (ShapeGrower* grower : {&plain, &captured}) grower->reshape(TreeShape::chain(4));
    EXPECT_FALSE(captured.captured());
  }
}

TEST(ShapeGrowerOnAGpu, WaitsAsOftenForADeepTreeAsForAFlatOne) {
  const ModelConfig config = tiny_config();
  EmulatedCuda device;
  const std::unique_ptr<Stream> stream = device.make_stream("test");
  RandomWeights weights(device, config, 7);
  Transformer model(
      device, config, weights,
      {.max_nodes = 128, .max_tree = 64, .max_logit_rows = 64, .max_context = 256, .chunk = 32});
  const auto waits = [&](const TreeShape& shape, bool graphs) {
    ShapeGrower::Config of{shape, Drawing::kSequoia, config.vocab};
    of.graphs = graphs;
    ShapeGrower grower(device, of);
    KvCache kv(device, config, 256, {});
    const Tokens pending{8};
    std::vector<std::int64_t> each;
    for (std::uint64_t step = 0; step < 3; ++step) {  // loads, captures, launches
      const ShapeGrower::Request request{pending, &kv, {0.8f, 0, 1.0f}, {6, 0, step}};
      const std::int64_t before = device.card().waits();
      const Draft draft = grower.grow(model, {&request, 1}, *stream).front();
      each.push_back(device.card().waits() - before);
      EXPECT_EQ(draft.tree.size(), shape.size());
    }
    EXPECT_EQ(grower.captured(), graphs);
    return each;
  };
  for (const bool graphs : {false, true})
    EXPECT_EQ(waits(TreeShape::chain(3), graphs), waits(TreeShape::sequences(3, 12), graphs));
}

/// Returns penalties, bias, and a constraint to about half of the tokens after each text.
LogitEditing some_edits(int vocab) {
  LogitEditing editing;
  editing.repetition = 1.5f;
  editing.presence = 1.0f;
  editing.frequency = 0.5f;
  editing.bias = {{7, 2.0f}, {9, -INFINITY}};
  editing.constraint =
      std::make_shared<ToyConstraint>(vocab, [](std::span<const TokenId> text, TokenId next) {
        return (std::accumulate(text.begin(), text.end(), next) + std::ssize(text)) % 2 == 0;
      });
  return editing;
}

TEST_F(ShapeGrowerTest, ProposesFromRowsThatAreEditedAlongEachPath) {
  for (const Drawing drawing : {Drawing::kTopK, Drawing::kSequoia, Drawing::kSpecInfer}) {
    SCOPED_TRACE(static_cast<int>(drawing));
    constexpr int kTarget = 80;  // the target has more tokens
    ShapeGrower::Config of{shape, drawing, config.vocab, 2};
    of.edited_context = 256;
    of.edited_vocab = kTarget;
    of.graphs = true;
    ShapeGrower grower(*device, of);
    LogitEditor editor(some_edits(kTarget), prompt, kTarget);
    const Tokens other{8};
    KvCache kv = cache(), kv_of_other = cache(), alone = cache();
    const std::vector<ShapeGrower::Request> requests{
        {other, &kv_of_other, sampled, {2, 0, 0}},  // not edited
        {prompt, &kv, sampled, {3, 0, 0}, false, &editor}};
    const std::vector<Draft> drafts = grower.grow(model, requests, *stream);
    EXPECT_FALSE(grower.captured());
    const TokenTree& tree = drafts[1].tree;
    const std::vector<float> q = uses_q(drawing) ? download(drafts[1].q) : std::vector<float>();
    RowEditor row_editor(*device, {1, 1, kTarget, 16, kTarget});
    for (NodeId node = 0; node < shape.size(); ++node) {
      const Tokens children = children_of(tree, node), path = path_of(tree, node);
      if (children.empty()) continue;
      std::vector<float> logits = logits_after(joined(prompt, path));
      const Buffer buffer = device->allocate(2 * logits.size() * sizeof(float));
      const TensorView row(buffer.data(), DType::kF32, {1, config.vocab});
      const TensorView p(buffer.data() + row.bytes(), DType::kF32, {1, config.vocab});
      device->upload(*stream, buffer.data(), std::as_bytes(std::span(logits)));
      const RowEditor::Row way{&editor, path};
      row_editor.edit(*stream, row, {&way, 1}, row);
      if (uses_q(drawing)) {
        device->ops().probabilities(*stream, row, sampled, p);
        const auto first = q.begin() + drafts[1].row[static_cast<std::size_t>(node)] * config.vocab;
        EXPECT_EQ(download(p), std::vector<float>(first, first + config.vocab)) << node;
      } else {
        logits = download(row);
        Tokens order(logits.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
          return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
        });
        order.resize(children.size());
        EXPECT_EQ(children, order) << node;
      }
      for (const TokenId child : children) EXPECT_NE(child, 9) << "which is banned";
    }
    ShapeGrower plain(*device, {shape, drawing, config.vocab, 1});
    EXPECT_EQ(tokens_of(drafts[0]), tokens_of(grow(plain, alone, other, sampled, {2, 0, 0})));
  }
}

TEST_F(ShapeGrowerTest, RefusesEditsThatNoRoomWasMadeFor) {
  ShapeGrower grower(*device, {shape, Drawing::kTopK, config.vocab, 1});
  LogitEditor editor(some_edits(config.vocab), prompt, config.vocab);
  KvCache kv = cache();
  const ShapeGrower::Request request{prompt, &kv, {}, {}, false, &editor};
  EXPECT_THROW(grower.grow(model, {&request, 1}, *stream), Error);
}

TEST_F(ShapeGrowerTest, GrowsSeveralTreesTogetherAsEachAlone) {
  for (const Drawing drawing : {Drawing::kTopK, Drawing::kSequoia, Drawing::kSpecInfer}) {
    ShapeGrower together(*device, {shape, drawing, config.vocab, 3});
    ShapeGrower alone(*device, {shape, drawing, config.vocab, 1});
    const Tokens texts[] = {prompt, {8}, {2, 7, 1}};
    std::vector<KvCache> caches;
    for (int i = 0; i < 3; ++i) caches.push_back(cache());
    std::vector<ShapeGrower::Request> requests;
    for (std::uint32_t i = 0; i < 3; ++i)
      requests.push_back({texts[i], &caches[i], sampled, {4, i, 0}});
    const std::vector<Draft> drafts = together.grow(model, requests, *stream);
    ASSERT_EQ(drafts.size(), 3u);
    for (std::uint32_t i = 0; i < 3; ++i) {
      SCOPED_TRACE(i);
      KvCache kv = cache();
      const Draft one = grow(alone, kv, texts[i], sampled, {4, i, 0});
      EXPECT_EQ(tokens_of(drafts[i]), tokens_of(one));
      EXPECT_EQ(caches[i].length(), kv.length());
      if (uses_q(drawing)) {
        EXPECT_EQ(download(drafts[i].q), download(one.q));
      }
    }
  }
}

TEST_F(ShapeGrowerTest, NeverProposesTokensThatTheTargetDoesNotKnow) {
  constexpr int kCommon = 10;
  for (const Drawing drawing : {Drawing::kTopK, Drawing::kSequoia, Drawing::kSpecInfer}) {
    ShapeGrower grower(*device, {shape, drawing, kCommon, 1});
    for (std::uint64_t step = 0; step < 20; ++step) {
      KvCache kv = cache();
      const Draft draft = grow(grower, kv, prompt, sampled, {5, 0, step});
      for (const TokenId token : tokens_of(draft)) EXPECT_LT(token, kCommon);
      if (drawing == Drawing::kTopK) continue;
      ASSERT_EQ(draft.q.dim(1), kCommon);
      for (std::int64_t row = 0; row < draft.q.dim(0); ++row) {
        const std::vector<float> q = download(draft.q.rows(row, 1));
        EXPECT_NEAR(std::accumulate(q.begin(), q.end(), 0.0), 1.0, kCommon * 0x1p-23);
      }
    }
  }
}

TEST_F(ShapeGrowerTest, RunsAnotherTokenWhereItHasNoRowForOneThatTheTargetHas) {
  ShapeGrower grower(*device, {shape, Drawing::kTopK, config.vocab, 1});
  Tokens strange = prompt, tame = prompt;
  strange[2] = config.vocab + 5;
  tame[2] = 0;
  KvCache one = cache(), other = cache();
  EXPECT_EQ(tokens_of(grow(grower, one, strange)), tokens_of(grow(grower, other, tame)));
  strange.back() = config.vocab;  // the root keeps its own name
  KvCache third = cache();
  EXPECT_EQ(grow(grower, third, strange).tree.token(0), config.vocab);
}

TEST_F(ShapeGrowerTest, CatchesUpInPiecesWhereMoreIsPendingThanTheModelTakes) {
  ShapeGrower grower(*device, {shape, Drawing::kSequoia, config.vocab, 2});
  const auto text = [&](int count, int seed) {
    Tokens tokens;
    for (int i = 0; i < count; ++i) tokens.push_back((i * 7 + seed) % config.vocab);
    return tokens;
  };
  const Tokens longer = text(231, 1), shorter = text(70, 2);  // the model takes 128 at once
  const StepRng rng{9, 0, 1};
  std::vector<KvCache> caches;
  caches.push_back(cache());
  caches.push_back(cache());
  const std::vector<ShapeGrower::Request> requests{{longer, &caches[0], sampled, rng},
                                                   {shorter, &caches[1], sampled, rng}};
  const std::vector<Draft> drafts = grower.grow(model, requests, *stream);
  const std::vector<float> q = download(drafts[0].q), q_of_shorter = download(drafts[1].q);
  EXPECT_EQ(caches[0].length(), 230);
  EXPECT_EQ(caches[1].length(), 69);

  KvCache kv = cache();
  for (int begin = 0; begin < 200; begin += 100) {  // never more than the model takes
    grow(grower, kv, {longer.begin() + begin, longer.begin() + begin + 101}, sampled, rng);
    ASSERT_EQ(kv.length(), begin + 100);
  }
  const Draft draft = grow(grower, kv, {longer.begin() + 200, longer.end()}, sampled, rng);
  EXPECT_EQ(tokens_of(draft), tokens_of(drafts[0]));
  EXPECT_EQ(download(draft.q), q);
  KvCache fresh = cache();
  EXPECT_EQ(download(grow(grower, fresh, shorter, sampled, rng).q), q_of_shorter);
}

TEST_F(ShapeGrowerTest, LeavesTheCacheAsItWasWhenStopped) {
  ShapeGrower grower(*device, {shape, Drawing::kTopK, config.vocab, 1});
  KvCache kv = cache();
  std::stop_source stop;
  stop.request_stop();
  const ShapeGrower::Request request{prompt, &kv, {}, {}};
  EXPECT_THROW(grower.grow(model, {&request, 1}, *stream, stop.get_token()), Stopped);
  EXPECT_EQ(kv.length(), 0);
  // The tree does not fit after the text: fails after the text was committed.
  KvCache tight(*device, config, static_cast<int>(prompt.size()), {});
  const ShapeGrower::Request deep{prompt, &tight, {}, {}};
  EXPECT_THROW(grower.grow(model, {&deep, 1}, *stream), Error);
  EXPECT_EQ(tight.length(), 0);
  KvCache fresh = cache();
  EXPECT_EQ(tokens_of(grow(grower, kv, prompt)), tokens_of(grow(grower, fresh, prompt)));
}

TEST_F(ShapeGrowerTest, CountsItsBytesAndItsWidestForwardBeforehand) {
  // Inner nodes by level: 1, 2, 3, 1. Proposals: 3, 2 x 2, 3 x 1, 1 x 2.
  EXPECT_EQ(ShapeGrower::widest_forward({shape, Drawing::kTopK, 61, 2}), 6);
  EXPECT_EQ(ShapeGrower::device_bytes({shape, Drawing::kTopK, 61, 2}), 2u * (12 * 4 + 7 * 8));
  EXPECT_EQ(ShapeGrower::device_bytes({shape, Drawing::kSequoia, 61, 2}),
            2u * (12 * 4 + 7 * 8 + 24 + 7 * 61 * 4));  // a random key is 24 bytes
}

TEST_F(ShapeGrowerTest, RefusesWhatItCannotGrow) {
  const auto make = [&](const TreeShape& form, int vocab, int requests) {
    return ShapeGrower(*device, {form, Drawing::kTopK, vocab, requests});
  };
  EXPECT_THROW(make(TreeShape(), 61, 1), Error);
  EXPECT_THROW(make(shape, 2, 1), Error);  // three children of two tokens
  EXPECT_THROW(make(shape, 61, 0), Error);
  ShapeGrower wide = make(shape, 62, 1);
  ShapeGrower grower = make(shape, 61, 1);
  KvCache kv = cache();
  EXPECT_THROW(grow(wide, kv, prompt), Error);
  EXPECT_THROW(grow(grower, kv, {}), Error);
  const std::vector<ShapeGrower::Request> two(2, ShapeGrower::Request{prompt, &kv, {}, {}});
  EXPECT_THROW(grower.grow(model, two, *stream), Error);
}

}  // namespace
}  // namespace canopy::testing
