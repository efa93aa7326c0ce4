#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/experts/expert_reads.h"
#include "planner/hardware_profile.h"
#include "planner/tree_shape.h"
#include "src/base/unit_kind.h"

namespace canopy {

/// The processes that share the rows of the target's matrices, and what is between them. Plain
/// data.
struct Network {
  int ranks = 1;
  double share = 1;   // of the rows: the largest of a rank
  Seconds latency{};  // of a message
  double bytes_per_second = 0;
  double reads = 1;  // seconds of the rank whose reads take longest, over those of this one

  /// Time in which all ranks gather `columns` columns of `rows` rows in `exchanges` steps, each of
  /// as many rounds as doubling takes (docs/math.md, "Ranks").
  Seconds gather(double rows, double columns, double exchanges) const;
};

/// One unit of the target's sweep, as the planner sees it.
struct SweepUnit {
  UnitKind kind = UnitKind::kAttention;
  double share = 1;             // kHead: of the head's rows
  std::uint64_t bytes = 0;      // that travel through the ring in every sweep; 0: none
  bool gives_way = false;       // rests only while texts leave it the memory
  std::uint64_t own_bytes = 0;  // of one that gives way
  std::size_t layer_kind = 0;   // of HardwareProfile::layers
  int window = 0;             // kAttention: number of the last tokens, which alone are seen; 0: all
  std::int64_t gathered = 0;  // columns of a row that ranks gather; 0: none has rows of its own
};

/// Places that the target's weights are to have: what travels, through how large a ring. On a
/// device with memory of its own the ring is there, and of what travels to it `disk_bytes` come
/// from disk, through a ring of the host that is deep enough for the slower of the two links to set
/// the pace.
struct WeightPlan {
  std::vector<SweepUnit> units;
  std::uint64_t ring_bytes = 0, resident_bytes = 0;
  bool uploaded = false;
  bool table_rests = false;           // the embedding's, so that its rows take no time
  std::uint64_t disk_bytes = 0;       // of each sweep, where uploaded
  ExpertReads experts;                // next to the units
  std::optional<int> least_stay;      // of these, where texts have taken all that they may
  ExpertReads host_experts;           // of these, what the host reads from disk, where uploaded
  std::uint64_t sweep_bytes() const;  // of the units
  bool reads() const;                 // something travels in some sweep
  bool gives_way() const;             // some unit does, or experts do
  WeightPlan when_full() const;       // where texts have taken all the memory that they may
};

enum class Bottleneck : std::uint8_t { kLink, kCompute, kDrafting, kNetwork };
const char* name(Bottleneck bottleneck);

/// Time that a step takes, and those that its parts would take alone.
struct StepCost {
  Seconds step{};
  Seconds link{};                             // the sweep's bytes, experts among them
  Seconds compute{};                          // the target's arithmetic
  Seconds exchange{};                         // columns between ranks
  Seconds draft{}, verify{};                  // while the target asks for nothing
  Bottleneck bottleneck = Bottleneck::kLink;  // what would shorten the step most, were it free
};

/// Drafting of trees that the draft's rows value: each text's root, then forwards of `rows` rows.
struct ValuedForwards {
  int forwards = 0, rows = 0;
};

/// A step to be predicted: `sequences` trees of one shape share the sweep.
struct StepQuery {
  const TreeShape* shape = nullptr;
  double tokens = 1;  // that one sequence is expected to gain: as many nodes are verified
  int sequences = 1;
  double context = 0;   // tokens of text before each tree
  bool sampled = true;  // children are drawn from q: not at temperature 0
  int prompt_rows = 0;  // that the sweep reads besides; nobody asks for their logits
  std::optional<ValuedForwards> valued{};  // in place of the shape's levels
};

/// Seconds of a step, from a profile. The ring of travelling weights is played through, unit by
/// unit, until its rhythm is steady: bytes arrive at the link's speed while there is room, a unit's
/// arithmetic begins when it is there and the one before is done, its room is free when that ends;
/// between two sweeps trees are grown and verified, and the ring fills. So with a deep ring a step
/// takes max(link, compute + draft + verify), and more where the ring is shallow or its units are
/// unlike. Cores that compute may slow the link (docs/math.md, "Reads next to arithmetic"). Experts
/// are read when routes are known, and waited for: that adds up. Of ranks each computes its share
/// of the products, and gathers the others' columns; attention to the text is computed by all.
/// Pure; any thread.
class CostModel {
 public:
  explicit CostModel(HardwareProfile profile, const Network& network = {});
  /// Throws Error if the ring does not hold its largest unit, if the tree has more than its root
  /// and the profile no draft, or if the profile lacks a kind of layer.
  StepCost step(const StepQuery& query, const WeightPlan& weights) const;
  /// Finds the most rows of a sweep whose arithmetic takes no longer than its bytes travel; at
  /// least 1. Nothing where no weights travel. `context`: tokens of text before each row.
  std::optional<int> rows_behind_link(const WeightPlan& weights, double context) const;
  const HardwareProfile& profile() const { return profile_; }
  const Network& network() const { return network_; }
  /// Bytes per second of the link that fills the ring. Throws Error if the profile has none.
  double bandwidth(const WeightPlan& weights) const;

 private:
  Seconds draft(const StepQuery& query) const;
  /// Share of the time measured while weights travel that these rows take of these weights: less
  /// than 1 where nothing is read.
  double share_of_time(double rows, const WeightPlan& weights) const;
  /// Time of a sweep's reads while the cores compute for so long.
  Seconds link(const WeightPlan& weights, Seconds computing) const;
  /// Time that each unit takes, and the embedding before them.
  struct Arithmetic {
    std::vector<Seconds> unit;
    Seconds embed{}, total{}, exchange{};  // the total without the exchanges, which units have
  };
  /// Rows of a sweep; of them those that logits are asked of; the texts that they belong to.
  struct Rows {
    double all, head, texts;
  };
  Arithmetic arithmetic(const Rows& of, double context, const WeightPlan& weights) const;
  HardwareProfile profile_;
  Network network_;
};

/// The period of the ring, see CostModel: `compute` per unit, `between` the last unit of a sweep
/// and the first of the next. Bandwidth in bytes per second.
Seconds ring_period(std::span<const std::uint64_t> bytes, std::span<const Seconds> compute,
                    Seconds between, std::uint64_t ring_bytes, double bandwidth);

}  // namespace canopy
