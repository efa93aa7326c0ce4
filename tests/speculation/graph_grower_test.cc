#include "src/speculation/graph_grower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "tests/speculation/grow_on_tables.h"

namespace canopy::testing {
namespace {

constexpr Growth kAll{.kind = Growth::Kind::kGraph,
                      .children = 2,
                      .steps = 3,
                      .least = 0,
                      .least_of_siblings = 0,
                      .merge = 0};

Grown grow(const Text& text, const Growth& growth, const GraphGrower::Limits& limits,
           const Model& draft) {
  GraphGrower grower(text, growth, limits);
  return grow_on_tables(grower, draft);
}

/// Rows in which every token has some probability, and no two the same.
Model full_model(std::size_t vocab, unsigned seed) {
  return [=](const Text& text) {
    std::seed_seq key{seed, static_cast<unsigned>(text.size()),
                      std::accumulate(text.begin(), text.end(), 1u, [](unsigned hash, TokenId t) {
                        return hash * 31 + static_cast<unsigned>(t);
                      })};
    std::mt19937 random(key);
    std::normal_distribution<double> normal(0.0, 1.5);
    std::vector<double> row(vocab);
    for (double& value : row) value = std::exp(normal(random));
    normalise(row);
    for (double& value : row) value = static_cast<double>(static_cast<float>(value));
    return row;
  };
}

std::vector<NodeId> parents_of(const TokenTree& tree) {
  std::vector<NodeId> parents;
  for (NodeId node = 0; node < tree.size(); ++node) parents.push_back(tree.parent(node));
  return parents;
}

TEST(GraphGrower, WithoutThresholdsAndMergingGrowsTheWholeTree) {
  for (const int children : {1, 2, 3})
    for (unsigned seed = 0; seed < 20; ++seed) {
      Growth growth = kAll;
      growth.children = children;
      const TreeShape whole = TreeShape::branching(std::vector<int>(3, children));
      const Model draft = full_model(5, seed);
      const Grown grown = grow({4}, growth, {whole.size(), 100, 100}, draft);
      EXPECT_EQ(TreeShape::from_parents(parents_of(grown.tree.tree)), whole);
      for (NodeId node = 0; node < whole.size(); ++node)
        for (int k = 0; k < whole.child_count(node); ++k)
          EXPECT_EQ(grown.tree.tree.token(grown.tree.tree.children(node).first + k),
                    best_tokens(draft(text_of(grown.tree.tree, node)),
                                children)[static_cast<std::size_t>(k)]);
      EXPECT_EQ(std::count(grown.tree.copied.begin(), grown.tree.copied.end(), true), 0);
    }
}

TEST(GraphGrower, KeepsButDoesNotRunWhatIsTooUnlikely) {
  const Model draft = [](const Text&) { return std::vector<double>{0.5, 0.3, 0.15, 0.05}; };
  Growth growth = kAll;
  growth.children = 3;
  growth.steps = 2;
  growth.least = 0.2;
  EXPECT_EQ(parents_of(grow({3}, growth, {100, 100, 100}, draft).tree.tree),
            (std::vector<NodeId>{-1, 0, 0, 0, 1, 1, 1, 2, 2, 2}));
  growth.least = 0;
  growth.least_of_siblings = 0.7;  // .3 < .35
  EXPECT_EQ(parents_of(grow({3}, growth, {100, 100, 100}, draft).tree.tree),
            (std::vector<NodeId>{-1, 0, 0, 0, 1, 1, 1}));
  growth.least = 1.1;
  EXPECT_EQ(grow({3}, growth, {100, 100, 100}, draft).tree.tree.size(), 4);  // one level
}

TEST(GraphGrower, WithOneChildEndsBehindTheFirstUnlikelyToken) {  // SSD with its draft exit
  const Model draft = [](const Text& text) {
    return text.size() < 2 ? std::vector<double>{0.9, 0.1} : std::vector<double>{0.45, 0.55};
  };
  Growth growth = kAll;
  growth.children = 1;
  growth.steps = 10;
  growth.least = 0.6;
  const Grown grown = grow({1}, growth, {100, 100, 100}, draft);
  EXPECT_EQ(text_of(grown.tree.tree, grown.tree.tree.size() - 1), (Text{0, 0, 1}));
  EXPECT_EQ(grown.tree.run, (std::vector<std::int32_t>{0, 1, 2, -1}));
}

/// The same by the letter of the definition: nodes are paths, merges a map between paths, the tree
/// the likeliest of all unfolded paths.
std::set<Text> slow_twin(const Text& text, const Growth& growth, std::size_t nodes,
                         const Model& draft) {
  std::map<Text, std::vector<TokenId>> children;
  std::map<Text, Text> merged;
  std::map<Text, Text> first;
  const auto key = [&](const Text& path) {
    Text all = text;
    all.insert(all.end(), path.begin(), path.end());
    const auto kept = std::min<std::ptrdiff_t>(growth.merge, std::ssize(all));
    return Text(all.end() - kept, all.end());
  };
  const auto child = [](Text path, TokenId token) {
    path.push_back(token);
    return path;
  };
  if (growth.merge > 0) first[key({})] = {};
  const std::function<bool(const Text&, const Text&)> reaches = [&](const Text& from,
                                                                    const Text& to) {
    if (from == to) return true;
    if (merged.contains(from) && reaches(merged[from], to)) return true;
    const std::vector<TokenId> below = children[from];
    return std::any_of(below.begin(), below.end(),
                       [&](TokenId token) { return reaches(child(from, token), to); });
  };
  std::vector<Text> frontier{{}};
  for (int level = 0; level < growth.steps && !frontier.empty(); ++level) {
    std::vector<Text> added, next;
    for (const Text& path : frontier) {
      children[path] = best_tokens(draft(path), growth.children);
      for (const TokenId token : children[path]) added.push_back(child(path, token));
    }
    for (const Text& path : added) {
      const Text parent(path.begin(), path.end() - 1);
      const std::vector<double> row = draft(parent);
      const double q = row[static_cast<std::size_t>(path.back())];
      if (q < growth.least) continue;
      if (q < growth.least_of_siblings * *std::max_element(row.begin(), row.end())) continue;
      const auto same = first.find(key(path));
      if (growth.merge > 0 && same != first.end() && !reaches(same->second, path)) {
        merged[path] = same->second;
        continue;
      }
      if (growth.merge > 0) first.emplace(key(path), path);
      next.push_back(path);
    }
    frontier = next;
  }
  std::vector<std::pair<double, Text>> unfolded;
  const std::function<void(const Text&, const Text&, double)> unfold =
      [&](const Text& node, const Text& path, double reach) {
        if (reach < 1e-7) return;
        unfolded.emplace_back(-reach, path);
        const Text& original = merged.contains(node) ? merged[node] : node;
        const std::vector<double> row = draft(original);
        for (const TokenId token : children[original])
          unfold(child(original, token), child(path, token),
                 reach * row[static_cast<std::size_t>(token)]);
      };
  unfold({}, {}, 1);
  std::sort(unfolded.begin(), unfolded.end());
  std::set<Text> kept;
  for (std::size_t i = 0; i < std::min(nodes, unfolded.size()); ++i)
    kept.insert(unfolded[i].second);
  return kept;
}

TEST(GraphGrower, GrowsAndUnfoldsWhatTheSlowTwinDoes) {
  int copies = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Growth growth = kAll;
    growth.children = 1 + static_cast<int>(random() % 3);
    growth.steps = 1 + static_cast<int>(random() % 5);
    growth.merge = static_cast<int>(random() % 4);
    growth.least = random() % 2 == 0 ? 0 : 0.15;
    growth.least_of_siblings = random() % 2 == 0 ? 0 : 0.3;
    const int nodes = 1 + static_cast<int>(random() % 40);
    const Model draft = full_model(3, seed);
    const Text text{static_cast<TokenId>(random() % 3), static_cast<TokenId>(random() % 3)};
    const Grown grown = grow(text, growth, {nodes, 1000, 1000}, draft);
    std::set<Text> paths;
    for (NodeId node = 0; node < grown.tree.tree.size(); ++node)
      paths.insert(text_of(grown.tree.tree, node));
    EXPECT_EQ(std::ssize(paths), grown.tree.tree.size());  // no sibling twice
    EXPECT_EQ(paths, slow_twin(text, growth, static_cast<std::size_t>(nodes), draft));
    copies +=
        static_cast<int>(std::count(grown.tree.copied.begin(), grown.tree.copied.end(), true));
  }
  EXPECT_GT(copies, 100);
}

TEST(GraphGrower, RunsNoTokensTwiceThatAreToBeMerged) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    Growth growth = kAll;
    growth.steps = 6;
    growth.merge = 2;
    const Text text{0, 1};
    std::map<Text, std::vector<Text>> run;  // by their last two tokens
    for (const Text& path : grow(text, growth, {1000, 1000, 1000}, full_model(3, seed)).run) {
      Text all = text;
      all.insert(all.end(), path.begin(), path.end());
      run[Text(all.end() - 2, all.end())].push_back(path);
    }
    for (const auto& [key, paths] : run)  // but where the first is above: that would be a cycle
      for (std::size_t i = 1; i < paths.size(); ++i)
        EXPECT_TRUE(
            std::any_of(paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const Text& earlier) { return earlier.size() < paths[i].size(); }));
  }
}

TEST(GraphGrower, EndsOnAPeriodicDraft) {
  const Model draft = [](const Text& text) {
    return text.size() % 2 == 0 ? std::vector<double>{0.9, 0.1} : std::vector<double>{0.1, 0.9};
  };
  Growth growth = kAll;
  growth.steps = 10;
  for (const int merge : {1, 2, 3}) {
    growth.merge = merge;
    EXPECT_LE(grow({0, 1}, growth, {60, 1000, 1000}, draft).tree.tree.size(), 60);
  }
}

TEST(GraphGrower, RunsTheLikeliestWhereALevelIsTooWide) {
  Growth growth = kAll;
  growth.steps = 4;
  const Grown grown = grow({0}, growth, {100, 2, 6}, full_model(5, 3));
  EXPECT_EQ(grown.run.size(), 6u);  // 1, 2, 2 and one that is left
  EXPECT_EQ(std::count_if(grown.run.begin(), grown.run.end(),
                          [](const Text& path) { return path.size() == 2; }),
            2);
}

TEST(GraphGrower, CopiesWereNeverRunAndWhatWasRunComesFirstOnAPath) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    Growth growth = kAll;
    growth.steps = 5;
    growth.merge = 1;
    const Grown grown = grow({0}, growth, {60, 1000, 1000}, full_model(4, seed));
    for (NodeId node = 1; node < grown.tree.tree.size(); ++node) {
      const auto at = static_cast<std::size_t>(node);
      const std::int32_t run = grown.tree.run[at];
      EXPECT_TRUE(!grown.tree.copied[at] || run == -1);
      if (run < 0) continue;
      EXPECT_EQ(grown.run[static_cast<std::size_t>(run)], text_of(grown.tree.tree, node));
      EXPECT_GE(grown.tree.run[static_cast<std::size_t>(grown.tree.tree.parent(node))], 0);
    }
  }
}

TEST(GraphGrower, LeavesTheTargetsDistributionWhereItsOwnSampleDecides) {
  for (const int merge : {0, 1, 2})
    for (unsigned seed = 0; seed < 20; ++seed) {
      Growth growth = kAll;
      growth.merge = merge;
      growth.least = 0.2;
      const Model target = random_model(3, 2 * seed, 1, 1), draft = full_model(3, 2 * seed + 1);
      const TokenTree tree = grow({0}, growth, {20, 100, 100}, draft).tree.tree;
      Texts texts, alone;
      for (Courses courses; courses.next();) {
        std::vector<double> p_row;
        EveryChoice choices(courses);
        const Verdict verdict = verify_tree(
            tree, Drawing::kTopK,
            [&](NodeId node) { return std::span(p_row = target(text_of(tree, node))); }, {},
            choices);
        Text text = text_of(tree, verdict.path.back());
        text.push_back(verdict.next);
        continue_alone(target, text, courses.chance(), 8, texts);
      }
      continue_alone(target, {}, 1, 8, alone);
      EXPECT_LT(distance(alone, texts), kExact);
    }
}

}  // namespace
}  // namespace canopy::testing
