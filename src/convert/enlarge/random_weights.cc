#include "src/convert/enlarge/random_weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "src/base/formats/block_scales.h"
#include "src/base/formats/weight_format.h"
#include "src/base/rng.h"

namespace canopy {

namespace {

struct Octave {
  int exponent;  // |value| in [2^exponent, 2^(exponent + 1))
  int count;     // of 256
};
/// 256 (Phi(2^(e + 1) / 0.02) - Phi(2^e / 0.02)) for |N(0, 1)|, rounded to a sum of 256; the last
/// ones hold their tails.
constexpr std::array<Octave, 10> kOctaves{{{-14, 1},
                                           {-13, 1},
                                           {-12, 3},
                                           {-11, 5},
                                           {-10, 10},
                                           {-9, 20},
                                           {-8, 38},
                                           {-7, 67},
                                           {-6, 81},
                                           {-5, 30}}};

constexpr std::array<std::uint16_t, 256> exponent_bits() {
  std::array<std::uint16_t, 256> table{};
  std::size_t at = 0;
  for (const Octave octave : kOctaves)
    for (int i = 0; i < octave.count; ++i)
      table[at++] = static_cast<std::uint16_t>((octave.exponent + 127) << 7);
  return table;
}
constexpr std::array<std::uint16_t, 256> kExponentBits = exponent_bits();
static_assert(kExponentBits[255] == (127 - 5) << 7, "the counts sum to 256");

constexpr std::uint16_t value_from(std::uint32_t random16) {
  return static_cast<std::uint16_t>((random16 & 0x8000u) | (random16 >> 8 & 0x7fu) |
                                    kExponentBits[random16 & 0xffu]);
}

}  // namespace

std::uint64_t RandomWeights::hash(std::string_view tensor_name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : tensor_name)
    hash = (hash ^ static_cast<unsigned char>(c)) * std::uint64_t{0x100000001b3u};
  return hash;
}

std::array<std::uint32_t, 4> RandomWeights::draw(std::uint64_t tensor, std::uint32_t row,
                                                 std::size_t index) const {
  return philox4x32({static_cast<std::uint32_t>(index), row, static_cast<std::uint32_t>(tensor),
                     static_cast<std::uint32_t>(tensor >> 32)},
                    {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
}

void RandomWeights::fill(std::uint64_t tensor, std::uint32_t row,
                         std::span<std::uint16_t> out) const {
  constexpr std::size_t kPerBlock = 8;
  const auto value = [](const std::array<std::uint32_t, 4>& bits, std::size_t i) {
    return value_from(bits[i / 2] >> (16 * (i % 2)) & 0xffffu);
  };
  const std::size_t whole = out.size() / kPerBlock;
  for (std::size_t b = 0; b < whole; ++b) {
    const auto bits = draw(tensor, row, b);
    for (std::size_t i = 0; i < kPerBlock; ++i) out[b * kPerBlock + i] = value(bits, i);
  }
  if (whole * kPerBlock == out.size()) return;
  const auto bits = draw(tensor, row, whole);
  for (std::size_t i = 0; whole * kPerBlock + i < out.size(); ++i)
    out[whole * kPerBlock + i] = value(bits, i);
}

void RandomWeights::fill_blocks(std::uint64_t tensor, std::uint32_t row, DType type,
                                std::span<std::byte> out) const {
  visit_format(BlockFormats(), type, [&]<class Format>(Format) {
    static const BlockScales scales = [] {
      constexpr double kDeviation = 0.022;
      std::vector<std::byte> sample(std::size_t{64} * Format::kBlockBytes);
      RandomWeights(0).fill_bytes(0, 0, sample);
      return random_scales<Format>(sample, kDeviation);
    }();
    fill_bytes(tensor, row, out);
    for (std::size_t at = 0; at < out.size(); at += Format::kBlockBytes)
      put_scales<Format>(scales, &out[at]);
  });
}

void RandomWeights::fill_bytes(std::uint64_t tensor, std::uint32_t row,
                               std::span<std::byte> out) const {
  std::size_t index = 0;
  for (std::size_t at = 0; at < out.size();) {
    const auto bits = draw(tensor, row, index++);
    const std::size_t count = std::min(out.size() - at, sizeof bits);
    std::memcpy(&out[at], bits.data(), count);
    at += count;
  }
}

}  // namespace canopy
