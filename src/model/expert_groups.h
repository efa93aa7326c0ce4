#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace canopy {

/// The rows of a sweep by the experts of a layer that they chose.
class ExpertGroups {
 public:
  /// Weights of the expert that every row has: there is none; 1; numbers after those of the chosen.
  enum class Shared : std::uint8_t { kNone, kWhole, kWeighted };

  /// Brings what the rows chose to the host, and waits for it. `shared`: of an expert that every
  /// row has. Shapes: chosen [n, active] i32.
  void read(Device& device, Stream& stream, const TensorView& chosen, int experts, Shared shared);

  std::span<const std::int32_t> chosen() const { return chosen_; }    // [n, active]
  std::span<const std::int32_t> experts() const { return experts_; }  // each once, by rising index
  /// All rows, those of an expert side by side, experts and rows by rising index, then those of the
  /// expert that every row has.
  std::span<const ExpertRow> rows() const { return rows_; }
  /// Rows of one expert: the first, and their number.
  int first(std::int32_t expert) const { return first_[static_cast<std::size_t>(expert)]; }
  int count(std::int32_t expert) const { return first(expert + 1) - first(expert); }

 private:
  std::vector<std::int32_t> chosen_, experts_;
  std::vector<int> first_;  // of `rows_`, by expert, and the end
  std::vector<ExpertRow> rows_;
};

}  // namespace canopy
