#include "src/speculation/growers/frontier_grower.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/speculation/drafters/draft_reading.h"

namespace canopy {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// Rows of q that a text keeps: all, where the verifier reads them; else those of a level.
std::size_t rows_of_text(const ShapeGrower::Config& config) {
  const TreeRoom room = ShapeGrower::room_of(config).for_each_of(config.max_requests);
  return at(uses_q(config.drawing) ? room.inner : room.widest);
}

bool is_valued(const ShapeGrower::Config& config) {
  return config.growth.kind == Growth::Kind::kValued;
}

/// Best tokens that a row of valued trees has.
std::int64_t ranks_of(const ShapeGrower::Config& config) {
  return std::min(kChanceRanks, config.vocab);
}

std::size_t q_bytes(const ShapeGrower::Config& config) {
  if (is_valued(config)) return 0;
  return at(config.max_requests) * rows_of_text(config) * at(config.vocab) * sizeof(float);
}

/// Returns how children are drawn. At temperature 0 there is one way only, but the others' chances
/// say how sure the draft is.
Sampling drawn_by(const Sampling& sampling) {
  return sampling.temperature > 0 ? sampling : Sampling{.temperature = 1};
}

/// True if the probabilities that say how sure the draft is are not those that children are drawn
/// from: BiLD looks at the softmax at temperature 1, whatever the text's sampling is.
bool judges_apart(const ShapeGrower::Config& config, const Sampling& sampling) {
  return config.growth.kind == Growth::Kind::kConfidence &&
         drawn_by(sampling) != Sampling{.temperature = 1};
}

std::size_t judged_bytes(const ShapeGrower::Config& config) {
  if (config.growth.kind != Growth::Kind::kConfidence) return 0;
  return at(ShapeGrower::widest_forward(config)) * at(config.vocab) * sizeof(float);
}

/// Rows of a level of valued trees, all texts together; 0: none are valued.
std::size_t best_rows_of(const ShapeGrower::Config& config) {
  return is_valued(config) ? at(ShapeGrower::widest_forward(config)) : 0;
}

std::size_t best_bytes(const ShapeGrower::Config& config) {
  const std::size_t row =
      at(static_cast<int>(ranks_of(config))) * (sizeof(TokenId) + sizeof(float)) + sizeof(float);
  return best_rows_of(config) * row;
}

}  // namespace

FrontierGrower::FrontierGrower(Device& device, const ShapeGrower::Config& config)
    : device_(&device),
      config_(config),
      rows_of_text_(rows_of_text(config)),
      q_(device.allocate(q_bytes(config))) {
  if (const std::size_t rows = best_rows_of(config); rows > 0) {
    const std::size_t count = rows * at(static_cast<int>(ranks_of(config)));
    best_tokens_ = device.allocate(count * sizeof(TokenId));
    best_probabilities_ = device.allocate(count * sizeof(float));
    entropies_ = device.allocate(rows * sizeof(float));
  }
  if (const std::size_t bytes = judged_bytes(config); bytes > 0) judged_ = device.allocate(bytes);
  if (config.edited_context > 0) row_editor_.emplace(device, ShapeGrower::room_of_edits(config));
}

std::size_t FrontierGrower::device_bytes(const ShapeGrower::Config& config) {
  return q_bytes(config) + judged_bytes(config) + best_bytes(config) +
         (config.edited_context > 0 ? RowEditor::device_bytes(ShapeGrower::room_of_edits(config))
                                    : 0);
}

TensorView FrontierGrower::q_of(std::size_t text, int row, int count) const {
  const std::size_t row_bytes = at(config_.vocab) * sizeof(float);
  return TensorView(q_.data() + (text * rows_of_text_ + at(row)) * row_bytes, DType::kF32,
                    {count, config_.vocab});
}

std::vector<Draft> FrontierGrower::grow(Transformer& model, std::span<const Request> requests,
                                        Stream& stream, const std::stop_token& stop) {
  require(!requests.empty() && requests.size() <= at(config_.max_requests),
          "draft: between 1 and max_requests sequences can grow together");
  std::vector<PendingText> pending;
  std::vector<Frontier> frontiers(requests.size());
  std::vector<int> length;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const ShapeGrower::Request& text = requests[r].text;
    require(text.editor == nullptr || row_editor_, "draft: no room was made for edits of logits");
    pending.push_back({text.pending, text.kv});
    length.push_back(text.kv->length());
    frontiers[r].nodes.push_back({text.pending.back(), -1});
    frontiers[r].depth.push_back(0);
  }
  try {
    TensorView logits = run_pending(model, pending, stream, stop);
    judge(requests, frontiers, logits, stream);
    while (std::any_of(frontiers.begin(), frontiers.end(), [](const auto& f) { return !f.done; })) {
      logits = run_level(model, requests, frontiers, stream, stop);
      judge(requests, frontiers, logits, stream);
    }
  } catch (...) {
    finish_quietly(stream);  // what is queued uses memory of this grower and of its caller
    for (std::size_t r = 0; r < requests.size(); ++r) requests[r].text.kv->truncate(length[r]);
    throw;
  }
  std::vector<Draft> drafts;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    GrownTree grown = requests[r].grower->finish();
    const Drawing drawing = requests[r].text.best_tokens ? Drawing::kTopK : config_.drawing;
    drafts.push_back({std::move(grown.tree),
                      drawing,
                      std::move(grown.run),
                      {},
                      std::move(grown.log_q),
                      static_cast<int>(frontiers[r].nodes.size()),
                      std::move(grown.copied),
                      std::move(grown.row)});
    if (uses_q(drawing)) drafts.back().q = q_of(r, 0, static_cast<int>(rows_of_text_));
  }
  return drafts;
}

TensorView FrontierGrower::run_level(Transformer& model, std::span<const Request> requests,
                                     std::span<const Frontier> frontiers, Stream& stream,
                                     const std::stop_token& stop) {
  struct Rows {
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> position, logit_rows;
    std::vector<std::uint64_t> ancestors;
  };
  std::vector<Rows> rows(requests.size());
  std::vector<SequenceRows> parts;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const Frontier& frontier = frontiers[r];
    if (frontier.done) continue;
    KvCache* const kv = requests[r].text.kv;
    std::vector<NodeId> parents;
    for (const DraftedNode& node : frontier.nodes) parents.push_back(node.parent);
    const int count = static_cast<int>(frontier.nodes.size()) - frontier.first;
    Rows& of = rows[r];
    of.ancestors = ancestor_bits(parents, frontier.first, count);
    of.logit_rows = counting(0, at(count));
    for (std::size_t i = at(frontier.first); i < frontier.nodes.size(); ++i) {
      of.tokens.push_back(frontier.nodes[i].token);
      of.position.push_back(kv->length() + frontier.depth[i]);
    }
    parts.push_back({{of.tokens, of.position, of.ancestors, frontier.first, of.logit_rows}, kv});
  }
  return model.forward(parts, stream, stop);
}

void FrontierGrower::edit(std::span<const Request> requests, std::span<const Frontier> frontiers,
                          TensorView logits, Stream& stream) {
  std::vector<RowEditor::Row> rows;
  bool edited = false;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const Frontier& frontier = frontiers[r];
    if (frontier.done) continue;
    for (int node = frontier.first; node < std::ssize(frontier.nodes); ++node) {
      RowEditor::Row& row = rows.emplace_back();
      row.editor = requests[r].text.editor;
      if (row.editor == nullptr) continue;
      edited = true;
      for (int up = node; up > 0; up = frontier.nodes[at(up)].parent)
        row.path.insert(row.path.begin(), frontier.nodes[at(up)].token);
    }
  }
  // Nothing is accepted where nothing may follow.
  if (edited) row_editor_->edit(stream, logits, rows, logits);
}

void FrontierGrower::probabilities(ConstTensorView logits, const Sampling& sampling, TensorView to,
                                   Stream& stream) {
  for_common_columns(logits, config_.vocab, [&](ConstTensorView rows, std::int64_t i) {
    device_->ops().probabilities(stream, rows, sampling, to.rows(i, rows.dim(0)));
  });
}

void FrontierGrower::judge(std::span<const Request> requests, std::span<Frontier> frontiers,
                           ConstTensorView logits, Stream& stream) {
  edit(requests, frontiers,
       TensorView(const_cast<std::byte*>(logits.data()), DType::kF32,
                  {logits.dim(0), logits.dim(1)}),
       stream);
  if (is_valued(config_)) return judge_best(requests, frontiers, logits, stream);
  const auto columns = at(config_.vocab);
  host_drawn_.resize(static_cast<std::size_t>(logits.dim(0)) * columns);
  host_judged_.resize(judged_.bytes() > 0 ? host_drawn_.size() : 0);
  // Rows [row, row + count) of a level, on their way to the host.
  const auto fetch = [&](std::vector<float>& to, std::int64_t row, TensorView rows) {
    const std::span<float> host(to.data() + static_cast<std::size_t>(row) * columns,
                                static_cast<std::size_t>(rows.dim(0)) * columns);
    device_->download(stream, std::as_writable_bytes(host), rows.data());
  };
  std::int64_t row = 0;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const Frontier& frontier = frontiers[r];
    if (frontier.done) continue;
    const Sampling& sampling = requests[r].text.sampling;
    const int count = static_cast<int>(frontier.nodes.size()) - frontier.first;
    const int first = uses_q(config_.drawing) ? frontier.first : 0;
    require(at(first + count) <= rows_of_text_, "draft: no room was made for so large a level");
    const TensorView q = q_of(r, first, count);
    probabilities(logits.rows(row, count), drawn_by(sampling), q, stream);
    fetch(host_drawn_, row, q);
    if (judges_apart(config_, sampling)) {
      const TensorView judged(
          judged_.data() + static_cast<std::size_t>(row) * columns * sizeof(float), DType::kF32,
          {count, config_.vocab});
      probabilities(logits.rows(row, count), {.temperature = 1}, judged, stream);
      fetch(host_judged_, row, judged);
    }
    row += count;
  }
  stream.synchronize();
  ask(requests, frontiers);
}

void FrontierGrower::ask(std::span<const Request> requests, std::span<Frontier> frontiers) {
  const auto columns = at(config_.vocab);
  std::size_t done = 0;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    Frontier& frontier = frontiers[r];
    if (frontier.done) continue;
    const bool apart = judges_apart(config_, requests[r].text.sampling);
    std::vector<DraftedRow> rows;
    for (std::size_t i = at(frontier.first); i < frontier.nodes.size(); ++i, done += columns) {
      const std::span<const float> drawn(host_drawn_.data() + done, columns);
      require(!std::isnan(drawn.front()), kDraftNotFinite);
      rows.push_back(
          {drawn, apart ? std::span<const float>(host_judged_.data() + done, columns) : drawn});
    }
    go_on(requests[r], frontier, rows);
  }
}

void FrontierGrower::go_on(const Request& request, Frontier& frontier,
                           std::span<const DraftedRow> rows) {
  const std::vector<DraftedNode> next = request.grower->take(rows);
  frontier.first = static_cast<int>(frontier.nodes.size());
  frontier.done = next.empty();
  for (const DraftedNode& node : next) {
    frontier.depth.push_back(frontier.depth[at(node.parent)] + 1);
    frontier.nodes.push_back(node);
  }
}

BestOfRows FrontierGrower::best_rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t ranks = ranks_of(config_);
  const auto all = static_cast<std::int64_t>(best_rows_of(config_));
  const TensorView token(best_tokens_.data(), DType::kI32, {all, ranks}),
      probability(best_probabilities_.data(), DType::kF32, {all, ranks}),
      entropy(entropies_.data(), DType::kF32, {all});
  return {token.rows(first, count), probability.rows(first, count), entropy.rows(first, count)};
}

void FrontierGrower::judge_best(std::span<const Request> requests, std::span<Frontier> frontiers,
                                ConstTensorView logits, Stream& stream) {
  const std::int64_t all = logits.dim(0);
  require(all <= static_cast<std::int64_t>(best_rows_of(config_)),
          "draft: no room was made for so large a level");
  std::int64_t row = 0;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const Frontier& frontier = frontiers[r];
    if (frontier.done) continue;
    const float temperature = drawn_by(requests[r].text.sampling).temperature;
    const auto count = static_cast<std::int64_t>(frontier.nodes.size()) - frontier.first;
    for_common_columns(logits.rows(row, count), config_.vocab,
                       [&](ConstTensorView rows, std::int64_t i) {
                         device_->ops().top_probabilities(stream, rows, temperature,
                                                          best_rows(row + i, rows.dim(0)));
                       });
    row += count;
  }
  const std::size_t ranks = at(static_cast<int>(ranks_of(config_)));
  const auto rows = static_cast<std::size_t>(all);
  host_tokens_.resize(rows * ranks);
  host_probabilities_.resize(rows * ranks);
  host_entropies_.resize(rows);
  const BestOfRows from = best_rows(0, all);
  device_->download(stream, std::as_writable_bytes(std::span(host_tokens_)), from.token.data());
  device_->download(stream, std::as_writable_bytes(std::span(host_probabilities_)),
                    from.probability.data());
  device_->download(stream, std::as_writable_bytes(std::span(host_entropies_)),
                    from.entropy.data());
  stream.synchronize();
  std::size_t done = 0;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    Frontier& frontier = frontiers[r];
    if (frontier.done) continue;
    std::vector<BestTokens> best;
    for (std::size_t i = at(frontier.first); i < frontier.nodes.size(); ++i, ++done) {
      const auto tokens = std::span(host_tokens_).subspan(done * ranks, ranks);
      require(tokens.front() >= 0, kDraftNotFinite);
      BestTokens& of = best.emplace_back();
      of.tokens.assign(tokens.begin(), tokens.end());
      of.row.count = static_cast<int>(ranks);
      std::copy_n(host_probabilities_.begin() + static_cast<std::ptrdiff_t>(done * ranks), ranks,
                  of.row.probability.begin());
      of.row.entropy = host_entropies_[done];
    }
    std::vector<DraftedRow> drafted;
    for (const BestTokens& one : best) drafted.push_back({{}, {}, &one});
    go_on(requests[r], frontier, drafted);
  }
}

}  // namespace canopy
