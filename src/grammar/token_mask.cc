#include "src/grammar/token_mask.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "src/base/error.h"
#include "src/grammar/limits.h"
#include "src/grammar/machine.h"
#include "src/grammar/mask_cache.h"
#include "src/grammar/mask_walk.h"

namespace canopy::grammar {
namespace {

/// A place in a text: how it can be read up to there.
struct Place {
  Stack stack;
  Readings readings;
  bool ended = false;  // after an end token
};

/// The parts that the clones of one constraint share. Any number of threads: they take turns.
class Masks {
 public:
  Masks(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const VocabularyTrie> vocabulary)
      : vocabulary_(std::move(vocabulary)),
        machine_(std::move(grammar), vocabulary_->single_bytes()),
        walk_(machine_, *vocabulary_),
        cache_(kMaskCacheBytes) {}

  Place start() {
    const std::scoped_lock lock(mutex_);
    Place place;
    machine_.begin(place.stack, place.readings);
    return place;
  }

  /// False if the token may not follow; `place` is nowhere then.
  bool advance(Place& place, TokenId token) {
    const std::scoped_lock lock(mutex_);
    if (vocabulary_->ends_text(token)) {
      if (!place.ended && !place.readings.complete) return false;
      place = {.stack = {}, .readings = {}, .ended = true};
      return true;
    }
    const std::string_view bytes = vocabulary_->bytes_of(token);
    if (bytes.empty()) return false;
    for (const char byte : bytes) {
      machine_.step(place.readings, static_cast<std::uint8_t>(byte), place.stack, next_);
      std::swap(place.readings, next_);
      if (place.readings.none()) return false;
    }
    return true;
  }

  void mask(Place& place, std::span<std::uint32_t> allowed) {
    const std::scoped_lock lock(mutex_);
    std::ranges::fill(allowed, 0u);
    if (!place.ended) {
      std::string key = key_of(place.readings, place.stack, vocabulary_->longest_token());
      const MaskCache::Mask* mask = cache_.find(key);
      if (mask == nullptr) {
        MaskCache::Mask made((static_cast<std::size_t>(vocabulary_->vocab()) + 31) / 32);
        walk_.fill(place.readings, place.stack, made);
        mask = &cache_.insert(std::move(key), std::move(made));
      }
      std::ranges::copy(*mask, allowed.begin());
    }
    if (place.ended || place.readings.complete)
      for (const TokenId token : vocabulary_->ends())
        allowed[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
    if (std::ranges::all_of(allowed, [](std::uint32_t bits) { return bits == 0; }))
      throw Error(
          "the vocabulary has no token that may follow the text: it cannot spell the rest "
          "of what the grammar asks for");
  }

  const VocabularyTrie& vocabulary() const { return *vocabulary_; }

 private:
  std::mutex mutex_;
  std::shared_ptr<const VocabularyTrie> vocabulary_;
  Machine machine_;
  MaskWalk walk_;
  MaskCache cache_;
  Readings next_;
};

class GrammarConstraint final : public TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<Masks> masks)
      : masks_(std::move(masks)), place_(masks_->start()) {}

  std::unique_ptr<TokenConstraint> clone() const override {
    return std::make_unique<GrammarConstraint>(*this);
  }

  void accept(TokenId token) override {
    if (!masks_->advance(place_, token))
      throw Error("the grammar does not allow token " + std::to_string(token) +
                  " here: only what its mask had may be accepted");
    compact(place_.stack, place_.readings);
  }

  bool allow(std::span<const TokenId> path, std::span<std::uint32_t> allowed) override {
    const auto vocab = static_cast<std::size_t>(masks_->vocabulary().vocab());
    if (allowed.size() * 32 < vocab)
      throw Error("a mask of " + std::to_string(allowed.size() * 32) +
                  " bits is too small for a vocabulary of " + std::to_string(vocab));
    Place place = place_;
    for (const TokenId token : path) {
      if (masks_->advance(place, token)) continue;
      std::ranges::fill(allowed, 0u);
      return false;
    }
    masks_->mask(place, allowed);
    return true;
  }

 private:
  std::shared_ptr<Masks> masks_;
  Place place_;
};

}  // namespace

std::unique_ptr<TokenConstraint> constrain(std::shared_ptr<const Grammar> grammar,
                                           std::shared_ptr<const VocabularyTrie> vocabulary) {
  return std::make_unique<GrammarConstraint>(
      std::make_shared<Masks>(std::move(grammar), std::move(vocabulary)));
}

}  // namespace canopy::grammar
