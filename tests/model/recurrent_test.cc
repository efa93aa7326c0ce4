// Texts of models with recurrent layers: whatever trees, chains, stops and
// repetitions lead to a text, its logits have the bits of plain decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ranks.h"
#include "tests/error_of.h"
#include "tests/model/recurrent_texts.h"

namespace canopy {
namespace {

TEST(SlotRows, HaveTheEndOfALongChainAndWhatIsCommitted) {
  SlotRows rows(100, 12);
  rows.lay_out(0, 30);
  const auto last_row_differs = [&](int first, int end) {
    const std::set<std::int32_t> own(rows.table().begin() + first, rows.table().begin() + end);
    return std::ssize(own) == end - first;
  };
  EXPECT_TRUE(last_row_differs(18, 30));
  rows.commit(up_from(0, 30), 25, 25);
  const std::vector<std::int32_t> kept(rows.table().begin() + 25, rows.table().begin() + 30);
  for (int sweep = 0; sweep < 3; ++sweep) {  // which is run again and again
    rows.lay_out(30, 20);
    for (int slot = 25; slot < 30; ++slot)
      EXPECT_EQ(std::count(rows.table().begin() + 30, rows.table().begin() + 50,
                           rows.table()[index_of(slot)]),
                0)
          << "slot " << slot << " is written to";
  }
  EXPECT_EQ(std::vector(rows.table().begin() + 25, rows.table().begin() + 30), kept);
}

TEST(SlotRows, KeepAPathsRowsInTheirPlaces) {
  SlotRows rows(100, 20);
  rows.lay_out(0, 10);
  const std::vector<std::int32_t> before(rows.table().begin(), rows.table().begin() + 10);
  const std::vector<NodeId> path{0, 3, 4, 9};
  rows.commit(path, 0, 0);
  EXPECT_EQ(rows.length(), 4);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(rows.table()[index_of(i)], before[index_of(path[index_of(i)])]);
  EXPECT_THROW(rows.lay_out(6, 1), Error) << "nothing is in slots 4 and 5";
}

TEST(SlotRows, KeepWhatFollowsTheBeginningOfAChain) {
  SlotRows rows(100, 20);
  rows.lay_out(0, 10);
  const std::int32_t root = rows.table()[9];
  rows.commit(up_from(0, 9), 4, 4);
  rows.lay_out(10, 5);
  EXPECT_EQ(rows.table()[9], root);
  for (int slot = 10; slot < 15; ++slot) EXPECT_NE(rows.table()[index_of(slot)], root);
}

TEST(SlotRows, RefuseTheBeginningOfAChainWhoseRowsAreLost) {
  SlotRows rows(100, 12);
  rows.lay_out(0, 30);
  EXPECT_NE(error_of([&] { rows.commit(up_from(0, 10), 5, 5); }).find("only the end"),
            std::string::npos);
}

class RecurrentTest : public RecurrentTexts {};

TEST_P(RecurrentTest, RemembersTokensBeforeAllThatAreKept) {
  std::vector<TokenId> text = text_of(kText), other = text;
  other[0] = (other[0] + 1) % config_.vocab;
  EXPECT_NE(decoded(text).back(), decoded(other).back());
}

TEST_P(RecurrentTest, TreesOfOneTo64NodesLeadToTheBitsOfPlainDecoding) {
  const std::vector<TokenId> text = text_of(kText);
  const LogitRows expected = decoded(text);
  for (const int chunk : {7, 64}) {
    SCOPED_TRACE(chunk);
    Transformer model = make(chunk);
    KvCache kv = cache();
    for (int nodes = 1; kv.length() < kText; nodes = nodes % 64 + 1) {
      const int left = kText - kv.length();
      const int right = std::min({left, nodes, 1 + static_cast<int>(random_() % 64)});
      const GivenTree tree = tree_on(text, kv.length(), nodes, right);
      // Does what an earlier try does that ended in the middle, or whose tree was
      // another.
      if (nodes % 3 == 0) {
        const GivenTree wrong = tree_on(text, kv.length(), 64, 1);
        const SequenceRows other = part_of(wrong, kv);
        if (nodes % 2 == 0) {
          run(model, {&other, 1});
        } else {
          std::stop_source stop;
          const std::size_t last = random_() % weights_.units().size();
          weights_.on_acquire = [&](std::size_t unit) {
            if (unit == last) stop.request_stop();
          };
          if (last + 1 < weights_.units().size()) {
            EXPECT_THROW(model.forward({&other, 1}, *stream_, stop.get_token()), Stopped);
          }
          weights_.on_acquire = {};
        }
      }
      const SequenceRows again = part_of(tree, kv);
      const LogitRows got = run(model, {&again, 1});
      for (int i = 0; i < right; ++i)
        ASSERT_EQ(got[index_of(i)], expected[index_of(kv.length() + i)])
            << nodes << " nodes after " << kv.length() << " tokens, node " << i;
      kv.commit(up_from(0, index_of(right)), *stream_);
    }
  }
}

TEST_P(RecurrentTest, APathThatIsNotInOrderIsKept) {
  const std::vector<TokenId> text = text_of(kText);
  const LogitRows expected = decoded(text);
  Transformer model = make();
  KvCache kv = cache();
  while (kv.length() < kText) {
    const int left = kText - kv.length();
    // Each right token has a wrong one next to it, which comes first.
    GivenTree tree;
    tree.add(text[index_of(kv.length())], -1);
    std::vector<NodeId> path{0};
    for (int i = 1; i < std::min(left, 30); ++i) {
      const NodeId above = path.back();
      tree.add((text[index_of(kv.length() + i)] + 1) % config_.vocab, above);
      path.push_back(static_cast<NodeId>(tree.tokens.size()));
      tree.add(text[index_of(kv.length() + i)], above);
    }
    path.resize(index_of(
        std::min<int>(static_cast<int>(path.size()), 1 + static_cast<int>(random_() % 30))));
    const SequenceRows part = part_of(tree, kv);
    const LogitRows got = run(model, {&part, 1});
    for (std::size_t i = 0; i < path.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << kv.length() << " + " << i);
      expect_same(got[index_of(path[i])], expected[index_of(kv.length()) + i]);
      ASSERT_FALSE(HasFailure());
    }
    kv.commit(path, *stream_);
  }
}

TEST_P(RecurrentTest, PromptsOfAnyLengthAndTheTreesBelowThemHaveTheBitsOfPlainDecoding) {
  const std::vector<TokenId> text = text_of(kText);
  const LogitRows expected = decoded(text);
  for (const int prompt : {1, 3, 63, 64, 65, 127, 128, 129, 191, 192, 193, 256, 340}) {
    SCOPED_TRACE(prompt);
    Transformer model = make(50);
    KvCache kv = cache();
    const GivenTree tree = tree_on(text, prompt, 64, 60);
    const auto position = up_from(0, index_of(prompt)), all = up_from(0, index_of(prompt));
    for (int again = 0; again < 2; ++again) {
      const SequenceRows parts[] = {
          {{std::span(text).first(index_of(prompt)), position, {}, 0, all}, &kv, 0},
          part_of(tree, kv, prompt)};
      const LogitRows got = run(model, parts);
      for (int i = 0; i < prompt + 60; ++i)
        ASSERT_EQ(got[index_of(i)], expected[index_of(i)]) << "row " << i;
    }
    kv.commit(up_from(0, index_of(prompt)), *stream_);
    kv.commit(up_from(0, 60), *stream_);
    const auto rest = std::span(text).subspan(index_of(prompt + 60), 5);
    const LogitRows after = run_chain(model, kv, rest);
    for (int i = 0; i < 5; ++i) ASSERT_EQ(after[index_of(i)], expected[index_of(prompt + 60 + i)]);
  }
}

TEST_P(RecurrentTest, ADraftsRootStaysWhileItsTextIsCommitted) {
  const std::vector<TokenId> text = text_of(kText);
  const LogitRows expected = decoded(text);
  Transformer model = make();
  KvCache kv = cache();
  for (int length = 0; length + 40 < kText;) {
    const int pending = 1 + static_cast<int>(random_() % 90);
    if (length + pending + 10 > kText) break;
    const LogitRows read =
        run_chain(model, kv, std::span(text).subspan(index_of(length), index_of(pending)));
    expect_same(read.back(), expected[index_of(length + pending - 1)]);
    kv.commit(up_from(0, index_of(pending - 1)), *stream_);  // but for the root
    for (int level = 1; level < 8; ++level) {  // each a node and a wrong one, below the right one
      GivenTree tree;
      tree.add(0, -1);
      for (int i = 1; i <= level; ++i) {
        const int above = i == 1 ? 0 : 2 * (i - 1) - 1;
        tree.add(text[index_of(kv.length() + i)], above);
        tree.add(7, above);
      }
      const std::vector<std::uint64_t> bits = tree.bits();
      const std::vector<std::int32_t> position(2, kv.length() + level), rows{0, 1};
      const int first = 2 * level - 1;
      const SequenceRows part{{std::span(tree.tokens).subspan(index_of(first), 2), position,
                               std::span(bits).subspan(index_of(first), 2), first, rows},
                              &kv,
                              0};
      const LogitRows got = run(model, {&part, 1});
      SCOPED_TRACE(::testing::Message() << kv.length() << " + " << level);
      expect_same(got.front(), expected[index_of(kv.length() + level)]);
      ASSERT_FALSE(HasFailure());
    }
    const std::array<NodeId, 4> path{0, 1, 3, 5};
    kv.commit(path, *stream_);
    length = kv.length();
  }
}

TEST_P(RecurrentTest, OtherTextsInTheSweepChangeNothing) {
  const std::vector<TokenId> text = text_of(200), other = text_of(150);
  const LogitRows expected = decoded(text), others = decoded(other);
  Transformer model = make(48);
  KvCache a = cache(), b = cache();
  const auto position_a = up_from(0, text.size()), position_b = up_from(0, other.size());
  const SequenceRows parts[] = {{{text, position_a, {}, 0, position_a}, &a, 0},
                                {{other, position_b, {}, 0, position_b}, &b, 0}};
  LogitRows both = expected;
  both.insert(both.end(), others.begin(), others.end());
  EXPECT_EQ(run(model, parts), both);
}

TEST_P(RecurrentTest, ATextThatIsCutIsReadAgain) {
  const std::vector<TokenId> text = text_of(200);
  const LogitRows expected = decoded(text);
  Transformer model = make();
  KvCache kv = cache();
  run_chain(model, kv, text);
  kv.commit(up_from(0, text.size()), *stream_);
  kv.truncate(200);
  EXPECT_EQ(kv.length(), 200);
  kv.truncate(150);
  EXPECT_EQ(kv.length(), 0);
  EXPECT_EQ(run_chain(model, kv, text), expected);
}

TEST_P(RecurrentTest, NothingIsRememberedForOtherTexts) {
  KvCaches caches(*device_, config_, {.blocks = 16, .slots = 400, .types = {}, .nodes = kNodes}, 2);
  Transformer model = make();
  const std::vector<TokenId> text = text_of(200);
  const KvCaches::Loan first = caches.lend(), second = caches.lend();
  run_chain(model, *first, text);
  first->commit(up_from(0, text.size()), *stream_);
  first->share(text);
  second->reuse_prefix(text, *stream_);
  EXPECT_EQ(second->length(), 0);
  EXPECT_EQ(caches.pool().known_prefix(text), 0);
}

TEST_P(RecurrentTest, RefusesTreesThatAreTooDeepOrTooLarge) {
  Transformer model = make();
  KvCache kv = cache(), small(*device_, config_, kContext, {}, 8);
  GivenTree deep;
  for (int i = 0; i < 66; ++i) deep.add(1, i - 1);
  KvCache roomy(*device_, config_, kContext, {}, 66);
  Transformer wide(*device_, config_, weights_, {kContext, 66, kContext, kContext, 64, 0});
  const SequenceRows part = part_of(deep, roomy);
  EXPECT_NE(error_of([&] {
              run(wide, {&part, 1});
            }).find("a tree of 66 levels; models with recurrent layers run trees of at most 65"),
            std::string::npos);
  const std::vector<TokenId> text = text_of(10);
  const GivenTree tree = tree_on(text, 0, 9, 1);
  const SequenceRows large = part_of(tree, small);
  EXPECT_NE(error_of([&] { run(model, {&large, 1}); }).find("have room for 8"), std::string::npos);
}

TEST_P(RecurrentTest, RefusesSeveralProcesses) {
  const Transformer::Limits limits{16, 16, 16, 16, 16, 0};
  class Two final : public Ranks {
   public:
    const Share &share() const override { return share_; }
    void gather(To, std::span<const TensorView>, const std::stop_token &) override {}

   private:
    Share share_{.rank = 0, .parts = {1, 1}};
  } two;
  EXPECT_NE(error_of([&] {
              Transformer(*device_, config_, weights_, limits, &two);
            }).find(device_->shares_host_memory() ? "recurrent layers" : "on CPUs alone"),
            std::string::npos);
  KvCache kv = cache(), other = cache();
  EXPECT_NE(error_of([&] { kv.mirror(other.state(), *stream_); }).find("recurrent layers"),
            std::string::npos);
}

TEST_P(RecurrentTest, HoldsWhatWasPredicted) {
  const std::size_t bytes = RecurrentState::bytes_needed(config_, 300, 64);
  // Three states and the rows of three layers, each row of the sizes of a
  // token.
  const DeltaConfig &d = config_.delta;
  const auto floats = 3 * (3 * d.state() + 70 * d.channels() +
                           320 * (d.key_heads * d.key_dim + d.values() + d.value_heads));
  EXPECT_GE(bytes,
            index_of(static_cast<int>(floats)) * sizeof(float) + 2 * 300 * sizeof(std::int32_t));
  EXPECT_LE(bytes, index_of(static_cast<int>(floats)) * sizeof(float) +
                       2 * 300 * sizeof(std::int32_t) + 3 * 5 * 64);
  EXPECT_EQ(RecurrentState::bytes_needed(tiny_config(), 300, 64), 0U);
}

TEST_P(RecurrentTest, APretendedTextCanBeFollowed) {
  Transformer model = make();
  KvCache kv = cache();
  for (const int length : {0, 5, 64, 200, 330}) {
    kv.pretend(length, *stream_);
    EXPECT_EQ(kv.length(), length);
    const std::vector<TokenId> text = text_of(40);
    for (const std::vector<float> &row : run_chain(model, kv, text))
      for (const float logit : row) ASSERT_TRUE(std::isfinite(logit)) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RecurrentTest, ::testing::Values("cpu", "emulated"),
                         [](const auto &info) { return info.param; });

}  // namespace
}  // namespace canopy
