#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/tensor.h"

namespace canopy {

/// Values for weights that nothing depends on: finite, normal, incompressible beyond what real
/// weights are, and cheap enough to keep up with a disk. Every value is a pure function of
/// (seed, tensor, row, column), drawn by Philox. Any number of threads.
///
/// The bits are BF16: sign and the seven bits of the mantissa are uniform; the exponent has, in
/// steps of 1/256, the distribution of that of N(0, 0.02^2), so that 2^-14 <= |value| < 2^-4.
/// Standard deviation 0.022; 10.5 bits of entropy in 16, about what trained BF16 weights have.
class RandomWeights {
 public:
  explicit RandomWeights(std::uint64_t seed) : seed_(seed) {}
  /// `tensor`: the hash of its name. Fills columns [0, out.size()) of the row's random part.
  void fill(std::uint64_t tensor, std::uint32_t row, std::span<std::uint16_t> out) const;
  /// The row as whole blocks of `type`: uniform bits, and the same f16 scale and minimum in all
  /// blocks, so that the values have about the spread of those above.
  void fill_blocks(std::uint64_t tensor, std::uint32_t row, DType type,
                   std::span<std::byte> out) const;
  /// The row as uniform bits.
  void fill_bytes(std::uint64_t tensor, std::uint32_t row, std::span<std::byte> out) const;
  static std::uint64_t hash(std::string_view tensor_name);  // FNV-1a

 private:
  std::array<std::uint32_t, 4> draw(std::uint64_t tensor, std::uint32_t row,
                                    std::size_t index) const;
  std::uint64_t seed_;
};

}  // namespace canopy
