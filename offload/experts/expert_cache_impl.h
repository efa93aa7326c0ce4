#pragma once
// Private to the expert cache: what its reader and its caller share.
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "offload/experts/expert_cache.h"
#include "offload/experts/expert_choices.h"
#include "offload/io/integrity.h"
#include "offload/io/read_pump.h"
#include "offload/io/slab_pins.h"
#include "src/machine/host_slab.h"

namespace canopy {

inline std::string describe(const ExpertLayout& expert) {
  return "expert " + std::to_string(expert.expert) + " of layer " + std::to_string(expert.layer);
}

/// A slot is free, or an expert's: asked for slots in the order in which they will be used, experts
/// wait in `queued` until one is free. A slot comes free when an expert that does not stay has been
/// used, or when one that stayed has to leave, and may be read into once the work on it is done.
/// Enough of all slots are spare that a layer never has to wait for its own later experts: those
/// that are on their way are used first. Slots beyond the least have memory of their own each,
/// while they are there.
struct ExpertCache::Impl {
  using Clock = std::chrono::steady_clock;
  enum class State { kAbsent, kQueued, kReading, kPresent };
  struct Expert {
    State state = State::kAbsent;
    std::size_t slot = 0;
    bool needed = false;  // by the sweep, which has not used it yet
    bool likely = false;  // to be needed: its read was begun ahead, and its layer is still to come
  };
  struct Slot {
    bool forgotten = false;               // while reads that nobody wants are in flight
    std::size_t expert = 0, missing = 0;  // of the sweep's; bytes
    std::uint64_t checksum = 0;           // of what has arrived
    Clock::time_point asked;
    std::unique_ptr<Event> last_use;  // on the compute stream
  };

  Impl(Device& device, const SweepLayout& swept, const ExpertSlots& bounds,
       const StreamerOptions& options, const std::stop_token& stop, RouteTrace* route_trace);
  ~Impl();

  // The reader's thread.
  void read();
  bool admit();                             // false: stop
  std::optional<std::size_t> ready_slot();  // taken out of the free ones; under the lock
  bool may_begin_ahead() const;             // under the lock
  void settle();                            // under the lock
  void queue_reads(std::size_t index, ReadPump::Urgency urgency);
  void deliver(std::span<const ReadPump::Arrival> arrivals);
  void expect_unchanged(const Slot& slot);
  // The caller's thread.
  void want(int layer, std::span<const std::int32_t> chosen);
  void expect(int layer, std::span<const std::int32_t> likely);
  void judge_ahead();  // under the lock
  bool may_lack(int layer) const;
  ExpertWeights take(int layer, int expert, const std::stop_token& stop);
  void give_back(std::size_t slot, Stream& compute) noexcept;
  void abandon() noexcept;
  void resize(std::size_t count);
  std::byte* memory_of(std::size_t slot) const {
    return slot < fewest ? slab.data() + slot * bytes_of_slot : more[slot - fewest].data();
  }
  std::size_t there() const {  // slots; under the lock
    return slots.size() - static_cast<std::size_t>(std::ranges::count(more, 0u, &HostSlab::size));
  }
  /// A free slot beyond the least, for whose expert another is found; nothing while none is free.
  /// Under the lock.
  std::optional<std::size_t> clear_slot();
  /// Frees the slot of an expert that neither stays nor is needed, once it has arrived. Under the
  /// lock.
  void let_go(std::size_t index);

  const SweepLayout& sweep;
  Notes notes;
  FileWatch watch;  // from before the first read
  std::vector<std::optional<std::uint64_t>>
      checksums;                            // by expert, once read; empty: not asked for
  const std::size_t bytes_of_slot, fewest;  // slots at any time
  const MemoryNode node;
  HostSlab slab;               // of the least slots
  std::vector<HostSlab> more;  // of each other slot; empty where it is not there; under the lock
  SlabPins pins;               // for copies to a device with memory of its own
  const LinkSample read_settings;
  const std::shared_ptr<LinkClock> clock;
  std::unique_ptr<ReadEngine> engine;  // destroyed before the slab that it reads into
  ReadPump pump;
  LinkReader link{*clock};  // under the lock

  mutable std::mutex mutex;             // guards what follows
  std::condition_variable_any arrived;  // waits for a stop request, too
  std::condition_variable asked;        // or a slot came free
  ExpertChoices choices;
  std::vector<Expert> experts;
  std::vector<Slot> slots;
  std::deque<std::size_t> free, queued;  // slots; experts
  std::deque<std::size_t> guessed;       // experts that are likely to be needed, not begun
  std::vector<std::size_t> ahead;        // begun: those that are `likely`
  std::vector<std::size_t> settling;     // slots of begun reads that the reader is to hear of
  std::uint64_t foreseen = 0, wasted = 0;
  bool stopping = false;
  std::exception_ptr failure;
  std::uint64_t disk_bytes = 0;
  Clock::duration stall{}, checking{};

  const std::vector<int> reader_cpus;
  Trace* const trace;
  Clock::time_point traced;  // the end of the last span; the reader's thread
  std::thread reader;
};

}  // namespace canopy
