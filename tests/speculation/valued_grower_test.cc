#include "src/speculation/growers/valued_grower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "src/base/error.h"
#include "tests/speculation/copies.h"
#include "tests/speculation/grow_on_tables.h"

namespace canopy::testing {
namespace {

constexpr ChanceVector kDraftsOwn{0, 0, 0, 0, 1, 0, 0, 0, 0};

/// Makes of a row what top_probabilities would.
BestTokens valued_best(const std::vector<double>& row) {
  BestTokens best;
  best.tokens = best_tokens(row, std::min(kChanceRanks, static_cast<int>(row.size())));
  best.row.count = static_cast<int>(best.tokens.size());
  for (std::size_t i = 0; i < best.tokens.size(); ++i)
    best.row.probability[i] = static_cast<float>(row[static_cast<std::size_t>(best.tokens[i])]);
  double entropy = 0;
  for (const double p : row) entropy -= p > 0 ? p * std::log(p) : 0;
  best.row.entropy = static_cast<float>(entropy);
  return best;
}

/// The same with the token that is copied after the path.
BestTokens valued_best(const std::vector<double>& row, const Text& text, const Text& path) {
  BestTokens best = valued_best(row);
  const auto match = copied_in(text, path);
  if (!match || match->next >= static_cast<TokenId>(row.size())) return best;
  const auto place = std::find(best.tokens.begin(), best.tokens.end(), match->next);
  best.row.copied = static_cast<int>(place - best.tokens.begin()) + 1;
  best.row.match = match->length;
  if (place == best.tokens.end()) best.tokens.push_back(match->next);
  return best;
}

/// Plays the draft model after `before`.
Grown grow_valued(ValuedGrower& grower, const Model& draft, const Text& before = {}) {
  Grown grown{GrownTree{TokenTree(0), {}}, 0, {{}}};
  std::size_t first = 0;
  while (first < grown.run.size()) {
    std::vector<BestTokens> best;
    std::vector<DraftedRow> rows;
    for (std::size_t i = first; i < grown.run.size(); ++i) {
      Text text = before;
      text.insert(text.end(), grown.run[i].begin(), grown.run[i].end());
      best.push_back(valued_best(draft(text)));
    }
    for (const BestTokens& one : best) rows.push_back({{}, {}, &one});
    ++grown.forwards;
    first = grown.run.size();
    for (const DraftedNode& node : grower.take(rows)) {
      Text path = grown.run.at(static_cast<std::size_t>(node.parent));
      path.push_back(node.token);
      grown.run.push_back(std::move(path));
    }
  }
  grown.tree = grower.finish();
  return grown;
}

/// The tree as the set of its paths.
std::set<Text> tree_paths(const TokenTree& tree) {
  std::set<Text> paths;
  for (NodeId node = 1; node < tree.size(); ++node) paths.insert(text_of(tree, node));
  return paths;
}

/// Rule A as its page has it, with nothing left out and all looked up again in each round.
struct ByThePage {
  struct Node {
    Text path;
    double value;
    int parent;  // as run
    int rank;
  };
  std::set<Text> tree;
  std::vector<Text> run{{}};
  int forwards = 0;
  double expected = 1;

  ByThePage(const ValuedGrower::Limits& limits, const ChanceVector& w, const Model& draft,
            const Text& text) {
    std::vector<Node> all;
    std::vector<double> value{1};
    const auto price = [&](std::size_t below) {
      const std::vector<double>& trees = limits.prices.trees;
      return trees.empty() ? 0 : trees.at(below + 1) - trees.at(below);
    };
    const auto most = static_cast<std::size_t>(limits.nodes - 1);
    const auto add_children = [&](int of) {
      const Text& at = run[static_cast<std::size_t>(of)];
      const BestTokens best = valued_best(draft(at), text, at);
      for (int rank = 1; rank <= std::ssize(best.tokens); ++rank) {
        const ChanceVector x = chance_features(best.row, rank);
        double odds = 0;
        for (std::size_t i = 0; i < x.size(); ++i) odds += w[i] * x[i];
        const double child =
            value[static_cast<std::size_t>(of)] * std::min(.995, 1 / (1 + std::exp(-odds)));
        Text path = run[static_cast<std::size_t>(of)];
        path.push_back(best.tokens[static_cast<std::size_t>(rank) - 1]);
        all.push_back({path, child, of, rank});
      }
    };
    add_children(0);
    while (true) {
      std::vector<Node> chosen = all;
      std::sort(chosen.begin(), chosen.end(), [](const Node& a, const Node& b) {
        if (a.value != b.value) return a.value > b.value;
        if (a.path.size() != b.path.size()) return a.path.size() < b.path.size();
        return a.parent != b.parent ? a.parent < b.parent : a.rank < b.rank;
      });
      if (chosen.size() > most) chosen.resize(most);
      std::vector<double> gains{0};  // of the first ones
      for (std::size_t i = 0; i < chosen.size(); ++i)
        gains.push_back(gains.back() + chosen[i].value - price(i));
      chosen.resize(
          static_cast<std::size_t>(std::max_element(gains.begin(), gains.end()) - gains.begin()));
      double theta = 0;
      if (chosen.size() < most)
        theta = price(chosen.size());
      else if (most > 0)
        theta = chosen.back().value;
      tree.clear();
      expected = 1;
      for (const Node& one : chosen) tree.insert(one.path), expected += one.value;
      if (most == 0) return;
      std::vector<Node> next;
      double gain = 0;
      for (const Node& one : chosen) {
        if (std::ssize(next) == limits.rows || std::ssize(run) + std::ssize(next) == limits.run ||
            !(.75 * one.value > theta))
          break;
        if (std::find(run.begin(), run.end(), one.path) != run.end()) continue;
        next.push_back(one);
        gain += .75 * one.value - theta;
      }
      if (next.empty() || forwards == limits.forwards || !(gain > limits.prices.forward)) return;
      ++forwards;
      const auto first = static_cast<int>(run.size());
      for (const Node& one : next) run.push_back(one.path), value.push_back(one.value);
      for (int i = first; i < static_cast<int>(run.size()); ++i) add_children(i);
    }
  }
};

ChanceVector random_chance_weights(std::mt19937& random) {
  std::normal_distribution<double> normal(0, 1);
  ChanceVector w;
  for (double& one : w) one = normal(random);
  w[4] += 1;
  return w;
}

TEST(ValuedGrower, IsTheRuleOfItsPage) {
  int dropped = 0, cut = 0, copied = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::size_t vocab = seed % 5 == 4 ? 30 : 3 + random() % 8;
    const Model draft = random_model(vocab, seed, 1, 1);
    Text text;  // before the root, which is 0; it has tokens that the draft does not have
    for (std::size_t i = seed % 3 == 1 ? 10 * vocab : 0; i > 0; --i)
      text.push_back(static_cast<TokenId>(random() % (vocab + 1)));
    text.push_back(0);
    CopyIndex copies;
    copies.follow(text);
    const ChanceVector w = seed % 4 == 0 ? kDraftsOwn : random_chance_weights(random);
    ValuedGrower::Limits limits;
    limits.nodes = 1 + static_cast<int>(random() % 40);
    limits.rows = 1 + static_cast<int>(random() % 5);
    limits.run = 1 + static_cast<int>(random() % 60);
    limits.forwards = static_cast<int>(random() % 12);
    if (seed % 2 == 0) {  // at first less, at first more than afterwards
      const double early = .01 * static_cast<double>(random() % 10),
                   late = .01 * static_cast<double>(random() % 10);
      const auto turn = static_cast<int>(random() % 40);
      limits.prices.trees = {0};
      for (int n = 2; n <= limits.nodes; ++n)
        limits.prices.trees.push_back(limits.prices.trees.back() + (n < turn ? early : late));
    }
    if (seed % 3 == 0) limits.prices.forward = .01 * static_cast<double>(random() % 20);
    limits.vocab = static_cast<int>(vocab);
    ValuedGrower grower(0, limits, w, &copies);
    const Grown grown = grow_valued(grower, draft);
    const ByThePage page(limits, w, draft, text);
    const TokenTree& tree = grown.tree.tree;
    EXPECT_EQ(tree_paths(tree), page.tree);
    EXPECT_EQ(grown.run, page.run);
    EXPECT_EQ(grown.forwards, page.forwards + 1);
    EXPECT_NEAR(grower.expected_tokens(), page.expected, 1e-12);
    EXPECT_LE(tree.size(), limits.nodes);
    EXPECT_LE(std::ssize(grown.run), limits.run);
    EXPECT_LE(grown.forwards, limits.forwards + 1);
    std::set<Text> in_tree = tree_paths(tree);
    in_tree.insert(Text());
    for (const Text& path : grown.run) dropped += in_tree.contains(path) ? 0 : 1;
    cut += page.forwards > 0 && page.forwards < limits.forwards ? 1 : 0;
    // A node's scratch slot is that of its path; the draft's tokens are those of its row.
    const std::vector<BestTokens> best = grower.take_best();
    for (NodeId node = 0; node < tree.size(); ++node) {
      const std::int32_t run = grown.tree.run[static_cast<std::size_t>(node)];
      const auto place = std::find(grown.run.begin(), grown.run.end(), text_of(tree, node));
      EXPECT_EQ(run, place == grown.run.end() ? -1 : place - grown.run.begin());
      if (run < 0) continue;
      const BestTokens expected =
          valued_best(draft(text_of(tree, node)), text, text_of(tree, node));
      EXPECT_EQ(best[static_cast<std::size_t>(run)].tokens, expected.tokens);
      EXPECT_EQ(best[static_cast<std::size_t>(run)].row.copied, expected.row.copied);
      copied += expected.row.copied > kChanceRanks ? 1 : 0;
    }
  }
  EXPECT_GT(dropped, 50);
  EXPECT_GT(cut, 50);
  EXPECT_GT(copied, 5);  // of tokens that are none of the best
}

TEST(ValuedGrower, ByRankAloneMakesTheBestTree) {
  // f of ranks 1, 2, ...: .5, .05, .027, ...; the best tree runs no node whose children it lacks.
  const ChanceVector w{-2.5, 2.5, .3, -1, 0, 0, 0, 0, 0};
  const Model draft = random_model(40, 3, 1, 1);
  Acceptance by_rank;
  for (int rank = 1; rank <= kChanceRanks; ++rank)
    by_rank.accept.push_back(chance_of(w, chance_features(valued_best(draft({})).row, rank)));
  for (const int nodes : {1, 2, 3, 7, 16, 50})
    for (const int rows : {1, 4, 1000}) {
      ValuedGrower grower(0, {nodes, rows, 100000, 1000}, w);
      const TokenTree tree = grow_valued(grower, draft).tree.tree;
      std::vector<NodeId> parents;
      for (NodeId node = 0; node < tree.size(); ++node) parents.push_back(tree.parent(node));
      // Either of two nodes that are worth the same may be in it.
      EXPECT_EQ(tree.size(), nodes);
      EXPECT_NEAR(expected_tokens(TreeShape::from_parents(parents), by_rank),
                  expected_tokens(best_tree(nodes, 32, by_rank), by_rank), 1e-12);
      EXPECT_NEAR(grower.expected_tokens(), expected_tokens(best_tree(nodes, 32, by_rank), by_rank),
                  1e-12);
      for (NodeId node = 0; node < tree.size(); ++node)  // the first ones of their ranks
        for (int k = 0; k < tree.children(node).count; ++k)
          EXPECT_EQ(tree.token(tree.children(node).first + k),
                    valued_best(draft(text_of(tree, node))).tokens[static_cast<std::size_t>(k)]);
    }
}

TEST(ValuedGrower, StopsWhereNodesOrForwardsCostMoreThanTheyBring) {
  const Model draft = [](const Text&) { return std::vector<double>{.6, .3, .1}; };
  // Each node after the first `free` ones costs `node`.
  const auto grown = [&](double node, double forward, int free = 1) {
    GrowthPrices prices{{}, forward};
    for (int n = 1; n <= 1000; ++n) prices.trees.push_back(node * std::max(0, n - free));
    ValuedGrower grower(0, {1000, 1, 2000, 1000, prices}, kDraftsOwn);
    return grow_valued(grower, draft);
  };
  for (const double price : {.05, .2, .5, .7}) {
    const Grown at = grown(price, 0);
    for (NodeId node = 1; node < at.tree.tree.size(); ++node) {
      double value = 1;
      for (const TokenId token : text_of(at.tree.tree, node))
        value *= draft({})[static_cast<std::size_t>(token)];
      EXPECT_GT(value, price - 1e-7);
    }
  }
  EXPECT_EQ(grown(.7, 0).tree.tree.size(), 1);
  // The first forward would run a node worth .6: its children gain .45.
  EXPECT_EQ(grown(0, .4499).forwards, 2);
  EXPECT_EQ(grown(0, .4501).forwards, 1);
  // Nodes that cost nothing are there, whatever the next one would cost.
  EXPECT_EQ(grown(.7, 0, 9).tree.tree.size(), 9);
  EXPECT_EQ(grown(.2, 0, 3).tree.tree.size(), grown(.2, 0).tree.tree.size());
}

/// Two steps, the second by what the first has shown, with the children of the rule. Adds how often
/// nodes that were run fell out of the tree.
Texts valued_steps(const ValuedGrower::Limits& limits, const ChanceVector& prior,
                   const Model& target, const Model& draft, std::size_t length, int& dropped) {
  const Text known{1, 2, 0, 0, 1, 1, 2, 0};  // written before
  Texts texts;
  for (Courses courses; courses.next();) {
    ChanceVector w = prior;
    Text text;
    for (int i = 0; i < 2; ++i) {
      Text before = known;
      before.insert(before.end(), text.begin(), text.end());
      CopyIndex copies;
      copies.follow(before);
      ValuedGrower grower(0, limits, w, &copies);
      const Grown grown = grow_valued(grower, draft, text);
      const TokenTree& tree = grown.tree.tree;
      const auto run = static_cast<int>(std::count_if(grown.tree.run.begin(), grown.tree.run.end(),
                                                      [](int r) { return r >= 0; }));
      dropped += static_cast<int>(grown.run.size()) - run;
      std::vector<double> row;
      EveryChoice choices(courses);
      const auto text_at = [&](NodeId node) {
        Text at = text;
        for (const TokenId token : text_of(tree, node)) at.push_back(token);
        return at;
      };
      const Verdict verdict = verify_tree(
          tree, Drawing::kTopK, [&](NodeId node) { return std::span(row = target(text_at(node))); },
          [&](NodeId) { return std::span<double>(); }, choices);
      std::vector<ChanceContext> contexts;
      const std::vector<BestTokens> best = grower.take_best();
      for (std::size_t k = 0; k < verdict.path.size(); ++k) {
        const std::int32_t at = grown.tree.run[static_cast<std::size_t>(verdict.path[k])];
        if (at < 0) continue;
        const auto& tokens = best[static_cast<std::size_t>(at)].tokens;
        const TokenId written =
            k + 1 < verdict.path.size() ? tree.token(verdict.path[k + 1]) : verdict.next;
        const auto place = std::find(tokens.begin(), tokens.end(), written);
        contexts.push_back(
            {best[static_cast<std::size_t>(at)].row,
             place == tokens.end() ? 0 : static_cast<int>(place - tokens.begin()) + 1});
      }
      w = evidence_of(contexts, {}, w).weights(w);
      text = text_at(verdict.path.back());
      text.push_back(verdict.next);
    }
    continue_alone(target, text, courses.chance(), length, texts);
  }
  return texts;
}

TEST(ValuedGrower, KeepsTheTargetsDistributionWhateverTheWeightsAre) {
  int dropped = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Model target = random_model(3, 2 * seed, 1, 1),
                draft = random_model(3, 2 * seed + 1, 1, 1);
    Texts alone;
    continue_alone(target, {}, 1, 8, alone);
    const ValuedGrower::Limits limits{2 + static_cast<int>(seed % 5),
                                      1 + static_cast<int>(seed % 2), 20, 2};
    const Texts texts =
        valued_steps(limits, random_chance_weights(random), target, draft, 8, dropped);
    EXPECT_LT(distance(alone, texts), kExact);
  }
  EXPECT_GT(dropped, 0);
}

TEST(ValuedGrower, RefusesRowsThatItDidNotAskFor) {
  ValuedGrower grower(0, {4, 1, 10, 3}, kDraftsOwn);
  const BestTokens best = valued_best({.5, .5});
  const DraftedRow two[] = {{{}, {}, &best}, {{}, {}, &best}};
  EXPECT_THROW(grower.take(two), Error);
  const DraftedRow none[] = {{{}, {}, nullptr}};
  EXPECT_THROW(grower.take(none), Error);
}

}  // namespace
}  // namespace canopy::testing
