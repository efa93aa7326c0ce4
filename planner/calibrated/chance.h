#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace canopy {

// The value of a drafted token: a calibrated chance that the target writes it, given that the text
// has come to its parent. docs/math.md, "Trees that the draft's rows shape".

/// Best tokens of a draft's row that can become children.
inline constexpr int kChanceRanks = 16;
inline constexpr std::size_t kChanceFeatures = 14;
using ChanceVector = std::array<double, kChanceFeatures>;

/// A draft's row, as far as chances depend on it: the probabilities of its best tokens, best first,
/// and its entropy in nats; and the token that followed the last ones where they stood in the text
/// before (CopyIndex), which becomes a child after the best ones if it is none of those.
struct RowOfBest {
  int count = 0;  // of probabilities
  std::array<float, kChanceRanks> probability{};
  float entropy = 0;
  int copied = 0;  // rank of that token, at most count + 1; 0: there is none
  int match = 0;   // tokens before it that stood there, too

  int children() const { return std::max(count, copied); }
};

/// Texts whose tokens differ in kind: the target's best, or drawn from it.
enum class ChanceKind : std::uint8_t { kGreedy, kSampled };
constexpr ChanceKind chance_kind(double temperature) {
  return temperature == 0 ? ChanceKind::kGreedy : ChanceKind::kSampled;
}
/// Weights that a pair of models begins with.
const ChanceVector& prior_weights(ChanceKind kind);

/// The features of the token of this rank, from 1 to row.children(): (V1).
ChanceVector chance_features(const RowOfBest& row, int rank);
/// The chance of a token with these features: (V2). At most kMostChance, so that no child is worth
/// as much as its parent.
double chance_of(const ChanceVector& weights, const ChanceVector& features);
inline constexpr double kMostChance = 0.995;

/// A row that the verifier stood on, and the rank, from 1, of the token that the target wrote
/// there; 0: none of those.
struct ChanceContext {
  RowOfBest row;
  int written = 0;
};

/// Evidence of contexts about the weights, as a quadratic function: its second derivative, and the
/// product of that with its maximum. Evidence adds up. (V3)
struct ChanceEvidence {
  static constexpr double kMostContexts = 4096;
  double contexts = 0;
  std::array<ChanceVector, kChanceFeatures> information{};
  ChanceVector moment{};

  /// Adds it, and scales what is older so that at most kMostContexts count.
  void add(const ChanceEvidence& later);
  /// The likeliest weights, with a ridge of 1 around the prior; the prior where those are not all
  /// finite.
  ChanceVector weights(const ChanceVector& prior) const;
  /// True if its numbers are finite, and weights follow from them.
  bool is_sound() const;
  bool operator==(const ChanceEvidence&) const = default;
};

/// The evidence of more contexts, at most the last kMostContexts, where `before` is known: one
/// Newton step from its weights, halved as long as it would make all less likely.
ChanceEvidence evidence_of(std::span<const ChanceContext> contexts, const ChanceEvidence& before,
                           const ChanceVector& prior);

}  // namespace canopy
