#include "src/checkpoint/quantized/mxfp4_tensors.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"
#include "src/base/utf8.h"
#include "src/checkpoint/quantized/matrix_parts.h"
#include "src/checkpoint/quantized/part_checks.h"

namespace canopy {

namespace {

using Shape = std::vector<std::int64_t>;
constexpr std::string_view kCodes = "_blocks", kScales = "_scales";
constexpr std::int64_t kBytesOfBlock = 16;

TensorEntry joined(const TensorEntry& codes, const TensorEntry& scales) {
  Shape shape = codes.shape;
  if (shape.size() < 3 || shape.back() != kBytesOfBlock)
    throw Error("its codes have shape " + to_string(shape) + ", not [.., rows, blocks, 16]");
  require_part(codes, "U8", 1, shape);
  shape.pop_back();
  require_part(scales, "U8", 1, shape);
  MatrixParts m{.layout = MatrixParts::Layout::kMxfp4,
                .bits = 4,
                .rows = 1,
                .columns = shape.back() * format::MXFP4::kBlockElements,
                .group = format::MXFP4::kBlockElements,
                .zero_added = 0,
                .codes = codes,
                .scales = scales,
                .zeros = {}};
  shape.back() = m.columns;
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) m.rows *= shape[axis];
  TensorEntry matrix = codes;
  matrix.foreign_dtype.reset();
  matrix.dtype = DType::kMXFP4;
  matrix.shape = shape;
  matrix.bytes = tensor_bytes(matrix.dtype, matrix.shape);
  matrix.parts = std::make_shared<const MatrixParts>(std::move(m));
  return matrix;
}

}  // namespace

void join_mxfp4_tensors(TensorIndex& index, ModelConfig& config) {
  std::map<std::string, const TensorEntry*, std::less<>> by_name;
  for (const TensorEntry& tensor : index.tensors) by_name.emplace(tensor.name, &tensor);
  std::set<std::string, std::less<>> gone;
  std::vector<TensorEntry> matrices;
  for (const TensorEntry& codes : index.tensors) {
    if (!codes.name.ends_with(kCodes)) continue;
    const std::string stem = codes.name.substr(0, codes.name.size() - kCodes.size());
    in_context("reading tensor " + in_quotes(codes.name) + " of MXFP4", [&] {
      const std::string of_scales = stem + std::string(kScales);
      const auto scales = by_name.find(of_scales);
      if (scales == by_name.end()) throw Error("its part " + in_quotes(of_scales) + " is missing");
      if (by_name.contains(stem))
        throw Error("there is also " + in_quotes(stem) + ", and which of them counts is open");
      matrices.push_back(joined(codes, *scales->second));
      matrices.back().name = stem;
      gone.insert({codes.name, of_scales});
    });
  }
  if (matrices.empty())
    throw Error("the config says MXFP4, but no tensor NAME_blocks has its codes");
  config.quantization = "MXFP4: " + std::to_string(matrices.size()) + " stacks of matrices";
  std::erase_if(index.tensors, [&](const auto& tensor) { return gone.contains(tensor.name); });
  std::ranges::move(matrices, std::back_inserter(index.tensors));
}

}  // namespace canopy
