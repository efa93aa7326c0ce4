#include "src/speculation/drafters/head_drafter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/counting.h"
#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

int most_ranks(const HeadDrafter::Limits& limits) { return std::min(limits.nodes, limits.vocab); }

/// Rows of f32 as a table to look up.
WeightView as_table(const TensorView& rows) {
  return {rows.data(), DType::kF32, rows.dim(0), rows.dim(1)};
}

}  // namespace

/// Has a row of what was read; gives it back when the text has ended.
class HeadDrafter::State final : public DraftState {
 public:
  explicit State(std::vector<std::int32_t>& free) : slot(free.back()), free_(free) {
    free.pop_back();
  }
  ~State() override { free_.push_back(slot); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::int32_t slot;
  bool known = false;

 private:
  std::vector<std::int32_t>& free_;
};

Acceptance acceptance_of_heads(int heads, const std::vector<std::vector<double>>& measured) {
  static const std::vector<std::vector<double>> kTypical{{.316, .109, .060, .040, .030, .024},
                                                         {.169, .084, .052, .039, .032, .023},
                                                         {.116, .070, .052, .043, .031, .026},
                                                         {.098, .061, .061, .044, .022, .020}};
  const auto& rows = measured.empty() ? kTypical : measured;
  Acceptance acceptance;
  for (int head = 0; head < heads; ++head) {
    const auto& row = rows[std::min(at(head), rows.size() - 1)];
    if (head == 0)
      acceptance.accept = row;
    else
      acceptance.deeper.push_back(row);
  }
  acceptance.deeper.push_back({0});
  return acceptance;
}

HeadDrafter::HeadDrafter(Device& device, HeadWeights weights, const Limits& limits)
    : device_(device), weights_(std::move(weights)), limits_(limits) {
  const std::size_t heads = weights_.blocks.size(), texts = at(limits.texts),
                    dim = at(limits.dim) * sizeof(float);
  require(heads > 0 && (weights_.matrices.size() == 1 || weights_.matrices.size() == heads),
          "draft: heads have one matrix each, or one for all");
  known_ = device.allocate(texts * dim);
  values_ = device.allocate(heads * texts * dim);
  inner_ = device.allocate(texts * dim);
  logits_ = device.allocate(heads * texts * at(limits.vocab) * sizeof(float));
  best_ = device.allocate(heads * texts * at(most_ranks(limits)) * sizeof(TokenId));
  ids_ = device.allocate(2 * texts * sizeof(std::int32_t));
  device.ops().reserve(workload(static_cast<int>(heads), limits));
  const std::vector<std::int32_t> numbers = counting(0, texts);
  const auto stream = device.make_stream("setup");
  device.upload(*stream, ids_.data(), std::as_bytes(std::span(numbers)));
  stream->synchronize();
  for (int slot = limits.texts; slot-- > 0;) free_.push_back(slot);
}

std::size_t HeadDrafter::device_bytes(int heads, const Limits& limits) {
  const std::size_t texts = at(limits.texts), rows = at(heads) * texts;
  return ((2 * texts + rows) * at(limits.dim) + rows * at(limits.vocab)) * sizeof(float) +
         rows * at(most_ranks(limits)) * sizeof(TokenId) + 2 * texts * sizeof(std::int32_t);
}

Workload HeadDrafter::workload(int heads, const Limits& limits) {
  Workload w;
  w.rows = std::int64_t{heads} * limits.texts;
  w.columns = limits.dim;
  w.vocab = limits.vocab;
  return w;
}

TensorView HeadDrafter::rows_of(const Buffer& buffer, std::int64_t first, std::int64_t rows,
                                std::int64_t columns) const {
  return TensorView(buffer.data(), DType::kF32, {first + rows, columns}).rows(first, rows);
}

std::unique_ptr<DraftState> HeadDrafter::open() {
  require(!free_.empty(), "the heads were made for no more texts");
  return std::make_unique<State>(free_);
}

void HeadDrafter::conclude(DraftState& state, const Draft&, const Verdict& verdict,
                           ConstTensorView read, Stream& stream) {
  require(!read.empty() && read.dim(1) >= limits_.dim,
          "draft: heads go by what the target's head reads");
  State& of = static_cast<State&>(state);
  const ConstTensorView last = read.rows(verdict.path.back(), 1);
  const ConstTensorView first_row(ids_.data(), DType::kI32, {1});  // which is 0
  device_.ops().embed(stream, WeightView(last.data(), DType::kF32, 1, limits_.dim), first_row,
                      rows_of(known_, of.slot, 1, limits_.dim));
  of.known = true;
}

void HeadDrafter::guess(std::span<const std::int32_t> slots, int heads, int ranks, Stream& stream) {
  Ops& ops = device_.ops();
  const std::int64_t n = std::ssize(slots), dim = limits_.dim;
  std::byte* const slots_at = ids_.data() + at(limits_.texts) * sizeof(std::int32_t);
  device_.upload(stream, slots_at, std::as_bytes(slots));
  const ConstTensorView of_texts(slots_at, DType::kI32, {n}),
      in_order(ids_.data(), DType::kI32, {n});
  const TensorView known = rows_of(known_, 0, limits_.texts, dim);
  const TensorView logits = rows_of(logits_, 0, heads * n, limits_.vocab);
  const bool shared = weights_.matrices.size() == 1;
  for (int head = 0; head < heads; ++head) {
    const TensorView z = rows_of(values_, head * n, n, dim), inner = rows_of(inner_, 0, n, dim);
    ops.embed(stream, as_table(known), of_texts, z);
    for (const HeadWeights::Block& block : weights_.blocks[at(head)]) {
      const std::array product{Projection{block.weight, block.bias, inner}};
      ops.linear(stream, z, product);
      ops.activate(stream, Activation::kSilu, inner, inner);
      ops.embed(stream, as_table(inner), in_order, z, Accumulate::kYes);
    }
    const std::array product{
        Projection{weights_.matrices[shared ? 0 : at(head)], {}, logits.rows(head * n, n)}};
    if (!shared) ops.linear(stream, z, product);
  }
  const std::array product{Projection{weights_.matrices[0], {}, logits}};
  if (shared) ops.linear(stream, rows_of(values_, 0, heads * n, dim), product);
  const TensorView best(best_.data(), DType::kI32, {heads * n, ranks});
  ops.top_tokens(stream, logits, ranks, best);
  tokens_.resize(at(heads * n * ranks));
  device_.download(stream, std::as_writable_bytes(std::span(tokens_)), best.data());
  stream.synchronize();
}

std::vector<Draft> HeadDrafter::grow(std::span<const DraftRequest> requests, const TreeShape& shape,
                                     Stream& stream, std::stop_token stop) {
  require(has_room(shape, static_cast<int>(requests.size())),
          "draft: room was made for fewer trees of this size");
  if (stop.stop_requested()) throw Stopped();
  std::vector<Draft> drafts;
  std::vector<std::int32_t> slots;
  for (const DraftRequest& request : requests) {
    drafts.push_back(root_only(request.text.back()));
    const State& state = static_cast<const State&>(*request.state);
    if (state.known) slots.push_back(state.slot);
  }
  const int heads = std::min(static_cast<int>(weights_.blocks.size()), shape.levels() - 1);
  int ranks = 0;
  for (NodeId node = 0; node < shape.size(); ++node)
    ranks = std::max(ranks, std::min(shape.child_count(node), limits_.vocab));
  if (slots.empty() || heads == 0) return drafts;
  guess(slots, heads, ranks, stream);

  std::size_t text = 0;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    if (!static_cast<const State&>(*requests[r].state).known) continue;
    TokenTree& tree = drafts[r].tree;
    std::vector<NodeId> grown(at(shape.size()), -1);  // the shape's nodes, in the tree
    grown[0] = 0;
    NodeId child_of_shape = 1;
    for (NodeId node = 0; node < shape.size(); ++node) {
      const int count = shape.child_count(node);
      const NodeId parent = grown[at(node)];
      if (count > 0 && parent >= 0 && tree.depth(parent) < heads) {
        const std::span<const TokenId> of_head =
            std::span(tokens_).subspan((at(tree.depth(parent)) * slots.size() + text) * at(ranks));
        const auto children = of_head.first(at(std::min(count, ranks)));
        require(children.front() >= 0, "the heads' values are not all finite numbers");
        const NodeId first = tree.add_children(parent, children).first;
        for (std::size_t k = 0; k < children.size(); ++k)
          grown[at(child_of_shape) + k] = first + static_cast<NodeId>(k);
      }
      child_of_shape += count;
    }
    drafts[r].row.assign(at(tree.size()), -1);
    ++text;
  }
  return drafts;
}

}  // namespace canopy
