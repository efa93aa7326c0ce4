#pragma once
#include <cstdint>

#include "kernels/ops.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

/// The slots that the nodes of a tree see: one text for all backends, host and device. Rows of a
/// call are nodes [first_node, first_node + n).
struct TreeMask {
  const std::uint64_t* ancestors;  // [n, words]; null: a causal chain
  std::int64_t words;
  DeviceScalar<std::int64_t> prefix;
  std::int64_t first_node;
  std::int64_t window = 0;  // TreeAttention::window

  /// Returns the slot after row `row`'s own: it may see those before.
  CANOPY_HOST_DEVICE std::int64_t end(std::int64_t row) const {
    return prefix.value + first_node + row + 1;
  }
  /// Says whether the slot is the row's own or lies before it on its path: within a window it is
  /// seen from first() on.
  CANOPY_HOST_DEVICE bool sees(std::int64_t row, std::int64_t slot) const {
    if (slot < prefix.value) return true;
    const std::int64_t node = slot - prefix.value;
    if (node > first_node + row) return false;
    return ancestors == nullptr ||
           (ancestors[row * words + node / 64] >> (node % 64) & std::uint64_t{1}) != 0;
  }
  /// Returns the distance from row `row` back to a slot that it sees, along its path, whose nodes
  /// stand in the order of their numbers.
  CANOPY_HOST_DEVICE std::int64_t distance(std::int64_t row, std::int64_t slot) const {
    const std::int64_t node = slot - prefix.value;
    if (ancestors == nullptr) return first_node + row - node;
    std::int64_t after = node < 0 ? -node - 1 : 0;  // the path's nodes after the slot
    const std::int64_t first = node < 0 ? 0 : node + 1;
    for (std::int64_t w = first / 64; w < words; ++w) {
      std::uint64_t bits = ancestors[row * words + w];
      if (w == first / 64) bits &= ~std::uint64_t{0} << (first % 64);
      after += ones_of(bits);
    }
    return after;
  }
  /// Returns the slot before `slot` on row `row`'s path, on which it is; -1 before the text.
  CANOPY_HOST_DEVICE std::int64_t before(std::int64_t row, std::int64_t slot) const {
    const std::int64_t nodes = slot - prefix.value;  // that may be it
    if (ancestors == nullptr || nodes <= 0) return slot - 1;
    for (std::int64_t w = (nodes - 1) / 64; w >= 0; --w) {
      std::uint64_t bits = ancestors[row * words + w];
      if (nodes - 64 * w < 64) bits &= ~(~std::uint64_t{0} << (nodes - 64 * w));
      if (bits != 0) return prefix.value + 64 * w + last_one_of(bits);
    }
    return prefix.value - 1;
  }
  /// Returns the first slot in row `row`'s window. A path's slots rise, so that all its later ones
  /// are seen and no earlier one.
  CANOPY_HOST_DEVICE std::int64_t first(std::int64_t row) const {
    if (window == 0) return 0;
    if (ancestors == nullptr) return from_zero(end(row) - window);
    std::int64_t left = window;
    for (std::int64_t w = words - 1; w >= 0; --w) {
      std::uint64_t bits = ancestors[row * words + w];
      std::int64_t more = ones_of(bits) - left;
      if (more < 0) {
        left = -more;
        continue;
      }
      for (; more > 0; --more) bits &= bits - 1;
      return prefix.value + 64 * w + ones_of(~bits & (bits - 1));
    }
    return from_zero(prefix.value - left);
  }
  /// Returns the least first() of this and later rows, or less: of a tree, what its roots see.
  CANOPY_HOST_DEVICE std::int64_t least_first(std::int64_t row) const {
    if (window == 0) return 0;
    return from_zero((ancestors == nullptr ? end(row) : prefix.value + 1) - window);
  }

 private:
  CANOPY_HOST_DEVICE static std::int64_t from_zero(std::int64_t slot) {
    return slot < 0 ? 0 : slot;
  }
  CANOPY_HOST_DEVICE static int ones_of(std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
    return __popcll(bits);
#else
    return __builtin_popcountll(bits);
#endif
  }
  CANOPY_HOST_DEVICE static int last_one_of(std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
    return 63 - __clzll(static_cast<long long>(bits));
#else
    return 63 - __builtin_clzll(bits);
#endif
  }
};

inline TreeMask tree_mask(const TreeAttention& call) {
  const auto* const bits = reinterpret_cast<const std::uint64_t*>(call.ancestors.data());
  return {call.ancestors.empty() ? nullptr : bits,
          call.ancestors.empty() ? 0 : call.ancestors.dim(1), call.prefix, call.first_node,
          call.window};
}

}  // namespace canopy
