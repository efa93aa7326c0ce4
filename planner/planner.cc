#include "planner/planner.h"

#include <algorithm>
#include <array>
#include <utility>

namespace canopy {
namespace {

constexpr std::array kSizes{2,  3,  4,  5,   6,   8,   10,  12,  16,  20,  24,  32,  40,  48,
                            64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024};
constexpr std::array kLevels{2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32};
constexpr double kWorthIt = 0.999;  // of the seconds per token: a larger tree must beat this

/// Nodes of the complete tree of so many levels, at most `most`.
int largest_tree(int levels, std::size_t children, int most) {
  std::int64_t all = 1, level = 1;
  for (int l = 1; l < levels && all < most; ++l) {
    level = std::min<std::int64_t>(level * static_cast<std::int64_t>(children), most);
    all += level;
  }
  return static_cast<int>(std::min<std::int64_t>(all, most));
}

class Search {
 public:
  explicit Search(const PlannerInput& input) : in_(input) {}

  /// The best layout for these trees; nothing if none fits.
  std::optional<Candidate> evaluate(TreeShape shape, int sequences) const {
    Candidate candidate;
    candidate.shape = std::move(shape);
    candidate.sequences = sequences;
    candidate.tokens = expected_tokens(candidate.shape, in_.acceptance);
    const auto small = in_.lay_out(candidate.shape, sequences, 0);
    if (!small) return std::nullopt;
    price(candidate, *small);
    // A ring that covers drafting, where that is not the least one anyway.
    const auto covers = static_cast<std::uint64_t>(
        in_.cost->bandwidth(*small) * (candidate.cost.draft + candidate.cost.verify).count());
    if (candidate.sweep_bytes == 0 || covers <= candidate.ring_bytes) return candidate;
    if (const auto deep = in_.lay_out(candidate.shape, sequences, covers)) {
      Candidate other = candidate;
      other.ring_wish = covers;
      price(other, *deep);
      if (other.cost.step < candidate.cost.step) return other;
    }
    return candidate;
  }

  Choice run() {
    std::vector<int> batches;
    for (int b = in_.least_sequences; b < in_.sequences; b *= 2) batches.push_back(b);
    batches.push_back(in_.sequences);
    for (const int sequences : batches) {
      if (in_.plain) offer(evaluate(TreeShape(), sequences));
      if (in_.chains) offer(best_chain(sequences));
      if (!in_.trees) continue;
      if (in_.nodes != 0) {
        offer(best_of_size(in_.nodes, sequences));
        continue;
      }
      for (const int nodes : kSizes)
        if (nodes * sequences <= in_.max_nodes) offer(best_of_size(nodes, sequences));
    }
    return std::move(choice_);
  }

 private:
  void price(Candidate& candidate, const WeightPlan& weights) const {
    candidate.cost = in_.cost->step({.shape = &candidate.shape,
                                     .tokens = candidate.tokens,
                                     .sequences = candidate.sequences,
                                     .context = in_.context,
                                     .sampled = in_.sampled},
                                    weights);
    candidate.ring_bytes = weights.ring_bytes;
    candidate.resident_bytes = weights.resident_bytes;
    candidate.sweep_bytes = weights.sweep_bytes();
  }

  void keep_better(std::optional<Candidate>& best, std::optional<Candidate> other) const {
    if (other && (!best || other->per_token() < best->per_token())) best = std::move(other);
  }

  std::optional<Candidate> best_chain(int sequences) const {
    std::optional<Candidate> best;
    const int longest = std::min(in_.max_levels, in_.max_nodes / sequences);
    for (int nodes = 2; nodes <= longest; ++nodes)
      if (in_.nodes == 0 || nodes == in_.nodes)
        keep_better(best, evaluate(TreeShape::chain(nodes), sequences));
    return best;
  }

  std::optional<Candidate> best_of_size(int nodes, int sequences) const {
    std::optional<Candidate> best;
    std::size_t children = in_.acceptance.accept.size();  // that a node of any level can have
    for (const auto& accept : in_.acceptance.deeper) children = std::min(children, accept.size());
    for (const int levels : kLevels) {
      if (levels > std::min(in_.max_levels, nodes)) break;
      if (largest_tree(levels, children, nodes) < nodes) continue;
      TreeShape shape = best_tree(nodes, levels, in_.acceptance);
      const bool free = shape.levels() < levels;  // the bound no longer binds
      keep_better(best, evaluate(std::move(shape), sequences));
      if (free) break;
    }
    return best;
  }

  void offer(std::optional<Candidate> candidate) {
    if (!candidate) return;
    if (choice_.table.empty() || candidate->per_token() < kWorthIt * choice_.best.per_token())
      choice_.best = *candidate;
    choice_.table.push_back(std::move(*candidate));
  }

  const PlannerInput& in_;
  Choice choice_;
};

}  // namespace

std::optional<Candidate> predict(const PlannerInput& input, const TreeShape& shape, int sequences) {
  return Search(input).evaluate(shape, sequences);
}

std::optional<Choice> choose(const PlannerInput& input) {
  Choice choice = Search(input).run();
  if (choice.table.empty()) return std::nullopt;
  return choice;
}

TreeShape tree_beside_prompt(const CostModel& cost, const WeightPlan& weights, StepQuery step,
                             int prompt_rows, const Acceptance& acceptance) {
  const TreeShape& whole = *step.shape;
  const double tokens = expected_tokens(whole, acceptance);
  const Seconds per_token = cost.step(step, weights).step / tokens;
  step.prompt_rows = prompt_rows;
  TreeShape best;
  Seconds least{};
  for (int nodes = 1;; nodes = std::min(2 * nodes, whole.size())) {
    const TreeShape part = pruned(whole, nodes, acceptance);
    step.shape = &part;
    step.tokens = expected_tokens(part, acceptance);
    const Seconds seconds = cost.step(step, weights).step - step.tokens * per_token;
    if (nodes == 1 || seconds < least) best = part, least = seconds;
    if (nodes == whole.size()) return best;
  }
}

}  // namespace canopy
