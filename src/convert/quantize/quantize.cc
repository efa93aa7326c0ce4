#include "src/convert/quantize/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"
#include "src/checkpoint/families.h"
#include "src/convert/gguf/gguf_metadata.h"
#include "src/convert/gguf/gguf_writer.h"
#include "src/convert/quantize/block_quant.h"
#include "src/convert/quantize/delta_order.h"
#include "src/convert/quantize/source_rope.h"
#include "src/convert/weight_rows.h"

namespace canopy {

namespace {

/// Factors of rotary frequencies, as files have them.
struct NamedFactors {
  const char* name;
  std::vector<float> values;  // none: no such tensor
};
std::array<NamedFactors, 3> rope_factors(const Checkpoint& model) {
  const SourceRope rope = source_rope(model);
  return {{{"rope_freqs.weight", rope.frequency_factors},
           {"rope_factors_long.weight", rope.scaling.long_factors},
           {"rope_factors_short.weight", rope.scaling.short_factors}}};
}

/// A tensor of the output and where its values come from: of one tensor, or of all experts of a
/// layer, or of matrices that the output has in one, one after another.
struct Plan {
  GgufTensor out;
  std::vector<const TensorEntry*> sources;
  bool head_or_embedding = false;
  StoredOrder order = {};  // of one source

  const TensorEntry& first() const { return *sources.front(); }
  std::int64_t rows() const {
    if (!order.rows.empty()) return std::ssize(order.rows);
    std::int64_t all = 0;
    for (const TensorEntry* source : sources) all += WeightRows::rows(*source);
    return all;
  }
};

/// Finds a type with blocks of 32 instead of 256 and a little more than the bits; else the type
/// itself.
DType in_short_blocks(DType type) {
  if (type == DType::kQ2_K) return DType::kQ4_0;
  if (type == DType::kQ4_K) return DType::kQ5_0;
  if (type == DType::kQ6_K) return DType::kQ8_0;
  return type;
}

/// Matrices of whole blocks become blocks. Of embedding and head, rounding shows most.
DType output_type(const TensorSpec& spec, const TensorEntry& source, DType wanted) {
  const bool scores = spec.role == TensorRole::kRouter || spec.role == TensorRole::kSharedSwitch;
  if (spec.kind != TensorKind::kMatrix || scores) return DType::kF32;
  if (spec.rows == Length::kVocab && in_blocks(wanted))
    wanted = find_format(wanted)->block_elements == 256 ? DType::kQ6_K : DType::kQ8_0;
  for (const DType type : {wanted, in_short_blocks(wanted)})
    if (in_blocks(type) && WeightRows::columns(source) % find_format(type)->block_elements == 0)
      return type;
  return source.dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
}

std::vector<Plan> plan_tensors(const Checkpoint& model, DType type) {
  std::vector<Plan> plans;
  const Family& family = family_of(model.config());
  if (const ExpertsConfig& experts = model.config().experts;
      experts.count > 0 && !family.gguf_weight_keys &&
      experts.normalised != family.gguf_normalised_experts)
    throw Error(model.root().string() + ": in GGUF, experts of " +
                std::string(gguf_architecture(model.config())) + " have weights that " +
                (experts.normalised ? "do not sum to 1" : "sum to 1") + ", and here they " +
                (experts.normalised ? "do" : "do not"));
  std::map<std::string, std::size_t> stacked;  // the plans of experts, and of several matrices
  for_each_tensor(model.config(), [&](const ModelTensor& tensor) {
    const TensorEntry* const source = model.find(tensor.name());
    if (!source) throw Error(model.root().string() + " lacks the tensor " + tensor.name());
    std::string name = gguf_name(family, tensor);
    if (const FusedRows* const fused = fused_of(family, tensor.spec->role);
        fused && !fused->gguf.empty() && !tensor.spec->of_experts()) {
      name = with_numbers(fused->gguf, {std::to_string(tensor.layer), ""});
      if (tensor.spec->role != fused->parts.front()) {
        Plan& whole = plans[stacked.at(name)];
        whole.out.shape.front() += source->shape.front();
        return whole.sources.push_back(source);
      }
      stacked.emplace(name, plans.size());
    }
    if (tensor.spec->role == TensorRole::kDeltaJoined) {
      for (const TensorRole part : {TensorRole::kDeltaMixed, TensorRole::kDeltaGate}) {
        StoredOrder order = part_of_joined(model.config().delta, part);
        const GgufTensor out{gguf_name(family, {&spec_of(part), tensor.layer}),
                             output_type(*tensor.spec, *source, type),
                             {std::ssize(order.rows), source->shape.back()}};
        plans.push_back({out, {source}, false, std::move(order)});
      }
      return;
    }
    if (tensor.expert > 0) return plans[stacked.at(name)].sources.push_back(source);
    std::vector<std::int64_t> shape = source->shape;
    if (tensor.spec->rows == Length::kSharedScore) shape.erase(shape.begin());  // a vector there
    if (tensor.expert == 0) {
      stacked.emplace(name, plans.size());
      shape.insert(shape.begin(), model.config().experts.count);
    }
    plans.push_back({{name, output_type(*tensor.spec, *source, type), std::move(shape)},
                     {source},
                     tensor.spec->rows == Length::kVocab,
                     gguf_order(model.config().delta, tensor.spec->role)});
  });
  // The order is that of other converters: what the model has once, then its layers.
  std::stable_partition(plans.begin(), plans.end(),
                        [](const Plan& plan) { return !plan.out.name.starts_with("blk."); });
  return plans;
}

/// Rows in the output's type, and how far they are from their source.
class RowMaker {
 public:
  explicit RowMaker(const Checkpoint& model)
      : rows_(model),
        adjacent_pairs_(family_of(model.config()).gguf_adjacent_pairs),
        head_dim_(model.config().head_dim) {}

  /// Row `row` of the output's order.
  std::span<const std::byte> make(const Plan& plan, std::int64_t row) {
    std::size_t of = 0;
    for (; row >= WeightRows::rows(*plan.sources[of]); ++of)
      row -= WeightRows::rows(*plan.sources[of]);
    const TensorEntry& source = *plan.sources[of];
    const DType type = plan.out.dtype;
    if (adjacent_pairs_ && is_rotated(source.name)) row = rotated_halves_row(row, head_dim_);
    if (!plan.order.rows.empty()) row = plan.order.rows[static_cast<std::size_t>(row)];
    if (type == source.dtype && source.plus == 0 && plan.order.as_it_is())
      return rows_.read_stored(source, row);
    floats_.resize(static_cast<std::size_t>(WeightRows::columns(source)));
    rows_.read(source, row, floats_);
    plan.order.apply(floats_);
    bytes_.resize(row_bytes(type, WeightRows::columns(source)));
    if (in_blocks(type))
      in_context("quantising tensor " + source.name, [&] { quantize_row(type, floats_, bytes_); });
    else
      encode_row(type, floats_, bytes_.data());
    if (type != DType::kF32)  // which holds every source
      in_context("tensor " + source.name + ", row " + std::to_string(row),
                 [&] { measure(type, plan.head_or_embedding); });
    return bytes_;
  }
  double error() const { return error_; }    // sums over the rows that were rounded: of the
  double square() const { return square_; }  // squared misses, and of the squares
  bool changed() const { return changed_; }  // a weight of any matrix

 private:
  /// Adds up how far the row is from its source. Throws Error where a finite weight became
  /// infinite.
  void measure(DType type, bool head_or_embedding) {
    back_.resize(floats_.size());
    dequantize_row(type, bytes_.data(), back_);
    if (std::ranges::equal(floats_, back_)) return;
    changed_ = true;
    for (std::size_t i = 0; i < floats_.size(); ++i)
      if (std::isfinite(floats_[i]) && !std::isfinite(back_[i]))
        throw Error("the weight " + std::to_string(floats_[i]) + " is beyond what " +
                    std::string(name(type)) + " can hold; choose a type with a wider range");
    if (head_or_embedding) return;
    for (std::size_t i = 0; i < floats_.size(); ++i) {
      const double value = static_cast<double>(floats_[i]),
                   miss = value - static_cast<double>(back_[i]);
      error_ += miss * miss;
      square_ += value * value;
    }
  }

  WeightRows rows_;
  bool adjacent_pairs_;
  std::int64_t head_dim_;
  std::vector<float> floats_, back_;
  std::vector<std::byte> bytes_;
  double error_ = 0, square_ = 0;
  bool changed_ = false;
};

/// Rows that several threads make.
class RowMakers {
 public:
  RowMakers(const Checkpoint& model, int threads) {
    for (int i = 0; i < threads; ++i) makers_.emplace_back(model);
  }
  /// Rows that make() should be asked for at once.
  std::int64_t batch() const { return 64 * std::ssize(makers_); }

  /// Rows [first, first + count) of the output's order, one after another; valid until the next
  /// call.
  std::span<const std::byte> make(const Plan& plan, std::int64_t first, std::int64_t count) {
    const std::size_t row = row_bytes(plan.out.dtype, WeightRows::columns(plan.first()));
    const auto all = static_cast<std::size_t>(count), makers = std::min(makers_.size(), all);
    bytes_.resize(all * row);
    std::vector<std::exception_ptr> failures(makers);
    const auto work = [&](std::size_t maker) noexcept {
      try {
        for (std::size_t i = maker; i < all; i += makers)
          std::ranges::copy(makers_[maker].make(plan, first + static_cast<std::int64_t>(i)),
                            bytes_.begin() + static_cast<std::ptrdiff_t>(i * row));
      } catch (...) {
        failures[maker] = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> others;
      for (std::size_t maker = 1; maker < makers; ++maker) others.emplace_back(work, maker);
      work(0);
    }
    for (const std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
    return bytes_;
  }

  double relative_error() const {
    double error = 0, square = 0;
    for (const RowMaker& maker : makers_) error += maker.error(), square += maker.square();
    return square == 0 ? 0 : std::sqrt(error / square);
  }
  bool changed() const { return std::ranges::any_of(makers_, &RowMaker::changed); }

 private:
  std::deque<RowMaker> makers_;  // a thread's each
  std::vector<std::byte> bytes_;
};

}  // namespace

QuantizeReport quantize(const Checkpoint& model, const std::filesystem::path& output, DType type,
                        const Progress& progress, int threads) {
  require(threads > 0, "quantize: needs a thread");
  require(in_blocks(type) || type == DType::kBF16, "the type to quantise to has no blocks");
  const std::vector<Plan> plans = plan_tensors(model, type);
  GgufMetadata metadata = gguf_model_metadata(model, find_format(type)->gguf_file_type);
  for (auto& entry : gguf_tokenizer_metadata(model)) metadata.push_back(std::move(entry));
  const std::array factors = rope_factors(model);

  std::vector<GgufTensor> tensors;
  for (const NamedFactors& one : factors)
    if (!one.values.empty()) tensors.push_back({one.name, DType::kF32, {std::ssize(one.values)}});
  for (const Plan& plan : plans) tensors.push_back(plan.out);

  QuantizeReport report{.weight_bytes = gguf_data_bytes(tensors)};
  constexpr std::uint64_t kHeader = std::uint64_t{32}
                                    << 20;  // far beyond any vocabulary's metadata
  StagedOutput staged(output, StagedOutput::Kind::kFile, report.weight_bytes + kHeader);
  GgufWriter writer(staged.partial(), metadata, tensors);
  for (const NamedFactors& one : factors)
    if (!one.values.empty()) writer.write(one.name, std::as_bytes(std::span(one.values)));
  RowMakers makers(model, threads);
  std::uint64_t done = 0;
  for (const Plan& plan : plans) {
    const std::int64_t rows = plan.rows();
    for (std::int64_t row = 0; row < rows; row += makers.batch()) {
      const std::span<const std::byte> bytes =
          makers.make(plan, row, std::min(makers.batch(), rows - row));
      writer.write(plan.out.name, bytes);
      done += bytes.size();
      progress(done, report.weight_bytes);
    }
  }
  writer.finish();
  staged.publish();
  progress(report.weight_bytes, report.weight_bytes);
  report.relative_error = makers.relative_error();
  report.same_function = !makers.changed();
  return report;
}

}  // namespace canopy
