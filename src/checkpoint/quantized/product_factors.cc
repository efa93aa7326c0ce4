#include "src/checkpoint/quantized/product_factors.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/quantized/part_checks.h"

namespace canopy {

namespace {

/// The matrix of NVFP4 that NAME`end` is next to, or the end.
auto matrix_of(std::vector<TensorEntry>& tensors, const std::string& name, std::string_view end) {
  if (!name.ends_with(end)) return tensors.end();
  const std::string weight = name.substr(0, name.size() - end.size()) + ".weight";
  const auto at = std::ranges::find(tensors, weight, &TensorEntry::name);
  return at != tensors.end() && at->dtype == DType::kNVFP4 ? at : tensors.end();
}

}  // namespace

void take_product_factors(std::span<const std::filesystem::path> files,
                          std::vector<TensorEntry>& tensors, ModelConfig& config) {
  std::set<std::string> gone;
  bool of_activations = false, of_products = false;
  for (const TensorEntry& tensor : tensors) {
    if (matrix_of(tensors, tensor.name, ".input_scale") != tensors.end()) {
      gone.insert(tensor.name);
      of_activations = true;
    }
    const auto matrix = matrix_of(tensors, tensor.name, ".scale");
    if (matrix == tensors.end()) continue;
    in_context("reading tensor " + in_quotes(matrix->name) + " (NVFP4)", [&] {
      if (matrix->name == "token_embd.weight")
        throw Error("its rows are no products, which " + in_quotes(tensor.name) +
                    " would multiply; take the model in a file of another type");
      const std::int64_t experts = matrix->shape.size() == 3 ? matrix->shape[0] : 1;
      require_part(tensor, "F32", sizeof(float), {experts});
      matrix->factors = read_part_as<float>(files, tensor);
      for (const float factor : matrix->factors)
        if (!std::isfinite(factor) || factor <= 0)
          throw Error("its part " + in_quotes(tensor.name) + " is not finite and above zero");
    });
    gone.insert(tensor.name);
    of_products = true;
  }
  if (of_products || of_activations)
    config.quantization = std::string("NVFP4") + (of_products ? " with factors of products" : "") +
                          (of_activations ? "; scales of activations are not used" : "");
  std::erase_if(tensors, [&](const TensorEntry& tensor) { return gone.contains(tensor.name); });
}

}  // namespace canopy
