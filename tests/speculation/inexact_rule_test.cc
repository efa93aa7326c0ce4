#include "src/speculation/rules/inexact_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "tests/speculation/speculation.h"

namespace canopy::testing {
namespace {

using Kind = InexactRule::Kind;

InexactRule lenience(double l) { return {Kind::kLenience, l}; }

/// The rule over a target and a draft that are given as rows.
Rule lenient(double l) {
  return [l](const TokenTree& tree, const LendRow& p, const LendRow& q, Choices& choices) {
    return verify_inexactly(tree, lenience(l), {.plain = {}, .p = p, .q = q}, choices);
  };
}

std::vector<double> row(std::size_t vocab, unsigned seed) {
  return random_model(vocab, seed, 1, 1)({});
}

/// Returns the distribution of a step's first token.
std::vector<double> first_token(const Rule& rule, int children, const std::vector<double>& p,
                                const std::vector<double>& q, double* accepted = nullptr) {
  std::vector<double> out(p.size(), 0.0);
  for (Courses courses; courses.next();) {
    TokenTree tree(0);
    tree.add_children(0, draw_distinct(q, children, courses));
    std::vector<double> p_row, q_row;
    EveryChoice choices(courses);
    const Verdict verdict = rule(
        tree, [&](NodeId node) { return std::span(p_row = node == 0 ? p : p); },
        [&](NodeId) { return std::span(q_row = q); }, choices);
    const bool took = verdict.path.size() > 1;
    const TokenId token = took ? tree.token(verdict.path[1]) : verdict.next;
    out[static_cast<std::size_t>(token)] += courses.chance();
    if (took && accepted != nullptr) *accepted += courses.chance();
  }
  return out;
}

TEST(Lenience, OfOneIsTheStrictRule) {
  EXPECT_LT(worst_error(lenient(1), Drawing::kSequoia, 20), kExact);
  // Bit for bit: the same courses in the same order.
  for (unsigned seed = 0; seed < 30; ++seed) {
    const auto p = row(4, 2 * seed), q = row(4, 2 * seed + 1);
    EXPECT_EQ(first_token(lenient(1), 2, p, q), first_token(rule_of(Drawing::kSequoia), 2, p, q));
  }
}

TEST(Lenience, OfZeroKeepsAll) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    double accepted = 0;
    first_token(lenient(0), 1, row(4, 2 * seed), row(4, 2 * seed + 1), &accepted);
    EXPECT_NEAR(accepted, 1, kExact);
  }
}

TEST(Lenience, WritesNoTokenMoreThanOneOverItAsOftenAndKeepsWhatThePaperSays) {
  for (const double l : {1.0, 0.5, 0.3, 0.1})
    for (unsigned seed = 0; seed < 60; ++seed)
      for (const int children : {1, 2, 3}) {
        const std::size_t vocab = 3 + seed % 2;
        const auto p = row(vocab, 2 * seed), q = row(vocab, 2 * seed + 1);
        double accepted = 0;
        const auto written = first_token(lenient(l), children, p, q, &accepted);
        for (std::size_t t = 0; t < vocab; ++t) EXPECT_LE(written[t], p[t] / l + kExact);
        if (children > 1) continue;
        double alpha = 0;
        for (std::size_t t = 0; t < vocab; ++t) alpha += std::min(p[t] / l, q[t]);
        EXPECT_NEAR(accepted, alpha, kExact);
      }
}

TEST(Lenience, IsSeenWhereItIsInTheWrongPlace) {
  // min(1, l p / q): stricter than the strict rule, where it should be laxer.
  double worst = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto p = row(3, 2 * seed), q = row(3, 2 * seed + 1);
    double accepted = 0, alpha = 0;
    first_token(lenient(2), 1, p, q, &accepted);  // 1 / .5
    for (std::size_t t = 0; t < 3; ++t) alpha += std::min(p[t] / 0.5, q[t]);
    worst = std::max(worst, std::abs(accepted - alpha));
  }
  EXPECT_GT(worst, kWrong);
}

/// A rule at temperature 0 over rows by node; keeps which were asked for.
struct Greedy {
  std::vector<std::vector<double>> rows;
  std::vector<NodeId> asked;
  Verdict operator()(const TokenTree& tree, const InexactRule& rule,
                     std::vector<double> log_q = {}) {
    std::vector<double> lent;
    Courses courses;
    courses.next();
    EveryChoice choices(courses);
    const auto plain = [&](NodeId node) {
      asked.push_back(node);
      return std::span(lent = rows[static_cast<std::size_t>(node)]);
    };
    return verify_inexactly(
        tree, rule, {.plain = plain, .p = {}, .q = {}, .greedy = true, .log_q = log_q}, choices);
  }
};

TokenTree chain_of(std::vector<TokenId> tokens) {
  TokenTree tree(0);
  for (NodeId node = 0; node < std::ssize(tokens); ++node)
    tree.add_children(node, {&tokens[static_cast<std::size_t>(node)], 1});
  return tree;
}

TEST(Lenience, AtTemperatureZeroKeepsTheFirstChildThatIsNearlyAsLikely) {
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{2, 1, 0});
  const std::vector<double> p{0.5, 0.3, 0.2}, flat{1.0 / 3, 1.0 / 3, 1.0 / 3};
  const auto taken = [&](const std::vector<double>& row, double l) {
    Greedy greedy{{row, flat, flat, flat}, {}};
    return greedy(tree, lenience(l)).path.back();
  };
  EXPECT_EQ(taken(p, 1), 3);  // the likeliest token alone
  EXPECT_EQ(taken(p, 0.7), 3);
  EXPECT_EQ(taken(p, 0.6), 2);  // .3 >= .6 * .5
  EXPECT_EQ(taken(p, 0.4), 1);  // and .2 >= .4 * .5, which comes first
  EXPECT_EQ(taken(p, 0), 1);
  EXPECT_EQ(taken(flat, 1), 3);  // of equal ones the lower token, as plain decoding has it
}

TEST(Rollback, KeepsTokensUpToTheFirstThatIsTooUnlikelyAndAsksForNoMore) {
  const TokenTree tree = chain_of({1, 1, 2, 1});
  // ln 2 = .69, ln 4 = 1.39, ln 10 = 2.3
  const std::vector<std::vector<double>> rows{
      {0.5, 0.5}, {0.75, 0.25}, {0.8, 0.1, 0.1}, {0.0, 1.0}, {0.3, 0.7}};
  const auto run = [&](double b, std::vector<NodeId>* asked = nullptr) {
    Greedy greedy{rows, {}};
    const Verdict verdict = greedy(tree, {Kind::kRollback, b});
    if (asked != nullptr) *asked = greedy.asked;
    return verdict;
  };
  std::vector<NodeId> asked;
  const Verdict at_one = run(1, &asked);
  EXPECT_EQ(at_one.path, (std::vector<NodeId>{0, 1}));
  EXPECT_EQ(at_one.next, 0);  // the target's own token, where the draft's was refused
  EXPECT_EQ(asked, (std::vector<NodeId>{0, 1, 1}));
  EXPECT_EQ(run(std::log(2.0)).path.size(), 2u);  // at most b: equality is kept
  EXPECT_EQ(run(std::log(2.0) - 1e-9).path.size(), 1u);
  EXPECT_EQ(run(1.4).path.size(), 3u);
  EXPECT_EQ(run(2).path.size(), 3u);  // ln 10 > 2: not a logarithm of base 10
  EXPECT_EQ(run(2.31).path.size(), 5u);
  EXPECT_EQ(run(HUGE_VAL).path.size(), 5u);
  EXPECT_EQ(run(HUGE_VAL).next, 1);
  EXPECT_EQ(run(0).path.size(), 1u);
}

TEST(Rollback, DrawsItsLastTokenFromTheWholeOfP) {
  // Closed form: the drafted token x where -ln p(x) <= b, else a draw from p.
  for (unsigned seed = 0; seed < 40; ++seed) {
    const auto p = row(3, 2 * seed), q = row(3, 2 * seed + 1);
    constexpr double kMost = 1.2;
    std::vector<double> expected(3, 0.0), written(3, 0.0);
    for (std::size_t x = 0; x < 3; ++x)
      for (std::size_t t = 0; t < 3; ++t) {
        const bool kept = p[x] > 0 && -std::log(p[x]) <= kMost;
        expected[kept ? x : t] += q[x] * p[t];
      }
    for (Courses courses; courses.next();) {
      const TokenTree tree = chain_of({static_cast<TokenId>(courses.choose(q))});
      std::vector<double> lent;
      EveryChoice choices(courses);
      const auto rows = [&](NodeId) { return std::span(lent = p); };
      const Verdict verdict = verify_inexactly(tree, {Kind::kRollback, kMost},
                                               {.plain = rows, .p = rows, .q = {}}, choices);
      written[static_cast<std::size_t>(verdict.path.size() > 1 ? tree.token(1) : verdict.next)] +=
          courses.chance();
    }
    for (std::size_t t = 0; t < 3; ++t) EXPECT_NEAR(written[t], expected[t], kExact);
  }
}

TEST(Joint, KeepsTheLongestPrefixAlsoBehindOneThatFails) {
  const TokenTree tree = chain_of({1, 1, 1});
  const std::vector<std::vector<double>> rows{{0.9, 0.1}, {0.1, 0.9}, {0.5, 0.5}, {0.6, 0.4}};
  // r_1 = .1 / .5 = .2, r_2 = .18 / .25 = .36 by q_2 = .25 / .5, r_3 = .09 / .25 = .36 / 2 * ...
  const std::vector<double> log_q{0, std::log(0.5), std::log(0.5), std::log(1.0)};
  const auto kept = [&](double tau) {
    Greedy greedy{rows, {}};
    return greedy(tree, {Kind::kJoint, tau}, log_q);
  };
  EXPECT_EQ(kept(0.3).path.size(), 3u);  // .36 > .3, though .2 is not
  EXPECT_EQ(kept(0.3).next, 0);          // of equal ones the lower
  EXPECT_EQ(kept(0.1).path.size(), 4u);  // .18
  EXPECT_EQ(kept(0.5).path.size(), 1u);
  EXPECT_EQ(kept(0.5).next, 0);  // the target's own, where nothing is kept
  EXPECT_EQ(kept(0).path.size(), 4u);
}

TEST(Joint, OfOneKeepsNothingAndOfZeroAll) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const auto p = row(3, 2 * seed), q = row(3, 2 * seed + 1);
    Courses courses;
    courses.next();
    const auto token = static_cast<TokenId>(std::max_element(p.begin(), p.end()) - p.begin());
    if (q[static_cast<std::size_t>(token)] == 0) continue;
    const TokenTree tree = chain_of({token});
    const std::vector<double> log_q{0, std::log(q[static_cast<std::size_t>(token)])};
    Greedy greedy{{p, p}, {}};
    EXPECT_EQ(greedy(tree, {Kind::kJoint, 1}, log_q).path.size(), 1u);
    EXPECT_EQ(greedy(tree, {Kind::kJoint, 0}, log_q).path.size(), 2u);
  }
}

TEST(Joint, OfEqualModelsKeepsAllBelowOne) {
  const TokenTree tree = chain_of({1, 0, 1});
  const std::vector<double> p{0.25, 0.75};
  const std::vector<double> log_q{0, std::log(0.75), std::log(0.25), std::log(0.75)};
  Greedy greedy{{p, p, p, p}, {}};
  EXPECT_EQ(greedy(tree, {Kind::kJoint, 0.999}, log_q).path.size(), 4u);
}

TEST(Ratio, IsTheStrictRuleOfOneTokenButForItsLastToken) {
  // One child drawn from q: kept with chance min(1, p / q); else a token of the whole of p.
  for (unsigned seed = 0; seed < 40; ++seed) {
    const auto p = row(3, 2 * seed), q = row(3, 2 * seed + 1);
    std::vector<double> expected(3, 0.0), written(3, 0.0);
    double refused = 1;
    for (std::size_t x = 0; x < 3; ++x) {
      expected[x] += std::min(p[x], q[x]);
      refused -= std::min(p[x], q[x]);
    }
    for (std::size_t x = 0; x < 3; ++x) expected[x] += refused * p[x];
    for (Courses courses; courses.next();) {
      const TokenTree tree = chain_of({static_cast<TokenId>(courses.choose(q))});
      const std::vector<double> log_q{0, std::log(q[static_cast<std::size_t>(tree.token(1))])};
      std::vector<double> lent;
      EveryChoice choices(courses);
      const Verdict verdict = verify_inexactly(
          tree, {Kind::kRatio, 0},
          {.plain = {}, .p = [&](NodeId) { return std::span(lent = p); }, .q = {}, .log_q = log_q},
          choices);
      written[static_cast<std::size_t>(verdict.path.size() > 1 ? tree.token(1) : verdict.next)] +=
          courses.chance();
    }
    for (std::size_t t = 0; t < 3; ++t) EXPECT_NEAR(written[t], expected[t], kExact);
  }
}

TEST(Ratio, PrefersTheLongestOfTheKeptPaths) {
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{0, 1});
  tree.add_children(2, std::vector<TokenId>{1});
  const std::vector<double> log_q(4, std::log(0.1));  // p / q is above 1: all are kept
  Courses courses;
  courses.next();
  std::vector<double> lent;
  EveryChoice choices(courses);
  const Verdict verdict = verify_inexactly(tree, {Kind::kRatio, 0},
                                           {.plain = {},
                                            .p =
                                                [&](NodeId) {
                                                  return std::span(lent = {0.5, 0.5});
                                                },
                                            .q = {},
                                            .log_q = log_q},
                                           choices);
  EXPECT_EQ(verdict.path, (std::vector<NodeId>{0, 2, 3}));
}

TEST(Ratio, AtTemperatureZeroFollowsTheTargetsOwnTokens) {
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{0, 1});
  Greedy greedy{{{0.3, 0.7}, {0.9, 0.1}, {0.2, 0.8}}, {}};
  const Verdict verdict = greedy(tree, {Kind::kRatio, 0}, {0, 0, 0});
  EXPECT_EQ(verdict.path, (std::vector<NodeId>{0, 2}));
  EXPECT_EQ(verdict.next, 1);
}

/// The root's children 1 and 2, a child of each: nodes 1, 2, 3, 4 of tokens 1, 2, 1, 2.
TokenTree forked() {
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{1, 2});
  tree.add_children(1, std::vector<TokenId>{1});
  tree.add_children(2, std::vector<TokenId>{2});
  return tree;
}

TEST(Typical, KeepsTheLongestPathWhoseTokensAreNotRareForTheirRow) {
  // A sharp row has a small entropy and asks for more than a flat one.
  const std::vector<double> sharp{0.90, 0.06, 0.04}, flat{0.36, 0.32, 0.32};
  const auto entropy = [](const std::vector<double>& row) {
    double h = 0;
    for (const double p : row) h -= p * std::log(p);
    return h;
  };
  const double of_sharp = std::exp(-entropy(sharp)), of_flat = std::exp(-entropy(flat));
  ASSERT_GT(0.3 * of_sharp, 0.06);  // refused by d, whose bound is below e
  ASSERT_LT(0.3 * of_sharp, 0.9);
  ASSERT_LT(0.3 * of_flat, 0.32);
  const InexactRule wide{Kind::kTypical, 0.9, 0.3}, narrow{Kind::kTypical, 0.05, 0.3};
  const auto path = [&](const std::vector<double>& at_root, const std::vector<double>& at_one,
                        const std::vector<double>& at_two, const InexactRule& rule) {
    Greedy greedy{{at_root, at_one, at_two, flat, flat}, {}};
    return greedy(forked(), rule).path;
  };
  using Path = std::vector<NodeId>;
  EXPECT_EQ(path(sharp, flat, flat, wide), Path{0});
  EXPECT_EQ(path(sharp, flat, flat, narrow), (Path{0, 1, 3})) << "e is the smaller of both";
  EXPECT_EQ(path(flat, flat, flat, wide), (Path{0, 1, 3})) << "of two as long the first";
  EXPECT_EQ(path(flat, sharp, flat, wide), (Path{0, 2, 4})) << "the longer one";
  EXPECT_EQ(path(flat, sharp, sharp, wide), (Path{0, 1}));
  // The bound itself is not above it.
  EXPECT_EQ(path(flat, flat, flat, {Kind::kTypical, 0.32, 1}), Path{0});
}

TEST(Typical, OfZeroAndZeroKeepsEveryChildAndEndsWithTheTargetsOwnToken) {
  const InexactRule rule{Kind::kTypical, 0, 0};
  for (unsigned seed = 0; seed < 20; ++seed) {
    Greedy greedy{{}, {}};
    for (unsigned node = 0; node < 5; ++node) {
      greedy.rows.push_back(row(3, 7 * seed + node));
      for (double& p : greedy.rows.back()) p = (p + 0.1) / 1.3;  // what is impossible is refused
    }
    const Verdict verdict = greedy(forked(), rule);
    EXPECT_EQ(verdict.path, (std::vector<NodeId>{0, 1, 3}));
    const std::vector<double>& last = greedy.rows[3];
    EXPECT_EQ(verdict.next, std::max_element(last.begin(), last.end()) - last.begin());
  }
}

TEST(Typical, DrawsItsLastTokenFromTheWholeOfPAndJudgesByIt) {
  const std::vector<double> p{0.2, 0.5, 0.3};
  std::vector<double> out(3, 0.0);
  for (Courses courses; courses.next();) {
    TokenTree tree(0);
    tree.add_children(0, std::vector<TokenId>{1});
    std::vector<double> lent;
    EveryChoice choices(courses);
    const auto rows = [&](NodeId) { return std::span(lent = p); };
    const Verdict verdict = verify_inexactly(tree, {Kind::kTypical, 0.09, 0.3},
                                             {.plain = {}, .p = rows, .q = {}}, choices);
    ASSERT_EQ(verdict.path.size(), 2u);
    out[static_cast<std::size_t>(verdict.next)] += courses.chance();
  }
  for (std::size_t t = 0; t < 3; ++t) EXPECT_NEAR(out[t], p[t], kExact);
}

TEST(InexactRules, RefuseTreesAndSayWhatTheyChange) {
  TokenTree tree(0);
  tree.add_children(0, std::vector<TokenId>{0, 1});
  const std::vector<double> p{0.5, 0.5};
  Greedy greedy{{p, p, p}, {}};
  EXPECT_THROW(greedy(tree, {Kind::kRollback, 1}), Error);
  EXPECT_THROW(greedy(tree, {Kind::kJoint, 1}, {0, 0, 0}), Error);
  EXPECT_THROW(greedy(chain_of({1}), {Kind::kJoint, 1}), Error);  // no probabilities of the draft
  for (const auto& [rule, says] : {std::pair{lenience(0.5), "lenience 0.5"},
                                   std::pair{InexactRule{Kind::kRollback, 2}, "rollback 2"},
                                   std::pair{InexactRule{Kind::kJoint, 0.1}, "threshold 0.1"}})
    EXPECT_NE(in_words(rule).find(says), std::string::npos);
}

}  // namespace
}  // namespace canopy::testing
