#include "src/engine/runtime.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "kernels/arithmetic.h"
#include "src/base/error.h"
#include "src/checkpoint/fingerprint.h"
#include "src/engine/ranks/plan_together.h"
#include "src/engine/ranks/shards.h"
#include "src/machine/process_memory.h"
#include "src/speculation/drafters/inner_drafter.h"
#include "src/speculation/drafters/model_drafter.h"

namespace canopy {

namespace {

// Bytes of a model from which on the best way to read the link is tried out: smaller ones are read
// in a moment anyway.
constexpr std::uint64_t kProbeFrom = 256u << 20;
constexpr int kProbeRounds = 3;
constexpr Seconds kProbeRound{0.2};
constexpr std::size_t kMostBeforeExperts = 16u << 20;  // bytes in flight

}  // namespace

Runtime::Runtime(ModelFiles files, const EngineOptions& options, const LoadProgress& progress,
                 const std::stop_token& stop)
    : models(std::move(files)),
      placement(place_engine(topology, models.target, options)),
      sweeps(lay_out_models(models.target, models.draft, models.inner,
                            options.cluster ? options.cluster->share() : Share())),
      device(open_device(options, placement)),
      trace(options.trace),
      energy(options.energy),
      cluster(options.cluster),
      disk_limit(options.disk_limit ? std::make_shared<DiskLimit>(*options.disk_limit) : nullptr),
      routes(options.plan.routes) {
  const auto start = Clock::now();
  PlanRequest request = on_device(options.plan, *device);
  // A trace reports each unit, so it takes them one by one; on the CPU there is nothing to gain.
  request.graphs = options.graphs && !trace && !device->shares_host_memory();
  check_shard(models.target, sweeps.target, cluster);
  const std::uint64_t held = resident_memory();
  if (cluster) {
    agree(*cluster, facts_of_ranks());
    request.may_share_memory = false;
    plan = plan_together(*cluster, request, sweeps, held, scratch_of(*device));
  } else {
    plan = make_plan(request, sweeps, held, scratch_of(*device));
  }
  require_free(plan, held);
  notes = plan.notes;
  if (!options.device.note.empty()) add_note(notes, options.device.note);
  for (const std::string& note : models.notes()) add_note(notes, note);
  compute = device->make_stream("compute");
  const ModelConfig& t = models.target.config();
  if (plan.device && plan.pool_bytes > 0)
    arena = std::make_unique<KvArena>(*device, plan.kv_blocks,
                                      plan.kv_bytes / static_cast<std::uint64_t>(plan.kv_blocks));
  // First: its ring fills meanwhile.
  target_weights = std::make_unique<TimedWeights>(
      *device, make_target_weights(options, progress, stop), trace, Trace::Lane::kTarget);
  sampled = plan.method != SpeculationMethod::kNone && request.temperature > 0;
  if (plan.draft) {
    drafter = plan.draft->make(*device, plan.draft_bounds(t));
  } else if (plan.method != SpeculationMethod::kNone || (plan.beams && models.draft)) {
    const ModelConfig& d = models.draft ? models.draft->config() : t;
    draft_weights = make_draft_weights(progress, stop);
    if (trace) {
      auto timed = std::make_unique<TimedWeights>(*device, std::move(draft_weights), trace,
                                                  Trace::Lane::kDraft);
      draft_times = timed.get();
      draft_weights = std::move(timed);
    }
    draft = std::make_unique<Transformer>(*device, d, *draft_weights, plan.draft_limits);
    if (request.graphs && d.recurrent())
      add_note(notes,
               "the draft's levels are launched kernel by kernel, not as one graph: the "
               "states of its recurrent layers move on between them");
    if (plan.beams)
      draft_cache = std::make_unique<KvCache>(*device, d, plan.slots, plan.kv);
    else
      drafter = std::make_unique<ModelDrafter>(*device, *draft, plan.policy, kv_room(),
                                               make_inner_drafter(progress, stop), plan.calibrated);
  }
  if (const auto changes = plan.changes())
    notes.push_back("the text is not exactly the model's (" + *changes + ")");
  target.emplace(*device, *compute, models.target, *target_weights,
                 TargetModel::Limits{plan.target_limits, kv_room(), plan.max_sequences}, cluster);
  verifier.emplace(*device, t.vocab, plan.slots);
  begin_uploads();
  share_memory();
  load_time = since(start);
  loaded = Clock::now();
  if (!cluster) return;
  take_notes_of_others();
  cluster->bring_figures([this] { return figures(); });
}

Runtime::~Runtime() {
  if (cluster) cluster->bring_figures({});
}

RankFigures Runtime::figures() const {
  const LinkReport moved = link();
  return {moved.disk_bytes, moved.busy, moved.stall, cluster->totals().waiting, since(loaded)};
}

void Runtime::take_notes_of_others() {
  std::string mine;
  for (const std::string& note : notes) mine += note + '\n';
  const auto all = cluster->collect(std::as_bytes(std::span(mine)));
  if (cluster->share().rank != 0) return;
  for (int rank = 1; rank < cluster->share().ranks(); ++rank) {
    const auto& bytes = all[static_cast<std::size_t>(rank)];
    std::istringstream lines({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    for (std::string note; std::getline(lines, note);)
      if (std::ranges::find(notes, note) == notes.end())
        add_note(notes, cluster->name(rank) + ": " + note);
  }
}

std::vector<SharedFact> Runtime::facts_of_ranks() const {
  std::string parts;
  for (const std::int64_t part : cluster->share().parts)
    parts += (parts.empty() ? "" : ",") + std::to_string(part);
  return {{"the model's fingerprint", fingerprint(models.target)},
          {"shares of the rows", parts},
          {"rows of a block", std::to_string(cluster->share().block)},
          {"the CPU's instruction set", cpu_arithmetic()}};
}

std::unique_ptr<WeightSource> Runtime::make_draft_weights(const LoadProgress& progress,
                                                          const std::stop_token& stop) {
  if (sweeps.draft) return load_resident(*device, *sweeps.draft, {notes, progress, stop});
  if (uploads) return std::make_unique<RestingUnits>(*uploads, uploads->resting());
  return std::make_unique<RestingUnits>(*streamer, streamer->resting());
}

std::unique_ptr<Drafter> Runtime::make_inner_drafter(const LoadProgress& progress,
                                                     const std::stop_token& stop) {
  if (!takes_inner_draft(plan.method)) return nullptr;
  if (!plan.inner) {
    inner_weights = load_resident(*device, *sweeps.inner, {notes, progress, stop});
    inner = std::make_unique<Transformer>(*device, models.inner->config(), *inner_weights,
                                          plan.inner_limits);
    return std::make_unique<InnerDrafter>(*device, *inner, plan.inner_policy, kv_room(),
                                          plan.max_sequences);
  }
  return plan.inner->make(*device, plan.inner_bounds());
}

void Runtime::share_memory() {
  memory.reset();
  if (plan.pool_bytes == 0) return;
  std::vector<KvPool*> pools{&target->kv().pool()};
  if (drafter)
    for (KvPool* const pool : drafter->kv_pools()) pools.push_back(pool);
  auto weights = plan.full_expert_slots > 0
                     ? uploaded_experts ? pooled_experts(*uploaded_experts, *sweeps.apart, plan)
                                        : pooled_experts(*experts, *sweeps.apart, plan)
                 : uploads ? pooled_uploads(*uploads, sweeps.target, *plan.full_residency, *arena)
                           : pooled_units(*streamer, sweeps.target);
  memory = std::make_unique<MemoryPool>(std::move(weights), *compute, plan.pool_bytes, pools);
}

KvRoom Runtime::kv_room() const {
  KvRoom room = plan.kv_room();
  room.arena = arena.get();
  return room;
}

void Runtime::let_weights_give_way(int texts) {
  if (!memory) return;
  memory->before_sweep(texts, memory->worth_keeping(plan));
  if (!memory->describe(plan.weights)) return;
  if (!plan.cost) return;
  if (const auto rows = plan.cost->rows_behind_link(plan.weights, plan.priced_context))
    plan.rows_behind_link = *rows;
}

/// Last of all that takes memory of the device: it is the one thing that can do with less.
void Runtime::begin_uploads() {
  if (uploaded_experts) {
    if (arena)
      uploaded_experts->begin(plan.full_expert_slots, notes, arena->end());
    else
      uploaded_experts->begin(plan.expert_slots, notes);
    plan = with_expert_slots(std::move(plan), uploaded_experts->slots());
  }
  if (!uploads) return;
  uploads->begin(plan.ring_bytes, notes);
  if (uploads->ring_bytes() != plan.ring_bytes)
    plan = with_ring(std::move(plan), uploads->ring_bytes());
}

StreamerOptions Runtime::reads(const EngineOptions& options) {
  StreamerOptions reads{.ring_bytes = plan.device ? plan.device->host_ring_bytes : plan.ring_bytes,
                        .reader_cpus = placement.reader_cpus,
                        .checksums = options.verify_weights,
                        .clock = link_clock,
                        .limit = disk_limit,
                        .trace = trace};
  reads.ring_node = ring_node();
  if (placement.refused) add_note(notes, placement.note);
  reads.units_change = plan.full_residency.has_value();
  // Holes of a shard are read faster than its rows.
  if (!models.target.shard() &&
      std::filesystem::file_size(largest_file(models.target.files())) > kProbeFrom)
    reads.trial = {kProbeRounds, kProbeRound};
  // An expert is waited for, and what is in flight arrives before it.
  if (plan.expert_slots > 0) reads.most_in_flight = kMostBeforeExperts;
  return reads;
}

std::unique_ptr<WeightSource> Runtime::make_target_weights(const EngineOptions& options,
                                                           const LoadProgress& progress,
                                                           const std::stop_token& stop) {
  const bool from_disk = !plan.resident && plan.sweep_bytes > 0;
  if (!from_disk && plan.expert_slots == 0) {
    if (placement.numa_node && !plan.device)
      placement.note = "everything rests in memory: there is no ring to place";
    if (!plan.device) placement.numa_node.reset();
  }
  const bool experts_from_disk =
      plan.expert_slots > 0 && (!plan.device || plan.device->host_expert_slots > 0);
  if (options.verify_weights && !from_disk && !experts_from_disk)
    notes.push_back("weights are not verified: the model rests in memory, nothing is read twice");
  const Loading loading{notes, progress, stop};
  if (options.routes && plan.expert_slots == 0)
    throw Error("routes are recorded where experts come out of a cache, and " +
                sweeps.target.root.string() +
                (sweeps.apart ? " has none: all of it is in memory, or travels"
                              : " is no mixture of experts"));
  if (plan.resident) return load_resident(*device, sweeps.target, loading);
  if (plan.device && plan.expert_slots > 0) {
    std::unique_ptr<ExpertSource> host;
    if (plan.device->host_expert_slots > 0)
      host = make_expert_cache(plan.device->host_expert_slots, options, stop);
    else
      host = std::make_unique<HostExperts>(*device, *sweeps.apart, loading, ring_node());
    auto made = std::make_unique<UploadedExperts>(*device, *sweeps.apart, std::move(host),
                                                  options.routes, trace);
    uploaded_experts = made.get();
    return std::make_unique<WithExperts>(load_resident(*device, *sweeps.apart, loading),
                                         std::move(made));
  }
  const SweepLayout& units = plan.expert_slots > 0 ? *sweeps.apart : sweeps.target;
  // On a device, units that may give way are on the host, and rest once they have travelled.
  const Residency& at_load =
      plan.device && plan.full_residency ? *plan.full_residency : plan.residency;
  std::unique_ptr<WeightSource> source;
  if (from_disk) {
    auto made =
        std::make_unique<Streamer>(*device, units, plan.residency, reads(options), progress, stop);
    notes.insert(notes.end(), made->notes().begin(), made->notes().end());
    if (made->read_settings().bytes > 0) link_probe = made->read_settings();
    streamer = made.get();
    source = std::move(made);
  } else {
    source = load_on_host(*device, units, at_load, loading, ring_node());
  }
  if (plan.expert_slots > 0) {
    ExpertSlots slots(plan.expert_slots);
    if (plan.full_expert_slots > 0)
      slots = {plan.expert_slots, plan.full_expert_slots, plan.most_expert_slots};
    auto cache = make_expert_cache(slots, options, stop);
    source = std::make_unique<WithExperts>(std::move(source), std::move(cache));
  }
  if (!plan.device) return source;
  auto made = std::make_unique<UploadedWeights>(*device, sweeps.target, at_load, std::move(source),
                                                loading, trace);
  uploads = made.get();
  return made;
}

std::unique_ptr<ExpertSource> Runtime::make_expert_cache(const ExpertSlots& slots,
                                                         const EngineOptions& options,
                                                         const std::stop_token& stop) {
  StreamerOptions reads_experts = reads(options);
  if (streamer) reads_experts.trace = nullptr;  // a lane has one reader
  // The routes are those of the source that the model asks.
  auto cache = std::make_unique<ExpertCache>(*device, *sweeps.apart, slots, reads_experts, stop,
                                             plan.device ? nullptr : options.routes);
  notes.insert(notes.end(), cache->notes().begin(), cache->notes().end());
  if (cache->read_settings().bytes > 0) link_probe = cache->read_settings();
  experts = cache.get();
  return cache;
}

void Runtime::learn_routes(std::int64_t rows, std::uint64_t misses) {
  if (plan.expert_slots == 0) return;
  ExpertReads& reads = plan.weights.experts;
  routes.add(reads, rows, misses);
  reads.habits = routes.habits(reads);
}

LinkReport Runtime::link() const {
  LinkReport report;
  if (streamer) static_cast<LinkTotals&>(report) = streamer->totals();
  if (experts) {
    const ExpertTotals totals = experts->totals();
    static_cast<LinkTotals&>(report) += totals.link;
    report.busy = totals.link.busy;  // by the clock of both
    report.expert_hits = totals.hits;
    report.expert_misses = totals.misses;
    if (!streamer && !plan.device) report.disk_bytes += target_weights->embedding().disk_bytes();
  }
  if (uploads) {
    const UploadedWeights::Totals totals = uploads->totals();
    report.upload_bytes = totals.bytes;
    report.upload_busy = totals.busy;
    report.stall = totals.stall;  // the compute thread's; the streamer's is the uploader's
  }
  if (uploaded_experts) {
    const UploadedExperts::Totals totals = uploaded_experts->totals();
    report.upload_bytes = totals.uploads.bytes;
    report.upload_busy = totals.uploads.busy;
    report.expert_hits = totals.hits;
    report.expert_misses = totals.misses;
  }
  return report;
}

std::uint64_t Runtime::disk_bytes() const {
  std::uint64_t bytes = link().disk_bytes;
  if (draft_weights && sweeps.draft) bytes += resident_bytes(*sweeps.draft);
  if (inner_weights) bytes += resident_bytes(*sweeps.inner);
  if (plan.resident) bytes += resident_bytes(sweeps.target);
  if (experts && !streamer && !plan.device)
    bytes += Streamer::resting_bytes(*sweeps.apart, plan.residency);
  if (plan.device) bytes += plan.device->host_bytes;
  return bytes;
}

}  // namespace canopy
