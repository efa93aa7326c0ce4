#include "offload/io/link_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace canopy {

namespace {

using Clock = std::chrono::steady_clock;

// The first asks for much at once: threads that compute keep the reader from its queue for
// milliseconds, which a fast disk fills with 16 MiB.
constexpr std::array kWays{LinkSample{4u << 20, 16}, LinkSample{1u << 20, 16},
                           LinkSample{256u << 10, 32}, LinkSample{4u << 20, 4}};
constexpr std::size_t kFitsAnywhere = 16u << 20;  // bytes in flight, wherever a ring is
constexpr double kClearlyFaster = 1.05;

}  // namespace

LinkProbe::LinkProbe(std::filesystem::path file, std::span<std::byte> memory, bool direct,
                     bool io_uring)
    : file_(std::move(file)), memory_(memory), direct_(direct), io_uring_(io_uring) {}

LinkSample LinkProbe::run(LinkSample how, Seconds duration, Notes& notes,
                          const std::stop_token& stop) {
  require(how.read_bytes > 0 && how.read_bytes % kReadAlignment == 0,
          "one read must ask for a multiple of 4096 bytes");
  const std::uint64_t requests = std::filesystem::file_size(file_) / how.read_bytes;
  if (requests == 0) throw Error(file_.string() + " is smaller than one read");
  const std::size_t places = memory_.size() / how.read_bytes;
  require(places > 0, "the memory of a probe is smaller than one read");
  how.queue_depth = std::min(how.queue_depth, places);
  const std::array files{file_};
  const std::array slabs{memory_};
  const auto engine = make_read_engine(files, slabs, {how.queue_depth, direct_, io_uring_}, notes);

  std::deque<std::size_t> unused;  // places, the one that was read into the longest ago first
  for (std::size_t place = 0; place < places; ++place) unused.push_back(place);
  std::vector<ReadDone> done(engine->depth());
  std::uint64_t next = position_ / how.read_bytes;
  const auto submit = [&] {
    const std::size_t place = unused.front();
    unused.pop_front();
    const ReadRequest request{0, next++ % requests * how.read_bytes,
                              memory_.subspan(place * how.read_bytes, how.read_bytes), place};
    engine->submit({&request, 1});
  };
  how.bytes = 0;
  const auto start = Clock::now();
  for (std::size_t i = 0; i < std::min(engine->depth(), places); ++i) submit();
  while (const std::size_t count = engine->wait(done)) {
    const bool more = Clock::now() - start < duration && !stop.stop_requested();
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i].result < 0)
        throw Error("reading " + file_.string() +
                    " failed: " + std::strerror(static_cast<int>(-done[i].result)));
      how.bytes += static_cast<std::uint64_t>(done[i].result);
      unused.push_back(done[i].tag);
    }
    for (std::size_t i = 0; more && i < count; ++i) submit();
  }
  if (stop.stop_requested()) throw Stopped();
  how.time = Clock::now() - start;
  position_ = next % requests * how.read_bytes;
  return how;
}

LinkSample LinkProbe::best(int rounds, Seconds round, Notes& notes, const std::stop_token& stop,
                           std::size_t most_in_flight) {
  const std::size_t most = std::clamp(memory_.size() / 2, kFitsAnywhere, most_in_flight);
  const std::size_t largest =
      std::min<std::uint64_t>(std::filesystem::file_size(file_), memory_.size());
  std::vector<LinkSample> ways;
  for (const LinkSample& way : kWays)
    if (way.read_bytes <= largest && way.read_bytes * way.queue_depth <= most) ways.push_back(way);
  std::vector<std::vector<LinkSample>> samples(ways.size());
  for (int i = 0; i < rounds; ++i)
    for (std::size_t way = 0; way < ways.size(); ++way) {
      Notes again;  // the same in every round
      samples[way].push_back(run(ways[way], round / static_cast<double>(ways.size()),
                                 i == 0 && way == 0 ? notes : again, stop));
    }
  LinkSample best;
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
