// A safetensors file of matrices that do not lie by rows: codes, scales and zero points by each
// scheme. What is joined becomes rows, whatever is in the parts.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/formats/packed_format.h"
#include "src/checkpoint/quantized/integer_tensors.h"
#include "src/checkpoint/quantized/mxfp4_tensors.h"
#include "src/checkpoint/quantized/nvfp4_tensors.h"
#include "src/checkpoint/quantized/quantization.h"
#include "src/checkpoint/quantized/table_tensors.h"
#include "src/convert/rows_of_parts.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {
namespace {

/// Each is a quantization_config.
constexpr const char* kSchemes[] = {
    R"({"quant_method": "awq", "bits": 4, "group_size": 64})",
    R"({"quant_method": "gptq", "bits": 4, "group_size": 128})",
    R"({"quant_method": "gptq", "bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2"})",
    R"({"format": "pack-quantized", "config_groups": {
         "a": {"weights": {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": false}},
         "b": {"weights": {"num_bits": 4, "strategy": "tensor"}},
         "c": {"weights": {"num_bits": 8, "strategy": "channel"}}}})",
    R"({"format": "int-quantized", "config_groups": {
         "a": {"weights": {"num_bits": 8, "strategy": "group", "group_size": 32, "symmetric": false}},
         "b": {"weights": {"num_bits": 8, "strategy": "channel"}}}})",
    R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})",
    R"({"format": "nvfp4-pack-quantized", "config_groups": {"a": {"weights": {
         "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}}})",
    R"({"quant_method": "mxfp4"})",
    R"({"quant_method": "bitsandbytes", "load_in_4bit": true})"};

void make(const TensorEntry& tensor, std::string_view file) {
  constexpr std::int64_t kMostRows = 64, kMostColumns = 1 << 16;
  std::int64_t rows = 1;
  for (std::size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis) rows *= tensor.shape[axis];
  TensorEntry matrix = tensor;
  matrix.shape = {rows, tensor.shape.back()};
  if (matrix.shape[1] > kMostColumns) return;
  const ReadAt read_at = [&](const TensorEntry&, std::uint64_t offset, std::span<std::byte> into) {
    expect(offset <= file.size() && into.size() <= file.size() - offset, "a part in its file");
    std::ranges::copy(std::as_bytes(std::span(file.substr(offset, into.size()))), into.begin());
  };
  const std::int64_t most = std::min(rows, kMostRows);
  std::vector<std::byte> all, one;
  make_rows_of_parts(matrix, 0, most, read_at, all);
  const std::size_t row = place_of_rows(matrix, 0, 1).bytes;
  expect(all.size() == row * static_cast<std::size_t>(most), "rows of their size");
  std::vector<float> values(static_cast<std::size_t>(matrix.shape[1]));
  for (std::int64_t i = 0; i < most; ++i) {
    const std::span whole = std::span(all).subspan(static_cast<std::size_t>(i) * row, row);
    row_as_f32(matrix.dtype, row_at(whole.data(), matrix, i), values);
    make_rows_of_parts(rows_of(matrix, i, 1), 0, 1, read_at, one);
    expect(std::ranges::equal(one, whole), "rows that are the same alone");
  }
  make_rows_of_parts(matrix, rows - 1, 1, read_at, one);
}

}  // namespace

void fuzz_one(std::string_view input) {
  put("model.safetensors", input);
  for (const char* const text : kSchemes)
    reads([&] {
      const Quantization scheme =
          quantization_of({{"quantization_config", nlohmann::json::parse(text)}});
      TensorIndex index = read_safetensors(folder());
      ModelConfig config;
      if (scheme.nvfp4) join_nvfp4_tensors(index, *scheme.nvfp4, config);
      if (scheme.mxfp4) join_mxfp4_tensors(index, config);
      if (scheme.tables) join_table_tensors(index, config);
      if (scheme.integers) join_integer_tensors(index, *scheme.integers, config);
      for (const TensorEntry& tensor : index.tensors) {
        if (!tensor.parts) continue;
        expect(tensor.bytes == tensor_bytes(tensor), "bytes of its rows");
        const ByteRange place = place_in_file(tensor);
        expect(place.offset + place.bytes <= input.size(), "codes inside of their file");
        make(tensor, input);
      }
    });
}

}  // namespace canopy::fuzz
