#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/checkpoint/packed_tensors.h"
#include "src/convert/output.h"

namespace canopy {

/// Writes the safetensors file of a packed model, front to back, before it is known how long its
/// tensors will be: the header goes into room kept at the beginning. One thread.
class PackedFile {
 public:
  /// Has room for a header of these tensors (those of the model). `about_bytes`: how long the file
  /// may become, for messages. Throws Error.
  PackedFile(const std::filesystem::path& path, std::span<const std::string> names,
             std::uint64_t about_bytes);

  /// Lets what follows begin at a multiple of kUnitAlignment: reads past the page cache begin
  /// there.
  void align();
  static constexpr std::size_t kUnitAlignment = 4096;

  /// Begins the bytes of a stored tensor; write() and end() follow.
  void begin(std::string name);
  void write(std::span<const std::byte> bytes);
  void end(DType dtype, const std::vector<std::int64_t>& shape);
  /// Forgets the tensor that was begun, as if it had not been.
  void forget();

  /// Writes the header and syncs. `source`: the fingerprint of the model that was packed. Throws
  /// Error.
  void finish(const std::vector<std::pair<std::string, packed::Description>>& tensors,
              const std::string& source);
  std::uint64_t bytes() const { return at_; }

 private:
  OutputFile file_;
  std::uint64_t header_bytes_, at_, begun_at_ = 0;  // from the start of the file
  int pads_ = 0;
  std::string name_;  // of the tensor that was begun
  nlohmann::ordered_json header_;
};

}  // namespace canopy
