// A codec of packed weights that this file alone knows: of each weight of 16 bits one bit says
// whether it is zero, and only the others are kept. It is unpacked and multiplied by the CPU's
// tiles and by the CUDA kernels, through their templates. A real one adds to src/base: an
// enumerator in dtype.h, a header with the struct, its name in packed_format.h; and to src/convert
// an overload of pack_row(). This one touched no file but this.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/toy_codec_test.cc"
#include "hwy/foreach_target.h"  // before tile-inl.h
//
#include "hwy/aligned_allocator.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/cuda/unpack.h"
#include "tests/kernels/on_device.h"

#ifndef CANOPY_TESTS_TOY_CODEC_ONCE
#define CANOPY_TESTS_TOY_CODEC_ONCE
namespace canopy {

/// {u32 mask[ceil(columns / 32)]; u16 value[]}: bit i of a mask says that the weight is not zero.
struct Toy : format::RowOffsets<Toy> {
  static constexpr DType kDType = static_cast<DType>(201);
  static constexpr const char *kName = "packed toy", *kCodec = "toy";
  using Plain = format::BF16;
  static constexpr int kGroupColumns = 32;
  static constexpr std::size_t fixed_bytes(std::int64_t columns) {
    return static_cast<std::size_t>((columns + 31) / 32) * 4;
  }
  static constexpr std::size_t most_bytes(std::int64_t columns) {
    return fixed_bytes(columns) + static_cast<std::size_t>((columns + 1) / 2) * 4;
  }
  static void decode_group(const StoredRow& row, std::int64_t group, std::uint16_t* out) {
    const std::byte* value = row.data + fixed_bytes(row.columns);
    const auto mask = [&](std::int64_t g) { return format::load<std::uint32_t>(row.data + 4 * g); };
    for (std::int64_t g = 0; g < group; ++g) value += 2 * format::count_ones(mask(g));
    for (int i = 0; i < kGroupColumns; ++i) {
      const bool kept = (mask(group) >> i & 1) != 0;
      out[i] = kept ? format::load<std::uint16_t>(value) : std::uint16_t{0};
      value += kept ? 2 : 0;
    }
  }
};

}  // namespace canopy
#endif  // CANOPY_TESTS_TOY_CODEC_ONCE

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {

/// y [m, ld] = x [m, k] W^T with rows [first, first + count) of W, in Toy or BF16.
void multiply(const float* x, std::size_t m, const WeightView& w, std::size_t first,
              std::size_t count, float* packed, float* panels, float* y) {
  const auto k = static_cast<std::size_t>(w.columns());
  for (std::size_t k0 = 0; k0 < k; k0 += kBlock) pack_block(x, m, k, k0, packed);
  const WeightRows rows = w.format() == DType::kBF16 ? weight_rows<format::BF16>(w, first, count)
                                                     : weight_rows<Toy>(w, first, count);
  products(packed, m, 0, m, rows, y, (count + kTileColumns - 1) / kTileColumns * kTileColumns,
           panels);
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy {
namespace cpu {
HWY_EXPORT(multiply);
inline auto multiplier() { return HWY_DYNAMIC_DISPATCH(multiply); }
}  // namespace cpu
namespace {

struct Matrix {
  std::size_t rows, columns;
  std::vector<std::uint16_t> plain;
  std::vector<std::byte> packed;
  std::vector<RowOffset> offsets{0};

  const std::byte* companion() const { return reinterpret_cast<const std::byte*>(offsets.data()); }
  WeightView as_packed() const {
    return {packed, {&kCompanionOf<Toy>, companion()}, Toy::kDType, dim(rows), dim(columns)};
  }
  WeightView as_plain() const {
    return {reinterpret_cast<const std::byte*>(plain.data()), DType::kBF16, dim(rows),
            dim(columns)};
  }
};

/// Half of its weights are zeros.
Matrix random_matrix(std::size_t rows, std::size_t columns, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  Matrix m{rows, columns, {}, {}};
  for (std::size_t i = 0; i < rows; ++i) {
    std::vector<std::uint32_t> masks((columns + 31) / 32);
    std::vector<std::uint16_t> kept;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::uint16_t bits = random() % 2 ? bf16_from_f32(uniform(random)) : 0;
      m.plain.push_back(bits);
      if (bits == 0) continue;
      masks[c / 32] |= 1u << c % 32;
      kept.push_back(bits);
    }
    for (const auto& part : {bytes_of(masks), bytes_of(kept)})
      m.packed.insert(m.packed.end(), part.begin(), part.end());
    m.packed.resize((m.packed.size() + 3) / 4 * 4);
    m.offsets.push_back(static_cast<RowOffset>(m.packed.size() / kPackedAlignment));
  }
  return m;
}

TEST(ToyCodec, IsFoundAsItsTraitsSay) {
  using Formats = decltype(PackedFormats() + format::List<Toy>());
  EXPECT_STREQ(as_data_of_packed(Formats()).back().codec, "toy");
  EXPECT_EQ(as_data_of_packed(Formats()).back().companion, &kCompanionOf<Toy>);
  EXPECT_EQ(names_of(Formats()),
            "packed BF16, packed BF16 in levels, packed FP8 by blocks, packed FP8 by rows and "
            "packed toy");
  EXPECT_TRUE(kIsPacked<Toy>);
}

TEST(ToyCodec, IsMultipliedByTheTilesOfEveryInstructionSetToTheBitsOfItsPlainForm) {
  std::mt19937 random(3);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    for (const std::size_t m : {1u, 5u, 64u})  // 64 rows of 1090 columns: panels go by from L2
      for (const std::size_t k : {33u, 576u, 1090u}) {
        const Matrix w = random_matrix(9, k, random);
        const std::vector<float> x = random_floats(m * k, random);
        std::vector<float> y(m * 8), z(m * 8);
        const auto rows = hwy::AllocateAligned<float>(m * (k + 16));
        const auto panels = hwy::AllocateAligned<float>(cpu::kPanelFloats);
        const auto product = [&](const WeightView& weights, float* out) {  // of rows 2 to 8
          cpu::multiplier()(x.data(), m, weights, 2, 7, rows.get(), panels.get(), out);
        };
        product(w.as_plain(), y.data());
        product(w.as_packed(), z.data());
        for (std::size_t i = 0; i < y.size(); ++i) {
          if (i % 8 == 7) continue;  // past the last row
          ASSERT_EQ(y[i], z[i]) << i;
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

TEST(ToyCodec, IsLookedUpAndUnpackedByTheCudaKernels) {
  std::mt19937 random(5);
  constexpr std::int64_t kColumns = 190, kRows = 6;
  const Matrix w = random_matrix(kRows, kColumns, random);
  const cuda::MatrixRows<Toy> rows{w.packed.data(), w.companion(), kColumns};
  std::vector<std::uint16_t> unpacked(4 * kColumns);
  run(cuda::UnpackRows<Toy>{rows, 2, unpacked.data()}, {4, 64});
  for (std::size_t i = 0; i < unpacked.size(); ++i)
    EXPECT_EQ(unpacked[i], w.plain[2 * kColumns + i]);
  cuda::Fault fault;
  const std::vector<std::int32_t> ids{5, 0};
  std::vector<float> looked_up(2 * kColumns);
  run(cuda::EmbedPacked<Toy>{rows, kRows, ids.data(), looked_up.data(), false, &fault}, {2, 64});
  EXPECT_EQ(fault.kind, cuda::Fault::kNone);
  for (std::size_t k = 0; k < kColumns; ++k) {
    EXPECT_EQ(looked_up[k], f32_from_bf16(w.plain[5 * kColumns + k]));
    EXPECT_EQ(looked_up[kColumns + k], f32_from_bf16(w.plain[k]));
  }
}

}  // namespace
}  // namespace canopy
#endif  // HWY_ONCE
