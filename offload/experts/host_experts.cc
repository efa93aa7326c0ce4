#include "offload/experts/host_experts.h"

#include "offload/io/read_engine.h"
#include "src/base/error.h"

namespace canopy {

namespace {

std::vector<const TensorEntry*> tensors_of(const SweepLayout& sweep) {
  std::vector<const TensorEntry*> tensors;
  for (const ExpertLayout& expert : sweep.experts) {
    require(expert.matrices.size() == sweep.experts[0].matrices.size(),
            "experts have equally many matrices");
    for (const UnitTensor& matrix : expert.matrices) tensors.push_back(&matrix.tensor);
  }
  return tensors;
}

LockedTensors read(Device& device, const SweepLayout& sweep, const Loading& loading,
                   const MemoryNode& on) {
  return in_context("loading the experts of " + sweep.root.string(), [&] {
    const auto engine = make_read_engine(sweep.files, {}, {}, loading.notes);
    ReadPump pump(*engine, sweep.files, std::size_t{1} << 20,
                  [&](std::uint64_t) { return "the experts of " + sweep.root.string(); });
    const std::vector<const TensorEntry*> tensors = tensors_of(sweep);
    return LockedTensors(device, tensors, pump, loading, LockedTensors::bytes_needed(tensors), on);
  });
}

}  // namespace

HostExperts::HostExperts(Device& device, const SweepLayout& sweep, const Loading& loading,
                         const MemoryNode& on)
    : sweep_(sweep), tensors_(read(device, sweep, loading, on)), first_(first_experts(sweep)) {}

ExpertLease HostExperts::acquire(int layer, int expert, Stream& copy, const std::stop_token&) {
  const std::size_t index =
      first_[static_cast<std::size_t>(layer)] + static_cast<std::size_t>(expert);
  const std::vector<UnitTensor>& matrices = sweep_.experts[index].matrices;
  UnitWeights weights;
  for (std::size_t m = 0; m < matrices.size(); ++m)
    weights.add(matrices[m].role,
                matrix_at(tensors_.at(index * matrices.size() + m), matrices[m].tensor), 0);
  return lend(index, weights.experts()[0], copy);
}

std::size_t HostExperts::bytes_needed(const SweepLayout& sweep) {
  return LockedTensors::bytes_needed(tensors_of(sweep));
}

}  // namespace canopy
