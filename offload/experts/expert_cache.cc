#include "offload/experts/expert_cache.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "offload/experts/expert_choices.h"
#include "offload/io/integrity.h"
#include "offload/io/read_pump.h"
#include "offload/io/slab_pins.h"
#include "offload/reading.h"
#include "src/base/error.h"
#include "src/machine/cpus.h"
#include "src/machine/host_slab.h"

namespace canopy {

namespace {

using Clock = std::chrono::steady_clock;

std::string describe(const ExpertLayout& expert) {
  return "expert " + std::to_string(expert.expert) + " of layer " + std::to_string(expert.layer);
}

const ExpertSlots& checked(const SweepLayout& sweep, const ExpertSlots& slots) {
  require(!sweep.experts.empty(), "an expert cache is for a mixture whose experts are apart");
  require(slots.least <= slots.now && slots.now <= slots.most, "slots are beyond their bounds");
  const std::size_t least = ExpertCache::spare_slots(sweep);
  if (slots.least < least)
    throw Error("an expert cache of " + std::to_string(slots.least) + " slots: a layer needs " +
                std::to_string(least));
  return slots;
}

}  // namespace

ExpertTotals& ExpertTotals::operator+=(const ExpertTotals& more) {
  hits += more.hits;
  misses += more.misses;
  link += more.link;
  return *this;
}

ExpertTotals operator-(const ExpertTotals& later, const ExpertTotals& earlier) {
  return {later.hits - earlier.hits, later.misses - earlier.misses, later.link - earlier.link};
}

/// A slot is free, or an expert's: asked for slots in the order in which they will be used, experts
/// wait in `queued` until one is free. A slot comes free when an expert that does not stay has been
/// used, or when one that stayed has to leave, and may be read into once the work on it is done.
/// Enough of all slots are spare that a layer never has to wait for its own later experts: those
/// that are on their way are used first. Slots beyond the least have memory of their own each,
/// while they are there.
struct ExpertCache::Impl {
  enum class State { kAbsent, kQueued, kReading, kPresent };
  struct Expert {
    State state = State::kAbsent;
    std::size_t slot = 0;
    bool needed = false;  // by the sweep, which has not used it yet
  };
  struct Slot {
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
  bool admit();  // false: stop
  void queue_reads(std::size_t index);
  void deliver(std::span<const ReadPump::Arrival> arrivals);
  void expect_unchanged(const Slot& slot);
  // The caller's thread.
  void want(int layer, std::span<const std::int32_t> chosen);
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
  bool stopping = false;
  std::exception_ptr failure;
  std::uint64_t disk_bytes = 0;
  Clock::duration stall{}, checking{};

  const std::vector<int> reader_cpus;
  Trace* const trace;
  Clock::time_point traced;  // the end of the last span; the reader's thread
  std::thread reader;
};

ExpertCache::Impl::Impl(Device& device, const SweepLayout& swept, const ExpertSlots& bounds,
                        const StreamerOptions& options, const std::stop_token& stop,
                        RouteTrace* route_trace)
    : sweep(swept),
      watch(sweep.files),
      bytes_of_slot(slot_bytes(sweep)),
      fewest(checked(sweep, bounds).least),
      node(options.ring_node),
      slab(fewest * bytes_of_slot, node),
      more(bounds.most - bounds.least),
      pins(device, slab.bytes()),
      read_settings(choose_read_settings(sweep.files, slab.bytes(), options, stop)),
      clock(options.clock ? options.clock : std::make_shared<LinkClock>()),
      engine(open_engine(sweep.files, std::array{slab.bytes()}, read_settings, options, notes)),
      pump(*engine, sweep.files, read_settings.read_bytes,
           [this](std::uint64_t slot) { return describe(sweep.experts[slots[slot].expert]); }),
      choices(sweep, bounds.now - spare_slots(sweep), route_trace),
      experts(sweep.experts.size()),
      slots(bounds.most),
      reader_cpus(options.reader_cpus),
      trace(options.trace) {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i].last_use = device.make_event();
    if (i < bounds.now) free.push_back(i);
  }
  for (std::size_t i = 0; i < bounds.now - fewest; ++i)
    more[i] = HostSlab(bytes_of_slot, node, Touch::kAsFilled);
  if (options.checksums) checksums.resize(experts.size());
  pins.lock_all(notes);
  reader = std::thread([this] { read(); });
  pthread_setname_np(reader.native_handle(), "expert reader");
}

ExpertCache::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  asked.notify_all();
  reader.join();  // it drains its reads
  for (const Slot& slot : slots) wait_quietly(*slot.last_use);
}

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
    // The event was recorded before the slot was freed; only then may we ask whether it was
    // reached.
    while (!queued.empty() && !free.empty()) {
      const auto ready = std::find_if(free.begin(), free.end(), [&](std::size_t slot) {
        return slots[slot].last_use->reached();
      });
      if (ready == free.end()) break;
      const std::size_t slot = *ready, index = queued.front();
      free.erase(ready);
      queued.pop_front();
      experts[index] = {State::kReading, slot, experts[index].needed};
      queue_reads(index);
    }
    if (!pump.idle()) return true;
    if (!queued.empty() && !free.empty()) {
      const Event& oldest = *slots[free.front()].last_use;
      lock.unlock();
      oldest.wait();
      lock.lock();
    } else {
      asked.wait(lock, [&] { return stopping || (!queued.empty() && !free.empty()); });
    }
  }
  return false;
}

void ExpertCache::Impl::queue_reads(std::size_t index) {
  Slot& slot = slots[experts[index].slot];
  const ReadLayout& read = sweep.experts[index].read;
  slot.expert = index;
  slot.missing = read.slab_bytes;
  slot.checksum = 0;
  slot.asked = Clock::now();
  link.reads();
  pump.add(read.extents, memory_of(experts[index].slot), experts[index].slot);
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
    expect_unchanged(slot);
    complete.push_back(arrival.owner);
  }
  const auto checked = Clock::now();
  {
    const std::lock_guard lock(mutex);
    if (!checksums.empty()) checking += checked - begun;
    for (const std::size_t at : complete) {
      const Slot& slot = slots[at];
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

void ExpertCache::Impl::let_go(std::size_t index) {
  Expert& expert = experts[index];
  if (expert.needed || choices.stays(index) || expert.state != State::kPresent) return;
  expert.state = State::kAbsent;
  free.push_back(expert.slot);
}

void ExpertCache::Impl::want(int layer, std::span<const std::int32_t> chosen) {
  {
    const std::lock_guard lock(mutex);
    const ExpertChoices::Wanted wanted = choices.want(layer, chosen);
    for (const std::size_t index : wanted.leaving) let_go(index);
    for (const std::size_t index : wanted.experts) {
      Expert& expert = experts[index];
      expert.needed = true;
      if (expert.state != State::kAbsent) continue;
      expert.state = State::kQueued;
      queued.push_back(index);
    }
  }
  asked.notify_all();
}

ExpertWeights ExpertCache::Impl::take(int layer, int expert, const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  const std::size_t index = choices.index_of(layer, expert);
  const ExpertLayout& layout = sweep.experts[index];
  const Expert& mine = experts[index];
  require(mine.needed, "an expert is acquired that no row has chosen");
  const auto start = Clock::now();
  const bool ready =
      arrived.wait(lock, stop, [&] { return failure || mine.state == State::kPresent; });
  stall += Clock::now() - start;
  if (!ready) throw Stopped();
  if (failure)
    in_context("waiting for " + describe(layout), [&] { std::rethrow_exception(failure); });
  UnitWeights weights;
  for (std::size_t i = 0; i < layout.matrices.size(); ++i)
    weights.add(layout.matrices[i].role,
                matrix_at(memory_of(mine.slot) + layout.read.slab_at[i], layout.matrices[i].tensor),
                0);
  return weights.experts()[0];
}

void ExpertCache::Impl::give_back(std::size_t slot, Stream& compute) noexcept {
  std::exception_ptr refused;
  try {
    compute.record(*slots[slot].last_use);
  } catch (...) {
    refused = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex);
    if (refused) {
      if (!failure) failure = refused;  // the slot stays the expert's: it may still be in use
      return;
    }
    experts[slots[slot].expert].needed = false;
    let_go(slots[slot].expert);
  }
  asked.notify_all();
}

void ExpertCache::Impl::abandon() noexcept {
  {
    const std::lock_guard lock(mutex);
    for (const std::size_t index : queued) {
      experts[index].state = State::kAbsent;
      choices.drop(index);
    }
    queued.clear();
    for (std::size_t index = 0; index < experts.size(); ++index) {
      experts[index].needed = false;
      let_go(index);
    }
    choices.abandon_sweep();
  }
  asked.notify_all();
}

std::optional<std::size_t> ExpertCache::Impl::clear_slot() {
  const auto at = std::ranges::find_if(free, [&](std::size_t slot) { return slot >= fewest; });
  if (at != free.end()) {
    const std::size_t slot = *at;
    free.erase(at);
    slots[slot].last_use->wait();
    return slot;
  }
  const auto moves = std::ranges::find_if(experts, [&](const Expert& expert) {
    return expert.state == State::kPresent && expert.slot >= fewest;
  });
  if (free.empty() || moves == experts.end()) return std::nullopt;
  const std::size_t from = moves->slot, to = free.front();
  free.pop_front();
  for (const std::size_t slot : {from, to}) slots[slot].last_use->wait();
  std::copy_n(memory_of(from), bytes_of_slot, memory_of(to));
  slots[to].expert = slots[from].expert;
  moves->slot = to;
  return from;
}

void ExpertCache::Impl::resize(std::size_t count) {
  std::unique_lock lock(mutex);
  require(count >= fewest && count <= slots.size(), "slots are beyond their bounds");
  for (std::size_t i = 0; i < more.size() && there() < count; ++i) {
    if (more[i].size() > 0) continue;
    more[i] = HostSlab(bytes_of_slot, node, Touch::kAsFilled);
    free.push_back(fewest + i);
  }
  // More stay only once their slots are there: else a layer could wait for ever.
  for (const std::size_t index : choices.set_staying(count - spare_slots(sweep))) let_go(index);
  while (there() > count) {
    std::optional<std::size_t> slot;
    arrived.wait(lock, [&] { return failure || (slot = clear_slot()); });
    if (failure) std::rethrow_exception(failure);
    more[*slot - fewest] = HostSlab();
  }
}

ExpertCache::ExpertCache(Device& device, const SweepLayout& sweep, const ExpertSlots& slots,
                         const StreamerOptions& options, const std::stop_token& stop,
                         RouteTrace* routes)
    : impl_(in_context("opening " + sweep.root.string() + " for its experts", [&] {
        return std::make_unique<Impl>(device, sweep, slots, options, stop, routes);
      })) {}

ExpertCache::~ExpertCache() = default;

void ExpertCache::want(int layer, std::span<const std::int32_t> chosen) {
  impl_->want(layer, chosen);
}

bool ExpertCache::is_there(int layer, int expert) const {
  const std::lock_guard lock(impl_->mutex);
  const std::size_t index = impl_->choices.index_of(layer, expert);
  return impl_->failure || impl_->experts[index].state == Impl::State::kPresent;
}

ExpertLease ExpertCache::acquire(int layer, int expert, Stream& compute,
                                 const std::stop_token& stop) {
  const ExpertWeights weights = impl_->take(layer, expert, stop);
  return lend(impl_->experts[impl_->choices.index_of(layer, expert)].slot, weights, compute);
}

void ExpertCache::give_back(std::size_t slot, Stream& compute) noexcept {
  impl_->give_back(slot, compute);
}

void ExpertCache::keep_rows(std::span<const std::int32_t> rows) {
  const std::lock_guard lock(impl_->mutex);
  impl_->choices.keep_rows(rows);
}

void ExpertCache::abandon_sweep() noexcept { impl_->abandon(); }

void ExpertCache::resize(std::size_t slots) {
  in_context("changing the expert cache", [&] { impl_->resize(slots); });
}

std::size_t ExpertCache::slots() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->there();
}

ExpertTotals ExpertCache::totals() const {
  const std::lock_guard lock(impl_->mutex);
  return {impl_->choices.hits(),
          impl_->choices.misses(),
          {impl_->disk_bytes, impl_->clock->busy(), impl_->stall, impl_->checking}};
}

const LinkSample& ExpertCache::read_settings() const { return impl_->read_settings; }
const Notes& ExpertCache::notes() const { return impl_->notes; }

std::size_t ExpertCache::slot_bytes(const SweepLayout& sweep) {
  std::size_t most = 0;
  for (const ExpertLayout& expert : sweep.experts) most = std::max(most, expert.read.slab_bytes);
  return most;
}

std::size_t ExpertCache::spare_slots(const SweepLayout& sweep) {
  return static_cast<std::size_t>(sweep.config.experts.active) + 2;
}

}  // namespace canopy
