#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "offload/embedding.h"
#include "offload/weight_source.h"
#include "tests/tiny_config.h"

namespace canopy {

/// A model of seeded random f32 weights in memory, its head in two slices: a WeightSource without a
/// disk. Large enough weights that logits differ by whole units.
class RandomWeights final : public WeightSource {
 public:
  RandomWeights(Device& device, const ModelConfig& config, unsigned seed)
      : config_(config), random_(seed) {
    using enum TensorRole;
    const int d = config.dim, e = config.embedding_width();
    embedding_ = std::make_unique<EmbeddingLookup>(device, matrix(config.vocab, e, 1.0f));
    for (int layer = 0; layer < config.layers; ++layer) {
      UnitWeights a, m;
      const DecoderForm& form = config.form;
      const LayerConfig& own = config.layer(layer);
      const LayerSizes sizes = config.sizes(layer);
      const int heads = sizes.heads, kv_heads = sizes.kv_heads, head_dim = sizes.head_dim,
                hidden = sizes.hidden_dim;
      const int q = heads * head_dim, k = kv_heads * head_dim;
      UnitWeights& first = own.attention || own.recurrent ? a : m;
      const bool layer_norm = form.norm == NormKind::kLayer && form.norm_bias;
      if (form.norm_inputs) a.add(kAttentionNorm, vector(d, 1.0f));
      if (form.norm_results)
        a.add(kAttentionResultNorm, vector(d, 1.0f)), m.add(kMlpResultNorm, vector(d, 1.0f));
      if (layer == 0 && config.projects()) first.add(kProjectIn, matrix(d, e));
      if (layer == 0 && form.positions == PositionKind::kLearned)
        first.add(kPositions, matrix(config.max_positions + form.position_offset, d, 1.0f));
      if (layer == 0 && form.embedding_norm)
        first.add(kEmbeddingNorm, vector(d, 1.0f)), first.add(kEmbeddingNormBias, vector(d, 0.0f));
      if (layer_norm)
        a.add(kAttentionNormBias, vector(d, 0.0f)), m.add(kMlpNormBias, vector(d, 0.0f));
      if (own.recurrent) {
        const DeltaConfig& delta = config.delta;
        if (delta.joined_inputs)
          a.add(kDeltaJoined, matrix(delta.channels() + delta.values(), d));
        else
          a.add(kDeltaMixed, matrix(delta.channels(), d)),
              a.add(kDeltaGate, matrix(delta.values(), d));
        if (delta.joined_steps)
          a.add(kDeltaJoinedSteps, matrix(2 * delta.value_heads, d));
        else
          a.add(kDeltaBeta, matrix(delta.value_heads, d)),
              a.add(kDeltaStep, matrix(delta.value_heads, d));
        a.add(kDeltaTaps, vectors(delta.channels(), 4, 0.5f));
        a.add(kDeltaStepBias, vector(delta.value_heads, 0.0f));
        a.add(kDeltaRate, vector(delta.value_heads, -4.0f));  // a text is long remembered
        a.add(kDeltaNorm, vector(delta.value_dim, 1.0f));
        a.add(kDeltaOutput, matrix(d, delta.values()));
        add({layer, UnitKind::kRecurrent, 0, 0}, a);
      }
      if (own.attention) {
        if (form.fused_qkv)
          a.add(kFusedQkv, matrix(3 * q, d));
        else
          a.add(kQuery, matrix(own.output_gate ? 2 * q : q, d)), a.add(kKey, matrix(k, d)),
              a.add(kValue, matrix(k, d));
        a.add(kOutput, matrix(d, q));
        if (own.qkv_bias && form.fused_qkv) a.add(kFusedQkvBias, vector(3 * q, 0.0f));
        if (own.qkv_bias && !form.fused_qkv)
          a.add(kQueryBias, vector(q, 0.0f)), a.add(kKeyBias, vector(k, 0.0f)),
              a.add(kValueBias, vector(k, 0.0f));
        if (own.other_biases) a.add(kOutputBias, vector(d, 0.0f));
        if (own.sinks) a.add(kSinks, vector(heads, 1.0f));
        if (own.qk_norm)
          a.add(kQueryNorm, vector(head_dim, 1)), a.add(kKeyNorm, vector(head_dim, 1));
        add({layer, UnitKind::kAttention, 0, 0}, a);
      }
      if (!own.mlp) continue;
      if (own.other_biases && !own.experts)
        m.add(kUpBias, vector(hidden, 0.0f)), m.add(kDownBias, vector(d, 0.0f));
      if (own.other_biases && own.experts) {
        m.add(kRouterBias, vector(sizes.experts, 0.0f));
        m.add(kExpertGateBias, vectors(sizes.experts, hidden));
        m.add(kExpertUpBias, vectors(sizes.experts, hidden));
        m.add(kExpertDownBias, vectors(sizes.experts, d));
      }
      if (form.norm_inputs && !form.parallel) m.add(kMlpNorm, vector(d, 1.0f));
      if (own.experts) m.add(kRouter, matrix(sizes.experts, d));
      if (own.experts && config.experts.choice_bias)
        m.add(kChoiceBias, vector(sizes.experts, 0.0f));
      if (const int shared = own.experts ? config.experts.shared_dim : 0; shared > 0) {
        m.add(kSharedGate, matrix(shared, d)), m.add(kSharedUp, matrix(shared, d));
        m.add(kSharedDown, matrix(d, shared));
        if (config.experts.shared_switch) m.add(kSharedSwitch, matrix(1, d));
      }
      for (int expert = 0; expert < sizes.experts; ++expert) {
        m.add(kExpertGate, matrix(hidden, d), expert);
        m.add(kExpertUp, matrix(hidden, d), expert);
        m.add(kExpertDown, matrix(d, hidden), expert);
      }
      if (form.gated() && !own.experts) m.add(kGate, matrix(hidden, d));
      if (!own.experts) m.add(kUp, matrix(hidden, d)), m.add(kDown, matrix(d, hidden));
      add({layer, UnitKind::kMlp, 0, 0}, m);
    }
    UnitWeights head, rest;
    const bool normed = !config.form.norm_after;
    if (normed) head.add(kFinalNorm, vector(d, 1.0f));
    if (normed && config.form.norm == NormKind::kLayer && config.form.norm_bias)
      head.add(kFinalNormBias, vector(d, 0.0f));
    const WeightView all = matrix(config.vocab, e, 2.0f / std::sqrt(static_cast<float>(e)));
    head_ = &store_.back();
    const int cut = config.vocab / 3;
    rest = head;
    head.add(kHead, all.slice(0, cut));
    if (config.projects()) head.add(kProjectOut, matrix(e, d));
    add({config.layers, UnitKind::kHead, 0, cut}, head);
    rest.add(kHead, all.slice(cut, config.vocab - cut));
    add({config.layers, UnitKind::kHead, cut, config.vocab - cut}, rest);
  }

  std::span<const Unit> units() const override { return units_; }
  UnitLease acquire(std::size_t index, Stream& compute, const std::stop_token&) override {
    if (on_acquire) on_acquire(index);
    return lend(index, weights_[index], compute);
  }
  void abandon_sweep() noexcept override { ++abandoned; }
  EmbeddingTable& embedding() override { return *embedding_; }
  /// The logit of token i becomes what the head reads in dimension i; those beyond it become 0.
  void make_head_one_hot() {
    std::fill(head_->begin(), head_->end(), 0.0f);
    const auto dim = static_cast<std::size_t>(config_.embedding_width());
    for (std::size_t i = 0; i < dim; ++i) (*head_)[i * dim + i] = 1;
  }
  int abandoned = 0;
  std::function<void(std::size_t)> on_acquire;

 private:
  void give_back(std::size_t, Stream&) noexcept override {}
  void add(Unit unit, const UnitWeights& weights) {
    units_.push_back(unit);
    weights_.push_back(weights);
  }
  ConstTensorView vector(int n, float around) {
    std::vector<float>& v = store_.emplace_back(static_cast<std::size_t>(n));
    std::normal_distribution<float> normal(around, 0.3f);
    for (float& x : v) x = normal(random_);
    return {reinterpret_cast<const std::byte*>(v.data()), DType::kF32, {n}};
  }
  ConstTensorView vectors(int rows, int n, float around = 0.0f) {
    return {vector(rows * n, around).data(), DType::kF32, {rows, n}};
  }
  WeightView matrix(int rows, int columns, float scale = 0) {
    std::vector<float>& v = store_.emplace_back(static_cast<std::size_t>(rows * columns));
    if (scale == 0) scale = 1.5f / std::sqrt(static_cast<float>(columns));
    std::normal_distribution<float> normal(0.0f, scale);
    for (float& x : v) x = normal(random_);
    return {reinterpret_cast<const std::byte*>(v.data()), DType::kF32, rows, columns};
  }

  ModelConfig config_;
  std::mt19937 random_;
  std::deque<std::vector<float>> store_;
  std::vector<float>* head_ = nullptr;  // [vocab, dim]
  std::unique_ptr<EmbeddingTable> embedding_;
  std::vector<Unit> units_;
  std::vector<UnitWeights> weights_;
};

}  // namespace canopy
