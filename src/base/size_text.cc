#include "src/base/size_text.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <system_error>

namespace canopy {

std::string format_size(std::uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::optional<std::string> WrittenSize::forgotten_unit() const {
  constexpr double kLeast = 1 << 20, kMostGigabytes = 256;
  if (!unit.empty() || bytes == 0 || bytes >= kLeast) return std::nullopt;
  const std::string written(number);
  return written + " bytes; did you mean " + written + (bytes < kMostGigabytes ? "G?" : "M?");
}

std::optional<WrittenSize> read_size(std::string_view text) {
  if (text.empty() || !(std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '.'))
    return std::nullopt;
  double number = 0;
  const char* const all = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), all, number);
  if (error != std::errc()) return std::nullopt;
  WrittenSize size{{text.data(), end}, {end, all}};
  std::string& unit = size.unit;
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (unit.size() > 1 && unit.ends_with("IB"))
    unit.resize(unit.size() - 2);
  else if (!unit.empty() && unit.back() == 'B')
    unit.pop_back();
  static constexpr std::string_view kUnits = "KMGT";
  double factor = 1;
  if (!unit.empty()) {
    const auto at = kUnits.find(unit);
    if (unit.size() != 1 || at == std::string_view::npos) return std::nullopt;
    factor = std::ldexp(1.0, 10 * (static_cast<int>(at) + 1));
  }
  size.bytes = number * factor;
  if (!(size.bytes >= 0 && size.bytes < 0x1p63)) return std::nullopt;
  return size;
}

std::string not_a_size(std::string_view text) {
  std::string message = "'";
  message += text;
  return message +
         "' is not a size; write bytes or a number with K, M, G or T, e.g. 512M or 1.5G (powers of "
         "1024)";
}

std::string format_seconds(Seconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", time.count());
  return text.data();
}

}  // namespace canopy
