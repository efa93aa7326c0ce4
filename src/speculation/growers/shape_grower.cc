#include "src/speculation/growers/shape_grower.h"

#include <algorithm>
#include <utility>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/speculation/drafters/draft_reading.h"

namespace canopy {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool has_editor(std::span<const ShapeGrower::Request> requests) {
  return std::any_of(requests.begin(), requests.end(),
                     [](const auto& request) { return request.editor != nullptr; });
}

}  // namespace

ShapeGrower::Layout::Layout(const TreeShape& shape) : row(at(shape.size()), -1) {
  std::vector<NodeId> parents;    // of the tree of inner nodes
  std::vector<int> depth, child;  // which of its parent's each node is
  for (NodeId node = 0; node < shape.size(); ++node) {
    const NodeId parent = shape.parent(node);
    const bool first = node == 0 || shape.parent(node - 1) != parent;
    child.push_back(first ? 0 : child.back() + 1);
    depth.push_back(parent < 0 ? 0 : depth[at(parent)] + 1);
    if (shape.child_count(node) == 0) continue;
    const auto number = static_cast<int>(inner.size());
    row[at(node)] = number;
    inner.push_back(node);
    parents.push_back(parent < 0 ? -1 : row[at(parent)]);
    origin.push_back({parents.back(), child[at(node)]});
    if (depth.back() == static_cast<int>(levels.size()))
      levels.push_back({number, 0, 0, 0, {}, {}});
    Level& level = levels.back();
    level.logit_rows.push_back(level.count++);
    level.children = std::max(level.children, shape.child_count(node));
  }
  std::uint64_t draws = 0;
  for (Level& level : levels) {
    level.first_draw = draws;
    draws += static_cast<std::uint64_t>(level.count * level.children);
    level.ancestors = ancestor_bits(parents, level.first, level.count);
  }
}

TreeRoom ShapeGrower::room_of(const Config& config) {
  if (config.room.nodes > 0) return config.room;
  return TreeRoom::of(config.shape).for_texts(config.max_requests);
}

RowEditor::Room ShapeGrower::room_of_edits(const Config& config) {
  const TreeRoom room = room_of(config);
  const std::size_t vocab = at(config.edited_vocab);
  return {.rows = at(room.widest),
          .texts = at(config.max_requests),
          .shared = LogitEditor::most_shared(at(config.edited_context), vocab),
          // A level of w inner nodes has d levels of inner nodes above: w d edits, w + d nodes.
          // One text may have the inner nodes of all.
          .own = at(room.inner) * at(room.inner) / 4,
          .vocab = vocab};
}

namespace {

std::size_t q_bytes(const ShapeGrower::Config& config) {
  if (!uses_q(config.drawing)) return 0;
  return at(ShapeGrower::room_of(config).inner) * at(config.vocab) * sizeof(float);
}

}  // namespace

ShapeGrower::ShapeGrower(Device& device, const Config& config)
    : device_(&device), config_(config), layout_(TreeShape()) {
  require(config.max_requests > 0, "draft: max_requests must be at least 1");
  config_.room = room_of(config);
  const std::size_t proposals = at(config_.room.proposals), inner = at(config_.room.inner);
  proposals_ = device.allocate(proposals * sizeof(TokenId));
  host_proposals_.reserve(proposals);
  tokens_ = device.allocate(inner * sizeof(TokenId));
  picks_ = device.allocate(inner * sizeof(std::int32_t));
  if (const std::size_t q = q_bytes(config_); q > 0) {
    q_ = device.allocate(q);
    rngs_ = device.allocate(at(config.max_requests) * sizeof(StepRng));
  }
  if (config.edited_context > 0) row_editor_.emplace(device, room_of_edits(config_));
  reshape(config.shape);
}

std::size_t ShapeGrower::device_bytes(const Config& config) {
  const TreeRoom room = room_of(config);
  std::size_t bytes = at(room.proposals) * sizeof(TokenId);
  bytes += at(room.inner) * (sizeof(TokenId) + sizeof(std::int32_t));
  if (uses_q(config.drawing)) bytes += at(config.max_requests) * sizeof(StepRng);
  if (config.edited_context > 0) bytes += RowEditor::device_bytes(room_of_edits(config));
  return bytes + q_bytes(config);
}

int ShapeGrower::widest_forward(const Config& config) { return room_of(config).widest; }

void ShapeGrower::reshape(TreeShape shape) {
  require(shape.size() > 1, "draft: a tree of the root alone needs no draft model");
  require(room().holds(TreeRoom::of(shape)), "draft: no room was made for so large a tree");
  Layout layout(shape);
  for (const Level& level : layout.levels)
    require(level.children <= config_.vocab,
            "draft: a node has more children than there are tokens");
  config_.shape = std::move(shape);
  layout_ = std::move(layout);
  captured_for_ = {};
  graph_.reset();
}

TensorView ShapeGrower::q_of(std::size_t request) const {
  const TensorView one(q_.data(), DType::kF32,
                       {static_cast<std::int64_t>(layout_.inner.size()), config_.vocab});
  return TensorView(q_.data() + request * one.bytes(), DType::kF32, {one.dim(0), one.dim(1)});
}

std::vector<Draft> ShapeGrower::grow(Transformer& model, std::span<const Request> requests,
                                     Stream& stream, std::stop_token stop) {
  require(!requests.empty() && requests.size() <= at(config_.max_requests),
          "draft: between 1 and max_requests sequences can grow together");
  require(room().holds(TreeRoom::of(config_.shape).for_texts(static_cast<int>(requests.size()))),
          "draft: room was made for fewer trees of this size");
  require(model.config().vocab >= config_.vocab,
          "draft: the model has fewer tokens than the grower was made for");
  std::vector<int> length;
  std::vector<PendingText> pending;
  std::vector<Draft> drafts;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    require(!requests[r].pending.empty(), "draft: the root must be pending");
    length.push_back(requests[r].kv->length());
    pending.push_back({requests[r].pending, requests[r].kv});
    const Drawing drawing = drawing_of(requests[r]);
    drafts.push_back({TokenTree(requests[r].pending.back()), drawing, layout_.row,
                      uses_q(drawing) ? q_of(r) : TensorView()});
    drafts.back().drafted = static_cast<int>(layout_.inner.size());
  }
  const bool edited = has_editor(requests);
  require(!edited || row_editor_, "draft: no room was made for edits of logits");
  if (config_.graphs && !edited) forget_graphs_of_others(model, requests, stream);
  try {
    const TensorView logits = run_pending(model, pending, stream, stop);
    send_rngs(requests, stream);
    if (edited || !model.embeds_on_device()) {
      grow_by_levels(model, requests, logits, drafts, stream, stop);
    } else {
      propose(requests, layout_.levels.front(), logits, stream);
      grow_at_once(model, requests, stream, stop);
      add_children(layout_.levels, drafts, stream);
    }
  } catch (...) {
    finish_quietly(stream);  // what is queued uses memory of this grower and of its caller
    for (std::size_t r = 0; r < requests.size(); ++r) requests[r].kv->truncate(length[r]);
    throw;
  }
  return drafts;
}

void ShapeGrower::forget_graphs_of_others(const Transformer& model,
                                          std::span<const Request> requests, const Stream& stream) {
  CapturedFor wanted{&model, &stream, {}};
  for (const Request& request : requests)
    wanted.requests.push_back({request.kv->table().data(), request.kv->capacity(),
                               request.kv->text_length(), request.sampling, drawing_of(request)});
  if (wanted == captured_for_) return;
  captured_for_ = std::move(wanted);
  warm_ = false;
  graph_.reset();
}

void ShapeGrower::send_rngs(std::span<const Request> requests, Stream& stream) {
  if (!uses_q(config_.drawing)) return;
  host_rngs_.clear();  // since the last upload the host has waited for the stream
  for (const Request& request : requests) host_rngs_.push_back(request.rng);
  device_->upload(stream, rngs_.data(), std::as_bytes(std::span(host_rngs_)));
}

void ShapeGrower::grow_by_levels(Transformer& model, std::span<const Request> requests,
                                 TensorView root_logits, std::span<Draft> drafts, Stream& stream,
                                 const std::stop_token& stop) {
  for (std::size_t depth = 0; depth < layout_.levels.size(); ++depth) {
    const Level& level = layout_.levels[depth];
    TensorView logits = root_logits;
    if (depth > 0) {
      prepare_level(model, requests, level, depth, drafts, stream);
      logits = model.run(stream, stop);
    }
    if (has_editor(requests)) edit(requests, level, drafts, logits, stream);
    propose(requests, level, logits, stream);
    add_children({&level, 1}, drafts, stream);
  }
}

void ShapeGrower::prepare_level(Transformer& model, std::span<const Request> requests,
                                const Level& level, std::size_t depth,
                                std::span<const Draft> drafts, Stream& stream) {
  std::vector<std::vector<TokenId>> tokens(requests.size());
  std::vector<std::vector<std::int32_t>> positions(requests.size());
  std::vector<SequenceRows> parts;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    for (int i = 0; i < level.count; ++i)
      tokens[r].push_back(drafts[r].tree.token(layout_.inner[at(level.first + i)]));
    positions[r].assign(at(level.count), requests[r].kv->length() + static_cast<int>(depth));
    parts.push_back({{tokens[r], positions[r], level.ancestors, level.first, level.logit_rows},
                     requests[r].kv});
  }
  model.prepare(parts, stream);
}

void ShapeGrower::grow_at_once(Transformer& model, std::span<const Request> requests,
                               Stream& stream, const std::stop_token& stop) {
  if (layout_.levels.size() == 1) return;
  prepare_tree(model, requests, stream);
  if (!config_.graphs || !warm_) {  // the first time also loads what a device loads late
    run_tree(model, requests, stream, stop);
    warm_ = true;
    return;
  }
  if (stop.stop_requested()) throw Stopped();  // a graph does not look
  try {
    if (!graph_) graph_ = stream.capture([&] { run_tree(model, requests, stream, {}); });
    return stream.launch(*graph_);
  } catch (const Error& refused) {  // of a device that has failed, the next call says so, too
    why_no_graphs_ = refused.what();
    config_.graphs = false;
    graph_.reset();
  }
  run_tree(model, requests, stream, stop);
}

void ShapeGrower::prepare_tree(Transformer& model, std::span<const Request> requests,
                               Stream& stream) {
  const int count = static_cast<int>(requests.size());
  const std::vector<TokenId> unknown(layout_.inner.size());
  std::vector<std::vector<std::int32_t>> positions;  // of a level's nodes of a request
  std::vector<std::vector<SequenceRows>> forwards;
  positions.reserve(layout_.levels.size() * requests.size());
  host_picks_.assign(at(count * static_cast<int>(layout_.inner.size())), 0);
  for (std::size_t depth = 1; depth < layout_.levels.size(); ++depth) {
    const Level &level = layout_.levels[depth], &above = layout_.levels[depth - 1];
    std::vector<SequenceRows>& parts = forwards.emplace_back();
    const int first_of_above = count * static_cast<int>(above.first_draw);
    for (int r = 0; r < count; ++r) {
      positions.emplace_back(at(level.count),
                             requests[at(r)].kv->length() + static_cast<int>(depth));
      parts.push_back({{std::span(unknown).first(at(level.count)), positions.back(),
                        level.ancestors, level.first, level.logit_rows},
                       requests[at(r)].kv});
      for (int i = 0; i < level.count; ++i) {
        const Origin& from = layout_.origin[at(level.first + i)];
        host_picks_[at(count * level.first + r * level.count + i)] =
            first_of_above + (r * above.count + from.parent - above.first) * above.children +
            from.child;
      }
    }
  }
  // Since the last upload the host has waited for the stream.
  device_->upload(stream, picks_.data(), std::as_bytes(std::span(host_picks_)));
  model.prepare_all(forwards, stream);
}

void ShapeGrower::run_tree(Transformer& model, std::span<const Request> requests, Stream& stream,
                           const std::stop_token& stop) {
  const Level& last = layout_.levels.back();
  const ConstTensorView proposals(
      proposals_.data(), DType::kI32,
      {static_cast<std::int64_t>(requests.size() *
                                 (last.first_draw + at(last.count * last.children)))});
  for (std::size_t depth = 1; depth < layout_.levels.size(); ++depth) {
    const Level& level = layout_.levels[depth];
    const TensorView tokens = tokens_of(level, requests.size(), tokens_);
    device_->ops().take_tokens(stream, proposals, tokens_of(level, requests.size(), picks_),
                               tokens);
    propose(requests, level, model.run(depth - 1, tokens, stream, stop), stream);
  }
}

TensorView ShapeGrower::proposals_of(const Level& level, std::size_t requests) const {
  return TensorView(proposals_.data() + requests * level.first_draw * sizeof(TokenId), DType::kI32,
                    {static_cast<std::int64_t>(requests) * level.count, level.children});
}

TensorView ShapeGrower::tokens_of(const Level& level, std::size_t requests,
                                  const Buffer& of) const {
  return TensorView(of.data() + requests * at(level.first) * sizeof(TokenId), DType::kI32,
                    {static_cast<std::int64_t>(requests) * level.count});
}

void ShapeGrower::edit(std::span<const Request> requests, const Level& level,
                       std::span<const Draft> drafts, TensorView logits, Stream& stream) {
  std::vector<RowEditor::Row> rows;
  for (std::size_t r = 0; r < requests.size(); ++r)
    for (int i = 0; i < level.count; ++i) {
      RowEditor::Row& row = rows.emplace_back();
      row.editor = requests[r].editor;
      if (row.editor != nullptr)
        row.path = path_to(drafts[r].tree, layout_.inner[at(level.first + i)]);
    }
  row_editor_->edit(stream, logits, rows, logits);  // where nothing may follow, nothing is accepted
}

void ShapeGrower::propose(std::span<const Request> requests, const Level& level,
                          ConstTensorView logits, Stream& stream) {
  Ops& ops = device_->ops();
  const TensorView proposals = proposals_of(level, requests.size());
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const auto first = static_cast<std::int64_t>(r) * level.count;
    const ConstTensorView scores = logits.rows(first, level.count);
    const TensorView tokens = proposals.rows(first, level.count);
    const Drawing drawing = drawing_of(requests[r]);
    if (!uses_q(drawing)) {
      for_common_columns(scores, config_.vocab, [&](ConstTensorView rows, std::int64_t i) {
        ops.top_tokens(stream, rows, level.children, tokens.rows(i, rows.dim(0)));
      });
    } else {
      const TensorView q = q_of(r).rows(level.first, level.count);
      for_common_columns(scores, config_.vocab, [&](ConstTensorView rows, std::int64_t i) {
        ops.probabilities(stream, rows, requests[r].sampling, q.rows(i, rows.dim(0)));
      });
      ops.draw_tokens(stream, q, level.children,
                      drawing == Drawing::kSequoia ? Replacement::kNo : Replacement::kYes,
                      {requests[r].rng, reinterpret_cast<const StepRng*>(rngs_.data()) + r},
                      level.first_draw, tokens);
    }
  }
}

void ShapeGrower::add_children(std::span<const Level> levels, std::span<Draft> drafts,
                               Stream& stream) {
  const Level& last = levels.back();
  const std::size_t behind = last.first_draw + at(last.count * last.children);
  host_proposals_.resize(drafts.size() * (behind - levels.front().first_draw));
  device_->download(stream, std::as_writable_bytes(std::span(host_proposals_)),
                    proposals_of(levels.front(), drafts.size()).data());
  stream.synchronize();

  // Each node keeps as many of its proposals as the shape gives it children, best or first ones.
  auto proposed = std::span<const TokenId>(host_proposals_);
  require(*std::min_element(proposed.begin(), proposed.end()) >= 0, kDraftNotFinite);
  for (const Level& level : levels)
    for (Draft& draft : drafts)
      for (int i = 0; i < level.count; ++i) {
        const NodeId node = layout_.inner[at(level.first + i)];
        draft.tree.add_children(node, proposed.first(at(config_.shape.child_count(node))));
        proposed = proposed.subspan(at(level.children));
      }
}

}  // namespace canopy
