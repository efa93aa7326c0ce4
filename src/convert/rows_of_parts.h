#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/checkpoint/quantized/matrix_parts.h"

namespace canopy {

/// Reads bytes of a file of the checkpoint from `offset` on, the file being that of `tensor`.
using ReadAt =
    std::function<void(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> into)>;

/// Makes rows [first, first + count) of a tensor that has TensorEntry::parts, in the format of
/// its dtype, with the same values. Reads the parts of these rows alone. Throws Error naming the
/// part where a scale is not finite or has more than 16 bits, or where a zero point has no value.
void make_rows_of_parts(const TensorEntry& tensor, std::int64_t first, std::int64_t count,
                        const ReadAt& read_at, std::vector<std::byte>& into);

}  // namespace canopy
