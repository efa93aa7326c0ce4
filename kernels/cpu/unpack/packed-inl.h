// Packed weights become BF16, or codes of FP8, by vectors, compiled once per instruction set by
// each file that includes it after hwy/foreach_target.h. Loads take any address.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "src/base/formats/packed_format.h"

#ifndef CANOPY_KERNELS_CPU_PACKED_ONCE
#define CANOPY_KERNELS_CPU_PACKED_ONCE
namespace canopy::cpu {

constexpr std::size_t kBlock = 512;  // columns per block: part of what defines a sum's bits
constexpr int kE4M3ExponentAt = 3;   // its lowest bit in a code of FP8

}  // namespace canopy::cpu
#endif  // CANOPY_KERNELS_CPU_PACKED_ONCE

#if defined(CANOPY_KERNELS_CPU_PACKED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef CANOPY_KERNELS_CPU_PACKED_INL
#else
#define CANOPY_KERNELS_CPU_PACKED_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using std::size_t;
using std::uint8_t;

/// The plain format's bits of a packed row, columns [k0, k0 + kBlock), as far as it has them, in
/// whole groups. A format without a faster way below goes by its plain definition.
template <class Format>
struct PackedVectors {
  static_assert(kBlock % Format::kGroupColumns == 0);
  static void unpack(const StoredRow& row, size_t k0, typename Format::Plain::Element* out) {
    const size_t end = std::min(k0 + kBlock, static_cast<size_t>(row.columns));
    for (size_t k = k0; k < end; k += Format::kGroupColumns, out += Format::kGroupColumns)
      Format::decode_group(row, static_cast<std::int64_t>(k / Format::kGroupColumns), out);
  }
};

/// The bits of `yes` where `mask` has ones, else those of `no`.
template <class V>
HWY_INLINE V select_bits(V mask, V yes, V no) {
#if HWY_TARGET <= HWY_AVX3  // one instruction there; elsewhere it goes by whole lanes
  return hn::IfVecThenElse(mask, yes, no);
#else
  return hn::Or(hn::And(mask, yes), hn::AndNot(mask, no));
#endif
}

/// BF16 weights from the bytes of their exponents and of what else they have, in the order of their
/// places: those of the lower halves of sixteens to `low`, those of the upper halves to `high`.
template <class Bytes, class V = hn::Vec<Bytes>>
HWY_INLINE void store_bf16(Bytes bytes, V exponent, V rest, std::uint16_t* low,
                           std::uint16_t* high) {
  const hn::Repartition<std::uint16_t, Bytes> words;
  const V sign = hn::Set(bytes, 0x80);
  const auto shifted_up = hn::BitCast(bytes, hn::ShiftLeft<7>(hn::BitCast(words, exponent)));
  const auto shifted_down = hn::BitCast(bytes, hn::ShiftRight<1>(hn::BitCast(words, exponent)));
  const V first = select_bits(sign, shifted_up, rest);
  const V second = select_bits(sign, rest, shifted_down);
  hn::StoreU(hn::BitCast(words, hn::InterleaveLower(bytes, first, second)), words, low);
  hn::StoreU(hn::BitCast(words, hn::InterleaveUpper(bytes, first, second)), words, high);
}

#if HWY_TARGET == HWY_AVX3_DL  // has an instruction that puts the exceptions in their places
using PackedBytes = hn::Full512<uint8_t>;
#else
using PackedBytes = hn::CappedTag<uint8_t, 32>;
#endif
using PackedVec = hn::Vec<PackedBytes>;

/// The codes of a sound block of PackedBF16, and their exponents: a code is added to `start`, and
/// the sum handed to exponent().
struct WindowCodes {
  using Format = format::PackedBF16;
  const Format::Block& block;
  const std::byte* exceptions;

  explicit WindowCodes(const StoredRow&, const Format::Block& of)
      : block(of), exceptions(of.sound ? of.tail : nullptr) {}
  HWY_INLINE const uint8_t* planes(size_t g) const {
    return reinterpret_cast<const uint8_t*>(block.group) + g * Format::kGroupBytes;
  }
  HWY_INLINE std::uint64_t exceptions_in(size_t g) const {
    return Format::exceptions_in(block.group + g * Format::kGroupBytes);
  }
  HWY_INLINE PackedVec start() const {
    return hn::Set(PackedBytes(), static_cast<uint8_t>(block.base));
  }
  static HWY_INLINE PackedVec exponent(PackedVec sum) { return sum; }
};

/// The same of a format in levels, read from the block's tail. Exponents of FP8 are where a code
/// has them.
template <class Format>
struct LevelCodes {
  static constexpr size_t kGroups = Format::kBlockGroups;
  static constexpr int kShift = kPacksFp8<Format> ? kE4M3ExponentAt : 0;
  typename Format::template Codes<std::uint64_t> codes[kGroups];
  const std::byte* exceptions;
  const std::byte *exceptions_end, *row_end;  // where bits are spread by an instruction
  HWY_ALIGN uint8_t table[16];                // exponents by code; vectors look bytes up in sixteen

  HWY_INLINE explicit LevelCodes(const StoredRow& row, const typename Format::Block& block)
      : exceptions(read(row, block)) {
    for (std::uint32_t code = 0; code < 8; ++code)
      table[code] = table[code + 8] =
          static_cast<uint8_t>(Format::exponent(block.base, code) << kShift);
  }
  HWY_INLINE const uint8_t* planes(size_t g) const {
    return reinterpret_cast<const uint8_t*>(codes[g].plane);
  }
  HWY_INLINE std::uint64_t exceptions_in(size_t g) const { return codes[g].exceptions; }
  static HWY_INLINE PackedVec start() { return hn::Zero(PackedBytes()); }
  HWY_INLINE PackedVec exponent(PackedVec sum) const {
    return hn::TableLookupBytes(hn::LoadDup128(PackedBytes(), table), sum);
  }

 private:
  /// Does what Format::read_codes() does.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // has an instruction that spreads bits over a mask
  HWY_INLINE const std::byte* read(const StoredRow& row, const typename Format::Block& block) {
    std::uint64_t low[kGroups], high[kGroups], before[kGroups], open[kGroups][Format::kLevels];
    for (size_t g = 0; g < kGroups; ++g) {
      const std::byte* const from = block.group + g * Format::kGroupBytes;
      const bool there = g < static_cast<size_t>(block.groups);
      low[g] = there ? format::load_u64(from) : 0;
      high[g] = there ? format::load_u64(from + 8) : 0;
      before[g] = low[g] & high[g];
    }
    // Bits are read before it is known that the tail has them, but only from the row.
    const auto begin = static_cast<size_t>(block.tail - row.data);
    size_t bit = 8 * begin;
    for (size_t level = 0; level < size_t{Format::kLevels}; ++level)
      for (size_t g = 0; g < kGroups; ++g) {
        const auto count = static_cast<size_t>(std::popcount(before[g]));
        open[g][level] = _pdep_u64(bits_of(row, bit, count), before[g]);
        bit += count;
        before[g] = open[g][level];
      }
    size_t left = 0;
    for (size_t g = 0; g < kGroups; ++g) {
      codes[g] = Format::codes_of(low[g], high[g], open[g]);
      left += Format::exception_bytes(std::popcount(before[g]));
    }
    const size_t levels = (bit + 7) / 8 - begin;
    const bool sound = block.sound && Format::fills_tail(block, levels + left);
    exceptions_end = block.tail + levels + left;
    row_end = row.data + row.bytes;
    return sound ? block.tail + levels : nullptr;
  }
  /// Bits from `bit` of the row on, `count` of them at least; those past its end are zeros.
  static HWY_INLINE std::uint64_t bits_of(const StoredRow& row, size_t bit, size_t count) {
    constexpr size_t kSurely = 57;  // that eight bytes have from any of the first one's bits on
    if (bit / 8 + 8 <= row.bytes && count <= kSurely)
      return format::load_u64(row.data + bit / 8) >> bit % 8;
    return bits_in_nine(row, bit);
  }
  static HWY_NOINLINE std::uint64_t bits_in_nine(const StoredRow& row, size_t bit) {
    std::uint64_t words[2] = {};
    const size_t at = std::min(bit / 8, row.bytes);
    std::memcpy(words, row.data + at, std::min(size_t{9}, row.bytes - at));
    return words[0] >> bit % 8 | words[1] << 1 << (63 - bit % 8);
  }
#else
  const std::byte* read(const StoredRow&, const typename Format::Block& block) {
    return Format::read_codes(block, codes);
  }
#endif
};

/// Bytes of codes by their bits, kGroupColumns in three words: those of PackedBytes from `i` on.
template <class Codes>
HWY_INLINE PackedVec exponents_at(const Codes& codes, size_t g, size_t i) {
  const PackedBytes bytes;
  const uint8_t* const planes = codes.planes(g) + i / 8;
#if HWY_TARGET == HWY_AVX3_DL
  const auto add = [&](__m512i sum, size_t bit) HWY_ATTR {
    const auto mask = format::load_u64(reinterpret_cast<const std::byte*>(planes + 8 * bit));
    return _mm512_mask_add_epi8(sum, mask, sum, _mm512_set1_epi8(static_cast<char>(1 << bit)));
  };
  return codes.exponent(PackedVec{add(add(add(codes.start().raw, 0), 1), 2)});
#else
  const auto add = [&](PackedVec sum, size_t bit) HWY_ATTR {
    const auto mask = hn::LoadMaskBits(bytes, planes + 8 * bit);
    return hn::Add(sum, hn::IfThenElseZero(mask, hn::Set(bytes, uint8_t(1u << bit))));
  };
  return codes.exponent(add(add(add(codes.start(), 0), 1), 2));
#endif
}

/// Bytes of a group after its codes: signs and mantissas.
template <class Format>
HWY_INLINE const uint8_t* rest_of(const typename Format::Block& block, size_t g) {
  return reinterpret_cast<const uint8_t*>(block.group) + g * Format::kGroupBytes +
         Format::kCodeBytes;
}

/// Writes a sound block of BF16.
template <class Format, class Codes>
HWY_INLINE void unpack_block(const typename Format::Block& block, const Codes& codes,
                             std::uint16_t* out) {
  constexpr size_t kColumns = Format::kGroupColumns;
  const PackedBytes bytes;
  const auto* exceptions = reinterpret_cast<const uint8_t*>(codes.exceptions);
  const auto groups = static_cast<size_t>(block.groups);
#if HWY_TARGET == HWY_AVX3_DL
  for (size_t g = 0; g < groups; ++g, out += kColumns) {
    const std::uint64_t others = codes.exceptions_in(g);
    const __m512i exponent =
        _mm512_mask_expandloadu_epi8(exponents_at(codes, g, 0).raw, others, exceptions);
    exceptions += std::popcount(others);
    store_bf16(bytes, PackedVec{exponent}, hn::LoadU(bytes, rest_of<Format>(block, g)), out,
               out + kColumns / 2);
  }
#else
  constexpr size_t kStep = hn::MaxLanes(PackedBytes());
  // All exponents first: a vector's load that follows a store to one of its bytes waits for it.
  HWY_ALIGN uint8_t exponents[kBlock];
  for (size_t g = 0; g < groups; ++g) {
    uint8_t* const to = exponents + g * kColumns;
    for (size_t i = 0; i < kColumns; i += kStep)
      hn::Store(exponents_at(codes, g, i), bytes, to + i);
    std::uint64_t others = codes.exceptions_in(g);
    for (; others != 0; others &= others - 1) to[std::countr_zero(others)] = *exceptions++;
  }
  for (size_t g = 0; g < groups; ++g)
    for (size_t i = 0; i < kColumns; i += kStep) {
      std::uint16_t* const low = out + g * kColumns + i / 2;
      store_bf16(bytes, hn::Load(bytes, exponents + g * kColumns + i),
                 hn::LoadU(bytes, rest_of<Format>(block, g) + i), low, low + kColumns / 2);
    }
#endif
}

/// By nibble of a group's rest, the sign and the mantissa where a code has them.
alignas(16) constexpr uint8_t kE4M3Rest[16] = {0,    1,    2,    3,    4,    5,    6,    7,
                                               0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && HWY_TARGET != HWY_AVX3_DL
constexpr size_t kNibblesRead = 9;  // bytes that spread_nibbles() may read after the last one

/// The nibbles at `from`, in turn, xor `instead`, for each bit of `places` that is set; zero for
/// the others: four words of sixteen nibbles, the first, the third, the second and the fourth.
HWY_INLINE PackedVec spread_nibbles(const uint8_t* from, std::uint64_t places, unsigned instead) {
  constexpr std::uint64_t kEach = 0x1111111111111111u;
  std::uint64_t words[4];
  size_t count = 0;
#pragma GCC unroll 4
  for (std::uint64_t& word : words) {
    const std::uint64_t ones = _pdep_u64(places, kEach);  // of the lower sixteen
    const size_t shift = count % 2 * 4;
    const std::uint64_t next =
        format::load_u64(reinterpret_cast<const std::byte*>(from + count / 2)) >> shift |
        std::uint64_t{from[count / 2 + 8]} << 1 << (63 - shift);
    word = _pdep_u64(next, ones * 15) ^ ones * instead;
    count += static_cast<size_t>(std::popcount(places & 0xffff));
    places >>= 16;
  }
  const auto word = [&](size_t i) { return static_cast<long long>(words[i]); };
  return PackedVec{_mm256_set_epi64x(word(3), word(1), word(2), word(0))};
}
#endif

/// Writes a sound block of FP8.
template <class Format, class Codes>
requires(kPacksFp8<Format>) HWY_INLINE
    void unpack_block(const typename Format::Block& block, const Codes& codes, uint8_t* out) {
  constexpr size_t kColumns = Format::kGroupColumns, kHalf = kColumns / 2;
  const PackedBytes bytes;
  const auto* exceptions = reinterpret_cast<const uint8_t*>(codes.exceptions);
  const auto groups = static_cast<size_t>(block.groups);
  const auto rests = hn::LoadDup128(bytes, kE4M3Rest);
#if HWY_TARGET == HWY_AVX3_DL
  const __m256i nibble = _mm256_set1_epi8(0x0f);
  for (size_t g = 0; g < groups; ++g, out += kColumns) {
    const std::uint64_t others = codes.exceptions_in(g);
    const size_t there = Format::exception_bytes(std::popcount(others));
    const auto mask = static_cast<__mmask32>((std::uint64_t{1} << there) - 1);
    const __m512i twos = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, exceptions));
    const __m512i ones = _mm512_and_si512(_mm512_or_si512(twos, _mm512_slli_epi16(twos, 4)),
                                          _mm512_set1_epi16(0x0f0f));
    exceptions += there;
    const __m512i exponent = _mm512_mask_expand_epi8(exponents_at(codes, g, 0).raw, others,
                                                     _mm512_slli_epi16(ones, kE4M3ExponentAt));
    const __m256i two =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rest_of<Format>(block, g)));
    const __m512i rest = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_and_si256(two, nibble)),
                                            _mm256_and_si256(_mm256_srli_epi16(two, 4), nibble), 1);
    hn::StoreU(hn::Or(PackedVec{exponent}, hn::TableLookupBytes(rests, PackedVec{rest})), bytes,
               out);
  }
#else
  constexpr size_t kStep = hn::MaxLanes(PackedBytes());
  const hn::Repartition<std::uint16_t, PackedBytes> words;
  const auto nibble = hn::Set(bytes, 0x0f);
  const auto upper = [&](PackedVec two) HWY_ATTR {
    return hn::And(hn::BitCast(bytes, hn::ShiftRight<4>(hn::BitCast(words, two))), nibble);
  };
  const auto put = [&](PackedVec exponent, PackedVec nibbles, size_t to) HWY_ATTR {
    hn::StoreU(hn::Or(exponent, hn::TableLookupBytes(rests, nibbles)), bytes, out + to);
  };
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  static_assert(Format::kLevels == 2);
  constexpr size_t kLastOpen = 4;  // the code of a weight that both levels leave open
  uint8_t copy[kBlock / 2 + Format::kBlockGroups + kNibblesRead];
  if (static_cast<size_t>(codes.row_end - codes.exceptions_end) < kNibblesRead) {
    const auto count = static_cast<size_t>(codes.exceptions_end - codes.exceptions);
    std::memcpy(copy, exceptions, count);
    std::memset(copy + count, 0, kNibblesRead);
    exceptions = copy;
  }
  for (size_t g = 0; g < groups; ++g, out += kColumns) {
    const std::uint64_t others = codes.exceptions_in(g);
    const PackedVec change =
        spread_nibbles(exceptions, others, codes.table[kLastOpen] >> kE4M3ExponentAt);
    exceptions += Format::exception_bytes(std::popcount(others));
    const auto exponent = [&](size_t i, PackedVec changes) HWY_ATTR {
      const auto shifted = hn::ShiftLeft<kE4M3ExponentAt>(hn::BitCast(words, changes));
      return hn::Xor(exponents_at(codes, g, i), hn::BitCast(bytes, shifted));
    };
    const PackedVec even = hn::And(change, nibble), odd = upper(change);
    const auto two = hn::LoadU(bytes, rest_of<Format>(block, g));
    put(exponent(0, hn::InterleaveLower(bytes, even, odd)), hn::And(two, nibble), 0);
    put(exponent(kStep, hn::InterleaveUpper(bytes, even, odd)), upper(two), kHalf);
  }
#else
  HWY_ALIGN uint8_t exponents[kBlock];  // all of them first, as those of BF16
  for (size_t g = 0; g < groups; ++g) {
    uint8_t* const to = exponents + g * kColumns;
    for (size_t i = 0; i < kColumns; i += kStep)
      hn::Store(exponents_at(codes, g, i), bytes, to + i);
    int exception = 0;
    for (std::uint64_t others = codes.exceptions_in(g); others != 0; others &= others - 1) {
      const int two = exceptions[exception / 2] >> exception % 2 * 4;
      to[std::countr_zero(others)] = static_cast<uint8_t>((two & 15) << kE4M3ExponentAt);
      ++exception;
    }
    exceptions += Format::exception_bytes(exception);
  }
  for (size_t g = 0; g < groups; ++g)
    for (size_t i = 0; i < kHalf; i += kStep) {
      const auto two = hn::LoadU(bytes, rest_of<Format>(block, g) + i);
      const size_t at = g * kColumns + i;
      put(hn::Load(bytes, exponents + at), hn::And(two, nibble), at);
      put(hn::Load(bytes, exponents + at + kHalf), upper(two), at + kHalf);
    }
#endif
#endif
}

template <class Format, class Codes>
struct VectorsOfBlocks {
  static_assert(kBlock == Format::kBlockColumns);
  static HWY_INLINE void unpack(const StoredRow& row, size_t k0,
                                typename Format::Plain::Element* out) {
    const auto block = Format::block(row, static_cast<std::int64_t>(k0 / kBlock));
    const Codes codes(row, block);
    if (codes.exceptions != nullptr)
      unpack_block<Format>(block, codes, out);
    else
      std::fill_n(out, block.groups * Format::kGroupColumns, Format::kNotANumber);
  }
};
template <>
struct PackedVectors<format::PackedBF16> : VectorsOfBlocks<format::PackedBF16, WindowCodes> {};
template <class Format>
requires(requires { Format::kLevels; }) struct PackedVectors<Format>
    : VectorsOfBlocks<Format, LevelCodes<Format>> {
};

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();
#endif  // CANOPY_KERNELS_CPU_PACKED_INL
