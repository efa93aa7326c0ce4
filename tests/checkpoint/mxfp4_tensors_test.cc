// Matrices of MXFP4 in directories: what is joined, and what is refused by its name.
#include "src/checkpoint/quantized/mxfp4_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/checkpoint/quantized/matrix_parts.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/error_of.h"

namespace canopy::testing {
namespace {

FileTensor mxfp4_part(const std::string& name, std::vector<std::int64_t> shape) {
  std::size_t bytes = 1;
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {name, DType::kU8, std::move(shape), std::string(bytes, '\0')};
}

TensorIndex joined_mxfp4(const std::vector<FileTensor>& tensors) {
  const TempDir dir;
  write_file(dir / "model.safetensors", safetensors_bytes(tensors));
  TensorIndex index = read_safetensors(dir.path());
  ModelConfig config;
  join_mxfp4_tensors(index, config);
  return index;
}

TEST(Mxfp4Tensors, BecomeOneTensorWhoseRowsHaveBlocks) {
  const TensorIndex index =
      joined_mxfp4({mxfp4_part("a.b_blocks", {3, 6, 2, 16}),
                    mxfp4_part("a.b_scales", {3, 6, 2}),
                    {"a.b_bias", DType::kBF16, {3, 6}, std::string(36, '\0')}});
  ASSERT_EQ(index.tensors.size(), 2u);
  const TensorEntry& matrix = *std::ranges::find(index.tensors, "a.b", &TensorEntry::name);
  EXPECT_EQ(matrix.dtype, DType::kMXFP4);
  EXPECT_EQ(matrix.shape, (std::vector<std::int64_t>{3, 6, 64}));
  EXPECT_EQ(matrix.bytes, 3u * 6 * 2 * 17);
  ASSERT_TRUE(matrix.parts);
  EXPECT_EQ(matrix.parts->rows, 18);
  EXPECT_EQ(matrix.parts->columns, 64);
}

TEST(Mxfp4Tensors, APartThatDoesNotFitIsRefusedByItsName) {
  const FileTensor codes = mxfp4_part("a_blocks", {6, 2, 16}),
                   scales = mxfp4_part("a_scales", {6, 2});
  FileTensor others = codes;
  others.stored_dtype = "I8";
  struct Case {
    std::vector<FileTensor> tensors;
    const char* error;
  };
  for (const Case& c : {
           Case{{codes}, "its part 'a_scales' is missing"},
           Case{{codes, mxfp4_part("a_scales", {6, 1})}, "'a_scales' is 'U8' [6, 1]"},
           Case{{codes, {"a_scales", DType::kF32, {6, 2}, std::string(48, '\0')}},
                "not 'U8' [6, 2]"},
           Case{{others, scales}, "its part 'a_blocks' is 'I8' [6, 2, 16]"},
           Case{{mxfp4_part("a_blocks", {6, 4, 8}), scales}, "not [.., rows, blocks, 16]"},
           Case{{mxfp4_part("a_blocks", {6, 16}), scales}, "not [.., rows, blocks, 16]"},
           Case{{mxfp4_part("a_blocks", {0, 2, 16}), mxfp4_part("a_scales", {0, 2})},
                "'a_blocks' is"},
           Case{{codes, scales, mxfp4_part("a", {6, 64})}, "there is also 'a'"},
           Case{{scales}, "the config says MXFP4, but no tensor NAME_blocks has its codes"},
       }) {
    const std::string error = error_of([&] { joined_mxfp4(c.tensors); });
    EXPECT_NE(error.find(c.error), std::string::npos) << "'" << error << "' lacks " << c.error;
  }
}

}  // namespace
}  // namespace canopy::testing
