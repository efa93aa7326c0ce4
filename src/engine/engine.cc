#include "src/engine/engine.h"

#include <utility>

#include "src/base/error.h"
#include "src/engine/beam/beam_search.h"
#include "src/engine/engine_parts.h"
#include "src/engine/ranks/sweep_messages.h"
#include "src/engine/runtime.h"
#include "src/machine/cpus.h"

namespace canopy {

namespace {

/// Has the other ranks load an engine like this one.
const EngineOptions& announced(const EngineOptions& options) {
  if (options.cluster) options.cluster->announce(bare_message(RankCommand::kLoad));
  return options;
}

bool on_gpu(const EngineOptions& options) { return options.device.kind == "cuda"; }

/// The node that host memory in transit should lie on. A GPU's link is the faster one.
std::optional<int> node_near(const EngineOptions& options, const Checkpoint& target) {
  if (!on_gpu(options)) return node_of_disk(largest_file(target.files()));
  const Gpus gpus = find_gpus();
  const Gpu* const gpu = gpus.find(options.device.ordinal);
  return gpu == nullptr ? std::nullopt : node_of_pci(gpu->pci_address);
}

}  // namespace

Notes ModelFiles::notes() const {
  Notes all;
  const auto add = [&](const Checkpoint& model) {
    for (const std::string& note : model.config().notes)
      add_note(all, model.root().string() + ": " + note);
  };
  add(target);
  if (draft) add(*draft);
  if (inner) add(*inner);
  return all;
}

ModelFiles open_models(const std::filesystem::path& target, const std::filesystem::path& draft,
                       const std::filesystem::path& inner, Holes holes) {
  ModelFiles models{Checkpoint::open(target, holes), std::nullopt, nullptr};
  models.tokenizer = load_tokenizer(target, models.target.metadata(), models.target.config().vocab);
  const auto open_draft = [&](const std::filesystem::path& path) -> std::optional<Checkpoint> {
    if (path.empty()) return std::nullopt;
    Checkpoint opened = Checkpoint::open(path, holes == Holes::kOfShard ? Holes::kRefused : holes);
    const auto theirs = load_tokenizer(path, opened.metadata(), opened.config().vocab);
    if (const auto difference = vocabulary_mismatch(*models.tokenizer, *theirs))
      throw Error("the draft " + path.string() + " cannot speak for " + target.string() +
                  ": their vocabularies differ: " + *difference);
    return opened;
  };
  models.draft = open_draft(draft);
  models.inner = open_draft(inner);
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

Engine::Engine(ModelFiles models, const EngineOptions& options, const LoadProgress& progress,
               std::stop_token stop)
    : runtime_(std::make_unique<Runtime>(std::move(models), announced(options), progress, stop)) {}
Engine::~Engine() = default;

const Plan& Engine::plan() const { return runtime_->plan; }
const Placement& Engine::placement() const { return runtime_->placement; }
const ModelFiles& Engine::models() const { return runtime_->models; }
Seconds Engine::load_time() const { return runtime_->load_time; }
std::string Engine::device_name() const { return runtime_->device->name(); }
std::uint64_t Engine::disk_bytes() const { return runtime_->disk_bytes(); }
LinkReport Engine::link() const { return runtime_->link(); }
PoolReport Engine::pool() const { return runtime_->pool(); }
const LearnedRoutes& Engine::routes() const { return runtime_->routes; }
const KvPool& Engine::kv_pool() const { return runtime_->target->kv().pool(); }
const Notes& Engine::notes() const { return runtime_->notes; }
Cluster* Engine::cluster() const { return runtime_->cluster; }
std::vector<RankPlace> Engine::ranks() const {
  std::vector<RankPlace> ranks;
  const Cluster* const all = runtime_->cluster;
  for (int rank = 0; all != nullptr && rank < all->share().ranks(); ++rank)
    ranks.push_back({all->host(rank), all->share().parts[static_cast<std::size_t>(rank)]});
  return ranks;
}
void Engine::check_ranks() {
  require(runtime_->cluster != nullptr, "a process that is alone has no other ranks");
  runtime_->cluster->announce(bare_message(RankCommand::kCheck));
  runtime_->cluster->collect({});
}
const LinkSample& Engine::link_probe() const { return runtime_->link_probe; }

BatchReport Engine::generate(std::span<const Request> requests, const GenerateEvents& events,
                             std::stop_token stop, std::optional<Acceptance> synthetic) {
  return run_batch(*runtime_, requests, events, std::move(stop), std::move(synthetic));
}

Session Engine::open_session(std::optional<Acceptance> synthetic) {
  return Session(*runtime_, std::move(synthetic));
}

BeamReport Engine::search(const BeamRequest& request,
                          const std::function<void(const StepProgress&)>& on_step,
                          std::stop_token stop) {
  return beam_search(*runtime_, request, on_step, std::move(stop));
}

void Engine::require_prompts() const { require_prompt_cache(*runtime_); }

void Engine::save_prompts(const std::filesystem::path& file, std::string_view code) const {
  save_prompt_cache(file, *runtime_, code);
}
LoadedPrompts Engine::load_prompts(const std::filesystem::path& file, std::string_view code) {
  require(!runtime_->cluster, "a prompt cache is not read by several processes yet: use one");
  return load_prompt_cache(file, *runtime_, code);
}

EngineParts Engine::parts() { return EngineParts(*runtime_); }

}  // namespace canopy
