#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/types.h"

namespace canopy {

/// One text's part of what is known about a draft: at how many positions a child of each rank was
/// asked for, those of the ranks before it having been refused, and at how many of them it was the
/// accepted one. Counts of refusals do not depend on where a tree has how many children, as shares
/// of all nodes would (docs/math.md, "Learning acceptance"). One thread.
class TextAcceptance {
 public:
  struct Rank {
    std::int64_t asked = 0, accepted = 0;
  };
  /// As many ranks as are counted; children beyond are hardly ever accepted.
  static constexpr std::size_t kMaxRanks = 128;

  TextAcceptance() = default;
  /// Throws Error if more is accepted, or asked for next, than was asked for.
  explicit TextAcceptance(std::vector<Rank> ranks);

  /// A node that the verifier stood on, those of a walk from its root on: how many levels below the
  /// root, how many children, and the rank, from 0, of the accepted one; -1 if none was. A walk
  /// that ends for want of children asks nothing of that position: the next root, which is asked
  /// whatever it holds, counts for both.
  void observe(int level, int children, int accepted);

  std::span<const Rank> ranks() const { return ranks_; }
  std::int64_t positions() const { return ranks_.empty() ? 0 : ranks_.front().asked; }

 private:
  std::vector<Rank> ranks_;
  bool owes_position_ = false;  // the last walk ended for want of children
};

/// A number that this text alone has, as far as 64 bits can say: of its prompt and the first
/// kTextBeginning tokens that followed, so that a text which goes on is the same one.
std::uint64_t text_fingerprint(std::span<const TokenId> prompt, std::span<const TokenId> generated);
inline constexpr std::size_t kTextBeginning = 16;

}  // namespace canopy
