#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "src/base/file_writer.h"

namespace canopy {

/// Record of what the rows of each sweep chose, as lines of JSON, to try other ways to keep experts
/// on:
///   {"layers": [0, ...], "experts": 128, "active": 8, "stay": [25, ...]}   once
///   {"layer": 0, "rows": [[3, 17, ...], ...]}                              each mixture layer
///   {"kept": [0, 2]}                          each sweep: rows that became text; null: all
///   {"stay": [24, ...]}                       between two sweeps: as many of each layer from now
///   on
///   {"abandoned": true}                       a sweep that ended early: it counts for nothing
/// One thread.
class RouteTrace {
 public:
  /// Throws Error if the file cannot be made.
  explicit RouteTrace(const std::filesystem::path& path) : file_(path) {}

  void begin(std::span<const int> layers, int experts, int active, std::span<const int> stay);
  void routed(int layer, std::span<const std::int32_t> chosen);
  void kept(const std::optional<std::vector<std::int32_t>>& rows);
  void stay(std::span<const int> quotas);
  void abandoned();
  /// Throws Error if anything could not be written.
  void close() { file_.finish(); }

 private:
  FileWriter file_;
  std::size_t active_ = 1;
};

}  // namespace canopy
