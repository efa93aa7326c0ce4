// What a step is made of, measured on real sweeps over the first layers of the target.
#include "src/measure/hardware.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <thread>
#include <utility>

#include "src/base/ambient.h"
#include "src/base/cache_dir.h"
#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/model_tensors.h"
#include "src/engine/runtime.h"
#include "src/machine/cpus.h"
#include "src/machine/process_memory.h"
#include "src/speculation/draft_policy.h"

namespace canopy {

namespace {

constexpr int kLayers = 2;           // of the target: their units count as repetitions
constexpr int kText = 1024;          // tokens behind which attention is measured a second time
constexpr int kRowsBehindText = 16;  // that attend to them
constexpr std::array kRows{1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
// A tree whose arithmetic takes so many times the link's and the single row's is never the best.
constexpr double kEnough = 4;
constexpr Seconds kLinkTime{1};
constexpr int kRounds = 3;  // of everything that is over in a moment

/// The models as they are, but for all layers of the target behind the first.
ModelFiles first_layers(const ModelFiles& models) {
  const Checkpoint& t = models.target;
  ModelConfig config = t.config();
  config.layers = std::min(config.layers, kLayers);
  std::vector<TensorEntry> tensors;
  for (const TensorEntry& tensor : t.tensors()) {
    const auto known = find_tensor(tensor.name);
    if (!known || known->layer < config.layers) tensors.push_back(tensor);
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

/// A root, so many children, a child of each: a level of one row and one of `width`.
TreeShape two_levels(int width) { return TreeShape::sequences(width, 2); }

Seconds median(std::vector<Seconds> times) {
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// The kernel gives back what reads had pinned a moment after they are over: whoever plans next
/// should find the memory that there was.
void wait_until_free(std::size_t bytes) {
  constexpr Seconds kMost{2};
  constexpr std::size_t kSlack = 64u << 20;  // others come and go
  const auto start = Clock::now();
  while (system_memory().free() + kSlack < bytes && since(start) < kMost)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace

/// The measurements, in the order in which they are made, on an engine of the first layers.
class Measurement {
 public:
  Measurement(Engine& engine, int all_layers, const OnMeasure& on_measure, std::stop_token stop)
      : m_(engine.runtime()),
        all_layers_(all_layers),
        on_measure_(on_measure),
        stop_(std::move(stop)) {}

  void link(HardwareProfile& profile) {
    say("the link");
    sweep(1, 0);  // the ring is full, as in the middle of a run
    const LinkReport before = m_.link();
    const auto start = Clock::now();
    for (int i = 0; i < kRounds || since(start) < kLinkTime; ++i) sweep(1, 0);
    const LinkReport link = m_.link() - before;
    profile.link_bytes_per_second = static_cast<double>(link.disk_bytes) / link.busy.count();
    if (m_.uploads)
      profile.upload_bytes_per_second =
          static_cast<double>(link.upload_bytes) / link.upload_busy.count();
  }

  void sweeps(HardwareProfile& profile) {
    Samples samples;
    Seconds of_one{};
    for (const int rows : kRows) {
      if (rows > m_.plan.target_limits.max_logit_rows) break;
      say("a sweep of " + std::to_string(rows) + " tokens");
      Seconds arithmetic = Seconds::max();  // of the round that others disturbed least
      for (int i = 0; i < rounds_of(rows); ++i)
        arithmetic = std::min(arithmetic, sweep(rows, 0, &samples));
      most_rows_ = rows;
      if (rows == 1) of_one = arithmetic;
      const double bytes = static_cast<double>(m_.plan.sweep_bytes);
      if (arithmetic > kEnough * std::max(of_one, Seconds(bytes / profile.link_bytes_per_second)))
        break;
    }
    profile.embed = Curve::fit(samples.embed);
    profile.attention = Curve::fit(samples.attention);
    profile.mlp = Curve::fit(samples.mlp);
    profile.head = Curve::fit(samples.head);
    say("attention to a long text");
    profile.context = slope([&](int text) {
      Samples one;
      sweep(kRowsBehindText, text, &one);
      std::vector<Seconds> times;
      for (const Sample& s : one.attention) times.push_back(s.t);
      return median(times);
    });
  }

  void drafting(HardwareProfile& profile) {
    m_.drafter.reset();  // what follows takes its place in the plan
    draft_kv_.emplace(*m_.device, m_.models.draft->config(), m_.plan.slots, m_.plan.kv);
    HardwareProfile::DraftCosts costs;
    costs.level_greedy = levels(Drawing::kTopK);
    costs.level_sampled = levels(Drawing::kSequoia);
    const DraftPolicy::Config config = config_of(kRowsBehindText, Drawing::kTopK);
    policy_.emplace(*m_.device, config);
    costs.context = slope([&](int text) { return grow(text, Drawing::kTopK); });
    profile.drafting = costs;
  }

  void verification(HardwareProfile& profile) {
    say("verification");
    const ConstTensorView logits = forward(1, 0);
    std::vector<Seconds> times;
    for (int i = 0; i < kRounds; ++i) {
      const auto start = Clock::now();
      try {
        m_.verifier->verify(root_only(0), logits, kSampling, {.seed = 1}, *m_.compute);
      } catch (const NotFinite&) {
        forward(1, 0, Finite::kFindOut);
      }
      times.push_back(since(start));
    }
    profile.verify = median(times);
  }

 private:
  struct Samples {
    std::vector<Sample> embed, attention, mlp, head;
  };
  static constexpr Sampling kSampling{.temperature = 0.6f};

  static int rounds_of(int rows) { return rows <= 32 ? kRounds : 1; }

  void say(const std::string& what) const {
    if (stop_.stop_requested()) throw Stopped();
    if (on_measure_) on_measure_(what);
  }

  /// Lets the cache hold `text` tokens. (What they are is no matter of time.)
  void pretend(KvCache& kv, int text) const {
    kv.truncate(0);
    kv.commit(counting(0, static_cast<std::size_t>(text)), *m_.compute);
  }

  enum class Finite : bool { kAssume, kFindOut };
  /// kFindOut: throws Error naming the layer whose values are not finite.
  ConstTensorView forward(int rows, int text, Finite finite = Finite::kAssume) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(rows));
    std::vector<std::int32_t> position(tokens.size()), all(tokens.size());
    for (int i = 0; i < rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      tokens[at] = i * 7919 % m_.models.target.config().vocab;  // rows from all over the table
      position[at] = text + i;
      all[at] = i;
    }
    const KvCaches::Loan kv = m_.kv->lend();
    pretend(*kv, text);
    const SequenceRows part{{tokens, position, {}, 0, all}, kv.get(), 0};
    if (finite == Finite::kFindOut) m_.refuse_not_finite({&part, 1}, stop_);
    const ConstTensorView logits = m_.target->forward({&part, 1}, *m_.compute, stop_);
    m_.compute->synchronize();
    return logits;
  }

  /// One sweep of a chain; its arithmetic, for all layers of the model.
  Seconds sweep(int rows, int text, Samples* samples = nullptr) {
    forward(rows, text);
    const SweepTimes& times = m_.target_times->times();
    const auto units = m_.target_weights->units();
    Seconds layers{}, head{};
    for (std::size_t i = 0; i < units.size(); ++i) {
      const Seconds t = times.unit[i];
      if (units[i].part == Part::kHead) {
        head += t;
        continue;
      }
      layers += t;
      if (samples)
        (units[i].part == Part::kMlp ? samples->mlp : samples->attention)
            .push_back({static_cast<double>(rows), t});
    }
    if (samples) {
      samples->head.push_back({static_cast<double>(rows), head});
      samples->embed.push_back({static_cast<double>(rows), times.embed});
    }
    return head + layers * (static_cast<double>(all_layers_) / m_.models.target.config().layers);
  }

  /// Seconds per row and token of text, from time(text).
  template <class Time>
  Seconds slope(Time time) const {
    const int text = m_.plan.context - m_.plan.max_prompt;
    std::vector<Seconds> near, far;
    for (int i = 0; i < kRounds; ++i) {
      near.push_back(time(0));
      far.push_back(time(text));
    }
    return std::max(Seconds(0), median(far) - median(near)) / (kRowsBehindText * text);
  }

  DraftPolicy::Config config_of(int width, Drawing drawing) const {
    return {.shape = two_levels(width),
            .drawing = drawing,
            .vocab = m_.plan.policy.vocab,
            .graphs = m_.plan.policy.graphs};
  }

  /// While the ring fills again, as it does in a step: reading takes its share of the memory.
  Seconds grow_while_reading(Drawing drawing) {
    sweep(1, 0);
    return grow(0, drawing);
  }

  Seconds grow(int text, Drawing drawing) {
    KvCache& kv = *draft_kv_;
    pretend(kv, text);
    const TokenId root = 1;
    const Sampling sampling = drawing == Drawing::kTopK ? Sampling{} : kSampling;
    const DraftPolicy::Request request{{&root, 1}, &kv, sampling, {.seed = 1}};
    m_.compute->synchronize();
    const auto start = Clock::now();
    policy_->grow(*m_.draft, {&request, 1}, *m_.compute, stop_);
    return since(start);
  }

  /// What a level of the draft takes by its width: a tree of two levels, less its root's.
  Curve levels(Drawing drawing) {
    std::vector<Sample> samples;
    Seconds of_one{};
    for (const int width : kRows) {
      if (width > most_rows_ || two_levels(width).size() > m_.plan.policy.shape.size()) break;
      say("a level of " + std::to_string(width) + " tokens");
      policy_.reset();
      policy_.emplace(*m_.device, config_of(width, drawing));
      grow(0, drawing);
      std::vector<Seconds> times;
      for (int i = 0; i < rounds_of(width); ++i) times.push_back(grow_while_reading(drawing));
      if (width == 1) of_one = median(times) / 2;
      samples.push_back({static_cast<double>(width), std::max(Seconds(0), median(times) - of_one)});
    }
    return Curve::fit(samples);
  }

  Runtime& m_;
  const int all_layers_;
  const OnMeasure& on_measure_;
  std::stop_token stop_;
  int most_rows_ = 0;  // of the widest sweep measured
  std::optional<KvCache> draft_kv_;
  std::optional<DraftPolicy> policy_;
};

namespace {

/// What the device calls itself. A GPU is not opened for that: it would take memory there.
std::string name_of_device(const EngineOptions& options) {
  if (options.device.kind == "cuda" && !options.make_device) {
    const Gpus gpus = find_gpus();
    const auto ordinal = static_cast<std::size_t>(options.device.ordinal);
    if (ordinal < gpus.all.size()) return gpus.all[ordinal].name;
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

HardwareProfile measure_hardware(const ModelFiles& models, const EngineOptions& options,
                                 const OnMeasure& on_measure, std::stop_token stop) {
  EngineOptions probe = options;
  probe.trace = nullptr;
  probe.plan.resident = 0;
  probe.plan.resident_layers.reset();
  probe.plan.from_disk = true;
  probe.plan.temperature = 0.6;
  probe.plan.inner.reset();
  probe.plan.lenience.reset();
  probe.plan.heads.reset();
  probe.plan.typical.reset();
  probe.plan.method = models.draft ? SpeculationMethod::kSequoia : SpeculationMethod::kNone;
  const std::size_t free = system_memory().free();
  std::optional<Engine> engine;
  const int positions = learned_positions(models), text = std::min(kText, positions / 2);
  for (int rows = std::min(kRows.back(), positions - text); !engine; rows /= 2) {
    probe.plan.shape = two_levels(std::max(1, rows / 2));
    probe.plan.max_prompt = probe.plan.logit_rows = rows;
    probe.plan.context = text + rows;
    try {
      engine.emplace(first_layers(models), probe, LoadProgress(), stop);
    } catch (const Error&) {
      if (rows == 1) throw;  // it says what is too small
    }
  }
  HardwareProfile profile;
  profile.version = CANOPY_VERSION;
  profile.date = today();
  profile.code = measured_code();
  profile.machine = machine_of(models, options);
  profile.memory_bytes = system_memory().total;
  if (const auto ordinal = static_cast<std::size_t>(options.device.ordinal);
      options.device.kind == "cuda")
    profile.gpu_memory_bytes = find_gpus().all.at(ordinal).memory;
  profile.target = fingerprint(models.target);
  if (models.draft) profile.draft = fingerprint(*models.draft);
  {  // it holds a part of the engine's device
    Measurement measurement(*engine, models.target.config().layers, on_measure, std::move(stop));
    measurement.link(profile);
    measurement.sweeps(profile);
    measurement.verification(profile);
    if (models.draft) measurement.drafting(profile);
  }
  engine.reset();
  wait_until_free(free);
  return profile;
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
