#include "src/convert/quantize/delta_order.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

/// Numbers of value heads as GGUF files have them: the first of each key head, then the second...
std::vector<std::int64_t> heads_by_turns(const DeltaConfig& config) {
  const int of_each = config.value_heads / config.key_heads;
  std::vector<std::int64_t> heads;
  for (int turn = 0; turn < of_each; ++turn)
    for (int key = 0; key < config.key_heads; ++key)
      heads.push_back(std::int64_t{key} * of_each + turn);
  return heads;
}

/// `first` numbers as they are, then those of `size` for each head.
std::vector<std::int64_t> by_heads(std::int64_t first, const std::vector<std::int64_t>& heads,
                                   int size) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(first));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (const std::int64_t head : heads)
    for (int i = 0; i < size; ++i) order.push_back(first + head * size + i);
  return order;
}

}  // namespace

void StoredOrder::apply(std::vector<float>& row) const {
  if (!columns.empty()) {
    require(columns.size() == row.size(), "a row has the columns of its order");
    std::vector<float> ordered;
    ordered.reserve(row.size());
    for (const std::int64_t from : columns) ordered.push_back(row[static_cast<std::size_t>(from)]);
    row = std::move(ordered);
  }
  if (rate_of_log)
    for (float& value : row) value = -std::exp(value);
}

StoredOrder gguf_order(const DeltaConfig& config, TensorRole role) {
  StoredOrder order;
  order.rate_of_log = role == TensorRole::kDeltaRate && config.rate_is_log;
  // Value heads of inputs in one matrix stay with their key heads.
  if (config.by_turns || config.joined_steps || config.key_heads == 0) return order;
  const std::vector<std::int64_t> heads = heads_by_turns(config);
  switch (role) {
    case TensorRole::kDeltaMixed:
    case TensorRole::kDeltaTaps:
      order.rows = by_heads(config.channels() - config.values(), heads, config.value_dim);
      break;
    case TensorRole::kDeltaGate:
      order.rows = by_heads(0, heads, config.value_dim);
      break;
    case TensorRole::kDeltaBeta:
    case TensorRole::kDeltaStep:
      order.rows = heads;
      break;
    case TensorRole::kDeltaStepBias:
    case TensorRole::kDeltaRate:
      order.columns = heads;
      break;
    case TensorRole::kDeltaOutput:
      order.columns = by_heads(0, heads, config.value_dim);
      break;
    default:
      break;
  }
  return order;
}

StoredOrder part_of_joined(const DeltaConfig& config, TensorRole part) {
  const std::int64_t keys = config.key_dim, values = config.values() / config.key_heads;
  const std::int64_t all = 2 * (keys + values);  // rows of a key head
  StoredOrder order;
  const auto take = [&](std::int64_t first, std::int64_t count) {
    for (int head = 0; head < config.key_heads; ++head)
      for (std::int64_t i = 0; i < count; ++i) order.rows.push_back(head * all + first + i);
  };
  if (part == TensorRole::kDeltaGate) {
    take(2 * keys + values, values);
  } else {
    require(part == TensorRole::kDeltaMixed, "inputs of a delta net have two parts");
    take(0, keys);
    take(keys, keys);
    take(2 * keys, values);
  }
  return order;
}

}  // namespace canopy
