#include "src/model/mixture.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <cmath>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "src/base/error.h"
#include "src/model/norms.h"

namespace canopy {

extern std::atomic<std::size_t> canopy_likely_piece, canopy_likely_depth;

namespace {

struct Variant {
  char kind = 'O';
  int most = 0;
  double margin = 0;
  int piece = 1024, depth = 2;
};
std::vector<Variant> read_variants() {
  std::vector<Variant> all;
  std::istringstream in(std::getenv("VAR") ? std::getenv("VAR") : "O");
  for (std::string one; in >> one;) {
    Variant v;
    std::sscanf(one.c_str(), "%c,%d,%lf,%d,%d", &v.kind, &v.most, &v.margin, &v.piece, &v.depth);
    all.push_back(v);
  }
  return all;
}
double least_margin = 0;
std::vector<std::vector<std::int32_t>> read_routes() {
  std::vector<std::vector<std::int32_t>> all;
  if (!std::getenv("ROUTES")) return all;
  std::ifstream in(std::getenv("ROUTES"));
  for (std::string line; std::getline(in, line);) {
    const auto at = line.find("\"rows\":[[");
    if (at == std::string::npos || line.find("],[") != std::string::npos) continue;
    std::istringstream row(line.substr(at + 9));
    std::vector<std::int32_t>& to = all.emplace_back();
    for (std::int32_t e; row >> e; row.get()) to.push_back(e);
  }
  return all;
}
std::map<std::size_t, std::vector<double>> times_of;

/// Gives the form of an expert, whose biases the unit has with those of all.
ExpertForm form_of(const UnitWeights& w, const Gating& gating, std::int32_t expert) {
  const auto own = [&](TensorRole role) {
    const ConstTensorView all = w.vector(role);
    return all.empty() ? all
                       : ConstTensorView(all.data() + expert * all.dim(1) *
                                                          static_cast<std::int64_t>(sizeof(float)),
                                         DType::kF32, {all.dim(1)});
  };
  return {gating, own(TensorRole::kExpertGateBias), own(TensorRole::kExpertUpBias),
          own(TensorRole::kExpertDownBias)};
}

ExpertGroups::Shared shared_of(const ExpertsConfig& experts) {
  using enum ExpertGroups::Shared;
  return experts.shared_dim == 0 ? kNone : experts.shared_switch ? kWeighted : kWhole;
}

}  // namespace

Mixture::Routes Mixture::routes(std::byte* at, std::int64_t n) const {
  const std::int64_t active = config_.experts.active,
                     shared = config_.experts.shared_dim > 0 ? 1 : 0;
  const TensorView chosen(at, DType::kI32, {n, active}),
      weight(chosen.data() + chosen.bytes(), DType::kF32, {n, active}),
      shared_weight(weight.data() + weight.bytes(), DType::kF32, {n, shared}),
      rows(shared_weight.data() + shared_weight.bytes(), DType::kI32, {n * (active + shared), 2});
  return {chosen, weight, shared_weight,
          TensorView(weight.data(), DType::kF32, {n, active + shared}), rows};
}

/// Normalises the rows, and finds which experts they have and by what weights.
void Mixture::choose(const UnitWeights& w, const MixtureRows& rows, const Routes& to,
                     Stream& compute) {
  Ops& ops = device_.ops();
  const ExpertsConfig& experts = config_.experts;
  const std::int64_t n = rows.residual.dim(0);
  for (std::int64_t first = 0; first < n; first += chunk_) {
    const std::int64_t count = std::min<std::int64_t>(n - first, chunk_);
    const auto own = [&](const TensorView& of) { return of.rows(first, count); };
    const TensorView h = own(rows.normed), logits(rows.work, DType::kF32, {count, experts.count});
    normalize(ops, config_, own(rows.residual), w, kMlpNorms, h, compute);
    std::vector<Projection> scores{
        {w.matrix(TensorRole::kRouter), w.vector(TensorRole::kRouterBias), logits}};
    const bool weighted = shared_of(experts) == ExpertGroups::Shared::kWeighted;
    if (weighted)
      scores.push_back({w.matrix(TensorRole::kSharedSwitch), {}, own(to.shared_weight)});
    ops.linear(compute, h, scores);
    ops.route(compute, logits,
              {experts.score, experts.normalised ? Normalised::kYes : Normalised::kNo,
               experts.scale * config_.factors.branch, w.vector(TensorRole::kChoiceBias)},
              {own(to.chosen), own(to.weight)});
    if (weighted)
      ops.activate(compute, Activation::kSigmoid, own(to.shared_weight), own(to.shared_weight));
  }
}

/// Queues the choice of the next mixture's router among its experts, for the rows as they are now.
void Mixture::guess(const NextMixture& next, const MixtureRows& rows, Stream& compute) {
  Ops& ops = device_.ops();
  const ExpertsConfig& experts = config_.experts;
  const std::int64_t n = rows.residual.dim(0);
  const TensorView logits(rows.work, DType::kF32, {n, experts.count}),
      h(rows.work + logits.bytes(), DType::kF32, {n, config_.dim}),
      chosen(h.data() + h.bytes(), DType::kI32, {n, experts.active + 1}),
      weight(chosen.data() + chosen.bytes(), DType::kF32, {n, experts.active + 1});
  const UnitWeights& w = *next.weights;
  normalize(ops, config_, rows.residual, w, kMlpNorms, h, compute);
  const std::array scores{
      Projection{w.matrix(TensorRole::kRouter), w.vector(TensorRole::kRouterBias), logits}};
  ops.linear(compute, h, scores);
  ops.route(compute, logits,
            {experts.score, Normalised::kYes, 1, w.vector(TensorRole::kChoiceBias)},
            {chosen, weight});
  guessed_.resize(static_cast<std::size_t>(n * (experts.active + 1)));
  guess_weight_.resize(guessed_.size());
  device_.download(compute, std::as_writable_bytes(std::span(guessed_)), chosen.data());
  device_.download(compute, std::as_writable_bytes(std::span(guess_weight_)), weight.data());
}

/// Sorts what was guessed by the weight that all rows give it.
void Mixture::rank_guesses() {
  weight_of_.assign(static_cast<std::size_t>(config_.experts.count), 0);
  const std::size_t k = static_cast<std::size_t>(config_.experts.active) + 1;
  const double least = least_margin;
  for (std::size_t row = 0; row < guessed_.size() / k; ++row) {
    const float* const weight = guess_weight_.data() + row * k;
    const float runner = *std::min_element(weight, weight + k);
    for (std::size_t i = 0; i < k; ++i) {
      const double margin = std::log(weight[i] / runner);
      if (margin > least) weight_of_[static_cast<std::size_t>(guessed_[row * k + i])] += margin;
    }
  }
  likely_.clear();
  for (std::size_t e = 0; e < weight_of_.size(); ++e)
    if (weight_of_[e] > 0) likely_.push_back(static_cast<std::int32_t>(e));
  std::stable_sort(likely_.begin(), likely_.end(), [&](std::int32_t a, std::int32_t b) {
    return weight_of_[static_cast<std::size_t>(a)] > weight_of_[static_cast<std::size_t>(b)];
  });
}

Mixture::~Mixture() {
  for (auto& [i, all] : times_of) {
    std::fprintf(stderr, "V %zu", i);
    for (double t : all) std::fprintf(stderr, " %.6f", t);
    std::fprintf(stderr, "\n");
  }
  times_of.clear();
}

void Mixture::run(const UnitWeights& w, int layer, const MixtureRows& rows, ExpertSource* source,
                  const NextMixture& next, Stream& compute, const std::stop_token& stop) {
  require(!compute.capturing(), "the rows of an expert, known when they run, cannot be captured");
  const ExpertsConfig& experts = config_.experts;
  const std::int64_t n = rows.residual.dim(0);
  const Routes routes = this->routes(rows.routes, n);
  choose(w, rows, routes, compute);
  if (!w.experts().empty()) source = nullptr;
  static const std::vector<Variant> variants = read_variants();
  static std::size_t sweeps = 0;
  static std::chrono::steady_clock::time_point begun;
  if (source && layer == 0) {
    const auto now = std::chrono::steady_clock::now();
    if (n == 1 && sweeps > 0)
      times_of[(sweeps - 1) % variants.size()].push_back(
          std::chrono::duration<double>(now - begun).count());
    begun = now;
    sweeps = n == 1 ? sweeps + 1 : 0;
  }
  const Variant& variant = variants[sweeps > 0 ? (sweeps - 1) % variants.size() : 0];
  const bool off = variant.kind == 'O', late = variant.kind == 'B';
  const int most = variant.most;
  least_margin = variant.margin;
  canopy_likely_piece = static_cast<std::size_t>(variant.piece) << 10;
  canopy_likely_depth = static_cast<std::size_t>(variant.depth);
  const bool looks_ahead =
      !off && source && next.weights && n <= std::min(chunk_, 16) && source->may_lack(next.layer);
  if (looks_ahead && !late) guess(next, rows, compute);
  groups_.read(device_, compute, routes.chosen, experts.count, shared_of(experts));
  device_.upload(compute, routes.rows.data(), std::as_bytes(groups_.rows()));
  if (n == 1 && !last_guess_.empty()) {
    made_.resize(16), right_.resize(16), cached_made_.resize(16), cached_right_.resize(16);
    for (std::size_t i = 0; i < last_guess_.size() && i < 16; ++i) {
      const std::int32_t e = last_guess_[i];
      const bool absent = (e & 0x10000) != 0;
      const bool right =
          std::count(groups_.experts().begin(), groups_.experts().end(), e & 0xffff) > 0;
      ++made_[i], right_[i] += right;
      if (absent) ++cached_made_[i], cached_right_[i] += right;
    }
    last_guess_.clear();
    if (std::getenv("DUMP"))
      for (auto& [kind, e, m, absent] : dump_)
        std::fprintf(stderr, "G %c %f %d %d\n", kind, m, absent,
                     int(std::count(groups_.experts().begin(), groups_.experts().end(), e)));
  }
  dump_.clear();
  if (source) source->want(layer, groups_.chosen());
  static const auto routes_ahead = read_routes();
  static std::size_t calls = 0;
  if (n == 1) ++calls;
  if (looks_ahead && variant.kind == 'R' && n == 1) {
    static std::mt19937 random(1);
    likely_ = routes_ahead.at(calls);
    if (routes_ahead.at(calls - 1) !=
        std::vector<std::int32_t>(groups_.chosen().begin(), groups_.chosen().end()))
      std::abort();
    std::shuffle(likely_.begin(), likely_.end(), random);
    std::vector<std::int32_t> absent;
    for (const std::int32_t e : likely_)
      if (!source->is_there(next.layer, e)) absent.push_back(e);
    for (std::int32_t& e : absent)
      if (std::uniform_real_distribution<>()(random) >= variant.margin)
        do e = static_cast<std::int32_t>(random() % experts.count);
        while (source->is_there(next.layer, e) ||
               std::count(likely_.begin(), likely_.end(), e) > 0);
    if (most < int(absent.size())) absent.resize(most);
    source->expect(next.layer, absent);
  } else if (looks_ahead && !late) {
    rank_guesses();
    last_guess_ = likely_;
    for (auto e : likely_)
      dump_.push_back({'A', e, weight_of_[e], !source->is_there(next.layer, e)});
    for (auto& e : last_guess_)
      if (!source->is_there(next.layer, e)) e |= 0x10000;
    if (most < int(likely_.size())) likely_.resize(most);
    source->expect(next.layer, likely_);
  }
  // Number of experts that are computed together. Where computing is quick and a launch is not, as
  // many as a row has, since a source can lend as many at once; else each as soon as it is there.
  const std::size_t together =
      device_.shares_host_memory() ? 1 : static_cast<std::size_t>(experts.active);
  std::vector<ExpertLease> leases;
  std::vector<ExpertUse> uses;
  const auto compute_these = [&] {
    device_.ops().experts(compute, rows.normed, routes.all_weights, uses, rows.residual);
    uses.clear();
    leases.clear();
  };
  const auto add = [&](const ExpertWeights& expert, const ExpertForm& form, std::int64_t first,
                       std::int64_t count) {
    for (std::int64_t done = 0; done < count; done += chunk_)
      uses.push_back(
          {expert, form,
           routes.rows.rows(first + done, std::min<std::int64_t>(count - done, chunk_))});
  };
  // The one that every row has comes first: it is there, while others are still being read.
  if (experts.shared_dim > 0)
    add({w.matrix(TensorRole::kSharedGate), w.matrix(TensorRole::kSharedUp),
         w.matrix(TensorRole::kSharedDown)},
        {experts.gating}, n * experts.active, n);
  if (!uses.empty() && together == 1) compute_these();
  std::size_t waiting = 0;
  for (const std::int32_t index : groups_.experts()) {
    if (source) leases.push_back(source->acquire(layer, index, compute, stop));
    add(source ? *leases.back() : w.experts()[static_cast<std::size_t>(index)],
        form_of(w, experts.gating, index), groups_.first(index), groups_.count(index));
    if (++waiting % together == 0) compute_these();
  }
  if (!uses.empty()) compute_these();
  if (looks_ahead && late) {
    guess(next, rows, compute);
    compute.synchronize();
    rank_guesses();
    if (most < int(likely_.size())) likely_.resize(most);
    source->expect(next.layer, likely_);
  }
  if (looks_ahead && std::getenv("DUMP")) {
    guess(next, rows, compute);
    compute.synchronize();
    rank_guesses();
    for (auto e : likely_)
      dump_.push_back({'B', e, weight_of_[e], !source->is_there(next.layer, e)});
  }
}

}  // namespace canopy
