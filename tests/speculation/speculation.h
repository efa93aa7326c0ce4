#pragma once
// Steps of speculation on models of a few tokens: the exact distribution of their text, and how far
// it is from the target's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "planner/tree_shape.h"
#include "src/speculation/rules/verification_rule.h"
#include "tests/speculation/enumeration.h"

namespace canopy::testing {

using Rule = std::function<Verdict(const TokenTree&, const LendRow& p, const LendRow& q, Choices&)>;

inline Rule rule_of(Drawing drawing, Asking asking = Asking::kFromBelow) {
  return [=](const TokenTree& tree, const LendRow& p, const LendRow& q, Choices& choices) {
    return verify_tree(tree, drawing, p, q, choices, asking);
  };
}

constexpr Drawing kDrawings[] = {Drawing::kTopK, Drawing::kNaive, Drawing::kSequoia,
                                 Drawing::kSpecInfer, Drawing::kSpecTr};

/// Children drawn as the policy draws them.
inline std::vector<TokenId> draw_children(Drawing drawing, const std::vector<double>& q, int count,
                                          Courses& courses) {
  switch (drawing) {
    case Drawing::kTopK:
      return best_tokens(q, count);
    case Drawing::kSequoia:
      return draw_distinct(q, count, courses);
    default:
      break;
  }
  std::vector<TokenId> drawn;
  for (int k = 0; k < count; ++k) drawn.push_back(static_cast<TokenId>(courses.choose(q)));
  return drawn;
}

inline void normalise(std::vector<double>& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
}

/// Temperature, then top-p.
inline std::vector<double> warped(std::vector<double> p, double temperature, double top_p) {
  const auto best = static_cast<std::size_t>(std::max_element(p.begin(), p.end()) - p.begin());
  if (temperature == 0) {
    std::fill(p.begin(), p.end(), 0.0);
    p[best] = 1;
    return p;
  }
  for (double& value : p) value = std::pow(value, 1 / temperature);
  normalise(p);
  double kept = 0;
  std::vector<double> cut(p.size(), 0.0);
  for (const TokenId token : best_tokens(p, static_cast<int>(p.size()))) {
    if (kept >= top_p) break;
    cut[static_cast<std::size_t>(token)] = p[static_cast<std::size_t>(token)];
    kept += p[static_cast<std::size_t>(token)];
  }
  normalise(cut);
  return cut;
}

/// Random numbers that depend on the seed and the text alone.
inline std::mt19937 random_after(unsigned seed, const Text& text) {
  std::seed_seq key{seed, static_cast<unsigned>(text.size()),
                    std::accumulate(text.begin(), text.end(), 1u, [](unsigned hash, TokenId t) {
                      return hash * 31 + static_cast<unsigned>(t);
                    })};
  return std::mt19937(key);
}

/// Fixed random probabilities after every text; about a quarter of them 0.
inline Model random_model(std::size_t vocab, unsigned seed, double temperature, double top_p) {
  auto rows = std::make_shared<std::map<Text, std::vector<double>>>();
  return [=](const Text& text) {
    std::vector<double>& row = (*rows)[text];
    if (row.empty()) {
      std::mt19937 random = random_after(seed, text);
      std::normal_distribution<double> normal(0.0, 1.5);
      row.resize(vocab);
      for (double& value : row) value = random() % 4 == 0 ? 0.0 : std::exp(normal(random));
      row[random() % vocab] = std::exp(normal(random));
      row = warped(row, temperature, top_p);
    }
    return row;
  };
}

/// Rows in which every token has some probability, and no two the same.
inline Model full_model(std::size_t vocab, unsigned seed) {
  auto rows = std::make_shared<std::map<Text, std::vector<double>>>();
  return [=](const Text& text) {
    std::vector<double>& row = (*rows)[text];
    if (!row.empty()) return row;
    std::mt19937 random = random_after(seed, text);
    std::normal_distribution<double> normal(0.0, 1.5);
    row.resize(vocab);
    for (double& value : row) value = std::exp(normal(random));
    normalise(row);
    for (double& value : row) value = static_cast<double>(static_cast<float>(value));
    return row;
  };
}

/// The distribution of texts of `length` tokens: draft a tree of this shape, verify it, let the
/// target go on alone after the step. Adds the mean tokens of the step to `tokens`.
inline Texts speculate(const Rule& rule, const TreeShape& shape, Drawing children,
                       const Model& target, const Model& draft, std::size_t length,
                       double* tokens = nullptr) {
  Texts texts;
  for (Courses courses; courses.next();) {
    TokenTree tree(0);
    for (NodeId node = 0; node < shape.size(); ++node)
      if (const int count = shape.child_count(node); count > 0)
        tree.add_children(node,
                          draw_children(children, draft(text_of(tree, node)), count, courses));
    std::vector<double> p_row, q_row;
    EveryChoice choices(courses);
    const Verdict verdict = rule(
        tree, [&](NodeId node) { return std::span(p_row = target(text_of(tree, node))); },
        [&](NodeId node) { return std::span(q_row = draft(text_of(tree, node))); }, choices);
    if (tokens != nullptr) *tokens += courses.chance() * static_cast<double>(verdict.path.size());
    Text text = text_of(tree, verdict.path.back());
    text.push_back(verdict.next);
    continue_alone(target, text, courses.chance(), length, texts);
  }
  return texts;
}

struct Case {
  std::string name;
  std::size_t vocab, draft_vocab;
  TreeShape shape;
};
inline std::vector<Case> cases() {
  const auto shape = [](std::vector<NodeId> parents) {
    return TreeShape::from_parents(std::move(parents));
  };
  return {{"root", 3, 3, shape({-1})},
          {"chain", 3, 3, TreeShape::chain(4)},
          {"whole vocabulary", 3, 3, shape({-1, 0, 0, 0, 1})},
          {"uneven", 3, 3, shape({-1, 0, 0, 1, 1, 2})},
          {"chain of 5 tokens", 5, 5, TreeShape::chain(3)},
          {"wide", 5, 5, shape({-1, 0, 0, 0, 0})},
          {"two levels", 5, 5, shape({-1, 0, 0, 1, 1})},
          {"smaller draft vocabulary", 5, 3, shape({-1, 0, 0, 0, 1})}};
}
struct Warp {
  double temperature, top_p;
};
constexpr Warp kWarps[] = {{0, 1}, {0.6, 1}, {1, 1}, {1, 0.9}, {0.6, 0.9}};

/// The largest error over all cases, warps and some random models.
inline double worst_error(const Rule& rule, Drawing children, unsigned models) {
  double worst = 0;
  for (const Case& c : cases())
    for (const Warp& warp : kWarps)
      for (unsigned seed = 0; seed < models; ++seed) {
        const auto length = static_cast<std::size_t>(c.shape.levels());
        const Model target = random_model(c.vocab, 2 * seed, warp.temperature, warp.top_p);
        const Model draft = random_model(c.draft_vocab, 2 * seed + 1, warp.temperature, warp.top_p);
        Texts alone;
        continue_alone(target, {}, 1, length, alone);
        const double error =
            distance(alone, speculate(rule, c.shape, children, target, draft, length));
        EXPECT_FALSE(std::isnan(error));
        worst = std::max(worst, error);
      }
  return worst;
}

constexpr double kExact = 1e-12;  // some thousand additions of doubles below 1, and their rounding
constexpr double kWrong = 1e-3;

}  // namespace canopy::testing
