#pragma once
// Kernels of the delta rule over the nodes of a tree (math.md (D2)). Each sum of a node runs over
// its own path, in an order that the path alone decides, so that its bits are those of decoding
// that path.
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/delta/enter.h"
#include "kernels/gpu_scratch.h"

namespace canopy::cuda {

/// A node's way, the rows of its path since its anchor: how many there are before its own, and the
/// state that they start from; -1: none was given.
struct DeltaWay {
  std::int32_t length, state;
};
/// The weights of an update in that of a later node, and in its output.
struct alignas(8) DeltaWeight {
  float update, output;
};

/// Ways and their weights, of up to DeltaScratch::kMostNodes nodes. Shapes: way [n]; row [n,
/// kLongestWay]; weight [n, value_heads, kLongestWay], where the one after a way's rows has the
/// weight of the state, and that of the node's own update in its output.
struct DeltaWays {
  DeltaWay* way;
  std::int32_t* row;
  DeltaWeight* weight;

  DeltaWays(std::byte* scratch, const DeltaScratch& parts)
      : way(reinterpret_cast<DeltaWay*>(scratch)),
        row(reinterpret_cast<std::int32_t*>(scratch + parts.rows)),
        weight(reinterpret_cast<DeltaWeight*>(scratch + parts.weights)) {}
};

/// The states of a call: of each the anchor, and its memory; null: zeros.
struct DeltaStates {
  std::int64_t anchor[2];
  const float* state[2];
};

/// Weighs the rows of each node's way. One block for a node and a head of keys. Faults where a
/// node's state is not given.
struct WeighWays {
  static constexpr int kThreads = 256, kLanes = 8;  // that multiply a row
  DeltaCall call;
  DeltaStates states;
  DeltaWays ways;
  const float* mixed;
  Fault* fault;

  Grid grid(std::int64_t nodes) const {
    const auto values = static_cast<std::size_t>(kLongestWay * (3 + call.group()));
    return {nodes * call.key_heads, kThreads, values * sizeof(float)};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t node = block.index() / call.key_heads, head = block.index() % call.key_heads;
    const auto group = static_cast<int>(call.group());
    const std::int64_t own = call.slot(node), position = call.position(node);
    const std::int64_t anchor = anchor_of(position);
    // A state of the tree's own nodes cannot be there.
    const bool deep = call.tree.ancestors != nullptr && anchor > call.tree.prefix.value;
    const int state = deep                         ? -1
                      : anchor == states.anchor[0] ? 0
                      : anchor == states.anchor[1] ? 1
                                                   : -1;
    const int length = state < 0 ? 0 : static_cast<int>(position - anchor);
    const float* const query = mixed + node * call.channels() + head * call.key_dim;
    auto* const rows = block.template shared<std::int32_t>(kLongestWay);
    float* const of_keys = block.template shared<float>(kLongestWay);
    float* const of_queries = block.template shared<float>(kLongestWay);
    float* const decays = block.template shared<float>(kLongestWay * group);

    block.step([&](int t) {
      if (t == 0 && state < 0) report(fault, Fault::kDeltaState, anchor, position);
      for (std::int64_t slot = (length == 0 ? own : anchor) + t; slot <= own;
           slot += block.threads())
        if (call.tree.sees(node, slot))
          rows[length - call.tree.distance(node, slot)] = call.row[slot];
    });
    block.step([&](int t) {
      for (int i = t; i < group * (length + 1); i += block.threads()) {
        const int of = i / (length + 1), j = i % (length + 1);
        decays[of * kLongestWay + j] = call.decay_of(rows[j], call.value_head(head, of));
      }
      if (head != 0) return;
      if (t == 0) ways.way[node] = {length, state};
      for (int j = t; j < length; j += block.threads()) ways.row[node * kLongestWay + j] = rows[j];
    });
    const auto row_at = [&](int first, int t) { return first + t / kLanes; };
    for (int first = 0; first <= length; first += block.threads() / kLanes) {
      auto by_key = block.template each<float>(), by_query = block.template each<float>();
      block.step([&](int t) {
        if (row_at(first, t) > length) return;
        const float* const earlier = call.key_of(rows[row_at(first, t)], head);
        const float* const key = call.key_of(rows[length], head);
        CANOPY_UNROLL_BY_4
        for (std::int64_t k = t % kLanes; k < call.key_dim; k += kLanes) {
          by_key[t] = fmaf(earlier[k], key[k], by_key[t]);
          by_query[t] = fmaf(earlier[k], query[k], by_query[t]);
        }
      });
      block.template lanes_sum<kLanes>(by_key);
      block.template lanes_sum<kLanes>(by_query);
      block.step([&](int t) {
        if (t % kLanes != 0 || row_at(first, t) > length) return;
        of_keys[row_at(first, t)] = by_key[t];
        of_queries[row_at(first, t)] = by_query[t];
      });
    }
    // Goes from the node back: the weight of row j is the product of the decays after it.
    block.step([&](int t) {
      for (int of = t; of < group; of += block.threads()) {
        float* const w = decays + of * kLongestWay;
        float product = w[length];
        for (int j = length - 1; j >= 0; --j) {
          const float decay = w[j];
          w[j] = product;
          product *= decay;
        }
        w[length] = product;
      }
    });
    block.step([&](int t) {
      for (int i = t; i < group * (length + 1); i += block.threads()) {
        const int of = i / (length + 1), j = i % (length + 1);
        const float w = decays[of * kLongestWay + j];
        const std::int64_t value_head = call.value_head(head, of);
        ways.weight[(node * call.value_heads + value_head) * kLongestWay + j] =
            j == length ? DeltaWeight{w, of_queries[j]}
                        : DeltaWeight{w * of_keys[j], w * of_queries[j]};
      }
    });
  }
};

/// Ops::delta_rule, after the ways were weighed. One block for a head of values and kColumns of its
/// columns; a warp has these, of a node or of a part of the state's rows.
struct RunRule {
  static constexpr int kColumns = 32, kWarps = 8, kThreads = kColumns * kWarps;
  static constexpr int kNodes = 8;  // that read the state at once
  static_assert(kNodes == kWarps);
  DeltaCall call;
  DeltaStates states;
  DeltaWays ways;
  const float *mixed, *beta;
  std::int32_t nodes;
  float* out;

  Grid grid() const {
    const std::int64_t values = 2 * kNodes * call.key_dim + 2 * kWarps * kNodes * kColumns +
                                std::int64_t{2} * nodes * kColumns;
    return {call.value_heads * tiles(), kThreads, static_cast<std::size_t>(values) * sizeof(float)};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t head = block.index() / tiles(), tile = block.index() % tiles();
    const auto key_dim = static_cast<int>(call.key_dim);
    Reading reading;
    reading.keys = block.template shared<float>(kNodes * key_dim);
    reading.queries = block.template shared<float>(kNodes * key_dim);
    reading.read = block.template shared<float>(kWarps * kNodes * kColumns);
    reading.asked = block.template shared<float>(kWarps * kNodes * kColumns);
    float* const updates = block.template shared<float>(nodes * kColumns);
    float* const outputs = block.template shared<float>(nodes * kColumns);
    const auto column = [&](int t) { return tile * kColumns + t % kColumns; };

    for (int first = 0; first < nodes; first += kNodes) {
      block.step([&](int t) {
        for (int i = t; i < kNodes * key_dim && first + i / key_dim < nodes; i += block.threads()) {
          const int node = first + i / key_dim, k = i % key_dim;
          const std::int64_t key_head = call.key_head(head);
          reading.keys[i] = call.key_of(call.row[call.slot(node)], key_head)[k];
          reading.queries[i] = mixed[node * call.channels() + key_head * key_dim + k];
        }
      });
      block.step([&](int t) {
        if (column(t) < call.value_dim) read_states(head, column(t), first, t, reading);
      });
      block.step([&](int t) {
        const int node = first + t / kColumns;
        if (node >= nodes || column(t) >= call.value_dim) return;
        float read = 0, output = 0;
        CANOPY_UNROLL
        for (int part = 0; part < kWarps; ++part) {
          read += reading.read[part * kThreads + t];
          output += reading.asked[part * kThreads + t];
        }
        const DeltaWay way = ways.way[node];
        const DeltaWeight* const weights = weights_of(node, head);
        const float w = weights[way.length].update;
        const float* const value =
            mixed + node * call.channels() + 2 * call.key_heads * call.key_dim;
        float update = fmaf(-w, read, value[head * call.value_dim + column(t)]);
        output *= w;
        const std::int32_t* const rows = ways.row + std::int64_t{node} * kLongestWay;
        const int before = way.length - ancestors_in_call(node);
        CANOPY_UNROLL_BY_4
        for (int j = 0; j < before; ++j) {
          const float u = call.update_of(rows[j], head)[column(t)];
          update = fmaf(-weights[j].update, u, update);
          output = fmaf(weights[j].output, u, output);
        }
        updates[node * kColumns + t % kColumns] = update;
        outputs[node * kColumns + t % kColumns] = output;
      });
    }
    // Each node's sums get the updates of its ancestors among these, from the root on.
    for (int node = 0; node < nodes; ++node)
      block.step([&](int t) {
        if (column(t) >= call.value_dim) return;
        const int lane = t % kColumns;
        const float u = beta[node * call.value_heads + head] * updates[node * kColumns + lane];
        if (t < kColumns) {
          const float own = weights_of(node, head)[ways.way[node].length].output;
          call.update_of(call.row[call.slot(node)], head)[column(t)] = u;
          out[(node * call.value_heads + head) * call.value_dim + column(t)] =
              fmaf(own, u, outputs[node * kColumns + lane]);
        }
        for (int later = node + 1 + t / kColumns; later < nodes; later += kWarps) {
          if (!call.tree.sees(later, call.slot(node))) continue;
          const std::int64_t j =
              ways.way[later].length - call.tree.distance(later, call.slot(node));
          if (j < 0) continue;
          const DeltaWeight weight = weights_of(later, head)[j];
          float& update = updates[later * kColumns + lane];
          float& output = outputs[later * kColumns + lane];
          update = fmaf(-weight.update, u, update);
          output = fmaf(weight.output, u, output);
        }
      });
  }

 private:
  /// Shared memory of the nodes that read the state: keys and queries [kNodes, key_dim], and their
  /// products with each warp's part of its rows, [kWarps, kNodes, kColumns].
  struct Reading {
    float *keys, *queries, *read, *asked;
  };
  CANOPY_KERNEL std::int64_t tiles() const {
    return ceil_div<std::int64_t>(call.value_dim, kColumns);
  }
  CANOPY_KERNEL const DeltaWeight* weights_of(std::int64_t node, std::int64_t head) const {
    return ways.weight + (node * call.value_heads + head) * kLongestWay;
  }
  /// Counts the rows of a node's way that are nodes of this call: they are its last.
  CANOPY_KERNEL int ancestors_in_call(std::int64_t node) const {
    const std::int64_t all = call.tree.distance(node, call.slot(0) - 1) - 1;
    const std::int32_t length = ways.way[node].length;
    return all < length ? static_cast<int>(all) : length;
  }
  /// Sums products of nodes [first, first + kNodes) with thread t's rows of their states.
  CANOPY_KERNEL void read_states(std::int64_t head, std::int64_t column, int first, int t,
                                 const Reading& to) const {
    const auto key_dim = static_cast<int>(call.key_dim);
    float read[kNodes], asked[kNodes];
    unsigned users[2] = {0, 0};  // of each state
    CANOPY_UNROLL
    for (int i = 0; i < kNodes; ++i) {
      read[i] = asked[i] = 0;
      if (first + i >= nodes) continue;
      users[0] |= (ways.way[first + i].state == 0 ? 1u : 0u) << i;
      users[1] |= (ways.way[first + i].state == 1 ? 1u : 0u) << i;
    }
    CANOPY_UNROLL
    for (int of = 0; of < 2; ++of) {
      if (states.state[of] == nullptr || users[of] == 0) continue;
      const float* const state = states.state[of] + head * call.key_dim * call.value_dim + column;
      CANOPY_UNROLL_BY_4
      for (int k = t / kColumns; k < key_dim; k += kWarps) {
        const float s = state[k * call.value_dim];
        CANOPY_UNROLL
        for (int i = 0; i < kNodes; ++i)
          if ((users[of] >> i & 1u) != 0) {
            read[i] = fmaf(to.keys[i * key_dim + k], s, read[i]);
            asked[i] = fmaf(to.queries[i * key_dim + k], s, asked[i]);
          }
      }
    }
    CANOPY_UNROLL
    for (int i = 0; i < kNodes; ++i) {
      const int at = (t / kColumns * kNodes + i) * kColumns + t % kColumns;
      to.read[at] = read[i];
      to.asked[at] = asked[i];
    }
  }
};

}  // namespace canopy::cuda
