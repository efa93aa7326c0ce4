#pragma once
// The formats of packed weights: codes that hold the values of a plain format in fewer bits and
// give them back bit for bit. A row's length depends on its values, so a packed matrix has the
// offsets of its rows as its companion. Each format is said once, as in
// src/base/formats/weight_format.h: a new one is an enumerator of DType, a struct in a header of
// its own, its name in a list below, a case of read_codes() in packed_format.cc that reads rows,
// and an overload of pack_row() (src/convert/pack/pack_row.h) that writes them. Vectors for the CPU
// are a specialisation in kernels/cpu/unpack/packed-inl.h.
//
// Each struct has: kDType; kName; kCodec, what files call it; Plain, whose bits it gives back; the
// companion of RowOffsets, or of ScaledRowOffsets; kGroupColumns, how many weights decode_group()
// writes; fixed_bytes() and most_bytes(columns), what a row takes at least and at most;
// decode_group(row, group, out), the weights of a group as Plain::Element, those past the row's end
// included, whatever they are. What a row says of itself cannot lead outside of its bytes: weights
// of a part that contradicts itself are NaN, which a sweep does not go on with.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/base/formats/fp8_format.h"
#include "src/base/formats/grouped_format.h"
#include "src/base/formats/levels_format.h"
#include "src/base/formats/levels_fp8_format.h"
#include "src/base/formats/packed_rows.h"
#include "src/base/formats/weight_format.h"
#include "src/base/formats/window_format.h"

namespace canopy {

using PackedBf16Formats = format::List<format::PackedBF16, format::LevelsBF16>;
using PackedFp8Formats = format::List<format::LevelsE4M3Blocks, format::LevelsE4M3Rows>;
using PackedFormats = decltype(PackedBf16Formats() + PackedFp8Formats());
/// Formats that a WeightView may have.
using MatrixFormats = decltype(WeightFormats() + PackedFormats() + Fp8Formats() + GroupedFormats());

template <class Format>
inline constexpr bool kIsPacked = requires {
  typename Format::Plain;
};

/// True of formats whose weights are codes of FP8.
template <class Format>
inline constexpr bool kPacksFp8 = false;
template <class Format>
requires(kIsPacked<Format>) inline constexpr bool kPacksFp8<Format> =
    kIsFp8<typename Format::Plain>;

/// A packed format as data.
struct PackedFormat {
  DType dtype, plain;
  const char *name, *codec;
  const CompanionFormat* companion;
};
template <class... Formats>
constexpr auto as_data_of_packed(format::List<Formats...>) {
  return std::array{PackedFormat{Formats::kDType, Formats::Plain::kDType, Formats::kName,
                                 Formats::kCodec, &kCompanionOf<Formats>}...};
}
inline constexpr auto kPackedFormats = as_data_of_packed(PackedFormats());

/// Null for a dtype that is not packed.
constexpr const PackedFormat* find_packed_format(DType dtype) {
  for (const PackedFormat& f : kPackedFormats)
    if (f.dtype == dtype) return &f;
  return nullptr;
}
/// A format of this codec, which may have several; null for a codec that is not known.
constexpr const PackedFormat* find_codec(std::string_view codec) {
  for (const PackedFormat& f : kPackedFormats)
    if (f.codec == codec) return &f;
  return nullptr;
}
/// The format of this codec that packs a plain one; null where it packs others.
constexpr const PackedFormat* find_codec(std::string_view codec, DType plain) {
  for (const PackedFormat& f : kPackedFormats)
    if (f.codec == codec && f.plain == plain) return &f;
  return nullptr;
}
constexpr bool is_packed(DType dtype) { return find_packed_format(dtype) != nullptr; }

/// The companion of a packed matrix whose rows take `row_bytes` bytes each. `scales`: of FP8, those
/// of its plain form.
Companion companion_of_rows(const PackedFormat& format, std::span<const std::size_t> row_bytes,
                            std::int64_t columns, std::span<const float> scales = {});

/// The bits of a row's weights in its plain format, those that decode_group() gives. Shapes: row
/// and out [columns]. Throws Error for a dtype that does not pack such weights.
void unpack_row(DType dtype, const StoredRow& row, std::span<std::uint16_t> out);
void unpack_row(DType dtype, const StoredRow& row, std::span<std::uint8_t> out);
/// The weights of a row of any format as f32. Throws Error as dequantize_row() does.
void row_as_f32(DType dtype, const StoredRow& row, std::span<float> out);

}  // namespace canopy
