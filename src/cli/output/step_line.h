#pragma once
#include <optional>

#include "src/cli/output/progress_line.h"
#include "src/engine/engine.h"

namespace canopy::cli {

/// Text of the live line of a generation: how far the step is or what it gave, how long the rest
/// will take, how the link fares. What matters most comes first: a narrow terminal cuts the end.
class StepLine {
 public:
  /// `tokens`: of each text, where that is known.
  StepLine(const Engine& engine, int texts, std::optional<int> tokens)
      : engine_(engine), texts_(texts), tokens_(tokens) {}

  void show(const StepProgress& step, ProgressLine& progress);

 private:
  std::string describe(const StepProgress& step) const;
  /// Estimates how long the rest will take, at the pace of all steps but the first, which runs the
  /// prompt. Nothing before the second step is over.
  std::optional<Seconds> time_left(const StepProgress& now) const;

  struct Point {
    Seconds time{};
    int tokens = 0;
  };
  const Engine& engine_;
  int texts_;
  std::optional<int> tokens_;
  Point first_, last_;
};

}  // namespace canopy::cli
