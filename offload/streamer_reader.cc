#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "offload/reading.h"
#include "offload/streamer_impl.h"
#include "offload/unit_layout.h"
#include "src/base/error.h"
#include "src/machine/cpus.h"

namespace canopy {

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
    if (!failure) failure = std::current_exception();
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
  std::size_t unit = read_unit;
  std::uint64_t of_sweep = read_sweep;
  while (rests[unit])
    if (++unit == rests.size()) unit = 0, ++of_sweep;
  const std::size_t bytes = sweep.units[unit].read.slab_bytes;
  const bool none = first == next;
  const auto begin = place_in_ring(ring.size(), none ? nullptr : &slot(first).at,
                                   none ? nullptr : &slot(next - 1).at, bytes);
  if (!begin || next - first == slots.size()) return false;
  Slot& made = slot(next);
  made.unit = unit;
  made.sweep = of_sweep;
  made.at = {*begin, bytes};
  made.missing = bytes;
  made.queued = 0;
  made.state = State::kReading;
  made.abandoned = made.cut = false;
  made.checksum = 0;
  made.asked = Clock::now();
  read_unit = (unit + 1) % rests.size();
  read_sweep = of_sweep + (read_unit == 0 ? 1 : 0);
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

}  // namespace canopy
