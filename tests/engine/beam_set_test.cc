#include "src/engine/beam/beam_set.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "tests/error_of.h"

namespace canopy {
namespace {

constexpr TokenId kEnd = 4;

/// The logits of what follows a text, over five tokens: any function of the text's end.
class Table {
 public:
  explicit Table(unsigned seed) : seed_(seed) {}
  std::vector<float> after(std::span<const TokenId> text) const {
    unsigned key = seed_;
    for (const TokenId token : text) key = key * 31 + static_cast<unsigned>(token) + 7;
    std::mt19937 random(key);
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits;
    for (int t = 0; t < 5; ++t) logits.push_back(normal(random));
    return logits;
  }
  double log_probability(std::span<const TokenId> text) const {
    double sum = 0;
    for (std::size_t k = 0; k < text.size(); ++k) {
      const std::vector<float> logits = after(text.first(k));
      double all = 0;
      for (const float x : logits) all += std::exp(static_cast<double>(x));
      sum += logits[static_cast<std::size_t>(text[k])] - std::log(all);
    }
    return sum;
  }

 private:
  unsigned seed_;
};

const std::vector<TokenId> kEnds{kEnd}, kNever;

std::vector<FoundText> search(const Table& table, BeamSet::Limits limits,
                              const std::vector<TokenId>& ends) {
  BeamSet beams(limits, ends);
  while (!beams.done()) {
    std::vector<std::vector<float>> rows;
    for (const BeamSet::Beam& beam : beams.live()) rows.push_back(table.after(beam.tokens));
    beams.extend(std::vector<std::span<const float>>(rows.begin(), rows.end()));
  }
  return beams.texts();
}

/// Every text of `length` tokens, or shorter ones that end.
void each_text(std::vector<TokenId>& text, std::size_t length, const std::vector<TokenId>& ends,
               const std::function<void(std::span<const TokenId>)>& visit) {
  if (text.size() == length ||
      (!text.empty() && std::find(ends.begin(), ends.end(), text.back()) != ends.end()))
    return visit(text);
  for (TokenId t = 0; t < 5; ++t) {
    text.push_back(t);
    each_text(text, length, ends, visit);
    text.pop_back();
  }
}

TEST(BeamSet, OneBeamTakesTheLikeliestToken) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const Table table(seed);
    std::vector<TokenId> greedy;
    while (greedy.size() < 6) {
      const std::vector<float> row = table.after(greedy);
      greedy.push_back(
          static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    EXPECT_EQ(search(table, {1, 1, 6}, kNever).front().tokens, greedy) << seed;
  }
}

TEST(BeamSet, EnoughBeamsFindTheBestTextThereIs) {
  for (unsigned seed = 0; seed < 20; ++seed)
    for (const double penalty : {0.0, 1.0, 2.0, -0.5}) {
      const Table table(seed);
      std::vector<TokenId> best, text;
      double best_score = -1e30;
      each_text(text, 4, kEnds, [&](std::span<const TokenId> one) {
        const double score =
            table.log_probability(one) / std::pow(static_cast<double>(one.size()), penalty);
        if (score > best_score) best.assign(one.begin(), one.end()), best_score = score;
      });
      const std::vector<FoundText> found = search(table, {200, penalty, 4}, kEnds);
      EXPECT_EQ(found.front().tokens, best) << seed << " " << penalty;
      EXPECT_NEAR(found.front().score, best_score, 1e-12);
      EXPECT_EQ(found.front().ended, best.back() == kEnd);
    }
}

/// The search once more, as its description reads: all continuations, sorted.
std::vector<FoundText> plain_search(const Table& table, std::size_t beams, double penalty,
                                    std::size_t most) {
  struct One {
    std::vector<TokenId> tokens;
    double sum;
  };
  const auto score = [&](const One& one) {
    return one.sum / std::pow(static_cast<double>(one.tokens.size()), penalty);
  };
  std::vector<One> live{{{}, 0}}, kept;
  const auto keep = [&](std::vector<One>& to, const One& one) {
    to.push_back(one);
    std::stable_sort(to.begin(), to.end(),
                     [&](const One& a, const One& b) { return score(a) > score(b); });
    if (to.size() > beams) to.pop_back();
  };
  for (std::size_t length = 1; length <= most; ++length) {
    std::vector<One> all;
    for (const One& one : live)
      for (TokenId t = 0; t < 5; ++t) {
        One longer = one;
        longer.tokens.push_back(t);
        longer.sum = table.log_probability(longer.tokens);
        all.push_back(longer);
      }
    std::stable_sort(all.begin(), all.end(),
                     [](const One& a, const One& b) { return a.sum > b.sum; });
    live.clear();
    for (std::size_t rank = 0; rank < std::min(all.size(), 2 * beams) && live.size() < beams;
         ++rank) {
      if (all[rank].tokens.back() != kEnd)
        live.push_back(all[rank]);
      else if (rank < beams)
        keep(kept, all[rank]);
    }
    if (live.empty() || (kept.size() == beams && score(kept.back()) >= score(all.front()))) break;
  }
  for (const One& one : live) keep(kept, one);
  std::vector<FoundText> found;
  for (const One& one : kept) found.push_back({one.tokens, one.sum, score(one), false});
  return found;
}

/// The text of which each `joint` tokens are the likeliest together, by trying all.
std::vector<TokenId> likeliest_jointly(const Table& table, std::size_t joint, std::size_t most) {
  std::vector<TokenId> text;
  while (text.size() < most && (text.empty() || text.back() != kEnd)) {
    std::vector<TokenId> best, tried = text;
    double best_sum = -1e30;
    each_text(tried, std::min(text.size() + joint, most), kEnds, [&](std::span<const TokenId> one) {
      const double sum = table.log_probability(one);
      if (sum > best_sum) best.assign(one.begin(), one.end()), best_sum = sum;
    });
    text = best;
  }
  return text;
}

TEST(BeamSet, TokensThatAreDecidedTogetherAreTheLikeliestThereAre) {
  int other_than_greedy = 0, ended = 0;
  for (unsigned seed = 0; seed < 60; ++seed)
    for (const int joint : {1, 2, 3, 4}) {
      const Table table(seed);
      const auto found = search(table, {125, 0, 10, joint}, kEnds);
      EXPECT_EQ(found.front().tokens, likeliest_jointly(table, static_cast<std::size_t>(joint), 10))
          << seed << " " << joint;
      EXPECT_NEAR(found.front().log_probability, table.log_probability(found.front().tokens),
                  1e-12);
      other_than_greedy +=
          found.front().tokens != search(table, {1, 0, 10, 1}, kEnds).front().tokens;
      ended += found.front().ended;
    }
  EXPECT_GT(other_than_greedy, 60);
  EXPECT_GT(ended, 60);
}

TEST(BeamSet, TokensThatAreDecidedTogetherAreASearchWhereTheyAreTheWholeText) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Table table(seed);
    EXPECT_EQ(search(table, {3, 0, 8, 8}, kEnds).front().tokens,
              search(table, {3, 0, 8}, kEnds).front().tokens);
  }
}

TEST(BeamSet, IsHuggingFacesSearch) {
  for (unsigned seed = 0; seed < 60; ++seed)
    for (const std::size_t beams : {1u, 2u, 3u, 4u})
      for (const double penalty : {0.0, 0.6, 1.0, 3.0}) {
        const Table table(seed);
        const auto expected = plain_search(table, beams, penalty, 7);
        const auto found = search(table, {static_cast<int>(beams), penalty, 7}, kEnds);
        ASSERT_EQ(found.size(), expected.size()) << seed << " " << beams << " " << penalty;
        for (std::size_t i = 0; i < found.size(); ++i) {
          EXPECT_EQ(found[i].tokens, expected[i].tokens) << seed << " " << beams << " " << penalty;
          EXPECT_NEAR(found[i].score, expected[i].score, 1e-9);
        }
      }
}

TEST(BeamSet, EqualSumsGoByBeamAndToken) {
  const std::vector<float> flat(5, 0.0f);
  BeamSet beams({3, 1, 3}, kNever);
  beams.extend(std::vector<std::span<const float>>{flat});
  beams.extend(std::vector<std::span<const float>>{flat, flat, flat});
  std::vector<std::vector<TokenId>> texts;
  for (const BeamSet::Beam& beam : beams.live()) texts.push_back(beam.tokens);
  EXPECT_EQ(texts, (std::vector<std::vector<TokenId>>{{0, 0}, {0, 1}, {0, 2}}));
}

TEST(BeamSet, RefusesWhatIsNotFinite) {
  const std::vector<float> row{0, NAN};
  BeamSet beams({1, 1, 3}, kNever);
  EXPECT_NE(error_of([&] { beams.extend(std::vector<std::span<const float>>{row}); }), "");
}

}  // namespace
}  // namespace canopy
