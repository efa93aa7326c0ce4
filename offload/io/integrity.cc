#include "offload/io/integrity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>

#include "src/base/error.h"

namespace canopy {
FileWatch::FileWatch(std::span<const std::filesystem::path> files)
    : files_(files.begin(), files.end()) {
  try {
    for (const std::filesystem::path& file : files_) {
      descriptors_.push_back(open(file.c_str(), O_PATH | O_CLOEXEC));
      if (descriptors_.back() < 0)
        throw Error("cannot open " + file.string() + ": " + std::strerror(errno));
      at_start_.push_back(stamp(descriptors_.size() - 1));
    }
  } catch (...) {
    close_all();
    throw;
  }
}

FileWatch::~FileWatch() { close_all(); }

void FileWatch::close_all() noexcept {
  for (const int descriptor : descriptors_)
    if (descriptor >= 0) close(descriptor);
}

FileWatch::Stamp FileWatch::stamp(std::size_t file) const {
  struct stat status {};
  if (fstat(descriptors_[file], &status) != 0)
    throw Error("cannot look at " + files_[file].string() + ": " + std::strerror(errno));
  return {static_cast<std::uint64_t>(status.st_size), status.st_mtim};
}

void FileWatch::check(int file) const {
  const auto i = static_cast<std::size_t>(file);
  const Stamp now = stamp(i), &then = at_start_.at(i);
  if (now.bytes == then.bytes && now.modified.tv_sec == then.modified.tv_sec &&
      now.modified.tv_nsec == then.modified.tv_nsec)
    return;
  throw Error(files_[i].string() + " was written to while it was in use (" +
              std::to_string(then.bytes) + " bytes before, " + std::to_string(now.bytes) +
              " now): its weights may be half old, half new; run again once it is complete");
}

std::uint64_t checksum(const ReadPump::Arrival& piece) {
  // With the place as the seed equal pieces differ.
  return XXH3_64bits_withSeed(piece.bytes.data(), piece.needed, piece.offset);
}

}  // namespace canopy
