#include "src/base/partial.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

namespace fs = std::filesystem;

void lock(const UniqueFd& descriptor, const fs::path& name) {
  // Some network file systems have no locks: another run is then not noticed.
  if (flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(name.string() + " is being written by another run");
}

/// Returns true unless the open file still has this name.
bool was_replaced(const UniqueFd& descriptor, const fs::path& name) {
  struct stat open_one {
  }, named{};
  return fstat(descriptor.get(), &open_one) != 0 || lstat(name.c_str(), &named) != 0 ||
         open_one.st_ino != named.st_ino || open_one.st_dev != named.st_dev;
}

void remove_leftover(const fs::path& name) {
  const UniqueFd left(open(name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (left.is_open()) lock(left, name);
  std::error_code failed;
  fs::remove_all(name, failed);
  if (failed) throw Error("cannot replace " + name.string() + ": " + failed.message());
}

UniqueFd open_directory(const fs::path& name) {
  return UniqueFd(open(name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

UniqueFd make(const fs::path& name, Partial::Kind kind) {
  if (kind == Partial::Kind::kFile)
    return UniqueFd(open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (mkdir(name.c_str(), 0777) != 0) return UniqueFd();
  return open_directory(name);
}

}  // namespace

Partial::Partial(fs::path path, Kind kind, Leftover leftover)
    : path_(std::move(path)), name_(path_) {
  name_ += ".canopy-partial";
  if (leftover == Leftover::kTaken) lock_ = open_directory(name_);
  kept_ = lock_.is_open();
  if (!kept_) {
    remove_leftover(name_);
    lock_ = make(name_, kind);
  }
  if (!lock_.is_open())
    throw Error("cannot write " + path_.string() + ": cannot make " + name_.string() + ": " +
                std::strerror(errno));
  lock(lock_, name_);
  if (was_replaced(lock_, name_)) throw Error(name_.string() + " is being written by another run");
}

Partial::~Partial() {
  std::error_code ignored;  // nothing better can be done while unwinding
  if (!published_ && !kept_) fs::remove_all(name_, ignored);
}

void Partial::publish() {
  if (std::rename(name_.c_str(), path_.c_str()) != 0)
    throw Error("cannot rename " + name_.string() + " to " + path_.string() + ": " +
                std::strerror(errno));
  published_ = true;
}

}  // namespace canopy
