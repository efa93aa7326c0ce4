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
#include "src/convert/pack/checksum.h"

namespace canopy {

/// Bytes of a file, by their place, and their checksum.
struct FilePiece {
  std::uint64_t at = 0, bytes = 0, checksum = 0;
};

/// Writes the safetensors file of a packed model, front to back, before it is known how long its
/// tensors will be: the header goes into room kept at the beginning. A file that was cut is gone
/// through once more, up to where it goes on. One thread.
class PackedFile {
 public:
  /// Has room for a header of these tensors (those of the model). `about_bytes`: how long the file
  /// may become, for messages. `taken`: the first bytes of a file that is there, which stay; 0: it
  /// begins anew. Throws Error.
  PackedFile(const std::filesystem::path& path, std::span<const std::string> names,
             std::uint64_t about_bytes, std::uint64_t taken);

  /// Lets what follows begin at a multiple of kUnitAlignment: reads past the page cache begin
  /// there.
  void align();
  static constexpr std::size_t kUnitAlignment = 4096;

  /// Begins the bytes of a stored tensor; write() and end() follow, or pass() and end() where the
  /// bytes were taken.
  void begin();
  void write(std::span<const std::byte> bytes);
  void pass(std::uint64_t bytes);
  void end(const std::string& tensor, std::string_view type,
           const std::vector<std::int64_t>& shape);
  /// Forgets the tensor that was begun, as if it had not been.
  void forget();

  /// Bytes written since the last commit().
  std::uint64_t uncommitted() const { return at_ < committed_ ? 0 : at_ - committed_; }
  /// Makes these durable and says which they are. Throws Error.
  FilePiece commit();

  /// Writes the header and syncs. `source`: the fingerprint of the model that was packed. Throws
  /// Error.
  void finish(const std::vector<std::pair<std::string, packed::Description>>& tensors,
              const std::string& source);
  std::uint64_t bytes() const { return at_; }

 private:
  OutputFile file_;
  std::uint64_t header_bytes_, taken_, at_, committed_, begun_at_ = 0;  // from the file's start
  Checksum checksum_, begun_checksum_;  // of what is not committed: all, and before the tensor
  int pads_ = 0;
  nlohmann::ordered_json header_;
};

}  // namespace canopy
