// The codes of weights in blocks become whole numbers, by vectors, compiled once per instruction
// set by each file that includes it after hwy/foreach_target.h. Loads take any address.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "hwy/highway.h"
#include "src/base/formats/weight_format.h"

#ifndef CANOPY_KERNELS_CPU_CODES_ONCE
#define CANOPY_KERNELS_CPU_CODES_ONCE
namespace canopy::cpu {

constexpr std::size_t kMaxLanes = 16;  // floats of the widest vector

/// The entries of a format by a grid, a byte for each value, the first lowest.
template <class Format>
constexpr auto bytes_of_grid() {
  constexpr std::size_t kEntries = std::size(Format::kGrid.entries);
  std::array<std::conditional_t<Format::kRun == 8, std::uint64_t, std::uint32_t>, kEntries> bytes{};
  for (std::size_t e = 0; e < kEntries; ++e)
    for (int i = Format::kRun; i-- > 0;) {
      const int number =
          Format::kGrid.entries[e] >> (i * Format::kBits) & ((1 << Format::kBits) - 1);
      bytes[e] = bytes[e] << 8 | static_cast<std::uint8_t>(Format::value(number));
    }
  return bytes;
}
template <class Format>
inline constexpr auto kBytesOfGrid = bytes_of_grid<Format>();

}  // namespace canopy::cpu
#endif  // CANOPY_KERNELS_CPU_CODES_ONCE

#if defined(CANOPY_KERNELS_CPU_CODES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef CANOPY_KERNELS_CPU_CODES_INL
#else
#define CANOPY_KERNELS_CPU_CODES_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using std::size_t;
using std::uint8_t;

using Floats = hn::CappedTag<float, kMaxLanes>;
using Vec = hn::Vec<Floats>;
constexpr size_t kLanes = hn::MaxLanes(Floats());

// Codes of a block as whole numbers, kLanes from `at` on, for the formats in groups.
using Ints = hn::Rebind<std::int32_t, Floats>;
using IntVec = hn::Vec<Ints>;

/// kLanes bytes, each shifted down by `shift` and cut to kBits.
template <int kBits>
HWY_INLINE IntVec bits_of(const uint8_t* from, size_t shift) {
  const hn::Rebind<uint8_t, Floats> bytes;
  const auto wide = hn::PromoteTo(Ints(), hn::LoadU(bytes, from));
  return hn::And(hn::ShiftRightSame(wide, static_cast<int>(shift)),
                 hn::Set(Ints(), (1 << kBits) - 1));
}
/// format::nibble, for a vector.
HWY_INLINE IntVec nibbles(const uint8_t* codes, size_t at) {
  return bits_of<4>(codes + at % 16, at / 16 * 4);
}
/// format::long_nibble, for a vector.
HWY_INLINE IntVec long_nibbles(const uint8_t* codes, size_t at) {
  return bits_of<4>(codes + at / 64 * 32 + at % 32, at / 32 % 2 * 4);
}
/// The lanes whose bits, lane 0 the lowest, are ones.
HWY_INLINE auto lanes_of(std::uint32_t bits) {
  const IntVec lane = hn::Shl(hn::Set(Ints(), 1), hn::Iota(Ints(), 0));
  return hn::TestBit(hn::Set(Ints(), static_cast<std::int32_t>(bits)), lane);
}
/// 16 in the lanes whose bits, from bit `at` of four bytes on, are ones.
HWY_INLINE IntVec sixteens(const uint8_t* word, size_t at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, word, sizeof bits);
  return hn::IfThenElseZero(lanes_of(bits >> at), hn::Set(Ints(), 16));
}
/// The entries of a table by codes below 16.
template <class Codes>
HWY_INLINE IntVec steps(const std::int8_t (&of)[16], Codes codes) {
  const hn::Rebind<std::int8_t, Floats> signed_bytes;
  const auto table = hn::LoadU(hn::Full128<std::int8_t>(), of);
  return hn::PromoteTo(Ints(), hn::TableLookupBytes(table, hn::BitCast(signed_bytes, codes)));
}
/// Entries by format::nibble, for a vector.
HWY_INLINE IntVec steps(const std::int8_t (&of)[16], const uint8_t* codes, size_t at) {
  const hn::Rebind<uint8_t, Floats> bytes;
  const auto both = hn::LoadU(bytes, codes + at % 16);
  return steps(of, at % 32 < 16 ? hn::And(both, hn::Set(bytes, 15)) : hn::ShiftRight<4>(both));
}
/// Four-bit values of 8 bytes, all low halves, then all high ones, from value at % 16 on.
template <class Bytes>
HWY_INLINE auto short_nibbles(Bytes bytes, const uint8_t* from, size_t at) {
  if constexpr (hn::MaxLanes(bytes) == 16) {
    const hn::Half<Bytes> eight;
    const auto both = hn::LoadU(eight, from);
    const auto low = hn::And(both, hn::Set(eight, 15));
    return hn::Combine(bytes, hn::ShiftRight<4>(both), low);
  } else {
    const auto both = hn::LoadU(bytes, from + at % 8);
    return at % 16 < 8 ? hn::And(both, hn::Set(bytes, 15)) : hn::ShiftRight<4>(both);
  }
}
/// The lowest bytes of a word, or of two, as a vector.
template <class Bytes>
HWY_INLINE auto bytes_of_words(Bytes bytes, std::uint64_t first,
                               [[maybe_unused]] std::uint64_t second) {
  if constexpr (hn::MaxLanes(bytes) == 16) {
    const hn::Repartition<std::uint64_t, Bytes> words;
    const hn::Half<decltype(words)> word;
    return hn::BitCast(bytes, hn::Combine(words, hn::Set(word, second), hn::Set(word, first)));
  } else {
    using Word = std::conditional_t<hn::MaxLanes(bytes) == 8, std::uint64_t, std::uint32_t>;
    return hn::BitCast(bytes, hn::Set(hn::CappedTag<Word, 1>(), static_cast<Word>(first)));
  }
}
HWY_INLINE IntVec codes_of(format::Q4_0, const uint8_t* block, size_t at) {
  return hn::Sub(nibbles(block + format::Q4_0::kCodesAt, at), hn::Set(Ints(), 8));
}
HWY_INLINE IntVec codes_of(format::Q4_1, const uint8_t* block, size_t at) {
  return nibbles(block + format::Q4_1::kCodesAt, at);
}
HWY_INLINE IntVec codes_of(format::Q5_0, const uint8_t* block, size_t at) {
  using F = format::Q5_0;
  const auto code = hn::Or(nibbles(block + F::kCodesAt, at), sixteens(block + F::kHighAt, at));
  return hn::Sub(code, hn::Set(Ints(), 16));
}
HWY_INLINE IntVec codes_of(format::Q5_1, const uint8_t* block, size_t at) {
  using F = format::Q5_1;
  return hn::Or(nibbles(block + F::kCodesAt, at), sixteens(block + F::kHighAt, at));
}
HWY_INLINE IntVec codes_of(format::Q8_0, const uint8_t* block, size_t at) {
  const hn::Rebind<std::int8_t, Floats> bytes;
  const auto* const from = reinterpret_cast<const std::int8_t*>(block);
  return hn::PromoteTo(Ints(), hn::LoadU(bytes, from + format::Q8_0::kCodesAt + at));
}
HWY_INLINE IntVec codes_of(format::Q2_K, const uint8_t* block, size_t at) {
  return bits_of<2>(block + format::Q2_K::kCodesAt + at / 128 * 32 + at % 32, at / 32 % 4 * 2);
}
HWY_INLINE IntVec codes_of(format::Q3_K, const uint8_t* block, size_t at) {
  using F = format::Q3_K;
  const auto low = bits_of<2>(block + F::kCodesAt + at / 128 * 32 + at % 32, at / 32 % 4 * 2);
  const auto high = bits_of<1>(block + F::kHighAt + at % 32, at / 32);
  return hn::Sub(hn::Or(low, hn::ShiftLeft<2>(high)), hn::Set(Ints(), 4));
}
HWY_INLINE IntVec codes_of(format::Q4_K, const uint8_t* block, size_t at) {
  return long_nibbles(block + format::Q4_K::kCodesAt, at);
}
HWY_INLINE IntVec codes_of(format::Q5_K, const uint8_t* block, size_t at) {
  using F = format::Q5_K;
  const auto high = bits_of<1>(block + F::kHighAt + at % 32, at / 32);
  return hn::Or(long_nibbles(block + F::kCodesAt, at), hn::ShiftLeft<4>(high));
}
HWY_INLINE IntVec codes_of(format::Q6_K, const uint8_t* block, size_t at) {
  using F = format::Q6_K;
  const auto low = bits_of<4>(block + F::kCodesAt + at / 128 * 64 + at % 64, at / 64 % 2 * 4);
  const auto high = bits_of<2>(block + F::kHighAt + at / 128 * 32 + at % 32, at / 32 % 4 * 2);
  return hn::Sub(hn::Or(low, hn::ShiftLeft<4>(high)), hn::Set(Ints(), 32));
}
HWY_INLINE IntVec codes_of(format::IQ4_NL, const uint8_t* block, size_t at) {
  return steps(format::kUnevenSteps, block + format::IQ4_NL::kCodesAt, at);
}
HWY_INLINE IntVec codes_of(format::IQ4_XS, const uint8_t* block, size_t at) {
  return steps(format::kUnevenSteps, block + format::IQ4_XS::kCodesAt + at / 32 * 16, at);
}
HWY_INLINE IntVec codes_of(format::MXFP4, const uint8_t* block, size_t at) {
  return steps(format::kDoubledE2M1, block + format::MXFP4::kCodesAt, at);
}
HWY_INLINE IntVec codes_of(format::NVFP4, const uint8_t* block, size_t at) {
  const uint8_t* const from = block + format::NVFP4::kCodesAt + at / 16 * 8;
  return steps(format::kDoubledE2M1, short_nibbles(hn::Rebind<uint8_t, Floats>(), from, at));
}
HWY_INLINE IntVec codes_of(format::F4_256, const uint8_t* block, size_t at) {
  return steps(format::kDoubledE2M1, block + format::F4_256::kCodesAt + at / 32 * 16, at % 32);
}

template <int kBits, int kElements>
HWY_INLINE IntVec codes_of(format::Integers<kBits, kElements>, const uint8_t* block, size_t at) {
  using F = format::Integers<kBits, kElements>;
  const uint8_t* const codes = block + F::kCodesAt;
  const auto q = kBits == 4 ? nibbles(codes + at / 32 * 16, at % 32) : bits_of<8>(codes + at, 0);
  return hn::Sub(q, hn::Set(Ints(), block[F::kZeroAt]));
}
/// format::grid_code, for a vector.
template <class Format>
requires(format::kIsOfGrid<Format>) HWY_INLINE IntVec
    codes_of(Format, const uint8_t* block, size_t at) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(block);
  const auto entry = [&](size_t run) {
    return kBytesOfGrid<Format>[static_cast<size_t>(Format::index(bytes, static_cast<int>(run)))];
  };
  const auto values = [&](size_t eight) -> std::uint64_t {
    if constexpr (Format::kRun == 8)
      return entry(eight);
    else
      return entry(2 * eight) | std::uint64_t{entry(2 * eight + 1)} << 32;
  };
  const auto signs = [&](size_t eight) {
    return static_cast<std::uint32_t>(Format::signs(bytes, static_cast<int>(eight)));
  };
  const size_t eight = at / 8;
  constexpr bool kTwo = kLanes == 16;
  const hn::Rebind<std::int8_t, Floats> signed_bytes;
  const IntVec value = hn::PromoteTo(
      Ints(),
      bytes_of_words(signed_bytes, values(eight) >> (at % 8 * 8), kTwo ? values(eight + 1) : 0));
  const auto negative = lanes_of(signs(eight) >> at % 8 | (kTwo ? signs(eight + 1) << 8 : 0));
  if constexpr (Format::kMoves)
    return hn::Add(value, hn::IfThenElse(negative, hn::Set(Ints(), -1), hn::Set(Ints(), 1)));
  else
    return hn::IfThenElse(negative, hn::Neg(value), value);
}

/// The entries of a table of floats by codes below 16.
HWY_INLINE Vec entries(const float (&of)[16], IntVec codes) {
  if constexpr (kLanes == 16) {
    return hn::TableLookupLanes(hn::LoadU(Floats(), of), hn::IndicesFromVec(Floats(), codes));
  } else if constexpr (kLanes == 8) {
    const auto index = hn::IndicesFromVec(Floats(), hn::And(codes, hn::Set(Ints(), 7)));
    const auto is_high = hn::RebindMask(Floats(), hn::Gt(codes, hn::Set(Ints(), 7)));
    return hn::IfThenElse(is_high, hn::TableLookupLanes(hn::LoadU(Floats(), of + 8), index),
                          hn::TableLookupLanes(hn::LoadU(Floats(), of), index));
  } else {
    return hn::GatherIndex(Floats(), of, codes);
  }
}
/// The codes of a block as floats, kLanes from `at` on.
template <class Format>
HWY_INLINE Vec float_codes(Format, const uint8_t* block, size_t at) {
  if constexpr (format::kIsOfTable<Format>)
    return entries(Format::kTable.entries,
                   nibbles(block + Format::kCodesAt + at / 32 * 16, at % 32));
  else
    return hn::ConvertTo(Floats(), codes_of(Format(), block, at));
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();
#endif  // CANOPY_KERNELS_CPU_CODES_INL
