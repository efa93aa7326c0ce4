#pragma once
// Private to the readers of matrices in parts.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// Its type as its file names it.
std::string type_of(const TensorEntry& tensor);
/// Throws Error that says what the part is, and what it is not.
[[noreturn]] void refuse_part(const TensorEntry& tensor, const std::string& wanted);
/// Throws Error unless the part has this type, of elements of `element` bytes, and this shape.
void require_part(const TensorEntry& tensor, const std::string& type, std::uint64_t element,
                  const std::vector<std::int64_t>& shape);
/// Reads a part's first bytes, which must lie in its file, one of the model's. Throws Error where
/// they do not.
void read_part(std::span<const std::filesystem::path> files, const TensorEntry& tensor,
               std::span<std::byte> into);
/// All of it, as numbers.
template <class Number>
std::vector<Number> read_part_as(std::span<const std::filesystem::path> files,
                                 const TensorEntry& tensor) {
  std::vector<Number> numbers(tensor.bytes / sizeof(Number));
  if (!numbers.empty()) read_part(files, tensor, std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

}  // namespace canopy
