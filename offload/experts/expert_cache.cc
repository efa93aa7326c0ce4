#include "offload/experts/expert_cache.h"

#include <algorithm>
#include <array>
#include <utility>

#include "offload/experts/expert_cache_impl.h"
#include "offload/reading.h"
#include "src/base/error.h"

namespace canopy {

namespace {

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
  foreseen += more.foreseen;
  wasted += more.wasted;
  link += more.link;
  return *this;
}

ExpertTotals operator-(const ExpertTotals& later, const ExpertTotals& earlier) {
  return {later.hits - earlier.hits, later.misses - earlier.misses,
          later.foreseen - earlier.foreseen, later.wasted - earlier.wasted,
          later.link - earlier.link};
}

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

void ExpertCache::Impl::let_go(std::size_t index) {
  Expert& expert = experts[index];
  if (expert.needed || expert.likely || choices.stays(index) || expert.state != State::kPresent)
    return;
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
    judge_ahead();
  }
  asked.notify_all();
}

/// Ends what was guessed: what is needed of it is known.
void ExpertCache::Impl::judge_ahead() {
  guessed.clear();
  for (const std::size_t index : ahead) {
    Expert& expert = experts[index];
    expert.likely = false;
    ++(expert.needed ? foreseen : wasted);
    if (expert.state == State::kReading) settling.push_back(expert.slot);
    let_go(index);
  }
  ahead.clear();
}

void ExpertCache::Impl::expect(int layer, std::span<const std::int32_t> likely) {
  {
    const std::lock_guard lock(mutex);
    for (const std::int32_t e : likely)
      if (const std::size_t index = choices.index_of(layer, e);
          experts[index].state == State::kAbsent)
        guessed.push_back(index);
  }
  asked.notify_all();
}

bool ExpertCache::Impl::may_lack(int layer) const {
  const std::lock_guard lock(mutex);
  const auto first = experts.begin() + static_cast<std::ptrdiff_t>(choices.index_of(layer, 0));
  return std::any_of(first, first + sweep.config.experts.count,
                     [](const Expert& expert) { return expert.state != State::kPresent; });
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
    for (Expert& expert : experts) expert.needed = false;
    judge_ahead();
    for (std::size_t index = 0; index < experts.size(); ++index) let_go(index);
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

bool ExpertCache::may_lack(int layer) const { return impl_->may_lack(layer); }

void ExpertCache::expect(int layer, std::span<const std::int32_t> likely) {
  impl_->expect(layer, likely);
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
          impl_->foreseen,
          impl_->wasted,
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
