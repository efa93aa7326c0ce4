// Whatever a format keeps apart from the rows of a matrix: what is checked, and how it is cut.
#include "src/base/formats/companion.h"

#include <gtest/gtest.h>

#include <cstring>

#include "src/base/formats/packed_format.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

/// A byte of each weight, and one more for every two rows, which must not be zero.
struct InPairs {
  static constexpr DType kDType = static_cast<DType>(203);
  static constexpr const char* kName = "pairs";
  static constexpr std::int64_t kSliceUnit = 2;
  static std::size_t companion_bytes(std::int64_t rows, std::int64_t) {
    return static_cast<std::size_t>((rows + 1) / 2);
  }
  static RowPlace place_of_row(const std::byte* companion, std::int64_t columns, std::int64_t i) {
    return {static_cast<std::size_t>(i * columns), static_cast<std::size_t>(columns),
            companion + i / 2};
  }
  static void check_companion(std::span<const std::byte> companion, std::int64_t, std::int64_t) {
    for (const std::byte byte : companion)
      if (byte == std::byte{0}) throw Error("a pair of rows has no byte");
  }
};
/// A byte for every sixteen weights, besides.
struct Large : InPairs {
  static constexpr const char* kName = "large";
  static std::size_t companion_bytes(std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(rows * columns / 16);
  }
};

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> result;
  for (const int value : values) result.push_back(static_cast<std::byte>(value));
  return result;
}

TEST(Companion, SaysWhereRowsLieAndIsCutBetweenBlocks) {
  const Companion whole(kCompanionOf<InPairs>, bytes({1, 2, 3}), 5, 10, 50);
  EXPECT_EQ(whole.place_of_rows(3, 2).offset, 30u);  // any rows
  EXPECT_EQ(whole.place_of_rows(3, 2).bytes, 20u);
  EXPECT_EQ(whole.place_of_rows(5, 0).offset, 50u);
  const std::byte data{};
  EXPECT_EQ(*whole.row(&data, 3).companion, std::byte{2});
  EXPECT_EQ(whole.row(&data, 3).data, &data);
  EXPECT_EQ(whole.row(&data, 3).bytes, 10u);

  const Companion part = whole.slice(2, 3);
  EXPECT_EQ(part.rows(), 3);
  EXPECT_EQ(part.bytes().size(), 2u);
  EXPECT_EQ(part.bytes().data(), whole.bytes().data() + 1);  // shared
  EXPECT_EQ(part.place_of_rows(1, 1).offset, 10u);
  EXPECT_EQ(*part.row(&data, 2).companion, std::byte{3});
  EXPECT_EQ(part.slice(2, 1).bytes().size(), 1u);
  EXPECT_TRUE(Companion().empty());
  EXPECT_TRUE(Companion().bytes().empty());

  const std::string cut = error_of([&] { whole.slice(3, 2); });
  EXPECT_NE(cut.find("a matrix of pairs is cut at multiples of 2 rows, not at row 3"), cut.npos)
      << cut;
  EXPECT_NE(error_of([&] { whole.slice(4, 2); }), "");
  EXPECT_NE(error_of([&] { whole.place_of_rows(-1, 1); }), "");
}

TEST(Companion, IsCheckedWhenItIsMade) {
  const auto error = [](std::vector<std::byte> of, std::int64_t rows, std::uint64_t payload) {
    return error_of([&] { Companion(kCompanionOf<InPairs>, std::move(of), rows, 10, payload); });
  };
  EXPECT_EQ(error(bytes({1, 2, 3}), 5, 50), "");
  EXPECT_NE(error(bytes({1, 2}), 5, 50).find("has 2 bytes"), std::string::npos);
  EXPECT_NE(error(bytes({1, 0, 3}), 5, 50).find("a pair of rows has no byte"), std::string::npos);
  EXPECT_NE(error(bytes({1, 2, 3}), 5, 49).find("rows end at byte 50, but 49"), std::string::npos);
  EXPECT_NE(error({}, -1, 0).find("no shape -1 x 10"), std::string::npos);
}

TEST(Companion, ThatIsNoSmallPartOfTheWeightsIsNotSupportedYet) {
  const std::string error =
      error_of([&] { Companion(kCompanionOf<Large>, std::vector<std::byte>(20), 2, 160, 320); });
  EXPECT_NE(error.find("what large keeps apart from its rows"), std::string::npos) << error;
  EXPECT_NE(error.find("not supported yet"), std::string::npos) << error;
}

TEST(Companion, OfPackedRowsHasOneOffsetMoreThanRows) {
  const PackedFormat& format = *find_packed_format(DType::kPackedBF16);
  const std::vector<std::size_t> rows{96, 120, 100};
  const Companion whole = companion_of_rows(format, rows, 64);
  EXPECT_EQ(whole.bytes().size(), 4 * sizeof(RowOffset));
  EXPECT_EQ(whole.place_of_rows(0, 3).bytes, 316u);
  const Companion part = whole.slice(1, 2);
  EXPECT_EQ(part.bytes().size(), 3 * sizeof(RowOffset));
  EXPECT_EQ(part.place_of_rows(1, 1).offset, 120u);
  EXPECT_EQ(part.slice(1, 1).place_of_rows(0, 1).bytes, 100u);
}

/// Rows of such a matrix of 200 columns take 208 bytes and some, each another number.
template <class Format>
std::vector<std::byte> packed_fp8(std::int64_t rows, std::vector<float> scales) {
  std::vector<RowOffset> offsets{0};
  for (std::int64_t row = 0; row < rows; ++row)
    offsets.push_back(offsets.back() + static_cast<RowOffset>(52 + row % 5));
  return with_scales(Format::kDType, offsets, scales, 200);
}
std::vector<float> counted(std::size_t count) {
  std::vector<float> scales;
  while (scales.size() < count) scales.push_back(static_cast<float>(scales.size() + 1));
  return scales;
}
template <class Format>
Companion companion_of(std::int64_t rows, const std::vector<float>& scales, std::uint64_t bytes) {
  return {kCompanionOf<Format>, packed_fp8<Format>(rows, scales), rows, 200, bytes};
}
std::uint64_t bytes_of_rows(std::int64_t rows) {
  std::uint64_t bytes = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    bytes += 4 * (52 + static_cast<std::uint64_t>(row % 5));
  return bytes;
}
float scale_of(const Companion& of, std::int64_t row, std::size_t index) {
  const std::byte data{};
  return format::load<float>(of.row(&data, row).companion + index * sizeof(float));
}

TEST(Companion, OfPackedFp8HasItsScalesBetweenTheOffsetsOfTheirRows) {
  for (const std::int64_t rows : {1, 127, 128, 129, 256, 300}) {
    SCOPED_TRACE(rows);
    const auto blocks = static_cast<std::size_t>((rows + 127) / 128);
    const Companion by_blocks =
        companion_of<format::LevelsE4M3Blocks>(rows, counted(2 * blocks), bytes_of_rows(rows));
    const Companion by_rows = companion_of<format::LevelsE4M3Rows>(
        rows, counted(static_cast<std::size_t>(rows)), bytes_of_rows(rows));
    for (const std::int64_t row : {std::int64_t{0}, rows / 2, rows - 1}) {
      for (const Companion* of : {&by_blocks, &by_rows}) {
        EXPECT_EQ(of->place_of_rows(row, 1).offset, bytes_of_rows(row));
        EXPECT_EQ(of->place_of_rows(row, 1).bytes, 4 * (52 + static_cast<std::uint64_t>(row % 5)));
      }
      EXPECT_EQ(scale_of(by_rows, row, 0), static_cast<float>(row + 1));
      EXPECT_EQ(scale_of(by_blocks, row, 1), static_cast<float>(2 * (row / 128) + 2));
    }
    if (rows < 300) continue;
    const Companion part = by_blocks.slice(128, 150), one = by_rows.slice(7, 2);
    EXPECT_EQ(part.place_of_rows(149, 1).offset, bytes_of_rows(277) - bytes_of_rows(128));
    EXPECT_EQ(part.place_of_rows(0, 150).bytes, bytes_of_rows(278) - bytes_of_rows(128));
    EXPECT_EQ(scale_of(part, 149, 0), 5);
    EXPECT_EQ(one.place_of_rows(0, 2).bytes, bytes_of_rows(9) - bytes_of_rows(7));
    EXPECT_EQ(scale_of(one, 1, 0), 9);
    EXPECT_NE(error_of([&] { by_blocks.slice(64, 10); }), "");
  }
}

TEST(Companion, OfPackedFp8IsCheckedAsItsPartsAre) {
  using Format = format::LevelsE4M3Blocks;
  const auto error = [](const std::vector<float>& scales, std::uint64_t bytes, auto change) {
    std::vector<std::byte> made = packed_fp8<Format>(130, scales);
    change(made);
    return error_of([&] { Companion(kCompanionOf<Format>, made, 130, 200, bytes); });
  };
  const auto nothing = [](auto&) {};
  const auto put = [](std::size_t at, RowOffset value) {
    return [=](std::vector<std::byte>& made) { std::memcpy(&made[at], &value, sizeof value); };
  };
  EXPECT_EQ(error(counted(4), bytes_of_rows(130), nothing), "");
  EXPECT_NE(error({1, 2, -3, 4}, bytes_of_rows(130), nothing)
                .find("the scale of rows 128 to 129, columns 0 to 127 is -3"),
            std::string::npos);
  EXPECT_NE(error(counted(4), bytes_of_rows(129), nothing).find("its rows end at byte"),
            std::string::npos);
  EXPECT_NE(error(counted(4), bytes_of_rows(130), put(0, 1)).find("does not begin at"),
            std::string::npos);
  EXPECT_NE(error(counted(4), bytes_of_rows(130), put(4, 0)).find("row 0 reaches"),
            std::string::npos);
  // Row 129 is the second after 128 offsets and two scales; what follows it is where it ends.
  EXPECT_NE(error(counted(4), bytes_of_rows(130), put(128 * 4 + 8 + 4, 1u << 30)).find("row 128"),
            std::string::npos);
  EXPECT_NE(error_of([] { packed_fp8<Format>(130, counted(3)); }), "");
}

}  // namespace
}  // namespace canopy
