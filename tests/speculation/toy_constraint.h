#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/text/token_constraint.h"

namespace canopy::testing {

/// Allows what a function of the generated text and the next token says.
class ToyConstraint final : public TokenConstraint {
 public:
  using Allows = std::function<bool(std::span<const TokenId> text, TokenId next)>;
  ToyConstraint(int vocab, Allows allows) : vocab_(vocab), allows_(std::move(allows)) {}

  std::unique_ptr<TokenConstraint> clone() const override {
    return std::make_unique<ToyConstraint>(*this);
  }
  void accept(TokenId token) override {
    EXPECT_TRUE(allows_(text_, token)) << "token " << token << " behind " << text_.size();
    text_.push_back(token);
  }
  bool allow(std::span<const TokenId> path, std::span<std::uint32_t> allowed) override {
    std::fill(allowed.begin(), allowed.end(), 0u);
    bool any = false;
    std::vector<TokenId> text = text_;
    for (const TokenId token : path) {
      if (!allows_(text, token)) return false;
      text.push_back(token);
    }
    for (TokenId token = 0; token < vocab_; ++token)
      if (allows_(text, token)) {
        allowed[static_cast<std::size_t>(token) / 32] |= 1u << token % 32;
        any = true;
      }
    if (!any) throw Error("the toy has no token that may follow");
    return true;
  }

 private:
  int vocab_;
  Allows allows_;
  std::vector<TokenId> text_;
};

}  // namespace canopy::testing
