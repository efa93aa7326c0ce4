#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/tensor.h"
#include "src/convert/output.h"

namespace canopy {

/// GGUF's typed metadata, in the order they will be written.
using GgufValue = std::variant<bool, std::uint32_t, float, std::string, std::vector<std::string>,
                               std::vector<float>, std::vector<std::int32_t>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensor {
  std::string name;  // GGUF's own, e.g. "blk.0.attn_q.weight"
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // row-major, as everywhere in Canopy; GGUF stores it reversed
};

/// Bytes of the tensors, with the padding between them.
std::uint64_t gguf_data_bytes(const std::vector<GgufTensor>& tensors);

/// Streams a GGUF v3 file (alignment 32): metadata and the list of tensors at once, then the
/// tensors in the order announced. One thread.
class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             std::vector<GgufTensor> tensors);
  /// The next bytes of `tensor`, which must be the first unfinished one. Throws: Error.
  void write(std::string_view tensor, std::span<const std::byte> bytes);
  void finish();  // syncs; throws Error, also if a tensor is incomplete

 private:
  std::vector<GgufTensor> tensors_;
  std::size_t tensor_ = 0;
  std::uint64_t tensor_left_ = 0;
  std::optional<OutputFile> file_;
};

}  // namespace canopy
