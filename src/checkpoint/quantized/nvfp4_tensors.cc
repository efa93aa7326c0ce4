#include "src/checkpoint/quantized/nvfp4_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
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
using Format = format::F4_256;
constexpr std::string_view kScales = ".weight_scale", kWeight = ".weight";
constexpr std::array<std::string_view, 4> kNotUsed{".input_scale", ".input_global_scale",
                                                   ".k_scale", ".v_scale"};

class Join {
 public:
  Join(TensorIndex& index, const Nvfp4Scheme& scheme) : index_(index), scheme_(scheme) {
    for (const TensorEntry& tensor : index.tensors) by_name_.emplace(tensor.name, &tensor);
  }

  bool is_of_codes(const TensorEntry& tensor) const {
    return tensor.name.ends_with(scheme_.codes) && type_of(tensor) == name(DType::kU8) &&
           tensor.shape.size() == 2;
  }

  TensorEntry joined(const TensorEntry& codes) {
    const std::string module = codes.name.substr(0, codes.name.size() - scheme_.codes.size());
    const std::int64_t rows = codes.shape[0], columns = 2 * codes.shape[1];
    require_part(codes, "U8", 1, codes.shape);
    if (columns % Format::kBlockElements != 0)
      throw Error("its rows have " + std::to_string(columns) +
                  " columns, which are not whole blocks of 256; take the model in another form");
    const TensorEntry& scales = part(module, kScales);
    require_part(scales, "F8_E4M3", 1, {rows, columns / Format::kGroupElements});
    const float factor = read_factor(part(module, scheme_.factor));
    TensorEntry matrix = codes;
    matrix.name = module + std::string(kWeight);
    if (matrix.name != codes.name && by_name_.contains(matrix.name))
      throw Error("there is also " + in_quotes(matrix.name) + ", and which of them counts is open");
    matrix.foreign_dtype.reset();
    matrix.dtype = Format::kDType;
    matrix.shape = {rows, columns};
    matrix.bytes = tensor_bytes(matrix.dtype, matrix.shape);
    matrix.parts = std::make_shared<const MatrixParts>(
        MatrixParts{.layout = MatrixParts::Layout::kNvfp4,
                    .bits = 4,
                    .rows = rows,
                    .columns = columns,
                    .group = Format::kGroupElements,
                    .zero_added = 0,
                    .codes = codes,
                    .scales = scales,
                    .zeros = {},
                    .factor = scheme_.divides ? -factor : factor});
    gone_.insert(codes.name);
    return matrix;
  }

  void finish(std::vector<TensorEntry> matrices, ModelConfig& config) {
    config.quantization = scheme_.name + ": " + std::to_string(matrices.size()) +
                          (matrices.size() == 1 ? " matrix" : " matrices") +
                          "; activations, keys and values are not quantised";
    const std::size_t before = index_.tensors.size();
    std::erase_if(index_.tensors, [](const TensorEntry& tensor) {
      return std::ranges::any_of(kNotUsed, [&](auto end) { return tensor.name.ends_with(end); });
    });
    if (index_.tensors.size() != before) config.quantization += ", and their scales are not used";
    std::erase_if(index_.tensors,
                  [&](const TensorEntry& tensor) { return gone_.contains(tensor.name); });
    std::ranges::move(matrices, std::back_inserter(index_.tensors));
  }

 private:
  /// The part, which is then left out.
  const TensorEntry& part(const std::string& module, std::string_view suffix) {
    const std::string called = module + std::string(suffix);
    const auto at = by_name_.find(called);
    if (at == by_name_.end()) throw Error("its part " + in_quotes(called) + " is missing");
    gone_.insert(called);
    return *at->second;
  }

  float read_factor(const TensorEntry& tensor) const {
    const bool one =
        tensor.shape.empty() || tensor.shape == Shape{1} || tensor.shape == Shape{1, 1};
    if (tensor.foreign_dtype || tensor.dtype != DType::kF32 || !one ||
        tensor.bytes != sizeof(float))
      refuse_part(tensor, "one F32");
    const float factor = read_part_as<float>(index_.files, tensor).front();
    if (!std::isfinite(factor) || factor <= 0)
      throw Error("its part " + in_quotes(tensor.name) + " is not finite and above zero");
    return factor;
  }

  TensorIndex& index_;
  const Nvfp4Scheme& scheme_;
  std::map<std::string, const TensorEntry*, std::less<>> by_name_;
  std::set<std::string, std::less<>> gone_;
};

}  // namespace

void join_nvfp4_tensors(TensorIndex& index, const Nvfp4Scheme& scheme, ModelConfig& config) {
  Join join(index, scheme);
  std::vector<TensorEntry> matrices;
  for (const TensorEntry& tensor : index.tensors)
    if (join.is_of_codes(tensor))
      in_context("reading tensor " + in_quotes(tensor.name) + " of " + scheme.name,
                 [&] { matrices.push_back(join.joined(tensor)); });
  join.finish(std::move(matrices), config);
}

}  // namespace canopy
