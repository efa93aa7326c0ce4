#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/speculation/draft_source.h"

namespace canopy {

/// A draft that takes no model. Plain data.
/// Source: arXiv:2211.17192, 3.6 (n-grams, copying from the context, uniform random tokens).
struct ModelFreeDraft {
  enum class Kind : std::uint8_t { kNgram, kCopy, kRandom };
  static constexpr int kMostNgram = 2, kLongestMatch = 16, kLeastMatch = 2;

  Kind kind = Kind::kCopy;
  int length = kLeastMatch;  // kNgram: 1 or 2 tokens; kCopy: fewest tokens of a match
  /// A text to count and to copy from besides the one that is written; null: none.
  std::shared_ptr<const std::vector<TokenId>> corpus;
};

/// "ngram:1", "ngram:2", "copy", "copy:M", "random". Nothing where the text names none of these
/// kinds. Throws Error where it names one of a length that there is not.
std::optional<ModelFreeDraft> model_free_draft_named(std::string_view text);
std::string name(const ModelFreeDraft& draft);
/// The acceptance that such a draft often has, by level: what followed a token that was copied from
/// a text is likely to go on following it.
Acceptance typical_acceptance(const ModelFreeDraft& draft, double temperature);

/// The source that model_free_draft_named() describes; null where it has no such name.
std::shared_ptr<const DraftSource> parse_model_free_draft(std::string_view text);

/// Proposes tokens that are counted in, or copied from, the text so far and a corpus. All of it is
/// on the host, and the text is all that it knows: there is no state to keep. Its trees may be
/// smaller than the shape, where it knows nothing. They are always of kTopK: children are a
/// function of the text and of random numbers that nothing else uses, so that the target's own
/// sample may decide. One thread.
///
/// kNgram: the tokens that most often followed the last one, then the most frequent ones; equal
/// counts in favour of the smaller token. (Counts with one added rank as counts do, and of equal
/// ranks the rule needs no probabilities.) kCopy: what followed the longest earlier matches of the
/// last tokens, of at least `length` and at most kLongestMatch tokens, the latest first; several
/// continuations are several children. kRandom: different tokens, each as likely as any other.
class ModelFreeDrafter final : public Drafter {
 public:
  /// `nodes`: most of all trees that grow at a time; `vocab`: the target's tokens. Throws Error if
  /// the corpus has others.
  ModelFreeDrafter(ModelFreeDraft draft, int vocab, int nodes);
  /// Bytes of the host that one holds besides the corpus itself, for texts of `context` tokens.
  /// Pure.
  static std::size_t host_bytes(const ModelFreeDraft& draft, int vocab, int context);

  std::unique_ptr<DraftState> open() override { return std::make_unique<DraftState>(); }
  std::vector<Draft> grow(std::span<const DraftRequest> requests, const TreeShape& shape,
                          Stream& stream, std::stop_token stop) override;
  void conclude(DraftState&, const Draft&, const Verdict&, ConstTensorView, Stream&) override {}
  TreeRoom room() const override { return TreeRoom::of_nodes(nodes_); }

 private:
  Draft grow_one(const DraftRequest& request, const TreeShape& shape);
  /// At most `count` different tokens to follow the path, the likeliest first. `first_draw`: the
  /// first random number that is its own.
  std::vector<TokenId> propose(std::span<const TokenId> path, std::size_t count, const StepRng& rng,
                               std::uint64_t first_draw);
  std::vector<TokenId> frequent(std::span<const TokenId> path, std::size_t count);
  std::vector<TokenId> copied(std::span<const TokenId> path, std::size_t count) const;
  std::vector<TokenId> random(std::size_t count, const StepRng& rng, std::uint64_t draw) const;
  /// Calls visit(tokens, i) where tokens[i] follows an earlier `token`: in the path, the latest
  /// first, then in the corpus.
  template <class Visit>
  void visit_successors(std::span<const TokenId> path, TokenId token, const Visit& visit) const;
  void count_text(std::span<const TokenId> text);

  ModelFreeDraft draft_;
  int vocab_, nodes_;
  // Token t stands in the corpus at places_[begin_[t]] to places_[begin_[t + 1] - 1].
  std::vector<std::int32_t> begin_, places_;
  std::vector<std::int32_t> corpus_counts_, counts_;  // per token; with the text's
  std::vector<TokenId> by_count_;                     // those that were seen, most frequent first
};

}  // namespace canopy
