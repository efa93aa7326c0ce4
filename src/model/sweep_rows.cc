#include "src/model/sweep_rows.h"

#include <string>

#include "src/base/error.h"
#include "src/model/buffer_sizes.h"

namespace canopy {

void check_part(const SequenceRows& part, const ModelConfig& config,
                const Transformer::Limits& limits) {
  const TreeBatch& b = part.batch;
  const auto n = static_cast<int>(b.tokens.size());
  require(part.kv != nullptr && n > 0, "a sweep part needs tokens and a KV cache");
  require(b.position.size() == b.tokens.size(), "one position per token");
  require(b.ancestor_bits.empty() ||
              b.ancestor_bits.size() ==
                  b.tokens.size() * static_cast<std::size_t>(words_for(b.first_node + n)),
          "ancestor bits must be [n, ceil((first_node + n) / 64)]");
  for (const TokenId id : b.tokens)
    if (id < 0 || id >= config.vocab)
      throw Error("token " + std::to_string(id) + " is outside the vocabulary of " +
                  std::to_string(config.vocab));
  if (config.form.positions == PositionKind::kLearned && b.ancestor_bits.empty())
    for (const std::int32_t at : b.position)
      if (at >= config.max_positions)
        throw Error("position " + std::to_string(at) + " is outside the " +
                    std::to_string(config.max_positions) + " that the model has learned");
  for (const std::span<const std::int32_t> rows : {b.logit_rows, b.read_rows})
    for (const std::int32_t row : rows)
      require(row >= 0 && row < n, "a logit row is outside the batch");
  const int end = part.kv->length() + part.first_scratch_slot + b.first_node + n;
  if (end > limits.max_context)
    throw Error("the sequence needs " + std::to_string(end) +
                " slots and the model was set up for " + std::to_string(limits.max_context));
}

}  // namespace canopy
