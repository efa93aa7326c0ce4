// A format in blocks that this file alone knows: 64 codes of two bits and a scale. It is decoded,
// measured and looked up by its number, multiplied by the CPU's tiles, and expanded and multiplied
// by the CUDA kernels, through their templates. A real one adds to src/base: an enumerator in
// dtype.h, the struct and its name in a list of weight_format.h; and to src/convert: how it is
// written, in block_quant.cc. This one touched no file but this.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/toy_format_test.cc"
#include "hwy/foreach_target.h"  // before tile-inl.h
//
#include "hwy/aligned_allocator.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/unpack.h"
#include "tests/kernels/on_device.h"

#ifndef CANOPY_TESTS_TOY_FORMAT_ONCE
#define CANOPY_TESTS_TOY_FORMAT_ONCE
namespace canopy {

/// {f16 d; u2 q[64]}: d (q - 1). Byte i holds q[4 i] to q[4 i + 3], lowest bits first.
struct Toy {
  static constexpr DType kDType = static_cast<DType>(200);
  static constexpr const char *kName = "TOY", *kSafetensorsName = nullptr;
  static constexpr std::uint32_t kGgufId = 200, kGgufFileType = 200;
  static constexpr int kBlockElements = 64, kBlockBytes = 18;
  static float decode(const std::byte* block, int i) {
    const int code = std::to_integer<int>(block[2 + i / 4]) >> (i % 4 * 2) & 3;
    return format::load_f16(block) * static_cast<float>(code - 1);
  }
};

}  // namespace canopy
#endif  // CANOPY_TESTS_TOY_FORMAT_ONCE

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {

/// y [m, ld] = x [m, k] W^T with `count` rows of Toy. packed and panels: aligned.
void multiply_toy(const float* x, std::size_t m, std::size_t k, const std::byte* w,
                  std::size_t count, float* packed, float* panels, float* y) {
  for (std::size_t k0 = 0; k0 < k; k0 += kBlock) pack_block(x, m, k, k0, packed);
  const WeightRows rows = weight_rows<Toy>(reinterpret_cast<const std::uint8_t*>(w), count, k);
  products(packed, m, 0, m, rows, y, (count + kTileColumns - 1) / kTileColumns * kTileColumns,
           panels);
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy {
namespace cpu {
HWY_EXPORT(multiply_toy);
inline auto toy_multiplier() { return HWY_DYNAMIC_DISPATCH(multiply_toy); }
}  // namespace cpu
namespace {

struct Matrix {
  std::size_t rows, columns;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // by the plain definition
};
Matrix random_matrix(std::size_t rows, std::size_t columns, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  const auto row = static_cast<std::size_t>(bytes_of_row<Toy>(static_cast<std::int64_t>(columns)));
  Matrix m{rows, columns, std::vector<std::byte>(rows * row), {}};
  for (std::byte& byte : m.bytes) byte = static_cast<std::byte>(random());
  for (std::size_t at = 0; at < m.bytes.size(); at += Toy::kBlockBytes) {
    const std::uint16_t d = f16_from_f32(uniform(random));
    std::memcpy(&m.bytes[at], &d, sizeof d);
  }
  for (std::size_t j = 0; j < rows; ++j)
    for (std::size_t i = 0; i < columns; ++i)
      m.values.push_back(weight_at<Toy>(&m.bytes[j * row], static_cast<std::int64_t>(i)));
  return m;
}

/// Row i of x times row j of w, and the sum of the terms' magnitudes.
std::pair<double, double> dot(const std::vector<float>& x, std::size_t i, const Matrix& w,
                              std::size_t j) {
  double sum = 0, absolute = 0;
  for (std::size_t k = 0; k < w.columns; ++k) {
    const double term = static_cast<double>(x[i * w.columns + k]) *
                        static_cast<double>(w.values[j * w.columns + k]);
    sum += term, absolute += std::abs(term);
  }
  return {sum, absolute};
}

TEST(ToyFormat, IsReadAndFoundAsItsTraitsSay) {
  std::vector<std::byte> block(18);
  block[1] = std::byte{0x40};  // f16 2.0
  block[2] = std::byte{0b11100100};
  block[17] = std::byte{0b00000010};
  EXPECT_EQ(Toy::decode(block.data(), 0), -2.0f);
  EXPECT_EQ(Toy::decode(block.data(), 1), 0.0f);
  EXPECT_EQ(Toy::decode(block.data(), 3), 4.0f);
  EXPECT_EQ(weight_at<Toy>(block.data(), 60), 2.0f);
  EXPECT_EQ(bytes_of_row<Toy>(256), 72);
  EXPECT_TRUE(kInBlocks<Toy>);
  using Formats = decltype(WeightFormats() + format::List<Toy>());
  EXPECT_EQ(as_data(Formats()).back().block_elements, 64);
  EXPECT_EQ(visit_format(Formats(), Toy::kDType, [](auto f) { return f.kBlockBytes; }), 18);
  EXPECT_EQ(names_of(format::List<format::F32, format::F16, Toy>()), "F32, F16 and TOY");
  EXPECT_THROW(visit_format(PlainFormats(), DType::kQ8_0, [](auto) {}), Error);
}

TEST(ToyFormat, IsMultipliedByTheTilesOfEveryInstructionSet) {
  std::mt19937 random(3);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    for (const std::size_t m : {1, 5, 64})  // 64 rows of 1088 columns: panels go by from L2
      for (const std::size_t k : {64, 576, 1088}) {
        const Matrix w = random_matrix(7, k, random);
        const std::vector<float> x = random_floats(m * k, random);
        std::vector<float> y(m * 8);
        const auto packed = hwy::AllocateAligned<float>(m * k);
        const auto panels = hwy::AllocateAligned<float>(cpu::kPanelFloats);
        cpu::toy_multiplier()(x.data(), m, k, w.bytes.data(), 7, packed.get(), panels.get(),
                              y.data());
        for (std::size_t i = 0; i < m; ++i)
          for (std::size_t j = 0; j < 7; ++j) {
            const auto [sum, absolute] = dot(x, i, w, j);
            // math.md (C2)
            ASSERT_NEAR(y[i * 8 + j], sum, static_cast<double>(k + 7) * kEps * absolute);
          }
      }
  }
  hwy::SetSupportedTargetsForTest(0);
}

/// Runs a kernel of kernels/cuda here.
template <class Kernel>
void run(const Kernel& kernel, const cuda::Grid& grid) {
  for (std::int64_t index = 0; index < grid.blocks; ++index) {
    SerialBlock block(index, grid);
    kernel(block);
  }
}

TEST(ToyFormat, IsLookedUpExpandedAndMultipliedByTheCudaKernels) {
  std::mt19937 random(5);
  constexpr std::int64_t kColumns = 192, kRows = 6, kInputs = 3;
  const Matrix w = random_matrix(kRows, kColumns, random);
  cuda::Fault fault;
  const std::vector<std::int32_t> ids{5, 0};
  std::vector<float> looked_up(2 * kColumns);
  const cuda::MatrixRows<Toy> rows{w.bytes.data(), nullptr, kColumns};
  run(cuda::Embed<Toy>{rows, kRows, ids.data(), looked_up.data(), false, &fault}, {2, 64});
  EXPECT_EQ(fault.kind, cuda::Fault::kNone);
  std::vector<std::uint16_t> expanded(kRows * kColumns);
  run(cuda::Dequantize<Toy>{rows, 0, reinterpret_cast<std::byte*>(expanded.data())}, {kRows, 64});
  for (std::size_t k = 0; k < kColumns; ++k) {
    EXPECT_EQ(looked_up[k], w.values[5 * kColumns + k]);
    EXPECT_EQ(looked_up[kColumns + k], w.values[k]);
  }
  for (std::size_t i = 0; i < expanded.size(); ++i)
    EXPECT_EQ(expanded[i], f16_from_f32(w.values[i]));

  std::vector<float> x = random_floats(kInputs * kColumns, random);
  std::vector<std::uint16_t> rounded;
  for (float& value : x) {
    rounded.push_back(f16_from_f32(value));
    value = f32_from_f16(rounded.back());
  }
  std::vector<float> y(kInputs * kRows);
  using Few = cuda::FewRows<Toy, format::F16>;
  run(Few{reinterpret_cast<const std::byte*>(rounded.data()), kInputs, rows, kRows, nullptr,
          y.data(), kRows, 0, false, 1},
      {(kRows + Few::kWarps - 1) / Few::kWarps, 32 * Few::kWarps});
  for (std::size_t i = 0; i < kInputs; ++i)
    for (std::size_t j = 0; j < kRows; ++j) {
      const auto [sum, absolute] = dot(x, i, w, j);
      // A weight is d times a whole number up to 2, which F16 holds exactly.
      EXPECT_NEAR(y[i * kRows + j], sum, static_cast<double>(kColumns + 7) * kEps * absolute);
    }
}

}  // namespace
}  // namespace canopy
#endif  // HWY_ONCE
