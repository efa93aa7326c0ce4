#include "src/base/file_writer.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = 64 << 10;

[[noreturn]] void refuse(const fs::path& file, int error) {
  throw Error("cannot write " + file.string() + ": " + std::strerror(error));
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

/// Follows the links of `file` to where they lead, also to what is not there yet; nothing if they
/// lead to what is open already (/dev/stdout): that has its readers, and must not be replaced under
/// them.
std::optional<fs::path> follow(fs::path file) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code not_a_link;
    const fs::path target = fs::read_symlink(file, not_a_link);
    if (not_a_link) return file;
    struct statfs system {};
    if (statfs(folder_of(file).c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC)
      return std::nullopt;
    file = target.is_absolute() ? target : folder_of(file) / target;
  }
  refuse(file, ELOOP);
}

UniqueFd open_in_place(const fs::path& file) {
  constexpr std::chrono::milliseconds kReaderMayTake{1000}, kPause{20};
  constexpr int kFlags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  UniqueFd descriptor(open(file.c_str(), kFlags));
  for (auto waited = kPause; !descriptor.is_open() && errno == ENXIO && waited < kReaderMayTake;
       waited += kPause) {
    std::this_thread::sleep_for(kPause);
    descriptor = UniqueFd(open(file.c_str(), kFlags));
  }
  if (!descriptor.is_open()) {
    if (errno == ENXIO) throw Error("cannot write " + file.string() + ": nobody reads this pipe");
    refuse(file, errno);
  }
  fcntl(descriptor.get(), F_SETFL, O_APPEND);  // writes wait for a slow reader
  return descriptor;
}

}  // namespace

FileWriter::FileWriter(fs::path file) : file_(std::move(file)) {
  struct stat there {};
  const bool exists = stat(file_.c_str(), &there) == 0;
  if (exists && S_ISDIR(there.st_mode)) refuse(file_, EISDIR);
  const std::optional<fs::path> place =
      exists && !S_ISREG(there.st_mode) ? std::nullopt : follow(file_);
  if (!place) {
    in_place_ = open_in_place(file_);
    return;
  }
  if (exists && access(place->c_str(), W_OK) != 0) refuse(file_, errno);
  partial_ = std::make_unique<Partial>(*place, Partial::Kind::kFile);
  if (exists) {  // the owner only root can give
    fchmod(partial_->descriptor(), there.st_mode & 07777);
    if (fchown(partial_->descriptor(), there.st_uid, there.st_gid) != 0) errno = 0;
  }
}

FileWriter::~FileWriter() = default;
FileWriter::FileWriter(FileWriter&&) noexcept = default;

void FileWriter::fail(int error) const { refuse(file_, error); }

void FileWriter::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
}

void FileWriter::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t done = ::write(descriptor(), rest.data(), rest.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(errno);
    rest.remove_prefix(static_cast<std::size_t>(done));
  }
  buffer_.clear();
}

void FileWriter::finish() {
  flush();
  if (!partial_) return;
  if (fsync(descriptor()) != 0 && errno != EINVAL) fail(errno);
  partial_->publish();
}

void write_file(const fs::path& file, std::string_view text) {
  FileWriter writer(file);
  writer.write(text);
  writer.finish();
}

}  // namespace canopy
