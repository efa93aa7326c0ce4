// A safetensors file: its header, and what a packed one says of its tensors. Rows that a packed
// matrix is said to have become floats, whatever is in them.
#include <algorithm>

#include "src/base/formats/packed_format.h"
#include "src/checkpoint/readers.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {
namespace {

void unpack(const TensorEntry& tensor, std::string_view file) {
  constexpr std::int64_t kMostRows = 64, kMostColumns = 1 << 16;
  if (tensor.shape[1] > kMostColumns) return;
  std::vector<float> out(static_cast<std::size_t>(tensor.shape[1]));
  for (std::int64_t i = 0; i < std::min(tensor.shape[0], kMostRows); ++i) {
    const TensorEntry row = rows_of(tensor, i, 1);
    expect(row.offset + row.bytes <= file.size(), "a row inside of its file");
    expect(row.bytes <= longest_row(tensor), "no row longer than the longest");
    // A copy, so that a byte read outside it is found.
    const std::string bytes(file.substr(row.offset, row.bytes));
    row_as_f32(tensor.dtype, row_at(reinterpret_cast<const std::byte*>(bytes.data()), row, 0), out);
  }
}

}  // namespace

void fuzz_one(std::string_view input) {
  put("model.safetensors", input);
  reads([&] {
    const TensorIndex index = read_safetensors(folder());
    expect_consistent(index.tensors, index.files);
    for (const TensorEntry& tensor : index.tensors)
      if (!tensor.companion.empty()) unpack(tensor, input);
  });
}

}  // namespace canopy::fuzz
