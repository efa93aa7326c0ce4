#include "src/base/formats/dtype.h"

#include <string>

#include "src/base/error.h"
#include "src/base/formats/fp8_format.h"
#include "src/base/formats/grouped_format.h"
#include "src/base/formats/packed_format.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

namespace {

struct Layout {
  const char* name;
  std::size_t block_bytes;
  std::int64_t block_columns;
};

Layout layout(DType dtype) {
  if (const WeightFormat* const f = find_format(dtype))
    return {f->name, f->block_bytes, f->block_elements};
  if (dtype == DType::kU8) return {"U8", 1, 1};
  if (dtype == DType::kI32) return {"I32", 4, 1};
  if (dtype == DType::kU32) return {"U32", 4, 1};
  if (dtype == DType::kU64) return {"U64", 8, 1};
  if (const PackedFormat* const f = find_packed_format(dtype)) return {f->name, 0, 0};
  if (const CompanionFormat* const f = find_fp8_format(dtype)) return {f->name, 1, 1};
  if (const GroupedFormat* const f = find_grouped_format(dtype)) return {f->companion->name, 0, 0};
  throw Error("unknown dtype " + std::to_string(static_cast<int>(dtype)));
}

}  // namespace

const char* name(DType dtype) { return layout(dtype).name; }

std::size_t row_bytes(DType dtype, std::int64_t columns) {
  const Layout f = layout(dtype);
  if (f.block_columns == 0) throw Error(std::string("rows of ") + f.name + " have no common size");
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
