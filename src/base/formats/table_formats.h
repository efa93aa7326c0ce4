#pragma once
// Rows of four-bit codes that are numbers of a table, and a factor for each 64 of them: what
// bitsandbytes' NF4 and FP4 mean, laid out by rows (docs/formats.md, "Blocks by rows").
#include "src/base/formats/block_formats.h"
#include "src/base/formats/integer_formats.h"

namespace canopy::format {

/// The numbers that codes stand for.
struct CodeTable {
  float entries[16];
};
/// Quantiles of the normal distribution, over the largest.
inline constexpr CodeTable kNF4Table{
    {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
     -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
     0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
     0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}};
/// A sign, two bits of exponent and one of mantissa, over the largest. Code 8 is 0.
inline constexpr CodeTable kFP4Table{
    {0.0f, 0.0625f / 12, 8.0f / 12, 1.0f, 4.0f / 12, 0.5f, 2.0f / 12, 0.25f,  //
     0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -0.5f, -2.0f / 12, -0.25f}};

// A GPU has a copy of each table in its own memory; what runs there reads that.
#if defined(__CUDACC__)
static __device__ const CodeTable kDeviceNF4Table = kNF4Table;
static __device__ const CodeTable kDeviceFP4Table = kFP4Table;
#endif
#if defined(__CUDA_ARCH__)
#define CANOPY_TABLE_HERE(name) kDevice##name##Table
#else
#define CANOPY_TABLE_HERE(name) k##name##Table
#endif

/// {f32 d; u4 q[64]}: d times entry q of Own's table, rounded once. Nibbles lie as those of
/// Integers. Own::here(): the table where the code runs.
template <class Own>
struct OfTable {
  static constexpr const char* kSafetensorsName = nullptr;
  static constexpr std::uint32_t kGgufId = kNotInGguf, kGgufFileType = kNotInGguf;
  static constexpr int kBlockElements = 64, kGroupElements = 64;
  static constexpr int kScaleAt = 0, kMinimumAt = -1, kCodesAt = 4;
  static constexpr int kBlockBytes = kCodesAt + kBlockElements / 2;

  CANOPY_HOST_DEVICE static float scale(const std::byte* block) {
    return load<float>(block + kScaleAt);
  }
  CANOPY_HOST_DEVICE static int group_scale(const std::byte*, int) { return 1; }
  CANOPY_HOST_DEVICE static float code(const std::byte* block, int i) {
    return Own::here().entries[nibble(block + kCodesAt + i / 32 * 16, i % 32)];
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Own>(block, i);
  }

  static void put_scale(std::byte* block, float value) {
    memcpy(block + kScaleAt, &value, sizeof value);
  }
  /// Sets code i of a block whose codes were zeros.
  static void put_code(std::byte* block, int i, std::uint32_t q) {
    block[kCodesAt + i / 32 * 16 + i % 16] |= static_cast<std::byte>(q << i % 32 / 16 * 4);
  }
};
template <class Format>
inline constexpr bool kIsOfTable = requires {
  Format::kTable;
};

struct NF4 : OfTable<NF4> {
  static constexpr DType kDType = DType::kNF4;
  static constexpr const char* kName = "NF4";
  static constexpr const CodeTable& kTable = kNF4Table;
  CANOPY_HOST_DEVICE static const CodeTable& here() { return CANOPY_TABLE_HERE(NF4); }
};
struct FP4 : OfTable<FP4> {
  static constexpr DType kDType = DType::kFP4;
  static constexpr const char* kName = "FP4";
  static constexpr const CodeTable& kTable = kFP4Table;
  CANOPY_HOST_DEVICE static const CodeTable& here() { return CANOPY_TABLE_HERE(FP4); }
};
#undef CANOPY_TABLE_HERE

}  // namespace canopy::format
