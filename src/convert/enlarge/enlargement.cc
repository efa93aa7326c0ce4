#include "src/convert/enlarge/enlargement.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/base/utf8.h"
#include "src/checkpoint/families.h"
#include "src/checkpoint/model_tensors.h"
#include "src/convert/output.h"

namespace canopy {

namespace {

constexpr std::array<int, 2> kWidths{4, 16};
constexpr std::array<int, 3> kHeadFactors{4, 2, 1};
constexpr int kMostLayers = 128;
/// The widest MLP before layers are added: hidden_dim <= 4 dim, as in real models.
constexpr std::int64_t kMlpRatio = 4;
constexpr std::int64_t kMlpStep = 32;  // whole blocks and cache lines

std::uint64_t bf16_bytes(const ModelTensor& tensor, const ModelConfig& config) {
  return tensor_bytes(DType::kBF16, tensor.shape(config));
}

/// The widest MLP, in steps, whose model takes at most `bytes`; negative if there is none.
std::int64_t fitting_hidden_dim(ModelConfig config, std::uint64_t bytes) {
  config.hidden_dim = 0;
  const std::uint64_t fixed = bf16_bytes(config);
  if (fixed > bytes) return -1;
  config.hidden_dim = 1;
  const std::uint64_t per_neuron = bf16_bytes(config) - fixed;
  return static_cast<std::int64_t>((bytes - fixed) / per_neuron) / kMlpStep * kMlpStep;
}

std::int64_t widest_mlp(const ModelConfig& small, const ModelConfig& big) {
  return std::max(kMlpRatio * big.dim, std::int64_t{small.hidden_dim});
}

ModelConfig widened(const ModelConfig& small, int width, int heads) {
  ModelConfig big = small;
  big.dim *= width;
  big.heads *= heads;
  big.kv_heads *= heads;
  big.norm_eps /= static_cast<float>(width);
  return big;
}

}  // namespace

std::uint64_t bf16_bytes(const ModelConfig& config) {
  std::uint64_t bytes = 0;
  for_each_tensor(config, [&](const ModelTensor& tensor) { bytes += bf16_bytes(tensor, config); });
  return bytes;
}

ModelConfig enlarge(const ModelConfig& small, std::uint64_t bytes) {
  if (small.experts.count > 0)
    throw Error("a mixture of experts is not enlarged: take a dense model");
  constexpr std::int64_t kMostDim = std::int64_t{1} << 20;
  if (small.dim > kMostDim)
    throw Error("a model of " + std::to_string(small.dim) + " dimensions is not enlarged further");
  if (small.form != DecoderForm())
    throw Error("a model of architecture '" + small.architecture +
                "' is not enlarged: its layer norms would see the mean of what is added");
  if (small.factors != DecoderFactors() || !family_of(small).fused.empty() ||
      small.layer(0).window != 0)
    throw Error("a model of architecture '" + small.architecture +
                "' with factors, windows or matrices in one is not enlarged");
  if (small.layer_kinds.size() > 1 || small.sizes_differ())
    throw Error(
        "a model whose layers differ in kind is not enlarged: added layers would shift them");
  if (!small.inflated_from.empty())
    throw Error("the model is itself an enlargement of " + in_quotes(small.inflated_from) +
                "; enlarge the original");
  // A little above the size asked for beats a lot below it: the smallest shape is used up to 2 %
  // beyond.
  const ModelConfig smallest = widened(small, kWidths[0], 1);
  const std::uint64_t least = bf16_bytes(smallest);
  if (bytes < least - least / 50)
    throw Error("the smallest enlargement of this model takes " + format_size(least) + "; " +
                format_size(bytes) + " were asked for");
  for (const int width : kWidths) {
    for (const int heads : kHeadFactors) {
      ModelConfig big = widened(small, width, heads);
      // More heads only where the MLP can grow with them: shapes as in real models.
      const std::int64_t proportional = std::int64_t{heads} * small.hidden_dim;
      const std::int64_t hidden = fitting_hidden_dim(big, bytes);
      if (hidden < proportional && heads > 1) continue;
      big.hidden_dim = static_cast<int>(
          std::clamp(hidden, std::int64_t{small.hidden_dim}, widest_mlp(small, big)));
      if (hidden > widest_mlp(small, big)) {  // the layers must grow
        ModelConfig with_one_more = big;
        ++with_one_more.layers;
        const std::uint64_t at_once = bf16_bytes(big);
        const std::uint64_t per_layer = bf16_bytes(with_one_more) - at_once;
        const std::uint64_t more = (bytes - at_once + per_layer - 1) / per_layer;
        if (more + static_cast<std::uint64_t>(small.layers) >
            static_cast<std::uint64_t>(std::max(kMostLayers, small.layers)))
          break;  // to the next width
        big.layers += static_cast<int>(more);
        big.hidden_dim = static_cast<int>(
            std::max(fitting_hidden_dim(big, bytes), std::int64_t{small.hidden_dim}));
      }
      return big;
    }
  }
  ModelConfig largest = widened(small, kWidths.back(), kHeadFactors.front());
  largest.hidden_dim = static_cast<int>(widest_mlp(small, largest));
  largest.layers = std::max(kMostLayers, small.layers);
  throw Error("the largest enlargement of this model takes " + format_size(bf16_bytes(largest)) +
              "; " + format_size(bytes) + " were asked for");
}

ModelConfig with_experts(const ModelConfig& small, int count, int active) {
  if (small.architecture != "llama")
    throw Error("experts are made of the MLPs of a Llama, not of architecture '" +
                small.architecture + "': the result is a Mixtral, which has the same layers else");
  if (active < 1 || count < active)
    throw Error(std::to_string(active) + " of " + std::to_string(count) +
                " experts are to compute for each row");
  ModelConfig big = small;
  big.architecture = "mixtral";
  const Family& family = family_of(big);
  big.layer_kinds.assign(family.layer_kinds.begin(), family.layer_kinds.end());
  big.experts = {count, active, small.hidden_dim, true};
  return big;
}

int source_layer(int layer, int small_layers, int big_layers) {
  // Layer i of the small one sits in the middle of the i-th of equal parts; parts are at least one
  // layer long, so no two share a place.
  const auto place = [&](std::int64_t i) { return (2 * i + 1) * big_layers / (2 * small_layers); };
  const std::int64_t guess = std::int64_t{layer} * small_layers / big_layers;
  for (std::int64_t i = std::max<std::int64_t>(guess - 1, 0);
       i <= std::min<std::int64_t>(guess + 1, small_layers - 1); ++i)
    if (place(i) == layer) return static_cast<int>(i);
  return -1;
}

namespace {

/// True if a norm of Q or K takes what this tensor makes.
bool is_normed_later(const ModelTensor& tensor, const ModelConfig& config) {
  switch (tensor.spec->role) {
    case TensorRole::kQuery:
    case TensorRole::kKey:
    case TensorRole::kQueryBias:
    case TensorRole::kKeyBias:
      return config.layer(tensor.layer).qk_norm;
    default:
      return false;
  }
}

/// The matrix of the small model's MLP that an expert's is made of.
std::optional<TensorRole> dense_role(TensorRole role) {
  switch (role) {
    case TensorRole::kExpertGate:
      return TensorRole::kGate;
    case TensorRole::kExpertUp:
      return TensorRole::kUp;
    case TensorRole::kExpertDown:
      return TensorRole::kDown;
    default:
      return std::nullopt;
  }
}

/// Makes one tensor of `big`; `from` is the small model's, or of a layer that it has not.
EnlargedTensor enlarged(const ModelTensor& tensor, const TensorEntry* from,
                        const ModelConfig& small, const ModelConfig& big) {
  using Beside = EnlargedTensor::Beside;
  const TensorSpec& spec = *tensor.spec;
  EnlargedTensor to{stored_name(family_of(big), tensor.name()), tensor.shape(big)};
  to.source = from;
  if (spec.role == TensorRole::kRouter) return to;  // random
  if (tensor.expert >= 0) to.of_expert = tensor;
  const TensorSpec& of_small = spec_of(dense_role(spec.role).value_or(spec.role));
  to.source_rows = length(of_small.rows, small);
  to.source_columns = length(of_small.columns, small);
  // An identity layer adds nothing to the residual stream: its matrices have added rows only, those
  // that write to the stream added columns only.
  const bool reads_stream = spec.kind == TensorKind::kMatrix && spec.rows != Length::kDim;
  if (!from) (reads_stream ? to.source_rows : to.source_columns) = 0;
  // The norms of the stream see a smaller mean. The norms of Q and K, over a head as wide as
  // before, share the epsilon that was divided: their inputs shrink with it.
  const bool normed = spec.kind == TensorKind::kNorm && spec.columns == Length::kDim;
  if (normed || is_normed_later(tensor, big))
    to.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(big.dim) / small.dim));
  // Zero is added to the stream's input: columns of the embedding, and biases.
  const bool adds_zero = spec.kind == TensorKind::kBias || spec.unit == TensorUnit::kEmbedding;
  to.beside = adds_zero ? Beside::kZero : Beside::kRandom;
  return to;
}

}  // namespace

std::vector<EnlargedTensor> enlarged_tensors(const Checkpoint& checkpoint, const ModelConfig& big) {
  const ModelConfig& small = checkpoint.config();
  std::vector<EnlargedTensor> tensors;
  for_each_tensor(big, [&](const ModelTensor& tensor) {
    ModelTensor from = tensor;
    if (tensor.layer >= 0) from.layer = source_layer(tensor.layer, small.layers, big.layers);
    if (const auto dense = dense_role(tensor.spec->role)) from = {&spec_of(*dense), from.layer};
    const TensorEntry* entry = nullptr;
    const bool is_made_up = tensor.spec->role == TensorRole::kRouter && small.experts.count == 0;
    if (!is_made_up && (tensor.layer < 0 || from.layer >= 0)) {
      entry = checkpoint.find(from.name());
      if (!entry) throw Error(checkpoint.root().string() + " lacks the tensor " + from.name());
    }
    tensors.push_back(enlarged(tensor, entry, small, big));
  });
  return tensors;
}

}  // namespace canopy
