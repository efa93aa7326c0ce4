#include "planner/cost_model.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "src/base/error.h"

namespace canopy {

std::uint64_t WeightPlan::sweep_bytes() const {
  std::uint64_t sum = 0;
  for (const SweepUnit& unit : units) sum += unit.bytes;
  return sum;
}

bool WeightPlan::reads() const {
  return sweep_bytes() > 0 || (experts.bytes > 0 && experts.absent() > 0);
}

bool WeightPlan::gives_way() const {
  return least_stay || std::ranges::any_of(units, &SweepUnit::gives_way);
}

WeightPlan WeightPlan::when_full() const {
  WeightPlan full = *this;
  for (SweepUnit& unit : full.units) {
    if (!unit.gives_way || unit.bytes > 0) continue;
    unit.bytes = unit.own_bytes;
    full.resident_bytes -= unit.own_bytes;
  }
  if (least_stay) {
    full.resident_bytes -= static_cast<std::uint64_t>(experts.stay - *least_stay) * experts.bytes;
    full.experts.stay = *least_stay;
  }
  return full;
}

const char* name(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::kLink:
      return "link";
    case Bottleneck::kCompute:
      return "compute";
    case Bottleneck::kNetwork:
      return "network";
    default:
      return "drafting";
  }
}

Seconds ring_period(std::span<const std::uint64_t> bytes, std::span<const Seconds> compute,
                    Seconds between, std::uint64_t ring_bytes, double bandwidth) {
  // Rhythms found by playing: enough sweeps to fill the ring, then the mean of a few.
  constexpr int kWarmUp = 3, kMeasured = 3;
  struct Done {  // a unit that travelled: where its bytes end in the stream, when they are free
    double end, at;
  };
  std::vector<Done> done;
  std::size_t freed = 0;  // done[0 .. freed) are out of the ring
  double position = 0;    // bytes asked for so far, of all sweeps
  double link_at = 0;     // when the last of them arrived
  double now = 0, measured_from = 0;
  for (int sweep = 0; sweep < kWarmUp + kMeasured; ++sweep) {
    if (sweep == kWarmUp) measured_from = now;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] > 0) {
        const double end = position + static_cast<double>(bytes[i]);
        while (true) {
          const double room = (freed > 0 ? done[freed - 1].end : 0.0) +
                              static_cast<double>(ring_bytes);  // up to here it may read
          const double to = std::min(end, room);
          if (to > position) link_at += (to - position) / bandwidth;
          position = std::max(position, to);
          if (position >= end) break;
          require(freed < done.size(), "cost model: the ring does not hold its largest unit");
          link_at = std::max(link_at, done[freed++].at);
        }
        now = std::max(now, link_at);
      }
      now += compute[i].count();
      if (bytes[i] > 0) done.push_back({position, now});
    }
    now += between.count();
  }
  return Seconds((now - measured_from) / kMeasured);
}

Seconds Network::gather(double rows, double columns, double exchanges) const {
  if (ranks == 1 || columns == 0) return Seconds(0);
  require(bytes_per_second > 0, "cost model: the network between the ranks has no speed");
  const int rounds = std::bit_width(static_cast<unsigned>(ranks - 1));
  const double bytes = rows * columns * sizeof(float) * (ranks - 1) / ranks;
  return exchanges * rounds * latency + Seconds(bytes / bytes_per_second);
}

CostModel::CostModel(HardwareProfile profile, const Network& network)
    : profile_(std::move(profile)), network_(network) {}

Seconds CostModel::draft(const StepQuery& query) const {
  const TreeShape& shape = *query.shape;
  if (shape.size() == 1) return Seconds(0);
  require(profile_.drafting.has_value(),
          "cost model: this profile was measured without a draft model");
  const auto& costs = *profile_.drafting;
  const Curve& level = query.sampled ? costs.level_sampled : costs.level_greedy;
  if (query.valued) {
    const auto forward = [&](double rows) {
      return level.at(rows) + query.context * costs.context.at(rows, query.sequences);
    };
    return forward(query.sequences) +
           query.valued->forwards * forward(query.valued->rows * query.sequences);
  }
  std::vector<int> inner(static_cast<std::size_t>(shape.levels()), 0);  // nodes that are run
  NodeId node = 0;
  for (std::size_t l = 0; l < inner.size(); ++l)
    for (int i = 0; i < shape.level_widths()[l]; ++i, ++node)
      if (shape.child_count(node) > 0) ++inner[l];
  Seconds sum{};
  for (const int count : inner) {
    const double rows = count * query.sequences;
    if (count > 0) sum += level.at(rows) + query.context * costs.context.at(rows, query.sequences);
  }
  return sum;
}

double CostModel::share_of_time(double rows, const WeightPlan& weights) const {
  const std::span<const Sample> timed = profile_.at_rest.knots();
  if (timed.empty() || weights.reads()) return 1;
  rows = std::min(rows, timed.back().x);
  Seconds travelling = profile_.head.at(rows);
  for (const SweepUnit& unit : weights.units) {
    if (unit.kind == UnitKind::kHead || unit.layer_kind >= profile_.layers.size()) continue;
    const HardwareProfile::LayerCosts& layer = profile_.layers[unit.layer_kind];
    const Curve& curve = unit.kind == UnitKind::kMlp ? layer.mlp : layer.attention;
    if (!curve.knots().empty()) travelling += curve.at(rows);
  }
  return travelling.count() > 0 ? std::min(1.0, profile_.at_rest.at(rows) / travelling) : 1;
}

double CostModel::bandwidth(const WeightPlan& weights) const {
  if (weights.sweep_bytes() == 0 && weights.experts.bytes == 0) return 1;  // nothing asks for it
  const double speed =
      weights.uploaded ? profile_.upload_bytes_per_second : profile_.link_bytes_per_second;
  require(speed > 0,
          "cost model: this profile has no speed of the link, which the weights must travel");
  return speed / network_.reads;
}

CostModel::Arithmetic CostModel::arithmetic(const Rows& of, double context,
                                            const WeightPlan& weights) const {
  const double rows = of.all;
  struct Layer {
    std::optional<Seconds> attention, mlp;
    Seconds per_token{};  // of text
  };
  std::vector<Layer> layers;
  for (const HardwareProfile::LayerCosts& kind : profile_.layers) {
    Layer& layer = layers.emplace_back();
    const ContextCost& text =
        kind.context_at_rest && !weights.reads() ? *kind.context_at_rest : kind.context;
    layer.per_token = text.at(rows, of.texts);
    if (!kind.attention.knots().empty()) layer.attention = kind.attention.at(rows);
    if (!kind.mlp.knots().empty()) layer.mlp = kind.mlp.at(rows);
  }
  const double share = share_of_time(rows, weights);
  const Seconds head = share * profile_.head.at(of.head);
  const auto cost_of = [&](const SweepUnit& unit) {
    const double own = unit.gathered > 0 ? network_.share : 1;
    if (unit.kind == UnitKind::kHead) return own * unit.share * head;
    std::optional<Seconds> cost;
    if (unit.layer_kind < layers.size()) {
      const Layer& layer = layers[unit.layer_kind];
      cost = unit.kind == UnitKind::kMlp ? layer.mlp : layer.attention;
      if (cost) *cost *= own * share;
      if (cost && unit.kind == UnitKind::kAttention)
        *cost +=
            layer.per_token * (unit.window == 0 ? context : std::min<double>(context, unit.window));
    }
    if (!cost)
      throw Error("cost model: this profile was measured of a model whose layers are of " +
                  std::to_string(layers.size()) + (layers.size() == 1 ? " kind" : " kinds") +
                  ", and this model has others; measure again with canopy calibrate hardware");
    return *cost;
  };
  constexpr double kExchanges = 2;  // of a layer's unit: before its last product, and after it
  Arithmetic all;
  for (const SweepUnit& unit : weights.units) {
    const bool is_head = unit.kind == UnitKind::kHead;
    const Seconds own = cost_of(unit),
                  exchange =
                      network_.gather(is_head ? of.head : rows, static_cast<double>(unit.gathered),
                                      is_head ? unit.share : kExchanges);
    all.unit.push_back(own + exchange);
    all.total += own;
    all.exchange += exchange;
  }
  if (!weights.table_rests) all.embed = profile_.embed.at(rows);
  all.total += all.embed;
  return all;
}

Seconds CostModel::link(const WeightPlan& weights, Seconds computing) const {
  const Seconds pace(static_cast<double>(weights.sweep_bytes()) / bandwidth(weights));
  if (!weights.uploaded) {  // slower for as long as both go on
    const double slowing = profile_.link_slowing;
    return std::min(pace + slowing * computing, pace / (1 - slowing));
  }
  if (weights.disk_bytes == 0) return pace;
  require(profile_.link_bytes_per_second > 0,
          "cost model: this profile has no speed of the disk, from which the weights must come");
  return std::max(
      pace, Seconds(static_cast<double>(weights.disk_bytes) / profile_.link_bytes_per_second));
}

std::optional<int> CostModel::rows_behind_link(const WeightPlan& weights, double context) const {
  if (weights.sweep_bytes() == 0) return std::nullopt;
  int below = 1, above = 2 * kMostTreeNodes;  // arithmetic grows with its rows
  while (above - below > 1) {
    const int rows = (below + above) / 2;
    const auto each = static_cast<double>(rows);
    const Arithmetic taken = arithmetic({each, each, 1}, context, weights);
    const Seconds all = taken.total + taken.exchange;
    (all <= link(weights, all) ? below : above) = rows;
  }
  return below;
}

StepCost CostModel::step(const StepQuery& query, const WeightPlan& weights) const {
  StepCost cost;
  cost.draft = draft(query);
  cost.verify = query.tokens * query.sequences * profile_.verify;
  const int nodes = query.shape->size() * query.sequences;
  const int rows = nodes + query.prompt_rows;
  const Arithmetic target = arithmetic(
      {static_cast<double>(rows), static_cast<double>(nodes), static_cast<double>(query.sequences)},
      query.context, weights);
  cost.compute = target.total;
  cost.exchange = target.exchange;
  const Seconds between = cost.draft + cost.verify;
  cost.link = link(weights, target.total + between);
  std::vector<std::uint64_t> bytes;
  for (const SweepUnit& unit : weights.units) bytes.push_back(unit.bytes);
  Seconds experts(static_cast<double>(weights.experts.bytes_of(rows)) / bandwidth(weights));
  if (weights.host_experts.bytes > 0) {
    require(profile_.link_bytes_per_second > 0,
            "cost model: this profile has no speed of the disk, from which experts must come");
    experts += Seconds(static_cast<double>(weights.host_experts.bytes_of(rows)) /
                       profile_.link_bytes_per_second);
  }
  const double speed = cost.link.count() > 0 && !weights.uploaded
                           ? static_cast<double>(weights.sweep_bytes()) / cost.link.count()
                           : bandwidth(weights);
  cost.link += experts;
  cost.step =
      ring_period(bytes, target.unit, between + target.embed, weights.ring_bytes, speed) + experts;
  if (weights.disk_bytes > 0) cost.step = std::max(cost.step, cost.link);
  const Seconds most = std::max({cost.compute, cost.draft, cost.exchange});
  cost.bottleneck = cost.link >= cost.compute + cost.draft + cost.exchange ? Bottleneck::kLink
                    : cost.compute == most                                 ? Bottleneck::kCompute
                    : cost.draft == most                                   ? Bottleneck::kDrafting
                                                                           : Bottleneck::kNetwork;
  return cost;
}

}  // namespace canopy
