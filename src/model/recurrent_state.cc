#include "src/model/recurrent_state.h"

#include <algorithm>
#include <bit>
#include <string>

#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr int kEarlierInputs = static_cast<int>(kDeltaTaps) - 1;

/// Rows for slots that are read back over `back` of them, while as many as a tree has or a chain
/// runs at once follow.
int rows_for(int back, int nodes) { return 2 * back + std::max(nodes, kAnchorStep); }

int recurrent_layers(const ModelConfig& config) {
  int count = 0;
  for (int layer = 0; layer < config.layers; ++layer) count += config.layer(layer).recurrent;
  return count;
}

}  // namespace

SlotRows::SlotRows(int slots, int rows) : row_(at(slots)), taken_(at(rows)) {
  free_.reserve(at(rows));
  refill(0);
}

void SlotRows::refill(int needed) {
  std::fill(taken_.begin(), taken_.end(), false);
  for (int slot = std::max(needed, 0); slot < length_; ++slot) taken_[at(row_[at(slot)])] = true;
  const auto others = std::count(taken_.begin(), taken_.end(), false);
  if (top_ - length_ > others) top_ = length_;
  free_.clear();
  for (int slot = length_; slot < top_; ++slot) {
    free_.push_back(row_[at(slot)]);
    taken_[at(row_[at(slot)])] = true;
  }
  for (std::size_t row = 0; row < taken_.size(); ++row)
    if (!taken_[row]) free_.push_back(static_cast<std::int32_t>(row));
}

void SlotRows::lay_out(int first, int count) {
  require(first >= length_ && first <= top_, "a node's earlier nodes were not run");
  top_ = first + count;
  for (int slot = first; slot < top_; ++slot)
    row_[at(slot)] = free_[at(slot - length_) % free_.size()];
}

void SlotRows::commit(std::span<const NodeId> path, int needed, int now) {
  const int length = length_ + static_cast<int>(path.size());
  bool as_they_lie = true;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const int from = length_ + path[i], to = length_ + static_cast<int>(i);
    as_they_lie = as_they_lie && from == to;
    if (to >= std::min(needed, now) && (from >= top_ || from < top_ - std::ssize(free_)))
      throw Error("slot " + std::to_string(from) +
                  " of a text cannot be kept: of a long chain only the end is there");
    row_[at(to)] = row_[at(from)];
  }
  top_ = as_they_lie ? std::max(top_, length) : length;
  length_ = length;
  refill(needed);
}

void SlotRows::clear() {
  length_ = top_ = 0;
  refill(0);
}

void SlotRows::pretend(int length, int needed) {
  length_ = top_ = length;
  for (int slot = std::max(needed, 0); slot < length; ++slot)
    row_[at(slot)] = static_cast<std::int32_t>(at(slot) % taken_.size());
  refill(needed);
}

RecurrentState::Parts::Parts(const DeltaConfig& delta, int nodes)
    : input_rows(rows_for(kEarlierInputs, nodes)), rows(rows_for(kLongestWay, nodes)) {
  const auto floats = [](int count, std::int64_t each) { return at(count) * at(each); };
  std::size_t end = 0;
  const auto place = [&](std::size_t count) {
    const std::size_t begin = end;
    end += (count + 15) / 16 * 16;  // whole lines of a cache
    return begin;
  };
  input = place(floats(input_rows, delta.channels()));
  key = place(floats(rows, std::int64_t{delta.key_heads} * delta.key_dim));
  update = place(floats(rows, delta.values()));
  decay = place(floats(rows, delta.value_heads));
  states = place(floats(3, delta.state()));
  all = end;
}

std::size_t RecurrentState::bytes_needed(const ModelConfig& config, int slots, int nodes) {
  const int layers = recurrent_layers(config);
  if (layers == 0) return 0;
  return at(layers) * Parts(config.delta, nodes).all * sizeof(float) +
         2 * at(slots) * sizeof(std::int32_t);
}

RecurrentState::RecurrentState(Device& device, const ModelConfig& config, int slots, int nodes)
    : device_(&device),
      delta_(config.delta),
      nodes_(nodes),
      parts_(config.delta, nodes),
      inputs_(slots, parts_.input_rows),
      rows_(slots, parts_.rows) {
  for (int layer = 0; layer < config.layers; ++layer)
    ordinal_.push_back(config.layer(layer).recurrent ? layers_++ : -1);
  storage_ = device.allocate(at(layers_) * parts_.all * sizeof(float));
  tables_ = device.allocate(2 * at(slots) * sizeof(std::int32_t));
  uploaded_ = device.make_event();
}

RecurrentState::~RecurrentState() { wait_quietly(*uploaded_); }

std::byte* RecurrentState::of_layer(int layer) const {
  const int own = ordinal_.at(at(layer));
  require(own >= 0, "no such layer has a state");
  return storage_.data() + at(own) * parts_.all * sizeof(float);
}

DeltaRows RecurrentState::rows(int layer) const {
  std::byte* const begin = of_layer(layer);
  const auto part = [&](std::size_t first) { return begin + first * sizeof(float); };
  const auto slots = static_cast<std::int64_t>(rows_.table().size());
  const std::byte* const tables = tables_.data();
  return {
      TensorView(part(parts_.input), DType::kF32, {parts_.input_rows, delta_.channels()}),
      TensorView(part(parts_.key), DType::kF32, {parts_.rows, delta_.key_heads, delta_.key_dim}),
      TensorView(part(parts_.update), DType::kF32,
                 {parts_.rows, delta_.value_heads, delta_.value_dim}),
      TensorView(part(parts_.decay), DType::kF32, {parts_.rows, delta_.value_heads}),
      ConstTensorView(tables, DType::kI32, {slots}),
      ConstTensorView(tables + at(slots) * sizeof(std::int32_t), DType::kI32, {slots})};
}

TensorView RecurrentState::state(int layer, int buffer) const {
  if (buffer < 0) return {};
  const std::size_t first = parts_.states + at(buffer) * at(delta_.state());
  return TensorView(of_layer(layer) + first * sizeof(float), DType::kF32,
                    {delta_.value_heads, delta_.key_dim, delta_.value_dim});
}

void RecurrentState::send_tables(int first, int count, Stream& stream) {
  const std::size_t slots = rows_.table().size();
  std::byte* to = tables_.data() + at(first) * sizeof(std::int32_t);
  for (const SlotRows* one : {&inputs_, &rows_}) {
    device_->upload(stream, to,
                    std::as_bytes(std::span(one->table()).subspan(at(first), at(count))));
    to += slots * sizeof(std::int32_t);
  }
  stream.record(*uploaded_);
}

int RecurrentState::move_to(std::int64_t anchor, std::vector<DeltaStep>& moves) {
  if (anchor == 0) return -1;
  const auto known = std::find(anchors_.begin(), anchors_.end(), anchor);
  if (known != anchors_.end()) return static_cast<int>(known - anchors_.begin());
  require(anchor > anchor_of(rows_.length()), "a state that a text starts from is lost");
  const int from = move_to(anchor - kAnchorStep, moves);
  int to = 0;
  while (to == kept_ || to == from) ++to;
  anchors_[at(to)] = anchor;
  sure_[at(to)] = false;
  moves.push_back({{DeltaStep::At{anchor - kAnchorStep, from}, {anchor, to}}, 0, 0});
  return to;
}

std::vector<DeltaStep> RecurrentState::lay_out(int prefix, int first_node, int count,
                                               std::span<const std::uint64_t> ancestors,
                                               Stream& stream) {
  const int first = prefix + first_node;
  const bool chain = ancestors.empty();
  if (!chain && first_node + count > nodes_)
    throw Error("a tree of " + std::to_string(first_node + count) +
                " nodes; the states of recurrent layers have room for " + std::to_string(nodes_));
  // States of slots that are now written again, or of a sweep that did not end, are lost.
  for (std::size_t i = 0; i < anchors_.size(); ++i)
    if (anchors_[i] > first || (first == rows_.length() && !sure_[i])) anchors_[i] = -1;
  uploaded_->wait();
  inputs_.lay_out(first, count);
  rows_.lay_out(first, count);
  send_tables(first, count, stream);

  std::vector<DeltaStep> steps;
  if (chain) {
    for (int row = 0; row < count;) {
      const std::int64_t anchor = anchor_of(first + row);
      int end = row + 1;
      while (end < count && end - row < kAnchorStep && anchor_of(first + end) == anchor) ++end;
      const DeltaStep::At state{anchor, move_to(anchor, steps)};
      steps.push_back({{state, state}, row, end - row});
      row = end;
    }
    return steps;
  }
  const std::size_t words = ancestors.size() / at(count);
  int shallowest = first_node + count, deepest = 0;
  for (std::size_t row = 0; row < at(count); ++row) {
    int depth = -1;
    for (const std::uint64_t word : ancestors.subspan(row * words, words))
      depth += std::popcount(word);
    shallowest = std::min(shallowest, depth);
    deepest = std::max(deepest, depth);
  }
  if (deepest > kDeepestTree)
    throw Error("a tree of " + std::to_string(deepest + 1) +
                " levels; models with recurrent layers run trees of at most " +
                std::to_string(kDeepestTree + 1));
  const std::int64_t least = anchor_of(prefix + shallowest), most = anchor_of(prefix + deepest);
  const DeltaStep::At from{least, move_to(least, steps)};
  const DeltaStep::At other{most, move_to(most, steps)};
  steps.push_back({{from, other}, 0, count});
  return steps;
}

void RecurrentState::commit(std::span<const NodeId> path, Stream& stream) {
  if (path.empty()) return;
  const int before = rows_.length(), length = before + static_cast<int>(path.size());
  const auto moved = std::find_if(path.begin(), path.end(),
                                  [&](const NodeId& node) { return node != &node - path.data(); });
  const auto as_they_lie = before + (moved - path.begin());
  for (std::int64_t& anchor : anchors_)
    if (anchor > as_they_lie) anchor = -1;
  const std::int64_t anchor = anchor_of(length);
  uploaded_->wait();
  std::vector<DeltaStep> moves;
  const int next = move_to(anchor, moves);  // of the length before
  rows_.commit(path, static_cast<int>(anchor),
               static_cast<int>(moves.empty() ? anchor : moves.front().states[0].anchor));
  inputs_.commit(path, length - kEarlierInputs, length - kEarlierInputs);
  send_tables(before, length - before, stream);
  for (const DeltaStep& move : moves)
    for (std::size_t layer = 0; layer < ordinal_.size(); ++layer)
      if (const int own = static_cast<int>(layer); ordinal_[layer] >= 0)
        device_->ops().delta_fold(stream,
                                  {rows(own),
                                   {move.states[0].anchor, state(own, move.states[0].buffer)},
                                   state(own, move.states[1].buffer),
                                   delta_.by_turns ? KeyHeads::kByTurns : KeyHeads::kInGroups});
  kept_ = next;
  for (std::size_t i = 0; i < anchors_.size(); ++i) sure_[i] = anchors_[i] >= 0;
}

int RecurrentState::truncate(int length) {
  for (std::size_t i = 0; i < anchors_.size(); ++i)
    if (!sure_[i]) anchors_[i] = -1;
  inputs_.drop_others();
  rows_.drop_others();
  if (length == rows_.length()) return length;
  inputs_.clear();
  rows_.clear();
  anchors_.fill(-1);
  kept_ = -1;
  return 0;
}

void RecurrentState::pretend(int length, Stream& stream) {
  truncate(0);
  if (length == 0) return;
  uploaded_->wait();
  const std::int64_t anchor = anchor_of(length);
  rows_.pretend(length, static_cast<int>(anchor));
  inputs_.pretend(length, length - kEarlierInputs);
  send_tables(0, length, stream);
  if (anchor == 0) return;
  kept_ = 0;
  anchors_[0] = anchor;
  sure_[0] = true;
}

}  // namespace canopy
