#pragma once
// Private to the streamer: its state, shared by the reader's thread (streamer_reader.cc) and the
// caller's (streamer.cc).
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "offload/embedding.h"
#include "offload/host_weights.h"
#include "offload/io/integrity.h"
#include "offload/io/read_pump.h"
#include "offload/io/slab_pins.h"
#include "offload/kept_units.h"
#include "offload/lease_turn.h"
#include "offload/ring.h"
#include "offload/streamer.h"
#include "src/machine/host_slab.h"

namespace canopy {

/// Slots are numbered without end: [first, taken) are lent or given back, [taken, next) are on
/// their way or have arrived; number n lives in slots[n % slots.size()]. They are made and freed in
/// this order, so the ring of bytes is always one range (around its end) of live slots. The
/// newest may still wait for a part of its memory: what is free of it is read into meanwhile.
struct Streamer::Impl {
  using Clock = std::chrono::steady_clock;
  enum class State { kReading, kArrived, kLent, kReturned };
  struct Slot {
    std::size_t unit = 0, missing = 0;  // bytes
    std::uint64_t sweep = 0;            // that it is for
    std::size_t queued = 0;             // the first of them, which have been asked for
    Range at;                           // of the ring
    std::uint64_t checksum = 0;         // of what has arrived
    Clock::time_point asked;
    State state = State::kReturned;
    bool abandoned = false;           // nobody will acquire it
    bool cut = false;                 // abandoned before all of it was asked for
    std::unique_ptr<Event> last_use;  // on the compute stream
  };

  Impl(Device& device, const SweepLayout& swept, const Residency& residency,
       const StreamerOptions& options, const LoadProgress& progress, const std::stop_token& stop);
  ~Impl();

  // The reader's thread.
  void read_in_cycle();
  enum class Admission { kDone, kNoRoom, kStop };
  Admission admit();
  bool make_slot();
  bool queue_reads(Slot& slot);
  bool deliver(std::span<const ReadPump::Arrival> arrivals);  // false: stop
  void expect_unchanged(const Slot& slot);
  void trace_read(const Slot& slot);
  // The caller's thread.
  UnitWeights take(std::size_t index, const std::stop_token& stop);
  void give_back(Stream& compute) noexcept;
  void abandon() noexcept;
  void evict(std::size_t index);
  void keep(std::size_t index);
  // Under the lock.
  Slot& slot(std::uint64_t number) { return slots[number % slots.size()]; }
  const Slot& slot(std::uint64_t number) const { return slots[number % slots.size()]; }
  bool comes_by_ring(std::size_t index) const {
    const bool is_next =
        taken < next && slot(taken).unit == index && slot(taken).sweep == sweep_now;
    return is_next || !rests[index];
  }
  bool is_passed(std::size_t index) const;
  void begin_sweep();
  void drop_ahead();
  void rethrow_failure(std::size_t index) const;
  LinkTotals totals() const;

  const SweepLayout& sweep;
  const Tier table;  // of the embedding
  std::vector<Unit> units;
  Notes notes;
  FileWatch watch;                                      // from before the first read
  std::vector<std::optional<std::uint64_t>> checksums;  // by unit, once read; empty: not asked for
  HostSlab ring;
  const LinkSample read_settings;  // of reading
  const std::shared_ptr<LinkClock> clock;
  SlabPins pins;                       // of the ring
  std::unique_ptr<ReadEngine> engine;  // destroyed before the ring that it reads into
  ReadPump pump;
  LinkReader link{*clock};  // under the lock
  HostWeights resting;      // for good
  KeptUnits kept{sweep};    // until their memory is wanted
  std::unique_ptr<EmbeddingTable> embedding;

  mutable std::mutex mutex;             // guards what follows
  std::condition_variable_any arrived;  // waits for a stop request, too
  std::condition_variable freed;
  std::vector<Slot> slots;
  std::uint64_t first = 0, taken = 0, next = 0;
  std::vector<bool> rests;       // by unit: the reader passes it by
  std::vector<bool> wanted;      // by unit: it stays when it has passed
  std::uint64_t read_sweep = 0;  // the reader's place in the cycle: slot `next` will hold
  std::size_t read_unit = 0;     // the first unit from here on that does not rest
  std::uint64_t sweep_now = 0;   // that the next unit is acquired for
  bool took = false;             // a slot of it
  LeaseTurn turn{sweep.units.size()};
  bool stopping = false;
  std::exception_ptr failure;
  Clock::duration stall{}, checking{};
  std::uint64_t disk_bytes = 0;  // of weights; the embedding counts its own

  const std::vector<int> reader_cpus;
  Trace* const trace;
  Clock::time_point traced;  // the end of the last span; the reader's thread
  std::thread reader;
};

}  // namespace canopy
