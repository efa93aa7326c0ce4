#pragma once
// Private to the readers of matrices in parts.
#include <cstdint>
#include <cstring>
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
/// The bytes of a part, which must lie in its file, one of the model's. Throws Error where they do
/// not.
std::vector<std::byte> read_part(std::span<const std::filesystem::path> files,
                                 const TensorEntry& tensor);
/// The same as numbers.
template <class Number>
std::vector<Number> read_part_as(std::span<const std::filesystem::path> files,
                                 const TensorEntry& tensor) {
  const std::vector<std::byte> bytes = read_part(files, tensor);
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}

}  // namespace canopy
