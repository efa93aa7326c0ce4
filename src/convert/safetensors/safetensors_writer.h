#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/formats/dtype.h"
#include "src/convert/output.h"

namespace canopy {

/// A tensor that will be written, of a dtype that safetensors files have.
struct PlannedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::kBF16;
  std::string type =
      {};  // its dtype's name in the file, where a dtype of the same size stands for it
};

/// Streams tensors, in the order they were announced, into model.safetensors, or into shards
/// with model.safetensors.index.json when they exceed `shard_bytes`. The data of each file begins
/// at a multiple of 4096 bytes. Holds one buffer. One thread.
class SafetensorsWriter {
 public:
  static constexpr std::uint64_t kShardBytes = std::uint64_t{2} << 30;
  SafetensorsWriter(std::filesystem::path directory, std::vector<PlannedTensor> tensors,
                    std::uint64_t shard_bytes = kShardBytes);

  std::uint64_t total_bytes() const { return total_bytes_; }  // of tensors, without headers
  std::uint64_t written_bytes() const { return written_bytes_; }
  /// The next bytes of `tensor`, which must be the first unfinished one. Throws: Error.
  void write(std::string_view tensor, std::span<const std::byte> bytes);
  void write(std::string_view tensor, std::span<const std::uint16_t> values) {
    write(tensor, std::as_bytes(values));
  }
  /// Writes the index and syncs. Throws: Error, also if a tensor is incomplete.
  void finish();

 private:
  struct Shard {
    std::string name, header;
    std::size_t first = 0, last = 0;  // tensors [first, last)
    std::uint64_t bytes = 0;          // data only
  };
  void open_shard();
  void complete_tensors();

  std::filesystem::path directory_;
  std::vector<PlannedTensor> tensors_;
  std::vector<Shard> shards_;
  std::size_t shard_ = 0, tensor_ = 0;
  std::uint64_t tensor_left_ = 0, total_bytes_ = 0, written_bytes_ = 0;
  std::unique_ptr<OutputFile> file_;
};

}  // namespace canopy
