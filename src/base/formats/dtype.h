#pragma once
#include <cstddef>
#include <cstdint>

namespace canopy {

/// kQ*, kIQ*, kMXFP4, kNVFP4: GGUF blocks of weights along the last axis
/// (src/base/formats/weight_format.h). kI4_*, kI8_*, kF4_*, kNF4, kFP4: such blocks that
/// `canopy pack` writes (src/base/formats/integer_formats.h and others there). kPackedBF16,
/// kLevels*: rows of different lengths (src/base/formats/packed_format.h). kE4M3*: rows of
/// bytes, whose scales lie apart (src/base/formats/fp8_format.h). kI*Grouped: rows whose groups are
/// no runs of columns (src/base/formats/grouped_format.h). Only a WeightView has such a dtype.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kU8,
  kI32,
  kU32,
  kU64,
  kQ4_0,
  kQ4_1,
  kQ8_0,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIQ1_S,
  kIQ1_M,
  kNVFP4,
  kI4_32,
  kI4_64,
  kI4_128,
  kI8_32,
  kI8_128,
  kF4_256,
  kNF4,
  kFP4,
  kI4Grouped,
  kI8Grouped,
  kPackedBF16,
  kLevelsBF16,
  kLevelsE4M3Blocks,
  kLevelsE4M3Rows,
  kE4M3Blocks,
  kE4M3Rows
};
const char* name(DType dtype);  // as safetensors and GGUF spell it: "BF16", "Q4_0"
/// Bytes of one row. Throws Error if `columns` is negative or not whole blocks, or the dtype is
/// packed.
std::size_t row_bytes(DType dtype, std::int64_t columns);

}  // namespace canopy
