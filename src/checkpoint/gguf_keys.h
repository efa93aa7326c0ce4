#pragma once
// Private to the readers of GGUF's metadata.
#include <array>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/metadata.h"

namespace canopy {

inline std::string number_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

/// Typed access to the keys "<architecture>.<key>" of the metadata.
class Keys {
 public:
  Keys(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), architecture_(std::move(architecture)) {}
  std::string name(const char* key) const { return architecture_ + "." + key; }
  bool given(const char* key) const { return metadata_.contains(name(key)); }

  int integer(const char* key, int most, std::optional<int> fallback = {}, int least = 1) const {
    if (!given(key)) {
      if (fallback) return *fallback;
      throw Error("metadata key '" + name(key) + "' is missing");
    }
    const auto* value = metadata_.find<std::int64_t>(name(key));
    if (!value) throw Error("metadata key '" + name(key) + "' is not one integer");
    return in_range(key, *value, most, least);
  }
  /// Reads one integer, or an array of one for each layer, which must be equal.
  int of_layers(const char* key, int layers, int most, std::optional<int> fallback = {}) const {
    const auto* each = metadata_.find<std::vector<std::int32_t>>(name(key));
    if (!each) return integer(key, most, fallback);
    if (std::ssize(*each) != layers)
      throw Error("metadata key '" + name(key) + "' has " + std::to_string(each->size()) +
                  " numbers for " + std::to_string(layers) + " layers");
    for (const std::int32_t value : *each)
      if (value != each->front())
        throw Error("metadata key '" + name(key) + "' has " + std::to_string(each->front()) +
                    " and " + std::to_string(value) + "; layers that differ are not supported");
    return in_range(key, each->front(), most, 1);
  }
  double positive(const char* key, std::optional<double> fallback = {}) const {
    if (!given(key) && fallback) return *fallback;
    const auto* value = metadata_.find<double>(name(key));
    if (!value) throw Error("metadata key '" + name(key) + "' is missing or not a float");
    constexpr auto kMost = std::numeric_limits<float>::max();  // arithmetic is in floats
    if (!(*value > 0 && *value <= static_cast<double>(kMost)))
      throw Error("metadata key '" + name(key) + "' is not a positive number up to 3.4e38");
    return *value;
  }
  /// The number under a key, or those of its array; none without it. Booleans are 0 and 1.
  std::vector<double> numbers(const char* key) const {
    if (!given(key)) return {};
    const std::string full = name(key);
    if (const auto* flag = metadata_.find<bool>(full)) return {*flag ? 1.0 : 0.0};
    if (const auto* integer = metadata_.find<std::int64_t>(full))
      return {static_cast<double>(*integer)};
    if (const auto* real = metadata_.find<double>(full)) return {*real};
    if (const auto* integers = metadata_.find<std::vector<std::int32_t>>(full))
      return {integers->begin(), integers->end()};
    if (const auto* reals = metadata_.find<std::vector<float>>(full))
      return {reals->begin(), reals->end()};
    throw Error("metadata key '" + full + "' is neither a number nor an array of numbers");
  }
  std::string text(const char* key, const char* fallback) const {
    if (!given(key)) return fallback;
    const auto* value = metadata_.find<std::string>(name(key));
    if (!value) throw Error("metadata key '" + name(key) + "' is not a string");
    return *value;
  }

 private:
  int in_range(const char* key, std::int64_t value, int most, int least) const {
    if (value < least || value > most)
      throw Error("metadata key '" + name(key) + "' is " + std::to_string(value) + ", outside " +
                  std::to_string(least) + " to " + std::to_string(most));
    return static_cast<int>(value);
  }

  const Metadata& metadata_;
  std::string architecture_;
};

}  // namespace canopy
