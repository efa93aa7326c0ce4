#include "src/speculation/drafters/model_drafter.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/speculation/drafters/draft_reading.h"
#include "src/speculation/growers/beam_grower.h"
#include "src/speculation/growers/chain_grower.h"
#include "src/speculation/growers/graph_grower.h"
#include "src/speculation/growers/hierarchy_grower.h"
#include "src/speculation/logits/draw_row.h"

namespace canopy {

class ModelDrafter::State final : public DraftState {
 public:
  State(KvCaches::Loan loan, std::unique_ptr<DraftState> inner_state)
      : cache(std::move(loan)), inner(std::move(inner_state)) {}

  const KvCaches::Loan cache;
  const std::unique_ptr<DraftState> inner;  // of a hierarchy
  // These two serve chains whose length the draft's confidence decides.
  ConfidenceTracker tracker;
  std::vector<double> confidences;  // of the last chain
};

ModelDrafter::ModelDrafter(Device& device, Transformer& model, const ShapeGrower::Config& config,
                           KvRoom room, std::unique_ptr<Drafter> inner)
    : model_(model),
      config_(config),
      inner_(std::move(inner)),
      caches_(device, model.config(), room, config.max_requests) {
  require((inner_ != nullptr) == (config.growth.kind == Growth::Kind::kHierarchy),
          "draft: a hierarchy has a second draft, and nothing else has");
  if (config.growth.kind == Growth::Kind::kShape)
    shape_grower_.emplace(device, config);
  else
    frontier_.emplace(device, config);
}

std::unique_ptr<DraftState> ModelDrafter::open() {
  return std::make_unique<State>(caches_.lend(), inner_ ? inner_->open() : nullptr);
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
    cache.adopt(request.text.first(request.text.size() - 1), stream);
    growing.push_back({request.text.subspan(static_cast<std::size_t>(cache.length())), &cache,
                       request.sampling, request.rng, request.best_tokens, request.editor});
  }
  if (shape_grower_) return shape_grower_->grow(model_, growing, stream, std::move(stop));
  return grow_by_rows(requests, growing, shape, stream, stop);
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
  return config.growth.kind == Growth::Kind::kShape ? ShapeGrower::device_bytes(config)
                                                    : FrontierGrower::device_bytes(config);
}

void ModelDrafter::read(DraftState& state, std::span<const TokenId> text, Stream& stream,
                        std::stop_token stop) {
  KvCache& cache = *static_cast<State&>(state).cache;
  cache.turn_to(model_.config().text_length(text.size()));
  cache.adopt(text, stream);
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
  if (frontier_) observe(of.tracker, of.confidences, verdict);
  of.cache->commit(known, stream);
}

std::string ModelDrafter::note() const {
  if (!shape_grower_ || shape_grower_->why_no_graphs().empty()) return {};
  return "the draft's levels could not be launched as CUDA graphs (" +
         shape_grower_->why_no_graphs() +
         "); its kernels are launched one by one, as with --enforce-eager";
}

}  // namespace canopy
