#include "src/model/recurrent_state.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "kernels/ops.h"
#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr int kEarlierInputs = static_cast<int>(kDeltaTaps) - 1;

/// Rows for slots that are read back over `back` of them, while as many as a tree has or a chain
/// runs at once follow.
int rows_for(int back, int nodes) { return 2 * back + std::max(nodes, kAnchorStep); }

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

void SlotRows::begin_at(int length, int needed) {
  length_ = top_ = length;
  needed = std::max(needed, 0);
  require(at(length - needed) <= taken_.size(), "a text's end has more slots than there are rows");
  for (int slot = needed; slot < length; ++slot) row_[at(slot)] = slot - needed;
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

RecurrentState::RecurrentState(Device& device, const ModelConfig& config, int slots, int nodes,
                               StateSnapshots* snapshots)
    : device_(&device),
      delta_(config.delta),
      nodes_(nodes),
      parts_(config.delta, nodes),
      inputs_(slots, parts_.input_rows),
      rows_(slots, parts_.rows),
      snapshots_(snapshots) {
  // A text takes no more than half of the places by its length alone.
  if (const int own = snapshots_ == nullptr ? 0 : snapshots_->places() / 2; own > 1)
    every_ = (slots / own / kAnchorStep + 1) * kAnchorStep;
  for (int layer = 0; layer < config.layers; ++layer)
    ordinal_.push_back(config.layer(layer).recurrent ? layers_++ : -1);
  storage_ = device.allocate(at(layers_) * parts_.all * sizeof(float));
  tables_ = device.allocate(2 * at(slots) * sizeof(std::int32_t));
  uploaded_ = device.make_event();
  done_ = device.make_event();
}

RecurrentState::~RecurrentState() {
  wait_quietly(*uploaded_);
  wait_quietly(*done_);
  drop_snapshots();
}

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
  std::erase_if(pending_, [&](const TakenSnapshot& one) {
    if (one.tokens > first) snapshots_->drop(one.id);
    return one.tokens > first;
  });
  uploaded_->wait();
  inputs_.lay_out(first, count);
  rows_.lay_out(first, count);
  send_tables(first, count, stream);

  std::vector<DeltaStep> steps;
  if (chain) {
    plan_snapshots(first, first + count);
    for (int row = 0; row < count;) {
      const std::int64_t anchor = anchor_of(first + row);
      int end = row + 1;
      while (end < count && (first + end) % kAnchorStep != 0) ++end;
      const DeltaStep::At state{anchor, move_to(anchor, steps)};
      steps.push_back({{state, state}, row, end - row});
      row = end;
      for (const TakenSnapshot& one : pending_) {
        if (one.tokens != first + row) continue;
        const DeltaStep::At from{one.tokens - kAnchorStep,
                                 move_to(one.tokens - kAnchorStep, steps)};
        steps.push_back({{from, from}, 0, 0, one.id.place});
      }
    }
    return steps;
  }
  chain_end_ = std::min(chain_end_, first);
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
  const auto as_they_lie = before + static_cast<int>(moved - path.begin());
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
  if (snapshots_ != nullptr) {
    settle_snapshots(moved == path.end() ? std::numeric_limits<int>::max() : as_they_lie);
    snapshot_of_path(before, stream);
  }
  stream.record(*done_);
}

int RecurrentState::truncate(int length) {
  for (std::size_t i = 0; i < anchors_.size(); ++i)
    if (!sure_[i]) anchors_[i] = -1;
  inputs_.drop_others();
  rows_.drop_others();
  if (length > 0 && length == rows_.length()) return length;
  wanted_.clear();
  begin_at(0);
  return 0;
}

void RecurrentState::begin_at(int length) {
  drop_snapshots();
  anchors_.fill(-1);
  sure_.fill(false);
  kept_ = -1;
  const std::int64_t anchor = anchor_of(length);
  rows_.begin_at(length, static_cast<int>(anchor));
  inputs_.begin_at(length, length - kEarlierInputs);
  if (anchor == 0) return;
  kept_ = 0;
  anchors_[0] = anchor;
  sure_[0] = true;
}

void RecurrentState::pretend(int length, Stream& stream) {
  uploaded_->wait();
  begin_at(length);
  if (length > 0) send_tables(0, length, stream);
}

void RecurrentState::drop_snapshots() {
  if (snapshots_ == nullptr) return;
  for (const TakenSnapshot& one : pending_) snapshots_->drop(one.id);
  for (const TakenSnapshot& one : taken_) snapshots_->drop(one.id);
  pending_.clear();
  taken_.clear();
  passing_ = {};
  chain_end_ = 0;
}

bool RecurrentState::is_noted(int tokens) const {
  return (every_ > 0 && tokens % every_ == 0) ||
         std::find(wanted_.begin(), wanted_.end(), tokens) != wanted_.end();
}

void RecurrentState::want_snapshot(int tokens) {
  tokens = tokens / kAnchorStep * kAnchorStep;
  if (snapshots_ == nullptr || tokens == 0 || is_noted(tokens)) return;
  wanted_.push_back(tokens);
  for (auto* const list : {&pending_, &taken_})
    for (TakenSnapshot& one : *list) one.passing = one.passing && one.tokens != tokens;
  if (passing_.tokens == tokens) passing_ = {};
}

void RecurrentState::plan_snapshots(int first, int end) {
  chain_end_ = end;
  if (snapshots_ == nullptr) return;
  const int last = end / kAnchorStep * kAnchorStep;
  if (last <= first) return;
  std::erase_if(pending_, [&](const TakenSnapshot& one) {
    if (one.passing) snapshots_->drop(one.id);
    return one.passing;
  });
  const auto take = [&](int tokens, bool passing) {
    if (const auto id = snapshots_->take()) pending_.push_back({tokens, *id, passing});
  };
  for (int tokens = first / kAnchorStep * kAnchorStep + kAnchorStep; tokens <= last;
       tokens += kAnchorStep)
    if (is_noted(tokens)) take(tokens, false);
  if (!is_noted(last)) take(last, true);
}

void RecurrentState::settle_snapshots(int same) {
  std::erase_if(pending_, [&](const TakenSnapshot& one) {
    if (one.tokens > same) {
      snapshots_->drop(one.id);
      return true;
    }
    if (one.tokens > rows_.length()) return false;
    hand_in(one);
    return true;
  });
  chain_end_ = std::min(chain_end_, same);
}

void RecurrentState::hand_in(TakenSnapshot taken) {
  snapshots_->keep(taken.id);
  taken_.push_back(taken);
  snapshots_->drop_unused(passing_.id);
  passing_ = taken.passing ? taken : TakenSnapshot();
}

void RecurrentState::snapshot_of_path(int before, Stream& stream) {
  const int tokens = rows_.length() / kAnchorStep * kAnchorStep;
  if (tokens <= before || tokens <= chain_end_) return;
  snapshots_->drop_unused(std::exchange(passing_, {}).id);
  const auto id = snapshots_->take();
  if (!id) return;
  const DeltaStep::At from{tokens - kAnchorStep, kept_};
  for (std::size_t layer = 0; layer < ordinal_.size(); ++layer)
    if (ordinal_[layer] >= 0)
      write_snapshot(static_cast<int>(layer), {{from, from}, 0, 0, id->place}, stream);
  hand_in({tokens, *id, !is_noted(tokens)});
}

std::vector<TakenSnapshot> RecurrentState::hand_out_snapshots() {
  return std::exchange(taken_, {});
}

void RecurrentState::write_snapshot(int layer, const DeltaStep& step, Stream& stream) const {
  const StateSnapshots::Parts to = snapshots_->parts(step.snapshot, ordinal_.at(at(layer)));
  const DeltaRows from = rows(layer);
  const std::int64_t begin = step.states[0].anchor, end = begin + kAnchorStep;
  const ConstTensorView slots = from.row.rows(begin, kAnchorStep);
  copy_rows(from.key, slots, to.key, stream);
  copy_rows(from.update, slots, to.update, stream);
  copy_rows(from.decay, slots, to.decay, stream);
  copy_rows(from.input, from.input_row.rows(end - kEarlierInputs, kEarlierInputs), to.input,
            stream);
  if (step.states[0].buffer >= 0)
    copy_rows(state(layer, step.states[0].buffer), snapshots_->counting(to.state.dim(0)), to.state,
              stream);
}

void RecurrentState::restore(int length, const SnapshotId& id, Stream& stream) {
  require(snapshots_ != nullptr && snapshots_->has(id) && length % kAnchorStep == 0,
          "a text goes on from a snapshot that is there");
  snapshots_->use(id);
  uploaded_->wait();
  begin_at(length);
  const int anchor = length - kAnchorStep;
  send_tables(anchor, kAnchorStep, stream);
  for (std::size_t layer = 0; layer < ordinal_.size(); ++layer) {
    if (ordinal_[layer] < 0) continue;
    const int own = static_cast<int>(layer);
    const StateSnapshots::Parts from = snapshots_->parts(id.place, ordinal_[layer]);
    const DeltaRows to = rows(own);
    const auto copy = [&](const TensorView& part, const TensorView& rows_of_text) {
      copy_rows(part, snapshots_->counting(part.dim(0)), rows_of_text, stream);
    };
    copy(from.key, to.key.rows(0, kAnchorStep));
    copy(from.update, to.update.rows(0, kAnchorStep));
    copy(from.decay, to.decay.rows(0, kAnchorStep));
    copy(from.input, to.input.rows(0, kEarlierInputs));
    if (anchor > 0) copy(from.state, state(own, kept_));
  }
  stream.record(*done_);
}

/// to_i = from_(row_i), of rows of any shape.
void RecurrentState::copy_rows(ConstTensorView from, ConstTensorView row, const TensorView& to,
                               Stream& stream) const {
  const auto columns = static_cast<std::int64_t>(to.bytes() / sizeof(float)) / row.dim(0);
  const auto all = static_cast<std::int64_t>(from.bytes() / sizeof(float)) / columns;
  device_->ops().embed(stream, WeightView(from.data(), DType::kF32, all, columns), row,
                       TensorView(to.data(), DType::kF32, {row.dim(0), columns}));
}

}  // namespace canopy
