// The parts of a step, timed on real sweeps over the first layers of the target.
#include "src/measure/steps/step_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/engine/engine_parts.h"
#include "src/measure/steps/fitted_costs.h"
#include "src/speculation/growers/shape_grower.h"

namespace canopy {

namespace {

constexpr std::array kFewRows{1, 4, 16, 64, 256};  // of the first round
constexpr std::array kRowsAtRest{1, 4, kMostRowsAtRest};
constexpr std::array kRows{1, 2, 4, 8, 16, 32, 64, 128, 256, kMostTimedRows};
// A tree whose arithmetic takes this many times the link's and the single row's is never the best.
constexpr double kEnough = 4;
// A wider sweep, or level, is not timed: far beyond where memory is the limit, a curve goes on
// straight. So long, too, a stop request may have to wait for a unit.
constexpr Seconds kLongest{2};
constexpr Seconds kLinkTime{1};
constexpr int kRounds = 3;  // of everything that is over in a moment
constexpr std::size_t kRoundsAtRest = 5;
constexpr int kLongRows = 32;  // a sweep of more is long, and one round of it will do
// Share of a tree's time that the link was busy: it was to the end, and is still.
constexpr double kBusy = 0.95;
constexpr Sampling kSampling{.temperature = 0.6f};

std::size_t rounds_for(int rows, int round) {
  return static_cast<std::size_t>(rows <= kLongRows ? round : 1);
}

class StepCosts {
 public:
  StepCosts(Engine& engine, const StepTiming& timing, MeasuredSamples& samples,
            const std::stop_token& stop)
      : engine_(engine),
        plan_(engine.plan()),
        m_(engine.parts()),
        timing_(timing),
        samples_(samples),
        stop_(stop) {}

  /// Sizes take turns, so that a slow second does not fall on one of them alone.
  void run_at_rest() {
    more_ = true;
    std::vector<int> sizes;
    std::ranges::copy_if(kRowsAtRest, std::back_inserter(sizes),
                         [&](int rows) { return can_sweep(rows); });
    for (std::size_t round = 0; round < kRoundsAtRest; ++round) {
      if (samples_.times(kTimedAtRest, sizes.back()).size() > round) continue;
      step("sweeps where all weights rest", [&] {
        if (round == 0) sweep(1, 0);  // into caches that the processor has, as in mid-run
        if (can_sweep(kRowsAfterText)) time_text(kTextOfOneAtRest, kTextAtRest);
        for (const int rows : sizes)
          samples_.add(kTimedAtRest, {static_cast<double>(rows), all_of(sweep(rows, 0))});
      });
    }
  }

  std::string run() {
    time_link();
    longest_ = {};
    time_needed();
    more_ = true;
    for (int round = 1; round <= kRounds; ++round) time_round(round);
    return in_words();
  }

 private:
  // ---- the order

  /// Sizes up to the first whose arithmetic takes longer than the link, and the next: curves go on
  /// straight from the last two, and trees are chosen among those sizes.
  void time_needed() {
    int before = 0, widest_level = 0;
    for (const int rows : kFewRows) {
      if (!can_sweep(rows) || too_long(rows)) break;
      time_sweep(rows, 1);
      if (before > 0 && disturbed(rows, before)) time_sweep(rows, 2);
      if (before > 0 && enough(before, 1)) break;
      before = widest_level = rows;
    }
    time_text(1);
    time_verification();
    if (!m_.draft()) return;
    m_.set_drafter(nullptr);  // the parts timed next take its place in the plan
    draft_kv_.emplace(device(), m_.draft()->config(), plan_.slots, plan_.kv, plan_.kv_room().nodes);
    time_levels(kFewRows, 1, widest_level);
    time_draft_text(1);
  }

  void time_round(int round) {
    for (const int rows : kRows) {
      if (!can_sweep(rows) || too_long(rows) || enough_below(rows)) break;
      time_sweep(rows, round);
    }
    time_text(round);
    if (!m_.draft()) return;
    time_levels(kRows, round, widest_sweep());
    time_draft_text(round);
  }

  void time_levels(std::span<const int> widths, int round, int widest) {
    for (const int width : widths)
      for (const Drawing drawing : {Drawing::kTopK, Drawing::kSequoia})
        if (width <= widest && can_grow(width) && !level_too_long(drawing, width))
          time_level(drawing, width, round);
  }

  /// One step, unless what is needed is there and no time is left for one as long as any before.
  template <class Body>
  void step(const std::string& what, const Body& body) {
    if (stop_.stop_requested()) throw Stopped();
    const auto start = Clock::now();
    if (more_ && start + longest_ > timing_.until) return;
    if (timing_.before) timing_.before(what);
    body();
    longest_ = std::max<Clock::duration>(longest_, Clock::now() - start);
  }

  // ---- the steps

  void time_link() {
    step("the link", [&] {
      sweep(1, 0);  // the ring is full, as in the middle of a run
      if (rate_of(samples_.all(kLink)) > 0) return;
      const LinkReport before = engine_.link();
      const auto start = Clock::now();
      Seconds computing{};
      do computing += sweep(1, 0).all;
      while (since(start) < kLinkTime);
      const LinkReport link = engine_.link() - before;
      samples_.add(kLink, {static_cast<double>(link.disk_bytes), link.busy});
      add_reads(link, computing);
      if (plan_.device)
        samples_.add(kUpload, {static_cast<double>(link.upload_bytes), link.upload_busy});
    });
  }

  void time_sweep(int rows, int round) {
    if (samples_.times(kArithmetic, rows).size() >= rounds_for(rows, round)) return;
    step("a sweep of " + in_rows(rows), [&] {
      const LinkReport before = engine_.link();
      const Times times = sweep(rows, 0);
      add_reads(engine_.link() - before, times.all);
      const auto add = [&](const char* name, Seconds t) {
        samples_.add(name, {static_cast<double>(rows), t});
      };
      for (const Times::OfUnit& unit : times.units)
        add(of_kind(unit.kind == UnitKind::kMlp ? kMlp : kAttention, unit.layer_kind).c_str(),
            unit.time);
      add(kHead, times.head);
      add(kEmbed, times.embed);
      add(kArithmetic, all_of(times));
    });
  }

  /// Adds nothing where a device with memory of its own computes: the cores are idle.
  void add_reads(const LinkReport& link, Seconds computing) {
    if (plan_.device || link.disk_bytes == 0) return;
    const auto bytes = static_cast<double>(link.disk_bytes);
    samples_.add(kLinkWhileComputing,
                 {std::min(computing, link.busy).count() / bytes, link.busy / bytes});
  }

  void time_text(int round) {
    if (texts_timed() >= static_cast<std::size_t>(round)) return;
    step("attention to a long text", [&] { time_text(kTextOfOne, kText); });
  }
  /// Adds all of it or nothing: a measurement that is cut goes on with what is there. Of many rows
  /// where there is room for them.
  void time_text(const char* of_one, const char* of_many) {
    std::vector<std::pair<std::string, Sample>> timed;
    for (const int text : {0, long_text()})
      for (const auto& [name, rows] : {std::pair(of_one, 1), std::pair(of_many, kRowsAfterText)}) {
        if (!can_sweep(rows)) continue;
        std::map<std::size_t, std::vector<Seconds>> by_kind;
        for (const Times::OfUnit& unit : sweep(rows, text).units)
          if (unit.kind == UnitKind::kAttention) by_kind[unit.layer_kind].push_back(unit.time);
        for (auto& [kind, times] : by_kind)
          timed.emplace_back(of_kind(name, kind),
                             Sample{static_cast<double>(text), median(std::move(times))});
      }
    for (const auto& [name, sample] : timed) samples_.add(name, sample);
  }
  /// Rounds of that; without attention there are none to come.
  std::size_t texts_timed() const {
    const ModelConfig& config = engine_.models().target.config();
    std::size_t fewest = kRounds;
    for (int layer = 0; layer < config.layers; ++layer)
      if (config.layer(layer).attention)
        fewest =
            std::min(fewest, samples_.times(of_kind(kTextOfOne, config.kind(layer)), 0).size());
    return fewest;
  }

  void time_verification() {
    if (!samples_.all(kVerify).empty()) return;
    step("verification", [&] {
      const ConstTensorView logits = forward(1, 0);
      for (int i = 0; i < kRounds; ++i) {
        const auto start = Clock::now();
        try {
          m_.verifier().verify(root_only(0), logits, kSampling, {.seed = 1}, stream());
        } catch (const NotFinite&) {
          forward(1, 0, Finite::kFindOut);
        }
        samples_.add(kVerify, {1, since(start)});
      }
    });
  }

  /// A level of the draft: a tree of two, less its root's (put_costs). While the ring fills again,
  /// as it does in a step: reading takes its share of the memory.
  void time_level(Drawing drawing, int width, int round) {
    const char* const name = name_of(drawing);
    const auto missing = [&](int rounds) {
      return samples_.times(name, width).size() < rounds_for(width, rounds);
    };
    if (!missing(round)) return;
    step("a level of " + std::to_string(width) + " of the draft", [&] {
      grower_.reset();
      grower_.emplace(device(), config_of(width, drawing));
      grow(0, drawing);
      do samples_.add(name, {static_cast<double>(width), grow_while_reading(drawing)});
      while (reading_ && missing(kRounds));
    });
  }

  void time_draft_text(int round) {
    if (samples_.times(kDraftTextOfOne, 0).size() >= static_cast<std::size_t>(round)) return;
    step("the draft after a long text", [&] {
      if (can_grow(kRowsAfterText)) time_draft_text(kDraftText, kRowsAfterText);
      time_draft_text(kDraftTextOfOne, 1);
    });
  }
  void time_draft_text(const char* name, int width) {
    grower_.reset();
    grower_.emplace(device(), config_of(width, Drawing::kTopK));
    grow(0, Drawing::kTopK);
    for (const int text : {long_text(), 0})  // none last: it is counted when a cut one goes on
      samples_.add(name, {static_cast<double>(text), grow(text, Drawing::kTopK)});
  }

  // ---- when to stop

  bool can_sweep(int rows) const { return rows <= plan_.target_limits.max_logit_rows; }
  bool can_grow(int width) const { return two_levels(width).size() <= plan_.policy.shape.size(); }
  int widest_sweep() const {
    double widest = 0;
    for (const Sample& sample : samples_.all(kArithmetic)) widest = std::max(widest, sample.x);
    return static_cast<int>(widest);
  }
  /// All layers' and the head's, of the round that others disturbed least.
  Seconds arithmetic(int rows) const {
    const std::vector<Seconds> times = samples_.times(kArithmetic, rows);
    return times.empty() ? Seconds(0) : *std::min_element(times.begin(), times.end());
  }
  bool enough(int rows, double times) const {
    const Seconds link(bytes_of_all() / rate_of(samples_.all(kLink)));
    return arithmetic(rows) > times * std::max(arithmetic(1), link);
  }
  bool enough_below(int rows) const {
    return std::any_of(kRows.begin(), kRows.end(),
                       [&](int fewer) { return fewer < rows && enough(fewer, kEnough); });
  }
  /// More rows take at most as many times as long.
  bool disturbed(int rows, int before) const {
    return arithmetic(rows) > 1.25 * arithmetic(before) * rows / before;
  }
  /// As what was timed of fewer rows goes on, at most.
  bool too_long(int rows) const {
    int before = 0;
    for (const int fewer : kRows)
      if (fewer < rows && arithmetic(fewer).count() > 0) before = fewer;
    return before > 0 && arithmetic(before) * rows / before > kLongest * share_of_layers();
  }
  bool level_too_long(Drawing drawing, int width) const {
    Sample before;
    for (const Sample& sample : samples_.all(name_of(drawing)))
      if (sample.x < width && sample.x > before.x) before = sample;
    return before.x > 0 && before.t * width / before.x > kLongest;
  }

  /// Returns the bytes that a sweep over all layers reads.
  double bytes_of_all() const {
    double bytes = 0;
    const ModelConfig& config = engine_.models().target.config();
    for (const UnitLayout& unit : m_.sweeps().target.units)
      bytes += static_cast<double>(unit.read.slab_bytes) *
               (unit.unit.kind == UnitKind::kHead ? 1 : layers_like(config.kind(unit.unit.layer)));
    return bytes;
  }
  /// Layers of the whole target for each that the engine has of this kind.
  double layers_like(std::size_t kind) const {
    const ModelConfig& config = engine_.models().target.config();
    int here = 0;
    for (int layer = 0; layer < config.layers; ++layer) here += config.kind(layer) == kind ? 1 : 0;
    return static_cast<double>(timing_.layers.at(kind)) / here;
  }
  double share_of_layers() const {
    const int all = std::accumulate(timing_.layers.begin(), timing_.layers.end(), 0);
    return static_cast<double>(all) / engine_.models().target.config().layers;
  }
  int long_text() const { return plan_.context - plan_.max_prompt; }

  // ---- sweeps and trees

  /// Lets the cache hold `text` tokens. (What they are is no matter of time.)
  void pretend(KvCache& kv, int text) { kv.pretend(text, stream()); }

  enum class Finite : bool { kAssume, kFindOut };
  /// kFindOut: throws Error naming the layer whose values are not finite.
  ConstTensorView forward(int rows, int text, Finite finite = Finite::kAssume) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(rows));
    std::vector<std::int32_t> position(tokens.size()), all(tokens.size());
    for (int i = 0; i < rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      tokens[at] =
          i * 7919 % engine_.models().target.config().vocab;  // rows from all over the table
      position[at] = text + i;
      all[at] = i;
    }
    const KvCaches::Loan kv = m_.target().kv().lend();
    pretend(*kv, text);
    const SequenceRows part{{tokens, position, {}, 0, all}, kv.get(), 0};
    if (finite == Finite::kFindOut) m_.target().refuse_not_finite({&part, 1}, stop_);
    const ConstTensorView logits = m_.target().forward({&part, 1}, stop_);
    stream().synchronize();
    return logits;
  }

  /// The arithmetic of one sweep of a chain, unit by unit.
  struct Times {
    struct OfUnit {
      UnitKind kind;
      std::size_t layer_kind;
      Seconds time;
    };
    Seconds embed{}, head{}, all{};
    std::vector<OfUnit> units;  // but for the head's
  };
  /// Arithmetic of the target's layers, as these took it, and of the head.
  Seconds all_of(const Times& times) const {
    Seconds all = times.head;
    for (const Times::OfUnit& unit : times.units) all += unit.time * layers_like(unit.layer_kind);
    return all;
  }
  static std::string in_rows(int rows) {
    return std::to_string(rows) + (rows == 1 ? " token" : " tokens");
  }
  Times sweep(int rows, int text) {
    const auto start = Clock::now();
    forward(rows, text);
    sweeping_ += since(start);
    ++sweeps_;
    const SweepTimes& times = m_.target().times();
    const auto units = m_.target().units();
    Times of;
    of.embed = times.embed;
    of.all = std::accumulate(times.unit.begin(), times.unit.end(), of.embed);
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (units[i].kind == UnitKind::kHead)
        of.head += times.unit[i];
      else
        of.units.push_back(
            {units[i].kind, engine_.models().target.config().kind(units[i].layer), times.unit[i]});
    }
    return of;
  }

  ShapeGrower::Config config_of(int width, Drawing drawing) const {
    return {.shape = two_levels(width),
            .drawing = drawing,
            .vocab = plan_.policy.vocab,
            .graphs = plan_.policy.graphs};
  }

  Stream& stream() { return m_.target().stream(); }
  Device& device() { return m_.target().kv().pool().device(); }

  Seconds link_busy() const {
    const LinkReport link = engine_.link();
    return plan_.device ? link.upload_busy : link.busy;
  }

  Seconds grow(int text, Drawing drawing) {
    KvCache& kv = *draft_kv_;
    pretend(kv, text);
    const TokenId root = 1;
    const Sampling sampling = drawing == Drawing::kTopK ? Sampling{} : kSampling;
    const ShapeGrower::Request request{{&root, 1}, &kv, sampling, {.seed = 1}};
    stream().synchronize();
    const Seconds busy = link_busy();
    const auto start = Clock::now();
    grower_->grow(*m_.draft(), {&request, 1}, stream(), stop_);
    const Seconds time = since(start);
    reading_ = link_busy() - busy > kBusy * time;
    growing_ += time;
    return time;
  }

  /// After the sweep before, where the link still reads for the next one; else after a new one.
  Seconds grow_while_reading(Drawing drawing) {
    if (reading_)
      if (const Seconds time = grow(0, drawing); reading_) return time;
    sweep(1, 0);
    return grow(0, drawing);
  }

  std::string in_words() const {
    const std::uint64_t bytes = plan_.device ? plan_.device->upload_bytes : plan_.sweep_bytes;
    const int layers = engine_.models().target.config().layers;
    std::string words = std::to_string(sweeps_) + " sweeps over " +
                        (layers == 1 ? "a layer" : std::to_string(layers) + " layers") +
                        " and the head, " + format_size(bytes) + " each, took " +
                        format_seconds(sweeping_);
    if (growing_.count() > 0) words += ", the draft " + format_seconds(growing_);
    return words;
  }

  const Engine& engine_;
  const Plan& plan_;
  EngineParts m_;
  const StepTiming& timing_;
  MeasuredSamples& samples_;
  const std::stop_token& stop_;
  bool more_ = false;          // set once all that is needed is there
  Clock::duration longest_{};  // step but the first
  int sweeps_ = 0;
  Seconds sweeping_{}, growing_{};
  bool reading_ = false;  // the link was busy to the end of the last tree
  std::optional<KvCache> draft_kv_;
  std::optional<ShapeGrower> grower_;
};

}  // namespace

TreeShape two_levels(int width) { return TreeShape::sequences(width, 2); }

std::string time_steps(Engine& engine, const StepTiming& timing, MeasuredSamples& samples,
                       const std::stop_token& stop) {
  return StepCosts(engine, timing, samples, stop).run();
}

void time_at_rest(Engine& engine, const StepTiming& timing, MeasuredSamples& samples,
                  const std::stop_token& stop) {
  StepCosts(engine, timing, samples, stop).run_at_rest();
}

}  // namespace canopy
