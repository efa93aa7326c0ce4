#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/types.h"

namespace canopy {

/// "1.2 GiB": how messages and tables speak of sizes.
std::string format_size(std::uint64_t bytes);
/// A size as a person has written it.
struct WrittenSize {
  std::string_view number;
  std::string unit;  // of KMGT; empty: bytes
  double bytes = 0;

  /// Asks for the unit that was forgotten, where a budget of memory or a model has so few bytes:
  /// "4 bytes; did you mean 4G?". Nothing: it may be meant.
  std::optional<std::string> forgotten_unit() const;
};
/// Reads "1G", "512M", "1.5GiB", "4096": K, M, G, T are powers of 1024. `number` points into
/// `text`. Nothing: `text` is no size.
std::optional<WrittenSize> read_size(std::string_view text);
/// "'4X' is not a size; ...", of a text that read_size() refuses.
std::string not_a_size(std::string_view text);
/// "1.2 s"
std::string format_seconds(Seconds time);

}  // namespace canopy
