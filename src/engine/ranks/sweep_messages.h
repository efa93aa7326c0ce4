#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "src/model/kv_cache.h"
#include "src/model/transformer.h"

namespace canopy {

/// Commands of the first rank to the others: to load an engine, in place of the one before; its
/// sweeps; to answer; the end of all. A message says all that they need, the KV caches' tables of
/// blocks included: the others choose nothing.
enum class RankCommand : std::uint32_t { kLoad, kSweep, kKeep, kCheck, kEnd };

/// The parts of a sweep and the states of their caches, which have blocks for all of their rows.
std::vector<std::byte> sweep_message(std::span<const SequenceRows> parts);
/// A path of nodes whose keys and values move to the front of a cache's scratch slots.
std::vector<std::byte> keep_message(const KvState& state, std::span<const NodeId> path);
/// kLoad, kCheck or kEnd, which say nothing more.
std::vector<std::byte> bare_message(RankCommand command);

/// A message taken apart. Spans are of the message's own copies.
struct RankMessage {
  struct Cache {
    int length = 0;
    TextLength text_length = TextLength::kShort;
    std::vector<std::int32_t> blocks;
    KvState state() const { return {length, text_length, blocks}; }
  };
  struct Part {
    int cache = 0, first_scratch_slot = 0, first_node = 0;
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> position, logit_rows;
    std::vector<std::uint64_t> ancestor_bits;
    SequenceRows rows(KvCache& kv) const {
      return {{tokens, position, ancestor_bits, first_node, logit_rows}, &kv, first_scratch_slot};
    }
  };
  RankCommand command = RankCommand::kEnd;
  std::vector<Cache> caches;  // of a path that is kept: its own
  std::vector<Part> parts;
  std::vector<NodeId> path;
};
/// Throws Error where the bytes are no such message.
RankMessage read_message(std::span<const std::byte> bytes);

}  // namespace canopy
