#pragma once
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "kernels/tensor.h"

namespace canopy {

/// Consecutive rows of a matrix, or columns of what it gives.
struct RowRange {
  std::int64_t first = 0, count = 0;
  bool operator==(const RowRange&) const = default;
};

/// The rows of a model's matrices that one of several processes has. Each matrix is cut between
/// blocks of rows, in proportion to `parts`, so that ranges follow one another by rank; the last
/// block of a matrix may be short, and a rank may have no rows of a small one. Plain data.
struct Share {
  int rank = 0;
  std::vector<std::int64_t> parts = {1};  // of each rank, above 0: the speeds of their disks, say
  /// Rows: a multiple of what every format can be cut at (slice_unit()). Columns of products then
  /// begin at multiples of 512 bytes.
  std::int64_t block = 128;

  int ranks() const { return static_cast<int>(parts.size()); }
  bool is_whole() const { return parts.size() == 1; }
  /// Returns the rows that a rank has of a matrix of `total`.
  RowRange rows_of(int of_rank, std::int64_t total) const;
  RowRange own(std::int64_t total) const { return rows_of(rank, total); }
};
/// Throws Error where a rank is not one of the parts, or a part is not above 0.
void require_valid(const Share& share);

/// The processes that share the rows of a model. A dot product is computed by one of them, so that
/// sums, and bits, are those of a single process. All call the same functions in the same order.
class Ranks {
 public:
  enum class To : std::uint8_t { kAll, kFirst };

  virtual ~Ranks() = default;
  virtual const Share& share() const = 0;
  /// Each rank has computed its own columns of each y, Share::own(columns): afterwards all ranks,
  /// or the first alone, have all of them. Shapes: y [n, columns] f32, in the host's memory, n and
  /// columns alike on all ranks. Throws Stopped on every rank where any of them is asked to stop by
  /// a call to all. Throws Error, on every rank that waits, where a rank has failed, has not
  /// answered in time or is out of step.
  virtual void gather(To to, std::span<const TensorView> ys, const std::stop_token& stop) = 0;
};

}  // namespace canopy
