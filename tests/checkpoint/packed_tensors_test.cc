// The reader of packed safetensors files: what it accepts, and every way in which one can lie.
#include "src/checkpoint/packed_tensors.h"

#include <gtest/gtest.h>

#include "src/base/formats/packed_format.h"
#include "src/checkpoint/readers.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {
namespace {

using Format = format::PackedBF16;

/// A file with one packed matrix "w" of 3 rows of 70 columns, whose parts a test replaces.
struct PackedFileParts {
  nlohmann::ordered_json description{
      {"codec", Format::kCodec}, {"shape", {3, 70}}, {"checksum", "xxh3:0123456789abcdef"}};
  std::vector<std::uint32_t> offsets{0, 45, 91, 136};  // times four bytes; a row takes 180 at least
  std::size_t payload_bytes = 4 * 136;
  std::vector<FileTensor> others;
  bool with_payload = true, with_offsets = true;
  std::optional<std::string> descriptions;  // instead of {"w": description}

  std::string bytes() const {
    std::vector<FileTensor> tensors = others;
    if (with_payload)
      tensors.push_back({"w.packed",
                         DType::kU8,
                         {static_cast<std::int64_t>(payload_bytes)},
                         std::string(payload_bytes, '\0')});
    if (with_offsets)
      tensors.push_back({"w.row_offsets",
                         DType::kU32,
                         {std::ssize(offsets)},
                         std::string(reinterpret_cast<const char*>(offsets.data()),
                                     offsets.size() * sizeof offsets[0])});
    const std::string text =
        descriptions ? *descriptions : nlohmann::ordered_json{{"w", description}}.dump();
    std::string file = safetensors_bytes(tensors);
    // safetensors_bytes() writes a header without them.
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    auto header = nlohmann::ordered_json::parse(file.substr(8, length));
    header["__metadata__"][std::string(packed::kDescriptions)] = text;
    const std::string data = file.substr(8 + length), written = header.dump();
    file.clear();
    append<std::uint64_t>(file, written.size());
    return file + written + data;
  }
};

TensorIndex read(const PackedFileParts& parts) {
  const TempDir dir;
  write_file(dir / "model.safetensors", parts.bytes());
  return read_safetensors(dir.path());
}
std::string error_of_parts(const std::function<void(PackedFileParts&)>& change) {
  PackedFileParts parts;
  change(parts);
  return error_of([&] { read(parts); });
}

TEST(PackedTensors, OneEntryForAMatrixAndNoneForPadding) {
  std::mt19937_64 random(1);
  PackedFileParts parts;
  parts.others = {{"canopy.pad.0", DType::kU8, {12}, std::string(12, '\0')},
                  random_tensor("norm", DType::kF32, {7}, random, 0, 1)};
  const TensorIndex index = read(parts);
  ASSERT_EQ(index.tensors.size(), 2u);
  const TensorEntry& w = index.tensors[0].name == "w" ? index.tensors[0] : index.tensors[1];
  EXPECT_EQ(w.dtype, DType::kPackedBF16);
  EXPECT_EQ(w.shape, (std::vector<std::int64_t>{3, 70}));
  EXPECT_EQ(w.bytes, 4u * 136);
  EXPECT_EQ(w.checksum, 0x0123456789abcdefu);
  const TensorEntry rows = rows_of(w, 1, 2);
  EXPECT_EQ(rows.offset, w.offset + 4 * 45);
  EXPECT_EQ(rows.bytes, 4u * (136 - 45));
  EXPECT_EQ(rows_of(rows, 1, 1).offset, w.offset + 4 * 91);
  EXPECT_EQ(longest_row(w), 4u * 46);
}

TEST(PackedTensors, EveryCodecIsFoundByItsName) {
  for (const PackedFormat& format : as_data_of_packed(PackedBf16Formats())) {
    SCOPED_TRACE(format.codec);
    PackedFileParts parts;
    parts.description["codec"] = format.codec;
    EXPECT_EQ(read(parts).tensors.at(0).dtype, format.dtype);
    parts.offsets = {0, 39, 91, 136};  // a first row of 156 bytes, fewer than any codec has
    EXPECT_TRUE(mentions(error_of([&] { read(parts); }), "70 weights take"));
  }
}

TEST(PackedTensors, RowsOfLevelsTakeFewerBytesAtLeastAndMoreAtMost) {
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) {
                         p.description["codec"] = format::LevelsBF16::kCodec;
                         p.offsets = {0, 40, 91, 136};
                       }),
                       "70 weights take 164 to 280 bytes"));
}

TEST(PackedTensors, WhatIsWrittenIsRead) {
  PackedFileParts parts;
  parts.descriptions = packed::to_text({{"w", {Format::kCodec, {3, 70}, 0xfeu}}});
  EXPECT_EQ(read(parts).tensors.at(0).checksum, 0xfeu);
}

TEST(PackedTensors, RefusesOffsetsThatLie) {
  const auto offsets = [](std::vector<std::uint32_t> values) {
    return error_of_parts([&](PackedFileParts& p) { p.offsets = std::move(values); });
  };
  EXPECT_TRUE(mentions(offsets({1, 45, 91, 136}), "does not begin at its first byte"));
  EXPECT_TRUE(mentions(offsets({0, 91, 45, 136}), "row 0"));
  EXPECT_TRUE(mentions(offsets({0, 45, 44, 136}), "row 1"));
  EXPECT_TRUE(mentions(offsets({0, 44, 91, 136}), "70 weights take 180 to 252 bytes"));
  EXPECT_TRUE(mentions(offsets({0, 45, 90, 135}), "rows end at byte 540, but 544"));
  EXPECT_TRUE(mentions(offsets({0, 45, 91, 0xffffffff}), "row 2"));
  EXPECT_TRUE(mentions(offsets({0, 45, 136}), "it has 3 rows, but 3 offsets"));
}

TEST(PackedTensors, RefusesPartsThatAreMissingOrOfAnotherKind) {
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) { p.with_payload = false; }),
                       "its part 'w.packed' is missing"));
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) { p.with_offsets = false; }),
                       "its part 'w.row_offsets' is missing"));
  PackedFileParts undescribed;
  undescribed.descriptions = "{}";
  for (const TensorEntry& part : read(undescribed).tensors)
    EXPECT_TRUE(part.foreign_dtype) << part.name;  // by which whoever needs it refuses it
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) {
                         p.with_payload = false;
                         p.others = {{"w.packed", DType::kF32, {2}, std::string(8, '\0')}};
                       }),
                       "not a vector of U8"));
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) {
                         p.with_payload = false;
                         p.others = {{"w.packed", DType::kU32, {2}, std::string(8, '\0')}};
                       }),
                       "not a vector of U8"));
}

TEST(PackedTensors, RefusesDescriptionsThatMakeNoSense) {
  const auto with = [](const char* key, nlohmann::ordered_json value) {
    return error_of_parts([&](PackedFileParts& p) { p.description[key] = std::move(value); });
  };
  EXPECT_TRUE(mentions(with("codec", "zip"), "codec 'zip' is not known"));
  EXPECT_TRUE(mentions(with("codec", 7), "codec '7' is not known"));
  for (const auto& shape : {nlohmann::ordered_json{3}, nlohmann::ordered_json{3, 70, 1},
                            nlohmann::ordered_json{3, -70}, nlohmann::ordered_json{3, 0},
                            nlohmann::ordered_json("3"), nlohmann::ordered_json{3, 1ull << 60}})
    EXPECT_TRUE(mentions(with("shape", shape), "its shape is not [rows, columns]")) << shape;
  for (const char* sum : {"", "xxh3:", "xxh3:123", "xxh3:0123456789abcdeg", "md5:0123456789abcdef"})
    EXPECT_TRUE(mentions(with("checksum", sum), "checksum is not"));
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) { p.descriptions = "{"; }), "canopy.tensors"));
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) { p.descriptions = "[]"; }), "not an object"));
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) { p.descriptions = R"({"w": 3})"; }),
                       "description is not an object"));
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) {
                         p.descriptions = R"({"v": {"checksum": "xxh3:0123456789abcdef"}})";
                       }),
                       "it is described, but not stored"));
  EXPECT_TRUE(mentions(error_of_parts([](auto& p) { p.descriptions = std::string(100'000, '['); }),
                       "canopy.tensors"));
}

}  // namespace
}  // namespace canopy::testing
