#include "src/convert/pack/sweep_order.h"

#include <tuple>
#include <utility>

#include "src/base/error.h"
#include "src/base/formats/packed_format.h"
#include "src/base/utf8.h"
#include "src/checkpoint/families.h"
#include "src/checkpoint/model_tensors.h"

namespace canopy {

bool made_by_rows(DType dtype) { return in_blocks(dtype) || find_grouped_format(dtype) != nullptr; }

namespace {

StoredType type_of_size(const TensorEntry& tensor) {
  std::uint64_t elements = 1;
  bool overflows = false;
  for (const std::int64_t extent : tensor.shape)
    overflows |= __builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements);
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kU64})
    if (!overflows && elements == tensor.bytes / row_bytes(dtype, 1) &&
        tensor.bytes % row_bytes(dtype, 1) == 0)
      return {dtype, *tensor.foreign_dtype};
  throw Error("tensor " + in_quotes(tensor.name) + " is " + in_quotes(*tensor.foreign_dtype) + " " +
              to_string(tensor.shape) + ", which cannot be copied");
}

}  // namespace

StoredType stored_type(const TensorEntry& tensor) {
  if (tensor.foreign_dtype) return type_of_size(tensor);
  const PackedFormat* const packed = find_packed_format(tensor.dtype);
  const DType plain = packed ? packed->plain : tensor.dtype;
  if (find_fp8_format(plain) != nullptr) return {DType::kU8, "F8_E4M3"};
  const DType type = made_by_rows(plain) ? DType::kF32 : plain;
  return {type, name(type)};
}

SweepOrder::SweepOrder(const Checkpoint& model) {
  const Family& family = family_of(model.config());
  std::tuple<int, TensorUnit, int> last{-2, TensorUnit::kEmbedding, -1};
  for_each_tensor(model.config(), [&](const ModelTensor& tensor) {
    const TensorEntry* const entry = model.find(tensor.name());
    require(entry != nullptr, "a checkpoint has the tensors of its config");
    if (tensor.spec->kind != TensorKind::kMatrix) return vectors_.push_back(entry);
    const std::tuple of{tensor.layer, tensor.spec->unit, tensor.expert};
    if (std::exchange(last, of) != of) units_.emplace_back();
    units_.back().push_back(entry);
    const std::string stored = stored_name(family, entry->name);
    for (const TensorEntry& scale : entry->scales) {
      if (scale.shape.size() > 2)
        throw Error("tensor " + in_quotes(scale.name) + " has shape " + to_string(scale.shape) +
                    ", which no scale has that is copied");
      scales_.push_back(scale);
      scales_.back().name =
          stored.substr(0, stored.rfind('.')) + scale.name.substr(scale.name.rfind('.'));
      scales_.back().dtype = stored_type(scale).dtype;
    }
  });
  for (const TensorEntry& scale : scales_) vectors_.push_back(&scale);
  for (const TensorEntry& tensor : model.tensors())  // numbers that the config has, too
    if (!find_tensor(tensor.name)) vectors_.push_back(&tensor);
}

std::vector<const TensorEntry*> SweepOrder::all() const {
  std::vector<const TensorEntry*> entries = vectors_;
  for (const auto& unit : units_) entries.insert(entries.end(), unit.begin(), unit.end());
  return entries;
}

}  // namespace canopy
