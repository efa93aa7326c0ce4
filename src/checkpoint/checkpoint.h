#pragma once
// Room src/checkpoint: model files before any weight is read: directories of safetensors and GGUF,
// configs, families, tensors by name, quantisation schemes.
// In: a path. Out: a Checkpoint: the config, and where each tensor lies, all checked.
// Must not know: devices, memory budgets, arithmetic.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/formats/companion.h"
#include "src/base/formats/dtype.h"
#include "src/base/metadata.h"
#include "src/checkpoint/model_config.h"
#include "src/checkpoint/sparse/shard_label.h"

namespace canopy {

struct Family;
struct MatrixParts;

/// Place of one tensor on disk. Nothing may be assumed about offset: safetensors files in the wild
/// start bf16 tensors at odd bytes.
struct TensorEntry {
  std::string name;  // canonical (Hugging Face) name, whatever the container calls it
  DType dtype;
  std::vector<std::int64_t> shape;
  int file = 0;              // index into Checkpoint::files()
  std::uint64_t offset = 0;  // bytes from the start of the file
  std::uint64_t bytes = 0;
  /// Data of a matrix apart from its rows, which begin at `offset`; empty for most formats.
  Companion companion = {};
  /// Added to each value of a norm when it is read, after which it is what ModelConfig means.
  float plus = 0.0f;
  /// Numbers that multiply the products of a matrix, before a bias is added: none, one, or of
  /// stacked experts one for each.
  std::vector<float> factors = {};
  /// XXH3 (64 bits) of the values in their plain format, row by row, where a packed file has it.
  std::optional<std::uint64_t> checksum = {};
  /// Name of its dtype in its file, where no DType is meant; `dtype` means nothing then. Only
  /// readers see such a tensor: no Checkpoint has one.
  std::optional<std::string> foreign_dtype = {};
  /// The parts of a matrix that does not lie by rows. `dtype`, `shape` and `bytes` are those of the
  /// rows that `pack` makes of it; `file` and `offset` are those of its codes. Only a Checkpoint
  /// that was opened with Rows::kToBeMade has such a tensor.
  std::shared_ptr<const MatrixParts> parts = {};
  /// The scales of an FP8 matrix as its file has them, and those of activations, which nothing
  /// reads: copies of the matrix need them. Names are the file's. Rows of a matrix have none.
  std::vector<TensorEntry> scales = {};
};
/// The place of a tensor's bytes in its file: its own, or that of its codes.
ByteRange place_in_file(const TensorEntry& tensor);

/// Bytes of a tensor. Throws Error if they overflow 63 bits or a row is not whole blocks.
std::uint64_t tensor_bytes(DType dtype, const std::vector<std::int64_t>& shape);
std::string to_string(const std::vector<std::int64_t>& shape);  // "[49152, 576]"
/// Bytes of a tensor by its dtype and shape, or by its companion. Throws Error as tensor_bytes(),
/// or if the companion is that of another matrix.
std::uint64_t tensor_bytes(const TensorEntry& tensor);
/// Rows [first, first + rows) of a matrix, as a tensor of its own: one extent of the same file.
/// Throws Error unless `first` is a multiple of slice_unit().
TensorEntry rows_of(const TensorEntry& matrix, std::int64_t first, std::int64_t rows);
/// Rows `turn`, `turn` + `turns`, ... of a matrix that has TensorEntry::parts.
TensorEntry rows_of_turn(const TensorEntry& matrix, std::int64_t turn, std::int64_t turns);
/// The same of the values of a tensor of a plain format, those of a row and then of the next.
TensorEntry values_of_turn(const TensorEntry& tensor, std::int64_t turn, std::int64_t turns);
std::int64_t slice_unit(const TensorEntry& matrix);  // rows: 1, or those of a block of its format
/// Returns where any rows of a matrix lie, from its first byte on.
ByteRange place_of_rows(const TensorEntry& matrix, std::int64_t first, std::int64_t rows);
/// Row i of a matrix, whose bytes lie at `data`.
StoredRow row_at(const std::byte* data, const TensorEntry& matrix, std::int64_t i);
const char* dtype_name(const TensorEntry& tensor);
/// Bytes of a tensor that nobody wrote, as an interrupted download leaves them: an error, or read
/// as zeros, of a copy that was made sparse on purpose. kOfShard: those of a rank's share of the
/// rows (ShardLabel), which no other value takes; a whole model has none.
enum class Holes : std::uint8_t { kRefused, kAllowed, kOfShard };
/// Matrices that do not lie by rows, which `pack` alone reads: an error, or TensorEntry::parts.
enum class Rows : bool { kThere, kToBeMade };
class Checkpoint;
/// The elements of all its tensors.
std::uint64_t parameters(const Checkpoint& model);
/// Bytes of a matrix's longest row.
std::size_t longest_row(const TensorEntry& matrix);

/// The index of a model on disk: a Hugging Face directory (one or many safetensors shards) or a
/// GGUF file. Holds no weights and no open descriptor. open() checks every name, shape, dtype and
/// extent against the file sizes and the config it read. Throws: Error naming the file and the
/// tensor.
class Checkpoint {
 public:
  static Checkpoint open(const std::filesystem::path& model, Holes holes = Holes::kRefused,
                         Rows rows = Rows::kThere);
  /// Knows these families instead of those that Canopy has.
  static Checkpoint open(const std::filesystem::path& model, std::span<const Family> families,
                         Holes holes = Holes::kRefused, Rows rows = Rows::kThere);
  /// Takes parts already checked; for readers and tests.
  Checkpoint(std::filesystem::path root, std::vector<std::filesystem::path> files,
             std::vector<TensorEntry> tensors, ModelConfig config, Metadata metadata);

  const std::filesystem::path& root() const { return root_; }  // as given to open()
  const std::vector<std::filesystem::path>& files() const { return files_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;  // nullptr if absent
  const ModelConfig& config() const { return config_; }
  const Metadata& metadata() const { return metadata_; }
  /// The rank whose rows alone are there; nothing: all are.
  const std::optional<ShardLabel>& shard() const { return shard_; }

 private:
  std::filesystem::path root_;
  std::vector<std::filesystem::path> files_;
  std::vector<TensorEntry> tensors_;
  ModelConfig config_;
  Metadata metadata_;
  std::optional<ShardLabel> shard_;
};

/// The file that most of a model is read from.
std::filesystem::path largest_file(const std::vector<std::filesystem::path>& files);

/// The shape that a config.json describes. Throws Error naming the key.
ModelConfig shape_from_config(std::string_view config_json);

}  // namespace canopy
