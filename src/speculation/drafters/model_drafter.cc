#include "src/speculation/drafters/model_drafter.h"

#include <algorithm>
#include <span>
#include <utility>

#include "src/base/error.h"
#include "src/speculation/drafters/draft_reading.h"
#include "src/speculation/growers/beam_grower.h"
#include "src/speculation/growers/chain_grower.h"
#include "src/speculation/growers/graph_grower.h"
#include "src/speculation/growers/hierarchy_grower.h"
#include "src/speculation/growers/valued_grower.h"
#include "src/speculation/logits/draw_row.h"

namespace canopy {

namespace {

constexpr std::size_t kSweepsOfAFit = 64;

bool has_shapes(const ShapeGrower::Config& config) {
  return config.growth.kind == Growth::Kind::kShape ||
         (config.growth.kind == Growth::Kind::kValued && !target_decides(config.drawing));
}

/// The part of the config that trees by rows are grown by; valued trees have a room of their own.
ShapeGrower::Config config_of_rows(ShapeGrower::Config config) {
  if (config.growth.kind != Growth::Kind::kValued) return config;
  const TreeRoom room = ShapeGrower::room_of(config);
  config.room = {room.nodes, room.run, room.widest, room.run};
  config.drawing = Drawing::kTopK;
  return config;
}

}  // namespace

class ModelDrafter::State final : public DraftState {
 public:
  State(KvCaches::Loan loan, std::unique_ptr<DraftState> inner_state,
        std::shared_ptr<ChanceLearner> of_all)
      : cache(std::move(loan)), inner(std::move(inner_state)), learner(std::move(of_all)) {}
  ~State() override { fit(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Takes what the target wrote along the path, at the nodes that the draft has run.
  void learn(const Draft& draft, const Verdict& verdict) {
    for (std::size_t i = 0; i < verdict.path.size(); ++i) {
      const std::int32_t run = draft.row[static_cast<std::size_t>(verdict.path[i])];
      if (run < 0) continue;
      const bool last = i + 1 == verdict.path.size();
      const TokenId written = last ? verdict.next : draft.tree.token(verdict.path[i + 1]);
      const BestTokens& of = best[static_cast<std::size_t>(run)];
      const auto place = std::find(of.tokens.begin(), of.tokens.end(), written);
      const auto rank = place == of.tokens.end() ? 0 : place - of.tokens.begin() + 1;
      contexts.push_back({of.row, static_cast<int>(rank)});
    }
    learner->observe(kind, draft.tree.size(), expected_tokens);
    if (++sweeps >= kSweepsOfAFit) fit();
  }
  void fit() {
    learner->learn(kind, contexts);
    contexts.clear();
    sweeps = 0;
  }

  const KvCaches::Loan cache;
  bool has_grown = false;                   // then its prompt is read
  const std::unique_ptr<DraftState> inner;  // of a hierarchy
  // These two serve chains whose length the draft's confidence decides.
  ConfidenceTracker tracker;
  std::vector<double> confidences;  // of the last chain
  // These serve valued trees: of the last one, then of all since the last fit.
  const std::shared_ptr<ChanceLearner> learner;
  CopyIndex copies;
  ChanceKind kind = ChanceKind::kGreedy;
  std::vector<BestTokens> best;  // of the nodes that were run; empty: nothing is learned of them
  double expected_tokens = 1;
  std::vector<ChanceContext> contexts;
  std::size_t sweeps = 0;
};

ModelDrafter::ModelDrafter(Device& device, Transformer& model, const ShapeGrower::Config& config,
                           KvRoom room, std::unique_ptr<Drafter> inner, Calibrated calibrated)
    : model_(model),
      config_(config),
      inner_(std::move(inner)),
      learner_(std::make_shared<ChanceLearner>(std::move(calibrated))),
      caches_(device, model.config(), room, config.max_requests) {
  require((inner_ != nullptr) == (config.growth.kind == Growth::Kind::kHierarchy),
          "draft: a hierarchy has a second draft, and nothing else has");
  if (has_shapes(config)) shape_grower_.emplace(device, config);
  if (config.growth.kind != Growth::Kind::kShape) frontier_.emplace(device, config_of_rows(config));
}

std::unique_ptr<DraftState> ModelDrafter::open() {
  return std::make_unique<State>(caches_.lend(), inner_ ? inner_->open() : nullptr, learner_);
}

std::vector<Draft> ModelDrafter::grow(std::span<const DraftRequest> requests,
                                      const TreeShape& shape, Stream& stream,
                                      std::stop_token stop) {
  if (shape_grower_ && shape_grower_->shape() != shape) shape_grower_->reshape(shape);
  std::vector<ShapeGrower::Request> growing;
  for (const DraftRequest& request : requests) {
    KvCache& cache = *static_cast<State&>(*request.state).cache;
    cache.share(request.text);
    cache.turn_to(model_.config().text_length(request.text.size()));
    cache.reuse_prefix(request.text.first(request.text.size() - 1), stream);
    if (!std::exchange(static_cast<State&>(*request.state).has_grown, true))
      cache.expect_reuse_at(static_cast<int>(request.text.size()) - 1);
    growing.push_back({request.text.subspan(static_cast<std::size_t>(cache.length())), &cache,
                       request.sampling, request.rng, request.best_tokens, request.editor});
  }
  if (!frontier_) return shape_grower_->grow(model_, growing, stream, std::move(stop));
  if (config_.growth.kind == Growth::Kind::kValued)
    return grow_valued(requests, growing, shape, stream, stop);
  return grow_by_rows(requests, growing, shape, stream, stop);
}

std::vector<Draft> ModelDrafter::grow_valued(std::span<const DraftRequest> requests,
                                             std::span<const ShapeGrower::Request> texts,
                                             const TreeShape& shape, Stream& stream,
                                             const std::stop_token& stop) {
  std::vector<ShapeGrower::Request> drawn;
  std::vector<std::unique_ptr<ValuedGrower>> growers;
  std::vector<FrontierGrower::Request> valued;
  const int rows = valued_rows(shape.size()), run = shape.size() + kSpareForwards * rows;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    State& state = static_cast<State&>(*requests[r].state);
    state.best.clear();
    if (!is_valued(texts[r])) {
      drawn.push_back(texts[r]);
      continue;
    }
    state.copies.follow(requests[r].text);
    state.kind = chance_kind(static_cast<double>(texts[r].sampling.temperature));
    growers.push_back(std::make_unique<ValuedGrower>(
        texts[r].pending.back(),
        ValuedGrower::Limits{shape.size(), rows, run, config_.growth.forwards, prices_,
                             config_.vocab},
        learner_->weights(state.kind), &state.copies));
    valued.push_back({texts[r], growers.back().get()});
  }
  require(static_cast<int>(valued.size()) * run <= ShapeGrower::room_of(config_).run,
          "draft: room was made for fewer valued trees of this size");
  std::vector<Draft> of_shape, by_rows;
  if (!drawn.empty()) of_shape = shape_grower_->grow(model_, drawn, stream, stop);
  if (!valued.empty()) by_rows = frontier_->grow(model_, valued, stream, stop);
  std::vector<Draft> drafts;
  std::size_t next_drawn = 0, next_valued = 0;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (!is_valued(texts[r])) {
      drafts.push_back(std::move(of_shape[next_drawn++]));
      continue;
    }
    State& state = static_cast<State&>(*requests[r].state);
    ValuedGrower& grower = *growers[next_valued];
    Draft& draft = drafts.emplace_back(std::move(by_rows[next_valued++]));
    state.expected_tokens = grower.expected_tokens();
    std::vector<BestTokens> best = grower.take_best();
    for (const std::int32_t of : draft.row) {
      std::vector<TokenId>& tokens = draft.best.emplace_back();
      if (of < 0) continue;
      const BestTokens& row = best[static_cast<std::size_t>(of)];  // a copy has no rank of its own
      tokens.assign(row.tokens.begin(), row.tokens.begin() + row.row.count);
    }
    // Edited rows are no evidence of the pair.
    if (texts[r].editor == nullptr) state.best = std::move(best);
  }
  return drafts;
}

std::vector<Draft> ModelDrafter::grow_by_rows(std::span<const DraftRequest> requests,
                                              std::span<const ShapeGrower::Request> texts,
                                              const TreeShape& shape, Stream& stream,
                                              const std::stop_token& stop) {
  std::vector<std::unique_ptr<Grower>> growers;
  std::vector<FrontierGrower::Request> growing;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    growers.push_back(grower_of(requests[r], texts[r], shape, stream, stop));
    growing.push_back({texts[r], growers.back().get()});
  }
  std::vector<Draft> drafts = frontier_->grow(model_, growing, stream, stop);
  for (std::size_t r = 0; r < texts.size(); ++r) {
    const std::span<const double> sure = growers[r]->confidences();
    static_cast<State&>(*requests[r].state).confidences.assign(sure.begin(), sure.end());
  }
  return drafts;
}

std::unique_ptr<Grower> ModelDrafter::grower_of(const DraftRequest& request,
                                                const ShapeGrower::Request& text,
                                                const TreeShape& shape, Stream& stream,
                                                const std::stop_token& stop) const {
  const TokenId root = text.pending.back();
  const bool draws = text.sampling.temperature > 0 && !text.best_tokens;
  const auto rng = draws ? std::optional(text.rng) : std::nullopt;
  const TreeRoom room = ShapeGrower::room_of(config_).for_each_of(config_.max_requests);
  switch (config_.growth.kind) {
    case Growth::Kind::kGraph: {
      GraphGrower::Propose propose;
      if (draws && uses_q(config_.drawing))
        propose = [rng = text.rng, most = config_.growth.children](std::span<const float> row,
                                                                   int run) {
          return distinct_tokens(row, most, rng, static_cast<std::uint64_t>(run * most));
        };
      return std::make_unique<GraphGrower>(
          request.text, config_.growth, GraphGrower::Limits{shape.size(), room.widest, room.inner},
          std::move(propose));
    }
    case Growth::Kind::kHierarchy: {
      DraftState& inner = *static_cast<State&>(*request.state).inner;
      const auto guess = [this, &stream, stop, state = &inner](std::span<const TokenId> known,
                                                               int most) {
        if (most < 1) return std::vector<TokenId>();
        DraftRequest of;
        of.state = state;
        of.text = known;
        const Draft guessed =
            inner_->grow({&of, 1}, TreeShape::chain(most + 1), stream, stop).front();
        const auto tokens = guessed.tree.tokens().subspan(1);
        std::vector<TokenId> guesses;
        for (const TokenId token : tokens)
          if (token < config_.vocab) guesses.push_back(token);
        return guesses;
      };
      return std::make_unique<HierarchyGrower>(
          request.text, HierarchyGrower::Limits{shape.levels() - 1, config_.growth.guesses}, guess,
          rng);
    }
    case Growth::Kind::kBeams:
      return std::make_unique<BeamGrower>(root, config_.growth.beams, shape.levels() - 1, rng);
    default:
      return std::make_unique<ChainGrower>(
          root, ChainGrower::Limits{config_.growth.kind, config_.growth.bound, shape.levels() - 1},
          static_cast<State&>(*request.state).tracker, rng);
  }
}

std::size_t ModelDrafter::grower_bytes(const ShapeGrower::Config& config) {
  std::size_t bytes = has_shapes(config) ? ShapeGrower::device_bytes(config) : 0;
  if (config.growth.kind != Growth::Kind::kShape)
    bytes += FrontierGrower::device_bytes(config_of_rows(config));
  return bytes;
}

int ModelDrafter::grower_allocations(const ShapeGrower::Config& config) {
  return (has_shapes(config) ? ShapeGrower::kAllocations : 0) +
         (config.growth.kind != Growth::Kind::kShape ? FrontierGrower::kAllocations : 0);
}

std::size_t ModelDrafter::state_bytes(const ShapeGrower::Config& config, int context) {
  if (config.growth.kind != Growth::Kind::kValued) return 0;
  return static_cast<std::size_t>(config.max_requests) * CopyIndex::host_bytes(context);
}

void ModelDrafter::read(DraftState& state, std::span<const TokenId> text, Stream& stream,
                        std::stop_token stop) {
  KvCache& cache = *static_cast<State&>(state).cache;
  cache.turn_to(model_.config().text_length(text.size()));
  cache.reuse_prefix(text, stream);
  const auto known = static_cast<std::size_t>(cache.length());  // more than `text`: after a stop
  read_text(model_, text.subspan(std::min(known, text.size())), cache, stream, stop);
}

void ModelDrafter::conclude(DraftState& state, const Draft& draft, const Verdict& verdict,
                            ConstTensorView, Stream& stream) {
  std::vector<NodeId> known;  // a last leaf was never run: it is read with the next tree
  for (const NodeId node : verdict.path)
    if (const std::int32_t slot = draft.row[static_cast<std::size_t>(node)]; slot >= 0)
      known.push_back(slot);
  State& of = static_cast<State&>(state);
  if (!draft.best.empty() && !of.best.empty())
    of.learn(draft, verdict);
  else if (frontier_)
    observe(of.tracker, of.confidences, verdict);
  of.cache->commit(known, stream);
}

std::string ModelDrafter::note() const {
  if (!shape_grower_ || shape_grower_->why_no_graphs().empty()) return {};
  return "the draft's levels could not be launched as CUDA graphs (" +
         shape_grower_->why_no_graphs() +
         "); its kernels are launched one by one, as with --enforce-eager";
}

}  // namespace canopy
