#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "offload/device_weights.h"
#include "offload/lease_turn.h"
#include "offload/ring.h"
#include "src/base/error.h"

namespace canopy {

namespace {

using Clock = std::chrono::steady_clock;

DeviceWeights load(Device& device, const Checkpoint& checkpoint, std::span<const UnitLayout> units,
                   const Residency& residency, Notes& notes, const LoadProgress& progress,
                   const std::stop_token& stop) {
  constexpr std::size_t kReadBytes = 1u << 20;
  const auto engine = make_read_engine(checkpoint.files(), {}, {}, notes);
  ReadPump pump(*engine, checkpoint.files(), kReadBytes,
                [&](std::uint64_t) { return "the weights of " + checkpoint.root().string(); });
  return {device, checkpoint, units, residency, false, pump, notes, progress, stop};
}

}  // namespace

/// Slots are in the order of their copies. The oldest goes when its last use has been queued; the
/// copy that takes its place waits for that use on the device, not here.
struct UploadedWeights::Impl {
  enum class State { kFilling, kQueued, kLent, kReturned };
  struct Events {
    std::unique_ptr<Event> arrived, last_use;  // on the copy stream; on compute
  };
  struct Slot {
    Stretch at;  // of the ring
    Events events;
    State state = State::kFilling;
    bool abandoned = false;  // nobody will acquire it
    bool used = false;       // last_use says until when
  };

  Impl(Device& d, const Checkpoint& checkpoint, const Residency& residency,
       std::unique_ptr<WeightSource> source, std::size_t ring_bytes, Notes& notes,
       const LoadProgress& progress, const std::stop_token& stop);
  ~Impl();

  // The uploader's thread.
  void upload_in_cycle();
  Slot* make_slot(std::size_t slot_bytes, std::uint64_t of_cycle);  // null: stop, or another cycle
  void copy_unit(std::size_t unit, const UnitWeights& from, const Slot& slot);
  // Called by the copy stream, around each copy.
  void begin_copy();
  void end_copy();
  // The caller's thread.
  UnitWeights take(std::size_t index, Stream& compute);
  void give_back(std::size_t index, Stream& compute) noexcept;
  void abandon() noexcept;

  bool travels(std::size_t unit) const { return tiers[unit] != Tier::kDevice; }

  Device& device;
  const std::vector<UnitLayout> layouts;
  const std::vector<Tier> tiers;
  std::vector<Unit> units;
  std::vector<SlotLayout> slot_layouts;  // by unit
  const DeviceWeights resting;
  Buffer ring;
  const std::unique_ptr<WeightSource> host;
  const std::unique_ptr<Stream> copy;  // before the host's slabs, which it reads, are freed

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable queued, freed;
  std::deque<Slot> live;      // [0, taken) are lent or given back
  std::vector<Events> spare;  // of slots that are gone
  std::size_t taken = 0;
  LeaseTurn turn{layouts.size()};
  std::uint64_t cycle = 0;  // how often the cycle was begun anew
  bool stopping = false;
  std::exception_ptr failure;
  std::uint64_t bytes = 0;
  Clock::duration stall{};

  // Of the copy stream's callbacks, which must never wait for a thread that waits for that stream.
  mutable std::mutex busy_mutex;
  Clock::duration busy{};
  Clock::time_point copy_begun;

  std::thread uploader;
};

UploadedWeights::Impl::Impl(Device& d, const Checkpoint& checkpoint, const Residency& residency,
                            std::unique_ptr<WeightSource> source, std::size_t ring_bytes,
                            Notes& notes, const LoadProgress& progress, const std::stop_token& stop)
    : device(d),
      layouts(lay_out_units(checkpoint, kReadAlignment)),
      tiers(residency.unit),
      resting(load(device, checkpoint, layouts, residency, notes, progress, stop)),
      host(std::move(source)),
      copy(device.make_stream("upload")) {
  const std::size_t least = least_device_ring(layouts, residency);
  if (ring_bytes < least)
    throw Error("a device ring of " + std::to_string(ring_bytes) +
                " bytes cannot bring one unit while another is in use: it needs " +
                std::to_string(least));
  ring = device.allocate(ring_bytes);
  for (const UnitLayout& layout : layouts) {
    units.push_back(layout.unit);
    slot_layouts.push_back(lay_out_slot(layout));
  }
  uploader = std::thread([this] { upload_in_cycle(); });
  pthread_setname_np(uploader.native_handle(), "uploader");
}

UploadedWeights::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  freed.notify_all();
  uploader.join();
  try {
    copy->synchronize();
    for (const Slot& slot : live)
      if (slot.used) slot.events.last_use->wait();
  } catch (const std::exception&) {
    // The device failed; whoever computes on it is told by its own stream.
  }
}

void UploadedWeights::Impl::upload_in_cycle() {
  try {
    std::uint64_t seen = 0;
    for (std::size_t unit = 0;;) {
      {
        const std::lock_guard lock(mutex);
        if (stopping) return;
        if (seen != cycle) {
          seen = cycle;
          unit = 0;
          host->abandon_sweep();
        }
      }
      Slot* slot = nullptr;
      if (travels(unit)) {
        slot = make_slot(slot_layouts[unit].bytes, seen);
        if (slot == nullptr) continue;
      }
      {
        // Given back at once: the host's slab is free when the copy stream gets there.
        const UnitLease lease = host->acquire(unit, *copy);
        if (slot != nullptr) copy_unit(unit, *lease, *slot);
      }
      if (slot != nullptr) {
        const std::lock_guard lock(mutex);
        slot->state = slot->abandoned ? State::kReturned : State::kQueued;
        bytes += slot_layouts[unit].bytes;
        queued.notify_all();
      }
      unit = (unit + 1) % layouts.size();
    }
  } catch (...) {
    const std::lock_guard lock(mutex);
    failure = std::current_exception();
    queued.notify_all();
  }
}

UploadedWeights::Impl::Slot* UploadedWeights::Impl::make_slot(std::size_t slot_bytes,
                                                              std::uint64_t of_cycle) {
  std::unique_lock lock(mutex);
  std::optional<std::size_t> begin;
  freed.wait(lock, [&] {
    if (stopping || cycle != of_cycle) return true;
    while (!live.empty() && live.front().state == State::kReturned) {
      // The give-back told us that the event was recorded; only then may a stream wait for it
      // (house rule: two locks for one slot).
      if (live.front().used) copy->wait(*live.front().events.last_use);
      spare.push_back(std::move(live.front().events));
      live.pop_front();
      --taken;
    }
    begin = room_in_ring(ring.bytes(), live.empty() ? nullptr : &live.front().at,
                         live.empty() ? nullptr : &live.back().at, slot_bytes);
    return begin.has_value();
  });
  if (!begin) return nullptr;
  Slot& slot = live.emplace_back();
  slot.at = {*begin, slot_bytes};
  if (spare.empty()) {
    slot.events = {device.make_event(), device.make_event()};
  } else {
    slot.events = std::move(spare.back());
    spare.pop_back();
  }
  return &slot;
}

void UploadedWeights::Impl::copy_unit(std::size_t unit, const UnitWeights& from, const Slot& slot) {
  copy->host_call([](void* self) { static_cast<Impl*>(self)->begin_copy(); }, this);
  for (std::size_t i = 0; i < layouts[unit].matrices.size(); ++i) {
    const ConstTensorView matrix = from.*layouts[unit].matrices[i].field;
    device.upload(*copy, ring.data() + slot.at.begin + slot_layouts[unit].at[i],
                  {matrix.data(), matrix.bytes()});
  }
  copy->host_call([](void* self) { static_cast<Impl*>(self)->end_copy(); }, this);
  copy->record(*slot.events.arrived);
}

void UploadedWeights::Impl::begin_copy() {
  const std::lock_guard lock(busy_mutex);
  copy_begun = Clock::now();
}

void UploadedWeights::Impl::end_copy() {
  const std::lock_guard lock(busy_mutex);
  busy += Clock::now() - copy_begun;
}

UnitWeights UploadedWeights::Impl::take(std::size_t index, Stream& compute) {
  std::unique_lock lock(mutex);
  if (failure) std::rethrow_exception(failure);
  turn.expect(index);
  UnitWeights weights = resting.unit(index);
  if (travels(index)) {
    const auto start = Clock::now();
    queued.wait(lock, [&] {
      return failure || (taken < live.size() && live[taken].state == State::kQueued);
    });
    stall += Clock::now() - start;
    if (failure) std::rethrow_exception(failure);
    Slot& slot = live[taken++];
    slot.state = State::kLent;
    compute.wait(*slot.events.arrived);
    place_matrices(layouts[index], slot_layouts[index], ring.data() + slot.at.begin, weights);
  }
  turn.lend(index);
  return weights;
}

void UploadedWeights::Impl::give_back(std::size_t index, Stream& compute) noexcept {
  const std::lock_guard lock(mutex);
  turn.give_back();
  if (!travels(index)) return;
  const auto slot =
      std::find_if(live.begin(), live.end(), [](const Slot& s) { return s.state == State::kLent; });
  try {
    compute.record(*slot->events.last_use);
  } catch (...) {
    if (!failure) failure = std::current_exception();
    return;  // the slot stays lent: its memory may still be in use
  }
  slot->used = true;
  slot->state = State::kReturned;
  freed.notify_all();
}

void UploadedWeights::Impl::abandon() noexcept {
  const std::lock_guard lock(mutex);
  if (turn.next() == 0) return;  // what is on its way is for a whole sweep
  turn.restart();
  for (; taken < live.size(); ++taken) {
    Slot& slot = live[taken];
    slot.abandoned = true;
    if (slot.state == State::kQueued) slot.state = State::kReturned;
  }
  ++cycle;
  freed.notify_all();
}

UploadedWeights::UploadedWeights(Device& device, const Checkpoint& checkpoint,
                                 const Residency& residency, std::unique_ptr<WeightSource> host,
                                 std::size_t ring_bytes, Notes& notes, const LoadProgress& progress,
                                 const std::stop_token& stop)
    : impl_(in_context("bringing " + checkpoint.root().string() + " to " + device.name(), [&] {
        return std::make_unique<Impl>(device, checkpoint, residency, std::move(host), ring_bytes,
                                      notes, progress, stop);
      })) {}

UploadedWeights::~UploadedWeights() = default;

std::span<const Unit> UploadedWeights::units() const { return impl_->units; }

UnitLease UploadedWeights::acquire(std::size_t index, Stream& compute) {
  return lend(index, impl_->take(index, compute), compute);
}

void UploadedWeights::give_back(std::size_t index, Stream& compute) noexcept {
  impl_->give_back(index, compute);
}

void UploadedWeights::abandon_sweep() noexcept { impl_->abandon(); }

void UploadedWeights::embed(std::span<const TokenId> ids, Stream& compute, TensorView out) {
  impl_->host->embed(ids, compute, out);
}

std::size_t UploadedWeights::held_bytes() const {
  return impl_->resting.bytes() + impl_->ring.bytes();
}

UploadedWeights::Totals UploadedWeights::totals() const {
  const std::scoped_lock lock(impl_->mutex, impl_->busy_mutex);
  return {impl_->bytes, impl_->busy, impl_->stall};
}

}  // namespace canopy
