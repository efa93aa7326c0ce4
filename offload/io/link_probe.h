#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>

#include "offload/io/read_engine.h"
#include "src/base/notes.h"
#include "src/base/types.h"

namespace canopy {

/// Settings of reads, and the bytes and time that they gave.
struct LinkSample {
  std::size_t read_bytes = 1u << 20;  // one request; a multiple of kReadAlignment
  std::size_t queue_depth = 16;
  std::uint64_t bytes = 0;
  Seconds time{};
  double bytes_per_second() const {
    return time.count() > 0 ? static_cast<double>(bytes) / time.count() : 0;
  }
};

/// Bytes that are asked for at once at most, where nobody else waits for the same disk.
inline constexpr std::size_t kMostInFlight = 64u << 20;

/// Reads one file sequentially through a read engine, as the streamer does, into memory that nobody
/// looks at: the ceiling of every sweep. Each read goes on where the last one ended, around the end
/// of the file. One thread.
class LinkProbe {
 public:
  /// Reads land all over `memory` in turn, as they do in a ring: what is small enough to stay in
  /// the CPU's caches is filled faster than a ring can be. The memory must outlive the probe.
  LinkProbe(std::filesystem::path file, std::span<std::byte> memory, bool direct, bool io_uring);

  /// Reads for `duration` at least; with fewer in flight than `how` says if the memory does not
  /// hold as many. Throws Error if the file or the memory is smaller than one request or a read
  /// fails; Stopped on request.
  LinkSample run(LinkSample how, Seconds duration, Notes& notes, const std::stop_token& stop = {});
  /// The fastest of a few sizes and depths of reads, each tried in turn in every round of about
  /// `round`; the first that fits, which serves most disks, is kept unless another is faster by a
  /// twentieth. None has more than `most_in_flight` bytes in flight, or more than half of the
  /// memory; 16 MiB always may be. Throws as run() does.
  LinkSample best(int rounds, Seconds round, Notes& notes, const std::stop_token& stop = {},
                  std::size_t most_in_flight = kMostInFlight);

 private:
  std::filesystem::path file_;
  std::span<std::byte> memory_;
  bool direct_, io_uring_;
  std::uint64_t position_ = 0;  // of the next read in the file
};

}  // namespace canopy
