#pragma once
// Memory of a launch, each access to which is checked.
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/ptx/access_log.h"
#include "tests/ptx/program.h"

namespace canopy::ptx {

/// Takes what is found wrong, in words.
class Faults {
 public:
  virtual ~Faults() = default;
  virtual void add(const std::string& fault) = 0;
};

/// The allocations of a device, at the addresses that the host has them at. Any thread.
class GlobalMemory {
 public:
  using Range = std::pair<std::uint64_t, std::uint64_t>;  // [begin, end)
  void allocated(const void* at, std::size_t bytes);
  void released(const void* at);
  /// The allocation that has all of these bytes.
  std::optional<Range> range_of(std::uint64_t address, std::size_t bytes) const;
  /// Accesses of launches, which run one at a time.
  AccessLog& log() { return log_; }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ends_;  // by beginning
  AccessLog log_;
};

/// All that a block of threads reads and writes.
class BlockMemory {
 public:
  using Use = AccessLog::Use;
  BlockMemory(const Kernel& kernel, std::span<const std::byte> arguments, int threads,
              std::size_t shared_bytes, GlobalMemory& global, Faults& faults);

  void begin_block(std::int64_t index);
  void pass_barrier();
  /// Returns the place of the bytes that a thread uses. Null, and a fault, where it must not.
  std::byte* touch(const Insn& insn, int thread, std::uint64_t address, Use use);
  /// Reports what a thread did wrong; once for each instruction and kind.
  void fault(const Insn& insn, int thread, const std::string& what);

 private:
  std::byte* touch_shared(const Insn& insn, int thread, std::uint64_t address, Use use);
  std::byte* touch_global(const Insn& insn, int thread, std::uint64_t address, Use use);

  const Kernel& kernel_;
  const std::span<const std::byte> arguments_;
  GlobalMemory& global_;
  Faults& faults_;
  std::int64_t block_ = 0;
  std::vector<std::byte> shared_, local_;
  std::vector<std::uint8_t> written_;  // whether each byte of shared memory was
  AccessLog shared_log_;
  GlobalMemory::Range known_{0, 0};  // where the last access was
  std::set<std::pair<const Insn*, std::string>> reported_;
};

}  // namespace canopy::ptx
