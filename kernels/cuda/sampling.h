#pragma once
// Rows of logits become probabilities and tokens. One block per row.
#include "kernels/cuda/block.h"
#include "kernels/draw.h"
#include "kernels/ops.h"

namespace canopy::cuda {

/// A token of a row as one integer: larger is better, that is a higher logit, or the lower id among
/// equals. -0 equals +0. What is not finite is better than all that is, so that it is found.
using Key = std::uint64_t;
inline constexpr Key kNotFinite = Key{0xffffffffu} << 32;
CANOPY_KERNEL inline Key key_of(float logit, std::int64_t id) {
  std::uint32_t bits = 0;
  const float value = logit + 0.0f;
  memcpy(&bits, &value, sizeof bits);
  bits = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  if (!isfinite(logit)) bits = kNotFinite >> 32;
  return Key{bits} << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}
CANOPY_KERNEL inline std::int64_t id_of(Key key) {
  return 0xffffffffu - static_cast<std::uint32_t>(key);
}

/// Finds the key at which the weights of a row, taken from its best key downwards, first add up to
/// `wanted`, one byte of the key after the other: a histogram of weights by that byte, and a walk
/// down its 256 bins. Weights are integers, so that their sums do not depend on the order of
/// atomics. keys(i), weights(i) of token i; wanted > 0; if all weights together are less, the least
/// key. Shared memory: 256 counts.
struct RadixSelect {
  static constexpr int kBins = 256;

  template <class Block, class Keys, class Weights>
  CANOPY_KERNEL static Key find(Block& block, SharedSum* bins, std::int64_t n, const Keys& keys,
                                const Weights& weights, std::uint64_t wanted) {
    Key prefix = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
      const Key above = shift == 56 ? 0 : ~Key{0} << (shift + 8);
      block.step([&](int t) {
        for (int b = t; b < kBins; b += block.threads()) bins[b] = SharedSum{};
      });
      block.step([&](int t) {
        for (std::int64_t i = t; i < n; i += block.threads()) {
          const Key key = keys(i);
          if ((key & above) != prefix) continue;
          if (const std::uint64_t weight = weights(i); weight != 0)
            block.add(&bins[key >> shift & 0xff], weight);
        }
      });
      int bin = kBins - 1, least = -1;  // the walk; the lowest bin with any weight
      for (; bin >= 0; --bin) {
        const std::uint64_t weight = bins[bin].value();
        if (weight == 0) continue;
        least = bin;
        if (weight >= wanted) break;
        wanted -= weight;
      }
      const int chosen = block.uniform(bin >= 0 ? bin : least);
      if (chosen < 0) return 0;                 // no weight at all
      if (bin < 0) wanted = ~std::uint64_t{0};  // less than wanted: the least key from here on
      prefix |= static_cast<Key>(chosen) << shift;
    }
    return prefix;
  }
};

/// Ops::probabilities.
struct Probabilities {
  static constexpr int kThreads = 1024;
  static constexpr float kUnit = 0x1p44f;  // of integer weights: a vocabulary's sum fits 64 bits
  const float* logits;
  std::int64_t vocab;
  Sampling sampling;
  float* p;

  static constexpr std::size_t kSharedBytes = RadixSelect::kBins * sizeof(SharedSum);
  static Grid grid(std::int64_t rows) { return {rows, kThreads, kSharedBytes}; }

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const float* const row = logits + block.index() * vocab;
    float* const to = p + block.index() * vocab;
    auto* const bins = block.template shared<SharedSum>(RadixSelect::kBins);
    const auto key = [&](std::int64_t i) { return key_of(row[i], i); };

    auto best = block.template each<Key>();
    block.step([&](int t) {
      for (std::int64_t i = t; i < vocab; i += block.threads())
        if (key(i) > best[t]) best[t] = key(i);
    });
    const Key most = block.most(best);
    if (most >= kNotFinite) {
      block.step([&](int t) {
        for (std::int64_t i = t; i < vocab; i += block.threads()) to[i] = NAN;
      });
      return;
    }
    const std::int64_t first = id_of(most);
    const float largest = row[first], temperature = sampling.temperature;
    if (temperature == 0.0f) {
      block.step([&](int t) {
        for (std::int64_t i = t; i < vocab; i += block.threads()) to[i] = i == first ? 1.0f : 0.0f;
      });
      return;
    }
    const auto weight = [&](std::int64_t i) { return expf((row[i] - largest) / temperature); };

    Key least = 0;  // of what survives
    if (sampling.top_k > 0 && sampling.top_k < vocab)
      least = RadixSelect::find(
          block, bins, vocab, key, [](std::int64_t) { return std::uint64_t{1}; },
          static_cast<std::uint64_t>(sampling.top_k));
    if (sampling.top_p < 1.0f) {
      const auto whole = [&](std::int64_t i) {
        return key(i) >= least ? static_cast<std::uint64_t>(weight(i) * kUnit) : 0;
      };
      auto sums = block.template each<std::uint64_t>();
      block.step([&](int t) {
        for (std::int64_t i = t; i < vocab; i += block.threads()) sums[t] += whole(i);
      });
      const auto enough =
          static_cast<double>(sampling.top_p) * static_cast<double>(block.sum(sums));
      const auto wanted = static_cast<std::uint64_t>(ceil(enough));
      const Key cut = RadixSelect::find(block, bins, vocab, key, whole, wanted > 0 ? wanted : 1);
      if (cut > least) least = cut;
    }
    // The likeliest token's weight is 1.
    const auto likely = [&](std::int64_t i) {
      return key(i) >= least && weight(i) >= sampling.min_p;
    };
    if (sampling.typical_p >= 1.0f) return share(block, to, weight, likely);

    // With z = (logit - largest) / temperature, -log p less the entropy is the mean of z less z.
    const auto z = [&](std::int64_t i) {
      return static_cast<double>((row[i] - largest) / temperature);
    };
    const auto counts = [&](std::int64_t i) { return likely(i) && weight(i) > 0.0f; };
    auto sums = block.template each<double>(), products = block.template each<double>();
    block.step([&](int t) {
      for (std::int64_t i = t; i < vocab; i += block.threads()) {
        if (!counts(i)) continue;
        sums[t] += static_cast<double>(weight(i));
        products[t] += static_cast<double>(weight(i)) * z(i);
      }
    });
    const double sum = block.sum(sums), mean = block.sum(products) / sum;
    const auto nearness = [&](std::int64_t i) {
      return key_of(static_cast<float>(-fabs(mean - z(i))), i);
    };
    const auto whole = [&](std::int64_t i) {
      return counts(i) ? static_cast<std::uint64_t>(weight(i) * kUnit) : 0;
    };
    auto wholes = block.template each<std::uint64_t>();
    block.step([&](int t) {
      for (std::int64_t i = t; i < vocab; i += block.threads()) wholes[t] += whole(i);
    });
    const auto wanted = static_cast<std::uint64_t>(
        ceil(static_cast<double>(sampling.typical_p) * static_cast<double>(block.sum(wholes))));
    const Key nearest =
        RadixSelect::find(block, bins, vocab, nearness, whole, wanted > 0 ? wanted : 1);
    share(block, to, weight, [&](std::int64_t i) { return counts(i) && nearness(i) >= nearest; });
  }

 private:
  /// Shares out the probability between the tokens that survive, by their weights.
  template <class Block, class Weight, class Survives>
  CANOPY_KERNEL void share(Block& block, float* to, const Weight& weight,
                           const Survives& survives) const {
    auto sums = block.template each<double>();
    block.step([&](int t) {
      for (std::int64_t i = t; i < vocab; i += block.threads())
        if (survives(i)) sums[t] += static_cast<double>(weight(i));
    });
    const double sum = block.sum(sums);
    block.step([&](int t) {
      for (std::int64_t i = t; i < vocab; i += block.threads())
        to[i] = survives(i) ? static_cast<float>(static_cast<double>(weight(i)) / sum) : 0.0f;
    });
  }
};

/// Ops::top_tokens.
struct TopTokens {
  static constexpr int kThreads = 1024, kMost = 4096;  // of a row, because they share memory
  const float* logits;
  std::int64_t vocab;
  int count;
  std::int32_t* token;

  Grid grid(std::int64_t rows) const {
    return {rows, kThreads,
            RadixSelect::kBins * sizeof(SharedSum) +
                (1 + static_cast<std::size_t>(count)) * sizeof(Key)};
  }

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const float* const row = logits + block.index() * vocab;
    std::int32_t* const to = token + block.index() * count;
    const auto key = [&](std::int64_t i) { return key_of(row[i], i); };
    if (count == 1) {
      auto best = block.template each<Key>();
      block.step([&](int t) {
        for (std::int64_t i = t; i < vocab; i += block.threads())
          if (key(i) > best[t]) best[t] = key(i);
      });
      const Key most = block.most(best);
      block.step([&](int t) {
        if (t == 0) *to = most >= kNotFinite ? -1 : static_cast<std::int32_t>(id_of(most));
      });
      return;
    }
    auto* const bins = block.template shared<SharedSum>(RadixSelect::kBins);
    auto* const found = block.template shared<std::uint32_t>(1);
    auto* const kept = block.template shared<Key>(count);
    const Key least = RadixSelect::find(
        block, bins, vocab, key, [](std::int64_t) { return std::uint64_t{1}; },
        static_cast<std::uint64_t>(count));
    block.step([&](int t) {
      if (t == 0) *found = 0;
    });
    block.step([&](int t) {
      for (std::int64_t i = t; i < vocab; i += block.threads())
        if (key(i) >= least) kept[block.add(found, std::uint32_t{1})] = key(i);
    });
    block.step([&](int t) {  // a key's place is the number of better ones
      for (int i = t; i < count; i += block.threads()) {
        int better = 0;
        bool finite = true;
        for (int j = 0; j < count; ++j) {
          better += kept[j] > kept[i] ? 1 : 0;
          finite = finite && kept[j] < kNotFinite;
        }
        to[better] = finite ? static_cast<std::int32_t>(id_of(kept[i])) : -1;
      }
    });
  }
};

/// Ops::top_probabilities.
struct TopProbabilities {
  static constexpr int kThreads = TopTokens::kThreads;
  TopTokens best;
  float temperature;
  float *p, *entropy;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    best(block);
    const std::int64_t vocab = best.vocab;
    const float* const row = best.logits + block.index() * vocab;
    const std::int32_t* const token = best.token + block.index() * best.count;
    float* const to = p + block.index() * best.count;
    auto* const first = block.template shared<std::int32_t>(1);
    block.step([&](int t) {
      if (t == 0) *first = token[0];
    });
    const std::int32_t likeliest = block.uniform(*first);
    if (likeliest < 0) {
      block.step([&](int t) {
        for (int c = t; c < best.count; c += block.threads()) to[c] = NAN;
        if (t == 0) entropy[block.index()] = NAN;
      });
      return;
    }
    const float largest = row[likeliest];
    const auto z = [&](std::int64_t i) { return (row[i] - largest) / temperature; };
    auto sums = block.template each<double>(), products = block.template each<double>();
    block.step([&](int t) {
      for (std::int64_t i = t; i < vocab; i += block.threads()) {
        const float weight = expf(z(i));
        if (!(weight > 0.0f)) continue;
        sums[t] += static_cast<double>(weight);
        products[t] += static_cast<double>(weight) * static_cast<double>(z(i));
      }
    });
    const double sum = block.sum(sums), product = block.sum(products);
    block.step([&](int t) {
      for (int c = t; c < best.count; c += block.threads())
        to[c] = static_cast<float>(static_cast<double>(expf(z(token[c]))) / sum);
      // -log p = log sum - z.
      if (t == 0) entropy[block.index()] = static_cast<float>(log(sum) - product / sum);
    });
  }

  Grid grid(std::int64_t rows) const {
    Grid own = best.grid(rows);
    own.shared_bytes += sizeof(std::int64_t);
    return own;
  }
};

/// Ops::take_tokens. A thread for each token.
struct TakeTokens {
  static constexpr int kThreads = 128;
  const std::int32_t *from, *index;
  std::int32_t* to;
  std::int64_t count;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t i = block.index() * kThreads + t;
      if (i >= count) return;
      const std::int32_t token = from[index[i]];
      to[i] = token < 0 ? 0 : token;
    });
  }
};

/// Ops::draw_tokens. All threads sum the parts, find the part that a draw falls into and copy it to
/// memory that they share; what is added in order is added by one thread, from there.
struct DrawTokens {
  static constexpr int kThreads = 1024, kLanes = 8;  // kLanes: threads that sum a part
  const float* q;
  std::int64_t vocab;
  int count;
  Replacement replacement;
  DeviceScalar<StepRng> rng;
  std::uint64_t first_index;
  std::int32_t* token;

  /// Sums of the parts, marks of what was drawn, the place of a draw and its part's values.
  Grid grid(std::int64_t rows) const {
    const auto n = static_cast<std::size_t>(vocab);
    return {rows, kThreads,
            (draw_sums(n) + (n + 63) / 64) * sizeof(double) + sizeof(DrawPlace) +
                kDrawPart * sizeof(float)};
  }

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const auto n = static_cast<std::size_t>(vocab);
    const std::size_t words = (n + 63) / 64, all = draw_parts(n);
    std::int32_t* const to = token + block.index() * count;
    const std::uint64_t index =
        first_index + static_cast<std::uint64_t>(block.index()) * static_cast<std::uint64_t>(count);
    const StepRng now = rng.now();
    auto* const parts = block.template shared<double>(static_cast<int>(all));
    auto* const before = block.template shared<double>(static_cast<int>(all) + 1);
    auto* const drawn = block.template shared<std::uint64_t>(static_cast<int>(words));
    auto* const place = block.template shared<DrawPlace>(1);
    auto* const values = block.template shared<float>(static_cast<int>(kDrawPart));
    const Left left{q + block.index() * vocab, drawn};
    block.step([&](int t) {
      for (auto i = static_cast<std::size_t>(t); i < words; i += kThreads) drawn[i] = 0;
      if (t == 0) before[0] = 0;
    });
    sum_parts(block, left, 0, all, parts);
    sum_all_before(block, parts, 0, before);
    std::size_t undrawn = n;  // of the one thread that draws
    for (int c = 0; c < count; ++c) {
      const double u = now.uniform(StepRng::Purpose::kDraft, index + static_cast<std::uint64_t>(c));
      block.step([&](int t) {
        const double target = u * before[all];
        for (auto part = static_cast<std::size_t>(t); part < all; part += kThreads)
          if (falls_into(before, part, all, target)) *place = {part, before[part], target};
      });
      const std::size_t part = block.uniform(place->part), first = part * kDrawPart;
      copy_part(block, left, part, values);
      block.step([&](int t) {
        if (t != 0) return;
        const auto near = [&](std::size_t i) { return values[i - first]; };
        const std::size_t end = first + kDrawPart < n ? first + kDrawPart : n;
        std::size_t one = draw_within(near, first, end, *place, n);
        if (one == n) one = draw_nearest(left, first, n);
        if (one == n) one = draw_any(left, undrawn, u);
        to[c] = static_cast<std::int32_t>(one);
        if (replacement == Replacement::kYes) return;
        drawn[one / 64] |= std::uint64_t{1} << (one % 64);
        --undrawn;
        place->part = one / kDrawPart;
        if (place->part == part) values[one - first] = -1.0f;
      });
      if (replacement == Replacement::kYes || c + 1 == count) continue;
      // Summed again, so that no rounding is left.
      const std::size_t changed = block.uniform(place->part);
      if (changed != part) copy_part(block, left, changed, values);
      const auto near = [&](std::size_t i) { return values[i - changed * kDrawPart]; };
      sum_parts(block, near, changed, changed + 1, parts);
      sum_all_before(block, parts, changed, before);
    }
  }

 private:
  /// Probability of a token that may still be drawn, as kernels/draw.h has it.
  struct Left {
    const float* row;
    const std::uint64_t* drawn;
    CANOPY_KERNEL float operator()(std::size_t i) const {
      return (drawn[i / 64] >> (i % 64) & 1u) != 0 ? -1.0f : row[i] > 0 ? row[i] : 0.0f;
    }
  };

  /// The values of a part.
  template <class Block>
  CANOPY_KERNEL void copy_part(Block& block, const Left& left, std::size_t part,
                               float* values) const {
    block.step([&](int t) {
      const std::size_t i = part * kDrawPart + static_cast<std::size_t>(t);
      if (static_cast<std::size_t>(t) < kDrawPart && i < static_cast<std::size_t>(vocab))
        values[t] = left(i);
    });
  }

  /// sum_before() of all parts from `first` on.
  template <class Block>
  CANOPY_KERNEL void sum_all_before(Block& block, const double* parts, std::size_t first,
                                    double* before) const {
    block.step([&](int t) {
      if (t == 0) sum_before(parts, first, draw_parts(static_cast<std::size_t>(vocab)), before);
    });
  }

  /// draw_part_sum() of parts [begin, last), bit for bit: thread x of eight has the lane with x's
  /// bits in the other order, as lanes_sum() begins with the threads that are furthest apart.
  template <class Block, class Of>
  CANOPY_KERNEL void sum_parts(Block& block, const Of& left, std::size_t begin, std::size_t last,
                               double* parts) const {
    const auto n = static_cast<std::size_t>(vocab);
    constexpr std::size_t kAtOnce = kThreads / kLanes;
    for (std::size_t base = begin; base < last; base += kAtOnce) {
      auto sums = block.template each<double>();
      block.step([&](int t) {
        const std::size_t part = base + static_cast<std::size_t>(t / kLanes);
        if (part >= last) return;
        const std::size_t first = part * kDrawPart;
        const int x = t % kLanes;
        const auto lane = static_cast<std::size_t>((x & 1) << 2 | (x & 2) | x >> 2);
        const std::size_t end = first + kDrawPart < n ? first + kDrawPart : n;
        for (std::size_t i = first + lane; i < end; i += kLanes) {
          const float value = left(i);
          sums[t] += value > 0 ? static_cast<double>(value) : 0;
        }
      });
      block.template lanes_sum<kLanes>(sums);
      block.step([&](int t) {
        const std::size_t part = base + static_cast<std::size_t>(t / kLanes);
        if (t % kLanes == 0 && part < last) parts[part] = sums[t];
      });
    }
  }
};

}  // namespace canopy::cuda
