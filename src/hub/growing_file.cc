#include "src/hub/growing_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/hub/cache.h"

namespace canopy::hub {

namespace {

UniqueFd open_for_writing(const std::filesystem::path& path) {
  make_folder(path.parent_path());
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file.is_open()) throw Error("cannot write " + path.string() + ": " + std::strerror(errno));
  return file;
}

/// Source: huggingface_hub's locks are those of the package filelock, by flock().
UniqueFd locked(const std::filesystem::path& path, const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kPause{100};
  UniqueFd lock = open_for_writing(path);
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      throw Error("cannot lock " + path.string() + ": " + std::strerror(errno));
    if (stop.stop_requested()) throw Stopped();
    std::this_thread::sleep_for(kPause);
  }
  return lock;
}

}  // namespace

GrowingFile::GrowingFile(std::filesystem::path growing, const std::filesystem::path& lock,
                         const std::stop_token& stop)
    : path_(std::move(growing)), lock_(locked(lock, stop)), file_(open_for_writing(path_)) {
  bytes_ = regular_file_bytes(file_.get(), path_);
}

void GrowingFile::read_beginning(const std::stop_token& stop) {
  std::vector<char> part(std::size_t{1} << 20);
  for (std::uint64_t at = 0; at < bytes_;) {
    if (stop.stop_requested()) throw Stopped();
    const ssize_t got = pread(file_.get(), part.data(), part.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error("cannot read " + path_.string() + ": " + std::strerror(errno));
    if (got == 0) throw Error(path_.string() + " has become shorter while it was read");
    sha256_.add({part.data(), static_cast<std::size_t>(got)});
    at += static_cast<std::uint64_t>(got);
  }
}

void GrowingFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done =
        pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(bytes_));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(errno);
    sha256_.add(bytes.substr(0, static_cast<std::size_t>(done)));
    bytes_ += static_cast<std::uint64_t>(done);
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
}

void GrowingFile::start_again() {
  if (ftruncate(file_.get(), 0) != 0) fail(errno);
  bytes_ = 0;
  sha256_.finish();
}

void GrowingFile::finish(const std::filesystem::path& whole) {
  if (fsync(file_.get()) != 0 && errno != EINVAL) fail(errno);
  if (std::rename(path_.c_str(), whole.c_str()) != 0) fail(errno);
}

void GrowingFile::fail(int error) const {
  throw Error("cannot write " + path_.string() + ": " + std::strerror(error));
}

}  // namespace canopy::hub
