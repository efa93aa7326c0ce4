#include "offload/host_weights.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

namespace {

constexpr std::size_t kVectorAlignment = 64;  // a cache line

/// Matrices of the units that rest, in sweep order, then the embedding table if it does: a tied
/// head shares its bytes, because extents that overlap are read as one.
std::vector<const TensorEntry*> resting_matrices(const SweepLayout& sweep,
                                                 const Residency& residency) {
  const std::vector<UnitLayout>& units = sweep.units;
  std::vector<const TensorEntry*> tensors;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (residency.unit[i] == Tier::kHost)
      for (const UnitTensor& matrix : units[i].matrices) tensors.push_back(&matrix.tensor);
  if (residency.table == Tier::kHost) tensors.push_back(&sweep.embedding);
  return tensors;
}

/// Places of the vectors, as f32, and the bytes of all.
struct VectorPlan {
  std::vector<const TensorEntry*> tensors;  // each once: every slice of the head has the same norm
  std::vector<std::size_t> at;
  std::map<std::string_view, std::size_t> at_name;
  std::size_t bytes = 0;
};

VectorPlan plan_vectors(std::span<const UnitLayout> units) {
  VectorPlan plan;
  for (const UnitLayout& unit : units)
    for (const UnitTensor& vector : unit.vectors) {
      if (!plan.at_name.emplace(vector.tensor.name, plan.bytes).second) continue;
      plan.tensors.push_back(&vector.tensor);
      plan.at.push_back(plan.bytes);
      const std::size_t bytes = row_bytes(DType::kF32, vector_length(vector.tensor));
      plan.bytes += (bytes + kVectorAlignment - 1) / kVectorAlignment * kVectorAlignment;
    }
  return plan;
}

}  // namespace

std::size_t HostWeights::bytes_needed(const SweepLayout& sweep, const Residency& residency) {
  return LockedTensors::bytes_needed(resting_matrices(sweep, residency)) +
         plan_vectors(sweep.units).bytes;
}

HostWeights::HostWeights(Device& device, const SweepLayout& sweep, const Residency& residency,
                         ReadPump& pump, const Loading& loading, const MemoryNode& on)
    : matrices_(device, resting_matrices(sweep, residency), pump, loading,
                bytes_needed(sweep, residency), on),
      units_(sweep.units.size()) {
  const std::vector<UnitLayout>& units = sweep.units;
  const std::vector<const TensorEntry*> matrices = resting_matrices(sweep, residency);
  const VectorPlan vectors = plan_vectors(units);
  vectors_ = HostSlab(vectors.bytes);
  const std::uint64_t all = matrices_.bytes() + vectors.bytes;
  std::size_t matrix = 0;  // in the order of resting_matrices()
  const auto next_matrix = [&] {
    const std::byte* const data = matrices_.at(matrix);
    return matrix_at(data, *matrices[matrix++]);
  };
  for (std::size_t i = 0; i < units.size(); ++i)
    if (residency.unit[i] == Tier::kHost)
      for (const UnitTensor& of_unit : units[i].matrices)
        units_[i].add(of_unit.role, next_matrix(), of_unit.expert);
  if (residency.table == Tier::kHost) table_ = next_matrix();

  // Vectors are small and far apart. Staging a few at a time keeps the detour small.
  constexpr std::size_t kBatch = 64;
  const std::span<const TensorEntry* const> all_vectors = vectors.tensors;
  for (std::size_t first = 0; first < all_vectors.size(); first += kBatch) {
    const auto batch = all_vectors.subspan(first, std::min(kBatch, all_vectors.size() - first));
    const ReadLayout read = lay_out(batch, kReadAlignment);
    const HostSlab staging(read.slab_bytes);
    read_all(pump, read, staging.data(),
             [&](std::size_t) { loading.check_in(matrices_.bytes(), all); });
    for (std::size_t i = 0; i < batch.size(); ++i) {
      auto* const to = reinterpret_cast<float*>(vectors_.data() + vectors.at[first + i]);
      dequantize_row(batch[i]->dtype, staging.data() + read.slab_at[i],
                     {to, static_cast<std::size_t>(vector_length(*batch[i]))});
      if (batch[i]->plus != 0)
        for (std::int64_t k = 0; k < vector_length(*batch[i]); ++k) to[k] += batch[i]->plus;
    }
  }

  for (std::size_t i = 0; i < units.size(); ++i)
    for (const UnitTensor& vector : units[i].vectors) {
      const std::byte* const data = vectors_.data() + vectors.at_name.at(vector.tensor.name);
      units_[i].add(vector.role, vector_at(data, vector.tensor));
    }
  loading.check_in(all, all);
}

}  // namespace canopy
