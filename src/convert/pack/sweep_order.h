#pragma once
#include <deque>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// A dtype of a file by the name that safetensors has for it, and a DType of the same size.
struct StoredType {
  DType dtype;
  std::string name;
};
/// The type that holds a tensor's values as they are, one by one. Throws Error naming a tensor of
/// whose type nothing is known.
StoredType stored_type(const TensorEntry& tensor);
/// True of formats whose rows a packed file has as `pack` made them.
bool made_by_rows(DType dtype);

/// A model's tensors in the order of a sweep: those of a unit, or of an expert, one after another,
/// and before all of them the norms, biases and scales, which are read once.
class SweepOrder {
 public:
  /// `model` must outlive this. Throws Error where scales are of a type that is not known.
  explicit SweepOrder(const Checkpoint& model);
  SweepOrder(const SweepOrder&) = delete;
  SweepOrder& operator=(const SweepOrder&) = delete;

  /// Scales have the names that they have in files.
  const std::vector<const TensorEntry*>& vectors() const { return vectors_; }
  /// The matrices of each.
  const std::vector<std::vector<const TensorEntry*>>& units() const { return units_; }
  std::vector<const TensorEntry*> all() const;

 private:
  std::deque<TensorEntry> scales_;
  std::vector<const TensorEntry*> vectors_;
  std::vector<std::vector<const TensorEntry*>> units_;
};

}  // namespace canopy
