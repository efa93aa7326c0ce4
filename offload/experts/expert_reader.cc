// The thread that reads experts.
#include <algorithm>
#include <utility>

#include "offload/experts/expert_cache_impl.h"
#include "offload/reading.h"
#include "src/machine/cpus.h"

namespace canopy {

void ExpertCache::Impl::read() {
  try {
    bind_thread(pthread_self(), reader_cpus);
    while (admit()) {
      const auto arrivals = pump.step();
      pump.submit();  // the link does not wait for checksums
      deliver(arrivals);
    }
    pump.drain();
  } catch (...) {
    pump.drain();
    const std::lock_guard lock(mutex);
    failure = std::current_exception();
    link.rests();
    arrived.notify_all();
  }
}

/// Gives queued experts the slots that are free. Waits while nothing is being read: otherwise the
/// next completion brings the reader back here soon.
bool ExpertCache::Impl::admit() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    settle();
    while (!queued.empty()) {
      const auto slot = ready_slot();
      if (!slot) break;
      const std::size_t index = queued.front();
      queued.pop_front();
      experts[index] = {State::kReading, *slot, experts[index].needed, false};
      queue_reads(index, ReadPump::Urgency::kNeeded);
    }
    while (may_begin_ahead() && pump.wants_likely()) {
      const auto slot = ready_slot();
      if (!slot) break;
      const std::size_t index = guessed.front();
      guessed.pop_front();
      experts[index] = {State::kReading, *slot, false, true};
      ahead.push_back(index);
      queue_reads(index, ReadPump::Urgency::kLikely);
    }
    if (!pump.idle()) return true;
    if ((!queued.empty() || may_begin_ahead()) && !free.empty()) {
      const Event& oldest = *slots[free.front()].last_use;
      lock.unlock();
      oldest.wait();
      lock.lock();
    } else {
      asked.wait(lock, [&] {
        return stopping || !settling.empty() ||
               ((!queued.empty() || may_begin_ahead()) && !free.empty());
      });
    }
  }
  return false;
}

/// Finds a slot that may be read into. The event was recorded before the slot was freed; only then
/// may we ask whether it was reached.
std::optional<std::size_t> ExpertCache::Impl::ready_slot() {
  const auto ready = std::find_if(
      free.begin(), free.end(), [&](std::size_t slot) { return slots[slot].last_use->reached(); });
  if (ready == free.end()) return std::nullopt;
  const std::size_t slot = *ready;
  free.erase(ready);
  return slot;
}

/// Says if a likely expert may have a slot, should one be free: nothing that was asked for waits
/// for one, and enough are left that the layer to come never waits for its own later experts.
bool ExpertCache::Impl::may_begin_ahead() const {
  return queued.empty() && !guessed.empty() && ahead.size() + 2 < spare_slots(sweep);
}

/// Tells the pump what has become of reads that were begun ahead.
void ExpertCache::Impl::settle() {
  for (const std::size_t at : settling) {
    Slot& slot = slots[at];
    Expert& expert = experts[slot.expert];
    if (expert.state != State::kReading || expert.slot != at || slot.forgotten) continue;
    if (expert.needed) {
      pump.hurry(at);
      continue;
    }
    slot.missing -= pump.forget(at);
    expert.state = State::kAbsent;
    slot.forgotten = slot.missing > 0;
    if (slot.forgotten) continue;
    free.push_back(at);
    arrived.notify_all();
  }
  settling.clear();
  if (pump.idle()) link.rests();
}

void ExpertCache::Impl::queue_reads(std::size_t index, ReadPump::Urgency urgency) {
  Slot& slot = slots[experts[index].slot];
  const ReadLayout& read = sweep.experts[index].read;
  slot.expert = index;
  slot.missing = read.slab_bytes;
  slot.checksum = 0;
  slot.asked = Clock::now();
  link.reads();
  pump.add(read.extents, memory_of(experts[index].slot), experts[index].slot, urgency);
}

void ExpertCache::Impl::deliver(std::span<const ReadPump::Arrival> arrivals) {
  const auto begun = Clock::now();
  std::vector<std::size_t> complete;  // slots
  // The bytes that a slot still misses are known to this thread alone.
  for (const ReadPump::Arrival& arrival : arrivals) {
    Slot& slot = slots[arrival.owner];
    slot.missing -= arrival.bytes.size();
    if (!checksums.empty()) slot.checksum += checksum(arrival);
    if (slot.missing > 0) continue;
    if (!slot.forgotten) expect_unchanged(slot);
    complete.push_back(arrival.owner);
  }
  const auto checked = Clock::now();
  {
    const std::lock_guard lock(mutex);
    if (!checksums.empty()) checking += checked - begun;
    for (const std::size_t at : complete) {
      Slot& slot = slots[at];
      if (std::exchange(slot.forgotten, false)) {
        free.push_back(at);
        continue;
      }
      if (trace) {
        trace->span(Trace::Lane::kLink, describe(sweep.experts[slot.expert]),
                    std::max(slot.asked, traced), checked,
                    sweep.experts[slot.expert].read.slab_bytes);
        traced = checked;
      }
      experts[slot.expert].state = State::kPresent;
      let_go(slot.expert);
    }
    disk_bytes = pump.disk_bytes();
    if (pump.idle()) link.rests();
  }
  if (!complete.empty()) arrived.notify_all();
}

/// Throws unless the bytes of an expert that has just arrived are those of the first time.
void ExpertCache::Impl::expect_unchanged(const Slot& slot) {
  const ExpertLayout& expert = sweep.experts[slot.expert];
  for (const Extent& extent : expert.read.extents) watch.check(extent.file);
  if (checksums.empty()) return;
  std::optional<std::uint64_t>& seen = checksums[slot.expert];
  if (!seen) seen = slot.checksum;
  if (*seen != slot.checksum) throw changed(describe(expert), sweep.files, expert.read.extents);
}

}  // namespace canopy
