#include "src/speculation/drafters/model_free_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "kernels/device.h"
#include "src/base/error.h"
#include "tests/speculation/chi_square.h"
#include "tests/speculation/speculation.h"

namespace canopy::testing {
namespace {

using Kind = ModelFreeDraft::Kind;
using Tokens = std::vector<TokenId>;

ModelFreeDraft with_corpus(const char* name, Tokens corpus) {
  ModelFreeDraft draft = *model_free_draft_named(name);
  draft.corpus = std::make_shared<const Tokens>(std::move(corpus));
  return draft;
}

struct ModelFree : public ::testing::Test {
  Draft grow(const ModelFreeDraft& draft, const Tokens& text, const TreeShape& shape,
             std::uint64_t step = 0) {
    ModelFreeDrafter drafter(draft, kVocab, shape.size());
    const auto state = drafter.open();
    DraftRequest request;
    request.state = state.get();
    request.text = text;
    request.rng.step = step;
    return drafter.grow({&request, 1}, shape, *stream, {}).front();
  }
  Draft grow(const char* name, const Tokens& text, const TreeShape& shape) {
    return grow(*model_free_draft_named(name), text, shape);
  }
  static Tokens tokens(const Draft& draft) {
    return {draft.tree.tokens().begin(), draft.tree.tokens().end()};
  }

  static constexpr int kVocab = 20;
  std::unique_ptr<Device> device = make_device({"cpu", 0, 1, {}});
  std::unique_ptr<Stream> stream = device->make_stream("test");
};

TEST_F(ModelFree, IsNamedByItsKindAndLength) {
  for (const char* text : {"copy:2", "copy:16", "ngram:1", "ngram:2", "random"})
    EXPECT_EQ(name(*model_free_draft_named(text)), text);
  EXPECT_EQ(name(*model_free_draft_named("copy")), "copy:2");
  for (const char* text :
       {"", "Copy", "copying", "ngram", "./copy", "a/copy:2", "randomly", "model.gguf"})
    EXPECT_FALSE(model_free_draft_named(text)) << text;
  for (const char* text : {"copy:", "copy:0", "copy:17", "copy:-1", "copy:2x", "ngram:", "ngram:0",
                           "ngram:3", "ngram:99999999999"})
    EXPECT_THROW(model_free_draft_named(text), Error) << text;
}

TEST_F(ModelFree, CopiesWhatFollowedTheLongestEarlierMatch) {
  //                 1 2 3 is followed by 4; 2 3 by 9, later
  const Tokens text{1, 2, 3, 4, 5, 7, 2, 3, 9, 8, 1, 2, 3};
  EXPECT_EQ(tokens(grow("copy", text, TreeShape::chain(4))), (Tokens{3, 4, 5, 7}));
  EXPECT_EQ(tokens(grow("copy", text, TreeShape::from_parents({-1, 0, 0, 1, 2}))),
            (Tokens{3, 4, 9, 5, 8}));
}

TEST_F(ModelFree, OfEquallyLongMatchesCopiesTheLatest) {
  EXPECT_EQ(tokens(grow("copy", {1, 2, 4, 1, 2, 5, 1, 2}, TreeShape::from_parents({-1, 0, 0}))),
            (Tokens{2, 5, 4}));
}

TEST_F(ModelFree, CopiesNothingWhereTheMatchIsTooShort) {
  const Tokens text{1, 2, 3, 4, 6, 2, 3};
  EXPECT_EQ(grow("copy:3", text, TreeShape::chain(4)).tree.size(), 1);
  EXPECT_EQ(tokens(grow("copy:2", text, TreeShape::chain(4))), (Tokens{3, 4, 6, 2}));
  EXPECT_EQ(grow("copy:1", {1}, TreeShape::chain(4)).tree.size(), 1);
}

TEST_F(ModelFree, GoesOnWithAPeriodBeyondTheEndOfTheText) {
  EXPECT_EQ(tokens(grow("copy", {7, 8, 7, 8}, TreeShape::chain(7))), (Tokens{8, 7, 8, 7, 8, 7, 8}));
}

TEST_F(ModelFree, CopiesFromACorpusWhatTheTextDoesNotHold) {
  const ModelFreeDraft draft = with_corpus("copy", {5, 1, 2, 11, 12, 13});
  EXPECT_EQ(tokens(grow(draft, {1, 2}, TreeShape::chain(5))), (Tokens{2, 11, 12, 13}));
  EXPECT_EQ(tokens(grow(draft, {1, 2, 4, 1, 2}, TreeShape::from_parents({-1, 0, 0}))),
            (Tokens{2, 4, 11}));
}

TEST_F(ModelFree, CountsWhatFollowedTheLastTokenThenWhatIsFrequent) {
  //                   3 is followed by 4 twice, by 5 once; 6 is the most frequent
  const Tokens text{3, 4, 3, 5, 6, 6, 6, 6, 3, 4, 3};
  EXPECT_EQ(tokens(grow("ngram:2", text, TreeShape::from_parents({-1, 0, 0, 0, 0}))),
            (Tokens{3, 4, 5, 3, 6}));
  EXPECT_EQ(tokens(grow("ngram:1", text, TreeShape::from_parents({-1, 0, 0, 0, 0, 0, 1}))),
            (Tokens{3, 3, 6, 4, 5, 3}));  // four tokens were seen: there is no fifth child
}

TEST_F(ModelFree, CountsACorpusAndTheTextTogether) {
  const ModelFreeDraft draft = with_corpus("ngram:2", {1, 2, 1, 2, 9});
  EXPECT_EQ(tokens(grow(draft, {1, 3, 1}, TreeShape::from_parents({-1, 0, 0}))), (Tokens{1, 2, 3}));
  EXPECT_EQ(tokens(grow(draft, {1, 3, 1, 3, 1, 3, 1}, TreeShape::from_parents({-1, 0, 0}))),
            (Tokens{1, 3, 2}));
}

TEST_F(ModelFree, NGramsEqualThoseCountedInTheWholeTextAndPathOfEachNode) {
  // A slow twin: count every pair of text and path, then every token of the text.
  const TreeShape shape = TreeShape::from_parents({-1, 0, 0, 0, 1, 1, 2, 4});
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Tokens text(4 + random() % 40), corpus(1 + random() % 30);
    for (Tokens* part : {&text, &corpus})
      for (TokenId& token : *part) token = static_cast<TokenId>(random() % 5);
    const Draft draft = grow(with_corpus("ngram:2", corpus), text, shape);
    for (NodeId node = 0; node < draft.tree.size(); ++node) {
      const auto range = draft.tree.children(node);
      if (range.count == 0) continue;
      Tokens path = text;
      for (const TokenId token : text_of(draft.tree, node)) path.push_back(token);
      std::map<TokenId, int> pairs, single;
      for (const Tokens& part : {path, corpus})
        for (std::size_t i = 1; i < part.size(); ++i)
          if (part[i - 1] == path.back()) ++pairs[part[i]];
      for (const Tokens& part : {text, corpus})
        for (const TokenId token : part) ++single[token];
      std::vector<double> score(kVocab, -1);
      for (const auto& [token, count] : single) score[static_cast<std::size_t>(token)] = count;
      for (const auto& [token, count] : pairs) score[static_cast<std::size_t>(token)] = 1e6 * count;
      for (int k = 0; k < range.count; ++k)
        EXPECT_EQ(draft.tree.token(range.first + k),
                  best_tokens(score, range.count)[static_cast<std::size_t>(k)]);
    }
  }
}

TEST_F(ModelFree, RandomTokensDifferAndAreAllEquallyLikely) {
  const ModelFreeDraft draft = *model_free_draft_named("random");
  std::map<TokenId, int> first;
  std::map<std::pair<TokenId, TokenId>, int> pairs;
  for (std::uint64_t step = 0; step < 20'000; ++step) {
    const Draft d = grow(draft, {1}, TreeShape::from_parents({-1, 0, 1, 1}), step);
    ++first[d.tree.token(1)];
    const std::pair<TokenId, TokenId> pair = std::minmax({d.tree.token(2), d.tree.token(3)});
    ASSERT_NE(pair.first, pair.second);
    ++pairs[pair];
  }
  std::map<TokenId, double> even;
  std::map<std::pair<TokenId, TokenId>, double> even_pairs;
  for (TokenId a = 0; a < kVocab; ++a) {
    even[a] = 1.0 / kVocab;
    for (TokenId b = a + 1; b < kVocab; ++b) even_pairs[{a, b}] = 2.0 / (kVocab * (kVocab - 1));
  }
  EXPECT_TRUE(fits(first, even));
  EXPECT_TRUE(fits(pairs, even_pairs));
}

TEST_F(ModelFree, NoSiblingIsProposedTwiceAndNoNodeIsOfAModel) {
  std::mt19937 random(1);
  for (const char* name : {"copy:1", "ngram:1", "ngram:2", "random"})
    for (int run = 0; run < 50; ++run) {
      Tokens text(1 + random() % 30);
      for (TokenId& token : text) token = static_cast<TokenId>(random() % 6);
      const Draft draft = grow(name, text, TreeShape::k_ary(4, 30));
      EXPECT_EQ(draft.drawing, Drawing::kTopK);
      EXPECT_EQ(draft.row,
                std::vector<std::int32_t>(static_cast<std::size_t>(draft.tree.size()), -1));
      for (NodeId node = 0; node < draft.tree.size(); ++node) {
        const auto range = draft.tree.children(node);
        std::set<TokenId> different;
        for (int k = 0; k < range.count; ++k) different.insert(draft.tree.token(range.first + k));
        EXPECT_EQ(std::ssize(different), range.count);
      }
    }
}

TEST_F(ModelFree, RefusesACorpusOfOtherTokensAndTreesThatItHasNoRoomFor) {
  EXPECT_THROW(ModelFreeDrafter(with_corpus("copy", {kVocab}), kVocab, 8), Error);
  ModelFreeDrafter drafter(*model_free_draft_named("random"), kVocab, 16);
  EXPECT_TRUE(drafter.has_room(TreeShape::chain(8), 2));
  EXPECT_FALSE(drafter.has_room(TreeShape::chain(9), 2));
  EXPECT_TRUE(drafter.has_room(TreeShape::chain(16), 1));
  const Tokens text{1};
  DraftRequest request;
  request.text = text;
  EXPECT_THROW(drafter.grow({&request, 1}, TreeShape::chain(17), *stream, {}), Error);
}

}  // namespace
}  // namespace canopy::testing
