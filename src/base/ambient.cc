#include "src/base/ambient.h"

#include <array>
#include <random>

namespace canopy {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &utc);
  return text.data();
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

std::uint64_t any_seed() {
  std::random_device entropy;
  return std::uint64_t{entropy()} << 32 | entropy();
}

}  // namespace canopy
