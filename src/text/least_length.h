#pragma once
#include <memory>
#include <span>
#include <vector>

#include "src/text/token_constraint.h"

namespace canopy {

/// Constraint that a text is not over before it has a number of tokens: until then none may follow
/// that would end it. One thread at a time.
class LeastLength final : public TokenConstraint {
 public:
  /// `ends`: the tokens that end the text, of a vocabulary of `vocab`.
  LeastLength(int tokens, std::vector<TokenId> ends, int vocab);

  std::unique_ptr<TokenConstraint> clone() const override;
  void accept(TokenId token) override;
  bool allow(std::span<const TokenId> path, std::span<std::uint32_t> allowed) override;

 private:
  int left_;  // tokens that must still come
  std::vector<TokenId> ends_;
  int vocab_;
};

}  // namespace canopy
