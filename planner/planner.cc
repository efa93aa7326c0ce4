#include "planner/planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "src/base/error.h"

namespace canopy {
namespace {

constexpr std::array kSizes{2,  3,  4,  5,   6,   8,   10,  12,  16,  20,  24,  32,  40,  48,
                            64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024};
constexpr std::array kLevels{2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32};
constexpr double kWorthIt = 0.999;       // of the seconds per token: a larger tree must beat this
constexpr double kWorthLaunches = 0.97;  // a tree that is not launched as one must beat this

/// Counts the nodes of the complete tree of `levels` levels, at most `most`.
int largest_tree(int levels, std::size_t children, int most) {
  std::int64_t all = 1, level = 1;
  for (int l = 1; l < levels && all < most; ++l) {
    level = std::min<std::int64_t>(level * static_cast<std::int64_t>(children), most);
    all += level;
  }
  return static_cast<int>(std::min<std::int64_t>(all, most));
}

/// The room that trees of this shape have next to others that may follow.
TreeRoom roomy(const TreeRoom& needed) {
  const auto more = [&](int count) { return std::min(needed.nodes, count + count / 4 + 4); };
  return {needed.nodes, more(needed.inner), more(needed.widest),
          std::max(needed.proposals, 16 * needed.nodes), needed.run};
}

TreeRoom larger(const TreeRoom& a, const TreeRoom& b) {
  return {std::max(a.nodes, b.nodes), std::max(a.inner, b.inner), std::max(a.widest, b.widest),
          std::max(a.proposals, b.proposals), std::max(a.run, b.run)};
}

/// Texts of full length in layouts whose weights have given way to them.
PlannerInput when_full(const PlannerInput& input) {
  PlannerInput full = input;
  if (input.full_context > 0) full.context = input.full_context;
  full.lay_out = [lay_out = input.lay_out](const TreeRoom& room, int places, std::uint64_t ring) {
    auto weights = lay_out(room, places, ring);
    return weights ? std::optional(weights->when_full()) : std::nullopt;
  };
  return full;
}

class Search {
 public:
  explicit Search(const PlannerInput& input) : in_(input) {}

  /// The best layout for these trees; nothing if none fits.
  std::optional<Candidate> evaluate(TreeShape shape, int texts, int places) const {
    return evaluate(std::move(shape), texts, places, in_.valued);
  }
  std::optional<Candidate> evaluate(TreeShape shape, int texts, int places, bool valued) const {
    Candidate candidate;
    candidate.valued = valued && shape.size() > 1;
    candidate.shape = std::move(shape);
    candidate.sequences = texts;
    candidate.places = places;
    candidate.room = room_for(candidate.shape, texts, places);
    if (candidate.valued) candidate.room = with_valued_rows(candidate.room, places);
    candidate.tokens = expected_tokens(candidate.shape, in_.acceptance);
    if (candidate.valued) candidate.tokens *= in_.gain->at(candidate.shape.size());
    if (candidate.shape.size() > 1) candidate.catch_up = in_.catch_up;
    const auto small = in_.lay_out(candidate.room, places, 0);
    if (!small) return std::nullopt;
    price(candidate, *small);
    // A ring that covers drafting, where that is not the least one anyway.
    const auto covers = static_cast<std::uint64_t>(
        in_.cost->bandwidth(*small) * (candidate.cost.draft + candidate.cost.verify).count());
    if (candidate.ring_bytes == 0 || covers <= candidate.ring_bytes) return candidate;
    if (const auto deep = in_.lay_out(candidate.room, places, covers)) {
      Candidate other = candidate;
      other.ring_wish = covers;
      price(other, *deep);
      if (other.cost.step < candidate.cost.step) return other;
    }
    return candidate;
  }

  std::optional<Choice> run() {
    std::vector<int> numbers;
    for (int n = in_.least_places; n < in_.places; n *= 2) numbers.push_back(n);
    numbers.push_back(in_.places);
    for (const int places : numbers) {
      const int texts = in_.texts == 0 ? places : std::min(in_.texts, places);
      if (in_.plain) offer(evaluate(TreeShape(), texts, places));
      if (in_.chains && !in_.valued) offer(best_chain(texts, places));
      if (!in_.trees) continue;
      if (in_.nodes != 0) {
        offer_trees(in_.nodes, texts, places);
        continue;
      }
      for (const int nodes : kSizes)
        if (nodes * texts <= in_.max_nodes) offer_trees(nodes, texts, places);
    }
    if (choice_.table.empty()) return std::nullopt;
    if (valued_ &&
        (none_but_valued_ || valued_->per_token() < kWorthLaunches * choice_.best.per_token()))
      choice_.best = std::move(*valued_);
    choice_.full = choice_.best;
    const Candidate& best = choice_.best;
    const WeightPlan weights = *in_.lay_out(best.room, best.places, best.ring_wish);
    if (best.places > best.sequences || weights.gives_way()) fill_house();
    return std::move(choice_);
  }

 private:
  /// Rows belong to the sweep: each place has one at least, and the trees of those that are there
  /// share the others.
  TreeRoom room_for(const TreeShape& shape, int texts, int places) const {
    if (!in_.roomy || shape.size() == 1) return TreeRoom::of(shape).for_texts(places);
    TreeRoom needed = TreeRoom::of(shape).for_texts(texts);
    needed.nodes = std::max(needed.nodes, places);
    return roomy(needed);
  }

  void price(Candidate& candidate, const WeightPlan& weights) const {
    candidate.cost = in_.cost->step({.shape = &candidate.shape,
                                     .tokens = candidate.tokens,
                                     .sequences = candidate.sequences,
                                     .context = in_.context,
                                     .sampled = in_.sampled,
                                     .valued = forwards_of(candidate)},
                                    weights);
    candidate.text_tokens = in_.context;
    candidate.ring_bytes = weights.ring_bytes;
    candidate.resident_bytes = weights.resident_bytes;
    candidate.sweep_bytes = weights.sweep_bytes() +
                            weights.experts.bytes_of(candidate.shape.size() * candidate.sequences);
  }

  /// Plans all places in the layout of the best candidate, and gives them more room while the best
  /// candidate is as good as before.
  void fill_house() {
    Candidate& best = choice_.best;
    const int places = best.places;
    PlannerInput any = when_full(in_);
    if (!in_.roomy) {  // the shape is the same whatever texts are there
      choice_.full = *Search(any).evaluate(best.shape, places, places, best.valued);
      return;
    }
    any.plain = any.chains = any.trees = true;
    any.valued = in_.valued || best.valued;
    if (!any.valued) any.gain.reset();
    const auto house = [&](const WeightPlan& weights, const TreeRoom& room) {
      auto choice = choose_within(any, weights.when_full(), room, places);
      require(choice.has_value(), "planner: a text of each place has no room for its root");
      Candidate full = std::move(choice->best);
      full.places = places;
      full.room = room;
      full.ring_wish = best.ring_wish;
      return full;
    };
    WeightPlan weights = *in_.lay_out(best.room, places, best.ring_wish);
    choice_.full = house(weights, best.room);
    if (best.shape.size() == 1) return;
    const Seconds most = best.per_token() / kWorthIt;
    for (const int nodes : kSizes) {
      if (nodes <= best.room.nodes || nodes > in_.max_nodes) continue;
      const Candidate wish = house(weights, TreeRoom::of_nodes(nodes));
      Candidate one = best;
      TreeRoom wished = roomy(TreeRoom::of(wish.shape).for_texts(places));
      if (wish.valued) wished = with_valued_rows(wished, places);
      one.room = larger(best.room, wished);
      const auto larger_room = in_.lay_out(one.room, places, one.ring_wish);
      if (!larger_room) return;
      price(one, *larger_room);
      if (one.per_token() > most) return;
      Candidate full = house(*larger_room, one.room);
      if (full.per_token() >= kWorthIt * choice_.full.per_token()) continue;
      weights = *larger_room;
      best = std::move(one);
      choice_.full = std::move(full);
    }
  }

  static std::optional<ValuedForwards> forwards_of(const Candidate& candidate) {
    if (!candidate.valued) return std::nullopt;
    return valued_forwards(candidate.shape, candidate.tokens);
  }

  void offer_trees(int nodes, int texts, int places) {
    if (!in_.valued) offer(best_of_size(nodes, texts, places, false));
    if (in_.gain) offer(best_of_size(nodes, texts, places, true));
  }

  void keep_better(std::optional<Candidate>& best, std::optional<Candidate> other) const {
    if (other && (!best || other->per_token() < best->per_token())) best = std::move(other);
  }

  std::optional<Candidate> best_chain(int texts, int places) const {
    std::optional<Candidate> best;
    const int longest = std::min(in_.max_levels, in_.max_nodes / texts);
    for (int nodes = 2; nodes <= longest; ++nodes)
      if (in_.nodes == 0 || nodes == in_.nodes)
        keep_better(best, evaluate(TreeShape::chain(nodes), texts, places));
    return best;
  }

  std::optional<Candidate> best_of_size(int nodes, int texts, int places, bool valued) const {
    std::optional<Candidate> best;
    std::size_t children = in_.acceptance.accept.size();  // that a node of any level can have
    for (const auto& accept : in_.acceptance.deeper) children = std::min(children, accept.size());
    for (const int levels : kLevels) {
      if (levels > std::min(in_.max_levels, nodes)) break;
      if (largest_tree(levels, children, nodes) < nodes) continue;
      TreeShape shape = best_tree(nodes, levels, in_.acceptance);
      const bool free = shape.levels() < levels;  // the bound no longer binds
      keep_better(best, evaluate(std::move(shape), texts, places, valued));
      if (free) break;
    }
    return best;
  }

  void offer(std::optional<Candidate> candidate) {
    if (!candidate) return;
    if (candidate->valued) {
      if (!valued_ || candidate->per_token() < kWorthIt * valued_->per_token()) valued_ = candidate;
    } else if (none_but_valued_ || candidate->per_token() < kWorthIt * choice_.best.per_token()) {
      none_but_valued_ = false;
      choice_.best = *candidate;
    }
    choice_.table.push_back(std::move(*candidate));
  }

  const PlannerInput& in_;
  Choice choice_;                    // its best: of what is not valued
  std::optional<Candidate> valued_;  // the best of these
  bool none_but_valued_ = true;      // so far
};

}  // namespace

ValuedForwards valued_forwards(const TreeShape& shape, double tokens) {
  // Twice the tokens: what the study of docs/math.md took, at four rows each.
  const int deep = shape.levels() - 2, wanted = static_cast<int>(std::ceil(2 * tokens));
  return {std::max(0, std::min(deep, wanted)), valued_rows(shape.size())};
}

std::optional<Candidate> predict(const PlannerInput& input, const TreeShape& shape, int texts,
                                 int places) {
  return Search(input).evaluate(shape, texts, places);
}

std::optional<Candidate> predict_full(const PlannerInput& input, const TreeShape& shape,
                                      int places) {
  const PlannerInput full = when_full(input);
  return Search(full).evaluate(shape, places, places);
}

std::optional<Choice> choose(const PlannerInput& input) { return Search(input).run(); }

std::optional<Choice> choose_within(PlannerInput input, const WeightPlan& weights,
                                    const TreeRoom& room, int texts) {
  input.texts = input.places = input.least_places = texts;
  input.max_nodes = room.nodes;
  input.roomy = false;
  input.lay_out = [&](const TreeRoom& needed, int, std::uint64_t) -> std::optional<WeightPlan> {
    if (!room.holds(needed)) return std::nullopt;
    return weights;
  };
  return choose(input);
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
