#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "src/base/notes.h"

namespace canopy {

/// Alignment of direct reads, in the file and in memory: a page serves every common disk. A
/// filesystem that wants more is read through the page cache (and a note says so).
inline constexpr std::size_t kReadAlignment = 4096;

/// One aligned read: offset, size and address are multiples of kReadAlignment.
struct ReadRequest {
  int file = 0;  // index into the files the engine was opened with
  std::uint64_t offset = 0;
  std::span<std::byte> into;
  std::uint64_t tag = 0;
};

/// result is the number of bytes read (fewer than asked at the end of a file, or at the whim of the
/// system), or a negated errno. Neither is retried here: the caller knows which bytes it needs.
struct ReadDone {
  std::uint64_t tag = 0;
  std::int64_t result = 0;
};

/// Asynchronous reads from a few files (the shards of a checkpoint). Completions arrive in any
/// order. One thread at a time; the destructor waits for what is in flight.
class ReadEngine {
 public:
  virtual ~ReadEngine() = default;
  virtual std::size_t depth() const = 0;  // most reads in flight
  /// Takes all of them; the caller keeps to depth(). Throws Error if the system refuses.
  virtual void submit(std::span<const ReadRequest> requests) = 0;
  /// Blocks until at least one read is done; returns how many, or 0 if none is in flight.
  virtual std::size_t wait(std::span<ReadDone> done) = 0;
};

struct ReadEngineOptions {
  std::size_t depth = 16;
  bool direct = true;    // O_DIRECT: past the page cache
  bool io_uring = true;  // else pread on threads
};

/// The fastest engine this system allows: io_uring with direct reads; pread on threads where
/// io_uring is refused, or direct reads are (through the page cache io_uring is the slower of the
/// two: docs/results/fallbacks.md). Reads may land anywhere; those inside one of `slabs` skip the
/// pinning of pages, because io_uring registers them once (they must outlive the engine).
/// Throws: Error naming a file that cannot be opened or read.
std::unique_ptr<ReadEngine> make_read_engine(std::span<const std::filesystem::path> files,
                                             std::span<const std::span<std::byte>> slabs,
                                             const ReadEngineOptions& options, Notes& notes);

/// Its two kinds. The first is null, with a note, where the system refuses io_uring.
std::unique_ptr<ReadEngine> make_uring_engine(std::span<const std::filesystem::path> files,
                                              std::span<const std::span<std::byte>> slabs,
                                              const ReadEngineOptions& options, Notes& notes);
/// pread on min(depth, 16) threads: the portable fallback and the reference in tests.
std::unique_ptr<ReadEngine> make_pread_engine(std::span<const std::filesystem::path> files,
                                              const ReadEngineOptions& options, Notes& notes);

}  // namespace canopy
