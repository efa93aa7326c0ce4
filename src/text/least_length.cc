#include "src/text/least_length.h"

#include <algorithm>
#include <utility>

namespace canopy {

LeastLength::LeastLength(int tokens, std::vector<TokenId> ends, int vocab)
    : left_(tokens), ends_(std::move(ends)), vocab_(vocab) {}

std::unique_ptr<TokenConstraint> LeastLength::clone() const {
  return std::make_unique<LeastLength>(*this);
}

void LeastLength::accept(TokenId /*token*/) {
  if (left_ > 0) --left_;
}

bool LeastLength::allow(std::span<const TokenId> path, std::span<std::uint32_t> allowed) {
  std::fill(allowed.begin(), allowed.end(), std::uint32_t{0});
  const std::size_t must = std::min(path.size(), static_cast<std::size_t>(left_));
  for (const TokenId token : path.first(must))
    if (std::find(ends_.begin(), ends_.end(), token) != ends_.end()) return false;
  for (int token = 0; token < vocab_; token += 32)
    allowed[static_cast<std::size_t>(token) / 32] =
        vocab_ - token >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << (vocab_ - token)) - 1;
  if (path.size() >= static_cast<std::size_t>(left_)) return true;
  for (const TokenId end : ends_)
    allowed[static_cast<std::size_t>(end) / 32] &= ~(std::uint32_t{1} << end % 32);
  return true;
}

}  // namespace canopy
