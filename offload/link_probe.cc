#include "offload/link_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "offload/host_memory.h"
#include "src/base/error.h"

namespace canopy {

namespace {

using Clock = std::chrono::steady_clock;

// None holds more than 16 MiB: a probe fits wherever a ring does.
constexpr std::array kWays{LinkSample{1u << 20, 16}, LinkSample{256u << 10, 32},
                           LinkSample{2u << 20, 8}, LinkSample{4u << 20, 4}};
constexpr double kClearlyFaster = 1.05;

}  // namespace

std::filesystem::path largest_file(const Checkpoint& checkpoint) {
  const auto size = [](const auto& file) { return std::filesystem::file_size(file); };
  const auto& files = checkpoint.files();
  return *std::max_element(files.begin(), files.end(),
                           [&](const auto& a, const auto& b) { return size(a) < size(b); });
}

LinkSample probe_link(const std::filesystem::path& file, LinkSample how, bool direct, bool io_uring,
                      Seconds duration, std::uint64_t& position, Notes& notes) {
  require(how.read_bytes > 0 && how.read_bytes % kReadAlignment == 0,
          "one read must ask for a multiple of 4096 bytes");
  const std::uint64_t requests = std::filesystem::file_size(file) / how.read_bytes;
  if (requests == 0) throw Error(file.string() + " is smaller than one read");
  const HostSlab slab(how.queue_depth * how.read_bytes);
  const std::array files{file};
  const std::array slabs{slab.bytes()};
  const auto engine = make_read_engine(files, slabs, {how.queue_depth, direct, io_uring}, notes);

  std::vector<ReadDone> done(engine->depth());
  std::uint64_t next = position / how.read_bytes;
  const auto submit = [&](std::uint64_t place) {
    const ReadRequest request{0, next++ % requests * how.read_bytes,
                              slab.bytes().subspan(place * how.read_bytes, how.read_bytes), place};
    engine->submit({&request, 1});
  };
  how.bytes = 0;
  const auto start = Clock::now();
  for (std::uint64_t place = 0; place < engine->depth(); ++place) submit(place);
  while (const std::size_t count = engine->wait(done)) {
    const bool more = Clock::now() - start < duration;
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i].result < 0)
        throw Error("reading " + file.string() +
                    " failed: " + std::strerror(static_cast<int>(-done[i].result)));
      how.bytes += static_cast<std::uint64_t>(done[i].result);
      if (more) submit(done[i].tag);
    }
  }
  how.time = Clock::now() - start;
  position = next % requests * how.read_bytes;
  return how;
}

LinkSample best_link(const std::filesystem::path& file, bool direct, bool io_uring, int rounds,
                     Seconds round, Notes& notes) {
  std::array<std::vector<LinkSample>, kWays.size()> samples;
  std::uint64_t position = 0;
  for (int i = 0; i < rounds; ++i)
    for (std::size_t way = 0; way < kWays.size(); ++way) {
      if (std::filesystem::file_size(file) < kWays[way].read_bytes) continue;
      Notes again;  // the same in every round
      samples[way].push_back(probe_link(file, kWays[way], direct, io_uring, round / kWays.size(),
                                        position, i + way == 0 ? notes : again));
    }
  LinkSample best = kWays[0];
  for (auto& of_way : samples) {
    if (of_way.empty()) continue;
    const auto middle = of_way.begin() + std::ssize(of_way) / 2;
    std::nth_element(of_way.begin(), middle, of_way.end(), [](const auto& a, const auto& b) {
      return a.bytes_per_second() < b.bytes_per_second();
    });
    if (best.bytes == 0 || middle->bytes_per_second() > kClearlyFaster * best.bytes_per_second())
      best = *middle;
  }
  return best;
}

}  // namespace canopy
