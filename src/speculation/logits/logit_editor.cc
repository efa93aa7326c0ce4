#include "src/speculation/logits/logit_editor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

namespace canopy {
namespace {

void require_within(float value, const char* what) {
  if (!(std::abs(value) <= kMostEdit))
    throw Error(std::string(what) + " must lie between -1000000 and 1000000");
}

std::size_t rounded_up(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

LogitEditor::LogitEditor(const LogitEditing& editing, std::span<const TokenId> prompt, int vocab,
                         Ends ends)
    : repetition_(editing.repetition),
      presence_(editing.presence),
      frequency_(editing.frequency),
      ends_(std::move(ends)),
      vocab_(static_cast<std::size_t>(vocab)) {
  require(repetition_ >= 1 / kMostEdit && repetition_ <= kMostEdit,
          "the repetition penalty must lie between 0.000001 and 1000000");
  require_within(presence_, "the presence penalty");
  require_within(frequency_, "the frequency penalty");
  if (editing.bias.size() > kMostBiases)
    throw Error("the logits of at most " + std::to_string(kMostBiases) + " tokens can be biased");
  for (const auto& [id, bias] : editing.bias) {
    if (id < 0 || id >= vocab)
      throw Error("logit bias: token " + std::to_string(id) + " is outside the vocabulary of " +
                  std::to_string(vocab));
    if (bias == -INFINITY) {
      banned_.push_back(id);
      continue;
    }
    require_within(bias, "the bias of a logit");
    entry(id).bias += bias;
  }
  if (editing.constraint) constraint_ = editing.constraint->clone();
  if (repetition_ != 1)
    for (const TokenId id : prompt) entry(id).seen = true;
  for (const auto& [id, token] : tokens_) shared_[token.place] = edit_of(id, token);
}

LogitEditor::Token& LogitEditor::entry(TokenId id) {
  const auto [at, is_new] = tokens_.try_emplace(id);
  if (is_new) {
    at->second.place = shared_.size();
    shared_.push_back({id});
  }
  return at->second;
}

LogitEdit LogitEditor::edit_of(TokenId id, const Token& token) const {
  const float once = token.generated > 0 ? presence_ : 0;
  return {id, token.bias, token.seen ? repetition_ : 1,
          once + frequency_ * static_cast<float>(token.generated)};
}

void LogitEditor::accept(TokenId id) {
  if (constraint_) constraint_->accept(id);
  if (!penalises()) return;
  Token& token = entry(id);
  token.seen = true;
  ++token.generated;
  shared_[token.place] = edit_of(id, token);
}

void LogitEditor::own(std::span<const TokenId> path, std::vector<LogitEdit>& to) const {
  if (!penalises()) return;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (std::find(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(i), path[i]) !=
        path.begin() + static_cast<std::ptrdiff_t>(i))
      continue;  // it has its edit
    const auto known = tokens_.find(path[i]);
    Token token = known == tokens_.end() ? Token() : known->second;
    token.seen = true;
    token.generated += static_cast<int>(std::count(path.begin(), path.end(), path[i]));
    to.push_back(edit_of(path[i], token));
  }
}

LogitEditor::Reach LogitEditor::allow(std::span<const TokenId> path,
                                      std::span<std::uint32_t> bits) {
  if (ends_ && std::any_of(path.begin(), path.end(), ends_)) return Reach::kUnreachable;
  why_nothing_ = "its constraint and its bias allow no token";
  if (!constraint_) {
    std::fill(bits.begin(), bits.end(), ~std::uint32_t{0});
    if (vocab_ % 32 != 0) bits.back() = (std::uint32_t{1} << vocab_ % 32) - 1;
  } else {
    try {
      if (!constraint_->allow(path, bits))
        return path.empty() ? Reach::kNothingLeft : Reach::kUnreachable;
    } catch (const Error& nothing) {  // of this text alone: the others go on
      why_nothing_ = nothing.what();
      return Reach::kNothingLeft;
    }
  }
  for (const TokenId id : banned_)
    bits[static_cast<std::size_t>(id) / 32] &= ~(std::uint32_t{1} << id % 32);
  const bool any = std::any_of(bits.begin(), bits.end(), [](std::uint32_t w) { return w != 0; });
  return any ? Reach::kReached : Reach::kNothingLeft;
}

std::size_t LogitEditor::most_shared(std::size_t context, std::size_t vocab) {
  return std::min(context + kMostBiases, vocab);
}

RowEditor::RowEditor(Device& device, const Room& room)
    : device_(&device), bytes_(device_bytes(room)), vocab_(room.vocab) {
  buffer_ = device.allocate(bytes_);
  rows_.reserve(room.rows);
  edits_.reserve(room.texts * room.shared + room.own);
  bits_.reserve(room.rows * LogitEditor::words_for(room.vocab));
  staged_.reserve(bytes_);
}

std::size_t RowEditor::device_bytes(const Room& room) {
  return rounded_up(room.rows * sizeof(LogitEditRow)) +
         (room.texts * room.shared + room.own) * sizeof(LogitEdit) +
         rounded_up(room.rows * LogitEditor::words_for(room.vocab) * sizeof(std::uint32_t));
}

bool RowEditor::gather(std::span<const Row> rows) {
  rows_.clear();
  edits_.clear();
  bits_.clear();
  const std::size_t words = LogitEditor::words_for(vocab_);
  const LogitEditor* last = nullptr;
  LogitEditRow shared;
  bool some_may_follow = true;
  const auto count = [&] { return static_cast<std::int32_t>(edits_.size()); };
  for (const Row& row : rows) {
    LogitEditRow& to = rows_.emplace_back();
    if (row.editor == nullptr) continue;
    if (row.editor->masks()) {
      bits_.resize(bits_.size() + words);
      const auto reach =
          row.editor->allow(row.path, std::span(bits_).last(words).first(row.editor->words()));
      if (reach != LogitEditor::Reach::kReached) {
        bits_.resize(bits_.size() - words);
        some_may_follow = some_may_follow && reach == LogitEditor::Reach::kUnreachable;
        continue;
      }
      to.allowed = static_cast<std::int32_t>(bits_.size() / words) - 1;
    }
    if (row.editor != last) {
      shared.shared_first = count();
      edits_.insert(edits_.end(), row.editor->shared().begin(), row.editor->shared().end());
      shared.shared_end = count();
      last = row.editor;
    }
    to.shared_first = shared.shared_first;
    to.shared_end = shared.shared_end;
    to.first = count();
    row.editor->own(row.path, edits_);
    to.end = count();
  }
  return some_may_follow;
}

bool RowEditor::edit(Stream& stream, ConstTensorView logits, std::span<const Row> rows,
                     TensorView y) {
  const bool some_may_follow = gather(rows);
  staged_.clear();
  const auto stage = [&](const auto& values) {
    const std::size_t at = staged_.size();
    const auto bytes = std::as_bytes(std::span(values));
    staged_.resize(at + rounded_up(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), staged_.begin() + static_cast<std::ptrdiff_t>(at));
    return buffer_.data() + at;
  };
  LogitEdits edits;
  edits.row = {stage(rows_), DType::kI32, {static_cast<std::int64_t>(rows_.size()), 5}};
  edits.edit = {stage(edits_), DType::kI32, {static_cast<std::int64_t>(edits_.size()), 4}};
  if (!bits_.empty()) {
    const auto words = static_cast<std::int64_t>(LogitEditor::words_for(vocab_));
    edits.allowed = {
        stage(bits_), DType::kU32, {static_cast<std::int64_t>(bits_.size()) / words, words}};
  }
  require(staged_.size() <= bytes_, "room was made for fewer edits of logits");
  device_->upload(stream, buffer_.data(), staged_);
  device_->ops().edit_logits(stream, logits, edits, y);
  return some_may_follow;
}

std::vector<TokenId> path_to(const TokenTree& tree, NodeId node) {
  std::vector<TokenId> path;
  for (; node > 0; node = tree.parent(node)) path.push_back(tree.token(node));
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace canopy
