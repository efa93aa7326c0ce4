#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/ops.h"
#include "src/base/error.h"
#include "src/speculation/logits/logit_edits.h"
#include "src/speculation/token_tree.h"

namespace canopy {

/// Thrown where a text cannot go on: its constraint and its bias leave no token.
class NothingAllowed : public Error {
 public:
  explicit NothingAllowed(const std::string& why) : Error("the text cannot go on: " + why) {}
};

/// Edits of one text's logits, at the text's end and after each way on from there. A row's edits
/// are a function of the text before it alone (docs/math.md, "Edits along a path"). One thread at a
/// time.
class LogitEditor {
 public:
  static constexpr std::size_t kMostBiases = 1024;

  using Ends = std::function<bool(TokenId)>;
  /// The text begins after `prompt`. `vocab`: the target's. `ends`: which tokens end the text; the
  /// constraint is never asked after one; empty: none does. Throws Error where a number is out of
  /// range or a token is none.
  LogitEditor(const LogitEditing& editing, std::span<const TokenId> prompt, int vocab,
              Ends ends = {});

  /// The text goes on with this token.
  void accept(TokenId token);

  /// The edits of all rows, but for tokens that own() names.
  const std::vector<LogitEdit>& shared() const { return shared_; }
  /// Adds those that the row after `path` has instead.
  void own(std::span<const TokenId> path, std::vector<LogitEdit>& to) const;

  enum class Reach : std::uint8_t {
    kReached,      // `path` is allowed, and some token may follow
    kUnreachable,  // `path` is not allowed, or the text has ended: no token of its row counts
    kNothingLeft,  // `path` is allowed, and no token may follow: why_nothing() says why
  };
  /// True if some tokens are not allowed after some path.
  bool masks() const { return constraint_ != nullptr || !banned_.empty(); }
  /// Sets the bits of tokens that may follow `path` as TokenConstraint::allow does, without those
  /// that the bias bans. `bits`: words() of them.
  Reach allow(std::span<const TokenId> path, std::span<std::uint32_t> bits);
  const std::string& why_nothing() const { return why_nothing_; }
  std::size_t words() const { return words_for(vocab_); }

  /// Most edits that shared() has for texts of this length.
  static std::size_t most_shared(std::size_t context, std::size_t vocab);
  static std::size_t words_for(std::size_t vocab) { return (vocab + 31) / 32; }

 private:
  struct Token {
    float bias = 0;
    bool seen = false;  // in the prompt or in the text
    int generated = 0;
    std::size_t place = 0;  // in shared_
  };
  LogitEdit edit_of(TokenId id, const Token& token) const;
  bool penalises() const { return repetition_ != 1 || presence_ != 0 || frequency_ != 0; }
  Token& entry(TokenId id);

  float repetition_, presence_, frequency_;
  std::unique_ptr<TokenConstraint> constraint_;
  Ends ends_;
  std::string why_nothing_;
  std::vector<TokenId> banned_;
  std::size_t vocab_;
  std::unordered_map<TokenId, Token> tokens_;
  std::vector<LogitEdit> shared_;
};

/// Edits rows of logits on the device, with one upload and one kernel for all. One thread at a
/// time.
class RowEditor {
 public:
  /// Needs of the largest call: rows, texts that they are of, edits that the texts share, edits of
  /// single rows, all rows together; and the larger vocabulary of target and draft.
  struct Room {
    std::size_t rows = 0, texts = 0, shared = 0, own = 0, vocab = 0;
  };
  RowEditor(Device& device, const Room& room);
  static std::size_t device_bytes(const Room& room);  // pure
  static constexpr int kAllocations = 1;              // that hold them

  /// One row: whose it is, and the way to it from the text's end. Without an editor the row stays
  /// as it is, and so does one that cannot be reached.
  struct Row {
    LogitEditor* editor = nullptr;
    std::vector<TokenId> path;
  };
  /// y = the rows' logits as edited; it may be the same memory. Rows of a text stand together.
  /// False where no token may follow some row: it stays as it is. The stream must have been waited
  /// for since the last call. Throws Error if there is no room. Shapes: logits, y [rows, at most
  /// the room's vocab] f32.
  bool edit(Stream& stream, ConstTensorView logits, std::span<const Row> rows, TensorView y);

 private:
  bool gather(std::span<const Row> rows);  // into rows_, edits_, bits_
  Device* device_;
  std::size_t bytes_, vocab_;
  Buffer buffer_;
  std::vector<LogitEditRow> rows_;
  std::vector<LogitEdit> edits_;
  std::vector<std::uint32_t> bits_;
  std::vector<std::byte> staged_;  // all of them, on their way to the device
};

/// Tokens from below the root down to this node.
std::vector<TokenId> path_to(const TokenTree& tree, NodeId node);

}  // namespace canopy
