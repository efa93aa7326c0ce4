// Snapshots of recurrent layers' states: a text that goes on from one has the bits of a text that
// was read anew, and goes on from one of its own beginning alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "tests/model/recurrent_texts.h"

namespace canopy {
namespace {

class SnapshotTest : public RecurrentTexts {
 protected:
  KvCaches caches(int texts, int snapshots) {
    return KvCaches(*device_, config_,
                    {.blocks = texts * KvPool::blocks_for(kContext),
                     .slots = kContext,
                     .types = {},
                     .nodes = kNodes,
                     .snapshots = snapshots},
                    texts);
  }
  /// Reads what the cache lacks of these tokens.
  LogitRows read(Transformer& model, KvCache& kv, std::span<const TokenId> text) {
    const auto rest = text.subspan(index_of(kv.length()));
    LogitRows logits = run_chain(model, kv, rest);
    kv.commit(up_from(0, rest.size()), *stream_);
    kv.share(text);
    return logits;
  }
  /// Adds a tree's path, in order, to the text that the cache holds.
  LogitRows grow(Transformer& model, KvCache& kv, std::span<const TokenId> text, int right) {
    const GivenTree tree = tree_on(text, kv.length(), std::max(right, 40), right);
    const SequenceRows part = part_of(tree, kv);
    LogitRows logits = run(model, {&part, 1});
    logits.resize(index_of(right));
    kv.commit(up_from(0, index_of(right)), *stream_);
    kv.share(text);
    return logits;
  }
  /// Reads and grows the text from where the cache is to its end; expects plain decoding's logits.
  void expect_plain(Transformer& model, KvCache& kv, std::span<const TokenId> text,
                    const LogitRows& expected) {
    const int first = kv.length();
    const int read_to = std::min(first + 30, static_cast<int>(text.size()));
    LogitRows got = read(model, kv, text.first(index_of(read_to)));
    while (kv.length() < std::ssize(text)) {
      const int right = std::min<int>(1 + static_cast<int>(random_() % 60),
                                      static_cast<int>(text.size()) - kv.length());
      for (std::vector<float>& row : grow(model, kv, text, right)) got.push_back(std::move(row));
    }
    ASSERT_EQ(std::ssize(got), std::ssize(text) - first);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], expected[index_of(first) + i]) << "row " << i << " after " << first;
  }
  /// Expects a new text to go on after `length` of its tokens, with plain decoding's logits.
  void expect_goes_on(Transformer& model, KvCaches& all, const std::vector<TokenId>& text,
                      int length, const LogitRows& expected) {
    const KvCaches::Loan loan = all.lend();
    loan->reuse_prefix(text, *stream_);
    ASSERT_EQ(loan->length(), length);
    expect_plain(model, *loan, text, expected);
  }
  static std::span<const TokenId> first_of(const std::vector<TokenId>& text, int count) {
    return std::span(text).first(index_of(count));
  }
};

TEST_P(SnapshotTest, ATextThatGoesOnFromAPromptsEndHasTheBitsOfOneReadAnew) {
  const std::vector<TokenId> text = text_of(kText);
  const LogitRows expected = decoded(text);
  for (const int chunk : {50, 64})
    for (const int prompt : {64, 65, 100, 127, 128, 129, 200, 256, 330}) {
      SCOPED_TRACE(::testing::Message() << prompt << " tokens in chunks of " << chunk);
      Transformer model = make(chunk);
      KvCaches all = caches(2, 3);
      {
        const KvCaches::Loan first = all.lend();
        read(model, *first, first_of(text, prompt));
      }
      expect_goes_on(model, all, text, prompt / 64 * 64, expected);
    }
}

TEST_P(SnapshotTest, ATextThatGoesOnFromATreesPathHasTheBitsOfOneReadAnew) {
  const std::vector<TokenId> text = text_of(kText);
  const LogitRows expected = decoded(text);
  Transformer model = make();
  KvCaches all = caches(2, 3);
  for (int round = 0; round < 12; ++round) {
    const int end = 70 + static_cast<int>(random_() % (kText - 70));
    SCOPED_TRACE(end);
    all.pool().forget_before(all.pool().uses());
    {
      const KvCaches::Loan first = all.lend();
      read(model, *first, first_of(text, 1 + static_cast<int>(random_() % 60)));
      while (first->length() < end) {
        if (random_() % 3 == 0) {  // a try that ends in the middle, or whose tree was another
          const GivenTree wrong = tree_on(text, first->length(), 64, 1);
          const SequenceRows part = part_of(wrong, *first);
          run(model, {&part, 1});
        }
        grow(model, *first, text,
             std::min<int>(1 + static_cast<int>(random_() % 64), end - first->length()));
      }
    }
    expect_goes_on(model, all, text, end / 64 * 64, expected);
  }
}

TEST_P(SnapshotTest, APathOutOfOrderIsWhatItsSnapshotHolds) {
  const std::vector<TokenId> text = text_of(kText);
  const LogitRows expected = decoded(text);
  Transformer model = make();
  KvCaches all = caches(2, 3);
  {
    const KvCaches::Loan first = all.lend();
    while (first->length() < 300) {
      // Each right token has a wrong one next to it, which comes first.
      GivenTree tree;
      tree.add(text[index_of(first->length())], -1);
      std::vector<NodeId> path{0};
      for (int i = 1; i < 23; ++i) {
        const NodeId above = path.back();
        tree.add((text[index_of(first->length() + i)] + 1) % config_.vocab, above);
        path.push_back(static_cast<NodeId>(tree.tokens.size()));
        tree.add(text[index_of(first->length() + i)], above);
      }
      const SequenceRows part = part_of(tree, *first);
      run(model, {&part, 1});
      first->commit(path, *stream_);
      first->share(text);
    }
  }
  const KvCaches::Loan second = all.lend();
  second->reuse_prefix(text, *stream_);
  ASSERT_EQ(second->length(), 320);
  const LogitRows got = read(model, *second, text);
  for (std::size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[320 + i]);
}

TEST_P(SnapshotTest, ASweepThatIsStoppedLeavesNoneAndOneThatIsRunAgainDoes) {
  const std::vector<TokenId> text = text_of(kText);
  const LogitRows expected = decoded(text);
  Transformer model = make();
  KvCaches all = caches(2, 3);
  const KvCaches::Loan first = all.lend();
  const std::vector<TokenId> other = text_of(200);
  first->expect_reuse_at(200);
  const auto position = up_from(0, other.size());
  const SequenceRows part{{other, position, {}, 0, {}}, first.get(), 0};
  for (std::size_t last = 0; last + 1 < weights_.units().size(); ++last) {
    std::stop_source stop;
    weights_.on_acquire = [&](std::size_t unit) {
      if (unit == last) stop.request_stop();
    };
    EXPECT_THROW(model.forward({&part, 1}, *stream_, stop.get_token()), Stopped);
  }
  weights_.on_acquire = {};
  read(model, *first, first_of(text, 130));  // what was stopped had come further
  while (first->length() < 200) grow(model, *first, text, 35);
  const KvCaches::Loan second = all.lend();
  second->reuse_prefix(other, *stream_);
  EXPECT_EQ(second->length(), 0);
  second->reuse_prefix(text, *stream_);
  EXPECT_EQ(second->length(), 192);
  expect_plain(model, *second, text, expected);
}

TEST_P(SnapshotTest, OneOfAnotherTextIsNotTaken) {
  const std::vector<TokenId> text = text_of(300);
  std::vector<TokenId> other = text;
  other[150] = (other[150] + 1) % config_.vocab;
  const LogitRows expected = decoded(text), others = decoded(other);
  Transformer model = make();
  KvCaches all = caches(3, 4);
  {
    const KvCaches::Loan loan = all.lend();
    read(model, *loan, first_of(text, 290));
  }
  {
    const KvCaches::Loan loan = all.lend();
    loan->reuse_prefix(other, *stream_);
    EXPECT_EQ(loan->length(), 0) << "the two part where there is no snapshot";
    read(model, *loan, first_of(other, 290));
  }
  expect_goes_on(model, all, other, 256, others);
  expect_goes_on(model, all, text, 256, expected);
  std::vector<TokenId> third = text;  // where the two parted, a snapshot was taken
  third[151] = (third[151] + 1) % config_.vocab;
  expect_goes_on(model, all, third, 128, decoded(third));
}

TEST_P(SnapshotTest, TheOneUsedLeastRecentlyGoesFirst) {
  Transformer model = make();
  KvCaches all = caches(4, 2);
  std::vector<std::vector<TokenId>> texts;
  for (int i = 0; i < 3; ++i) texts.push_back(text_of(140));
  const auto reused = [&](const std::vector<TokenId>& text) {
    const KvCaches::Loan loan = all.lend();
    loan->reuse_prefix(text, *stream_);
    return loan->length();
  };
  const auto read_whole = [&](const std::vector<TokenId>& text) {
    const KvCaches::Loan loan = all.lend();
    loan->expect_reuse_at(140);
    read(model, *loan, text);
  };
  read_whole(texts[0]);
  read_whole(texts[1]);
  EXPECT_EQ(reused(texts[0]), 128);  // which is a use
  read_whole(texts[2]);
  EXPECT_EQ(reused(texts[0]), 128);
  EXPECT_EQ(reused(texts[1]), 0);
  EXPECT_EQ(reused(texts[2]), 128);
}

TEST_P(SnapshotTest, ATextThatGrowsTakesOnePlaceAndThatOfItsPromptsEnd) {
  const std::vector<TokenId> text = text_of(kText), other = text_of(140);
  Transformer model = make();
  KvCaches all = caches(2, 3);
  {
    const KvCaches::Loan loan = all.lend();
    loan->expect_reuse_at(140);
    read(model, *loan, other);
  }
  const KvCaches::Loan loan = all.lend();
  loan->expect_reuse_at(150);
  read(model, *loan, first_of(text, 150));
  while (loan->length() < kText) grow(model, *loan, text, std::min(20, kText - loan->length()));
  const auto reused = [&](std::span<const TokenId> of) {
    const KvCaches::Loan second = all.lend();
    second->reuse_prefix(of, *stream_);
    return second->length();
  };
  EXPECT_EQ(reused(text), kText / 64 * 64);
  EXPECT_EQ(reused(first_of(text, 200)), 128);
  EXPECT_EQ(reused(other), 128);
}

TEST_P(SnapshotTest, ALongPromptHasSomeWhereThereIsRoom) {
  const std::vector<TokenId> text = text_of(kText);
  const LogitRows expected = decoded(text);
  Transformer model = make();
  KvCaches all = caches(2, 8);  // half of them for one text: each 128 tokens of 485
  {
    const KvCaches::Loan loan = all.lend();
    read(model, *loan, first_of(text, 410));
  }
  for (const int known : {420, 390, 384, 383, 300, 200, 127}) {
    const KvCaches::Loan loan = all.lend();
    loan->reuse_prefix(first_of(text, known), *stream_);
    EXPECT_EQ(loan->length(), known / 128 * 128) << known;
    if (known > loan->length()) expect_plain(model, *loan, first_of(text, known), expected);
  }
}

TEST_P(SnapshotTest, WhereThereIsNoRoomForThemNothingIsReused) {
  Transformer model = make();
  KvCaches all = caches(1, 0);
  const std::vector<TokenId> text = text_of(200);
  {
    const KvCaches::Loan loan = all.lend();
    read(model, *loan, text);
  }
  const KvCaches::Loan loan = all.lend();
  loan->reuse_prefix(text, *stream_);
  EXPECT_EQ(loan->length(), 0);
}

TEST_P(SnapshotTest, HoldsWhatWasPredicted) {
  const DeltaConfig& d = config_.delta;
  const std::int64_t floats =
      d.state() + 3 * d.channels() + 64 * (d.key_heads * d.key_dim + d.values() + d.value_heads);
  const StateSnapshots three(*device_, config_, 3);
  const std::size_t one = three.bytes_of_one();
  EXPECT_GE(one, 3 * static_cast<std::size_t>(floats) * sizeof(float));
  EXPECT_LE(one, 3 * static_cast<std::size_t>(floats + 5 * 15) * sizeof(float));
  EXPECT_EQ(StateSnapshots::bytes_needed(config_, 3) - StateSnapshots::bytes_needed(config_, 2),
            one);
  EXPECT_EQ(StateSnapshots::bytes_needed(config_, 0), 0U);
  EXPECT_EQ(StateSnapshots::bytes_needed(tiny_config(), 3), 0U);
}

TEST_P(SnapshotTest, APlaceThatIsWrittenToIsNobodyElses) {
  StateSnapshots two(*device_, config_, 2);
  const auto a = two.take(), b = two.take();
  ASSERT_TRUE(a && b);
  EXPECT_FALSE(two.take());
  two.keep(*a);
  const auto c = two.take();  // in its place
  ASSERT_TRUE(c);
  EXPECT_FALSE(two.has(*a));
  EXPECT_TRUE(two.has(*b));
  two.drop(*a);  // of which nothing is there
  EXPECT_TRUE(two.has(*c));
  two.keep(*b), two.keep(*c);
  two.use(*b);
  two.drop_unused(*b), two.drop_unused(*c);
  EXPECT_TRUE(two.has(*b));
  EXPECT_FALSE(two.has(*c));
}

INSTANTIATE_TEST_SUITE_P(Devices, SnapshotTest, ::testing::Values("cpu", "emulated"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace canopy
