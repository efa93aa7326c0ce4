#include "src/checkpoint/quantized/part_checks.h"

#include <limits>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/header_reader.h"

namespace canopy {

std::string type_of(const TensorEntry& tensor) {
  return tensor.foreign_dtype.value_or(name(tensor.dtype));
}

void refuse_part(const TensorEntry& tensor, const std::string& wanted) {
  throw Error("its part " + in_quotes(tensor.name) + " is " + in_quotes(type_of(tensor)) + " " +
              to_string(tensor.shape) + " of " + std::to_string(tensor.bytes) + " bytes, not " +
              wanted);
}

void require_part(const TensorEntry& tensor, const std::string& type, std::uint64_t element,
                  const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = element;
  bool fits = type_of(tensor) == type && tensor.shape == shape;
  for (const std::int64_t extent : shape)
    fits = fits && extent > 0 &&
           !__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes);
  if (!fits || bytes != tensor.bytes) refuse_part(tensor, in_quotes(type) + " " + to_string(shape));
}

void read_part(std::span<const std::filesystem::path> files, const TensorEntry& tensor,
               std::span<std::byte> into) {
  HeaderReader reader(files[static_cast<std::size_t>(tensor.file)],
                      std::numeric_limits<std::uint64_t>::max());
  reader.skip_to(tensor.offset);
  reader.read(into.data(), into.size());
}

}  // namespace canopy
