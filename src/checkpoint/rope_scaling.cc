#include "src/checkpoint/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

float f32(double value) { return static_cast<float>(value); }

/// Wavelengths well inside the original context stay, those beyond it are stretched by the factor,
/// and those between are blended.
void apply_llama3(const RopeScaling& s, std::vector<float>& inverse_frequency) {
  const float factor = f32(s.factor);
  const float longest = f32(s.original_positions / s.low_freq_factor);
  const float shortest = f32(s.original_positions / s.high_freq_factor);
  for (float& f : inverse_frequency) {
    const float wavelength = (1.0f / f) * f32(2 * std::numbers::pi);
    if (wavelength > longest) {
      f /= factor;
    } else if (!(wavelength < shortest)) {
      const float smooth =
          ((1.0f / wavelength) * f32(s.original_positions) - f32(s.low_freq_factor)) /
          f32(s.high_freq_factor - s.low_freq_factor);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
}

/// The pair that turns `rotations` times over the original context, as a fraction.
double pair_of_rotations(const RopeScaling& s, double rotations, int head_dim) {
  return head_dim * std::log(s.original_positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(s.theta));
}

float yarn_magnitude(const RopeScaling& s) {
  if (s.attention_factor) return f32(*s.attention_factor);
  const auto scale = [&](double m) {
    return s.factor <= 1 ? 1.0 : 0.1 * m * std::log(s.factor) + 1;
  };
  if (s.mscale.value_or(0) != 0 && s.mscale_all_dim.value_or(0) != 0)
    return f32(scale(*s.mscale) / scale(*s.mscale_all_dim));
  return f32(scale(1));
}

/// Fast pairs keep their frequency, slow ones are stretched by the factor, with a linear ramp.
void apply_yarn(const RopeScaling& s, int head_dim, std::vector<float>& inverse_frequency) {
  double low = pair_of_rotations(s, s.beta_fast, head_dim);
  double high = pair_of_rotations(s, s.beta_slow, head_dim);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;  // no division by zero
  for (std::size_t i = 0; i < inverse_frequency.size(); ++i) {
    float& f = inverse_frequency[i];
    const float stretched = 1.0f / (f32(s.factor) * (1.0f / f));
    const float ramp = std::clamp((static_cast<float>(i) - f32(low)) / f32(high - low), 0.0f, 1.0f);
    const float kept = 1 - ramp;
    f = stretched * (1 - kept) + f * kept;
  }
}

void apply_longrope(const RopeScaling& s, TextLength length,
                    std::vector<float>& inverse_frequency) {
  const bool is_long = length == TextLength::kLong;
  const std::vector<float>& factors = is_long ? s.long_factors : s.short_factors;
  if (factors.size() != inverse_frequency.size())
    throw Error("longrope has " + std::to_string(factors.size()) + (is_long ? " long" : " short") +
                " factors for " + std::to_string(inverse_frequency.size()) + " pairs");
  for (std::size_t i = 0; i < inverse_frequency.size(); ++i)
    inverse_frequency[i] = 1.0f / (factors[i] * (1.0f / inverse_frequency[i]));
}

float longrope_magnitude(const RopeScaling& s) {
  if (s.attention_factor) return f32(*s.attention_factor);
  if (s.factor <= 1) return 1.0f;
  return f32(std::sqrt(1 + std::log(s.factor) / std::log(s.original_positions)));
}

}  // namespace

RopeTable rope_table(const RopeScaling& scaling, int head_dim, TextLength length) {
  using Type = RopeScaling::Type;
  if (head_dim < 2 || head_dim % 2 != 0)
    throw Error("head_dim " + std::to_string(head_dim) + " is odd: rotary positions need pairs");
  if (const int part = scaling.rotary_dim; part != 0) {
    if (part < 2 || part > head_dim || part % 2 != 0)
      throw Error("rotary positions of " + std::to_string(part) + " of " +
                  std::to_string(head_dim) + " dimensions are not pairs of them");
    if (scaling.type != Type::kProportional) head_dim = part;
  }
  RopeTable table;
  for (int i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    table.inverse_frequency.push_back(1.0f / f32(std::pow(scaling.theta, exponent)));
  }
  switch (scaling.type) {
    case Type::kDefault:
      break;
    case Type::kLinear:
      for (float& f : table.inverse_frequency) f /= f32(scaling.factor);
      break;
    case Type::kLlama3:
      apply_llama3(scaling, table.inverse_frequency);
      break;
    case Type::kYarn:
      apply_yarn(scaling, head_dim, table.inverse_frequency);
      table.magnitude = yarn_magnitude(scaling);
      break;
    case Type::kProportional:
      for (float& f : table.inverse_frequency) f /= f32(scaling.factor);
      std::fill(table.inverse_frequency.begin() + scaling.rotary_dim / 2,
                table.inverse_frequency.end(), 0.0f);
      break;
    case Type::kLongrope:
      apply_longrope(scaling, length, table.inverse_frequency);
      table.magnitude = longrope_magnitude(scaling);
      break;
  }
  for (const float f : table.inverse_frequency)
    if (!std::isfinite(f) || f < 0 || (f == 0 && scaling.type != Type::kProportional))
      throw Error("the rotary position parameters give a frequency of " + std::to_string(f));
  if (!std::isfinite(table.magnitude) || table.magnitude <= 0)
    throw Error("the rotary position parameters give a magnitude of " +
                std::to_string(table.magnitude));
  return table;
}

double ntk_theta(double theta, double alpha, int head_dim) {
  if (head_dim <= 2)
    throw Error("head_dim " + std::to_string(head_dim) +
                " has one pair, which alpha cannot stretch");
  return theta * std::pow(alpha, static_cast<double>(head_dim) / (head_dim - 2));
}

void put_rope(const RopeScaling& scaling, ModelConfig& model) {
  const int head_dim = model.head_dim_of(model.layer_kinds.back());
  RopeTable table = rope_table(scaling, head_dim);
  model.rope_inverse_frequency = std::move(table.inverse_frequency);
  model.rope_magnitude = table.magnitude;
  model.query_beta = f32(scaling.query_beta);
  model.query_period = static_cast<int>(scaling.query_period);
  if (scaling.type != RopeScaling::Type::kLongrope) return;
  model.rope_long_frequency = rope_table(scaling, head_dim, TextLength::kLong).inverse_frequency;
  model.rope_original = static_cast<int>(scaling.original_positions);
}

void put_local_rope(const RopeScaling& scaling, ModelConfig& model) {
  RopeTable table = rope_table(scaling, model.head_dim_of(model.layer_kinds.front()));
  model.rope_of_kind = {std::move(table.inverse_frequency), model.rope_inverse_frequency};
  if (table.magnitude != model.rope_magnitude)
    model.rope_magnitude_of_kind = {table.magnitude, model.rope_magnitude};
}

}  // namespace canopy
