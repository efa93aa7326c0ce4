#pragma once
#include <cstdint>
#include <functional>
#include <stop_token>

#include "src/base/error.h"
#include "src/base/notes.h"

namespace canopy {

using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t all_bytes)>;

/// Companions of every load of weights: the notes that gain each fallback taken, the callback that
/// reports progress, and the token that ends it.
struct Loading {
  Notes& notes;
  LoadProgress progress = {};
  std::stop_token stop = {};

  /// Throws Stopped on request.
  void check_in(std::uint64_t done_bytes, std::uint64_t all_bytes) const {
    if (stop.stop_requested()) throw Stopped();
    if (progress) progress(done_bytes, all_bytes);
  }
};

}  // namespace canopy
