#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "planner/curve.h"
#include "planner/tree_shape.h"
#include "src/speculation/drafter.h"

namespace canopy {

/// The most that a drafter may be asked for.
struct DraftBounds {
  int vocab = 0;  // tokens of the target
  int nodes = 0;  // of all trees that grow at a time
  int texts = 1;  // that have a state each
  int slots = 0;  // tokens of a text, its tree included
};

/// A line of a plan's ledger.
struct DraftBytes {
  std::string what;
  std::uint64_t bytes = 0;
  int allocations = 1;  // that hold them
};
/// Needs of a drafter: bytes of the host, bytes where the target is computed, and the work that
/// Ops::reserve needs for it.
struct DraftNeeds {
  std::vector<DraftBytes> host, device;
  Workload workload;
};

/// A draft that takes the place of a model, as known before there is a device: the planner asks
/// what it needs and gains, the engine makes its drafter. Its trees are always of kTopK: children
/// are a function of the text and of random numbers that nothing else uses, so that the target's
/// own sample may decide. Immutable; any thread.
class DraftSource {
 public:
  virtual ~DraftSource() = default;

  /// Names it in reports and the ledger.
  virtual std::string name() const = 0;
  /// Returns the acceptance that its trees are planned with until texts have shown more, and where
  /// that is from, for the user: "assumed to be ...".
  virtual Acceptance prior(double temperature) const = 0;
  virtual std::string prior_in_words() const = 0;
  /// Seconds of a level by its rows, all texts together, where growing takes time worth counting.
  virtual Curve level_seconds() const;
  /// Levels that it can draft below the root; 0: any number.
  virtual int levels() const { return 0; }
  /// Heads of a model (arXiv:2401.10774), a level each: what they propose may be judged by typical
  /// acceptance.
  virtual bool has_heads() const { return false; }

  virtual DraftNeeds needs(const DraftBounds& bounds) const = 0;
  /// Throws Error if it cannot be read, or the device is full.
  virtual std::unique_ptr<Drafter> make(Device& device, const DraftBounds& bounds) const = 0;

  /// Returns the same with a text to read besides the one that is written; null where it reads
  /// none. Throws Error with tokens that the target has not, once it is made.
  virtual std::shared_ptr<const DraftSource> with_corpus(std::vector<TokenId>) const {
    return nullptr;
  }
};

/// A source by its name, as in -md copy:2; null where no kind has that name. Throws Error where a
/// kind has it, but not such a number.
std::shared_ptr<const DraftSource> draft_source_named(std::string_view text);

using ParseDraft = std::shared_ptr<const DraftSource> (*)(std::string_view text);
/// Another kind, which draft_source_named() asks after those that there are. While no other thread
/// asks.
void add_draft_kind(ParseDraft parse);

}  // namespace canopy
