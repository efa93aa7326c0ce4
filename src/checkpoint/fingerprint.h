#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// Identity of a model, wherever it lies and whatever it is called: 16 hexadecimal digits (XXH3) of
/// its config, its tensors' names, types and shapes, and 64 bytes from the middle of each. A copy
/// has the same, a fine-tuned or rounded one another. Measurements are kept under it. Cheap: the
/// bytes between are not read. A rank's share has that of the whole. Throws: Error naming a file
/// that cannot be read.
std::string fingerprint(const Checkpoint& model);

/// Rows that a share has of a matrix: the first, and how many.
struct OwnRows {
  std::int64_t first = 0, count = 0;
};
/// Returns, for each matrix that ranks cut by rows and of which this share has any, 16 hexadecimal
/// digits (XXH3) of 64 bytes from the middle of its rows, by the tensor's canonical name. `own`:
/// the share of a matrix of that many rows. Throws: Error naming a file that cannot be read.
std::map<std::string, std::string> digits_of_rows(
    const Checkpoint& model, const std::function<OwnRows(std::int64_t rows)>& own);

/// 16 hexadecimal digits (XXH3) of these bytes.
std::string digits_of(std::string_view bytes);

/// The key of a packed model's metadata that holds the fingerprint of the model it was made of.
inline constexpr std::string_view kSourceFingerprint = "canopy.source";
/// The fingerprint of the model whose function this is, where that is known: of a packed model that
/// of its source. What is known of texts is kept under it; what is known of bytes, under its own.
std::string source_fingerprint(const Checkpoint& model);

}  // namespace canopy
