#include "src/cli/options/values.h"

#include <cctype>
#include <charconv>
#include <sstream>

#include "src/base/size_text.h"
#include "src/cli/command.h"

namespace canopy::cli {

namespace {

WrittenSize size_of(std::string_view flag, std::string_view text) {
  const auto size = read_size(text);
  if (!size) throw UsageError(std::string(flag) + ": " + not_a_size(text));
  return *size;
}

}  // namespace

std::uint64_t parse_size(std::string_view flag, std::string_view text) {
  return static_cast<std::uint64_t>(size_of(flag, text).bytes);
}

std::uint64_t parse_budget(std::string_view flag, std::string_view text) {
  const WrittenSize size = size_of(flag, text);
  if (const auto question = size.forgotten_unit())
    throw UsageError(std::string(flag) + ": " + *question);
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
