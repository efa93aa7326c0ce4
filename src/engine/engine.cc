#include "src/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "offload/io/link_probe.h"
#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/engine/engine_impl.h"
#include "src/machine/cpus.h"
#include "src/machine/process_memory.h"

namespace canopy {

namespace {

// How the link is best read is tried out on models that are not read in a moment anyway.
constexpr std::uint64_t kProbeFrom = 256u << 20;
constexpr int kProbeRounds = 3;
constexpr Seconds kProbeRound{0.2};

bool on_gpu(const EngineOptions& options) { return options.device.kind == "cuda"; }

/// Of the device that host memory in transit should be near to: a GPU's link is the faster one.
std::optional<int> node_near(const EngineOptions& options, const Checkpoint& target) {
  if (!on_gpu(options)) return node_of_disk(largest_file(target));
  const Gpus gpus = find_gpus();
  const auto ordinal = static_cast<std::size_t>(options.device.ordinal);
  return ordinal < gpus.all.size() ? node_of_pci(gpus.all[ordinal].pci_address) : std::nullopt;
}

}  // namespace

ModelFiles open_models(const std::filesystem::path& target, const std::filesystem::path& draft) {
  ModelFiles models{Checkpoint::open(target), std::nullopt, nullptr};
  models.tokenizer = load_tokenizer(target, models.target.metadata(), models.target.config().vocab);
  if (draft.empty()) return models;
  models.draft = Checkpoint::open(draft);
  const auto theirs = load_tokenizer(draft, models.draft->metadata(), models.draft->config().vocab);
  if (const auto difference = vocabulary_mismatch(*models.tokenizer, *theirs))
    throw Error("the draft " + draft.string() + " cannot speak for " + target.string() +
                ": their vocabularies differ: " + *difference);
  return models;
}

Placement place_engine(const Topology& topology, const Checkpoint& target,
                       const EngineOptions& options) {
  return choose_placement(topology, options.device.threads, options.device.cpus,
                          node_near(options, target), cpu_quota(),
                          on_gpu(options) ? "GPU" : "disk");
}

std::unique_ptr<Device> open_device(const EngineOptions& options, const Placement& placement) {
  if (options.make_device) return options.make_device();
  DeviceChoice choice = options.device;
  choice.threads = placement.threads;
  choice.cpus = placement.cpus;
  return make_device(choice);
}

LinkReport& LinkReport::operator+=(const LinkReport& more) {
  LinkTotals::operator+=(more);
  upload_bytes += more.upload_bytes;
  upload_busy += more.upload_busy;
  return *this;
}

LinkReport operator-(const LinkReport& later, const LinkReport& earlier) {
  LinkReport difference;
  static_cast<LinkTotals&>(difference) =
      static_cast<const LinkTotals&>(later) - static_cast<const LinkTotals&>(earlier);
  difference.upload_bytes = later.upload_bytes - earlier.upload_bytes;
  difference.upload_busy = later.upload_busy - earlier.upload_busy;
  return difference;
}

Engine::Impl::Impl(ModelFiles files, const EngineOptions& options, const LoadProgress& progress,
                   const std::stop_token& stop)
    : models(std::move(files)),
      placement(place_engine(topology, models.target, options)),
      device(open_device(options, placement)),
      trace(options.trace),
      energy(options.energy),
      synthetic_acceptance(options.synthetic_acceptance) {
  const auto start = Clock::now();
  const PlanRequest request = on_device(options.plan, *device);
  const std::uint64_t held = resident_memory();
  plan = make_plan(request, models.target, models.draft ? &*models.draft : nullptr, held,
                   device->ops());
  require_free(plan, held);
  compute = device->make_stream("compute");
  caches.resize(static_cast<std::size_t>(plan.max_sequences));
  const ModelConfig& t = models.target.config();
  target_weights = make_target_weights(options, progress, stop);  // first: its ring fills meanwhile
  if (plan.method != SpeculationMethod::kNone) {
    const ModelConfig& d = models.draft->config();
    draft_weights = load_resident(*device, *models.draft, notes, progress, stop);
    if (trace) draft_times = &time(draft_weights, Trace::Lane::kDraft);
    draft = std::make_unique<Transformer>(*device, d, *draft_weights, plan.draft_limits);
    // A trace tells of each unit, so it takes them one by one; on the CPU there is nothing to gain.
    plan.policy.graphs = options.graphs && !trace && !device->shares_host_memory();
    policy.emplace(*device, plan.policy);
    cost = request.cost;
    sampled = request.temperature > 0;
    if (plan.adaptive) replanner.emplace(*cost, plan, sampled);
  }
  target_times = &time(target_weights, Trace::Lane::kTarget);
  target = std::make_unique<Transformer>(*device, t, *target_weights, plan.target_limits);
  for (SequenceCaches& cache : caches) {
    cache.target = std::make_unique<KvCache>(*device, t, plan.slots, plan.kv);
    if (draft)
      cache.draft = std::make_unique<KvCache>(*device, models.draft->config(), plan.slots, plan.kv);
  }
  verifier.emplace(*device, t.vocab);
  host_logits.resize(static_cast<std::size_t>(t.vocab));
  if (uploads) begin_uploads();
  load_time = since(start);
}

TimedWeights& Engine::Impl::time(std::unique_ptr<WeightSource>& source, Trace::Lane lane) {
  auto timed = std::make_unique<TimedWeights>(*device, std::move(source), trace, lane);
  TimedWeights& times = *timed;
  source = std::move(timed);
  return times;
}

/// Last of all that takes memory of the device: it is the one thing that can do with less.
void Engine::Impl::begin_uploads() {
  uploads->begin(plan.ring_bytes, notes);
  if (uploads->ring_bytes() == plan.ring_bytes) return;
  plan.ring_layers *=
      static_cast<double>(uploads->ring_bytes()) / static_cast<double>(plan.ring_bytes);
  plan.ring_bytes = plan.weights.ring_bytes = uploads->ring_bytes();
  for (LedgerEntry& entry : plan.device->ledger)
    if (entry.what == kRingEntry) entry.bytes = plan.ring_bytes;
}

StreamerOptions Engine::Impl::reads(const EngineOptions& options) {
  StreamerOptions reads{.ring_bytes = plan.device ? plan.device->host_ring_bytes : plan.ring_bytes,
                        .reader_cpus = placement.reader_cpus,
                        .checksums = options.verify_weights,
                        .trace = trace};
  reads.ring_node = ring_node();
  if (placement.refused) notes.push_back(placement.note);
  if (std::filesystem::file_size(largest_file(models.target)) > kProbeFrom)
    reads.trial = {kProbeRounds, kProbeRound};
  return reads;
}

std::unique_ptr<WeightSource> Engine::Impl::make_target_weights(const EngineOptions& options,
                                                                const LoadProgress& progress,
                                                                const std::stop_token& stop) {
  const bool from_disk = !plan.resident && plan.sweep_bytes > 0;
  if (!from_disk) {
    if (placement.numa_node && !plan.device)
      placement.note = "everything rests in memory: there is no ring to place";
    if (!plan.device) placement.numa_node.reset();
    if (options.verify_weights)
      notes.push_back("weights are not verified: the model rests in memory, nothing is read twice");
  }
  if (plan.resident) return load_resident(*device, models.target, notes, progress, stop);
  std::unique_ptr<WeightSource> source;
  if (from_disk) {
    auto made = std::make_unique<Streamer>(*device, models.target, plan.residency, reads(options),
                                           progress, stop);
    notes.insert(notes.end(), made->notes().begin(), made->notes().end());
    if (made->way().bytes > 0) link_probe = made->way();
    streamer = made.get();
    source = std::move(made);
  } else {
    source =
        load_on_host(*device, models.target, plan.residency, notes, ring_node(), progress, stop);
  }
  if (!plan.device) return source;
  auto made = std::make_unique<UploadedWeights>(*device, models.target, plan.residency,
                                                std::move(source), notes, trace, progress, stop);
  uploads = made.get();
  return made;
}

LinkReport Engine::Impl::link() const {
  LinkReport report;
  if (streamer) static_cast<LinkTotals&>(report) = streamer->totals();
  if (uploads) {
    const UploadedWeights::Totals totals = uploads->totals();
    report.upload_bytes = totals.bytes;
    report.upload_busy = totals.busy;
    report.stall = totals.stall;  // the compute thread's; the streamer's is the uploader's
  }
  return report;
}

TokenReport Engine::Impl::report_token(const ConstTensorView& logits, std::int64_t row,
                                       TokenId chosen, int count) {
  const ConstTensorView view = logits.rows(row, 1);
  device->download(*compute, std::as_writable_bytes(std::span(host_logits)), view.data());
  compute->synchronize();
  const float top = *std::max_element(host_logits.begin(), host_logits.end());
  double sum = 0;
  bool finite = true;
  for (const float x : host_logits) {
    finite = finite && std::isfinite(x);
    sum += std::exp(static_cast<double>(x) - top);
  }
  if (!finite) throw NotFinite();
  const double log_sum = top + std::log(sum);
  std::vector<TokenId> order(host_logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](TokenId id) { return host_logits[static_cast<std::size_t>(id)]; };
  const auto best = order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order));
  std::partial_sort(order.begin(), best, order.end(), [&](TokenId a, TokenId b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  TokenReport report{{chosen, logit(chosen) - log_sum}, {}};
  for (auto id = order.begin(); id != best; ++id) report.top.push_back({*id, logit(*id) - log_sum});
  return report;
}

Engine::Engine(ModelFiles models, const EngineOptions& options, const LoadProgress& progress,
               std::stop_token stop)
    : impl_(std::make_unique<Impl>(std::move(models), options, progress, stop)) {}
Engine::~Engine() = default;

const Plan& Engine::plan() const { return impl_->plan; }
const Placement& Engine::placement() const { return impl_->placement; }
const ModelFiles& Engine::models() const { return impl_->models; }
Seconds Engine::load_time() const { return impl_->load_time; }
std::string Engine::device_name() const { return impl_->device->name(); }

std::uint64_t Engine::disk_bytes() const {
  std::uint64_t bytes = impl_->link().disk_bytes;
  if (impl_->draft_weights) bytes += resident_bytes(*impl_->models.draft);
  if (impl_->plan.resident) bytes += resident_bytes(impl_->models.target);
  if (impl_->plan.device) bytes += impl_->plan.device->host_bytes;
  return bytes;
}

const Notes& Engine::notes() const { return impl_->notes; }
const LinkSample& Engine::link_probe() const { return impl_->link_probe; }

Engine::Loss Engine::loss(std::span<const TokenId> text, int context,
                          const std::function<void(const Loss&)>& on_window, const OnUnit& on_unit,
                          std::stop_token stop) {
  Impl& m = *impl_;
  require(context >= 2 && context - 1 <= m.plan.target_limits.max_logit_rows,
          "the plan has no room for the logits of a window");
  KvCache& kv = *m.caches.front().target;
  Loss loss;
  const std::vector<std::int32_t> position = counting(0, static_cast<std::size_t>(context));
  while (text.size() > 1) {
    const std::span<const TokenId> window = text.first(std::min(text.size(), position.size()));
    text = text.subspan(window.size());
    kv.truncate(0);
    const auto all = std::span(position).first(window.size());
    const SequenceRows part{{window, all, {}, 0, all.first(window.size() - 1)}, &kv, 0};
    const ConstTensorView logits = m.target->forward({&part, 1}, *m.compute, stop, on_unit);
    try {
      for (std::size_t i = 1; i < window.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i) - 1;
        loss.sum -= m.report_token(logits, row, window[i], 0).chosen.logprob;
        ++loss.tokens;
      }
    } catch (const NotFinite&) {
      m.refuse_not_finite({&part, 1}, stop);
    }
    if (on_window) on_window(loss);
  }
  return loss;
}

}  // namespace canopy
