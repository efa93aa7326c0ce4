#pragma once
#include <cstdint>

namespace canopy {

/// Way to draw siblings and, by that, the rule that verifies them. Each proof (docs/math.md,
/// "Verification") is of such a pair, so the pair has one name, which travels with the tree. The
/// rejection rule for a single sequence (arXiv:2211.17192) is kSequoia on a chain, from above.
enum class Drawing : std::uint8_t {
  kTopK,       // the draft's best tokens; the target's own sample decides
  kNaive,      // drawn from q independently; the target's own sample decides
  kSequoia,    // drawn from q, never one twice; refuse and owe (arXiv:2402.12374, Algorithm 1)
  kSpecInfer,  // drawn from q independently; refuse and owe (arXiv:2305.09781)
  kSpecTr,     // drawn from q independently; k-sequential selection (arXiv:2310.15141)
};

/// Returns its name in the names of files.
constexpr const char* name(Drawing drawing) {
  switch (drawing) {
    case Drawing::kTopK:
      return "topk";
    case Drawing::kNaive:
      return "naive";
    case Drawing::kSequoia:
      return "sequoia";
    case Drawing::kSpecInfer:
      return "specinfer";
    case Drawing::kSpecTr:
      break;
  }
  return "spectr";
}

/// True if siblings are drawn at random, from probabilities that the grower must make.
constexpr bool uses_q(Drawing drawing) { return drawing != Drawing::kTopK; }

/// True if the rule refuses and owes, which judges trees from below where it may.
constexpr bool refuses_and_owes(Drawing drawing) {
  return drawing == Drawing::kSequoia || drawing == Drawing::kSpecInfer;
}

/// True if the target's own sample decides, whatever the children are.
constexpr bool target_decides(Drawing drawing) {
  return drawing == Drawing::kTopK || drawing == Drawing::kNaive;
}

}  // namespace canopy
