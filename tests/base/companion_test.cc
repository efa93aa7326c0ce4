// Whatever a format keeps apart from the rows of a matrix: what is checked, and how it is cut.
#include "src/base/formats/companion.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace canopy
