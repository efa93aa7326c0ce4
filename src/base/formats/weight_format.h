#pragma once
// The formats of weights, each said once: of what blocks its rows are made, how a block becomes
// f32, and what files call it. A new one is an enumerator of DType, a struct here or in one of the
// headers of blocks below, and its name in one of the lists; readers, sizes and every product know
// it then, by plain loops. Vectors for the CPU are a specialisation in kernels/cpu/weights-inl.h;
// writing it is an overload in src/convert/quantize/block_quant.cc.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/base/error.h"
#include "src/base/formats/block_formats.h"
#include "src/base/formats/dtype.h"
#include "src/base/formats/f4_format.h"
#include "src/base/formats/grid_formats.h"
#include "src/base/formats/integer_formats.h"
#include "src/base/formats/table_formats.h"

namespace canopy {

/// A type for each format. All are little-endian.
namespace format {

// Each has: kDType; kName; kSafetensorsName, or null where such files cannot hold it; kGgufId,
// ggml's number of the type, or kNotInGguf; kGgufFileType, what general.file_type calls a file of
// mostly it; kBlockElements, kBlockBytes; decode(block, i), element i of a block. Those whose
// elements stand alone have Element, their bits, and encode(), to nearest even. Those in blocks
// (the headers above) have groups of kGroupElements, whose elements are d s q, or d s q + m t:
// where the f16 d and m lie (kScaleAt; kMinimumAt, -1 without), or scale(block) where d is no such
// f16; the whole numbers group_scale(block, group), of F4_256 any, group_minimum(block, group) and
// code(block, i), which of a table is any and has no group_scale but 1.

struct F32 {
  static constexpr DType kDType = DType::kF32;
  static constexpr const char *kName = "F32", *kSafetensorsName = kName;
  static constexpr std::uint32_t kGgufId = 0, kGgufFileType = 0;
  static constexpr int kBlockElements = 1, kBlockBytes = 4;
  using Element = float;
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int) { return load<float>(block); }
  CANOPY_HOST_DEVICE static Element encode(float value) { return value; }
};

struct F16 {
  static constexpr DType kDType = DType::kF16;
  static constexpr const char *kName = "F16", *kSafetensorsName = kName;
  static constexpr std::uint32_t kGgufId = 1, kGgufFileType = 1;
  static constexpr int kBlockElements = 1, kBlockBytes = 2;
  using Element = std::uint16_t;
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int) { return load_f16(block); }
  CANOPY_HOST_DEVICE static Element encode(float value) { return f16_from_f32(value); }
};

struct BF16 {
  static constexpr DType kDType = DType::kBF16;
  static constexpr const char *kName = "BF16", *kSafetensorsName = kName;
  static constexpr std::uint32_t kGgufId = 30, kGgufFileType = 32;
  static constexpr int kBlockElements = 1, kBlockBytes = 2;
  using Element = std::uint16_t;
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int) {
    return f32_from_bf16(load<std::uint16_t>(block));
  }
  CANOPY_HOST_DEVICE static Element encode(float value) { return bf16_from_f32(value); }
};

template <class... Formats>
struct List {};
template <class... A, class... B>
List<A..., B...> operator+(List<A...>, List<B...>);

template <class First, class... Rest, class Visit>
decltype(auto) visit_listed(List<First, Rest...>, DType dtype, const Visit& visit) {
  if constexpr (sizeof...(Rest) > 0)
    if (dtype != First::kDType) return visit_listed(List<Rest...>(), dtype, visit);
  return visit(First());
}

}  // namespace format

using PlainFormats = format::List<format::F32, format::F16, format::BF16>;
/// Blocks of GGUF files.
using GgufBlocks =
    format::List<format::Q4_0, format::Q4_1, format::Q5_0, format::Q5_1, format::Q8_0, format::Q2_K,
                 format::Q3_K, format::Q4_K, format::Q5_K, format::Q6_K, format::IQ4_NL,
                 format::IQ4_XS, format::MXFP4, format::IQ2_XXS, format::IQ2_XS, format::IQ2_S,
                 format::IQ3_XXS, format::IQ3_S, format::IQ1_S, format::IQ1_M, format::NVFP4>;
using IntegerFormats =
    format::List<format::I4_32, format::I4_64, format::I4_128, format::I8_32, format::I8_128>;
/// Blocks of other codes that GGUF files do not have.
using FloatRows = format::List<format::F4_256, format::NF4, format::FP4>;
/// Blocks that `canopy pack` writes.
using PackedRows = decltype(IntegerFormats() + FloatRows() + format::List<format::MXFP4>());
using BlockFormats = decltype(GgufBlocks() + IntegerFormats() + FloatRows());
using GgufFormats = decltype(PlainFormats() + GgufBlocks());
using WeightFormats = decltype(PlainFormats() + BlockFormats());

/// True if rows are blocks of several elements.
template <class Format>
inline constexpr bool kInBlocks = requires {
  requires(Format::kBlockElements > 1);
};

/// Bytes of a row of whole blocks.
template <class Format>
CANOPY_HOST_DEVICE constexpr std::int64_t bytes_of_row(std::int64_t columns) {
  return columns / Format::kBlockElements * Format::kBlockBytes;
}
/// Element k of a row.
template <class Format>
CANOPY_HOST_DEVICE inline float weight_at(const std::byte* row, std::int64_t k) {
  return Format::decode(row + k / Format::kBlockElements * Format::kBlockBytes,
                        static_cast<int>(k % Format::kBlockElements));
}

/// A format as data.
struct WeightFormat {
  DType dtype;
  const char *name, *safetensors_name;
  std::uint32_t gguf_id, gguf_file_type;
  std::int64_t block_elements;
  std::size_t block_bytes;
};
template <class... Formats>
constexpr auto as_data(format::List<Formats...>) {
  return std::array{WeightFormat{Formats::kDType, Formats::kName, Formats::kSafetensorsName,
                                 Formats::kGgufId, Formats::kGgufFileType, Formats::kBlockElements,
                                 Formats::kBlockBytes}...};
}
inline constexpr auto kWeightFormats = as_data(WeightFormats());

/// Null for a dtype that is not a format of weights.
constexpr const WeightFormat* find_format(DType dtype) {
  for (const WeightFormat& f : kWeightFormats)
    if (f.dtype == dtype) return &f;
  return nullptr;
}
inline constexpr auto kIntegerFormats = as_data(IntegerFormats());
inline constexpr auto kPackedRows = as_data(PackedRows());
constexpr bool in_blocks(DType dtype) {
  const WeightFormat* const f = find_format(dtype);
  return f != nullptr && f->block_elements > 1;
}

/// "F32, F16 and BF16".
std::string in_words(std::span<const char* const> names);
template <class... Formats>
std::string names_of(format::List<Formats...>) {
  constexpr const char* kNames[] = {Formats::kName...};
  return in_words(kNames);
}

/// Calls visit(Format()) with the format of this dtype. Throws Error unless the list has it.
template <class... Formats, class Visit>
decltype(auto) visit_format(format::List<Formats...> list, DType dtype, const Visit& visit) {
  if (((dtype != Formats::kDType) && ...))
    throw Error(std::string(name(dtype)) + " does not fit here, where weights may be " +
                names_of(list));
  return format::visit_listed(list, dtype, visit);
}
template <class Visit>
decltype(auto) visit_format(DType dtype, const Visit& visit) {
  return visit_format(WeightFormats(), dtype, visit);
}

/// One row of weights as f32: the plain definition of each format, which the fast kernels are
/// tested against. `row` may start at any byte.
/// Throws Error if out.size() is not whole blocks, or for dtypes that are not weights.
void dequantize_row(DType dtype, const std::byte* row, std::span<float> out);
/// The reverse for a plain format: rounded to nearest even. Throws Error for other dtypes.
void encode_row(DType dtype, std::span<const float> row, std::byte* out);

}  // namespace canopy
