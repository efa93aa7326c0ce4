#include "src/base/dtype.h"

#include <string>

#include "src/base/error.h"

namespace canopy {

namespace {

struct Format {
  const char* name;
  std::size_t block_bytes;
  std::int64_t block_columns;
};

Format format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {"F32", 4, 1};
    case DType::kF16:
      return {"F16", 2, 1};
    case DType::kBF16:
      return {"BF16", 2, 1};
    case DType::kI32:
      return {"I32", 4, 1};
    case DType::kU64:
      return {"U64", 8, 1};
    case DType::kQ4_0:
      return {"Q4_0", 18, 32};
    case DType::kQ4_1:
      return {"Q4_1", 20, 32};
    case DType::kQ8_0:
      return {"Q8_0", 34, 32};
    case DType::kQ4_K:
      return {"Q4_K", 144, 256};
    case DType::kQ6_K:
      return {"Q6_K", 210, 256};
  }
  throw Error("unknown dtype " + std::to_string(static_cast<int>(dtype)));
}

}  // namespace

const char* name(DType dtype) { return format(dtype).name; }

std::size_t row_bytes(DType dtype, std::int64_t columns) {
  const Format f = format(dtype);
  if (columns < 0 || columns % f.block_columns != 0)
    throw Error("a row of " + std::to_string(columns) + " columns is not whole blocks of " +
                std::to_string(f.block_columns) + " (" + f.name + ")");
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(columns / f.block_columns), f.block_bytes,
                             &bytes))
    throw Error("the size of a row of " + std::to_string(columns) + " columns overflows 64 bits");
  return bytes;
}

}  // namespace canopy
