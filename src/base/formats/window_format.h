#pragma once
#include <cstddef>
#include <cstdint>

#include "src/base/formats/packed_rows.h"

namespace canopy::format {

/// BF16 by a window of exponents. In 512 columns of a trained matrix, 95 to 98 of 100 exponents are
/// among seven neighbours. A row is that of Bf16Blocks with three bits of code: code c < 7 stands
/// for the exponent base + c, code 7 for the next exception, and a block's tail is
///   the exceptions {u8 exponent}: of the weights with code 7, in the order of their places.
struct PackedBF16 : Bf16Blocks<PackedBF16, 3> {
  static constexpr DType kDType = DType::kPackedBF16;
  static constexpr const char *kName = "packed BF16", *kCodec = "bf16-window-512";
  static constexpr int kCodes = 7;  // and one that says: an exception
  static constexpr int kHighestBase = 255 - (kCodes - 1);

  CANOPY_HOST_DEVICE static constexpr std::size_t most_bytes(std::int64_t columns) {
    return (fixed_bytes(columns) + static_cast<std::size_t>(columns) + kPackedAlignment - 1) /
           kPackedAlignment * kPackedAlignment;
  }
  CANOPY_HOST_DEVICE static constexpr std::uint32_t exponent(int base, std::uint32_t code) {
    return static_cast<std::uint32_t>(base) + code;
  }

  /// Bit p: the weight with place p is an exception.
  CANOPY_HOST_DEVICE static std::uint64_t exceptions_in(const std::byte* group) {
    return load_u64(group) & load_u64(group + 8) & load_u64(group + 16);
  }
  CANOPY_HOST_DEVICE static Block block(const StoredRow& row, std::int64_t index) {
    int exceptions = 0;
    for (std::int64_t g = index * kBlockGroups;
         g < (index + 1) * kBlockGroups && g < groups(row.columns); ++g)
      exceptions += count_ones(exceptions_in(group(row, g)));
    return block(row, index, exceptions);
  }
  /// `exceptions`: how many the block has, by its codes.
  CANOPY_HOST_DEVICE static Block block(const StoredRow& row, std::int64_t index, int exceptions) {
    Block b = Bf16Blocks::block(row, index);
    b.sound =
        b.sound && b.base <= kHighestBase && fills_tail(b, static_cast<std::size_t>(exceptions));
    return b;
  }

  CANOPY_HOST_DEVICE static void decode_group(const StoredRow& row, std::int64_t group,
                                              std::uint16_t* out) {
    const Block b = block(row, group / kBlockGroups);
    const int within = static_cast<int>(group % kBlockGroups);
    if (!b.sound) {
      for (int i = 0; i < kGroupColumns; ++i) out[i] = kNotANumber;
      return;
    }
    const std::byte* exception = b.tail;
    for (int g = 0; g < within; ++g)
      exception += count_ones(exceptions_in(b.group + g * kGroupBytes));
    const std::byte* const from = b.group + within * kGroupBytes;
    for (int s = 0; s < kSixteens; ++s) {
      std::uint32_t pairs[kPlaces / 2];
      exception += decode_sixteen(from, s, b.base, exception, pairs);
      for (int i = 0; i < kPlaces; ++i)
        out[weight_at(kPlaces * s + i)] = static_cast<std::uint16_t>(pairs[i / 2] >> i % 2 * 16);
    }
  }
  /// Does what Bf16Blocks' does with the group's own codes. Returns how many are exceptions.
  CANOPY_HOST_DEVICE static int decode_sixteen(const std::byte* group, int s, int base,
                                               const std::byte* exception, std::uint32_t* pairs) {
    Codes<std::uint32_t> codes{};
    for (int i = 0; i < 3; ++i) codes.plane[i] = load<std::uint16_t>(group + 8 * i + 2 * s);
    codes.exceptions = codes.plane[0] & codes.plane[1] & codes.plane[2];
    Bf16Blocks::decode_sixteen(group, s, codes, base, exception, pairs);
    return count_ones(codes.exceptions);
  }
};

}  // namespace canopy::format
