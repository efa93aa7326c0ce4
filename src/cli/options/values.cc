#include "src/cli/options/values.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "src/cli/command.h"

namespace canopy::cli {

namespace {

struct Size {
  std::string_view number;  // as it is written
  std::string unit;         // of KMGT; empty: bytes
  double bytes = 0;
};

Size read_size(std::string_view flag, std::string_view text) {
  const auto fail = [&] {
    return UsageError(std::string(flag) + ": '" + std::string(text) +
                      "' is not a size; write bytes or a number with K, M, G or T, e.g. 512M or "
                      "1.5G (powers of 1024)");
  };
  const std::string copy(text);
  char* end = nullptr;
  if (copy.empty() || !(std::isdigit(static_cast<unsigned char>(copy[0])) || copy[0] == '.'))
    throw fail();
  const double number = std::strtod(copy.c_str(), &end);
  Size size{text.substr(0, static_cast<std::size_t>(end - copy.c_str())), end};
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
    if (unit.size() != 1 || at == std::string_view::npos) throw fail();
    factor = std::ldexp(1.0, 10 * (static_cast<int>(at) + 1));
  }
  size.bytes = number * factor;
  if (!(size.bytes >= 0 && size.bytes < 0x1p63)) throw fail();
  return size;
}

}  // namespace

std::uint64_t parse_size(std::string_view flag, std::string_view text) {
  return static_cast<std::uint64_t>(read_size(flag, text).bytes);
}

std::uint64_t parse_budget(std::string_view flag, std::string_view text) {
  constexpr double kLeast = 1 << 20, kMostGigabytes = 256;
  const Size size = read_size(flag, text);
  if (size.unit.empty() && size.bytes > 0 && size.bytes < kLeast) {
    const std::string number(size.number);
    throw UsageError(std::string(flag) + ": " + number + " bytes; did you mean " + number +
                     (size.bytes < kMostGigabytes ? "G?" : "M?"));
  }
  return static_cast<std::uint64_t>(size.bytes);
}

std::uint64_t parse_budget_above_zero(std::string_view flag, std::string_view text) {
  const std::uint64_t size = parse_budget(flag, text);
  if (size == 0) throw UsageError(std::string(flag) + ": must be more than 0");
  return size;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<int> parse_numbers(std::string_view flag, const std::string& text, int least,
                               int most) {
  std::vector<int> numbers;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    int number = 0;
    const char* const end = word.data() + word.size();
    const auto [next, error] = std::from_chars(word.data(), end, number);
    if (error != std::errc() || next != end || number < least || number > most)
      throw UsageError(std::string(flag) + ": '" + word + "' is not a number from " +
                       std::to_string(least) + " to " + std::to_string(most));
    numbers.push_back(number);
  }
  if (numbers.empty()) throw UsageError(std::string(flag) + ": names no number");
  return numbers;
}

std::string read_text(const std::string& path, std::uint64_t most_bytes,
                      const std::stop_token& stop) {
  return path == "-" ? read_standard_input(most_bytes, stop)
                     : read_file(path, most_bytes, FileKind::kOfUser, stop);
}

}  // namespace canopy::cli
