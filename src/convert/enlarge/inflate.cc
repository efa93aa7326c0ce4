#include "src/convert/enlarge/inflate.h"

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/base/formats/half.h"
#include "src/checkpoint/fingerprint.h"
#include "src/convert/enlarge/enlargement.h"
#include "src/convert/enlarge/random_weights.h"
#include "src/convert/safetensors/hf_files.h"
#include "src/convert/safetensors/safetensors_writer.h"
#include "src/convert/source_files.h"
#include "src/convert/weight_rows.h"

namespace canopy {

namespace {

/// One row of an enlarged tensor: the small model's values, then what lies next to or below them.
class EnlargedRow {
 public:
  EnlargedRow(const Checkpoint& small, std::uint64_t seed)
      : rows_(small), random_(seed), random_seed_(seed) {}

  std::span<const std::uint16_t> make(const EnlargedTensor& tensor, std::uint64_t name_hash,
                                      std::int64_t row) {
    values_.resize(static_cast<std::size_t>(tensor.shape.back()));
    if (tensor.of_expert) return make_of_expert(tensor, row);
    const bool beside = row < tensor.source_rows;
    const auto source_columns = static_cast<std::size_t>(tensor.source_columns);
    const std::span<std::uint16_t> all = values_, source = all.first(source_columns),
                                   added = all.subspan(source_columns);
    if (beside && tensor.source != nullptr && source_columns > 0)
      copy_source(tensor, row, source);
    else
      std::fill(source.begin(), source.end(), std::uint16_t{0});
    if (beside && tensor.beside == EnlargedTensor::Beside::kZero)
      std::fill(added.begin(), added.end(), std::uint16_t{0});
    else
      random_.fill(name_hash, static_cast<std::uint32_t>(row), added);
    return values_;
  }

 private:
  /// A row of an expert's matrix: the small model's with its hidden units in another order.
  std::span<const std::uint16_t> make_of_expert(const EnlargedTensor& tensor, std::int64_t row) {
    const ModelTensor& expert = *tensor.of_expert;
    const bool down = expert.spec->role == TensorRole::kExpertDown;
    const auto units = static_cast<std::size_t>(down ? tensor.source_columns : tensor.source_rows);
    const std::uint64_t seed =
        RandomWeights::hash(std::to_string(random_seed_) + "/" + std::to_string(expert.layer) +
                            "/" + std::to_string(expert.expert));
    if (units_of_ != seed || unit_.size() != units) order_units(seed, units);
    if (!down) {
      const auto at = static_cast<std::size_t>(row);
      EnlargedTensor one = tensor;
      if (expert.spec->role == TensorRole::kExpertUp) one.scale = factor_[at];
      copy_source(one, unit_[at], values_);
      return values_;
    }
    unordered_.resize(units);
    copy_source(tensor, row, unordered_);
    for (std::size_t i = 0; i < units; ++i) {
      const float value = f32_from_bf16(unordered_[static_cast<std::size_t>(unit_[i])]);
      values_[i] = exactly(tensor, value, 1 / factor_[i]);
    }
    return values_;
  }
  void order_units(std::uint64_t seed, std::size_t units) {
    units_of_ = seed;
    std::mt19937_64 random(seed);
    unit_ = counting(0, units);
    factor_.resize(units);
    for (std::size_t i = units; i > 1; --i) std::swap(unit_[i - 1], unit_[random() % i]);
    for (float& factor : factor_) factor = std::array{0.5f, 1.0f, 2.0f}[random() % 3];
  }

  /// Throws Error unless BF16 holds the product: it may be a subnormal, or too large.
  static std::uint16_t exactly(const EnlargedTensor& tensor, float rounded, float scale) {
    const std::uint16_t scaled = bf16_from_f32(rounded * scale);
    if (f32_from_bf16(scaled) / scale != rounded)
      throw Error("tensor " + tensor.source->name + " holds " + std::to_string(rounded) +
                  ", which BF16 cannot hold times " + std::to_string(scale));
    return scaled;
  }

  void copy_source(const EnlargedTensor& tensor, std::int64_t row, std::span<std::uint16_t> out) {
    floats_.resize(out.size());
    rows_.read(*tensor.source, row, floats_);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = exactly(tensor, f32_from_bf16(bf16_from_f32(floats_[i])), tensor.scale);
  }

  WeightRows rows_;
  RandomWeights random_;
  const std::uint64_t random_seed_;
  std::vector<float> floats_;
  std::vector<std::uint16_t> values_, unordered_;
  // Parts of the expert that is being written: the small model's units in its order, and factors.
  std::uint64_t units_of_ = 0;
  std::vector<std::int32_t> unit_;
  std::vector<float> factor_;
};

void check_shapes(const std::vector<EnlargedTensor>& tensors) {
  for (const EnlargedTensor& t : tensors) {
    const bool identity = t.source_rows == 0 || t.source_columns == 0;
    if (t.source != nullptr && !identity &&
        (WeightRows::rows(*t.source) != t.source_rows ||
         WeightRows::columns(*t.source) != t.source_columns))
      throw Error("tensor " + t.source->name + " has not the shape that the config tells");
  }
}

std::vector<PlannedTensor> planned(const std::vector<EnlargedTensor>& tensors) {
  std::vector<PlannedTensor> result;
  for (const EnlargedTensor& t : tensors) result.push_back({t.name, t.shape});
  return result;
}

void write_weights(const Checkpoint& model, const std::vector<EnlargedTensor>& tensors,
                   std::uint64_t seed, const std::filesystem::path& directory,
                   const std::function<void(std::uint64_t written)>& written) {
  SafetensorsWriter writer(directory, planned(tensors));
  EnlargedRow maker(model, seed);
  for (const EnlargedTensor& tensor : tensors) {
    const std::uint64_t hash = RandomWeights::hash(tensor.name);
    const std::int64_t rows = tensor.shape.size() == 1 ? 1 : tensor.shape[0];
    for (std::int64_t row = 0; row < rows; ++row) {
      writer.write(tensor.name, maker.make(tensor, hash, row));
      if (row % 64 == 0) written(writer.written_bytes());
    }
  }
  writer.finish();
}

}  // namespace

ModelConfig inflate(const Checkpoint& model, const InflateRequest& request,
                    const Progress& progress) {
  const ModelConfig& small = model.config();
  const ModelConfig big = request.experts > 0 ? with_experts(small, request.experts, request.active)
                                              : enlarge(small, request.bytes);
  const auto big_tensors = enlarged_tensors(model, big),
             small_tensors = enlarged_tensors(model, small);
  check_shapes(big_tensors);
  check_shapes(small_tensors);
  const std::uint64_t big_bytes = bf16_bytes(big), small_bytes = bf16_bytes(small);
  // Headers, config and tokenizer: far below this for any model.
  constexpr std::uint64_t kOtherFiles = std::uint64_t{32} << 20;

  // Both take their names one after the other: a run that is killed in between leaves the small
  // one.
  StagedOutput small_output(request.small, StagedOutput::Kind::kDirectory,
                            small_bytes + big_bytes + kOtherFiles,
                            StagedOutput::Existing::kKeptIfTheSame);
  StagedOutput big_output(request.output, StagedOutput::Kind::kDirectory, big_bytes);
  const InflationLabel label{.from = model_name(model),
                             .source = source_fingerprint(model),
                             .widen = big.dim / small.dim,
                             .layers = small.layers,
                             .experts = request.experts,
                             .seed = request.seed};
  // The small files first: what cannot be written is then known before the disk is filled.
  write_hf_files(model, small, std::nullopt, small_output.partial());
  write_hf_files(model, big, label, big_output.partial());
  const std::uint64_t total = small_bytes + big_bytes;
  write_weights(model, small_tensors, request.seed, small_output.partial(),
                [&](std::uint64_t done) { progress(done, total); });
  small_output.require_same();
  write_weights(model, big_tensors, request.seed, big_output.partial(),
                [&](std::uint64_t done) { progress(small_bytes + done, total); });
  progress(total, total);
  small_output.publish();
  big_output.publish();
  return big;
}

}  // namespace canopy
