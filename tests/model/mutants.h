#pragma once
// Configs that are wrong in one point, which the goldens must see.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "src/checkpoint/model_config.h"
#include "src/checkpoint/rope_scaling.h"

namespace canopy {

/// An implementer's mistake: a config that differs from the file's in one point of the equations.
struct Mutant {
  const char* what;
  bool (*applies)(const ModelConfig&);
  void (*apply)(ModelConfig&);
  bool fine = false;  // less than what rounding to 16 bits does
};
inline bool is_rotary(const ModelConfig& c) { return c.form.positions == PositionKind::kRotary; }
inline int window_of(const ModelConfig& c) {
  int window = 0;
  for (const LayerConfig& kind : c.layer_kinds) window = std::max(window, kind.window);
  return window;
}
inline bool has_windows(const ModelConfig& c) { return window_of(c) != 0; }
inline bool has_some_windows(const ModelConfig& c) {
  return has_windows(c) && c.layer_kinds.size() > 1;
}
inline bool has_still_pairs(const ModelConfig& c) {
  return !c.rope_inverse_frequency.empty() && c.rope_inverse_frequency.back() == 0;
}
inline bool is_parallel(const ModelConfig& c) { return c.form.parallel; }
inline float usual_score(const ModelConfig& c) {
  return 1 / std::sqrt(static_cast<float>(c.head_dim));
}
inline bool is_clamped(const ModelConfig& c) {
  return c.experts.gating.kind == GatingKind::kClamped;
}
inline const Mutant kMutants[] = {
    {"the default rms_norm_eps instead of the file's",
     // Norms after parts see values of order one, next to which either epsilon is rounding.
     [](const ModelConfig& c) { return c.norm_eps != 1e-6f && !c.form.norm_after; },
     [](ModelConfig& c) { c.norm_eps = 1e-6f; }, true},
    {"a rope theta that is one percent too large", is_rotary,
     [](ModelConfig& c) {
       const auto enlarge = [](std::vector<float>& table) {
         const auto n = static_cast<float>(table.size());
         for (std::size_t i = 0; i < table.size(); ++i)
           table[i] *= std::pow(1.01f, -static_cast<float>(i) / n);
       };
       enlarge(c.rope_inverse_frequency);
       enlarge(c.rope_long_frequency);
       for (std::vector<float>& table : c.rope_of_kind) enlarge(table);
     },
     true},
    {"frequencies of short texts in long ones, which the goldens' prompts of 40 tokens are",
     [](const ModelConfig& c) { return !c.rope_long_frequency.empty() && c.rope_original < 40; },
     [](ModelConfig& c) { c.rope_long_frequency.clear(); }},
    {"frequencies of long texts from one token on too early",
     [](const ModelConfig& c) { return c.rope_original == 40; },
     [](ModelConfig& c) { --c.rope_original; }},
    {"rotated pairs of the other kind", is_rotary,
     [](ModelConfig& c) { c.rope_adjacent_pairs = !c.rope_adjacent_pairs; }},
    {"no attention factor", [](const ModelConfig& c) { return c.rope_magnitude != 1.0f; },
     [](ModelConfig& c) {
       c.rope_magnitude = 1.0f;
       c.rope_magnitude_of_kind.clear();
     }},
    {"queries of one size at all positions", [](const ModelConfig& c) { return c.query_beta != 0; },
     [](ModelConfig& c) { c.query_beta = 0; }},
    {"queries that grow from one position on too late",
     [](const ModelConfig& c) { return c.query_beta != 0; },
     [](ModelConfig& c) { ++c.query_period; }, true},
    {"no QKV bias", [](const ModelConfig& c) { return c.layer(0).qkv_bias; },
     [](ModelConfig& c) { c.layer_kinds.front().qkv_bias = false; }},
    {"no norm of queries and keys", [](const ModelConfig& c) { return c.layer(0).qk_norm; },
     [](ModelConfig& c) { c.layer_kinds.front().qk_norm = false; }},
    {"no bias of the output and the MLP",
     [](const ModelConfig& c) { return c.layer(0).other_biases; },
     [](ModelConfig& c) { c.layer_kinds.front().other_biases = false; }},
    {"RMS norms instead of layer norms",
     [](const ModelConfig& c) { return c.form.norm == NormKind::kLayer; },
     [](ModelConfig& c) { c.form.norm = NormKind::kRms; }},
    {"layer norms behind each part instead of before it",
     [](const ModelConfig& c) {
       return c.form.norm == NormKind::kLayer && !c.form.norm_after && !c.form.parallel;
     },
     [](ModelConfig& c) { c.form.norm_after = true; }},
    {"the embedding as it is", [](const ModelConfig& c) { return c.form.embedding_norm; },
     [](ModelConfig& c) { c.form.embedding_norm = false; }},
    {"ReLU instead of GELU", [](const ModelConfig& c) { return c.form.mlp == MlpKind::kGeluTanh; },
     [](ModelConfig& c) { c.form.mlp = MlpKind::kRelu; }},
    {"GELU instead of ReLU", [](const ModelConfig& c) { return c.form.mlp == MlpKind::kRelu; },
     [](ModelConfig& c) { c.form.mlp = MlpKind::kGeluTanh; }},
    {"positions from the table's first row on",
     [](const ModelConfig& c) { return c.form.position_offset != 0; },
     [](ModelConfig& c) {
       c.max_positions += std::exchange(c.form.position_offset, 0);  // the table stays as large
     }},
    {"one expert too many", [](const ModelConfig& c) { return c.experts.active < c.experts.count; },
     [](ModelConfig& c) { ++c.experts.active; }},
    {"one expert too few", [](const ModelConfig& c) { return c.experts.active > 1; },
     [](ModelConfig& c) { --c.experts.active; }},
    {"weights of experts over their sum, or not over it",
     [](const ModelConfig& c) { return c.experts.count > 0; },
     [](ModelConfig& c) { c.experts.normalised = !c.experts.normalised; }},
    {"weights of experts as they are", [](const ModelConfig& c) { return c.experts.scale != 1; },
     [](ModelConfig& c) { c.experts.scale = 1; }},
    {"a softmax over experts instead of sigmoids",
     [](const ModelConfig& c) { return c.experts.score == RouterScore::kSigmoid; },
     [](ModelConfig& c) { c.experts.score = RouterScore::kSoftmax; }},
    {"experts chosen without their bias",
     [](const ModelConfig& c) { return c.experts.choice_bias; },
     [](ModelConfig& c) { c.experts.choice_bias = false; }},
    {"no expert that all rows have", [](const ModelConfig& c) { return c.experts.shared_dim > 0; },
     [](ModelConfig& c) { c.experts.shared_dim = 0; }},
    {"the expert that all rows have, without its score",
     [](const ModelConfig& c) { return c.experts.shared_switch; },
     [](ModelConfig& c) { c.experts.shared_switch = false; }},
    {"all of each head rotated",
     [](const ModelConfig& c) {
       return is_rotary(c) && 2 * std::ssize(c.rope_inverse_frequency) < c.head_dim;
     },
     [](ModelConfig& c) {
       const auto rotated = static_cast<float>(2 * c.rope_inverse_frequency.size());
       const float second = c.rope_inverse_frequency.at(1);
       c.rope_inverse_frequency.clear();
       for (int i = 0; i < c.head_dim / 2; ++i)
         c.rope_inverse_frequency.push_back(
             std::pow(second, static_cast<float>(i) * rotated / static_cast<float>(c.head_dim)));
     }},
    {"a window of one key too many", has_windows,
     [](ModelConfig& c) { c.set_window(window_of(c) + 1); }},
    {"a window of one key too few", has_windows,
     [](ModelConfig& c) { c.set_window(window_of(c) - 1); }},
    {"windows in the other layers",
     [](const ModelConfig& c) { return has_some_windows(c) && !c.sizes_differ(); },
     [](ModelConfig& c) {
       for (std::uint8_t& kind : c.kind_of_layer) kind = kind == 0 ? 1 : 0;
     }},
    {"no windows", has_windows, [](ModelConfig& c) { c.set_window(0); }},
    {"windows in all layers", has_some_windows,
     [](ModelConfig& c) { c.layer_kinds.back().window = window_of(c); }},
    {"frequencies of the other layers",
     [](const ModelConfig& c) { return !c.rope_of_kind.empty() && !c.sizes_differ(); },
     [](ModelConfig& c) { std::swap(c.rope_of_kind.front(), c.rope_of_kind.back()); }},
    {"rotation in all layers", [](const ModelConfig& c) { return !c.layer_kinds.back().rotated; },
     [](ModelConfig& c) { c.layer_kinds.back().rotated = true; }},
    {"rotation in the other layers",
     [](const ModelConfig& c) { return !c.layer_kinds.back().rotated; },
     [](ModelConfig& c) {
       for (LayerConfig& kind : c.layer_kinds) kind.rotated = !kind.rotated;
     }},
    {"scores of the usual size",
     [](const ModelConfig& c) {
       return c.factors.score != 0 && std::abs(c.factors.score - usual_score(c)) > 1e-3f;
     },
     [](ModelConfig& c) { c.factors.score = 0; }},
    {"an embedding without its factor",
     [](const ModelConfig& c) { return c.factors.embedding != 1; },
     [](ModelConfig& c) { c.factors.embedding = 1; }},
    {"a factor of the embedding that is not rounded",
     [](const ModelConfig& c) {
       return c.form.mlp == MlpKind::kGeglu &&
              c.factors.embedding != std::sqrt(static_cast<float>(c.dim));
     },
     [](ModelConfig& c) { c.factors.embedding = std::sqrt(static_cast<float>(c.dim)); }, true},
    {"results without their factor", [](const ModelConfig& c) { return c.factors.branch != 1; },
     [](ModelConfig& c) { c.factors.branch = 1; }},
    {"logits divided by their factor", [](const ModelConfig& c) { return c.factors.logit != 1; },
     [](ModelConfig& c) { c.factors.logit = 1 / c.factors.logit; }},
    {"logits without a bound", [](const ModelConfig& c) { return c.factors.logit_cap != 0; },
     [](ModelConfig& c) { c.factors.logit_cap = 0; }},
    {"scores without a bound", [](const ModelConfig& c) { return c.factors.score_cap != 0; },
     [](ModelConfig& c) { c.factors.score_cap = 0; }},
    {"scores that are bounded a little later",
     [](const ModelConfig& c) { return c.factors.score_cap != 0; },
     [](ModelConfig& c) { c.factors.score_cap *= 1.1f; }, true},
    {"values as they are", [](const ModelConfig& c) { return c.layer(0).value_norm; },
     [](ModelConfig& c) { c.layer_kinds.front().value_norm = false; }},
    {"layers without their factor", [](const ModelConfig& c) { return c.form.layer_scale; },
     [](ModelConfig& c) { c.form.layer_scale = false; }},
    {"pairs that turn, all of them", has_still_pairs,
     [](ModelConfig& c) {
       std::vector<float>& table = c.rope_of_kind.back();
       for (std::size_t i = 1; i < table.size(); ++i) table[i] = table[i - 1] * table[1];
     },
     true},
    {"pairs that turn, by their own number", has_still_pairs,
     [](ModelConfig& c) { c.rope_of_kind.back()[1] = std::sqrt(1e-6f); }, true},
    {"queries and keys that are normalised before they are rotated",
     [](const ModelConfig& c) { return c.form.norm_rotated; },
     [](ModelConfig& c) { c.form.norm_rotated = false; }},
    {"xIELU with either number in the other's place",
     [](const ModelConfig& c) { return !c.xielu.empty(); },
     [](ModelConfig& c) {
       for (Xielu& xielu : c.xielu) std::swap(xielu.alpha_p, xielu.alpha_n);
     }},
    {"xIELU of the layer after", [](const ModelConfig& c) { return !c.xielu.empty(); },
     [](ModelConfig& c) { std::rotate(c.xielu.begin(), c.xielu.begin() + 1, c.xielu.end()); }},
    {"xIELU that bends a little earlier", [](const ModelConfig& c) { return !c.xielu.empty(); },
     [](ModelConfig& c) {
       for (Xielu& xielu : c.xielu) xielu.eps = -1e-6f;
     },
     true},
    {"results as they are", [](const ModelConfig& c) { return c.form.norm_results; },
     [](ModelConfig& c) { c.form.norm_results = false; }},
    {"a gate through silu", [](const ModelConfig& c) { return c.form.mlp == MlpKind::kGeglu; },
     [](ModelConfig& c) { c.form.mlp = MlpKind::kSwiglu; }, true},
    {"ReLU that is not squared",
     [](const ModelConfig& c) { return c.form.mlp == MlpKind::kReluSquared; },
     [](ModelConfig& c) { c.form.mlp = MlpKind::kRelu; }},
    {"no sinks", [](const ModelConfig& c) { return c.any_layer(&LayerConfig::sinks); },
     [](ModelConfig& c) {
       for (LayerConfig& kind : c.layer_kinds) kind.sinks = false;
     }},
    {"experts that are not clamped", is_clamped,
     [](ModelConfig& c) { c.experts.gating.limit = 1e9f; }},
    {"experts that are clamped a little later", is_clamped,
     [](ModelConfig& c) { c.experts.gating.limit *= 1.1f; }, true},
    {"a gate that is a little less steep", is_clamped,
     [](ModelConfig& c) { c.experts.gating.alpha = 1.6f; }, true},
    {"experts with the usual gate", is_clamped,
     [](ModelConfig& c) { c.experts.gating = Gating(); }},
    {"yarn between whole pairs", [](const ModelConfig& c) { return c.architecture == "gpt_oss"; },
     [](ModelConfig& c) {  // of the files' numbers
       RopeScaling whole;
       whole.type = RopeScaling::Type::kYarn;
       whole.factor = whole.beta_fast = 4;
       whole.original_positions = 64;
       put_rope(whole, c);
     },
     true},
    {"value heads with other key heads",
     [](const ModelConfig& c) {
       return c.delta.key_heads > 1 && c.delta.value_heads > c.delta.key_heads;
     },
     [](ModelConfig& c) { c.delta.by_turns = !c.delta.by_turns; }},
    {"rates of decay in place of their logarithms, or the other way round",
     [](const ModelConfig& c) { return c.recurrent(); },
     [](ModelConfig& c) { c.delta.rate_is_log = !c.delta.rate_is_log; }},
    {"no norm of queries and keys next to delta nets",
     [](const ModelConfig& c) { return c.recurrent(); },
     [](ModelConfig& c) { c.layer_kinds.back().qk_norm = false; }},
    {"slopes of half the size", [](const ModelConfig& c) { return !c.alibi_slopes.empty(); },
     [](ModelConfig& c) {
       for (float& slope : c.alibi_slopes) slope /= 2;
     }},
};

}  // namespace canopy
