#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace canopy {

/// One aligned read. offset, size and address are multiples of the engine's alignment.
struct ReadRequest {
  int file = 0;  // index into the files the engine was opened with
  std::uint64_t offset = 0;
  std::span<std::byte> into;
  std::uint64_t tag = 0;
};

/// result is the number of bytes read, or a negated errno. Short reads are reported,
/// not retried: the caller knows which bytes it still needs.
struct ReadDone {
  std::uint64_t tag = 0;
  std::int64_t result = 0;
};

/// Asynchronous reads from a few files (the shards of a checkpoint). Completions arrive in any
/// order. One thread at a time; the destructor drains what is in flight.
class ReadEngine {
 public:
  virtual ~ReadEngine() = default;
  virtual std::size_t depth() const = 0;      // most reads in flight
  virtual std::size_t alignment() const = 0;  // bytes
  virtual void submit(std::span<const ReadRequest> requests) = 0;
  virtual std::size_t wait(std::span<ReadDone> done) = 0;  // at least one, or 0 if idle
};

struct ReadEngineOptions {
  std::size_t depth = 32;
  bool direct = true;  // O_DIRECT
};
/// `slabs` are registered once as fixed buffers; every read must land inside one.
std::unique_ptr<ReadEngine> make_uring_engine(std::span<const std::filesystem::path> files,
                                              std::span<const std::span<std::byte>> slabs,
                                              const ReadEngineOptions& options);
/// pread on a few threads: the portable fallback and the reference in tests.
std::unique_ptr<ReadEngine> make_pread_engine(std::span<const std::filesystem::path> files,
                                              const ReadEngineOptions& options);

}  // namespace canopy
