// The numbers of xIELU, of which a directory has four for each layer as tensors of one value.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"
#include "src/base/utf8.h"
#include "src/checkpoint/header_reader.h"
#include "src/checkpoint/model_tensors.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

struct Part {
  std::string_view name;
  float Xielu::*number;
};
constexpr std::array kParts{Part{"model.layers.#.mlp.act_fn.alpha_p", &Xielu::alpha_p},
                            Part{"model.layers.#.mlp.act_fn.alpha_n", &Xielu::alpha_n},
                            Part{"model.layers.#.mlp.act_fn.beta", &Xielu::beta},
                            Part{"model.layers.#.mlp.act_fn.eps", &Xielu::eps}};

float read_number(const TensorIndex& index, const TensorEntry& tensor) {
  require_known_dtype(tensor);
  std::int64_t values = 1;
  for (const std::int64_t extent : tensor.shape) values *= extent;
  if (values != 1)
    throw Error("tensor " + in_quotes(tensor.name) + " has shape " + to_string(tensor.shape) +
                ", not one number");
  HeaderReader reader(index.files.at(static_cast<std::size_t>(tensor.file)),
                      tensor.offset + tensor.bytes);
  reader.skip_to(tensor.offset);
  std::array<std::byte, sizeof(float)> stored{};
  reader.read(stored.data(), tensor.bytes);
  float value = 0;
  dequantize_row(tensor.dtype, stored.data(), {&value, 1});
  return value;
}

}  // namespace

bool is_of_xielu(std::string_view tensor) {
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](const Part& part) { return numbers_in(part.name, tensor).has_value(); });
}

void read_xielu(const TensorIndex& index, ModelConfig& config) {
  if (config.form.mlp != MlpKind::kXielu) return;
  for (const Part& part : kParts)
    for (int layer = 0; layer < config.layers; ++layer) {
      const std::string name = with_numbers(part.name, {std::to_string(layer), ""});
      const auto at = std::find_if(index.tensors.begin(), index.tensors.end(),
                                   [&](const TensorEntry& tensor) { return tensor.name == name; });
      if (at == index.tensors.end()) throw Error("tensor " + in_quotes(name) + " is missing");
      config.xielu.at(static_cast<std::size_t>(layer)).*part.number = read_number(index, *at);
    }
  require_xielu(config);
}

void require_xielu(const ModelConfig& config) {
  for (std::size_t layer = 0; layer < config.xielu.size(); ++layer) {
    const Xielu& x = config.xielu[layer];
    if (!(std::isfinite(x.positive() + x.negative() + x.beta) && x.eps <= 0))
      throw Error("xIELU of layer " + std::to_string(layer) + " has the numbers " +
                  std::to_string(x.alpha_p) + ", " + std::to_string(x.alpha_n) + ", " +
                  std::to_string(x.beta) + " and " + std::to_string(x.eps) +
                  ": they must be finite, and the last not positive");
  }
}

void put_xielu(const Metadata& metadata, ModelConfig& model) {
  constexpr std::array kParts{
      std::pair{"xielu.alpha_p", &Xielu::alpha_p}, std::pair{"xielu.alpha_n", &Xielu::alpha_n},
      std::pair{"xielu.beta", &Xielu::beta}, std::pair{"xielu.eps", &Xielu::eps}};
  const auto layers = static_cast<std::size_t>(model.layers);
  model.xielu.resize(layers);
  for (const auto& [key, part] : kParts) {
    const auto* const one = metadata.find<double>(key);
    const auto* const each = metadata.find<std::vector<float>>(key);
    if (one == nullptr && (each == nullptr || each->size() != layers))
      throw Error("metadata key '" + std::string(key) + "' is not a float for each of " +
                  std::to_string(layers) + " layers");
    for (std::size_t layer = 0; layer < layers; ++layer)
      model.xielu[layer].*part = one != nullptr ? static_cast<float>(*one) : (*each)[layer];
  }
  require_xielu(model);
}

}  // namespace canopy
