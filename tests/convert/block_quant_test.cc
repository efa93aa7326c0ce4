#include "src/convert/quantize/block_quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/formats/half.h"
#include "src/base/formats/weight_format.h"
#include "src/convert/weight_rows.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

constexpr std::size_t kBlock = 32;

std::vector<float> there_and_back(DType type, const std::vector<float>& row) {
  std::vector<std::byte> bytes(row_bytes(type, static_cast<std::int64_t>(row.size())));
  quantize_row(type, row, bytes);
  std::vector<float> back(row.size());
  dequantize_row(type, bytes.data(), back);
  return back;
}

double error_of(const std::vector<float>& row, const std::vector<float>& back) {
  double sum = 0;
  for (std::size_t i = 0; i < row.size(); ++i)
    sum += std::pow(static_cast<double>(row[i]) - static_cast<double>(back[i]), 2);
  return sum;
}

/// Blocks of several kinds: normal, one-sided, with an outlier, nearly constant.
std::vector<float> block(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> x(kBlock);
  for (float& value : x) value = normal(random);
  if (seed % 4 == 1)
    for (float& value : x) value = std::abs(value);
  if (seed % 4 == 2) x[random() % kBlock] *= 10;
  if (seed % 4 == 3)
    for (float& value : x) value = 1 + value / 100;
  return x;
}

/// Eight of them, of one kind.
std::vector<float> blocks(std::uint64_t seed) {
  std::vector<float> x;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::vector<float> next = block(seed + 4000 * i);
    x.insert(x.end(), next.begin(), next.end());
  }
  return x;
}

/// The usual quantisation: the range alone decides.
std::vector<float> plain(DType type, const std::vector<float>& x) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float extreme = std::abs(*low) > std::abs(*high) ? *low : *high;
  const bool offset = type == DType::kQ4_1;
  const float least = offset ? 0 : type == DType::kQ5_0 ? -16 : -8, most = offset ? 15 : -least - 1;
  const float scale = f32_from_f16(f16_from_f32(offset ? (*high - *low) / 15 : extreme / least));
  const float minimum = offset ? f32_from_f16(f16_from_f32(*low)) : 0;
  std::vector<float> back;
  for (const float value : x) {
    const float code = std::clamp(std::nearbyint((value - minimum) / scale), least, most);
    back.push_back(scale * code + minimum);
  }
  return back;
}

TEST(QuantizeRow, RoundsEightBitsToTheNearestCode) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<float> x = block(seed), back = there_and_back(DType::kQ8_0, x);
    float largest = 0;
    for (const float value : x) largest = std::max(largest, std::abs(value));
    // Half a step; f16 holds the step to 2^-11, which moves 127 steps by 0.06: less than half.
    const float half_step = largest / 127 * (1 + 0x1p-11f) / 2 * (1 + 0x1p-20f);
    for (std::size_t i = 0; i < kBlock; ++i) ASSERT_LE(std::abs(x[i] - back[i]), half_step);
  }
}

TEST(QuantizeRow, IsNeverWorseThanThePlainRangeAndUsuallyMuchBetter) {
  for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0}) {
    double ours = 0, theirs = 0;
    for (std::uint64_t seed = 0; seed < 400; seed += 4) {  // normal blocks, as weights are
      const std::vector<float> x = block(seed);
      ours += error_of(x, there_and_back(type, x));
      theirs += error_of(x, plain(type, x));
    }
    EXPECT_LT(ours, 0.9 * theirs);
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      SCOPED_TRACE(seed);
      const std::vector<float> x = block(seed);
      // Sums of 32 squares in f32 may misjudge two candidates by 32 roundings; a code at a tie may
      // fall either way.
      ASSERT_LE(error_of(x, there_and_back(type, x)), error_of(x, plain(type, x)) * (1 + 1e-4));
    }
  }
}

TEST(QuantizeRow, KeepsWhatTheFormatHoldsExactly) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<float> four(kBlock), offset(kBlock), eight(kBlock);
    for (std::size_t i = 0; i < kBlock; ++i) {
      four[i] = 0.25f * static_cast<float>(static_cast<int>(random() % 16) - 8);
      offset[i] = 0.5f * static_cast<float>(random() % 16) + 3;
      eight[i] = 0.125f * static_cast<float>(static_cast<int>(random() % 255) - 127);
    }
    four[random() % kBlock] = 0.25f * -8;  // the range's ends are taken
    offset[3] = 3, offset[7] = 0.5f * 15 + 3;
    eight[random() % kBlock] = 0.125f * 127;
    EXPECT_EQ(there_and_back(DType::kQ4_0, four), four);
    EXPECT_EQ(there_and_back(DType::kQ4_1, offset), offset);
    EXPECT_EQ(there_and_back(DType::kQ8_0, eight), eight);
  }
  const std::vector<float> zeros(512, 0.0f), ones(kBlock, 1.0f);
  for (const WeightFormat& format : as_data(WrittenFormats()))
    EXPECT_EQ(there_and_back(format.dtype, zeros), zeros) << format.name;
  EXPECT_EQ(there_and_back(DType::kQ4_1, ones), ones);
}

TEST(QuantizeRow, TreatsEveryBlockAlone) {
  const std::vector<float> a = blocks(5), b = blocks(6);
  std::vector<float> both = a;
  both.insert(both.end(), b.begin(), b.end());
  for (const WeightFormat& format : as_data(WrittenFormats())) {
    std::vector<float> expected = there_and_back(format.dtype, a);
    const std::vector<float> second = there_and_back(format.dtype, b);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(there_and_back(format.dtype, both), expected) << format.name;
  }
}

TEST(QuantizeRow, HasTheErrorsOnNormalRowsThatTheDocsSay) {
  std::mt19937_64 random(1);
  for (const float deviation : {0.02f, 1.0f}) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> row(256 * 100);
    for (float& value : row) value = normal(random);
    const double squares = error_of(row, std::vector<float>(row.size(), 0.0f));
    // docs/formats.md; their last digit, for the chance in 25,600 values
    for (const auto& [type, relative] : {std::pair{DType::kQ2_K, 0.259},
                                         {DType::kQ4_0, 0.081},
                                         {DType::kQ4_1, 0.072},
                                         {DType::kQ4_K, 0.071},
                                         {DType::kQ5_0, 0.040},
                                         {DType::kQ6_K, 0.016},
                                         {DType::kQ8_0, 0.005}})
      EXPECT_NEAR(std::sqrt(error_of(row, there_and_back(type, row)) / squares), relative, 0.001)
          << name(type);
    EXPECT_LT(error_of(row, there_and_back(DType::kQ4_K, row)),
              error_of(row, there_and_back(DType::kQ4_1, row)));
  }
}

TEST(QuantizeRow, GivesKTypesLessErrorThanTypesOfTheirSize) {
  // By kind of block. Nearly constant ones are left out: a scale of their own in f16, which Q4_0
  // and Q5_0 have, meets the constant better than a whole number of six or eight bits.
  std::array<double, 3> four{}, long_four{}, five{}, long_six{};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    if (seed % 4 == 3) continue;
    const std::vector<float> x = blocks(seed);
    const auto error = [&](DType type) { return error_of(x, there_and_back(type, x)); };
    four.at(seed % 4) += error(DType::kQ4_0);
    long_four.at(seed % 4) += error(DType::kQ4_K);
    five.at(seed % 4) += error(DType::kQ5_0);
    long_six.at(seed % 4) += error(DType::kQ6_K);
  }
  for (std::size_t kind = 0; kind < four.size(); ++kind) {
    EXPECT_LT(long_four[kind], four[kind]) << kind;
    EXPECT_LT(long_six[kind], five[kind]) << kind;
  }
}

TEST(QuantizeRow, GivesRealRowsLessErrorInKTypes) {
  const char* const given = std::getenv("CANOPY_SMOLLM2");
  const std::filesystem::path path =
      given ? given : test_data() / "../../models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path))
    GTEST_SKIP() << "no " << path << "; run scripts/get_model, or set CANOPY_SMOLLM2 to the file";
  const Checkpoint model = Checkpoint::open(path);
  WeightRows rows(model);
  const TensorEntry& down = *model.find("model.layers.7.mlp.down_proj.weight");  // 1536 columns
  double four = 0, long_four = 0, five = 0, long_six = 0;
  for (std::int64_t row = 0; row < 16; ++row) {
    std::vector<float> x(static_cast<std::size_t>(WeightRows::columns(down)));
    rows.read(down, row, x);
    const auto error = [&](DType type) { return error_of(x, there_and_back(type, x)); };
    four += error(DType::kQ4_0), long_four += error(DType::kQ4_K);
    five += error(DType::kQ5_0), long_six += error(DType::kQ6_K);
  }
  EXPECT_LT(long_four, four);
  EXPECT_LT(long_six, five);
}

TEST(QuantizeRow, KeepsTinyValuesOfKTypesApartFromZero) {
  // f16 would lose scales this small; its smallest number takes their place.
  std::vector<float> x(256);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = (i % 2 == 0 ? 1.0f : -1.0f) * 0x1p-20f;
  for (const DType type : {DType::kQ2_K, DType::kQ4_K, DType::kQ6_K}) {
    const std::vector<float> back = there_and_back(type, x);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(back[i], x[i], 0x1p-24f) << name(type) << " " << i;
  }
}

TEST(QuantizeRow, RefusesWhatItCannotHold) {
  std::vector<float> huge(kBlock, 1e9f);
  huge[0] = -1e9f;
  std::vector<std::byte> out(34);
  EXPECT_THROW(quantize_row(DType::kQ8_0, huge, out), Error);
  EXPECT_THROW(quantize_row(DType::kQ8_0, std::vector<float>(31), out), Error);
  EXPECT_THROW(quantize_row(DType::kF16, std::vector<float>(17), out), Error);
  EXPECT_THROW(quantize_row(DType::kQ4_0, std::vector<float>(kBlock), out), Error);
  std::vector<std::byte> wide(210);
  EXPECT_THROW(quantize_row(DType::kQ6_K, std::vector<float>(256, 1e9f), wide), Error);
  EXPECT_THROW(quantize_row(DType::kQ3_K, std::vector<float>(256), std::span(wide).first(110)),
               Error);
}

}  // namespace
}  // namespace canopy
