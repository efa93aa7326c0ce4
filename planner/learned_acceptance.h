#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/calibrated/valued_trees.h"
#include "planner/text_acceptance.h"
#include "planner/tree_shape.h"

namespace canopy {

/// Texts' evidence about the acceptance of a draft, for plans of other texts. It outlives a run, in
/// a file of its own (docs/formats.md, "Acceptance files"). A text is one observation, however long
/// it is; the same text again is none. A wrong vector costs speed, never exactness.
class LearnedAcceptance {
 public:
  /// Adds a text, unless nothing was asked in it. One that is known already (text_fingerprint)
  /// keeps its place, and its counts unless these are of more positions. Beyond kMaxTexts the
  /// oldest goes.
  void add(std::uint64_t text, const TextAcceptance& shown);
  /// Adds its texts, in their order, and what it has of chances.
  void add(const LearnedAcceptance& later);
  void add(const Calibrated& shown) { calibrated_.add(shown); }

  int texts() const { return static_cast<int>(texts_.size()); }
  std::int64_t positions() const;  // of all texts
  bool empty() const { return texts_.empty() && calibrated_ == Calibrated(); }
  /// Returns what valued trees have shown of chances.
  const Calibrated& calibrated() const { return calibrated_; }
  /// Returns what plans should be made with: `before`, changed as far as the texts exclude it, each
  /// level's vector by what all levels have shown. docs/math.md (B1) to (B3).
  Acceptance estimate(const Acceptance& before) const;

  std::string to_json() const;
  /// Throws Error saying what is wrong.
  static LearnedAcceptance from_json(std::string_view text);

  static constexpr std::size_t kMaxTexts = 64;
  /// Positions that a text counts for at most: one over the share of a position's variance that
  /// lies between texts, at the upper end of its interval. Measured: docs/results/acceptance.md,
  /// "How far texts differ".
  static constexpr double kTextPositions = 16;
  /// Positions that the vector before counts for: as far as the vectors of kinds of texts lie from
  /// it (ibid.), that of four texts.
  static constexpr double kBeforePositions = 4 * kTextPositions;
  /// Standard errors within which nothing is excluded: plans are made often, by chances of several
  /// ranks, and a change that is none costs more than one that comes late.
  static constexpr double kErrors = 3;

 private:
  std::vector<double> moved(const std::vector<double>& before) const;

  struct Text {
    std::uint64_t fingerprint = 0;
    TextAcceptance shown;
  };
  std::vector<Text> texts_;  // those that were added first come first
  Calibrated calibrated_;
};

/// The file name under which it is found again. `drawing`: how siblings were drawn.
std::string learned_file_name(const std::string& target, const std::string& draft,
                              std::string_view drawing, const Sampling& sampling);

}  // namespace canopy
