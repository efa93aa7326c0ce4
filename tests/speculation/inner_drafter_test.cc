#include "src/speculation/drafters/inner_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/base/error.h"
#include "tests/speculation/tiny_draft.h"

namespace canopy::testing {
namespace {

struct InnerDrafterTest : public TinyDraft {
  static constexpr int kGuesses = 4, kTexts = 2;

  InnerDrafter make() {
    ShapeGrower::Config of;
    of.shape = TreeShape::chain(kGuesses + 1);
    of.vocab = config.vocab;
    const int slots = 200;
    return {*device, model, of, KvRoom{kTexts * KvPool::blocks_for(slots), slots, {}}, kTexts};
  }
  Tokens guess(InnerDrafter& drafter, DraftState& state, const Tokens& text, int most = kGuesses) {
    DraftRequest request;
    request.state = &state;
    request.text = text;
    const auto drafts = drafter.grow({&request, 1}, TreeShape::chain(most + 1), *stream, {});
    const auto tokens = drafts.front().tree.tokens().subspan(1);
    return {tokens.begin(), tokens.end()};
  }
  /// The likeliest tokens, one after another, each from the whole text read anew.
  Tokens likeliest(Tokens text, int count) {
    Tokens out;
    for (int i = 0; i < count; ++i) {
      KvCache kv = cache();
      const auto logits = download(logits_after(text, kv));
      out.push_back(
          static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      text.push_back(out.back());
    }
    return out;
  }
};

TEST_F(InnerDrafterTest, GuessesTheLikeliestTokensOfTextsThatChangeTheirEnds) {
  InnerDrafter drafter = make();
  const auto a = drafter.open(), b = drafter.open();
  std::mt19937 random(1);
  Tokens of_a{3, 1, 4, 1, 5}, of_b{2, 7};
  for (int step = 0; step < 40; ++step) {
    Tokens& text = step % 3 == 0 ? of_b : of_a;
    const int most = 1 + static_cast<int>(random() % kGuesses);
    EXPECT_EQ(guess(drafter, step % 3 == 0 ? *b : *a, text, most), likeliest(text, most)) << step;
    // Loses some tokens, as refused ones are, at times all but one; gains others.
    const auto kept = text.size() - random() % std::min<std::size_t>(text.size(), 6);
    text.resize(step % 10 == 9 ? 1 : kept);
    for (auto more = random() % 8; more > 0; --more)
      text.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(config.vocab)));
  }
}

TEST_F(InnerDrafterTest, ATextThatEndedLeavesRoomForAnother) {
  InnerDrafter drafter = make();
  const auto a = drafter.open();
  auto b = drafter.open();
  guess(drafter, *b, {1, 2, 3});
  EXPECT_THROW(drafter.open(), Error);
  b.reset();
  b = drafter.open();
  EXPECT_EQ(guess(drafter, *b, {1, 2, 9}), likeliest({1, 2, 9}, kGuesses));
}

TEST_F(InnerDrafterTest, TokensThatItDoesNotKnowAreReadAsAnother) {
  InnerDrafter drafter = make();
  const auto a = drafter.open();
  EXPECT_EQ(guess(drafter, *a, {1, config.vocab + 5, 2}), likeliest({1, 0, 2}, kGuesses));
}

}  // namespace
}  // namespace canopy::testing
