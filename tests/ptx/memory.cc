#include "tests/ptx/memory.h"

#include <algorithm>
#include <cstring>

namespace canopy::ptx {

namespace {

constexpr std::byte kUnwritten{0xfb};
constexpr std::uint8_t kNo = 0, kYes = 1;  // whether a byte was written

}  // namespace

void GlobalMemory::allocated(const void* at, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  const std::lock_guard lock(mutex_);
  ends_[begin] = begin + bytes;
}
void GlobalMemory::released(const void* at) {
  const std::lock_guard lock(mutex_);
  ends_.erase(reinterpret_cast<std::uintptr_t>(at));
}
std::optional<GlobalMemory::Range> GlobalMemory::range_of(std::uint64_t address,
                                                          std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto found = ends_.upper_bound(address);
  if (found == ends_.begin()) return std::nullopt;
  --found;
  if (address + bytes > found->second) return std::nullopt;
  return *found;
}

BlockMemory::BlockMemory(const Kernel& kernel, std::span<const std::byte> arguments, int threads,
                         std::size_t shared_bytes, GlobalMemory& global, Faults& faults)
    : kernel_(kernel),
      arguments_(arguments),
      global_(global),
      faults_(faults),
      shared_(kernel.shared_bytes + shared_bytes),
      local_(kernel.local_bytes * static_cast<std::size_t>(threads)),
      written_(shared_.size()) {
  global_.log().begin_all();
}

void BlockMemory::begin_block(std::int64_t index) {
  block_ = index;
  std::ranges::fill(shared_, kUnwritten);
  std::ranges::fill(local_, kUnwritten);
  std::ranges::fill(written_, kNo);
  shared_log_.begin_all();
  global_.log().begin_block();
}
void BlockMemory::pass_barrier() {
  shared_log_.begin_phase();
  global_.log().begin_phase();
}

void BlockMemory::fault(const Insn& insn, int thread, const std::string& what) {
  constexpr std::size_t kMost = 8;  // of a launch
  if (reported_.size() >= kMost || !reported_.emplace(&insn, what.substr(0, what.find(':'))).second)
    return;
  faults_.add(kernel_.name + ", block " + std::to_string(block_) + ", thread " +
              std::to_string(thread) + ", line " + std::to_string(insn.line) + " of the PTX, " +
              insn.text + ": " + what);
}

std::byte* BlockMemory::touch(const Insn& insn, int thread, std::uint64_t address, Use use) {
  const std::size_t bytes = std::size_t{insn.bytes} * insn.count;
  if (address % bytes != 0) {
    fault(insn, thread, "misaligned: address " + std::to_string(address));
    return nullptr;
  }
  const auto inside = [&](std::size_t size, const char* of) {
    if (address <= size && bytes <= size - address) return true;
    fault(insn, thread,
          std::string("outside ") + of + ": byte " + std::to_string(address) + " of " +
              std::to_string(size));
    return false;
  };
  switch (insn.space) {
    case Space::kParameter:
      if (!inside(arguments_.size(), "of the kernel's arguments")) return nullptr;
      return const_cast<std::byte*>(arguments_.data()) + address;
    case Space::kLocal:
      if (!inside(kernel_.local_bytes, "local memory")) return nullptr;
      return &local_[static_cast<std::size_t>(thread) * kernel_.local_bytes + address];
    case Space::kShared:
      if (!inside(shared_.size(), "shared memory")) return nullptr;
      return touch_shared(insn, thread, address, use);
    case Space::kGlobal:
      break;
  }
  return touch_global(insn, thread, address, use);
}

std::byte* BlockMemory::touch_shared(const Insn& insn, int thread, std::uint64_t address, Use use) {
  const std::size_t bytes = std::size_t{insn.bytes} * insn.count;
  if (const auto race = shared_log_.note(address, bytes, thread, use))
    fault(insn, thread, "a race on shared memory, " + *race + ": byte " + std::to_string(address));
  std::uint8_t* const first = written_.data() + address;
  if (use != Use::kWrite && std::memchr(first, kNo, bytes) != nullptr)
    fault(insn, thread,
          "shared memory is read before it is written: byte " + std::to_string(address));
  if (use != Use::kRead) std::memset(first, kYes, bytes);
  return &shared_[address];
}

std::byte* BlockMemory::touch_global(const Insn& insn, int thread, std::uint64_t address, Use use) {
  const std::size_t bytes = std::size_t{insn.bytes} * insn.count;
  if (address < known_.first || address + bytes > known_.second) {
    const auto range = global_.range_of(address, bytes);
    if (!range) {
      fault(insn, thread, "outside the device's memory: address " + std::to_string(address));
      return nullptr;
    }
    known_ = *range;
  }
  // A volatile one may be seen by others, as the source says: the report of an error.
  if (!insn.is_volatile)
    if (const auto race = global_.log().note(address, bytes, thread, use))
      fault(insn, thread,
            "a race on global memory, " + *race + ": byte " +
                std::to_string(address - known_.first) + " of its allocation");
  return reinterpret_cast<std::byte*>(address);
}

}  // namespace canopy::ptx
