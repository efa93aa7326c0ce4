#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace canopy {

/// An expert that a sweep asks a layer for, and how many of its rows do.
struct ExpertDemand {
  std::int32_t expert = 0;
  int rows = 0;
};

/// Choice of the experts of each layer that stay in memory between sweeps: as many as the layer's
/// quota, those that texts have chosen most often lately. Layers do not compete, so that a sweep
/// whose layers ask for more than all of memory still finds some of each. Knows nothing of memory
/// or of time, so that the same demands give the same hits on every machine. Plain data; one
/// thread.
class ExpertPolicy {
 public:
  /// Tokens after which a choice counts half. With it more requests were answered on recorded
  /// routes than by recency (docs/math.md, "Which experts stay").
  static constexpr double kHalfLife = 32;

  /// `quotas`: of each layer, how many of its experts stay.
  ExpertPolicy(int experts, std::vector<int> quotas);

  struct Step {
    std::vector<std::int32_t> hits, misses;  // of the demands; both rising
    std::vector<std::int32_t> leaving;       // stayed until now; none of the demands
  };
  /// Answers a sweep's demands of a layer, given by rising index. All of it stays where the quota
  /// holds as many, next to the most frequent of the others; else the hits, and the misses of most
  /// rows.
  Step ask(std::size_t layer, std::span<const ExpertDemand> wanted);
  /// Changes how many of a layer's experts stay. Returns those that leave, the least often chosen
  /// first.
  std::vector<std::int32_t> set_quota(std::size_t layer, int quota);
  bool stays(std::size_t layer, std::int32_t expert) const { return at(layer, expert).stays; }
  /// The expert has not come after all.
  void drop(std::size_t layer, std::int32_t expert) { at(layer, expert).stays = false; }
  /// A token of a text has chosen these; -1: one that does not count.
  void credit(std::size_t layer, std::span<const std::int32_t> chosen);

 private:
  struct Expert {
    double frequency = 0;
    std::uint64_t asked = 0;  // the last time, as the count of ask()
    bool stays = false;
  };
  Expert& at(std::size_t layer, std::int32_t expert) {
    return experts_[layer * count_ + static_cast<std::size_t>(expert)];
  }
  const Expert& at(std::size_t layer, std::int32_t expert) const {
    return experts_[layer * count_ + static_cast<std::size_t>(expert)];
  }

  std::vector<std::int32_t> staying(std::size_t layer) const;  // the first to leave last

  const std::size_t count_;  // of a layer
  std::vector<int> quotas_;
  std::vector<Expert> experts_;  // by layer
  std::uint64_t asks_ = 0;
};

/// `slots` for all layers, as evenly as can be: the first layers have one more. No layer has more
/// than `experts`.
std::vector<int> share_slots(std::size_t slots, std::size_t layers, int experts);

}  // namespace canopy
