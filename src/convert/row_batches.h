#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/convert/weight_rows.h"

namespace canopy {

/// Bytes made of some rows, one after another, and of each its bytes where they differ.
struct MadeRows {
  std::vector<std::byte> bytes;
  std::vector<std::size_t> row_bytes;
};
/// Rows [first, first + count) of a tensor, as they are stored.
struct RowBatch {
  std::int64_t first = 0, count = 0;
  std::vector<std::byte> stored;
  std::vector<MadeRows> made;  // of them, a thread's share each
};

/// Makes something of rows [first, first + count) of the tensor, whose stored bytes these are.
/// `made` is empty. Runs on any thread. May throw.
using MakeRows = std::function<void(std::int64_t first, std::int64_t count,
                                    std::span<const std::byte> stored, MadeRows& made)>;
/// Takes a batch with what was made of it, in order, on the calling thread. False ends the passage.
using TakeBatch = std::function<bool(const RowBatch&)>;

/// Passes a tensor's rows through `threads` threads: while they make one batch, the caller's thread
/// hands the one before over and reads the next. Holds three batches of some megabytes each. Throws
/// what reading, making or taking throws.
void pass_rows(WeightRows& rows, const TensorEntry& tensor, int threads, const MakeRows& make,
               const TakeBatch& take);

}  // namespace canopy
