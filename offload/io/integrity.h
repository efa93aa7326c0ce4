#pragma once
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <span>
#include <vector>

#include "offload/io/read_pump.h"

namespace canopy {

/// Notices when a file is written to while it is in use, by its size and its time of modification.
/// A file that is replaced under its name is none of its business: readers keep the old one.
/// Immutable; any thread.
class FileWatch {
 public:
  /// Throws: Error naming a file that cannot be opened.
  explicit FileWatch(std::span<const std::filesystem::path> files);
  ~FileWatch();
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  /// Throws: Error if the file is not as it was at construction: what was read of it since may be
  /// anything.
  void check(int file) const;

 private:
  struct Stamp {
    std::uint64_t bytes = 0;
    timespec modified{};
  };
  Stamp stamp(std::size_t file) const;
  void close_all() noexcept;

  std::vector<std::filesystem::path> files_;
  std::vector<int> descriptors_;  // good for nothing but to ask about the file
  std::vector<Stamp> at_start_;
};

/// A checksum (XXH3, 64 bits) of a piece of a unit. Their sum over a unit's pieces, in any order
/// but cut alike each time, is the unit's.
std::uint64_t checksum(const ReadPump::Arrival& piece);

}  // namespace canopy
