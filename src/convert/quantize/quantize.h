#pragma once
#include <cstdint>
#include <filesystem>

#include "kernels/tensor.h"
#include "src/checkpoint/checkpoint.h"
#include "src/convert/output.h"

namespace canopy {

struct QuantizeReport {
  std::uint64_t weight_bytes = 0;
  /// sqrt(sum of squared errors / sum of squares) over the rows of the layers' matrices that were
  /// rounded; 0 if none was.
  double relative_error = 0;
  /// No weight changed: its matrix had the target's type, or rows that are not whole blocks, or the
  /// target's type holds its values. The output is the same function, and as a draft proves
  /// nothing.
  bool same_function = false;
};

/// Writes `model` as a GGUF file that llama.cpp loads, its matrices in blocks of `type` (one of
/// WrittenFormats) or 16 bits, whatever the source has them in; embedding and head in Q8_0, or Q6_K
/// with kQ2_K, kQ4_K and kQ6_K; vectors in F32. Rows that 256 does not divide get Q4_0 for Q2_K,
/// Q5_0 for Q4_K and Q8_0 for Q6_K. Matrices whose rows are not whole blocks stay at 16 bits; those
/// that have the wanted type already are copied. Streams; the bytes do not depend on the number of
/// threads. Throws: Error if the output exists, does not fit the disk, or GGUF cannot express the
/// model.
QuantizeReport quantize(const Checkpoint& model, const std::filesystem::path& output, DType type,
                        const Progress& progress, int threads = 1);

}  // namespace canopy
