#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "offload/checkpoint.h"
#include "offload/read_engine.h"
#include "src/base/types.h"

namespace canopy {

/// How reads are made, and what that gave.
struct LinkSample {
  std::size_t read_bytes = 1u << 20;  // one request; a multiple of kReadAlignment
  std::size_t queue_depth = 16;
  std::uint64_t bytes = 0;
  Seconds time{};
  double bytes_per_second() const {
    return time.count() > 0 ? static_cast<double>(bytes) / time.count() : 0;
  }
};

/// What to probe of a model: the file that most of it is read from.
std::filesystem::path largest_file(const Checkpoint& checkpoint);

/// Reads one file sequentially through a read engine, as the streamer does, into memory that nobody
/// looks at: the ceiling of every sweep. `position` (bytes) is where to begin and where it ended,
/// so that the next call reads something else; it wraps at the end of the file. Reads for
/// `duration` at least. Throws Error if the file is smaller than one request or a read fails.
LinkSample probe_link(const std::filesystem::path& file, LinkSample how, bool direct, bool io_uring,
                      Seconds duration, std::uint64_t& position, Notes& notes);

/// The fastest of a few sizes and depths of reads, each tried in turn in every round of about
/// `round`; the first, which serves most disks, is kept unless another is faster by a twentieth.
LinkSample best_link(const std::filesystem::path& file, bool direct, bool io_uring, int rounds,
                     Seconds round, Notes& notes);

}  // namespace canopy
