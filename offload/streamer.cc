#include "offload/streamer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "offload/embedding.h"
#include "offload/io/integrity.h"
#include "offload/io/read_pump.h"
#include "offload/io/slab_pins.h"
#include "offload/lease_turn.h"
#include "offload/reading.h"
#include "offload/ring.h"
#include "offload/unit_layout.h"
#include "src/base/error.h"
#include "src/machine/cpus.h"
#include "src/machine/host_slab.h"

namespace canopy {

namespace {

using Clock = std::chrono::steady_clock;

/// The units that travel, in the order of the sweep. One without matrices has nothing to bring.
std::vector<std::size_t> travelling(const SweepLayout& sweep, const Residency& residency) {
  require(residency.unit.size() == sweep.units.size(), "a residency says of each unit where it is");
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < sweep.units.size(); ++i)
    if (residency.unit[i] == Tier::kDisk && sweep.units[i].read.slab_bytes > 0)
      indices.push_back(i);
  require(!indices.empty(), "every unit rests in memory: there is nothing to stream");
  return indices;
}

std::size_t checked_ring(const SweepLayout& sweep, const Residency& residency, std::size_t bytes) {
  const std::size_t least = least_ring(sweep, residency);
  if (bytes < least)
    throw Error("a ring of " + std::to_string(bytes) +
                " bytes cannot read one unit while another is in use: it needs " +
                std::to_string(least));
  return bytes / kReadAlignment * kReadAlignment;
}

}  // namespace

LinkTotals& LinkTotals::operator+=(const LinkTotals& more) {
  disk_bytes += more.disk_bytes;
  busy += more.busy;
  stall += more.stall;
  checksums += more.checksums;
  return *this;
}

LinkTotals operator-(const LinkTotals& later, const LinkTotals& earlier) {
  return {later.disk_bytes - earlier.disk_bytes, later.busy - earlier.busy,
          later.stall - earlier.stall, later.checksums - earlier.checksums};
}

/// Slots are numbered without end: [first, taken) are lent or given back, [taken, next) are on
/// their way or have arrived; number n lives in slots[n % slots.size()]. They are made and freed in
/// this order, so the ring of bytes is always one range (around its end) of live slots. The
/// newest may still wait for a part of its memory: what is free of it is read into meanwhile.
struct Streamer::Impl {
  enum class State { kReading, kArrived, kLent, kReturned };
  struct Slot {
    std::size_t unit = 0, missing = 0;  // bytes
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
  void give_back(Stream& compute, std::size_t index) noexcept;
  void abandon() noexcept;
  // Under the lock.
  Slot& slot(std::uint64_t number) { return slots[number % slots.size()]; }
  const Slot& slot(std::uint64_t number) const { return slots[number % slots.size()]; }
  bool travels(std::size_t index) const {
    return std::binary_search(travel.begin(), travel.end(), index);
  }
  void rethrow_failure(std::size_t index) const;
  LinkTotals totals() const;

  const SweepLayout& sweep;
  const std::vector<std::size_t> travel;  // the units that do, ascending; the others rest
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
  RestingWeights resting;
  std::unique_ptr<EmbeddingTable> embedding;

  mutable std::mutex mutex;             // guards what follows
  std::condition_variable_any arrived;  // waits for a stop request, too
  std::condition_variable freed;
  std::vector<Slot> slots;
  std::uint64_t first = 0, taken = 0, next = 0;
  std::size_t next_read = 0;  // into `travel`: the unit that slot `next` will hold
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

Streamer::Impl::Impl(Device& device, const SweepLayout& swept, const Residency& residency,
                     const StreamerOptions& options, const LoadProgress& progress,
                     const std::stop_token& stop)
    : sweep(swept),
      travel(travelling(sweep, residency)),
      watch(sweep.files),
      ring(checked_ring(sweep, residency, options.ring_bytes), options.ring_node),
      read_settings(choose_read_settings(sweep.files, ring.bytes(), options, stop)),
      clock(options.clock ? options.clock : std::make_shared<LinkClock>()),
      pins(device, ring.bytes()),
      engine(open_engine(sweep.files, std::array{ring.bytes()}, read_settings, options, notes)),
      pump(*engine, sweep.files, read_settings.read_bytes,
           [this](std::uint64_t owner) {
             return owner == kAtRest ? std::string("the weights that rest in memory")
                                     : describe(units[slot(owner).unit]);
           }),
      resting(device, sweep, residency, pump, {notes, progress, stop},
              device.shares_host_memory() ? MemoryNode() : options.ring_node),
      reader_cpus(options.reader_cpus),
      trace(options.trace) {
  while (pins.lock_next(ring.size(), notes))
    if (stop.stop_requested()) throw Stopped();
  if (residency.table != Tier::kHost) {
    embedding = std::make_unique<EmbeddingReader>(
        device, sweep, open_engine(sweep.files, {}, read_settings, options, notes));
  } else if (device.shares_host_memory()) {
    embedding = std::make_unique<EmbeddingLookup>(device, resting.table());
  } else {
    embedding = std::make_unique<HostEmbedding>(device, sweep.embedding, resting.table());
  }
  for (const UnitLayout& layout : sweep.units) units.push_back(layout.unit);
  std::size_t least = ring.size();
  for (const std::size_t i : travel) least = std::min(least, sweep.units[i].read.slab_bytes);
  slots.resize(ring.size() / least + 1);  // the newest may lie over older ones
  for (Slot& slot : slots) slot.last_use = device.make_event();
  if (options.checksums) checksums.resize(units.size());
  disk_bytes = pump.disk_bytes();
  reader = std::thread([this] { read_in_cycle(); });
  pthread_setname_np(reader.native_handle(), "reader");
}

Streamer::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  freed.notify_all();
  reader.join();  // it drains its reads
  for (const Slot& slot : slots) wait_quietly(*slot.last_use);
}

void Streamer::Impl::read_in_cycle() {
  try {
    bind_thread(pthread_self(), reader_cpus);
    while (true) {
      while (pump.wants_more()) {
        const Admission admission = admit();
        if (admission == Admission::kStop) return pump.drain();
        if (admission == Admission::kNoRoom) break;
      }
      const auto arrivals = pump.step();
      pump.submit();  // the link does not wait for checksums
      if (!deliver(arrivals)) return pump.drain();
    }
  } catch (...) {
    pump.drain();
    const std::lock_guard lock(mutex);
    failure = std::current_exception();
    link.rests();
    arrived.notify_all();
  }
}

/// Queues more reads, of the newest unit or of the next, if there is room for any. Waits for room
/// only while nothing is being read: otherwise the next completion brings the reader back here
/// soon.
Streamer::Impl::Admission Streamer::Impl::admit() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    // The event was recorded before the slot was given back; only then may we ask whether it was
    // reached (house rule: two locks for one slot).
    while (first < taken && slot(first).state == State::kReturned &&
           slot(first).last_use->reached())
      ++first;
    const bool whole = first == next || slot(next - 1).queued == slot(next - 1).at.bytes;
    if ((!whole || make_slot()) && queue_reads(slot(next - 1))) return Admission::kDone;
    if (!pump.idle()) return Admission::kNoRoom;
    const Slot& oldest = slot(first);
    if (oldest.state == State::kReturned) {
      lock.unlock();
      oldest.last_use->wait();
      lock.lock();
    } else {
      freed.wait(lock, [&] { return stopping || oldest.state == State::kReturned; });
    }
  }
  return Admission::kStop;
}

/// The next unit gets its place, which older ones may still hold; false if it has none yet.
bool Streamer::Impl::make_slot() {
  const std::size_t bytes = sweep.units[travel[next_read]].read.slab_bytes;
  const bool none = first == next;
  const auto begin = place_in_ring(ring.size(), none ? nullptr : &slot(first).at,
                                   none ? nullptr : &slot(next - 1).at, bytes);
  if (!begin || next - first == slots.size()) return false;
  Slot& made = slot(next);
  made.unit = travel[next_read];
  made.at = {*begin, bytes};
  made.missing = bytes;
  made.queued = 0;
  made.state = State::kReading;
  made.abandoned = made.cut = false;
  made.checksum = 0;
  made.asked = Clock::now();
  next_read = (next_read + 1) % travel.size();
  ++next;
  return true;
}

/// Asks for what has become free of the newest slot's memory; false if nothing has. What nobody
/// will acquire is cut off instead.
bool Streamer::Impl::queue_reads(Slot& newest) {
  if (newest.abandoned) {
    newest.missing -= newest.at.bytes - newest.queued;
    newest.at.bytes = newest.queued;
    newest.cut = true;
    if (newest.missing == 0) newest.state = State::kReturned;
    return true;
  }
  const ReadLayout& read = sweep.units[newest.unit].read;
  const std::size_t ready = pump.cut_before(
      read.extents, free_of(newest.at, first + 1 == next ? nullptr : &slot(first).at));
  if (ready == newest.queued) return false;
  pump.add(part_of(read.extents, newest.queued, ready), ring.data() + newest.at.begin,
           (next - 1) % slots.size());
  newest.queued = ready;
  link.reads();
  return true;
}

bool Streamer::Impl::deliver(std::span<const ReadPump::Arrival> arrivals) {
  const auto begun = Clock::now();
  // The unit that a slot is for, and the bytes it misses, are known to this thread alone.
  for (const ReadPump::Arrival& arrival : arrivals) {
    Slot& slot = slots[arrival.owner];
    slot.missing -= arrival.bytes.size();
    if (!checksums.empty()) slot.checksum += checksum(arrival);
    if (slot.missing == 0 && !slot.cut) expect_unchanged(slot);
  }
  const auto checked = Clock::now();
  bool complete = false, stop = false;
  {
    const std::lock_guard lock(mutex);
    stop = stopping;
    if (!checksums.empty()) checking += checked - begun;
    for (const ReadPump::Arrival& arrival : arrivals) {
      Slot& slot = slots[arrival.owner];
      if (slot.missing > 0 || slot.state != State::kReading) continue;
      if (trace) trace_read(slot);
      slot.state = slot.abandoned ? State::kReturned : State::kArrived;
      complete = true;
    }
    disk_bytes = pump.disk_bytes();
    if (pump.idle()) link.rests();
  }
  if (complete) arrived.notify_all();
  return !stop;
}

/// Throws unless the bytes of a unit that has just arrived are those of the start.
void Streamer::Impl::expect_unchanged(const Slot& slot) {
  const std::vector<Extent>& extents = sweep.units[slot.unit].read.extents;
  for (const Extent& extent : extents) watch.check(extent.file);
  if (checksums.empty()) return;
  std::optional<std::uint64_t>& seen = checksums[slot.unit];
  if (!seen) seen = slot.checksum;
  if (*seen == slot.checksum) return;
  throw changed(describe(units[slot.unit]), sweep.files, extents);
}

/// Units overlap in flight: on the timeline one begins where the one before it ended.
void Streamer::Impl::trace_read(const Slot& slot) {
  const auto now = Clock::now();
  trace->span(Trace::Lane::kLink, describe(units[slot.unit]), std::max(slot.asked, traced), now,
              slot.at.bytes);
  traced = now;
}

UnitWeights Streamer::Impl::take(std::size_t index, const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  rethrow_failure(index);
  turn.expect(index);
  UnitWeights weights = resting.unit(index);
  if (travels(index)) {
    const auto start = Clock::now();
    const bool ready = arrived.wait(lock, stop, [&] {
      return failure || (taken < next && slot(taken).state == State::kArrived);
    });
    stall += Clock::now() - start;
    if (!ready) throw Stopped();
    rethrow_failure(index);
    Slot& mine = slot(taken);
    const UnitLayout& layout = sweep.units[index];
    for (std::size_t i = 0; i < layout.matrices.size(); ++i)
      weights.add(layout.matrices[i].role,
                  matrix_at(ring.data() + mine.at.begin + layout.read.slab_at[i],
                            layout.matrices[i].tensor),
                  layout.matrices[i].expert);
    mine.state = State::kLent;
    ++taken;
  }
  turn.lend(index);
  return weights;
}

void Streamer::Impl::give_back(Stream& compute, std::size_t index) noexcept {
  std::exception_ptr refused;
  Slot* mine = nullptr;
  if (travels(index)) {
    // Only this thread changes `taken`, except for abandon(), which skips what is not lent.
    const std::lock_guard lock(mutex);
    for (std::uint64_t number = first; number < taken; ++number)
      if (slot(number).state == State::kLent) mine = &slot(number);
  }
  if (mine) {
    try {
      compute.record(*mine->last_use);
    } catch (...) {
      refused = std::current_exception();
    }
  }
  const std::lock_guard lock(mutex);
  turn.give_back();
  if (refused) {
    if (!failure) failure = refused;  // the slot stays lent: its memory may still be in use
    return;
  }
  if (mine) mine->state = State::kReturned;
  freed.notify_all();
}

void Streamer::Impl::abandon() noexcept {
  const std::lock_guard lock(mutex);
  const auto behind = std::lower_bound(travel.begin(), travel.end(), turn.next());
  turn.restart();
  // Before the first travelling unit and after the last, what is on its way is for a whole sweep.
  if (behind == travel.begin() || behind == travel.end()) return;
  for (; taken < next; ++taken) {
    Slot& skipped = slot(taken);
    skipped.abandoned = true;
    if (skipped.state == State::kArrived) skipped.state = State::kReturned;
  }
  next_read = 0;
  freed.notify_all();
}

void Streamer::Impl::rethrow_failure(std::size_t index) const {
  if (!failure) return;
  in_context("waiting for " + describe(units.at(index)), [&] { std::rethrow_exception(failure); });
}

LinkTotals Streamer::Impl::totals() const {
  return {disk_bytes + embedding->disk_bytes(), clock->busy(), stall, checking};
}

Streamer::Streamer(Device& device, const SweepLayout& sweep, const Residency& residency,
                   const StreamerOptions& options, const LoadProgress& progress,
                   std::stop_token stop)
    : impl_(in_context("opening " + sweep.root.string() + " for streaming", [&] {
        return std::make_unique<Impl>(device, sweep, residency, options, progress, stop);
      })) {}

Streamer::~Streamer() = default;

std::span<const Unit> Streamer::units() const { return impl_->units; }

UnitLease Streamer::acquire(std::size_t index, Stream& compute, const std::stop_token& stop) {
  return lend(index, impl_->take(index, stop), compute);
}

void Streamer::give_back(std::size_t index, Stream& compute) noexcept {
  impl_->give_back(compute, index);
}

void Streamer::abandon_sweep() noexcept { impl_->abandon(); }

EmbeddingTable& Streamer::embedding() { return *impl_->embedding; }

std::size_t Streamer::held_bytes() const {
  return impl_->ring.size() + impl_->resting.bytes() + impl_->embedding->held_bytes();
}

std::vector<RestingUnit> Streamer::resting() const {
  std::vector<RestingUnit> resting;
  for (std::size_t i = 0; i < impl_->units.size(); ++i)
    if (!impl_->travels(i)) resting.push_back({impl_->units[i], impl_->resting.unit(i)});
  return resting;
}

LinkTotals Streamer::totals() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->totals();
}

const LinkSample& Streamer::read_settings() const { return impl_->read_settings; }
const Notes& Streamer::notes() const { return impl_->notes; }

std::size_t Streamer::resting_bytes(const SweepLayout& sweep, const Residency& residency) {
  return RestingWeights::bytes_needed(sweep, residency) +
         (residency.table == Tier::kHost ? EmbeddingLookup::bytes_needed()
                                         : EmbeddingReader::bytes_needed(sweep.embedding));
}

}  // namespace canopy
