#pragma once
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/file.h"

namespace canopy::cli {

// Parsers of the texts of flags. All throw UsageError naming `flag`.

/// "1G", "512M", "1.5GiB", "4096": bytes; K, M, G, T are powers of 1024.
std::uint64_t parse_size(std::string_view flag, std::string_view text);
/// As parse_size(), of memory or of a model: a number that has too few bytes for either, and no
/// unit, is refused with the unit that was forgotten.
std::uint64_t parse_budget(std::string_view flag, std::string_view text);
std::uint64_t parse_budget_above_zero(std::string_view flag, std::string_view text);

/// "1,16,64": numbers from `least` to `most` with commas between, at least one.
std::vector<int> parse_numbers(std::string_view flag, const std::string& text, int least, int most);

std::string lower_case(std::string text);  // of ASCII letters

/// All of a file that a flag names, or of standard input for "-": read_file().
std::string read_text(const std::string& path, std::uint64_t most_bytes = kMostTextBytes,
                      const std::stop_token& stop = {});

}  // namespace canopy::cli
