#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "src/base/types.h"

namespace canopy {

/// Constraint on the tokens that may follow a text: what a grammar, say, leaves of the vocabulary.
/// It stands at a place in one text. A masked distribution is the target's own under that
/// condition, so speculation stays exact. One thread at a time.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// Another one at the same place.
  virtual std::unique_ptr<TokenConstraint> clone() const = 0;
  /// The text goes on with this token, which was allowed.
  virtual void accept(TokenId token) = 0;
  /// Sets the bits of the tokens that may follow `path`, a way on from the place, which stays:
  /// token t has bit t % 32 of allowed[t / 32]; the others are cleared. False where `path` itself
  /// is not allowed: all bits are cleared then. Else at least one is set: an end token where the
  /// text may end. Throws Error where no token may follow at all: this text cannot go on.
  virtual bool allow(std::span<const TokenId> path, std::span<std::uint32_t> allowed) = 0;
};

}  // namespace canopy
