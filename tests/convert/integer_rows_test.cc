// Matrices of whole numbers that do not lie by rows: each weight that `pack` makes of them is the
// reference's.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/formats/packed_format.h"
#include "src/checkpoint/quantized/integer_tensors.h"
#include "src/checkpoint/quantized/mxfp4_tensors.h"
#include "src/checkpoint/quantized/nvfp4_tensors.h"
#include "src/checkpoint/quantized/quantization.h"
#include "src/checkpoint/quantized/table_tensors.h"
#include "src/checkpoint/readers.h"
#include "src/convert/rows_of_parts.h"
#include "tests/test_data.h"

namespace canopy::test {
namespace {

namespace fs = std::filesystem;

/// A file of make_integer_goldens.py, joined.
struct GoldenMatrix {
  explicit GoldenMatrix(const std::string& name) {
    const fs::path files = test_data() / "base" / "integers";
    index = read_safetensors_file(files / (name + ".safetensors"));
    nlohmann::json config;
    config["quantization_config"] = nlohmann::json::parse(std::ifstream(files / (name + ".json")));
    ModelConfig model;
    const Quantization scheme = quantization_of(config);
    if (scheme.nvfp4) join_nvfp4_tensors(index, *scheme.nvfp4, model);
    if (scheme.mxfp4) join_mxfp4_tensors(index, model);
    if (scheme.tables) join_table_tensors(index, model);
    if (scheme.integers) join_integer_tensors(index, *scheme.integers, model);
  }
  const TensorEntry& tensor(const std::string& name) const {
    return *std::ranges::find(index.tensors, name, &TensorEntry::name);
  }
  std::vector<float> expected() const {
    const TensorEntry& stored = tensor("m.expected");
    std::vector<float> values(stored.bytes / sizeof(float));
    read(stored, stored.offset, std::as_writable_bytes(std::span(values)));
    return values;
  }
  /// Rows of "m.weight", or of a part of it.
  std::vector<float> rows(const TensorEntry& matrix, std::int64_t first, std::int64_t count) const {
    std::vector<std::byte> bytes;
    make_rows_of_parts(
        matrix, first, count,
        [&](const TensorEntry& part, std::uint64_t at, std::span<std::byte> into) {
          read(part, at, into);
        },
        bytes);
    const auto columns = static_cast<std::size_t>(matrix.shape[1]);
    std::vector<float> values(static_cast<std::size_t>(count) * columns);
    EXPECT_EQ(bytes.size(), place_of_rows(matrix, first, count).bytes);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      row_as_f32(matrix.dtype, row_at(&bytes[i * place_of_rows(matrix, 0, 1).bytes], matrix, first),
                 std::span(values).subspan(i * columns, columns));
    return values;
  }
  void read(const TensorEntry& tensor, std::uint64_t at, std::span<std::byte> into) const {
    std::ifstream in(index.files[static_cast<std::size_t>(tensor.file)], std::ios::binary);
    in.seekg(static_cast<std::streamoff>(at));
    in.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size()));
    ASSERT_TRUE(in);
  }
  TensorIndex index;
};

struct FormCase {
  const char* name;
  DType rows;
};
void PrintTo(const FormCase& form, std::ostream* out) { *out << form.name; }

class IntegerRows : public ::testing::TestWithParam<FormCase> {};

TEST_P(IntegerRows, HaveTheReferencesWeightsBitForBitHoweverTheyAreCut) {
  const GoldenMatrix golden(GetParam().name);
  const TensorEntry& matrix = golden.tensor("m.weight");
  EXPECT_EQ(matrix.dtype, GetParam().rows);
  EXPECT_EQ(golden.index.tensors.size(), 2u);  // the parts are gone
  const std::vector<float> expected = golden.expected();
  const std::int64_t all = matrix.shape[0], columns = matrix.shape[1];
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(all * columns));
  const auto expect_rows = [&](const TensorEntry& tensor, std::int64_t before, std::int64_t first,
                               std::int64_t count) {
    const std::vector<float> got = golden.rows(tensor, first, count);
    const auto from = expected.begin() + (before + first) * columns;
    // Equal as numbers: the sign of a zero is the scale's or the code's.
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], from[static_cast<std::ptrdiff_t>(i)])
          << "row " << before + first << " + " << static_cast<std::int64_t>(i) / columns
          << ", column " << static_cast<std::int64_t>(i) % columns;
  };
  expect_rows(matrix, 0, 0, all);
  for (std::int64_t row = 0; row < all; ++row) expect_rows(matrix, 0, row, 1);
  for (std::int64_t row = 0; row + 3 <= all; row += 3) expect_rows(matrix, 0, row, 3);
  const TensorEntry part = rows_of(rows_of(matrix, 1, all - 1), 2, all - 4);
  EXPECT_EQ(part.shape[0], all - 4);
  EXPECT_EQ(part.bytes, tensor_bytes(part));
  expect_rows(part, 3, 0, all - 4);
  expect_rows(part, 3, all - 5, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, IntegerRows,
    ::testing::Values(
        FormCase{"awq", DType::kI4_32}, FormCase{"awq_64", DType::kI4_64},
        FormCase{"awq_row", DType::kI4_32}, FormCase{"gptq", DType::kI4_32},
        FormCase{"gptq_8", DType::kI8_32}, FormCase{"gptq_v2", DType::kI4_32},
        FormCase{"gptq_v2_8", DType::kI8_128}, FormCase{"packed", DType::kI4_128},
        FormCase{"packed_zeros", DType::kI4_32}, FormCase{"packed_channel", DType::kI4_32},
        FormCase{"packed_8", DType::kI8_32}, FormCase{"packed_8_zeros", DType::kI8_128},
        FormCase{"packed_tensor", DType::kI4_64}, FormCase{"whole_channel", DType::kI8_32},
        FormCase{"whole_zeros", DType::kI8_32}, FormCase{"whole_tensor", DType::kI8_128},
        FormCase{"mxfp4", DType::kMXFP4}, FormCase{"nvfp4", DType::kF4_256},
        FormCase{"modelopt", DType::kF4_256}, FormCase{"nf4", DType::kNF4},
        FormCase{"nf4_doubled", DType::kNF4}, FormCase{"nf4_128", DType::kNF4},
        FormCase{"fp4", DType::kFP4}, FormCase{"fp4_doubled", DType::kFP4},
        FormCase{"gptq_order", DType::kI4Grouped}, FormCase{"gptq_order_8", DType::kI8Grouped},
        FormCase{"packed_order", DType::kI4Grouped}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace canopy::test
