#include "kernels/cpu/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "kernels/cpu/cpu_stream.h"
#include "src/base/error.h"
#include "src/machine/cpus.h"
#include "src/machine/process_memory.h"

namespace canopy::cpu {

namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kHugeBytes = std::size_t{4} << 20;
constexpr std::size_t kMapBytes = std::size_t{1} << 16;  // from here on, whole pages of its own

std::size_t round_up(std::size_t value, std::size_t step) {
  std::size_t padded = 0;
  if (__builtin_add_overflow(value, step - 1, &padded))
    throw Error("cannot allocate " + std::to_string(value) + " bytes");
  return padded / step * step;
}

std::size_t bytes_of_page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

int pool_size(const DeviceChoice& choice) {
  if (choice.threads < 0 || choice.threads > 4096)
    throw Error("a CPU device takes 0 to 4096 threads, not " + std::to_string(choice.threads) +
                "; 0 is one per CPU");
  if (choice.threads > 0) return choice.threads;
  return static_cast<int>(choice.cpus.empty() ? allowed_cpus().size() : choice.cpus.size());
}

/// On the CPU nothing moves pages by DMA.
class NoPin final : public HostPin {};

void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;  // an empty span may be null, which memmove must not see
  on_cpu(stream).enqueue([=] { std::memmove(to, from, bytes); });
}

}  // namespace

CpuDevice::CpuDevice(const DeviceChoice& choice)
    : cpus_(choice.cpus), pool_(pool_size(choice), cpus_), ops_(*this, pool_) {}

std::string CpuDevice::name() const {
  std::ifstream info("/proc/cpuinfo");
  std::string model = "CPU";
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  return model + ", " + std::to_string(pool_.size()) +
         (pool_.size() == 1 ? " thread, " : " threads, ") + instruction_set();
}

std::size_t CpuDevice::free_bytes() const { return system_memory().free(); }

Buffer CpuDevice::allocate(std::size_t bytes) {
  void* data = nullptr;
  if (bytes >= kMapBytes) {
    data = mmap(nullptr, round_up(bytes, bytes_of_page()), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) data = nullptr;
    // Advice only: what computes on it finds its pages more quickly.
    if (data != nullptr && bytes >= kHugeBytes) madvise(data, bytes, MADV_HUGEPAGE);
  } else {
    data = std::aligned_alloc(kAlignment, round_up(bytes + (bytes == 0 ? 1 : 0), kAlignment));
    // Fresh pages are zero; so is this: unwritten cache slots may be multiplied by zero.
    if (data != nullptr) std::memset(data, 0, bytes);
  }
  if (data == nullptr)
    throw DeviceFull("cannot allocate " + std::to_string(bytes) + " bytes of memory (" +
                     std::to_string(free_bytes()) + " available)");
  return Buffer(*this, static_cast<std::byte*>(data), bytes);
}

Buffer CpuDevice::allocate_sparse(std::size_t bytes) {
  Buffer memory = allocate(std::max(bytes, kMapBytes));
  // Huge pages would be taken for what lies around the bytes that are written.
  madvise(memory.data(), memory.bytes(), MADV_NOHUGEPAGE);
  return memory;
}

std::size_t CpuDevice::page_bytes() const { return bytes_of_page(); }

void CpuDevice::discard(std::span<std::byte> pages) noexcept {
  madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

void CpuDevice::release(std::byte* data, std::size_t bytes) noexcept {
  if (bytes >= kMapBytes) {
    munmap(data, (bytes + bytes_of_page() - 1) / bytes_of_page() * bytes_of_page());
  } else {
    std::free(data);
  }
}

std::unique_ptr<HostPin> CpuDevice::pin(std::span<std::byte> pages) {
  if (reinterpret_cast<std::uintptr_t>(pages.data()) % bytes_of_page() != 0)
    throw Error("only whole pages can be pinned: the range does not start at one");
  return std::make_unique<NoPin>();
}

std::unique_ptr<Stream> CpuDevice::make_stream(std::string_view name) {
  // Its thread is worker 0 of the pool in every op that it runs.
  return std::make_unique<CpuStream>(
      name, std::vector<int>(cpus_.begin(), cpus_.begin() + (cpus_.empty() ? 0 : 1)));
}

std::unique_ptr<Event> CpuDevice::make_event() { return std::make_unique<CpuEvent>(); }

std::unique_ptr<Timer> CpuDevice::make_timer() {
  return std::make_unique<CpuEvent>(CpuEvent::Timed::kYes);
}

void CpuDevice::upload(Stream& stream, std::byte* to, std::span<const std::byte> from) {
  copy(stream, to, from.data(), from.size());
}

void CpuDevice::download(Stream& stream, std::span<std::byte> to, const std::byte* from) {
  copy(stream, to.data(), from, to.size());
}

}  // namespace canopy::cpu
