#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "kernels/stream_clock.h"
#include "offload/lease_turn.h"
#include "offload/ring.h"
#include "offload/upload/device_weights.h"
#include "offload/upload/what_fits.h"
#include "src/base/error.h"

namespace canopy {

namespace {

using Clock = std::chrono::steady_clock;

DeviceWeights load(Device& device, const SweepLayout& sweep, const Residency& residency,
                   const Loading& loading) {
  constexpr std::size_t kReadBytes = 1u << 20;
  const auto engine = make_read_engine(sweep.files, {}, {}, loading.notes);
  ReadPump pump(*engine, sweep.files, kReadBytes,
                [&](std::uint64_t) { return "the weights of " + sweep.root.string(); });
  return {device, sweep, residency, pump, loading};
}

}  // namespace

/// Slots are in the order of their copies. The oldest goes when its last use has been queued; the
/// copy that takes its place waits for that use on the device, not here. A unit that is kept has a
/// home, which its copy goes to in place of a slot.
struct UploadedWeights::Impl {
  enum class State { kFilling, kQueued, kLent, kReturned };
  struct Events {
    std::unique_ptr<Timer> begun, arrived;  // on the copy stream
    std::unique_ptr<Event> last_use;        // on compute
    bool timed = false;                     // the copy between the first two
  };
  struct Copy {
    Events* events = nullptr;
    std::size_t unit = 0;
  };
  /// Place of the uploader in the cycle, or of a slot's unit.
  struct Place {
    std::uint64_t sweep = 0;
    std::size_t unit = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct Home {
    std::byte* at = nullptr;
    bool wanted = false;   // it is to be copied there
    bool copying = false;  // that is being queued
    bool rests = false;    // it is there, or on its way
    std::unique_ptr<Events> events;
  };
  struct Slot {
    Range at;  // of the ring
    Place of;
    std::unique_ptr<Events> events;
    State state = State::kFilling;
    bool abandoned = false;  // nobody will acquire it
    bool used = false;       // last_use says until when
  };

  Impl(Device& d, const SweepLayout& swept, const Residency& residency,
       std::unique_ptr<WeightSource> source, const Loading& loading, Trace* trace);
  ~Impl();
  void begin(std::size_t ring_bytes, Notes& notes);

  // The uploader's thread.
  void upload_in_cycle();
  Slot* make_slot(const Place& of, std::uint64_t of_cycle);  // null: stop, or another cycle
  void copy_unit(std::size_t unit, const UnitWeights& from, std::byte* to, const Events& events);
  void compare_clocks();  // for the trace
  // The caller's thread.
  UnitWeights take(std::size_t index, Stream& compute, const std::stop_token& stop);
  void give_back(Stream& compute) noexcept;
  void abandon() noexcept;
  void keep(std::size_t unit, std::byte* at);
  void evict(std::size_t unit);
  // Under the lock.
  void drop_ahead();
  std::unique_ptr<Events> spare_events();
  void time_copies();

  bool travels(std::size_t unit) const {
    return tiers[unit] != Tier::kDevice && sweep.units[unit].slot.bytes > 0;
  }

  Device& device;
  const SweepLayout& sweep;
  const std::vector<Tier> tiers;
  std::vector<Unit> units;
  const DeviceWeights resting;
  Buffer ring;
  const std::unique_ptr<WeightSource> host;
  Trace* const trace;
  const std::unique_ptr<Stream> copy;  // before the host's slabs, which it reads, are freed

  std::mutex mutex;                    // guards what follows
  std::condition_variable_any queued;  // waits for a stop request, too
  std::condition_variable freed;
  std::deque<Slot> live;                     // [0, taken) are lent or given back
  std::deque<std::unique_ptr<Events>> gone;  // of slots that are, to be used again once timed
  std::deque<Copy> copies;                   // not yet timed, in their order
  std::optional<StreamClock> clock;          // with a trace
  std::size_t taken = 0;
  std::vector<Home> homes{sweep.units.size()};
  Place next;                   // that the uploader comes to
  std::uint64_t sweep_now = 0;  // that the next unit is acquired for
  LeaseTurn turn{sweep.units.size()};
  std::uint64_t cycle = 0;  // how often the cycle was begun anew
  bool stopping = false;
  std::stop_source ending;  // of what waits for the host's weights
  std::exception_ptr failure;
  std::uint64_t bytes = 0;
  Clock::duration stall{};
  Seconds busy{};

  std::thread uploader;
};

UploadedWeights::Impl::Impl(Device& d, const SweepLayout& swept, const Residency& residency,
                            std::unique_ptr<WeightSource> source, const Loading& loading, Trace* t)
    : device(d),
      sweep(swept),
      tiers(residency.unit),
      resting(load(device, sweep, residency, loading)),
      host(std::move(source)),
      trace(t),
      copy(device.make_stream("upload")) {
  if (trace) clock.emplace(device);
  for (const UnitLayout& layout : sweep.units) units.push_back(layout.unit);
}

void UploadedWeights::Impl::begin(std::size_t ring_bytes, Notes& notes) {
  const std::size_t least = least_device_ring(sweep, {tiers, Tier::kHost});
  if (ring_bytes < least)
    throw Error("a device ring of " + std::to_string(ring_bytes) +
                " bytes cannot bring one unit while another is in use: it needs " +
                std::to_string(least));
  ring = allocate_what_fits(device, ring_bytes, least, 1, "making room for two units at least");
  if (ring.bytes() < ring_bytes)
    add_note(notes, "the GPU had less memory left than it reported: " +
                        std::to_string(ring.bytes() >> 20) +
                        " MiB of weights can be in transit, "
                        "not " +
                        std::to_string(ring_bytes >> 20));
  uploader = std::thread([this] { upload_in_cycle(); });
  pthread_setname_np(uploader.native_handle(), "uploader");
}

UploadedWeights::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  ending.request_stop();
  freed.notify_all();
  if (uploader.joinable()) uploader.join();
  finish_quietly(*copy);
  for (const Slot& slot : live)
    if (slot.used) wait_quietly(*slot.events->last_use);
}

void UploadedWeights::Impl::upload_in_cycle() {
  try {
    std::uint64_t seen = 0;
    while (true) {
      Place place;
      Home* home = nullptr;
      bool comes = false;
      {
        const std::lock_guard lock(mutex);
        if (stopping) return;
        if (std::exchange(seen, cycle) != cycle) host->abandon_sweep();
        place = next;
        next = place.unit + 1 < sweep.units.size() ? Place{place.sweep, place.unit + 1}
                                                   : Place{place.sweep + 1, 0};
        comes = travels(place.unit) && !homes[place.unit].rests;
        if (comes && homes[place.unit].wanted) {
          home = &homes[place.unit];
          home->copying = true;
          home->events = spare_events();
        }
      }
      if (trace && place.unit == 0) compare_clocks();
      Slot* slot = nullptr;
      if (comes && home == nullptr) {
        slot = make_slot(place, seen);
        if (slot == nullptr) continue;
      }
      Events* const events = home ? home->events.get() : slot ? slot->events.get() : nullptr;
      {
        // Given back at once: the host's slab is free when the copy stream gets there.
        const UnitLease lease = host->acquire(place.unit, *copy, ending.get_token());
        if (comes)
          copy_unit(place.unit, *lease, home ? home->at : ring.data() + slot->at.begin, *events);
      }
      if (!comes) continue;
      const std::lock_guard lock(mutex);
      if (home) {
        home->copying = home->wanted = false;
        home->rests = true;
      } else {
        slot->state = slot->abandoned ? State::kReturned : State::kQueued;
      }
      bytes += sweep.units[place.unit].slot.bytes;
      copies.push_back({events, place.unit});
      queued.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    queued.notify_all();
  }
}

UploadedWeights::Impl::Slot* UploadedWeights::Impl::make_slot(const Place& of,
                                                              std::uint64_t of_cycle) {
  const std::size_t slot_bytes = sweep.units[of.unit].slot.bytes;
  std::unique_lock lock(mutex);
  std::optional<std::size_t> begin;
  freed.wait(lock, [&] {
    if (stopping || cycle != of_cycle) return true;
    while (!live.empty() && live.front().state == State::kReturned) {
      // The event was recorded before the slot was given back; only then may a stream wait for it
      // (house rule: two locks for one slot).
      if (live.front().used) copy->wait(*live.front().events->last_use);
      gone.push_back(std::move(live.front().events));
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
  slot.of = of;
  slot.events = spare_events();
  return &slot;
}

std::unique_ptr<UploadedWeights::Impl::Events> UploadedWeights::Impl::spare_events() {
  time_copies();
  if (gone.empty() || !gone.front()->timed)
    return std::make_unique<Events>(
        Events{device.make_timer(), device.make_timer(), device.make_event()});
  std::unique_ptr<Events> spare = std::move(gone.front());
  gone.pop_front();
  spare->timed = false;
  return spare;
}

void UploadedWeights::Impl::time_copies() {
  for (; !copies.empty() && copies.front().events->arrived->reached(); copies.pop_front()) {
    const auto [events, unit] = copies.front();
    busy += events->arrived->since(*events->begun);
    events->timed = true;
    if (trace)
      trace->span(Trace::Lane::kUpload, describe(units[unit]), clock->when(*events->begun),
                  clock->when(*events->arrived), sweep.units[unit].slot.bytes);
  }
}

void UploadedWeights::Impl::compare_clocks() {
  copy->synchronize();
  const std::lock_guard lock(mutex);
  time_copies();
  clock->set(*copy);
}

void UploadedWeights::Impl::copy_unit(std::size_t unit, const UnitWeights& from, std::byte* to,
                                      const Events& events) {
  copy->record(*events.begun);
  const UnitLayout& layout = sweep.units[unit];
  for (std::size_t i = 0; i < layout.matrices.size(); ++i) {
    const WeightView matrix = from.matrix(layout.matrices[i].role, layout.matrices[i].expert);
    upload_matrix(device, *copy, to + layout.slot.at[i], {matrix.payload(), matrix.bytes()},
                  layout.matrices[i].tensor);
  }
  copy->record(*events.arrived);
}

UnitWeights UploadedWeights::Impl::take(std::size_t index, Stream& compute,
                                        const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  if (failure) std::rethrow_exception(failure);
  require(ring.bytes() > 0, "weights are uploaded once there is a ring for them");
  turn.expect(index);
  UnitWeights weights = resting.unit(index);
  if (travels(index)) {
    const Home& home = homes[index];
    const auto start = Clock::now();
    // A unit that came by the ring before it was kept is taken from there.
    const auto comes_by_ring = [&] {
      return taken < live.size() && live[taken].of == Place{sweep_now, index};
    };
    const bool ready = queued.wait(lock, stop, [&] {
      return failure || (comes_by_ring() ? live[taken].state == State::kQueued : home.rests);
    });
    stall += Clock::now() - start;
    if (!ready) throw Stopped();
    if (failure) std::rethrow_exception(failure);
    if (comes_by_ring()) {
      Slot& slot = live[taken++];
      slot.state = State::kLent;
      compute.wait(*slot.events->arrived);
      place_matrices(sweep.units[index], ring.data() + slot.at.begin, weights);
    } else {
      compute.wait(*home.events->arrived);
      place_matrices(sweep.units[index], home.at, weights);
    }
  }
  turn.lend(index);
  if (turn.next() == 0) ++sweep_now;
  return weights;
}

void UploadedWeights::Impl::give_back(Stream& compute) noexcept {
  const std::lock_guard lock(mutex);
  turn.give_back();
  const auto slot =
      std::find_if(live.begin(), live.end(), [](const Slot& s) { return s.state == State::kLent; });
  if (slot == live.end()) return;  // it rests
  try {
    compute.record(*slot->events->last_use);
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
  ++sweep_now;
  drop_ahead();
}

/// Gives up what is on its way: the uploader begins with the sweep that is now.
void UploadedWeights::Impl::drop_ahead() {
  for (; taken < live.size(); ++taken) {
    Slot& slot = live[taken];
    slot.abandoned = true;
    if (slot.state == State::kQueued) slot.state = State::kReturned;
  }
  next = {sweep_now, 0};
  ++cycle;
  freed.notify_all();
}

void UploadedWeights::Impl::keep(std::size_t unit, std::byte* at) {
  const std::lock_guard lock(mutex);
  require(turn.next() == 0 && !turn.is_lent() && travels(unit) && !homes[unit].rests,
          "units that travel are kept between two sweeps");
  homes[unit].at = at;
  homes[unit].wanted = true;
}

void UploadedWeights::Impl::evict(std::size_t unit) {
  Home& home = homes[unit];
  std::unique_lock lock(mutex);
  require(turn.next() == 0 && !turn.is_lent(), "units change between two sweeps");
  queued.wait(lock, [&] { return failure || !home.copying; });
  home.wanted = false;
  if (!std::exchange(home.rests, false)) return;
  // Nobody would bring a unit that the uploader has passed.
  if (next.sweep > sweep_now || next.unit > unit) drop_ahead();
  home.events->arrived->wait();
  time_copies();
  gone.push_back(std::move(home.events));
}

UploadedWeights::UploadedWeights(Device& device, const SweepLayout& sweep,
                                 const Residency& residency, std::unique_ptr<WeightSource> host,
                                 const Loading& loading, Trace* trace)
    : impl_(in_context("bringing " + sweep.root.string() + " to " + device.name(), [&] {
        return std::make_unique<Impl>(device, sweep, residency, std::move(host), loading, trace);
      })) {}

UploadedWeights::~UploadedWeights() = default;

void UploadedWeights::begin(std::size_t ring_bytes, Notes& notes) {
  impl_->begin(ring_bytes, notes);
}

std::size_t UploadedWeights::ring_bytes() const { return impl_->ring.bytes(); }

std::span<const Unit> UploadedWeights::units() const { return impl_->units; }

UnitLease UploadedWeights::acquire(std::size_t index, Stream& compute,
                                   const std::stop_token& stop) {
  return lend(index, impl_->take(index, compute, stop), compute);
}

void UploadedWeights::give_back(std::size_t, Stream& compute) noexcept {
  impl_->give_back(compute);
}

void UploadedWeights::abandon_sweep() noexcept { impl_->abandon(); }

EmbeddingTable& UploadedWeights::embedding() { return impl_->host->embedding(); }

void UploadedWeights::keep(std::size_t unit, std::byte* at) { impl_->keep(unit, at); }
void UploadedWeights::evict(std::size_t unit) { impl_->evict(unit); }

std::size_t UploadedWeights::held_bytes() const {
  return impl_->resting.bytes() + impl_->ring.bytes();
}

std::vector<RestingUnit> UploadedWeights::resting() const {
  std::vector<RestingUnit> resting;
  for (std::size_t i = 0; i < impl_->units.size(); ++i)
    if (!impl_->travels(i)) resting.push_back({impl_->units[i], impl_->resting.unit(i)});
  return resting;
}

UploadedWeights::Totals UploadedWeights::totals() const {
  const std::lock_guard lock(impl_->mutex);
  impl_->time_copies();
  return {impl_->bytes, impl_->busy, impl_->stall};
}

}  // namespace canopy
