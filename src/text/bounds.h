#pragma once
#include <cstddef>
#include <stop_token>

namespace canopy::text {

/// Limits of a tokenizer's steps: the bytes that they may make of a text, and a request to stop.
/// Forty rules that double it would ask for a terabyte.
class Bounds {
 public:
  /// Bounds the steps from `bytes` of text on. The longest that steps in use make of a text is
  /// three times as long, of a space U+2581.
  explicit Bounds(std::size_t bytes, std::stop_token stop = {});
  /// Throws Error if `bytes` are too many for a text on its way; Stopped.
  void check(std::size_t bytes) const;

 private:
  std::size_t most_;
  std::stop_token stop_;
};

}  // namespace canopy::text
