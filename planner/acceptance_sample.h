#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/base/types.h"

namespace canopy {

/// A step of a walk from below that goes on with the first child, from one position of a text to
/// the next: what becomes of chances where a node is tried with less than the weight 1.
/// docs/math.md, "Measuring acceptance".
struct WeightedStep {
  int level = 0;               // of the node, below the walk's root
  double weight = 1;           // that the node is tried with
  std::vector<double> accept;  // per child: Position::accept with this weight

  /// Returns the step after this one, without chances; a new walk after the last level.
  WeightedStep next() const;
};

/// One of the target's own continuations of a prompt, and what became there of the draft's
/// children. At each position the draft offers `accept.size()` children, the same number
/// everywhere.
struct AcceptanceRun {
  struct Position {
    std::vector<double> accept;  // per child: the chance that it is the accepted one; sum <= 1
    int taken = -1;              // the child that the text went on with; -1: none
    bool in_loop = false;
    double overlap = 0;          // sum_x min(p, q): the chance that one drawn token is accepted
    WeightedStep weighted = {};  // without chances where the target decides
  };
  int text = 0;  // what the prompt was cut from: runs of one text resemble each other
  std::vector<Position> positions;
};

/// Per token, and one more for the end: whether the tokens before it end in a loop, i.e. repeat
/// what stood up to kLoopPeriod tokens before, kLoopRounds times in a row at least.
std::vector<bool> find_loops(std::span<const TokenId> text);
inline constexpr int kLoopPeriod = 16, kLoopRounds = 3;

/// A mean with its standard error, of which 95% lie within half_width().
struct Estimate {
  double mean = 0, error = 0;
  int groups = 0;             // independent ones that it is from
  double half_width() const;  // by Student's t
};

/// r(k) ~ k^-b, by least squares of ln r on ln k.
struct PowerLaw {
  double exponent = 0, error = 0;  // b; its standard error, by leaving out one text at a time
  double misfit = 0;               // root mean square of ln r - fit: .1 is about 10%
  int children = 0;                // k from 1 to this
};

/// Acceptance at positions that follow at least `depth` successes in a row.
struct AcceptanceAfter {
  int depth = 0;
  std::int64_t positions = 0;
  Estimate first, any;  // of the first child, of one of them
  bool first_is_off = false,
       any_is_off = false;  // from depth 0, by more than its 95% interval; not
                            // judged where fewer than ten texts get so far
};

/// Estimate of a pair of models' acceptance from a sample. docs/math.md, "Measuring acceptance".
struct AcceptanceEstimate {
  int runs = 0, texts = 0;
  std::int64_t positions = 0;
  /// alpha, the mean overlap of target and draft: p(1) in expectation, without the noise of a draw.
  /// 1 - alpha is the paper's distance D_LK. Source: arXiv:2211.17192, 3.2.
  Estimate alpha;
  double overlap_variance = 0;      // from position to position: 0 if all were alike
  std::vector<Estimate> accept;     // p(k): child k is the accepted one, given that the parent was
  std::vector<Estimate> reject;     // r(k): none of the first k is
  std::vector<std::int64_t> taken;  // positions whose text went on with child k
  std::optional<PowerLaw> power_law;  // none where fewer than three r(k) rest on ten refusals
  /// Positional independence would make all depths alike. A success is any child, or the first one.
  std::vector<AcceptanceAfter> after_any, after_first;
  /// p(k) of nodes 1, 2, ... levels below the root; only as far as kEnoughFor positions are there
  /// for one. Of drawn children by the weights that nodes are tried with, else at positions that
  /// follow as many accepted children in a row.
  std::vector<std::vector<double>> deeper;
  static constexpr int kLevels = 4, kEnoughFor = 50;
};
inline constexpr int kDepths = 8;  // depths 0..8

enum class Loops : bool { kWithout, kWith };
/// Texts are the independent units: an error is that of a ratio of sums over them. Pure.
/// Throws Error if fewer than two texts have a position that counts, or the runs differ in
/// children.
AcceptanceEstimate estimate_acceptance(std::span<const AcceptanceRun> runs, Loops loops);

}  // namespace canopy
