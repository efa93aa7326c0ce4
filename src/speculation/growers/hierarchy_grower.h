#pragma once
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "src/base/rng.h"
#include "src/speculation/growers/grower.h"

namespace canopy {

/// Grows a chain of the draft model's tokens, which a second draft guesses: the model runs the next
/// token together with guesses of those after it, and its own tokens are taken for as long as they
/// are the guessed ones. Each token is drawn from its row by the number that is keyed by its place,
/// so the chain is the one that ChainGrower would grow, in fewer forwards of the model, whatever
/// the guesses are. Rows of wrong guesses are left in scratch slots. Source: arXiv:2211.17192, 6,
/// names hierarchies; that the inner tokens are the model's own sample keeps the outer rule as it
/// is.
class HierarchyGrower final : public Grower {
 public:
  /// At most `most` tokens that are likely to follow the text.
  using Guess = std::function<std::vector<TokenId>(std::span<const TokenId> text, int most)>;
  struct Limits {
    int longest = 0;  // tokens of the chain
    int guesses = 0;  // at a time
  };
  /// `text`: what is committed, its last token being the root; `rng` as of ChainGrower.
  HierarchyGrower(std::span<const TokenId> text, Limits limits, Guess guess,
                  std::optional<StepRng> rng);
  std::vector<DraftedNode> take(std::span<const DraftedRow> rows) override;
  GrownTree finish() override { return {std::move(tree_), std::move(run_)}; }

 private:
  Limits limits_;
  Guess guess_;
  std::optional<StepRng> rng_;
  std::vector<TokenId> text_;  // the committed one and the chain
  TokenTree tree_;
  std::vector<std::int32_t> run_;
  std::vector<TokenId> asked_;  // tokens of the nodes whose rows come next: one and guesses
  int runs_ = 0;                // nodes that were run before those
};

}  // namespace canopy
