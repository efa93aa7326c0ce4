// Rows of logits become probabilities and tokens. Every row is worked on by one thread, in an order
// that depends on nothing but the row.
#include "kernels/cpu/sampling.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sampling.cc"
#include "hwy/foreach_target.h"  // before highway.h
//
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/draw.h"

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Floats>;
constexpr std::size_t kLanes = hn::MaxLanes(Floats());

HWY_INLINE Vec load_or(const float* from, std::size_t i, std::size_t n, float filler) {
  if (i + kLanes <= n) return hn::LoadU(Floats(), from + i);
  HWY_ALIGN float tail[kLanes];
  std::fill(tail, tail + kLanes, filler);
  std::copy(from + i, from + n, tail);
  return hn::Load(Floats(), tail);
}

/// NaN if any value is not finite.
float largest_of(const float* x, std::size_t n) {
  const Floats d;
  Vec largest = hn::Set(d, x[0]), poison = hn::Zero(d);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const Vec value = load_or(x, i, n, x[0]);
    largest = hn::Max(largest, value);
    poison = hn::MulAdd(value, hn::Zero(d), poison);  // 0 but for what is not finite
  }
  const float none = hn::GetLane(hn::SumOfLanes(d, poison));
  return none == 0.0f ? hn::GetLane(hn::MaxOfLanes(d, largest)) : none;
}

/// e_i = exp((x_i - largest) / temperature); returns their sum. Lane l of the f64 sums takes
/// elements l, l + kLanes, ... in order; then the lanes are added in order.
double exponentials(const float* x, std::size_t n, float largest, float temperature, float* e) {
  const Floats d;
  const hn::Half<Floats> half;
  const hn::Repartition<double, Floats> wide;
  const Vec shift = hn::Set(d, largest), t = hn::Set(d, temperature);
  auto low = hn::Zero(wide), high = hn::Zero(wide);
  for (std::size_t i = 0; i < n; i += kLanes) {
    // The padding's logits are so low that they add exact zeros.
    const Vec logit = load_or(x, i, n, -std::numeric_limits<float>::infinity());
    const Vec value = hn::Exp(d, hn::Div(hn::Sub(logit, shift), t));
    low = hn::Add(low, hn::PromoteTo(wide, hn::LowerHalf(half, value)));
    high = hn::Add(high, hn::PromoteTo(wide, hn::UpperHalf(half, value)));
    if (i + kLanes <= n) {
      hn::StoreU(value, d, e + i);
    } else {
      HWY_ALIGN float tail[kLanes];
      hn::Store(value, d, tail);
      std::copy(tail, tail + (n - i), e + i);
    }
  }
  HWY_ALIGN double lanes[kLanes];
  hn::Store(low, wide, lanes);
  hn::Store(high, wide, lanes + kLanes / 2);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// The sum of e_i z_i, z_i = (x_i - largest) / temperature, in the order of the sum above; a token
/// whose e is 0 adds nothing.
double weighted_exponents(const float* x, const float* e, std::size_t n, float largest,
                          float temperature) {
  const Floats d;
  const hn::Half<Floats> half;
  const hn::Repartition<double, Floats> wide;
  const Vec shift = hn::Set(d, largest), t = hn::Set(d, temperature), none = hn::Zero(d);
  auto low = hn::Zero(wide), high = hn::Zero(wide);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const Vec weight = load_or(e, i, n, 0.0f);
    const Vec z = hn::IfThenElseZero(hn::Gt(weight, none),
                                     hn::Div(hn::Sub(load_or(x, i, n, largest), shift), t));
    low = hn::MulAdd(hn::PromoteTo(wide, hn::LowerHalf(half, weight)),
                     hn::PromoteTo(wide, hn::LowerHalf(half, z)), low);
    high = hn::MulAdd(hn::PromoteTo(wide, hn::UpperHalf(half, weight)),
                      hn::PromoteTo(wide, hn::UpperHalf(half, z)), high);
  }
  HWY_ALIGN double lanes[kLanes];
  hn::Store(low, wide, lanes);
  hn::Store(high, wide, lanes + kLanes / 2);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

void scale(float* x, std::size_t n, float factor) {
  for (std::size_t i = 0; i < n; ++i) x[i] *= factor;
}

/// First index from `i` on of a value that is >= bound or not finite; n if there is none.
std::size_t find_at_least(const float* x, std::size_t i, std::size_t n, float bound) {
  constexpr float kLeast = std::numeric_limits<float>::lowest();
  const Floats d;
  const Vec bounds = hn::Set(d, bound), least = hn::Set(d, kLeast);
  for (; i + kLanes <= n; i += kLanes) {
    const Vec value = hn::LoadU(d, x + i);
    if (!hn::AllTrue(d, hn::And(hn::Lt(value, bounds), hn::Ge(value, least)))) break;
  }
  while (i < n && x[i] < bound && x[i] >= kLeast) ++i;
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy::cpu {

HWY_EXPORT(largest_of);
HWY_EXPORT(exponentials);
HWY_EXPORT(weighted_exponents);
HWY_EXPORT(scale);
HWY_EXPORT(find_at_least);

namespace {

/// A candidate as one integer: larger is better, that is a higher logit, or the lower id among
/// equals. -0 equals +0. What is not finite is better than all that is, so that it is found.
using Key = std::uint64_t;
constexpr Key kNotFinite = Key{0xffffffffu} << 32;
Key key_of(float logit, std::size_t id) {
  auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);
  bits = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  if (!std::isfinite(logit)) bits = kNotFinite >> 32;
  return Key{bits} << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}
std::size_t id_of(Key key) { return 0xffffffffu - static_cast<std::uint32_t>(key); }
float logit_of(Key key) {
  const auto bits = static_cast<std::uint32_t>(key >> 32);
  return std::bit_cast<float>((bits >> 31) != 0 ? bits & 0x7fffffffu : ~bits);
}

/// The `count` best of n logits, best first, in keys[0, count); keys has room for n.
void select_best(const float* logits, std::size_t n, std::size_t count, Key* keys) {
  const auto find = HWY_DYNAMIC_DISPATCH(find_at_least);
  for (std::size_t id = 0; id < count; ++id) keys[id] = key_of(logits[id], id);
  std::make_heap(keys, keys + count, std::greater<>());  // the worst kept is at the front
  for (std::size_t id = count; id < n; ++id) {
    id = find(logits, id, n, logit_of(keys[0]));
    if (id == n) break;
    const Key key = key_of(logits[id], id);
    if (key <= keys[0]) continue;
    std::pop_heap(keys, keys + count, std::greater<>());
    keys[count - 1] = key;
    std::push_heap(keys, keys + count, std::greater<>());
  }
  std::sort_heap(keys, keys + count, std::greater<>());
}

/// Brings the best `count` of keys[sorted, n) into order after keys[0, sorted).
void sort_best(Key* keys, std::size_t sorted, std::size_t count, std::size_t n) {
  count = std::min(count, n - sorted);
  if (sorted + count < n)
    std::nth_element(keys + sorted, keys + sorted + count, keys + n, std::greater<>());
  std::sort(keys + sorted, keys + sorted + count, std::greater<>());
}

/// Counts how many of keys[0, candidates), best first, make up `enough` together: the last one
/// crosses it. The best `sorted` are in order; the others are brought into order as they are
/// needed.
std::size_t best_that_reach(double enough, const float* e, std::size_t sorted,
                            std::size_t candidates, Key* keys) {
  double reached = 0;
  for (std::size_t kept = 0; kept < candidates; ++kept) {
    if (kept == sorted) {
      const std::size_t more = std::max<std::size_t>(64, 3 * sorted);
      sort_best(keys, sorted, more, candidates);
      sorted = std::min(candidates, sorted + more);
    }
    reached += static_cast<double>(e[id_of(keys[kept])]);
    if (reached >= enough) return kept + 1;
  }
  return candidates;
}

/// A row of n tokens: e_i = exp((logit_i - largest) / temperature), and their sum.
struct Row {
  const float *logits, *e;
  std::size_t n;
  float largest;
  double sum;
};

/// All tokens of at least this e.
std::size_t all_at_least(float bound, const Row& row, Key* keys) {
  const auto find = HWY_DYNAMIC_DISPATCH(find_at_least);
  std::size_t count = 0;
  for (std::size_t id = find(row.e, 0, row.n, bound); id < row.n;
       id = find(row.e, id + 1, row.n, bound))
    keys[count++] = key_of(row.logits[id], id);
  return count;
}

/// Leaves the tokens that survive top-k, then top-p: keys[0, result), best first.
std::size_t cut_to_likeliest(const Row& row, Sampling sampling, Key* keys) {
  std::size_t candidates = 0, sorted = 0;
  double sum = row.sum;
  if (sampling.top_k > 0 && to_size(sampling.top_k) < row.n) {
    candidates = sorted = to_size(sampling.top_k);
    select_best(row.logits, row.n, candidates, keys);
    if (sampling.top_p >= 1.0f) return candidates;
    sum = 0;
    for (std::size_t i = 0; i < candidates; ++i) sum += static_cast<double>(row.e[id_of(keys[i])]);
  } else {
    // All tokens below (1 - p) sum / n together hold less than (1 - p) of the mass, so the rest
    // reach p without them. Half of that bound leaves room for rounding.
    const double rest = (1.0 - static_cast<double>(sampling.top_p)) * sum;
    const auto bound = static_cast<float>(rest / static_cast<double>(row.n) / 2);
    candidates = all_at_least(bound, row, keys);
  }
  return best_that_reach(static_cast<double>(sampling.top_p) * sum, row.e, sorted, candidates,
                         keys);
}

/// Leaves those of keys[0, kept) that survive typical-p. With z = (logit - largest) / temperature,
/// -log p is log sum - z, and the entropy is log sum - (the mean of z): their difference is the
/// mean less z.
std::size_t cut_to_typical(const Row& row, Sampling sampling, std::size_t kept, Key* keys) {
  const auto z = [&](std::size_t id) {
    return static_cast<double>((row.logits[id] - row.largest) / sampling.temperature);
  };
  kept = static_cast<std::size_t>(
      std::remove_if(keys, keys + kept, [&](Key key) { return !(row.e[id_of(key)] > 0); }) - keys);
  double sum = 0, mean = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    const std::size_t id = id_of(keys[i]);
    sum += static_cast<double>(row.e[id]);
    mean += static_cast<double>(row.e[id]) * z(id);
  }
  mean /= sum;
  for (std::size_t i = 0; i < kept; ++i)  // the nearest is the best now
    keys[i] = key_of(static_cast<float>(-std::abs(mean - z(id_of(keys[i])))), id_of(keys[i]));
  return best_that_reach(static_cast<double>(sampling.typical_p) * sum, row.e, 0, kept, keys);
}

/// Leaves the tokens that survive all cuts: keys[0, result).
std::size_t cut(const Row& row, Sampling sampling, Key* keys) {
  std::size_t kept = 0;
  if ((sampling.top_k > 0 && to_size(sampling.top_k) < row.n) || sampling.top_p < 1.0f) {
    kept = cut_to_likeliest(row, sampling, keys);
    const auto too_unlikely = [&](Key key) { return row.e[id_of(key)] < sampling.min_p; };
    kept = static_cast<std::size_t>(std::remove_if(keys, keys + kept, too_unlikely) - keys);
  } else {
    kept = all_at_least(sampling.min_p, row, keys);  // the likeliest token's e is 1
  }
  if (sampling.typical_p >= 1.0f) return kept;
  return cut_to_typical(row, sampling, kept, keys);
}

void probabilities_row(const float* logits, std::size_t n, Sampling sampling, Key* keys, float* p) {
  const float largest = HWY_DYNAMIC_DISPATCH(largest_of)(logits, n);
  if (std::isnan(largest)) {
    std::fill(p, p + n, largest);
    return;
  }
  if (sampling.temperature == 0.0f) {
    const std::size_t first = HWY_DYNAMIC_DISPATCH(find_at_least)(logits, 0, n, largest);
    std::fill(p, p + n, 0.0f);
    if (first < n) p[first] = 1.0f;
    return;
  }
  double sum = HWY_DYNAMIC_DISPATCH(exponentials)(logits, n, largest, sampling.temperature, p);
  const bool cuts = (sampling.top_k > 0 && to_size(sampling.top_k) < n) || sampling.top_p < 1.0f ||
                    sampling.min_p > 0.0f || sampling.typical_p < 1.0f;
  if (!cuts) {
    HWY_DYNAMIC_DISPATCH(scale)(p, n, static_cast<float>(1.0 / sum));
    return;
  }
  const std::size_t kept = cut({logits, p, n, largest, sum}, sampling, keys);
  sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    const std::size_t id = id_of(keys[i]);
    sum += static_cast<double>(p[id]);
    keys[i] = Key{std::bit_cast<std::uint32_t>(p[id])} << 32 | id;
  }
  std::fill(p, p + n, 0.0f);
  for (std::size_t i = 0; i < kept; ++i)
    p[keys[i] & 0xffffffffu] = static_cast<float>(
        static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(keys[i] >> 32))) / sum);
}

/// A row of BestOfRows.
struct BestOfRow {
  std::int32_t* token;
  float* probability;
  float* entropy;
};

/// `scratch`: a key for each token; the exponentials take the keys' place when these have served.
void top_probabilities_row(const float* logits, std::size_t n, std::size_t count, float temperature,
                           Key* scratch, const BestOfRow& to) {
  const float largest = HWY_DYNAMIC_DISPATCH(largest_of)(logits, n);
  if (std::isnan(largest)) {
    std::fill(to.token, to.token + count, -1);
    std::fill(to.probability, to.probability + count, largest);
    *to.entropy = largest;
    return;
  }
  select_best(logits, n, count, scratch);
  for (std::size_t c = 0; c < count; ++c)
    to.token[c] = static_cast<std::int32_t>(id_of(scratch[c]));
  auto* const e = reinterpret_cast<float*>(scratch);
  const double sum = HWY_DYNAMIC_DISPATCH(exponentials)(logits, n, largest, temperature, e);
  for (std::size_t c = 0; c < count; ++c)
    to.probability[c] =
        static_cast<float>(static_cast<double>(e[static_cast<std::size_t>(to.token[c])]) / sum);
  // -log p = log sum - z.
  *to.entropy = static_cast<float>(
      std::log(sum) -
      HWY_DYNAMIC_DISPATCH(weighted_exponents)(logits, e, n, largest, temperature) / sum);
}

void draw_row(const float* q, std::size_t n, std::size_t count, Replacement replacement,
              StepRng rng, std::uint64_t index, float* left, double* sums, std::int32_t* token) {
  const std::size_t all = draw_parts(n);
  double *const parts = sums, *const before = sums + all;
  const auto of = [&](std::size_t i) { return left[i]; };
  const auto sum_part = [&](std::size_t part) {
    parts[part] = draw_part_sum(of, part * kDrawPart, std::min(n, (part + 1) * kDrawPart));
  };
  for (std::size_t i = 0; i < n; ++i) left[i] = q[i] > 0 ? q[i] : 0;
  for (std::size_t part = 0; part < all; ++part) sum_part(part);
  before[0] = 0;
  sum_before(parts, 0, all, before);
  std::size_t undrawn = n;
  for (std::size_t c = 0; c < count; ++c) {
    const double u = rng.uniform(StepRng::Purpose::kDraft, index + c);
    std::size_t drawn = draw_token(of, n, before, u);
    if (drawn == n) drawn = draw_any(of, undrawn, u);
    token[c] = static_cast<std::int32_t>(drawn);
    if (replacement == Replacement::kYes) continue;
    left[drawn] = -1;
    --undrawn;
    sum_part(drawn / kDrawPart);  // summed again, so that no rounding is left
    sum_before(parts, drawn / kDrawPart, all, before);
  }
}

}  // namespace

std::size_t sampling_scratch_bytes(std::int64_t vocab, std::size_t threads) {
  return threads * (to_size(vocab) + draw_sums(to_size(vocab))) * sizeof(Key);
}

void probabilities(Pool& pool, std::byte* scratch, ConstTensorView logits, Sampling sampling,
                   TensorView p) {
  const std::size_t n = to_size(logits.dim(1));
  pool.for_each(to_size(logits.dim(0)), [&](std::size_t i, std::size_t worker) {
    probabilities_row(reinterpret_cast<const float*>(logits.data()) + i * n, n, sampling,
                      reinterpret_cast<Key*>(scratch) + worker * n,
                      reinterpret_cast<float*>(p.data()) + i * n);
  });
}

void top_tokens(Pool& pool, std::byte* scratch, ConstTensorView logits, int count,
                TensorView token) {
  const std::size_t n = to_size(logits.dim(1)), best = to_size(count);
  pool.for_each(to_size(logits.dim(0)), [&](std::size_t i, std::size_t worker) {
    Key* const keys = reinterpret_cast<Key*>(scratch) + worker * n;
    select_best(reinterpret_cast<const float*>(logits.data()) + i * n, n, best, keys);
    auto* to = reinterpret_cast<std::int32_t*>(token.data()) + i * best;
    for (std::size_t c = 0; c < best; ++c)
      to[c] = keys[0] >= kNotFinite ? -1 : static_cast<std::int32_t>(id_of(keys[c]));
  });
}

void top_probabilities(Pool& pool, std::byte* scratch, ConstTensorView logits, float temperature,
                       const BestOfRows& to) {
  const std::size_t n = to_size(logits.dim(1)), count = to_size(to.token.dim(1));
  pool.for_each(to_size(logits.dim(0)), [&](std::size_t i, std::size_t worker) {
    top_probabilities_row(reinterpret_cast<const float*>(logits.data()) + i * n, n, count,
                          temperature, reinterpret_cast<Key*>(scratch) + worker * n,
                          {reinterpret_cast<std::int32_t*>(to.token.data()) + i * count,
                           reinterpret_cast<float*>(to.probability.data()) + i * count,
                           reinterpret_cast<float*>(to.entropy.data()) + i});
  });
}

void draw_tokens(Pool& pool, std::byte* scratch, ConstTensorView q, int count,
                 Replacement replacement, StepRng rng, std::uint64_t first_index,
                 TensorView token) {
  const std::size_t n = to_size(q.dim(1)), draws = to_size(count);
  pool.for_each(to_size(q.dim(0)), [&](std::size_t i, std::size_t worker) {
    auto* const sums = reinterpret_cast<double*>(scratch) + worker * (n + draw_sums(n));
    auto* const left = reinterpret_cast<float*>(sums + draw_sums(n));
    draw_row(reinterpret_cast<const float*>(q.data()) + i * n, n, draws, replacement, rng,
             first_index + i * draws, left, sums,
             reinterpret_cast<std::int32_t*>(token.data()) + i * draws);
  });
}

}  // namespace canopy::cpu
#endif  // HWY_ONCE
