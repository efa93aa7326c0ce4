#include "src/convert/output.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/base/size_text.h"

namespace canopy {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
/// Bytes that may lie dirty in the page cache: one window under write-back, one being filled.
constexpr std::uint64_t kWindowBytes = std::uint64_t{16} << 20;

std::string reason(int error) { return std::strerror(error); }

/// Bytes an ordinary process may still write where `path` (or its parent) lies.
std::uint64_t free_bytes(const fs::path& path) {
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0)
    throw Error("cannot ask for the free space at " + path.string() + ": " + reason(errno));
  return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
}

fs::path parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

fs::path without_trailing_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

[[noreturn]] void refuse_to_replace(const fs::path& path) {
  throw Error(path.string() + " exists and is not replaced; remove it or choose another name");
}

bool is_filled_directory(const fs::path& path) {
  std::error_code code;
  return fs::is_directory(fs::symlink_status(path, code)) && !fs::is_empty(path, code) && !code;
}

/// `path`, if an output of this kind may be made there. Throws Error.
fs::path checked(fs::path path, Partial::Kind kind, StagedOutput::Existing existing) {
  const fs::path parent = parent_of(path);
  std::error_code code;
  if (!fs::is_directory(parent, code))
    throw Error("cannot write " + path.string() + ": " + parent.string() + " is not a directory");
  const fs::file_status status = fs::symlink_status(path, code);
  const bool directory = kind == Partial::Kind::kDirectory && fs::is_directory(status);
  if (fs::exists(status) && !(directory && (existing == StagedOutput::Existing::kKeptIfTheSame ||
                                            fs::is_empty(path, code))))
    refuse_to_replace(path);
  return path;
}

bool same_bytes(const fs::path& first, const fs::path& second) {
  std::ifstream a(first, std::ios::binary), b(second, std::ios::binary);
  std::vector<char> some(kBufferBytes), others(kBufferBytes);
  while (a && b) {
    a.read(some.data(), static_cast<std::streamsize>(some.size()));
    b.read(others.data(), static_cast<std::streamsize>(others.size()));
    if (a.gcount() != b.gcount() || std::memcmp(some.data(), others.data(), some.size()) != 0)
      return false;
  }
  return a.eof() && b.eof();
}

std::uint64_t bytes_of_files(const fs::path& directory) {
  std::uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    std::error_code failed;
    if (!fs::is_regular_file(entry.symlink_status(failed))) continue;
    const std::uintmax_t size = entry.file_size(failed);
    if (!failed) bytes += size;
  }
  return bytes;
}

/// Both hold files of the same names and bytes, and nothing else.
bool same_files(const fs::path& first, const fs::path& second) {
  std::size_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(first)) {
    const fs::path other = second / entry.path().filename();
    std::error_code code;
    if (!fs::is_regular_file(entry.symlink_status()) ||
        !fs::is_regular_file(fs::symlink_status(other, code)) || !same_bytes(entry.path(), other))
      return false;
    ++files;
  }
  return std::distance(fs::directory_iterator(second), {}) == static_cast<std::ptrdiff_t>(files);
}

}  // namespace

void sync_directory(const fs::path& path) {
  const UniqueFd descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.is_open()) throw Error("cannot open " + path.string() + ": " + reason(errno));
  // Some file systems have nothing to sync in a directory and say EINVAL.
  if (fsync(descriptor.get()) != 0 && errno != EINVAL)
    throw Error("cannot sync " + path.string() + ": " + reason(errno));
}

StagedOutput::StagedOutput(const fs::path& path, Kind kind, std::uint64_t bytes, Existing existing,
                           Leftover leftover)
    : kind_(kind),
      exists_(existing == Existing::kKeptIfTheSame &&
              is_filled_directory(without_trailing_slash(path))),
      partial_(checked(without_trailing_slash(path), kind, existing), kind, leftover) {
  const fs::path parent = parent_of(partial_.path());
  const std::uint64_t left = kind == Kind::kDirectory ? bytes_of_files(partial()) : 0;
  if (const std::uint64_t free = free_bytes(parent);
      free + left < bytes)  // a leftover that is replaced has made room by now
    throw Error("not enough room for " + partial_.path().string() + ": needs " +
                format_size(bytes) + ", " + format_size(free) + " free on the file system of " +
                parent.string());
}

void StagedOutput::keep_only(std::initializer_list<std::string_view> names) {
  const std::vector<fs::directory_entry> there(fs::directory_iterator(partial()), {});
  for (const fs::directory_entry& entry : there) {
    if (std::ranges::find(names, entry.path().filename().string()) != names.end()) continue;
    std::error_code failed;
    fs::remove_all(entry.path(), failed);
    if (failed) throw Error("cannot remove " + entry.path().string() + ": " + failed.message());
  }
}

void StagedOutput::require_same() const {
  if (exists_ && !same_files(partial_.name(), partial_.path())) refuse_to_replace(partial_.path());
}

void StagedOutput::publish(std::string_view extra) {
  if (exists_) return require_same();
  if (kind_ == Kind::kDirectory) sync_directory(partial_.name());
  if (std::error_code failed; !extra.empty() && !fs::remove(partial() / extra, failed))
    throw Error("cannot remove " + (partial() / extra).string() + ": " + failed.message());
  partial_.publish();
  sync_directory(parent_of(partial_.path()));
}

OutputFile::OutputFile(fs::path path, std::uint64_t bytes, std::uint64_t kept)
    : path_(std::move(path)),
      expected_(bytes),
      flushed_(kept),
      pushed_(kept),
      descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) {
  buffer_.reserve(kBufferBytes);
  if (!descriptor_.is_open()) throw Error("cannot create " + path_.string() + ": " + reason(errno));
  cut(kept);
}

void OutputFile::fail(const char* what, int error) const {
  std::string message = std::string("cannot ") + what + " " + path_.string() + " at byte " +
                        std::to_string(flushed_) + ": " + reason(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    message += "; the file needs " + format_size(expected_) + ", " +
               format_size(free_bytes(parent_of(path_))) + " free on its file system now";
  throw Error(message);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(part));
    bytes = bytes.subspan(part);
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void OutputFile::write_at(std::uint64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done =
        pwrite(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    at += static_cast<std::uint64_t>(done);
    flushed_ = std::max(flushed_, at);
  }
}

void OutputFile::cut(std::uint64_t at) {
  flush();
  if (ftruncate(descriptor_.get(), static_cast<off_t>(at)) != 0) fail("cut", errno);
  flushed_ = at;
  pushed_ = std::min(pushed_, at);
}

void OutputFile::finish_with(const std::string& start, std::uint64_t bytes) {
  flush();
  write_at(0, std::as_bytes(std::span(start)));
  expected_ = bytes;
  finish();
}

void OutputFile::flush() {
  write_at(flushed_, buffer_);
  buffer_.clear();
  if (flushed_ >= pushed_ + kWindowBytes) push_to_disk(flushed_);
}

/// Starts write-back of [pushed_, until), waits for the window before it and drops that from the
/// page cache: the disk works on one window while the next is made.
void OutputFile::push_to_disk(std::uint64_t until) {
  const auto range = [&](std::uint64_t from, std::uint64_t bytes, unsigned flags) {
    if (sync_file_range(descriptor_.get(), static_cast<off64_t>(from), static_cast<off64_t>(bytes),
                        flags) != 0 &&
        (errno == EIO || errno == ENOSPC || errno == EDQUOT))
      fail("write back", errno);  // else: a file system without it; fsync is what counts
  };
  range(pushed_, until - pushed_, SYNC_FILE_RANGE_WRITE);
  if (pushed_ > 0) {
    const std::uint64_t from = pushed_ > kWindowBytes ? pushed_ - kWindowBytes : 0;
    range(from, pushed_ - from,
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    posix_fadvise(descriptor_.get(), static_cast<off_t>(from), static_cast<off_t>(pushed_ - from),
                  POSIX_FADV_DONTNEED);
  }
  pushed_ = until;
}

void OutputFile::sync() {
  flush();
  if (fdatasync(descriptor_.get()) != 0) fail("sync", errno);
}

void OutputFile::finish() {
  flush();
  if (flushed_ != expected_)
    throw Error(path_.string() + " has " + std::to_string(flushed_) + " bytes where " +
                std::to_string(expected_) + " were announced");
  if (fsync(descriptor_.get()) != 0) fail("sync", errno);
  posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_DONTNEED);
  descriptor_ = UniqueFd();
}

void write_text_file(const fs::path& path, const std::string& text) {
  OutputFile file(path, text.size());
  file.write(text);
  file.finish();
}

}  // namespace canopy
