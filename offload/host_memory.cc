#include "offload/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "src/base/error.h"

namespace canopy {

namespace {

[[noreturn]] void refused(std::size_t bytes, int error) {
  throw Error("no memory for a slab of " + std::to_string(bytes) +
              " bytes: " + std::strerror(error) + "; lower the memory budget or free some memory");
}

/// False when the kernel has no such call (before 5.14).
bool populate(std::byte* data, std::size_t bytes) {
  while (madvise(data, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL) return false;
    const int error = errno;
    munmap(data, bytes);
    refused(bytes, error);
  }
  return true;
}

}  // namespace

HostSlab::HostSlab(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) refused(bytes, errno);
  data_ = static_cast<std::byte*>(pages);
  // Advice only: with small pages all works, at the price of more TLB misses.
  madvise(data_, bytes, MADV_HUGEPAGE);
  if (populate(data_, bytes)) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) data_[at] = std::byte{0};
}

HostSlab::~HostSlab() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace canopy
