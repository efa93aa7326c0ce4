#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "offload/io/read_engine.h"
#include "src/base/error.h"

namespace canopy {

/// Why direct reads of this file will not do, in a few words; empty if they will. A file that
/// cannot be opened at all has nothing against them.
std::string why_not_direct(const std::filesystem::path& file);

/// The open files of a read engine: with O_DIRECT where the filesystem allows it, else through the
/// page cache, whose pages are then dropped after each read so that the cache does not grow.
/// Immutable once made.
class InputFiles {
 public:
  /// Adds a note for the files that cannot be read directly. Throws Error naming a file that cannot
  /// be opened or read.
  InputFiles(std::span<const std::filesystem::path> files, bool direct, Notes& notes);
  ~InputFiles();
  InputFiles(const InputFiles&) = delete;
  InputFiles& operator=(const InputFiles&) = delete;

  /// Throws Error if `file` is out of range.
  int descriptor(int file) const {
    require(static_cast<std::size_t>(file) < files_.size(), "no file of that index was opened");
    return files_[static_cast<std::size_t>(file)].descriptor;
  }
  /// To be called when [offset, offset + bytes) has been read.
  void drop_behind(int file, std::uint64_t offset, std::size_t bytes) const noexcept;

 private:
  struct File {
    int descriptor;
    bool direct;
  };
  void close_all() noexcept;
  std::vector<File> files_;
};

}  // namespace canopy
