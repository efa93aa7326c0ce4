#include "src/speculation/growers/graph_grower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

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

struct Golden {
  Text text;
  Model draft;
  Growth growth;
  GraphGrower::Limits limits;
  nlohmann::json made;  // the slow twin's result
};

/// Graphs that a slow twin grew and unfolded: tests/data/speculation/make_graphs.py.
std::vector<Golden> goldens() {
  std::ifstream in(std::filesystem::path(CANOPY_TEST_DATA) / "speculation" / "graphs.json");
  std::vector<Golden> all;
  for (nlohmann::json& c : nlohmann::json::parse(in)) {
    Golden& golden = all.emplace_back();
    golden.text = c["text"].get<Text>();
    golden.growth = {.kind = Growth::Kind::kGraph,
                     .children = c["growth"]["children"],
                     .steps = c["growth"]["steps"],
                     .least = c["growth"]["least"],
                     .least_of_siblings = c["growth"]["least_of_siblings"],
                     .merge = c["growth"]["merge"],
                     .within_level = c["growth"]["within_level"]};
    golden.limits = {c["limits"]["nodes"], c["limits"]["widest"], c["limits"]["run"]};
    const auto rows = c["rows"].get<std::vector<std::vector<std::vector<double>>>>();
    golden.draft = [rows, root = golden.text.back()](const Text& path) {
      const auto last = static_cast<std::size_t>(path.empty() ? root : path.back());
      std::vector<double> row = rows[path.size() % 3][last];
      for (double& q : row) q /= 1024;
      return row;
    };
    golden.made = std::move(c);
  }
  return all;
}

TEST(GraphGrower, GrowsAndUnfoldsWhatTheSlowTwinDoes) {
  int copies = 0, within_level = 0, onto_ancestors = 0;
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.made.dump());
    const Grown grown = grow(golden.text, golden.growth, golden.limits, golden.draft);
    const std::span<const TokenId> tokens = grown.tree.tree.tokens();
    EXPECT_EQ(grown.run, golden.made["run"].get<std::vector<Text>>());
    EXPECT_EQ(Text(tokens.begin() + 1, tokens.end()),
              Text(golden.made["tokens"].begin() + 1, golden.made["tokens"].end()));
    EXPECT_EQ(parents_of(grown.tree.tree), golden.made["parents"].get<std::vector<NodeId>>());
    EXPECT_EQ(std::vector<int>(grown.tree.copied.begin(), grown.tree.copied.end()),
              golden.made["copied"].get<std::vector<int>>());
    EXPECT_EQ(grown.tree.row, golden.made["row"].get<std::vector<std::int32_t>>());
    const auto copied = std::count(grown.tree.copied.begin(), grown.tree.copied.end(), true);
    (golden.growth.within_level ? within_level : copies) += static_cast<int>(copied);
    onto_ancestors += golden.made["tokens"] != golden.made["onto_ancestors"] ? 1 : 0;
  }
  EXPECT_GT(copies, 50);
  EXPECT_GT(within_level, 50);
  EXPECT_GT(onto_ancestors, 10);  // a program that merges onto ancestors would be seen
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

/// A step of sampled graphs: its drafting, its verification and its faults.
struct Step {
  Drawing drawing = Drawing::kSequoia;
  Growth growth;
  GraphGrower::Limits limits{100, 2, 100};  // two nodes of a level are run: few courses
  bool drops_leaves = false;  // tokens that the draft finds unlikely are not even checked
  Asking asking = Asking::kFromAbove;
  bool own_rows = false;  // copies are judged by the rows of their own paths
};

GrownTree without_leaves(const GrownTree& grown, double least) {
  GrownTree kept{TokenTree(grown.tree.token(0)), {}};
  kept.row = {grown.row[0]};
  std::vector<NodeId> old{0};
  for (std::size_t node = 0; node < old.size(); ++node) {
    const TokenTree::Range range = grown.tree.children(old[node]);
    std::vector<TokenId> tokens;
    for (NodeId child = range.first; child < range.first + range.count; ++child) {
      if (std::exp(grown.log_q[static_cast<std::size_t>(child)]) < least) continue;
      tokens.push_back(grown.tree.token(child));
      old.push_back(child);
      kept.row.push_back(grown.row[static_cast<std::size_t>(child)]);
    }
    if (!tokens.empty()) kept.tree.add_children(static_cast<NodeId>(node), tokens);
  }
  return kept;
}

/// The distribution of the first `length` tokens from a step on, every course of drafting and of
/// verification played.
Texts speculate_graphs(const Step& step, const Model& target, const Model& draft,
                       std::size_t length) {
  Texts texts;
  for (Courses courses; courses.next();) {
    GraphGrower::Propose propose;  // best tokens where the target's own sample decides
    if (step.drawing == Drawing::kSequoia)
      propose = [&](std::span<const float> row, int) {
        const auto support = std::count_if(row.begin(), row.end(), [](float q) { return q > 0; });
        return draw_distinct({row.begin(), row.end()},
                             std::min(step.growth.children, static_cast<int>(support)), courses);
      };
    const Text root{0};
    GraphGrower grower(root, step.growth, step.limits, propose);
    Grown grown = grow_on_tables(grower, draft);
    if (step.drops_leaves) grown.tree = without_leaves(grown.tree, step.growth.least);
    const TokenTree& tree = grown.tree.tree;
    std::vector<double> p_row, q_row;
    EveryChoice choices(courses);
    const Verdict verdict = verify_tree(
        tree, step.drawing,
        [&](NodeId node) { return std::span(p_row = target(text_of(tree, node))); },
        [&](NodeId node) {
          const std::int32_t row = grown.tree.row[static_cast<std::size_t>(node)];
          q_row = draft(step.own_rows ? text_of(tree, node)
                                      : grown.run.at(static_cast<std::size_t>(row)));
          return std::span(q_row);
        },
        choices, step.asking);
    Text text = text_of(tree, verdict.path.back());
    text.push_back(verdict.next);
    text.resize(std::min(text.size(), length));  // merged nodes may lie above: paths are longer
    continue_alone(target, text, courses.chance(), length, texts);
  }
  return texts;
}

double worst_of(const Step& step, unsigned models) {
  double worst = 0;
  for (unsigned seed = 0; seed < models; ++seed) {
    const Model target = random_model(3, 2 * seed, 1, 1), draft = full_model(3, 2 * seed + 1);
    const auto length = static_cast<std::size_t>(step.growth.steps) + 1;
    Texts alone;
    continue_alone(target, {}, 1, length, alone);
    worst = std::max(worst, distance(alone, speculate_graphs(step, target, draft, length)));
  }
  return worst;
}

Step sampled_step() {
  Step step;
  step.growth = kAll;
  step.growth.merge = 1;
  step.growth.within_level = true;
  return step;
}

TEST(GraphGrower, LeavesTheTargetsDistributionWhereItsOwnSampleDecides) {
  for (const int merge : {0, 1, 2})
    for (const double least : {0.0, 0.2}) {
      Step step = sampled_step();
      step.drawing = Drawing::kTopK;
      step.limits = {20, 100, 100};
      step.growth.within_level = false;
      step.growth.merge = merge;
      step.growth.least = least;
      EXPECT_LT(worst_of(step, 20), kExact);
    }
}

TEST(GraphGrower, LeavesTheTargetsDistributionWhereChildrenAreDrawnAndMergedWithinALevel) {
  for (const double least : {0.0, 0.3})
    for (const int nodes : {100, 9, 6}) {  // all, some of the last level, some of the one above
      Step step = sampled_step();
      step.growth.least = least;
      step.growth.least_of_siblings = least;
      step.limits.nodes = nodes;
      EXPECT_LT(worst_of(step, least > 0 ? 20 : 6), kExact) << least << " " << nodes;
    }
}

TEST(GraphGrower, IsSeenToBeWrongWhereDrawnNodesAreMergedAcrossLevels) {
  Step step = sampled_step();
  step.growth.within_level = false;
  step.limits.widest = 100;
  step.growth.least = 0.3;
  EXPECT_GT(worst_of(step, 4), kWrong);
}

TEST(GraphGrower, IsSeenToBeWrongWhereDrawnNodesThatShareASubtreeAreAskedFromBelow) {
  Step step = sampled_step();
  step.asking = Asking::kFromBelow;
  EXPECT_GT(worst_of(step, 4), kWrong);
}

TEST(GraphGrower, IsSeenToBeWrongWhereADrawnTokenIsDropped) {
  Step step = sampled_step();
  step.growth.least = 0.3;
  step.drops_leaves = true;
  EXPECT_GT(worst_of(step, 4), kWrong);
}

TEST(GraphGrower, IsSeenToBeWrongWhereTheLikeliestDrawnTokensAreKept) {
  Step step = sampled_step();
  step.growth.merge = 0;
  step.growth.within_level = false;  // unfolded by what was drawn
  step.limits.nodes = 6;
  EXPECT_GT(worst_of(step, 2), kWrong);
}

TEST(GraphGrower, IsSeenToBeWrongWhereCopiesAreJudgedByTheirOwnRows) {
  Step step = sampled_step();
  step.own_rows = true;
  EXPECT_GT(worst_of(step, 2), kWrong);
}

}  // namespace
}  // namespace canopy::testing
