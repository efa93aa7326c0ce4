#pragma once
#include <array>
#include <cstdint>

namespace canopy {

/// One block of the Philox 4x32-10 generator: a bijection of the counter under the key.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Counter-based random stream: every draw is a pure function of its key, so a
/// step can be replayed and no uniform is ever used twice.
/// Key: (seed, sequence, step, purpose, index). Same bits on host and device.
struct StepRng {
  enum class Purpose : std::uint32_t { kDraft, kAccept, kBonus };
  static constexpr std::uint32_t kSequences = 1u << 24;
  std::uint64_t seed = 0;
  std::uint32_t sequence = 0;  // which of several continuations: two of them never share a draw
  std::uint64_t step = 0;

  /// 53 random bits in (0, 1): never 0, never 1. index < 2^32, step < 2^32, sequence < kSequences.
  constexpr double uniform(Purpose purpose, std::uint64_t index) const {
    const auto bits =
        philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(step),
                    (sequence << 8) | static_cast<std::uint32_t>(purpose),
                    static_cast<std::uint32_t>(index >> 32)},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    const std::uint64_t wide = (std::uint64_t{bits[0]} << 32 | bits[1]) >> 11;
    return (static_cast<double>(wide) + 0.5) * 0x1.0p-53;
  }
};

}  // namespace canopy
