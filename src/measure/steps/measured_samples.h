#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/curve.h"

namespace canopy {

/// Times of the pieces of a measurement, by the name of what was timed: all that is known of it
/// when it is cut. Plain data.
class MeasuredSamples {
 public:
  void add(std::string_view name, Sample sample);
  /// Returns the samples of this name, in their order; none if it was not timed.
  std::span<const Sample> all(std::string_view name) const;
  /// The times of those of one size.
  std::vector<Seconds> times(std::string_view name, double size) const;
  bool empty() const { return samples_.empty(); }

  /// As a JSON object of arrays of [size, seconds], with the hash of the code that was timed.
  std::string to_json(std::string_view code) const;
  /// Returns none where other code was timed. Throws Error where the text is no such object.
  static MeasuredSamples from_json(std::string_view json, std::string_view code);

 private:
  std::map<std::string, std::vector<Sample>, std::less<>> samples_;
};

}  // namespace canopy
