#include "src/base/formats/fp8_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "src/base/formats/packed_format.h"
#include "tests/error_of.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// fp8.golden, made by make_fp8_goldens.py, from front to back.
class Golden {
 public:
  Golden() : file_(test_data() / "base" / "fp8.golden", std::ios::binary) {}
  template <class T>
  std::vector<T> take(std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    file_.read(reinterpret_cast<char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(T)));
    EXPECT_TRUE(file_);
    return values;
  }
  bool at_end() { return file_.peek() == std::ifstream::traits_type::eof(); }

 private:
  std::ifstream file_;
};

/// Expects the weights of a matrix that lies there.
template <class Format>
void expect_weights(std::int64_t rows, std::int64_t columns, const std::vector<std::byte>& codes,
                    const std::vector<float>& scales, const std::vector<float>& expected) {
  const Companion companion(kCompanionOf<Format>, bytes_of(scales), rows, columns, codes.size());
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    row_as_f32(Format::kDType, companion.row(&codes[static_cast<std::size_t>(i * columns)], i),
               row);
    for (std::int64_t k = 0; k < columns; ++k)
      ASSERT_EQ(row[static_cast<std::size_t>(k)],
                expected[static_cast<std::size_t>(i * columns + k)])
          << "row " << i << ", column " << k;
  }
}

TEST(Fp8Format, ANumberBecomesTheNearestCode) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == format::kE4M3NaN) continue;
    const float value = format::f32_from_e4m3(static_cast<std::uint8_t>(code));
    EXPECT_EQ(format::e4m3_from_f32(value), code);
    if ((code & 0x7f) == 0x7e) continue;
    const float next = format::f32_from_e4m3(static_cast<std::uint8_t>(code + 1));
    const float middle = (value + next) / 2;  // exact
    EXPECT_EQ(format::e4m3_from_f32(middle), code + code % 2) << code;
    EXPECT_EQ(format::e4m3_from_f32(std::nextafter(middle, value)), code);
    EXPECT_EQ(format::e4m3_from_f32(std::nextafter(middle, next)), code + 1);
  }
  EXPECT_EQ(format::e4m3_from_f32(1e30f), 0x7e);
  EXPECT_EQ(format::e4m3_from_f32(-std::numeric_limits<float>::infinity()), 0xfe);
}

TEST(Fp8Format, EachWeightEqualsTheReferencesThoseOfPartialBlocksToo) {
  Golden golden;
  const std::vector<float> numbers = golden.take<float>(256);
  for (std::size_t code = 0; code < numbers.size(); ++code) {
    const float value = format::f32_from_e4m3(static_cast<std::uint8_t>(code));
    if (std::isnan(numbers[code]))
      EXPECT_TRUE(std::isnan(value)) << code;
    else
      EXPECT_EQ(value, numbers[code]) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
  }
  const auto widened = [](const std::vector<std::uint16_t>& bf16) {
    std::vector<float> values;
    for (const std::uint16_t bits : bf16) values.push_back(f32_from_bf16(bits));
    return values;
  };
  {
    const auto codes = golden.take<std::byte>(130 * 140);
    const auto scales = golden.take<float>(2 * 2);
    expect_weights<format::E4M3Blocks>(130, 140, codes, scales, golden.take<float>(130 * 140));
  }
  {
    const auto codes = golden.take<std::byte>(7 * 129);
    const auto scales = widened(golden.take<std::uint16_t>(2));
    expect_weights<format::E4M3Blocks>(7, 129, codes, scales, golden.take<float>(7 * 129));
  }
  {
    const auto codes = golden.take<std::byte>(257 * 9);
    std::vector<float> scales;
    for (const std::uint8_t exponent : golden.take<std::uint8_t>(3))
      scales.push_back(format::f32_from_e8m0(exponent));
    expect_weights<format::E4M3Blocks>(257, 9, codes, scales, golden.take<float>(257 * 9));
  }
  {
    const auto codes = golden.take<std::byte>(5 * 77);
    const auto scales = golden.take<float>(5);
    expect_weights<format::E4M3Rows>(5, 77, codes, scales, golden.take<float>(5 * 77));
  }
  {
    const auto codes = golden.take<std::byte>(6 * 40);
    const std::vector<float> scales(6, widened(golden.take<std::uint16_t>(1))[0]);
    expect_weights<format::E4M3Rows>(6, 40, codes, scales, golden.take<float>(6 * 40));
  }
  EXPECT_TRUE(golden.at_end());
}

TEST(Fp8Format, ScalesOfPowersOfTwoHaveABiasOf127) {
  EXPECT_EQ(format::f32_from_e8m0(127), 1.0f);
  EXPECT_EQ(format::f32_from_e8m0(0), 0x1p-127f);
  EXPECT_EQ(format::f32_from_e8m0(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(format::f32_from_e8m0(255)));
}

TEST(Fp8Format, ScalesThatMakeNoSenseAreRefusedWithTheirPlace) {
  const auto error = [](float bad) {
    std::vector<float> scales(2 * 3, 1.0f);
    scales[4] = bad;
    return error_of(
        [&] { Companion(kCompanionOf<format::E4M3Blocks>, bytes_of(scales), 200, 300, 60000); });
  };
  EXPECT_EQ(error(0x1p119f), "");
  EXPECT_EQ(error(std::numeric_limits<float>::denorm_min()), "");
  for (const float bad : {0.0f, -1.0f, 0x1p120f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
    EXPECT_NE(error(bad).find("rows 128 to 199, columns 128 to 255 is "), std::string::npos)
        << error(bad);
  const std::string of_row = error_of([] {
    Companion(kCompanionOf<format::E4M3Rows>, bytes_of({1.0f, -2.0f}), 2, 10, 20);
  });
  EXPECT_NE(of_row.find("rows 1 to 1, columns 0 to 9 is -2"), std::string::npos) << of_row;
}

TEST(Fp8Format, MatricesAreCutBetweenBlocksAndRowsAnywhere) {
  const Companion blocks(kCompanionOf<format::E4M3Blocks>, bytes_of({1, 2, 3, 4, 5, 6}), 300, 130,
                         39000);
  EXPECT_EQ(format::load<float>(blocks.slice(256, 44).bytes().data()), 5.0f);
  EXPECT_NE(error_of([&] { blocks.slice(44, 200); }), "");
  const Companion rows(kCompanionOf<format::E4M3Rows>, bytes_of({1, 2, 3}), 3, 10, 30);
  EXPECT_EQ(format::load<float>(rows.slice(1, 2).bytes().data()), 2.0f);
  EXPECT_EQ(row_bytes(DType::kE4M3Blocks, 300), 300u);
}

}  // namespace
}  // namespace canopy
