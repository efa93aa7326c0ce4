#include "tests/ptx/traffic.h"

#include <algorithm>
#include <array>
#include <span>

#include "tests/ptx/instructions.h"

namespace canopy::ptx {

namespace {

/// Pieces of memory, numbered, that lanes touched; each once.
class Pieces {
 public:
  void add(std::uint64_t begin, std::uint64_t bytes, std::uint64_t piece) {
    for (std::uint64_t i = begin / piece; i <= (begin + bytes - 1) / piece; ++i)
      if (count_ == 0 || numbers_[count_ - 1] != i) numbers_[count_++] = i;
  }
  std::span<const std::uint64_t> each() {
    const auto begin = numbers_.begin(), end = begin + static_cast<std::ptrdiff_t>(count_);
    if (!std::is_sorted(begin, end)) std::sort(begin, end);
    count_ = static_cast<std::size_t>(std::unique(begin, end) - begin);
    return {numbers_.data(), count_};
  }

 private:
  std::array<std::uint64_t, kWarp * 8> numbers_;
  std::size_t count_ = 0;
};

}  // namespace

void count_traffic(const Insn& insn, const std::uint64_t* addresses, Lanes lanes,
                   Traffic& traffic) {
  const std::uint64_t bytes = std::uint64_t{insn.bytes} * insn.count;
  if (insn.space == Space::kGlobal) {
    Pieces sectors;
    for_each_lane(lanes, [&](int lane) { sectors.add(addresses[lane], bytes, 32); });
    ++traffic.runs;
    traffic.sectors += sectors.each().size();
    traffic.bytes += bytes * static_cast<std::uint64_t>(__builtin_popcount(lanes));
  } else if (insn.space == Space::kShared) {
    ++traffic.runs;
    const int together = bytes >= 16 ? kWarp / 4 : bytes >= 8 ? kWarp / 2 : kWarp;
    for (int first = 0; first < kWarp; first += together) {
      const Lanes some = lanes & (kAllLanes >> (kWarp - together) << first);
      if (some == 0) continue;
      Pieces words;
      for_each_lane(some, [&](int lane) { words.add(addresses[lane], bytes, 4); });
      std::array<std::uint64_t, 32> of_bank{};
      for (const std::uint64_t word : words.each()) ++of_bank[word % of_bank.size()];
      traffic.turns += *std::ranges::max_element(of_bank);
      ++traffic.at_least;
    }
  }
}

}  // namespace canopy::ptx
