#pragma once
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <string_view>

#include "src/base/file.h"
#include "src/hub/sha256.h"

namespace canopy::hub {

/// A file that is appended to until it is whole, and then takes its own name. At any moment it is
/// the beginning of the whole, so its length is all that a later run has to know. It holds a lock
/// that huggingface_hub takes, too, for as long as it is open. One thread at a time.
class GrowingFile {
 public:
  /// Opens what an earlier run left at `growing`, or makes it. Waits while another process holds
  /// `lock`. Throws Error, Stopped.
  GrowingFile(std::filesystem::path growing, const std::filesystem::path& lock,
              const std::stop_token& stop);

  std::uint64_t bytes() const { return bytes_; }
  /// Reads what an earlier run left, for the checksum. Throws Error, Stopped.
  void read_beginning(const std::stop_token& stop);
  /// Throws Error: the disk is full, a limit is reached. What could be written stays.
  void append(std::string_view bytes);
  void start_again();  // empties it; throws Error
  /// SHA-256 of all that was read and appended.
  std::string checksum() { return sha256_.finish(); }
  /// Writes it through to the disk and gives it its own name. Throws Error.
  void finish(const std::filesystem::path& whole);

 private:
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;
  UniqueFd lock_, file_;
  std::uint64_t bytes_ = 0;
  Sha256 sha256_;
};

}  // namespace canopy::hub
