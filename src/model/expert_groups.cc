#include "src/model/expert_groups.h"

#include <numeric>

namespace canopy {

void ExpertGroups::read(Device& device, Stream& stream, const TensorView& chosen, int experts,
                        Shared shared) {
  const auto active = static_cast<std::size_t>(chosen.dim(1));
  chosen_.resize(static_cast<std::size_t>(chosen.dim(0)) * active);
  device.download(stream, std::as_writable_bytes(std::span(chosen_)), chosen.data());
  stream.synchronize();
  first_.assign(static_cast<std::size_t>(experts) + 1, 0);
  for (const std::int32_t e : chosen_) ++first_.at(static_cast<std::size_t>(e) + 1);
  experts_.clear();
  for (std::int32_t e = 0; e < experts; ++e)
    if (first_[static_cast<std::size_t>(e) + 1] > 0) experts_.push_back(e);
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<int> next(first_.begin(), first_.end() - 1);
  rows_.resize(chosen_.size());
  for (std::size_t i = 0; i < chosen_.size(); ++i)
    rows_[static_cast<std::size_t>(next[static_cast<std::size_t>(chosen_[i])]++)] = {
        static_cast<std::int32_t>(i / active), static_cast<std::int32_t>(i)};
  if (shared == Shared::kNone) return;
  const auto chosen_weights = static_cast<std::int32_t>(chosen_.size());
  for (std::int32_t row = 0; row < chosen.dim(0); ++row)
    rows_.push_back({row, shared == Shared::kWeighted ? chosen_weights + row : -1});
}

}  // namespace canopy
