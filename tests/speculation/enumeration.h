#pragma once
// Plays every course that a random process can take, with its probability: distributions are
// computed, not sampled.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "planner/tree_shape.h"
#include "src/speculation/rules/verification_rule.h"

namespace canopy::testing {

/// for (Courses c; c.next();) { ... c.choose(p) ...; c.chance() } visits each course once.
class Courses {
 public:
  bool next() {
    if (!started_) {
      started_ = true;
    } else {
      while (!made_.empty() && !made_.back().advance()) made_.pop_back();
      if (made_.empty()) return false;
    }
    at_ = 0;
    chance_ = 1;
    return true;
  }
  /// One of the outcomes of positive probability.
  std::size_t choose(std::span<const double> p) {
    if (at_ == made_.size()) {
      made_.push_back({{p.begin(), p.end()}, 0});
      if (!(p[0] > 0) && !made_.back().advance()) ADD_FAILURE() << "nothing can be chosen";
    }
    const Made& made = made_[at_++];
    chance_ *= made.p[made.taken];
    return made.taken;
  }
  double chance() const { return chance_; }

 private:
  struct Made {
    std::vector<double> p;
    std::size_t taken;
    bool advance() {
      for (std::size_t i = taken + 1; i < p.size(); ++i)
        if (p[i] > 0) return taken = i, true;
      return false;
    }
  };
  std::vector<Made> made_;
  std::size_t at_ = 0;
  double chance_ = 1;
  bool started_ = false;
};

/// Lets a rule's choices take every course.
class EveryChoice final : public Choices {
 public:
  explicit EveryChoice(Courses& courses) : courses_(courses) {}
  bool accept(NodeId, double chance) override {
    const double yes = std::min(chance, 1.0);
    return courses_.choose(std::vector<double>{1 - yes, yes}) == 1;
  }
  TokenId draw(NodeId, std::span<const double> p) override {
    return static_cast<TokenId>(courses_.choose(p));
  }

 private:
  Courses& courses_;
};

/// A text after the root, and distributions of such texts.
using Text = std::vector<TokenId>;
using Texts = std::map<Text, double>;

/// A language model of few tokens: any function from text to probabilities.
using Model = std::function<std::vector<double>(const Text&)>;

inline Text text_of(const TokenTree& tree, NodeId node) {
  Text text;
  for (; node > 0; node = tree.parent(node)) text.insert(text.begin(), tree.token(node));
  return text;
}

/// Adds to `texts` what the model makes of `text` when it goes on alone to this length.
inline void continue_alone(const Model& model, const Text& text, double chance, std::size_t length,
                           Texts& texts) {
  if (text.size() == length) {
    texts[text] += chance;
    return;
  }
  const std::vector<double> p = model(text);
  for (std::size_t t = 0; t < p.size(); ++t) {
    if (!(p[t] > 0)) continue;
    Text longer = text;
    longer.push_back(static_cast<TokenId>(t));
    continue_alone(model, longer, chance * p[t], length, texts);
  }
}

/// Draws `count` distinct tokens, uniformly among the rest once the support of q is used up.
inline std::vector<TokenId> draw_distinct(std::vector<double> q, int count, Courses& courses) {
  std::vector<TokenId> drawn;
  for (int k = 0; k < count; ++k) {
    double sum = 0;
    for (const double value : q) sum += value;
    if (std::none_of(q.begin(), q.end(), [](double value) { return value > 0; })) {
      std::fill(q.begin(), q.end(), 1.0);
      for (const TokenId token : drawn) q[static_cast<std::size_t>(token)] = 0;
      sum = static_cast<double>(q.size() - drawn.size());
    }
    for (double& value : q) value /= sum;
    const std::size_t token = courses.choose(q);
    q[token] = 0;
    drawn.push_back(static_cast<TokenId>(token));
  }
  return drawn;
}

inline std::vector<TokenId> best_tokens(const std::vector<double>& q, int count) {
  std::vector<TokenId> order;
  for (std::size_t t = 0; t < q.size(); ++t) order.push_back(static_cast<TokenId>(t));
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
    return q[static_cast<std::size_t>(a)] > q[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

/// Largest difference between two distributions.
inline double distance(const Texts& a, const Texts& b) {
  double most = 0;
  for (const auto& [text, chance] : a) {
    const auto other = b.find(text);
    most = std::max(most, std::abs(chance - (other == b.end() ? 0.0 : other->second)));
  }
  for (const auto& [text, chance] : b)
    if (!a.contains(text)) most = std::max(most, chance);
  return most;
}

}  // namespace canopy::testing
