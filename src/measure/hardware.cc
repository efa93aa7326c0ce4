// A machine's profile: what steps cost on it, measured over a few layers of the target.
#include "src/measure/hardware.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <limits>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "src/base/ambient.h"
#include "src/base/cache_dir.h"
#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/model_tensors.h"
#include "src/machine/cpus.h"
#include "src/machine/process_memory.h"
#include "src/measure/steps/fitted_costs.h"
#include "src/measure/steps/step_costs.h"

namespace canopy {

namespace {

constexpr int kLayers = 2;   // of a target whose layers are alike: their units are repetitions
constexpr int kText = 1024;  // tokens after which attention is measured a second time
constexpr std::chrono::seconds kClosing{1};     // of a measurement's time, to free what was loaded
constexpr std::chrono::seconds kTimeAtRest{1};  // to time weights that rest, which are read again
constexpr std::chrono::milliseconds kLeastWait{500}, kMostWait{2000};  // until memory is free
constexpr Seconds kOften{0.5};  // between two lines of progress

/// The layers of the target that are timed: the first of each kind, and kLayers at least.
std::vector<int> layers_to_time(const ModelConfig& config) {
  std::vector<int> layers;
  std::set<std::size_t> kinds;
  for (int layer = 0; layer < config.layers; ++layer)
    if (kinds.insert(config.kind(layer)).second || (kinds.size() == 1 && layer < kLayers))
      layers.push_back(layer);
  return layers;
}

std::vector<int> layers_by_kind(const ModelConfig& config) {
  std::vector<int> counts(config.layer_kinds.size());
  for (int layer = 0; layer < config.layers; ++layer) ++counts[config.kind(layer)];
  return counts;
}

/// The models as they are, but for all layers of the target that are not timed.
ModelFiles few_layers(const ModelFiles& models) {
  const Checkpoint& t = models.target;
  ModelConfig config = t.config();
  const std::vector<int> layers = layers_to_time(config);
  std::vector<std::uint8_t> kinds;
  for (const int layer : layers) kinds.push_back(static_cast<std::uint8_t>(config.kind(layer)));
  config.layers = static_cast<int>(layers.size());
  if (!config.kind_of_layer.empty()) config.kind_of_layer = std::move(kinds);
  std::vector<TensorEntry> tensors;
  for (TensorEntry tensor : t.tensors()) {
    if (auto known = find_tensor(tensor.name); known && known->layer >= 0) {
      const auto at = std::find(layers.begin(), layers.end(), known->layer);
      if (at == layers.end()) continue;
      known->layer = static_cast<int>(at - layers.begin());
      tensor.name = known->name();
    }
    tensors.push_back(std::move(tensor));
  }
  return {Checkpoint(t.root(), t.files(), std::move(tensors), config, t.metadata()), models.draft,
          nullptr};
}

/// The fewest positions that one of the models has learned; without bound where none has.
int learned_positions(const ModelFiles& models) {
  int fewest = std::numeric_limits<int>::max();
  const auto look_at = [&](const ModelConfig& config) {
    if (config.form.positions == PositionKind::kLearned)
      fewest = std::min(fewest, config.max_positions);
  };
  look_at(models.target.config());
  if (models.draft) look_at(models.draft->config());
  return fewest;
}

/// The kernel gives back what reads had pinned a moment after they are over: whoever plans next
/// should find the memory that there was.
void wait_until_free(std::size_t bytes, Clock::time_point until, const std::stop_token& stop) {
  constexpr std::size_t kSlack = 64u << 20;  // others come and go
  while (system_memory().free() + kSlack < bytes && Clock::now() < until) {
    if (stop.stop_requested()) throw Stopped();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// Options for an engine of a few layers, from which all that is timed can be.
EngineOptions probe_of(const ModelFiles& models, const EngineOptions& options) {
  EngineOptions probe = options;
  probe.trace = nullptr;
  probe.routes = nullptr;
  probe.cluster = nullptr;   // the planner divides what one rank measures
  probe.disk_limit.reset();  // plans put it to what is measured, which is kept without
  probe.plan.resident = 0;
  probe.plan.resident_layers.reset();
  probe.plan.from_disk = true;
  probe.plan.temperature = 0.6;
  static_cast<Speculation&>(probe.plan) = {};
  probe.plan.method = models.draft ? SpeculationMethod::kSequoia : SpeculationMethod::kNone;
  return probe;
}

/// With as many rows as its budget has room for. Throws Error if that is not one.
std::unique_ptr<Engine> open_probe(const ModelFiles& models, const EngineOptions& options,
                                   const LoadProgress& progress, const std::stop_token& stop) {
  EngineOptions probe = probe_of(models, options);
  const int positions = learned_positions(models), text = std::min(kText, positions / 2);
  for (int rows = std::min(kMostTimedRows, positions - text);; rows /= 2) {
    probe.plan.shape = two_levels(std::max(1, rows / 2));
    probe.plan.max_prompt = probe.plan.logit_rows = rows;
    probe.plan.context = text + rows;
    try {
      return std::make_unique<Engine>(few_layers(models), probe, progress, stop);
    } catch (const Error&) {
      if (rows == 1) throw;  // it says what is too small
    }
  }
}

/// Opens an engine of the same layers whose weights all rest; none where they do not fit.
std::unique_ptr<Engine> open_at_rest(const ModelFiles& models, const EngineOptions& options,
                                     std::uint64_t memory, const std::stop_token& stop) {
  ModelFiles few = few_layers(models);
  few.draft.reset();
  std::uint64_t bytes = 0;
  for (const TensorEntry& tensor : few.target.tensors()) bytes += tensor.bytes;
  if (bytes > memory) return nullptr;
  EngineOptions rest = probe_of(few, options);
  rest.plan.resident.reset();
  rest.plan.from_disk = false;
  const int positions = learned_positions(few), text = std::min(kText, positions / 2);
  rest.plan.max_prompt = rest.plan.logit_rows = std::min(kMostRowsAtRest, positions - text);
  rest.plan.context = text + rest.plan.max_prompt;
  try {
    auto engine = std::make_unique<Engine>(std::move(few), rest, LoadProgress(), stop);
    return engine->plan().resident ? std::move(engine) : nullptr;
  } catch (const BudgetError&) {
    return nullptr;
  }
}

/// Returns the device's own name. A GPU is not opened for that: it would take memory there.
std::string name_of_device(const EngineOptions& options) {
  if (options.device.kind == "cuda" && !options.make_device) {
    const Gpus gpus = find_gpus();
    if (const Gpu* const gpu = gpus.find(options.device.ordinal)) return gpu->name;
  }  // else opening it says what is wrong
  const Topology topology;
  const Placement placement = choose_placement(topology, options.device.threads,
                                               options.device.cpus, std::nullopt, cpu_quota());
  return open_device(options, placement)->name();
}

}  // namespace

std::string machine_of(const ModelFiles& models, const EngineOptions& options) {
  struct stat status {};
  const bool known = ::stat(models.target.files().front().c_str(), &status) == 0;
  return name_of_device(options) + ", disk " +
         (known ? std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev))
                : "unknown");
}

std::string_view measured_code() {
  static constexpr std::string_view kCode =
#include "measured_code.inc"  // made when building
      ;
  return kCode;
}

HardwareMeasurement measure_hardware(const ModelFiles& models, const EngineOptions& options,
                                     MeasuredSamples& samples, const MeasureOptions& how,
                                     std::stop_token stop) {
  const auto start = Clock::now();
  const auto most = start + how.most_time;
  const auto before_step = [&](std::string_view what) {
    if (how.on_samples && !samples.empty()) how.on_samples();
    if (how.on_measure) how.on_measure(what);
  };
  const std::size_t free = system_memory().free();
  before_step("reading the models");
  auto shown = start;
  const auto on_load = [&](std::uint64_t done, std::uint64_t all) {
    if (since(shown) < kOften) return;
    shown = Clock::now();
    before_step("reading the models, " + format_size(done) + " of " + format_size(all));
  };
  std::unique_ptr<Engine> engine = open_probe(models, options, on_load, stop);
  const Clock::duration opening = Clock::now() - start;
  StepTiming timing{layers_by_kind(models.target.config()), most - kClosing - opening - kTimeAtRest,
                    before_step};
  const std::string timed = time_steps(*engine, timing, samples, stop);
  const bool shares_memory = !engine->plan().device;
  const std::uint64_t memory = engine->plan().memory;
  const int rows = engine->plan().target_limits.max_logit_rows;
  engine.reset();
  timing.until = most - kClosing;
  const bool has_time = Clock::now() + opening < timing.until;
  if (shares_memory && has_time)
    if (const auto resting = open_at_rest(models, options, memory, stop))
      time_at_rest(*resting, timing, samples, stop);
  HardwareMeasurement done;
  HardwareProfile& profile = done.profile;
  put_costs(samples, models.target.config().layer_kinds, profile);
  profile.version = CANOPY_VERSION;
  profile.date = today();
  profile.code = measured_code();
  profile.machine = machine_of(models, options);
  profile.memory_bytes = system_memory().total;
  if (options.device.kind == "cuda") {
    const Gpus gpus = find_gpus();
    if (const Gpu* const gpu = gpus.find(options.device.ordinal))
      profile.gpu_memory_bytes = gpu->memory;
  }
  profile.target = fingerprint(models.target);
  if (models.draft) profile.draft = fingerprint(*models.draft);
  const auto now = Clock::now();
  wait_until_free(free, std::clamp(most, now + kLeastWait, now + kMostWait), stop);
  if (const Seconds all = since(start); all > how.most_time)
    done.notes.push_back("measuring took " + format_seconds(all) + ": reading the models " +
                         format_seconds(Seconds(opening)) + ", " + timed +
                         ", until their memory was free " + format_seconds(since(now)));
  if (shares_memory && !has_time && profile.at_rest.knots().empty())
    done.notes.push_back(
        "no time was left to measure sweeps where nothing is read: of weights that all rest, the "
        "prediction may be too slow");
  if (rows < (models.draft ? 2 : 1) * kRowsAfterText)  // a level has half of a tree's nodes
    done.notes.push_back("there was room to time " + std::to_string(rows) +
                         " tokens at once: what more of them, or a long text, take is drawn "
                         "straight from there, until canopy calibrate hardware measures it with "
                         "more memory");
  return done;
}

namespace {

std::filesystem::path profile_file(const std::string& target, const std::string& draft,
                                   std::string machine) {
  for (char& c : machine)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '_';
  return cache_dir() /
         ("hardware-" + target + (draft.empty() ? "" : "-" + draft) + "-" + machine + ".json");
}

}  // namespace

std::filesystem::path profile_file(const HardwareProfile& profile) {
  return profile_file(profile.target, profile.draft, profile.machine);
}

std::filesystem::path profile_file(const ModelFiles& models, const EngineOptions& options) {
  return profile_file(fingerprint(models.target),
                      models.draft ? fingerprint(*models.draft) : std::string(),
                      machine_of(models, options));
}

}  // namespace canopy
