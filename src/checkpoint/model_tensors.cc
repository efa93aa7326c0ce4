#include "src/checkpoint/model_tensors.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace canopy {

namespace {

constexpr auto kModelTensors = [] {
  using enum TensorRole;
  using enum TensorKind;
  using enum Length;
  constexpr auto kEmbeds = TensorUnit::kEmbedding, kEnters = TensorUnit::kEntry,
                 kAttends = TensorUnit::kAttention, kRecurs = TensorUnit::kRecurrent,
                 kMlps = TensorUnit::kMlp, kEnds = TensorUnit::kHead;
  using Model = const ModelConfig&;
  using Layer = const LayerConfig&;
  constexpr IsIn kBiased = [](Model model, Layer layer) {
    return !model.form.fused_qkv && layer.qkv_bias;
  };
  constexpr IsIn kNormed = [](Model, Layer layer) { return layer.qk_norm; };
  constexpr IsIn kApart = [](Model model, Layer) { return !model.form.fused_qkv; };
  constexpr IsIn kApartValues = [](Model model, Layer layer) {
    return !model.form.fused_qkv && !layer.values_from_keys;
  };
  constexpr IsIn kFused = [](Model model, Layer) { return model.form.fused_qkv; };
  constexpr IsIn kFusedBiased = [](Model model, Layer layer) {
    return model.form.fused_qkv && layer.qkv_bias;
  };
  constexpr IsIn kNormedInput = [](Model model, Layer) { return model.form.norm_inputs; };
  constexpr IsIn kNormedInputBiased = [](Model model, Layer) {
    return model.form.norm_inputs && model.form.norm == NormKind::kLayer && model.form.norm_bias;
  };
  constexpr IsIn kOwnNormedInput = [](Model model, Layer) {
    return model.form.norm_inputs && !model.form.parallel;
  };
  constexpr IsIn kOwnNormedInputBiased = [](Model model, Layer) {
    return model.form.norm_inputs && !model.form.parallel && model.form.norm == NormKind::kLayer &&
           model.form.norm_bias;
  };
  constexpr IsIn kNormedResult = [](Model model, Layer) { return model.form.norm_results; };
  constexpr IsIn kScaled = [](Model model, Layer) { return model.form.layer_scale; };
  constexpr IsIn kGated = [](Model model, Layer layer) {
    return model.form.gated() && !layer.experts;
  };
  constexpr IsIn kDense = [](Model, Layer layer) { return !layer.experts; };
  constexpr IsIn kMixed = [](Model, Layer layer) { return layer.experts; };
  constexpr IsIn kChosenByBias = [](Model model, Layer layer) {
    return layer.experts && model.experts.choice_bias;
  };
  constexpr IsIn kShared = [](Model model, Layer layer) {
    return layer.experts && model.experts.shared_dim > 0;
  };
  constexpr IsIn kSwitched = [](Model model, Layer layer) {
    return layer.experts && model.experts.shared_dim > 0 && model.experts.shared_switch;
  };
  constexpr IsIn kOthersBiased = [](Model, Layer layer) { return layer.other_biases; };
  constexpr IsIn kDenseBiased = [](Model, Layer layer) {
    return layer.other_biases && !layer.experts;
  };
  constexpr IsIn kMixedBiased = [](Model, Layer layer) {
    return layer.other_biases && layer.experts;
  };
  constexpr IsIn kSunk = [](Model, Layer layer) { return layer.sinks; };
  constexpr IsIn kPlaced = [](Model model, Layer) {
    return model.form.positions == PositionKind::kLearned;
  };
  constexpr IsIn kNormedFirst = [](Model model, Layer) { return model.form.embedding_norm; };
  constexpr IsIn kProjected = [](Model model, Layer) { return model.projects(); };
  constexpr IsIn kNormedLast = [](Model model, Layer) { return !model.form.norm_after; };
  constexpr IsIn kLayerNormedLast = [](Model model, Layer) {
    return model.form.norm == NormKind::kLayer && model.form.norm_bias && !model.form.norm_after;
  };
  constexpr IsIn kApartInputs = [](Model model, Layer) { return !model.delta.joined_inputs; };
  constexpr IsIn kJoinedInputs = [](Model model, Layer) { return model.delta.joined_inputs; };
  constexpr IsIn kApartSteps = [](Model model, Layer) { return !model.delta.joined_steps; };
  constexpr IsIn kJoinedSteps = [](Model model, Layer) { return model.delta.joined_steps; };
  constexpr IsIn kUntied = [](Model model, Layer) { return !model.tied_head; };
  return std::to_array<TensorSpec>({
      {kEmbedding, kEmbeds, kMatrix, kVocab, kEmbeddingDim, "model.embed_tokens.weight",
       "token_embd.weight"},
      {kProjectIn, kEnters, kMatrix, kDim, kEmbeddingDim, "model.project_in.weight",
       "project_in.weight", kProjected},
      {kPositions, kEnters, kMatrix, kPositionRows, kDim, "model.embed_positions.weight",
       "position_embd.weight", kPlaced},
      {kEmbeddingNorm, kEnters, kNorm, kOne, kDim, "model.embed_norm.weight",
       "token_embd_norm.weight", kNormedFirst},
      {kEmbeddingNormBias, kEnters, kBias, kOne, kDim, "model.embed_norm.bias",
       "token_embd_norm.bias", kNormedFirst},

      {kAttentionNorm, kAttends, kNorm, kOne, kDim, "model.layers.#.input_layernorm.weight",
       "blk.#.attn_norm.weight", kNormedInput},
      {kAttentionNormBias, kAttends, kBias, kOne, kDim, "model.layers.#.input_layernorm.bias",
       "blk.#.attn_norm.bias", kNormedInputBiased},
      {kFusedQkv, kAttends, kMatrix, kQkvRows, kDim, "model.layers.#.self_attn.qkv_proj.weight",
       "blk.#.attn_qkv.weight", kFused},
      {kFusedQkvBias, kAttends, kBias, kOne, kQkvRows, "model.layers.#.self_attn.qkv_proj.bias",
       "blk.#.attn_qkv.bias", kFusedBiased},
      {kQuery, kAttends, kMatrix, kQueryRows, kDim, "model.layers.#.self_attn.q_proj.weight",
       "blk.#.attn_q.weight", kApart},
      {kKey, kAttends, kMatrix, kKeys, kDim, "model.layers.#.self_attn.k_proj.weight",
       "blk.#.attn_k.weight", kApart},
      {kValue, kAttends, kMatrix, kKeys, kDim, "model.layers.#.self_attn.v_proj.weight",
       "blk.#.attn_v.weight", kApartValues},
      {kQueryBias, kAttends, kBias, kOne, kQueries, "model.layers.#.self_attn.q_proj.bias",
       "blk.#.attn_q.bias", kBiased},
      {kKeyBias, kAttends, kBias, kOne, kKeys, "model.layers.#.self_attn.k_proj.bias",
       "blk.#.attn_k.bias", kBiased},
      {kValueBias, kAttends, kBias, kOne, kKeys, "model.layers.#.self_attn.v_proj.bias",
       "blk.#.attn_v.bias", kBiased},
      {kQueryNorm, kAttends, kNorm, kQueryNorms, kNormedQuery,
       "model.layers.#.self_attn.q_norm.weight", "blk.#.attn_q_norm.weight", kNormed},
      {kKeyNorm, kAttends, kNorm, kKeyNorms, kNormedKey, "model.layers.#.self_attn.k_norm.weight",
       "blk.#.attn_k_norm.weight", kNormed},
      {kSinks, kAttends, kBias, kOne, kHeads, "model.layers.#.self_attn.sinks",
       "blk.#.attn_sinks.weight", kSunk},
      {kOutput, kAttends, kMatrix, kDim, kQueries, "model.layers.#.self_attn.o_proj.weight",
       "blk.#.attn_output.weight"},
      {kOutputBias, kAttends, kBias, kOne, kDim, "model.layers.#.self_attn.o_proj.bias",
       "blk.#.attn_output.bias", kOthersBiased},
      {kAttentionResultNorm, kAttends, kNorm, kOne, kDim,
       "model.layers.#.attention_result_norm.weight", "blk.#.post_attention_norm.weight",
       kNormedResult},

      {kDeltaMixed, kRecurs, kMatrix, kDeltaChannels, kDim,
       "model.layers.#.linear_attn.in_proj_qkv.weight", "blk.#.delta_qkv.weight", kApartInputs},
      {kDeltaGate, kRecurs, kMatrix, kDeltaValues, kDim,
       "model.layers.#.linear_attn.in_proj_z.weight", "blk.#.attn_gate.weight", kApartInputs},
      {kDeltaJoined, kRecurs, kMatrix, kDeltaJoinedRows, kDim,
       "model.layers.#.linear_attn.in_proj_qkvz.weight", "blk.#.ssm_in.weight", kJoinedInputs},
      {kDeltaBeta, kRecurs, kMatrix, kDeltaHeads, kDim,
       "model.layers.#.linear_attn.in_proj_b.weight", "blk.#.ssm_beta.weight", kApartSteps},
      {kDeltaStep, kRecurs, kMatrix, kDeltaHeads, kDim,
       "model.layers.#.linear_attn.in_proj_a.weight", "blk.#.ssm_alpha.weight", kApartSteps},
      {kDeltaJoinedSteps, kRecurs, kMatrix, kDeltaTwoHeads, kDim,
       "model.layers.#.linear_attn.in_proj_ba.weight", "blk.#.ssm_ba.weight", kJoinedSteps},
      {kDeltaTaps, kRecurs, kBias, kDeltaChannels, kTaps,
       "model.layers.#.linear_attn.conv1d.weight", "blk.#.ssm_conv1d.weight"},
      {kDeltaStepBias, kRecurs, kBias, kOne, kDeltaHeads, "model.layers.#.linear_attn.dt_bias",
       "blk.#.ssm_dt.bias"},
      {kDeltaRate, kRecurs, kBias, kOne, kDeltaHeads, "model.layers.#.linear_attn.A_log",
       "blk.#.ssm_a"},
      {kDeltaNorm, kRecurs, kNorm, kOne, kDeltaValueDim, "model.layers.#.linear_attn.norm.weight",
       "blk.#.ssm_norm.weight"},
      {kDeltaOutput, kRecurs, kMatrix, kDim, kDeltaValues,
       "model.layers.#.linear_attn.out_proj.weight", "blk.#.ssm_out.weight"},

      {kMlpNorm, kMlps, kNorm, kOne, kDim, "model.layers.#.post_attention_layernorm.weight",
       "blk.#.ffn_norm.weight", kOwnNormedInput},
      {kMlpNormBias, kMlps, kBias, kOne, kDim, "model.layers.#.post_attention_layernorm.bias",
       "blk.#.ffn_norm.bias", kOwnNormedInputBiased},
      {kGate, kMlps, kMatrix, kHidden, kDim, "model.layers.#.mlp.gate_proj.weight",
       "blk.#.ffn_gate.weight", kGated},
      {kUp, kMlps, kMatrix, kHidden, kDim, "model.layers.#.mlp.up_proj.weight",
       "blk.#.ffn_up.weight", kDense},
      {kUpBias, kMlps, kBias, kOne, kHidden, "model.layers.#.mlp.up_proj.bias", "blk.#.ffn_up.bias",
       kDenseBiased},
      {kDown, kMlps, kMatrix, kDim, kHidden, "model.layers.#.mlp.down_proj.weight",
       "blk.#.ffn_down.weight", kDense},
      {kDownBias, kMlps, kBias, kOne, kDim, "model.layers.#.mlp.down_proj.bias",
       "blk.#.ffn_down.bias", kDenseBiased},
      {kMlpResultNorm, kMlps, kNorm, kOne, kDim, "model.layers.#.mlp_result_norm.weight",
       "blk.#.post_ffw_norm.weight", kNormedResult},
      {kLayerScale, kMlps, kNorm, kOne, kOne, "model.layers.#.layer_scalar",
       "blk.#.layer_output_scale.weight", kScaled},

      {kRouter, kMlps, kMatrix, kExperts, kDim, "model.layers.#.mlp.gate.weight",
       "blk.#.ffn_gate_inp.weight", kMixed},
      {kRouterBias, kMlps, kBias, kOne, kExperts, "model.layers.#.mlp.gate.bias",
       "blk.#.ffn_gate_inp.bias", kMixedBiased},
      {kChoiceBias, kMlps, kBias, kOne, kExperts, "model.layers.#.mlp.gate.e_score_correction_bias",
       "blk.#.exp_probs_b.bias", kChosenByBias},
      {kSharedSwitch, kMlps, kMatrix, kSharedScore, kDim,
       "model.layers.#.mlp.shared_expert_gate.weight", "blk.#.ffn_gate_inp_shexp.weight",
       kSwitched},
      {kSharedGate, kMlps, kMatrix, kSharedHidden, kDim,
       "model.layers.#.mlp.shared_experts.gate_proj.weight", "blk.#.ffn_gate_shexp.weight",
       kShared},
      {kSharedUp, kMlps, kMatrix, kSharedHidden, kDim,
       "model.layers.#.mlp.shared_experts.up_proj.weight", "blk.#.ffn_up_shexp.weight", kShared},
      {kSharedDown, kMlps, kMatrix, kDim, kSharedHidden,
       "model.layers.#.mlp.shared_experts.down_proj.weight", "blk.#.ffn_down_shexp.weight",
       kShared},
      {kExpertGateBias, kMlps, kBias, kExperts, kHidden,
       "model.layers.#.mlp.experts.gate_proj.bias", "blk.#.ffn_gate_exps.bias", kMixedBiased},
      {kExpertUpBias, kMlps, kBias, kExperts, kHidden, "model.layers.#.mlp.experts.up_proj.bias",
       "blk.#.ffn_up_exps.bias", kMixedBiased},
      {kExpertDownBias, kMlps, kBias, kExperts, kDim, "model.layers.#.mlp.experts.down_proj.bias",
       "blk.#.ffn_down_exps.bias", kMixedBiased},
      {kExpertGate, kMlps, kMatrix, kHidden, kDim, "model.layers.#.mlp.experts.@.gate_proj.weight",
       "blk.#.ffn_gate_exps.weight", kMixed},
      {kExpertUp, kMlps, kMatrix, kHidden, kDim, "model.layers.#.mlp.experts.@.up_proj.weight",
       "blk.#.ffn_up_exps.weight", kMixed},
      {kExpertDown, kMlps, kMatrix, kDim, kHidden, "model.layers.#.mlp.experts.@.down_proj.weight",
       "blk.#.ffn_down_exps.weight", kMixed},

      {kFinalNorm, kEnds, kNorm, kOne, kDim, "model.norm.weight", "output_norm.weight",
       kNormedLast},
      {kFinalNormBias, kEnds, kBias, kOne, kDim, "model.norm.bias", "output_norm.bias",
       kLayerNormedLast},
      {kProjectOut, kEnds, kMatrix, kEmbeddingDim, kDim, "model.project_out.weight",
       "project_out.weight", kProjected},
      {kHead, kEnds, kMatrix, kVocab, kEmbeddingDim, "lm_head.weight", "output.weight", kUntied},
  });
}();

constexpr bool in_order_of_roles() {
  for (std::size_t i = 0; i < kModelTensors.size(); ++i)
    if (static_cast<std::size_t>(kModelTensors[i].role) != i) return false;
  return static_cast<std::size_t>(TensorRole::kHead) + 1 == kModelTensors.size();
}
static_assert(in_order_of_roles(), "each role has one row, at its own index");

std::string digits(int number) { return number < 0 ? "" : std::to_string(number); }

/// Says if a tensor normalises what the attention reads or gives.
bool is_norm_of_attention(TensorRole role) {
  return role == TensorRole::kAttentionNorm || role == TensorRole::kAttentionNormBias ||
         role == TensorRole::kAttentionResultNorm;
}

int number_of(std::string_view digits) {
  int number = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

}  // namespace

std::span<const TensorSpec> model_tensors() { return kModelTensors; }

const TensorSpec& spec_of(TensorRole role) { return kModelTensors[static_cast<std::size_t>(role)]; }

std::int64_t length(Length of, const ModelConfig& config, int layer) {
  const LayerSizes sizes = config.sizes(layer);
  const bool whole = config.layer(layer).whole_qk_norm, each = config.layer(layer).each_head_norm;
  switch (of) {
    case Length::kOne:
    case Length::kSharedScore:
      break;
    case Length::kDim:
      return config.dim;
    case Length::kEmbeddingDim:
      return config.embedding_width();
    case Length::kHidden:
      return sizes.hidden_dim;
    case Length::kExperts:
      return sizes.experts;
    case Length::kSharedHidden:
      return config.experts.shared_dim;
    case Length::kVocab:
      return config.vocab;
    case Length::kPositionRows:
      return std::int64_t{config.max_positions} + config.form.position_offset;
    case Length::kQkvRows:
      return std::int64_t{3} * sizes.heads * sizes.head_dim;
    case Length::kHeads:
      return sizes.heads;
    case Length::kQueries:
      return std::int64_t{sizes.heads} * sizes.head_dim;
    case Length::kQueryRows:
      return length(Length::kQueries, config, layer) * (config.layer(layer).output_gate ? 2 : 1);
    case Length::kKeys:
      return std::int64_t{sizes.kv_heads} * sizes.head_dim;
    case Length::kHeadDim:
      return sizes.head_dim;
    case Length::kQueryNorms:
      return each ? sizes.heads : 1;
    case Length::kKeyNorms:
      return each ? sizes.kv_heads : 1;
    case Length::kNormedQuery:
      return length(whole ? Length::kQueries : Length::kHeadDim, config, layer);
    case Length::kNormedKey:
      return length(whole ? Length::kKeys : Length::kHeadDim, config, layer);
    case Length::kDeltaChannels:
      return config.delta.channels();
    case Length::kDeltaValues:
      return config.delta.values();
    case Length::kDeltaJoinedRows:
      return std::int64_t{config.delta.channels()} + config.delta.values();
    case Length::kDeltaHeads:
      return config.delta.value_heads;
    case Length::kDeltaTwoHeads:
      return std::int64_t{2} * config.delta.value_heads;
    case Length::kDeltaValueDim:
      return config.delta.value_dim;
    case Length::kTaps:
      return 4;
  }
  return 1;
}

std::string ModelTensor::name() const {
  return with_numbers(spec->name, {digits(layer), digits(expert)});
}

std::vector<std::int64_t> ModelTensor::shape(const ModelConfig& config) const {
  const int of = std::max(layer, 0);
  const bool of_heads = spec->rows == Length::kQueryNorms || spec->rows == Length::kKeyNorms;
  const bool alone = of_heads ? !config.layer(of).each_head_norm : spec->rows == Length::kOne;
  if (spec->kind != TensorKind::kMatrix && alone) return {length(spec->columns, config, of)};
  return {length(spec->rows, config, of), length(spec->columns, config, of)};
}

bool ModelTensor::is_in(const ModelConfig& config) const {
  const LayerConfig& own = config.layer(std::max(layer, 0));
  if (spec->unit == TensorUnit::kRecurrent && !own.recurrent) return false;
  // A delta net has the norms of the attention in whose place it is.
  const bool normed = own.recurrent && is_norm_of_attention(spec->role);
  if (spec->unit == TensorUnit::kAttention && !own.attention && !normed) return false;
  if (spec->unit == TensorUnit::kMlp && !own.mlp) return false;
  return spec->is_in == nullptr || spec->is_in(config, own);
}

void for_each_tensor_of_layer(const ModelConfig& config, int layer,
                              const std::function<void(const ModelTensor&)>& visit) {
  const auto visit_if_it_is_in = [&](const TensorSpec& spec, int expert) {
    if (const ModelTensor tensor{&spec, layer, expert}; tensor.is_in(config)) visit(tensor);
  };
  const std::span<const TensorSpec> all = kModelTensors;
  for (std::size_t i = 0; i < all.size();) {
    std::size_t end = i + 1;  // of tensors that each expert has, one after the other
    while (all[i].of_experts() && end < all.size() && all[end].of_experts()) ++end;
    if (all[i].of_layers() == (layer >= 0)) {
      const int experts = all[i].of_experts() ? config.sizes(layer).experts : 0;
      for (int expert = 0; expert < experts; ++expert)
        for (std::size_t of = i; of < end; ++of) visit_if_it_is_in(all[of], expert);
      if (!all[i].of_experts()) visit_if_it_is_in(all[i], -1);
    }
    i = end;
  }
}

void for_each_tensor(const ModelConfig& config,
                     const std::function<void(const ModelTensor&)>& visit) {
  const auto visit_others = [&](bool before) {
    for_each_tensor_of_layer(config, -1, [&](const ModelTensor& tensor) {
      if ((tensor.spec->unit != TensorUnit::kHead) == before) visit(tensor);
    });
  };
  visit_others(true);
  for (int layer = 0; layer < config.layers; ++layer)
    for_each_tensor_of_layer(config, layer, visit);
  visit_others(false);
}

std::string tensor_name(TensorRole role, int layer, int expert) {
  return ModelTensor{&spec_of(role), layer, expert}.name();
}

std::optional<ModelTensor> find_tensor(std::string_view canonical_name) {
  for (const TensorSpec& spec : kModelTensors) {
    const auto numbers = numbers_in(spec.name, canonical_name);
    if (!numbers) continue;
    const ModelTensor tensor{&spec, number_of(numbers->layer), number_of(numbers->expert)};
    const bool too_large =
        (spec.of_layers() && tensor.layer < 0) || (spec.of_experts() && tensor.expert < 0);
    if (too_large) return {};
    return tensor;
  }
  return {};
}

std::optional<NameNumbers> numbers_in(std::string_view pattern, std::string_view name) {
  NameNumbers numbers;
  while (!pattern.empty()) {
    const std::size_t mark = std::min(pattern.find_first_of("#@"), pattern.size());
    if (!name.starts_with(pattern.substr(0, mark))) return {};
    name.remove_prefix(mark);
    if (mark == pattern.size()) break;
    const std::size_t end = std::min(name.find_first_not_of("0123456789"), name.size());
    if (end == 0) return {};
    (pattern[mark] == '#' ? numbers.layer : numbers.expert) = name.substr(0, end);
    name.remove_prefix(end);
    pattern.remove_prefix(mark + 1);
  }
  if (!name.empty()) return {};
  return numbers;
}

std::string with_numbers(std::string_view pattern, NameNumbers numbers) {
  std::string name;
  for (const char c : pattern)
    if (c == '#')
      name += numbers.layer;
    else if (c == '@')
      name += numbers.expert;
    else
      name += c;
  return name;
}

}  // namespace canopy
