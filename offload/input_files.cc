#include "offload/input_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "src/base/error.h"

namespace canopy {

namespace {

int open_retrying(const char* path, int flags) {
  int descriptor = -1;
  do {
    descriptor = open(path, flags | O_RDONLY | O_CLOEXEC);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

/// Why direct reads of an open file will not do; empty if they will. Some filesystems accept the
/// flag and refuse the read, so one is tried; what else may be wrong shows when the weights are
/// read.
std::string objection(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0 &&
      (info.stx_dio_offset_align > kReadAlignment || info.stx_dio_mem_align > kReadAlignment))
    return "its direct reads want an alignment of " + std::to_string(info.stx_dio_offset_align) +
           " bytes";
#endif
  alignas(kReadAlignment) std::byte block[kReadAlignment];
  ssize_t got = 0;
  do {
    got = pread(descriptor, block, sizeof block, 0);
  } while (got < 0 && errno == EINTR);
  return got < 0 && (errno == EINVAL || errno == EOPNOTSUPP) ? std::strerror(errno) : "";
}

/// The descriptor, or -1 and why not.
int open_direct(const std::filesystem::path& path, std::string& why) {
  const int descriptor = open_retrying(path.c_str(), O_DIRECT);
  why = descriptor < 0 ? std::strerror(errno) : objection(descriptor);
  if (why.empty()) return descriptor;
  if (descriptor >= 0) close(descriptor);
  return -1;
}

}  // namespace

InputFiles::InputFiles(std::span<const std::filesystem::path> files, bool direct, Notes& notes) {
  try {
    std::string first_refusal;
    std::size_t refused = 0;
    for (const std::filesystem::path& path : files) {
      std::string why;
      int descriptor = direct ? open_direct(path, why) : -1;
      const bool is_direct = descriptor >= 0;
      if (!is_direct) descriptor = open_retrying(path.c_str(), 0);
      if (descriptor < 0) throw Error("cannot open " + path.string() + ": " + std::strerror(errno));
      files_.push_back({descriptor, is_direct});
      // The reads themselves run ahead; what the kernel reads ahead would be dropped unused, or
      // stay.
      if (!is_direct) posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
      if (direct && !is_direct && refused++ == 0)
        first_refusal = path.string() + " refuses it (" + why + ")";
    }
    if (!direct)
      notes.push_back(
          "reads go through the page cache, as asked; direct reads cost less CPU and memory");
    if (refused > 0)
      notes.push_back(
          "reads of " + std::to_string(refused) + " of " + std::to_string(files.size()) +
          " files go through the page cache, dropped "
          "behind, because O_DIRECT is not possible: " +
          first_refusal + "; for full speed keep the model on a local disk (ext4, xfs, btrfs)");
  } catch (...) {
    close_all();
    throw;
  }
}

InputFiles::~InputFiles() { close_all(); }

void InputFiles::close_all() noexcept {
  for (const File& file : files_) close(file.descriptor);
}

void InputFiles::drop_behind(int file, std::uint64_t offset, std::size_t bytes) const noexcept {
  const File& read = files_[static_cast<std::size_t>(file)];
  if (read.direct) return;
  // Advice only: where it fails, the kernel reclaims these clean pages itself, later.
  posix_fadvise(read.descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                POSIX_FADV_DONTNEED);
}

}  // namespace canopy
