#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "planner/calibrated/chance.h"
#include "planner/tree_shape.h"

namespace canopy {

/// Rows that a valued tree of this many nodes runs in each of its forwards.
constexpr int valued_rows(int nodes) { return std::max(4, nodes / 16); }
/// Rows that it may run besides its nodes, by those of a forward: what is dropped again.
inline constexpr int kSpareForwards = 8;

/// The room with that of the rows that valued trees run, of any number of texts up to `texts` whose
/// trees share its nodes.
TreeRoom with_valued_rows(TreeRoom room, int texts);

/// Costs that a valued tree grows by, in tokens: what a sweep gains in the same seconds. (V4)
struct GrowthPrices {
  std::vector<double> trees;  // of one node, two, ... of each text, the first 0; none: all are free
  double forward = 0;         // of the draft, one more, a text's part of it
  bool operator==(const GrowthPrices&) const = default;
};

/// Tokens that valued trees were expected to bring, by their size. Plain data, which adds up.
struct ValuedSizes {
  struct Bin {
    double sweeps = 0, nodes = 0, tokens = 0;  // sums
    bool operator==(const Bin&) const = default;
  };
  static constexpr double kMostSweeps = 4096;  // of a bin; older ones then count for less
  std::array<Bin, 10> bins{};                  // from 2, 4, ... 1024 nodes on

  void observe(int nodes, double tokens);
  void add(const ValuedSizes& later);
  bool operator==(const ValuedSizes&) const = default;
};

/// Factor by which a valued tree brings more tokens than the best tree by rank of as many nodes:
/// the least that the study of docs/math.md saw, then what sweeps have shown. (V5)
class ValuedGain {
 public:
  ValuedGain(const ValuedSizes& seen, ChanceKind kind, const Acceptance& acceptance);
  double at(int nodes) const;

  static constexpr double kBeforeSweeps = 64;  // that the study counts for

 private:
  std::array<double, 10> gain_;  // at 2, 4, ... 1024 nodes
};

/// Knowledge of a pair of models and texts of one kind, and of both kinds.
struct CalibratedKind {
  ChanceEvidence chance;
  ValuedSizes sizes;
  void add(const CalibratedKind& later);
  bool operator==(const CalibratedKind&) const = default;
};
struct Calibrated {
  CalibratedKind greedy, sampled;
  CalibratedKind& of(ChanceKind kind) { return kind == ChanceKind::kGreedy ? greedy : sampled; }
  const CalibratedKind& of(ChanceKind kind) const {
    return kind == ChanceKind::kGreedy ? greedy : sampled;
  }
  void add(const Calibrated& later);
  double contexts() const { return greedy.chance.contexts + sampled.chance.contexts; }
  bool operator==(const Calibrated&) const = default;
};

/// The weights as texts change them: what was known before, what these texts have shown. One
/// thread.
class ChanceLearner {
 public:
  explicit ChanceLearner(Calibrated known);
  const ChanceVector& weights(ChanceKind kind) const {
    return kind == ChanceKind::kGreedy ? greedy_ : sampled_;
  }
  /// Refits the weights of a kind.
  void learn(ChanceKind kind, std::span<const ChanceContext> contexts);
  void observe(ChanceKind kind, int nodes, double tokens) {
    shown_.of(kind).sizes.observe(nodes, tokens);
  }
  /// Returns what was shown since it was last taken.
  Calibrated take_shown();

 private:
  Calibrated known_, shown_;  // known_: with what was shown
  ChanceVector greedy_, sampled_;
};

}  // namespace canopy
