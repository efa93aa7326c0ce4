#pragma once
// The formats whose rows are blocks of several weights, as GGUF files have them. Their list, and
// what every format must say, stand in weight_format.h.
#include <string.h>  // memcpy by the name that nvcc and g++ share

#include <cstddef>
#include <cstdint>

#include "src/base/formats/dtype.h"
#include "src/base/formats/half.h"

#if defined(__CUDACC__)
#define CANOPY_HOST_DEVICE __host__ __device__
#else
#define CANOPY_HOST_DEVICE
#endif

namespace canopy::format {

/// A T at any address; in a GPU's memory, where weights lie at whole blocks of even sizes, at a
/// multiple of its size.
template <class T>
CANOPY_HOST_DEVICE inline T load(const std::byte* from) {
  T value;
#if defined(__CUDA_ARCH__)
  memcpy(&value, __builtin_assume_aligned(from, sizeof(T)), sizeof value);
#else
  memcpy(&value, from, sizeof value);
#endif
  return value;
}
CANOPY_HOST_DEVICE inline float load_f16(const std::byte* from) {
  return f32_from_f16(load<std::uint16_t>(from));
}

/// `count` bits of a byte, from bit `first` on.
CANOPY_HOST_DEVICE inline int bits(std::byte from, int first, int count) {
  return static_cast<int>(from) >> first & ((1 << count) - 1);
}
CANOPY_HOST_DEVICE inline int signed_byte(std::byte from) { return static_cast<std::int8_t>(from); }
/// Value i of 32 four-bit ones: byte i % 16, its low half for i < 16.
CANOPY_HOST_DEVICE inline int nibble(const std::byte* codes, int i) {
  return bits(codes[i % 16], i / 16 * 4, 4);
}
/// Value i of four-bit ones in runs of 64: of 32 bytes, all low halves, then all high ones.
CANOPY_HOST_DEVICE inline int long_nibble(const std::byte* codes, int i) {
  return bits(codes[i / 64 * 32 + i % 32], i / 32 % 2 * 4, 4);
}

/// True if the scale of a block is not simply the f16 at kScaleAt.
template <class Format>
inline constexpr bool kHasOwnScale = requires(const std::byte* block) {
  Format::scale(block);
};
/// Scale of a block.
template <class Format>
CANOPY_HOST_DEVICE inline float scale_of(const std::byte* block) {
  if constexpr (kHasOwnScale<Format>)
    return Format::scale(block);
  else
    return load_f16(block + Format::kScaleAt);
}

/// Element i of a block of groups: scale x code, plus the minimum where the format has one. All
/// parts but the scale d and the minimum m are whole numbers of few bits and their products with an
/// f16 or a power of two are exact in f32, so that fused or not, the sum is rounded once and has
/// the same bits. A code of a table is a float, and its product with the scale is rounded once.
template <class Format>
CANOPY_HOST_DEVICE inline float element_of_group(const std::byte* block, int i) {
  const int group = i / Format::kGroupElements;
  const float product = scale_of<Format>(block) *
                        static_cast<float>(Format::group_scale(block, group)) *
                        static_cast<float>(Format::code(block, i));
  if constexpr (Format::kMinimumAt < 0)
    return product;
  else
    return product + load_f16(block + Format::kMinimumAt) *
                         static_cast<float>(Format::group_minimum(block, group));
}

/// Members that formats in blocks of one group of 32 share.
struct OneGroup {
  static constexpr const char* kSafetensorsName = nullptr;
  static constexpr int kBlockElements = 32, kGroupElements = 32;
  CANOPY_HOST_DEVICE static int group_scale(const std::byte*, int) { return 1; }
  CANOPY_HOST_DEVICE static int group_minimum(const std::byte*, int) { return 1; }
};
/// Members that formats in blocks of 256 weights share. Their groups have scales of their own.
template <int kElements>
struct Groups {
  static constexpr const char* kSafetensorsName = nullptr;
  static constexpr int kBlockElements = 256, kGroupElements = kElements;
};

/// {f16 d; u4 q[32]}: d (q - 8). Byte i holds q[i] in its low and q[16 + i] in its high half.
struct Q4_0 : OneGroup {
  static constexpr DType kDType = DType::kQ4_0;
  static constexpr const char* kName = "Q4_0";
  static constexpr std::uint32_t kGgufId = 2, kGgufFileType = 2;
  static constexpr int kBlockBytes = 18, kScaleAt = 0, kMinimumAt = -1, kCodesAt = 2;
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return nibble(block + kCodesAt, i) - 8;
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q4_0>(block, i);
  }
};

/// {f16 d; f16 m; u4 q[32]}: d q + m, the codes as Q4_0 has them.
struct Q4_1 : OneGroup {
  static constexpr DType kDType = DType::kQ4_1;
  static constexpr const char* kName = "Q4_1";
  static constexpr std::uint32_t kGgufId = 3, kGgufFileType = 3;
  static constexpr int kBlockBytes = 20, kScaleAt = 0, kMinimumAt = 2, kCodesAt = 4;
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return nibble(block + kCodesAt, i);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q4_1>(block, i);
  }
};

/// {f16 d; u1 h[32]; u4 q[32]}: d (q + 16 h - 16). Bit i of the four bytes h belongs to weight i;
/// the codes lie as Q4_0 has them.
struct Q5_0 : OneGroup {
  static constexpr DType kDType = DType::kQ5_0;
  static constexpr const char* kName = "Q5_0";
  static constexpr std::uint32_t kGgufId = 6, kGgufFileType = 8;
  static constexpr int kBlockBytes = 22, kScaleAt = 0, kMinimumAt = -1, kHighAt = 2, kCodesAt = 6;
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return (nibble(block + kCodesAt, i) | bits(block[kHighAt + i / 8], i % 8, 1) << 4) - 16;
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q5_0>(block, i);
  }
};

/// {f16 d; f16 m; u1 h[32]; u4 q[32]}: d (q + 16 h) + m, the bits as Q5_0 has them.
struct Q5_1 : OneGroup {
  static constexpr DType kDType = DType::kQ5_1;
  static constexpr const char* kName = "Q5_1";
  static constexpr std::uint32_t kGgufId = 7, kGgufFileType = 9;
  static constexpr int kBlockBytes = 24, kScaleAt = 0, kMinimumAt = 2, kHighAt = 4, kCodesAt = 8;
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return nibble(block + kCodesAt, i) | bits(block[kHighAt + i / 8], i % 8, 1) << 4;
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q5_1>(block, i);
  }
};

/// {f16 d; i8 q[32]}: d q.
struct Q8_0 : OneGroup {
  static constexpr DType kDType = DType::kQ8_0;
  static constexpr const char* kName = "Q8_0";
  static constexpr std::uint32_t kGgufId = 8, kGgufFileType = 7;
  static constexpr int kBlockBytes = 34, kScaleAt = 0, kMinimumAt = -1, kCodesAt = 2;
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return signed_byte(block[kCodesAt + i]);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q8_0>(block, i);
  }
};

/// {u4 s[16], m[16]; u2 q[256]; f16 d; f16 dmin}: d s q - dmin m, groups of 16. Byte j of the first
/// 16 holds s[j] in its low and m[j] in its high half. Weight i of a half of 128 has the bits
/// 2 (i / 32) and the next of byte i % 32.
struct Q2_K : Groups<16> {
  static constexpr DType kDType = DType::kQ2_K;
  static constexpr const char* kName = "Q2_K";
  static constexpr std::uint32_t kGgufId = 10, kGgufFileType = 10;
  static constexpr int kBlockBytes = 84, kScaleAt = 80, kMinimumAt = 82, kCodesAt = 16;
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return bits(block[group], 0, 4);
  }
  CANOPY_HOST_DEVICE static int group_minimum(const std::byte* block, int group) {
    return -bits(block[group], 4, 4);
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return bits(block[kCodesAt + i / 128 * 32 + i % 32], i / 32 % 4 * 2, 2);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q2_K>(block, i);
  }
};

/// {u1 h[256]; u2 q[256]; u6 s[16]; f16 d}: d (s - 32) (q + 4 h - 4), groups of 16. Weight i has
/// bit i / 32 of byte i % 32 of h; q lies as Q2_K has it. The low four bits of s[j] are a half of
/// byte j % 8, the high two are bits 2 (j / 4) and the next of byte 8 + j % 4.
struct Q3_K : Groups<16> {
  static constexpr DType kDType = DType::kQ3_K;
  static constexpr const char* kName = "Q3_K";
  static constexpr std::uint32_t kGgufId = 11, kGgufFileType = 11;
  static constexpr int kBlockBytes = 110, kScaleAt = 108, kMinimumAt = -1;
  static constexpr int kHighAt = 0, kCodesAt = 32, kGroupsAt = 96;
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    const std::byte* const scales = block + kGroupsAt;
    return (bits(scales[group % 8], group / 8 * 4, 4) |
            bits(scales[8 + group % 4], group / 4 * 2, 2) << 4) -
           32;
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return (bits(block[kCodesAt + i / 128 * 32 + i % 32], i / 32 % 4 * 2, 2) |
            bits(block[kHighAt + i % 32], i / 32, 1) << 2) -
           4;
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q3_K>(block, i);
  }
};

/// The beginning of a block of Q4_K or Q5_K: {f16 d; f16 dmin; u6 s[8], m[8]}. The first four s,
/// then the first four m, are the low six bits of the twelve bytes' first eight. The others have
/// their low four bits in the last four bytes, s below m, and their high two where the first eight
/// have room.
struct SixBitScales : Groups<32> {
  static constexpr int kScaleAt = 0, kMinimumAt = 2, kGroupsAt = 4;
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    const std::byte* const at = block + kGroupsAt;
    return group < 4 ? bits(at[group], 0, 6)
                     : bits(at[group + 4], 0, 4) | bits(at[group - 4], 6, 2) << 4;
  }
  CANOPY_HOST_DEVICE static int group_minimum(const std::byte* block, int group) {
    const std::byte* const at = block + kGroupsAt;
    return group < 4 ? -bits(at[group + 4], 0, 6)
                     : -(bits(at[group + 4], 4, 4) | bits(at[group], 6, 2) << 4);
  }
};

/// {f16 d; f16 dmin; u6 s[8], m[8]; u4 q[256]}: d s q - dmin m, groups of 32.
struct Q4_K : SixBitScales {
  static constexpr DType kDType = DType::kQ4_K;
  static constexpr const char* kName = "Q4_K";
  static constexpr std::uint32_t kGgufId = 12, kGgufFileType = 14;
  static constexpr int kBlockBytes = 144, kCodesAt = 16;
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return long_nibble(block + kCodesAt, i);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q4_K>(block, i);
  }
};

/// {f16 d; f16 dmin; u6 s[8], m[8]; u1 h[256]; u4 q[256]}: d s (q + 16 h) - dmin m, groups of 32.
/// Weight i has bit i / 32 of byte i % 32 of h.
struct Q5_K : SixBitScales {
  static constexpr DType kDType = DType::kQ5_K;
  static constexpr const char* kName = "Q5_K";
  static constexpr std::uint32_t kGgufId = 13, kGgufFileType = 16;
  static constexpr int kBlockBytes = 176, kHighAt = 16, kCodesAt = 48;
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return long_nibble(block + kCodesAt, i) | bits(block[kHighAt + i % 32], i / 32, 1) << 4;
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q5_K>(block, i);
  }
};

/// {u4 q[256]; u2 h[256]; i8 s[16]; f16 d}: d s (q + 16 h - 32), groups of 16. Weight i of a half
/// of 128 has half i / 64 of byte i % 64 of q, and the bits 2 (i / 32) and the next of byte i % 32
/// of h.
struct Q6_K : Groups<16> {
  static constexpr DType kDType = DType::kQ6_K;
  static constexpr const char* kName = "Q6_K";
  static constexpr std::uint32_t kGgufId = 14, kGgufFileType = 18;
  static constexpr int kBlockBytes = 210, kScaleAt = 208, kMinimumAt = -1;
  static constexpr int kCodesAt = 0, kHighAt = 128, kGroupsAt = 192;
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return signed_byte(block[kGroupsAt + group]);
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return (bits(block[kCodesAt + i / 128 * 64 + i % 64], i / 64 % 2 * 4, 4) |
            bits(block[kHighAt + i / 128 * 32 + i % 32], i / 32 % 4 * 2, 2) << 4) -
           32;
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<Q6_K>(block, i);
  }
};

/// The sixteen values of four-bit codes whose steps grow outwards, eight bytes a word.
inline constexpr std::int8_t kUnevenSteps[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};
constexpr std::uint64_t eight_steps(int first) {
  std::uint64_t word = 0;
  for (int i = 0; i < 8; ++i)
    word |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(kUnevenSteps[first + i]))
            << (8 * i);
  return word;
}
CANOPY_HOST_DEVICE inline int uneven_step(int code) {
  constexpr std::uint64_t kLow = eight_steps(0), kHigh = eight_steps(8);
  return static_cast<std::int8_t>((code < 8 ? kLow : kHigh) >> (code % 8 * 8) & 255u);
}

/// {f16 d; u4 q[32]}: d step(q), the codes as Q4_0 has them.
struct IQ4_NL : OneGroup {
  static constexpr DType kDType = DType::kIQ4_NL;
  static constexpr const char* kName = "IQ4_NL";
  static constexpr std::uint32_t kGgufId = 20, kGgufFileType = 25;
  static constexpr int kBlockBytes = 18, kScaleAt = 0, kMinimumAt = -1, kCodesAt = 2;
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return uneven_step(nibble(block + kCodesAt, i));
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<IQ4_NL>(block, i);
  }
};

/// {f16 d; u2 h[8]; u4 l[8]; u4 q[256]}: d (l + 16 h - 32) step(q), groups of 32 whose codes lie as
/// Q4_0 has them. l[j] is a half of byte j / 2, the low one for even j.
struct IQ4_XS : Groups<32> {
  static constexpr DType kDType = DType::kIQ4_XS;
  static constexpr const char* kName = "IQ4_XS";
  static constexpr std::uint32_t kGgufId = 23, kGgufFileType = 30;
  static constexpr int kBlockBytes = 136, kScaleAt = 0, kMinimumAt = -1;
  static constexpr int kHighAt = 2, kGroupsAt = 4, kCodesAt = 8;
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return (bits(block[kGroupsAt + group / 2], group % 2 * 4, 4) |
            bits(block[kHighAt + group / 4], group % 4 * 2, 2) << 4) -
           32;
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return uneven_step(nibble(block + kCodesAt + i / 32 * 16, i % 32));
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<IQ4_XS>(block, i);
  }
};

/// Twice the sixteen numbers of E2M1: a sign, two bits of exponent, one of mantissa; eight bytes a
/// word. Code 8 is -0 there and 0 here, which no sum shows.
inline constexpr std::int8_t kDoubledE2M1[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                 0, -1, -2, -3, -4, -6, -8, -12};
CANOPY_HOST_DEVICE inline int doubled_e2m1(int code) {
  constexpr std::uint64_t kMagnitudes = 0x0c08060403020100u;
  const int magnitude = static_cast<int>(kMagnitudes >> (code % 8 * 8) & 255u);
  return code < 8 ? magnitude : -magnitude;
}

/// {u8 e; u4 q[32]}: 2^(e - 128) times twice E2M1(q), the codes as Q4_0 has them.
struct MXFP4 : OneGroup {
  static constexpr DType kDType = DType::kMXFP4;
  static constexpr const char* kName = "MXFP4";
  static constexpr std::uint32_t kGgufId = 39, kGgufFileType = 38;
  static constexpr int kBlockBytes = 17, kScaleAt = 0, kMinimumAt = -1, kCodesAt = 1;
  /// Gives 2^(e - 128), as ggml reads it, for 255 too.
  CANOPY_HOST_DEVICE static float scale(const std::byte* block) {
    const auto e = static_cast<std::uint32_t>(block[kScaleAt]);
    const std::uint32_t word = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    float scale;
    memcpy(&scale, &word, sizeof scale);
    return scale;
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return doubled_e2m1(nibble(block + kCodesAt, i));
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<MXFP4>(block, i);
  }
};

/// {e4m3 s[4]; u4 q[64]}: s / 2 times twice E2M1(q), groups of 16 whose codes have 8 bytes: byte i
/// holds q[i] in its low and q[8 + i] in its high half. The first bit of s is none of its value,
/// and 127 stands for 0. Here s is a whole number of 2^-9.
struct NVFP4 : Groups<16> {
  static constexpr DType kDType = DType::kNVFP4;
  static constexpr const char* kName = "NVFP4";
  static constexpr std::uint32_t kGgufId = 40, kGgufFileType = 39;
  static constexpr int kBlockElements = 64, kBlockBytes = 36, kMinimumAt = -1, kCodesAt = 4;
  CANOPY_HOST_DEVICE static float scale(const std::byte*) { return 0x1p-10f; }
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return whole_scale(bits(block[group], 0, 8));
  }
  CANOPY_HOST_DEVICE static int whole_scale(int byte) {
    if (byte == 127) return 0;
    const int exponent = byte >> 3 & 15, fraction = byte & 7;
    return exponent == 0 ? fraction : (8 + fraction) << (exponent - 1);
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return doubled_e2m1(bits(block[kCodesAt + i / 16 * 8 + i % 8], i / 8 % 2 * 4, 4));
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<NVFP4>(block, i);
  }
};

}  // namespace canopy::format
