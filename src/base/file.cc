#include "src/base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "src/base/error.h"
#include "src/base/types.h"

namespace canopy {

namespace {

/// The longest wait for a pipe's writer; a shell has started it long before.
constexpr std::chrono::seconds kWriterMayTake{1};
constexpr int kStopLatencyMs = 50;

[[noreturn]] void fail(const std::string& name, const std::string& why) {
  throw Error("cannot read " + name + ": " + why);
}

struct stat status_of(int descriptor, const std::string& name) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) fail(name, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail(name, std::strerror(EISDIR));
  return status;
}

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// Reads a descriptor to its end.
class Reader {
 public:
  Reader(int descriptor, std::string name, std::uint64_t most_bytes, const std::stop_token& stop)
      : descriptor_(descriptor), name_(std::move(name)), most_(most_bytes), stop_(stop) {}

  /// `writer_by`: until when a pipe may have no writer yet; only for a descriptor that does not
  /// block.
  std::string all(std::optional<Clock::time_point> writer_by) {
    const struct stat status = status_of(descriptor_, name_);
    if (S_ISREG(status.st_mode)) {
      if (static_cast<std::uint64_t>(status.st_size) > most_)
        fail(name_, "it has " + std::to_string(status.st_size) + " bytes, more than the " +
                        std::to_string(most_) + " that are allowed");
      text_.reserve(static_cast<std::size_t>(status.st_size));
    }
    if (!S_ISFIFO(status.st_mode)) writer_by.reset();
    while (true) {
      const int events = wait();
      const std::optional<std::size_t> got = events == 0 && !writer_by ? std::nullopt : read_some();
      if (got && *got > 0) {
        writer_by.reset();
      } else if (got && (!writer_by || (events & POLLHUP) != 0)) {
        return std::move(text_);
      } else if (got && Clock::now() >= *writer_by) {
        fail(name_, "nobody writes to this pipe");
      }
    }
  }

 private:
  /// Returns the events of poll(), 0 if none came within kStopLatencyMs. Throws Stopped.
  int wait() const {
    if (stop_.stop_requested()) throw Stopped();
    pollfd wanted{descriptor_, POLLIN, 0};
    if (poll(&wanted, 1, kStopLatencyMs) < 0 && errno != EINTR) fail(name_, std::strerror(errno));
    return wanted.revents;
  }

  /// Bytes read, 0 at the end; nothing if a writer is there, but has written nothing yet.
  std::optional<std::size_t> read_some() {
    std::array<char, 1 << 16> part;
    const ssize_t got = read(descriptor_, part.data(), part.size());
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) return std::nullopt;
      fail(name_, std::strerror(errno));
    }
    text_.append(part.data(), static_cast<std::size_t>(got));
    if (text_.size() > most_)
      fail(name_, "it has more than the " + std::to_string(most_) + " bytes that are allowed");
    return static_cast<std::size_t>(got);
  }

  int descriptor_;
  std::string name_;
  std::uint64_t most_;
  const std::stop_token& stop_;
  std::string text_;
};

/// The text without the mark of U+FEFF that Windows' editors put before UTF-8.
std::string without_mark(std::string text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

}  // namespace

UniqueFd::~UniqueFd() {
  if (descriptor_ >= 0) close(descriptor_);
}

UniqueFd open_file(const std::filesystem::path& file) {
  UniqueFd descriptor(open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!descriptor.is_open()) fail(file.string(), std::strerror(errno));
  return descriptor;
}

std::uint64_t regular_file_bytes(int descriptor, const std::filesystem::path& file) {
  const struct stat status = status_of(descriptor, file.string());
  if (!S_ISREG(status.st_mode))
    fail(file.string(), std::string("it is not a regular file, but ") + kind_of(status.st_mode));
  return static_cast<std::uint64_t>(status.st_size);
}

void refuse_lfs_pointer(std::string_view first_bytes) {
  if (first_bytes.starts_with(kLfsPointer))
    throw Error("this is a Git LFS pointer, not the file itself; fetch that with: git lfs pull");
}

std::string read_file(const std::filesystem::path& file, std::uint64_t most_bytes, FileKind kind,
                      const std::stop_token& stop) {
  const UniqueFd descriptor = open_file(file);
  if (kind == FileKind::kOfModel) regular_file_bytes(descriptor.get(), file);
  std::string text =
      Reader(descriptor.get(), file.string(), most_bytes, stop).all(Clock::now() + kWriterMayTake);
  if (kind == FileKind::kOfUser) return without_mark(std::move(text));
  in_context("reading " + file.string(), [&] { refuse_lfs_pointer(text); });
  return text;
}

std::string read_standard_input(std::uint64_t most_bytes, const std::stop_token& stop) {
  return without_mark(Reader(STDIN_FILENO, "standard input", most_bytes, stop).all(std::nullopt));
}

}  // namespace canopy
