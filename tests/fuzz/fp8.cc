// A safetensors file of FP8 matrices, packed or not, and their scales. Rows are decoded, whatever
// is in them.
#include <cmath>

#include "src/base/formats/packed_format.h"
#include "src/checkpoint/quantized/fp8_tensors.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {
namespace {

void decode(const TensorEntry& tensor, std::string_view file) {
  constexpr std::int64_t kMostRows = 300, kMostColumns = 1 << 16;
  if (tensor.shape[1] > kMostColumns) return;
  std::vector<float> out(static_cast<std::size_t>(tensor.shape[1]));
  for (std::int64_t i = 0; i < std::min(tensor.shape[0], kMostRows); ++i) {
    const ByteRange place = place_of_rows(tensor, i, 1);
    expect(tensor.offset + place.offset + place.bytes <= file.size(), "a row inside of its file");
    // A copy, so that a byte read outside it is found.
    const std::string bytes(file.substr(tensor.offset + place.offset, place.bytes));
    row_as_f32(tensor.dtype, row_at(reinterpret_cast<const std::byte*>(bytes.data()), tensor, i),
               out);
    for (const float weight : out)
      expect(std::isnan(weight) || std::isfinite(weight), "no weight that is infinite");
  }
  const std::int64_t unit = slice_unit(tensor), last = (tensor.shape[0] - 1) / unit * unit;
  const TensorEntry end = rows_of(tensor, last, tensor.shape[0] - last);
  expect(end.companion.rows() == end.shape[0], "a slice with its scales");
}

}  // namespace

void fuzz_one(std::string_view input) {
  put("model.safetensors", input);
  Fp8Scheme scheme;
  scheme.name = "FP8";
  scheme.tensor_scales = scheme.row_scales = scheme.block_scales = true;
  scheme.left_out_key = "ignore";
  scheme.left_out = {"lm_head", "re:.*k_proj$"};
  for (const bool every_layer : {false, true})
    reads([&] {
      scheme.every_layer = every_layer;
      TensorIndex index = read_safetensors(folder());
      ModelConfig config;
      join_fp8_tensors(index, scheme, known_families().front(), config);
      expect_consistent(index.tensors, index.files);
      for (const TensorEntry& tensor : index.tensors) {
        expect(tensor.foreign_dtype != "F8_E4M3", "no matrix without scales");
        if (!tensor.companion.empty()) decode(tensor, input);
      }
    });
}

}  // namespace canopy::fuzz
