#include "offload/io/input_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "src/base/error.h"
#include "src/machine/advice.h"
#include "src/machine/mount.h"

namespace canopy {

namespace {

int open_retrying(const char* path, int flags) {
  int descriptor = -1;
  do {
    descriptor = open(path, flags | O_RDONLY | O_CLOEXEC);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

/// Returns why direct reads of an open file will not do; empty if they will. Some filesystems
/// accept the flag and then refuse the read, so one is tried; some accept both and read through the
/// page cache all the same (ext4 with data=journal), which only statx reports. What else may be
/// wrong shows when the weights are read.
std::string objection(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    if (info.stx_dio_offset_align == 0) return "its filesystem has none for it";
    if (info.stx_dio_offset_align > kReadAlignment || info.stx_dio_mem_align > kReadAlignment)
      return "its direct reads want an alignment of " + std::to_string(info.stx_dio_offset_align) +
             " bytes";
  }
#endif
  struct statfs system {};
  if (fstatfs(descriptor, &system) == 0 && system.f_type == TMPFS_MAGIC)
    return "tmpfs has no disk";  // it accepts the flag since Linux 6.6, and copies all the same
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

/// The reads themselves run ahead; what the kernel reads ahead would be dropped unused, or stay.
/// What an earlier program left there would pass for the speed of the disk.
void prepare_for_page_cache(int descriptor) {
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

/// `share`: "1 of 3 files"; the first refused and why.
std::string refusal_note(const std::string& share, const std::filesystem::path& first,
                         const std::string& why) {
  const Mount mount = mount_of(first);
  if (mount.in_memory())
    return share + " lie in memory (" + mount.type +
           "), where O_DIRECT is not possible: " + first.string() +
           ". Reads copy them, and their bytes count on top of --memory; " + direct_advice(first);
  return "O_DIRECT is not possible: " + first.string() + " on " + mount.type + " refuses it (" +
         why + "), so reads of " + share +
         " go through the page cache, by pread on threads and dropped behind: about half the "
         "speed on a fast disk, and over thirty times the processor time; " +
         direct_advice(first);
}

}  // namespace

std::string why_not_direct(const std::filesystem::path& file) {
  std::string why;
  const int descriptor = open_direct(file, why);
  if (descriptor >= 0) close(descriptor);
  return descriptor < 0 && access(file.c_str(), R_OK) != 0 ? "" : why;
}

InputFiles::InputFiles(std::span<const std::filesystem::path> files, bool direct, Notes& notes) {
  try {
    std::filesystem::path first_refused;
    std::string why_first;
    std::size_t refused = 0;
    for (const std::filesystem::path& path : files) {
      std::string why;
      int descriptor = direct ? open_direct(path, why) : -1;
      const bool is_direct = descriptor >= 0;
      if (!is_direct) descriptor = open_retrying(path.c_str(), 0);
      if (descriptor < 0) throw Error("cannot open " + path.string() + ": " + std::strerror(errno));
      files_.push_back({descriptor, is_direct});
      if (!is_direct) prepare_for_page_cache(descriptor);
      if (direct && !is_direct && refused++ == 0) {
        first_refused = path;
        why_first = why;
      }
    }
    if (!direct)
      add_note(notes,
               "reads go through the page cache, as asked; direct reads cost less CPU and memory");
    if (refused > 0)
      add_note(notes, refusal_note(std::to_string(refused) + " of " + std::to_string(files.size()) +
                                       " files",
                                   first_refused, why_first));
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
