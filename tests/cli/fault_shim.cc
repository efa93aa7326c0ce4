// Preloaded, it plays faults that a test cannot make otherwise: a disk that fills while a file is
// written (CANOPY_FULL_AFTER: bytes that still fit), and a wall clock that jumps by years at each
// look at it (CANOPY_CLOCK_JUMPS). tests/cli/faults.py uses it.
#include <dlfcn.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

bool is_file(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

/// Returns how many of `bytes` still fit; -1, with errno, if there are some and none does.
ssize_t room_for(int descriptor, size_t bytes) {
  static const char* const given = std::getenv("CANOPY_FULL_AFTER");
  static std::atomic<long long> left{given ? std::atoll(given) : 0};
  if (!given || bytes == 0 || !is_file(descriptor)) return static_cast<ssize_t>(bytes);
  const long long before = left.fetch_sub(static_cast<long long>(bytes));
  if (before >= static_cast<long long>(bytes)) return static_cast<ssize_t>(bytes);
  if (before > 0) return static_cast<ssize_t>(before);
  errno = ENOSPC;
  return -1;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// Seconds by which the wall clock is wrong this time.
time_t jump() {
  static const bool jumps = std::getenv("CANOPY_CLOCK_JUMPS") != nullptr;
  static std::atomic<int> looks{0};
  constexpr time_t kYear = 365 * 86400;
  return jumps ? (looks++ % 2 == 0 ? -30 : 50) * kYear : 0;
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* from, size_t bytes) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  const ssize_t room = room_for(descriptor, bytes);
  return room < 0 ? room : real(descriptor, from, static_cast<size_t>(room));
}

ssize_t pwrite64(int descriptor, const void* from, size_t bytes, off64_t at) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  const ssize_t room = room_for(descriptor, bytes);
  return room < 0 ? room : real(descriptor, from, static_cast<size_t>(room), at);
}
ssize_t pwrite(int descriptor, const void* from, size_t bytes, off_t at) {
  return pwrite64(descriptor, from, bytes, at);
}

int clock_gettime(clockid_t clock, timespec* now) {
  static const auto real = next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += jump();
  return result;
}

time_t time(time_t* to) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
