#include "offload/experts/uploaded_experts.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/stream_clock.h"
#include "offload/experts/expert_cache.h"
#include "offload/experts/expert_choices.h"
#include "offload/upload/what_fits.h"
#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t bytes_on_device(const ExpertLayout& expert) {
  std::size_t bytes = 0;
  for (const UnitTensor& matrix : expert.matrices) bytes += device_bytes(matrix.tensor);
  return bytes;
}

}  // namespace

/// A slot is free, or an expert's. It comes free when an expert that does not stay has been used,
/// or when one that stayed has to leave; the copy that takes it waits for its last use on the
/// device, not here.
struct UploadedExperts::Impl {
  enum class State { kAbsent, kQueued, kPresent };
  struct Expert {
    State state = State::kAbsent;
    std::size_t slot = 0;
    bool needed = false;  // by the sweep, which has not used it yet
  };
  struct Slot {
    std::size_t expert = 0;
    std::unique_ptr<Event> arrived;   // on the copy stream
    std::unique_ptr<Event> last_use;  // on compute
    const Stream* after = nullptr;    // whose work comes after the arrival in any case
    bool used = false;                // last_use says until when
  };
  /// Copies that were queued together, of one layer.
  struct Batch {
    std::unique_ptr<Timer> begun, ended;
    int layer = 0;
    std::uint64_t bytes = 0;
  };

  Impl(Device& d, const SweepLayout& swept, std::unique_ptr<ExpertSource> experts_on_host,
       RouteTrace* route_trace, Trace* t)
      : device(d),
        sweep(swept),
        routes(route_trace),
        trace(t),
        host(std::move(experts_on_host)),
        copy(device.make_stream("experts")),
        experts(sweep.experts.size()) {
    if (trace) clock.emplace(device);
  }
  ~Impl() {
    finish_quietly(*copy);
    for (const Slot& slot : slots)
      if (slot.used) wait_quietly(*slot.last_use);
  }
  void begin(std::size_t count, Notes& notes, std::byte* end);
  void add_slots(std::size_t count);
  void resize(std::size_t count);
  std::byte* memory_of(std::size_t slot) {
    return slot < fewest ? memory.data() + slot * bytes_of_slot
                         : end_of_more - (slot - fewest + 1) * bytes_of_slot;
  }
  /// Queues copies of what waits for slots, as far as slots are free and the host has it: waits for
  /// the host until `awaited` has its copy. Throws what the host does.
  void queue_copies(std::optional<std::size_t> awaited = {}, const std::stop_token& stop = {});
  bool may_copy() const;
  void queue_batch(const std::stop_token& stop);
  Batch spare_batch();
  void copy_expert(std::size_t index, const ExpertWeights& from, std::size_t slot);
  void let_go(std::size_t index);
  void time_copies();

  Device& device;
  const SweepLayout& sweep;
  RouteTrace* const routes;
  Trace* const trace;
  const std::size_t bytes_of_slot = slot_bytes(sweep);
  Buffer memory;                     // of the fewest slots
  std::size_t fewest = 0;            // at any time
  std::byte* end_of_more = nullptr;  // of the caller's memory, where others may be
  const std::unique_ptr<ExpertSource> host;
  const std::unique_ptr<Stream> copy;    // before the host's memory, which it reads, is freed
  std::optional<ExpertChoices> choices;  // once there are slots
  std::vector<Expert> experts;
  std::vector<Slot> slots;
  std::deque<std::size_t> free, queued;  // slots; experts, in the order of use
  std::exception_ptr failure;            // of a slot given back: there nothing can be thrown

  std::optional<StreamClock> clock;  // with a trace
  std::mutex mutex;                  // guards what follows
  std::deque<Batch> under_way;       // not yet timed, in their order
  std::vector<Batch> spare;
  Totals totals;
};

void UploadedExperts::Impl::begin(std::size_t count, Notes& notes, std::byte* end) {
  const std::size_t least = ExpertCache::spare_slots(sweep);
  if (count < least)
    throw Error("a cache of " + std::to_string(count) + " experts on " + device.name() +
                ": a layer needs " + std::to_string(least));
  memory = allocate_what_fits(device, count * bytes_of_slot, least * bytes_of_slot, bytes_of_slot,
                              "making room for the experts of a layer at least");
  const std::size_t wished = std::exchange(count, memory.bytes() / bytes_of_slot);
  if (count < wished)
    add_note(notes, "the GPU had less memory left than it reported: " + std::to_string(count) +
                        " experts have room there, not " + std::to_string(wished));
  fewest = count;
  end_of_more = end;
  add_slots(count);
  choices.emplace(sweep, count - least, routes);
}

void UploadedExperts::Impl::add_slots(std::size_t count) {
  while (slots.size() < count) {
    free.push_back(slots.size());
    Slot& slot = slots.emplace_back();
    slot.arrived = device.make_event();
    slot.last_use = device.make_event();
  }
}

void UploadedExperts::Impl::resize(std::size_t count) {
  if (failure) std::rethrow_exception(failure);
  require(count >= fewest && (count == fewest || end_of_more) && queued.empty(),
          "slots change between two sweeps, within the memory that was lent");
  add_slots(count);
  for (const std::size_t index : choices->set_staying(count - ExpertCache::spare_slots(sweep)))
    let_go(index);
  if (count == slots.size()) return;
  for (std::size_t slot = count; slot < slots.size(); ++slot) {
    if (std::erase(free, slot) > 0) continue;
    choices->drop(slots[slot].expert);
    experts[slots[slot].expert].state = State::kAbsent;
  }
  copy->synchronize();
  slots.resize(count);
}

void UploadedExperts::Impl::queue_copies(std::optional<std::size_t> awaited,
                                         const std::stop_token& stop) {
  while (may_copy() || (awaited && experts[*awaited].state == State::kQueued && !free.empty()))
    queue_batch(stop);
}

/// True if the next expert has a slot and is in host memory.
bool UploadedExperts::Impl::may_copy() const {
  if (queued.empty() || free.empty()) return false;
  const ExpertLayout& next = sweep.experts[queued.front()];
  return host->is_there(next.layer, next.expert);
}

/// Queues the copies of the next expert, and of those after it that need no waiting. The link's
/// time begins when the first of them is in host memory.
void UploadedExperts::Impl::queue_batch(const std::stop_token& stop) {
  Batch batch = spare_batch();
  batch.layer = sweep.experts[queued.front()].layer;
  bool begun = false;
  do {
    const std::size_t index = queued.front(), slot = free.front();
    const ExpertLayout& expert = sweep.experts[index];
    const ExpertLease lease = host->acquire(expert.layer, expert.expert, *copy, stop);
    if (slots[slot].used) copy->wait(*slots[slot].last_use);
    if (!begun) copy->record(*batch.begun);
    begun = true;
    copy_expert(index, *lease, slot);
    batch.bytes += bytes_on_device(expert);
    queued.pop_front();
    free.pop_front();
  } while (may_copy());
  copy->record(*batch.ended);
  const std::lock_guard lock(mutex);
  totals.uploads.bytes += batch.bytes;
  under_way.push_back(std::move(batch));
}

UploadedExperts::Impl::Batch UploadedExperts::Impl::spare_batch() {
  const std::lock_guard lock(mutex);
  time_copies();
  if (spare.empty()) return {device.make_timer(), device.make_timer(), 0, 0};
  Batch batch = std::move(spare.back());
  spare.pop_back();
  batch.bytes = 0;
  return batch;
}

void UploadedExperts::Impl::copy_expert(std::size_t index, const ExpertWeights& from,
                                        std::size_t slot) {
  std::byte* to = memory_of(slot);
  for (const UnitTensor& matrix : sweep.experts[index].matrices) {
    const WeightView& bytes = UnitWeights::matrix_of(from, matrix.role);
    upload_matrix(device, *copy, to, {bytes.payload(), bytes.bytes()}, matrix.tensor);
    to += device_bytes(matrix.tensor);
  }
  copy->record(*slots[slot].arrived);
  slots[slot].expert = index;
  slots[slot].after = nullptr;
  experts[index].state = State::kPresent;
  experts[index].slot = slot;
}

/// Frees the slot of an expert that neither stays nor is needed.
void UploadedExperts::Impl::let_go(std::size_t index) {
  Expert& expert = experts[index];
  if (expert.needed || choices->stays(index) || expert.state != State::kPresent) return;
  expert.state = State::kAbsent;
  free.push_back(expert.slot);
}

/// Adds up the batches that have arrived. Under the lock.
void UploadedExperts::Impl::time_copies() {
  for (; !under_way.empty() && under_way.front().ended->reached(); under_way.pop_front()) {
    Batch& batch = under_way.front();
    totals.uploads.busy += batch.ended->since(*batch.begun);
    if (trace)
      trace->span(Trace::Lane::kUpload, "experts of layer " + std::to_string(batch.layer),
                  clock->when(*batch.begun), clock->when(*batch.ended), batch.bytes);
    spare.push_back(std::move(batch));
  }
}

UploadedExperts::UploadedExperts(Device& device, const SweepLayout& sweep,
                                 std::unique_ptr<ExpertSource> host, RouteTrace* routes,
                                 Trace* trace)
    : impl_(std::make_unique<Impl>(device, sweep, std::move(host), routes, trace)) {}

UploadedExperts::~UploadedExperts() = default;

void UploadedExperts::begin(std::size_t slots, Notes& notes, std::byte* end_of_more) {
  impl_->begin(slots, notes, end_of_more);
}

void UploadedExperts::resize(std::size_t slots) { impl_->resize(slots); }

std::size_t UploadedExperts::slots() const { return impl_->slots.size(); }

void UploadedExperts::want(int layer, std::span<const std::int32_t> chosen) {
  Impl& m = *impl_;
  require(m.choices.has_value(), "experts are uploaded once there are slots for them");
  if (m.failure) std::rethrow_exception(m.failure);
  if (m.clock && layer == m.sweep.experts[0].layer) {
    m.copy->synchronize();
    const std::lock_guard lock(m.mutex);
    m.time_copies();
    m.clock->set(*m.copy);
  }
  const ExpertChoices::Wanted wanted = m.choices->want(layer, chosen);
  {
    const std::lock_guard lock(m.mutex);
    m.totals.hits = m.choices->hits();
    m.totals.misses = m.choices->misses();
  }
  for (const std::size_t index : wanted.leaving) m.let_go(index);
  for (const std::size_t index : wanted.experts) {
    Impl::Expert& expert = m.experts[index];
    expert.needed = true;
    if (expert.state != Impl::State::kAbsent) continue;
    expert.state = Impl::State::kQueued;
    m.queued.push_back(index);
  }
  std::vector<std::int32_t> missing(chosen.begin(), chosen.end());
  for (std::int32_t& e : missing)
    if (m.experts[m.choices->index_of(layer, e)].state == Impl::State::kPresent) e = -1;
  m.host->want(layer, missing);
  m.queue_copies();
}

bool UploadedExperts::is_there(int layer, int expert) const {
  return impl_->experts[impl_->choices->index_of(layer, expert)].state == Impl::State::kPresent;
}

ExpertLease UploadedExperts::acquire(int layer, int expert, Stream& compute,
                                     const std::stop_token& stop) {
  Impl& m = *impl_;
  if (m.failure) std::rethrow_exception(m.failure);
  if (stop.stop_requested()) throw Stopped();
  const std::size_t index = m.choices->index_of(layer, expert);
  const Impl::Expert& mine = m.experts[index];
  require(mine.needed, "an expert is acquired that no row has chosen");
  if (mine.state == Impl::State::kQueued) {
    const auto start = std::chrono::steady_clock::now();
    m.queue_copies(index, stop);
    const std::lock_guard lock(m.mutex);
    m.totals.uploads.stall += std::chrono::steady_clock::now() - start;
  }
  require(mine.state == Impl::State::kPresent, "experts are acquired by rising index");
  Impl::Slot& slot = m.slots[mine.slot];
  if (slot.after != &compute) compute.wait(*slot.arrived);
  slot.after = &compute;
  UnitWeights weights;
  const std::byte* at = m.memory_of(mine.slot);
  for (const UnitTensor& matrix : m.sweep.experts[index].matrices) {
    weights.add(matrix.role, matrix_on_device(at, matrix.tensor), 0);
    at += device_bytes(matrix.tensor);
  }
  return lend(mine.slot, weights.experts()[0], compute);
}

void UploadedExperts::give_back(std::size_t slot, Stream& compute) noexcept {
  Impl& m = *impl_;
  try {
    compute.record(*m.slots[slot].last_use);
    m.slots[slot].used = true;
    m.experts[m.slots[slot].expert].needed = false;
    m.let_go(m.slots[slot].expert);
    m.queue_copies();
  } catch (...) {
    if (!m.failure) m.failure = std::current_exception();
  }
}

void UploadedExperts::keep_rows(std::span<const std::int32_t> rows) {
  impl_->choices->keep_rows(rows);
  impl_->host->keep_rows(rows);
}

void UploadedExperts::abandon_sweep() noexcept {
  Impl& m = *impl_;
  if (!m.choices) return;
  for (const std::size_t index : m.queued) {
    m.experts[index].state = Impl::State::kAbsent;
    m.choices->drop(index);
  }
  m.queued.clear();
  for (std::size_t index = 0; index < m.experts.size(); ++index) {
    m.experts[index].needed = false;
    m.let_go(index);
  }
  m.choices->abandon_sweep();
  m.host->abandon_sweep();
}

UploadedExperts::Totals UploadedExperts::totals() const {
  const std::lock_guard lock(impl_->mutex);
  impl_->time_copies();
  return impl_->totals;
}

std::size_t UploadedExperts::held_bytes() const { return impl_->memory.bytes(); }

std::size_t UploadedExperts::slot_bytes(const SweepLayout& sweep) {
  std::size_t most = 0;
  for (const ExpertLayout& expert : sweep.experts) most = std::max(most, bytes_on_device(expert));
  return most;
}

}  // namespace canopy
