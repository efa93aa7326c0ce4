#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "planner/tree_shape.h"
#include "src/base/types.h"

namespace canopy {

/// What texts have taught about the acceptance of a draft: of each rank, at how many nodes a child
/// of it was asked for, and at how many it was the accepted one. It outlives a run, in a file of
/// its own (docs/formats.md, "Acceptance files"). A wrong one costs speed, never exactness.
class LearnedAcceptance {
 public:
  /// A node that the verifier stood on: how many children it had, and the rank, from 0, of the one
  /// that was accepted; -1 if none was.
  void observe(int children, int accepted);
  /// What later texts taught. What was known before then counts for so many nodes less that all
  /// together are kMostNodes at most: pairs of models are used for other things as time goes by.
  void add(const LearnedAcceptance& later);

  double nodes() const;  // that had children
  /// The shares, where `before` counts for kBefore nodes; it is the estimate of ranks never asked.
  Acceptance estimate(const Acceptance& before) const;

  std::string to_json() const;
  /// Throws Error saying what is wrong.
  static LearnedAcceptance from_json(std::string_view text);

  static constexpr double kMostNodes = 4096, kBefore = 48;

 private:
  struct Rank {
    double asked = 0, accepted = 0;
  };
  std::vector<Rank> ranks_;
};

/// The file name under which it is found again. `drawing`: how siblings were drawn.
std::string learned_file_name(const std::string& target, const std::string& draft,
                              std::string_view drawing, const Sampling& sampling);

}  // namespace canopy
