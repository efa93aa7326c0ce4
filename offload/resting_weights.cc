#include "offload/resting_weights.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "kernels/convert.h"
#include "src/base/error.h"

namespace canopy {

namespace {

constexpr std::size_t kVectorAlignment = 64;  // a cache line

/// Tensors by name, each once: a tied head is the embedding table, every slice of the head shares
/// one norm.
class TensorSet {
 public:
  void add(const TensorEntry& tensor) {
    if (index_.emplace(tensor.name, tensors_.size()).second) tensors_.push_back(&tensor);
  }
  std::size_t index(std::string_view name) const { return index_.find(name)->second; }
  std::span<const TensorEntry* const> tensors() const { return tensors_; }

 private:
  std::map<std::string, std::size_t, std::less<>> index_;
  std::vector<const TensorEntry*> tensors_;
};

TensorSet resting_matrices(const Checkpoint& checkpoint, std::span<const UnitLayout> units,
                           Rest rest) {
  TensorSet set;
  set.add(embedding_table(checkpoint));
  for (const UnitLayout& unit : units)
    if (rest == Rest::kAll || unit.unit.part == Part::kHead)
      for (const UnitTensor& matrix : unit.matrices) set.add(matrix.tensor);
  return set;
}

/// Where each vector goes, as f32, and the bytes of all.
struct VectorPlan {
  TensorSet set;
  std::vector<std::size_t> at;
  std::size_t bytes = 0;
};

VectorPlan plan_vectors(std::span<const UnitLayout> units) {
  VectorPlan plan;
  for (const UnitLayout& unit : units)
    for (const UnitTensor& vector : unit.vectors) plan.set.add(vector.tensor);
  for (const TensorEntry* tensor : plan.set.tensors()) {
    plan.at.push_back(plan.bytes);
    const std::size_t bytes = row_bytes(DType::kF32, tensor->shape[0]);
    plan.bytes += (bytes + kVectorAlignment - 1) / kVectorAlignment * kVectorAlignment;
  }
  return plan;
}

}  // namespace

std::size_t RestingWeights::bytes_needed(const Checkpoint& checkpoint,
                                         std::span<const UnitLayout> units, Rest rest) {
  const TensorSet set = resting_matrices(checkpoint, units, rest);
  return lay_out(set.tensors(), kReadAlignment).slab_bytes + plan_vectors(units).bytes;
}

RestingWeights::RestingWeights(const Checkpoint& checkpoint, std::span<const UnitLayout> units,
                               Rest rest, ReadPump& pump, const LoadProgress& progress,
                               std::stop_token stop)
    : units_(units.size()) {
  const TensorSet matrix_set = resting_matrices(checkpoint, units, rest);
  const ReadLayout layout = lay_out(matrix_set.tensors(), kReadAlignment);
  matrices_ = HostSlab(layout.slab_bytes);
  const VectorPlan vectors = plan_vectors(units);
  vectors_ = HostSlab(vectors.bytes);

  const std::uint64_t all = layout.slab_bytes + vectors.bytes;
  const auto check_in = [&](std::size_t done) {
    if (stop.stop_requested()) throw Stopped();
    if (progress) progress(done, all);
  };
  read_all(pump, layout, matrices_.data(), check_in);
  const auto resting_matrix = [&](const TensorEntry& t) {
    const std::byte* const data = matrices_.data() + layout.slab_at[matrix_set.index(t.name)];
    return ConstTensorView(data, t.dtype, {t.shape[0], t.shape[1]});
  };
  table_ = resting_matrix(embedding_table(checkpoint));

  // Vectors are small and far apart. Staging a few at a time keeps the detour small.
  constexpr std::size_t kBatch = 64;
  const std::span<const TensorEntry* const> all_vectors = vectors.set.tensors();
  for (std::size_t first = 0; first < all_vectors.size(); first += kBatch) {
    const auto batch = all_vectors.subspan(first, std::min(kBatch, all_vectors.size() - first));
    const ReadLayout read = lay_out(batch, kReadAlignment);
    const HostSlab staging(read.slab_bytes);
    read_all(pump, read, staging.data(), [&](std::size_t) { check_in(layout.slab_bytes); });
    for (std::size_t i = 0; i < batch.size(); ++i) {
      auto* const to = reinterpret_cast<float*>(vectors_.data() + vectors.at[first + i]);
      dequantize_row(batch[i]->dtype, staging.data() + read.slab_at[i],
                     {to, static_cast<std::size_t>(batch[i]->shape[0])});
    }
  }

  for (std::size_t i = 0; i < units.size(); ++i) {
    for (const UnitTensor& vector : units[i].vectors) {
      const std::byte* const data =
          vectors_.data() + vectors.at[vectors.set.index(vector.tensor.name)];
      units_[i].*vector.field = ConstTensorView(data, DType::kF32, {vector.tensor.shape[0]});
    }
    const Unit& unit = units[i].unit;
    if (unit.part == Part::kHead) {
      units_[i].head = resting_matrix(units[i].matrices[0].tensor).rows(unit.first_row, unit.rows);
    } else if (rest == Rest::kAll) {
      for (const UnitTensor& matrix : units[i].matrices)
        units_[i].*matrix.field = resting_matrix(matrix.tensor);
    }
  }
  check_in(all);
}

EmbeddingLookup::EmbeddingLookup(Device& device, ConstTensorView table)
    : ops_(device.ops()), table_(table), read_(device.make_event()) {}

EmbeddingLookup::~EmbeddingLookup() { read_->wait(); }

void EmbeddingLookup::operator()(std::span<const TokenId> ids, Stream& compute, TensorView out) {
  if (ids.empty()) return;
  for (const TokenId id : ids)
    if (id < 0 || id >= table_.dim(0))
      throw Error("token " + std::to_string(id) + " is outside the vocabulary of " +
                  std::to_string(table_.dim(0)));
  read_->wait();
  ids_.assign(ids.begin(), ids.end());
  const auto* const data = reinterpret_cast<const std::byte*>(ids_.data());
  ops_.embed(compute, table_,
             ConstTensorView(data, DType::kI32, {static_cast<std::int64_t>(ids_.size())}), out);
  compute.record(*read_);
}

}  // namespace canopy
