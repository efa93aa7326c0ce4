#pragma once
#include <optional>
#include <vector>

#include "src/checkpoint/model_config.h"

namespace canopy {

/// Recipe of a model's rotary frequencies, as config files spell it.
struct RopeScaling {
  /// kProportional: pairs of whole heads, of which those after rotary_dim stay as they are.
  enum class Type { kDefault, kLinear, kLlama3, kYarn, kLongrope, kProportional };
  Type type = Type::kDefault;
  int rotary_dim = 0;  // dimensions of each head that are rotated; 0: all
  double theta = 10000;
  double factor = 1;              // all but kDefault
  double original_positions = 0;  // kLlama3, kYarn, kLongrope: the context length before scaling
  double low_freq_factor = 1, high_freq_factor = 4;  // kLlama3
  double beta_fast = 32, beta_slow = 1;              // kYarn, in rotations over original_positions
  bool truncate = true;                              // kYarn: whole pairs bound the ramp
  std::optional<double> attention_factor, mscale, mscale_all_dim;  // kYarn; the first: kLongrope
  /// kLongrope: of each pair, in texts of the original length at most, and in longer ones.
  std::vector<float> short_factors, long_factors;
  double query_beta = 0, query_period = 1;  // as in ModelConfig; no part of the table
  bool operator==(const RopeScaling&) const = default;
};

struct RopeTable {
  /// [rotary_dim / 2], of kProportional [head_dim / 2], radians per position.
  std::vector<float> inverse_frequency;
  float magnitude = 1;  // factor on cos and sin
};

/// Rounds to f32 where transformers' modeling_rope_utils does, so that both turn a pair by the same
/// angle at position 100,000.   Source: arXiv:2104.09864 (default), arXiv:2309.00071 (yarn),
/// arXiv:2402.13753 (longrope).
/// Throws Error if what is rotated is odd or the numbers give no finite frequencies.
RopeTable rope_table(const RopeScaling& scaling, int head_dim,
                     TextLength length = TextLength::kShort);

/// The base of frequencies that are stretched by alpha without an end, the higher ones less: theta
/// alpha^(head_dim / (head_dim - 2)). Throws Error if heads are not larger than a pair.
double ntk_theta(double theta, double alpha, int head_dim);

/// Fills the rotary part of a config, with the frequencies of the last kind of layers.
void put_rope(const RopeScaling& scaling, ModelConfig& model);
/// Fills that of the first of two kinds of layers, when that of all has been filled.
void put_local_rope(const RopeScaling& scaling, ModelConfig& model);

}  // namespace canopy
