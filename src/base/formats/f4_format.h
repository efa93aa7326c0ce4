#pragma once
// Rows of floating-point numbers of four bits with two scales: what NVFP4 means in directories,
// laid out by rows (docs/formats.md, "Blocks by rows").
#include "src/base/formats/block_formats.h"
#include "src/base/formats/integer_formats.h"

namespace canopy::format {

/// {f32 g; e4m3 s[16]; u4 q[256]}: half of s g times twice E2M1(q), groups of 16; of a negative g
/// half of s / -g, the quotient rounded once as the product is. No s is negative or not a number.
/// Nibbles lie as those of Integers.
struct F4_256 {
  static constexpr DType kDType = DType::kF4_256;
  static constexpr const char *kName = "F4_256", *kSafetensorsName = nullptr;
  static constexpr std::uint32_t kGgufId = kNotInGguf, kGgufFileType = kNotInGguf;
  static constexpr int kBlockElements = 256, kGroupElements = 16;
  static constexpr int kFactorAt = 0, kScalesAt = 4, kMinimumAt = -1, kCodesAt = 20;
  static constexpr int kBlockBytes = kCodesAt + kBlockElements / 2;

  CANOPY_HOST_DEVICE static float scale(const std::byte*) { return 0.5f; }
  CANOPY_HOST_DEVICE static float group_scale(const std::byte* block, int group) {
    const float s =
        static_cast<float>(NVFP4::whole_scale(bits(block[kScalesAt + group], 0, 8))) * 0x1p-9f;
    const auto g = load<float>(block + kFactorAt);
    return g < 0 ? s / -g : s * g;
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return doubled_e2m1(nibble(block + kCodesAt + i / 32 * 16, i % 32));
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<F4_256>(block, i);
  }
};

}  // namespace canopy::format
