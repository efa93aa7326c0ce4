#include "src/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "offload/link_probe.h"
#include "src/base/cpus.h"
#include "src/base/error.h"
#include "src/base/process_memory.h"
#include "src/engine/traced_weights.h"
#include "src/spec/draft_policy.h"
#include "src/spec/verifier.h"

namespace canopy {

namespace {

using Clock = std::chrono::steady_clock;
Seconds since(Clock::time_point start) { return Clock::now() - start; }

// Of what is free when nobody names a budget: the rest is for the page cache and for other
// programs.
constexpr double kSafeShare = 0.8;

// How the link is best read is tried out on models that are not read in a moment anyway.
constexpr std::uint64_t kProbeFrom = 256u << 20;
constexpr int kProbeRounds = 3;
constexpr Seconds kProbeRound{0.2};

std::filesystem::path largest_file(const Checkpoint& checkpoint) {
  const auto& files = checkpoint.files();
  return *std::max_element(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return std::filesystem::file_size(a) < std::filesystem::file_size(b);
  });
}

/// The chosen token's log probability and the `count` likeliest, from one row of logits.
TokenReport report_token(std::span<const float> logits, TokenId chosen, int count) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  const double log_sum = top + std::log(sum);
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; };
  const auto best = order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order));
  std::partial_sort(order.begin(), best, order.end(), [&](TokenId a, TokenId b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  TokenReport report{{chosen, logit(chosen) - log_sum}, {}};
  for (auto id = order.begin(); id != best; ++id) report.top.push_back({*id, logit(*id) - log_sum});
  return report;
}

}  // namespace

ModelFiles open_models(const std::filesystem::path& target, const std::filesystem::path& draft) {
  ModelFiles models{Checkpoint::open(target), std::nullopt, nullptr};
  models.tokenizer = load_tokenizer(target, models.target.metadata());
  if (draft.empty()) return models;
  models.draft = Checkpoint::open(draft);
  const auto theirs = load_tokenizer(draft, models.draft->metadata());
  if (const auto difference = vocabulary_mismatch(*models.tokenizer, *theirs))
    throw Error("the draft " + draft.string() + " cannot speak for " + target.string() +
                ": their vocabularies differ: " + *difference);
  return models;
}

struct Engine::Impl {
  using OnUnit = Transformer::OnUnit;

  ModelFiles models;
  const Topology topology;
  Placement placement;
  std::unique_ptr<Device> device;
  Trace* const trace;
  Plan plan;
  LinkSample link_probe;
  Notes notes;
  Seconds load_time{};
  std::unique_ptr<WeightSource> target_weights, draft_weights;
  Streamer* streamer = nullptr;  // target_weights, when it streams
  std::unique_ptr<Transformer> target, draft;
  std::unique_ptr<KvCache> target_kv, draft_kv;
  std::optional<DraftPolicy> policy;
  std::optional<Verifier> verifier;
  std::vector<float> host_logits;
  std::unique_ptr<Stream> compute;  // last, so that its work ends before anything above is freed

  Impl(ModelFiles files, const EngineOptions& options, const LoadProgress& progress,
       const std::stop_token& stop);

  void read_logits(const ConstTensorView& logits, std::int64_t row) {
    const ConstTensorView view = logits.rows(row, 1);
    device->download(*compute, std::as_writable_bytes(std::span(host_logits)), view.data());
    compute->synchronize();
  }
  LinkTotals link() const { return streamer ? streamer->totals() : LinkTotals{}; }

  struct Step {
    std::vector<TokenId> tokens;
    std::vector<TokenReport> logprobs;
  };
  /// Grow, sweep, verify. `behind` are committed tokens that the target has not run (the prompt,
  /// once); `pending` those that the draft has not, the root last; both are brought up to date.
  Step step(const GenerateRequest& request, const StepRng& rng, std::vector<TokenId>& behind,
            std::vector<TokenId>& pending, const OnUnit& on_unit, const std::stop_token& stop);
};

Engine::Impl::Impl(ModelFiles files, const EngineOptions& options, const LoadProgress& progress,
                   const std::stop_token& stop)
    : models(std::move(files)),
      placement(choose_placement(topology, options.device.threads, options.device.cpus,
                                 node_of_disk(largest_file(models.target)), cpu_quota())),
      device(make_device(
          {options.device.kind, options.device.ordinal, placement.threads, placement.cpus})),
      trace(options.trace) {
  const auto start = Clock::now();
  PlanRequest request = options.plan;
  if (request.memory == 0)
    request.memory =
        resident_memory() +
        static_cast<std::uint64_t>(kSafeShare * static_cast<double>(device->free_bytes()));
  const std::uint64_t held = resident_memory();
  plan = make_plan(request, models.target, models.draft ? &*models.draft : nullptr, held,
                   device->ops());
  if (const std::uint64_t free = device->free_bytes(); plan.total() > held + free)
    throw Error("the plan takes " + std::to_string((plan.total() - held) >> 20) +
                " MiB more, but this machine, or a memory cgroup of this process, has only " +
                std::to_string(free >> 20) + " MiB free: give a --memory of at most " +
                std::to_string((held + free) >> 20) + "M, or free some");
  compute = device->make_stream("compute");
  const ModelConfig& t = models.target.config();

  // The streamer first: its ring fills while the draft loads.
  if (plan.resident) {
    if (placement.numa_node)
      placement.note = "everything rests in memory: there is no ring to place";
    placement.numa_node.reset();
    target_weights = load_resident(*device, models.target, notes, progress, stop);
    if (options.verify_weights)
      notes.push_back("weights are not verified: the model rests in memory, nothing is read twice");
  } else {
    StreamerOptions reads{.ring_bytes = plan.ring_bytes,
                          .reader_cpus = placement.reader_cpus,
                          .checksums = options.verify_weights,
                          .trace = trace};
    if (placement.numa_node) reads.ring_node = {&topology, *placement.numa_node};
    if (placement.refused) notes.push_back(placement.note);
    const std::filesystem::path file = largest_file(models.target);
    if (std::filesystem::file_size(file) > kProbeFrom) {
      Notes known;  // the streamer's own engine says the same
      link_probe = best_link(file, reads.direct, reads.io_uring, kProbeRounds, kProbeRound, known);
      reads.read_bytes = link_probe.read_bytes;
      reads.queue_depth = link_probe.queue_depth;
    }
    auto source =
        std::make_unique<Streamer>(*device, models.target, plan.residency, reads, progress, stop);
    notes.insert(notes.end(), source->notes().begin(), source->notes().end());
    streamer = source.get();
    target_weights = std::move(source);
  }
  if (plan.spec != Spec::kNone) {
    const ModelConfig& d = models.draft->config();
    draft_weights = load_resident(*device, *models.draft, notes, progress, stop);
    if (trace)
      draft_weights =
          std::make_unique<TracedWeights>(std::move(draft_weights), *trace, Trace::Lane::kDraft);
    draft = std::make_unique<Transformer>(*device, d, *draft_weights, plan.draft_limits);
    draft_kv = std::make_unique<KvCache>(*device, d, plan.slots, plan.kv);
    policy.emplace(*device, plan.policy);
  }
  if (trace)
    target_weights =
        std::make_unique<TracedWeights>(std::move(target_weights), *trace, Trace::Lane::kTarget);
  target = std::make_unique<Transformer>(*device, t, *target_weights, plan.target_limits);
  target_kv = std::make_unique<KvCache>(*device, t, plan.slots, plan.kv);
  verifier.emplace(*device, t.vocab);
  host_logits.resize(static_cast<std::size_t>(t.vocab));
  load_time = since(start);
}

Engine::Impl::Step Engine::Impl::step(const GenerateRequest& request, const StepRng& rng,
                                      std::vector<TokenId>& behind, std::vector<TokenId>& pending,
                                      const OnUnit& on_unit, const std::stop_token& stop) {
  const TokenId root = pending.back();
  const auto begun = Clock::now();
  Draft draft_tree = root_only(root);
  if (policy) {
    const DraftRequest grow{pending, draft_kv.get(), request.sampling, rng};
    draft_tree = std::move(policy->grow(*draft, {&grow, 1}, *compute, stop).front());
  }
  const TokenTree& tree = draft_tree.tree;
  const auto grown = Clock::now();

  // The prompt rides on the first sweep: its chain first, then the tree below it.
  const auto ahead = static_cast<int>(behind.size());
  const int base = target_kv->length();
  std::vector<std::int32_t> chain_position(behind.size()), position,
      rows(static_cast<std::size_t>(tree.size()));
  std::iota(chain_position.begin(), chain_position.end(), base);
  std::iota(rows.begin(), rows.end(), 0);
  for (NodeId i = 0; i < tree.size(); ++i) position.push_back(base + ahead + tree.depth(i));
  const std::vector<std::uint64_t> bits = tree.ancestor_bits();
  std::vector<SweepPart> parts;
  if (ahead > 0) parts.push_back({{behind, chain_position, {}, 0, {}}, target_kv.get(), 0});
  parts.push_back({{tree.tokens(), position, bits, 0, rows}, target_kv.get(), ahead});
  const ConstTensorView logits = target->forward(parts, *compute, stop, on_unit);
  const Verdict verdict = verifier->verify(draft_tree, logits, request.sampling, rng, *compute);

  std::vector<NodeId> prompt_nodes(behind.size());
  std::iota(prompt_nodes.begin(), prompt_nodes.end(), 0);
  target_kv->commit(prompt_nodes, *compute);
  target_kv->commit(verdict.path, *compute);
  behind.clear();

  // The draft keeps what it has run of the path; a leaf that it never ran is still to come.
  std::vector<NodeId> known;
  pending.clear();
  for (const NodeId node : verdict.path) {
    const auto i = static_cast<std::size_t>(node);
    if (draft_tree.row[i] >= 0)
      known.push_back(draft_tree.row[i]);
    else
      pending.push_back(tree.tokens()[i]);
  }
  if (policy) draft_kv->commit(known, *compute);
  pending.push_back(verdict.next);

  Step step;
  for (std::size_t i = 1; i < verdict.path.size(); ++i)
    step.tokens.push_back(tree.tokens()[static_cast<std::size_t>(verdict.path[i])]);
  step.tokens.push_back(verdict.next);
  if (request.logprobs > 0) {
    for (std::size_t i = 0; i < step.tokens.size(); ++i) {
      read_logits(logits, verdict.path[i]);
      step.logprobs.push_back(report_token(host_logits, step.tokens[i], request.logprobs));
    }
  }
  compute->synchronize();
  if (trace) {
    const auto now = Clock::now();
    trace->span(Trace::Lane::kHost, "step: " + std::to_string(step.tokens.size()) + " tokens",
                begun, now);
    if (policy) trace->span(Trace::Lane::kHost, "grow the tree", begun, grown);
    trace->span(Trace::Lane::kHost, "sweep and verify", grown, now);
  }
  return step;
}

Engine::Engine(ModelFiles models, const EngineOptions& options, const LoadProgress& progress,
               std::stop_token stop)
    : impl_(std::make_unique<Impl>(std::move(models), options, progress, stop)) {}
Engine::~Engine() = default;

const Plan& Engine::plan() const { return impl_->plan; }
const Placement& Engine::placement() const { return impl_->placement; }
const ModelFiles& Engine::models() const { return impl_->models; }
Seconds Engine::load_time() const { return impl_->load_time; }

std::uint64_t Engine::disk_bytes() const {
  std::uint64_t bytes = impl_->link().disk_bytes;
  if (impl_->draft_weights) bytes += resident_bytes(*impl_->models.draft);
  if (impl_->plan.resident) bytes += resident_bytes(impl_->models.target);
  return bytes;
}

const Notes& Engine::notes() const { return impl_->notes; }
const LinkSample& Engine::link_probe() const { return impl_->link_probe; }

GenerateReport Engine::generate(const GenerateRequest& request, const OnToken& on_token,
                                const OnStep& on_step, std::stop_token stop) {
  Impl& m = *impl_;
  require(!request.prompt.empty(), "the prompt is empty");
  const auto prompt = static_cast<int>(request.prompt.size());
  const int most =
      std::min(request.max_new_tokens, m.plan.slots - m.plan.policy.shape.size() - prompt);
  if (prompt > m.plan.target_limits.max_nodes - m.plan.policy.shape.size() || most < 1)
    throw Error("a prompt of " + std::to_string(prompt) + " tokens does not fit the context of " +
                std::to_string(m.plan.slots - m.plan.policy.shape.size()));
  m.target_kv->truncate(0);
  if (m.draft_kv) m.draft_kv->truncate(0);

  GenerateReport report;
  report.finish_reason = "length";
  std::vector<TokenId> behind(request.prompt.begin(), request.prompt.end() - 1);
  std::vector<TokenId> pending(request.prompt.begin(), request.prompt.end());
  LinkTotals link = m.link();
  const int layers = m.models.target.config().layers;
  bool ended = false;
  while (!ended && static_cast<int>(report.tokens.size()) < most) {
    const auto start = Clock::now();
    Impl::Step step;
    try {
      const StepRng rng{request.seed, 0, static_cast<std::uint64_t>(report.steps)};
      const auto on_unit = [&](const Unit& unit) {
        const Seconds time = since(start);
        if (on_step)
          on_step({report.steps + 1, 0, static_cast<int>(report.tokens.size()), unit.layer, layers,
                   m.link() - link, time, report.prefill + report.decode + time});
      };
      step = m.step(request, rng, behind, pending, on_unit, stop);
    } catch (const Stopped&) {
      report.finish_reason = "cancelled";
      break;
    }
    const Seconds time = since(start);
    const LinkTotals now = m.link(), of_step = now - std::exchange(link, now);
    int kept = 0;
    for (; kept < static_cast<int>(step.tokens.size()) && !ended &&
           static_cast<int>(report.tokens.size()) < most;
         ++kept) {
      const TokenId token = step.tokens[static_cast<std::size_t>(kept)];
      ended = !request.ignore_end && m.models.tokenizer->ends_text(token);
      report.tokens.push_back(token);
      if (request.logprobs > 0)
        report.logprobs.push_back(std::move(step.logprobs[static_cast<std::size_t>(kept)]));
      if (on_token) on_token(token);
    }
    if (report.steps++ == 0) {
      report.prefill = time;
    } else {
      report.decode += time;
      report.decode_tokens += kept;
      report.link += of_step;
    }
    if (on_step)
      on_step({report.steps, kept, static_cast<int>(report.tokens.size()), layers, layers, of_step,
               time, report.prefill + report.decode});
  }
  if (ended) report.finish_reason = "stop";
  return report;
}

Engine::Loss Engine::loss(std::span<const TokenId> text, int context,
                          const std::function<void(const Loss&)>& on_window, const OnUnit& on_unit,
                          std::stop_token stop) {
  Impl& m = *impl_;
  require(context >= 2 && context - 1 <= m.plan.target_limits.max_logit_rows,
          "the plan has no room for the logits of a window");
  Loss loss;
  std::vector<std::int32_t> position(static_cast<std::size_t>(context));
  std::iota(position.begin(), position.end(), 0);
  while (text.size() > 1) {
    const std::span<const TokenId> window = text.first(std::min(text.size(), position.size()));
    text = text.subspan(window.size());
    m.target_kv->truncate(0);
    const auto all = std::span(position).first(window.size());
    const SweepPart part{{window, all, {}, 0, all.first(window.size() - 1)}, m.target_kv.get(), 0};
    const ConstTensorView logits = m.target->forward({&part, 1}, *m.compute, stop, on_unit);
    for (std::size_t i = 1; i < window.size(); ++i) {
      m.read_logits(logits, static_cast<std::int64_t>(i) - 1);
      loss.sum -= report_token(m.host_logits, window[i], 0).chosen.logprob;
      ++loss.tokens;
    }
    if (on_window) on_window(loss);
  }
  return loss;
}

}  // namespace canopy
