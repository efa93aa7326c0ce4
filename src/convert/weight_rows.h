#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// Reads a checkpoint's weights a row at a time, as f32, in the order of rows that Hugging Face
/// uses whatever the file has (Q and K of llama GGUF files come un-permuted). A vector is one row.
/// Holds one descriptor per file and one row. One thread.
class WeightRows {
 public:
  explicit WeightRows(const Checkpoint& checkpoint);  // must outlive this
  ~WeightRows();
  WeightRows(const WeightRows&) = delete;
  WeightRows& operator=(const WeightRows&) = delete;

  static std::int64_t rows(const TensorEntry& tensor);     // 1 for a vector
  static std::int64_t columns(const TensorEntry& tensor);  // the last axis
  /// out: [columns]. Throws: Error if the file cannot be read, or a value is not finite.
  void read(const TensorEntry& tensor, std::int64_t row, std::span<float> out);
  /// The row's bytes as they are stored; valid until the next call. Throws: Error.
  std::span<const std::byte> read_stored(const TensorEntry& tensor, std::int64_t row);
  /// Reads `count` rows from `first` on, as they are stored, one after another; what does not lie
  /// by rows is made so. Throws: Error.
  void read_stored(const TensorEntry& tensor, std::int64_t first, std::int64_t count,
                   std::vector<std::byte>& into);

 private:
  bool reordered(const TensorEntry& tensor) const;
  void read_at(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> into);

  const Checkpoint* checkpoint_;
  bool reorders_ = false;  // rows of Q and K
  std::vector<int> descriptors_;
  std::vector<std::byte> bytes_;
};

/// Finds where row `row` of a Hugging Face Q or K matrix lies in a llama GGUF file, which
/// interleaves the two halves of each head: rotated pairs are then neighbours. Its own inverse is
/// `rotated_halves_row`.
std::int64_t adjacent_pairs_row(std::int64_t row, std::int64_t head_dim);
std::int64_t rotated_halves_row(std::int64_t row, std::int64_t head_dim);
/// True if the rows of this (canonically named) tensor are rotated by position: Q and K.
bool is_rotated(const std::string& tensor_name);

}  // namespace canopy
