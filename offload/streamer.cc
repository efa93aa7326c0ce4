#include "offload/streamer.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "offload/reading.h"
#include "offload/streamer_impl.h"
#include "offload/unit_layout.h"
#include "src/base/error.h"

namespace canopy {

namespace {

/// Says of each unit if the reader passes it by: it rests, or has no matrices to bring.
std::vector<bool> resting_units(const SweepLayout& sweep, const Residency& residency) {
  require(residency.unit.size() == sweep.units.size(), "a residency says of each unit where it is");
  std::vector<bool> rest;
  for (std::size_t i = 0; i < sweep.units.size(); ++i)
    rest.push_back(residency.unit[i] != Tier::kDisk || sweep.units[i].read.slab_bytes == 0);
  require(std::ranges::find(rest, false) != rest.end(),
          "every unit rests in memory: there is nothing to stream");
  return rest;
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

Streamer::Impl::Impl(Device& device, const SweepLayout& swept, const Residency& residency,
                     const StreamerOptions& options, const LoadProgress& progress,
                     const std::stop_token& stop)
    : sweep(swept),
      table(residency.table),
      watch(sweep.files),
      ring(checked_ring(sweep, options.units_change ? fixed_part(sweep, residency) : residency,
                        options.ring_bytes),
           options.ring_node),
      read_settings(choose_read_settings(sweep.files, ring.bytes(), options, stop)),
      clock(options.clock ? options.clock : std::make_shared<LinkClock>()),
      pins(device, ring.bytes()),
      engine(open_engine(sweep.files, std::array{ring.bytes()}, read_settings, options, notes)),
      pump(*engine, sweep.files, read_settings.read_bytes,
           [this](std::uint64_t owner) {
             return owner == kAtRest ? std::string("the weights that rest in memory")
                                     : describe(units[slot(owner).unit]);
           }),
      resting(device, sweep, options.units_change ? fixed_part(sweep, residency) : residency, pump,
              {notes, progress, stop},
              device.shares_host_memory() ? MemoryNode() : options.ring_node),
      rests(resting_units(sweep, residency)),
      wanted(sweep.units.size()),
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
  if (options.units_change) {
    Residency changing = residency;
    for (std::size_t i = 0; i < units.size(); ++i)
      if (fixed_part(sweep, residency).unit[i] == Tier::kHost) changing.unit[i] = Tier::kDisk;
    kept.load(changing, pump, {notes, progress, stop});
  }
  std::size_t least = ring.size();
  for (std::size_t i = 0; i < units.size(); ++i)
    if (const std::size_t bytes = sweep.units[i].read.slab_bytes;
        bytes > 0 && (options.units_change || !rests[i]))
      least = std::min(least, bytes);
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

UnitWeights Streamer::Impl::take(std::size_t index, const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  rethrow_failure(index);
  turn.expect(index);
  UnitWeights weights = resting.unit(index);
  if (comes_by_ring(index)) {
    const auto start = Clock::now();
    const bool ready = arrived.wait(lock, stop, [&] {
      return failure || (taken < next && slot(taken).state == State::kArrived);
    });
    stall += Clock::now() - start;
    if (!ready) throw Stopped();
    rethrow_failure(index);
    Slot& mine = slot(taken);
    const std::byte* const slab = ring.data() + mine.at.begin;
    add_matrices_at(sweep.units[index], slab, weights);
    if (wanted[index]) {
      lock.unlock();  // nobody else touches a slot that has arrived
      kept.keep(index, slab);
      lock.lock();
      rests[index] = true;
      wanted[index] = false;
    }
    mine.state = State::kLent;
    took = true;
    ++taken;
  } else if (kept.has(index)) {
    kept.add_matrices(index, weights);
  }
  turn.lend(index);
  if (turn.next() == 0) begin_sweep();
  return weights;
}

void Streamer::Impl::give_back(Stream& compute) noexcept {
  std::exception_ptr refused;
  Slot* mine = nullptr;
  {
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

/// The next unit to be acquired is a sweep's first.
void Streamer::Impl::begin_sweep() {
  ++sweep_now;
  took = false;
  if (read_sweep < sweep_now) read_sweep = sweep_now, read_unit = 0;  // the others rested
}

/// Gives up what is on its way: the reader begins with the sweep that is now.
void Streamer::Impl::drop_ahead() {
  for (; taken < next; ++taken) {
    Slot& skipped = slot(taken);
    skipped.abandoned = true;
    if (skipped.state == State::kArrived) skipped.state = State::kReturned;
  }
  read_sweep = sweep_now;
  read_unit = 0;
  freed.notify_all();
}

void Streamer::Impl::abandon() noexcept {
  const std::lock_guard lock(mutex);
  turn.restart();
  // Before the first travelling unit and after the last, what is on its way is for a whole sweep.
  if (!took) return;
  const bool all_read =
      read_sweep > sweep_now || std::find(rests.begin() + static_cast<std::ptrdiff_t>(read_unit),
                                          rests.end(), false) == rests.end();
  const bool all_taken = taken == next || slot(taken).sweep > sweep_now;
  begin_sweep();
  if (!all_read || !all_taken) drop_ahead();
}

/// Counts how often the reader has passed the unit since the sweep that is now, and the slots that
/// it made then: where there are fewer, nobody would bring the unit.
bool Streamer::Impl::is_passed(std::size_t index) const {
  std::uint64_t passed = read_sweep - sweep_now + (read_unit > index ? 1 : 0);
  for (std::uint64_t number = taken; number < next; ++number)
    if (slot(number).unit == index) --passed;
  return passed > 0;
}

void Streamer::Impl::evict(std::size_t index) {
  {
    const std::lock_guard lock(mutex);
    require(turn.next() == 0 && !turn.is_lent(), "units change between two sweeps");
    wanted[index] = false;
    if (!kept.has(index)) return;
    const bool too_late = is_passed(index);
    rests[index] = false;
    if (too_late) drop_ahead();
  }
  freed.notify_all();
  kept.free(index);
}

void Streamer::Impl::keep(std::size_t index) {
  const std::lock_guard lock(mutex);
  require(turn.next() == 0 && !turn.is_lent(), "units change between two sweeps");
  wanted[index] = !rests[index];
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

void Streamer::give_back(std::size_t, Stream& compute) noexcept { impl_->give_back(compute); }

void Streamer::abandon_sweep() noexcept { impl_->abandon(); }

EmbeddingTable& Streamer::embedding() { return *impl_->embedding; }

Residency Streamer::residency() const {
  const std::lock_guard lock(impl_->mutex);
  Residency residency = none_resident(impl_->sweep);
  residency.table = impl_->table;
  for (std::size_t i = 0; i < residency.unit.size(); ++i)
    if (impl_->wanted[i] || (impl_->rests[i] && impl_->sweep.units[i].read.slab_bytes > 0))
      residency.unit[i] = Tier::kHost;
  return residency;
}

bool Streamer::is_passed(std::size_t unit) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->is_passed(unit);
}

void Streamer::evict(std::size_t unit) { impl_->evict(unit); }
void Streamer::keep(std::size_t unit) { impl_->keep(unit); }

std::size_t Streamer::held_bytes() const {
  return impl_->ring.size() + impl_->resting.bytes() + impl_->kept.bytes() +
         impl_->embedding->held_bytes();
}

std::vector<RestingUnit> Streamer::resting() const {
  std::vector<RestingUnit> resting;
  for (std::size_t i = 0; i < impl_->units.size(); ++i)
    if (impl_->rests[i]) resting.push_back({impl_->units[i], impl_->resting.unit(i)});
  return resting;
}

LinkTotals Streamer::totals() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->totals();
}

const LinkSample& Streamer::read_settings() const { return impl_->read_settings; }
const Notes& Streamer::notes() const { return impl_->notes; }

std::size_t Streamer::resting_bytes(const SweepLayout& sweep, const Residency& residency,
                                    bool units_change) {
  const Residency fixed = units_change ? fixed_part(sweep, residency) : residency;
  std::size_t bytes =
      HostWeights::bytes_needed(sweep, fixed) +
      (residency.table == Tier::kHost ? EmbeddingLookup::bytes_needed()
                                      : EmbeddingReader::bytes_needed(sweep.embedding));
  for (std::size_t i = 0; i < sweep.units.size(); ++i)
    if (residency.unit[i] == Tier::kHost && fixed.unit[i] != Tier::kHost)
      bytes += sweep.units[i].read.slab_bytes;
  return bytes;
}

}  // namespace canopy
