#pragma once
// Rows of whole numbers of four or eight bits with a scale and a zero point for each group: what
// AWQ, GPTQ and compressed-tensors mean, laid out by rows (docs/formats.md, "Blocks by rows").
#include "src/base/formats/block_formats.h"

namespace canopy::format {

/// The number of a type that GGUF files do not have.
inline constexpr std::uint32_t kNotInGguf = 0xffffffffu;

/// The type of a scale's 16 bits, as a block has it.
enum class ScaleType : std::uint8_t { kF16 = 0, kBF16 = 1 };
struct Scale16 {
  std::uint16_t bits = 0;
  ScaleType type = ScaleType::kF16;
};

/// {u16 s; u8 z; u8 type; u4 or u8 q[kElements]}: s (q - z). Bit 0 of `type` says that s is BF16,
/// and not F16. Nibbles lie as Q4_0 has them, 32 after 32. q - z has nine bits and s eleven, so
/// their product is exact in f32.
template <int kBits, int kElements>
struct Integers {
  static_assert((kBits == 4 || kBits == 8) && kElements % 32 == 0);
  static constexpr const char* kSafetensorsName = nullptr;
  static constexpr std::uint32_t kGgufId = kNotInGguf, kGgufFileType = kNotInGguf;
  static constexpr int kBlockElements = kElements, kGroupElements = kElements;
  static constexpr int kScaleAt = 0, kMinimumAt = -1, kZeroAt = 2, kTypeAt = 3, kCodesAt = 4;
  static constexpr int kBlockBytes = kCodesAt + kElements * kBits / 8;

  CANOPY_HOST_DEVICE static float scale(const std::byte* block) {
    const auto stored = load<std::uint16_t>(block + kScaleAt);
    return bits(block[kTypeAt], 0, 1) != 0 ? f32_from_bf16(stored) : f32_from_f16(stored);
  }
  CANOPY_HOST_DEVICE static int group_scale(const std::byte*, int) { return 1; }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    const std::byte* const codes = block + kCodesAt;
    const int q = kBits == 4 ? nibble(codes + i / 32 * 16, i % 32) : static_cast<int>(codes[i]);
    return q - static_cast<int>(block[kZeroAt]);
  }

  static void put_scale(std::byte* block, Scale16 value) {
    memcpy(block + kScaleAt, &value.bits, sizeof value.bits);
    block[kTypeAt] = static_cast<std::byte>(value.type);
  }
  /// Sets code i of a block whose codes were zeros.
  static void put_code(std::byte* block, int i, std::uint32_t q) {
    std::byte& at = block[kCodesAt + (kBits == 4 ? i / 32 * 16 + i % 16 : i)];
    at |= static_cast<std::byte>(kBits == 4 ? q << i % 32 / 16 * 4 : q);
  }
};

struct I4_32 : Integers<4, 32> {
  static constexpr DType kDType = DType::kI4_32;
  static constexpr const char* kName = "I4_32";
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<I4_32>(block, i);
  }
};
struct I4_64 : Integers<4, 64> {
  static constexpr DType kDType = DType::kI4_64;
  static constexpr const char* kName = "I4_64";
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<I4_64>(block, i);
  }
};
struct I4_128 : Integers<4, 128> {
  static constexpr DType kDType = DType::kI4_128;
  static constexpr const char* kName = "I4_128";
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<I4_128>(block, i);
  }
};
struct I8_32 : Integers<8, 32> {
  static constexpr DType kDType = DType::kI8_32;
  static constexpr const char* kName = "I8_32";
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<I8_32>(block, i);
  }
};
struct I8_128 : Integers<8, 128> {
  static constexpr DType kDType = DType::kI8_128;
  static constexpr const char* kName = "I8_128";
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<I8_128>(block, i);
  }
};

}  // namespace canopy::format
