#pragma once
// Cases for tests of Ops::attend, their data, and plain loops to compare with.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/scattered.h"

namespace canopy {

struct Case {
  std::size_t head_dim, kv_heads, group, prefix, first_node, n;
  DType dtype;
  float slope = 0;  // of the first head; 0: distances count for nothing
  std::size_t window = 0;
  std::vector<float> sinks = {};  // of each head, or none
  float cap = 0;

  float slope_of(std::size_t head) const { return slope / static_cast<float>(head + 1); }
};
inline std::string in_words(const Case& c) {
  return "head_dim " + std::to_string(c.head_dim) + " kv_heads " + std::to_string(c.kv_heads) +
         " group " + std::to_string(c.group) + " prefix " + std::to_string(c.prefix) + " first " +
         std::to_string(c.first_node) + " n " + std::to_string(c.n) + " " + name(c.dtype) +
         " slope " + std::to_string(c.slope) + " window " + std::to_string(c.window) + " sinks " +
         (c.sinks.empty() ? "none" : std::to_string(c.sinks[0])) + " cap " + std::to_string(c.cap);
}

/// A row of a case by itself: one node, whose earlier ones already sit in their slots.
inline Case row_of(const Case& c, std::size_t row) {
  Case one = c;
  one.n = 1;
  one.first_node = c.first_node + row;
  return one;
}

/// A random tree over [0, nodes), parents first: for each node its path from the root, itself last.
inline std::vector<std::vector<std::size_t>> random_paths(std::size_t nodes, std::mt19937& random) {
  std::vector<std::vector<std::size_t>> paths(nodes);
  for (std::size_t i = 0; i < nodes; ++i) {
    if (i > 0 && random() % 8 != 0) paths[i] = paths[random() % i];
    paths[i].push_back(i);
  }
  return paths;
}

inline std::vector<std::byte> cache_of(const std::vector<float>& values, DType dtype) {
  if (dtype == DType::kF32) return bytes_of(values);
  std::vector<std::uint16_t> bits;
  for (const float value : values)
    bits.push_back(dtype == DType::kBF16 ? bf16_from_f32(value) : f16_from_f32(value));
  return bytes_of(bits);
}

inline std::vector<float> widened(const std::vector<std::byte>& cache, DType dtype) {
  std::vector<float> values(cache.size() / row_bytes(dtype, 1));
  dequantize_row(dtype, cache.data(), values);
  return values;
}

/// Rows of a head-major cache [kv_heads, slots, head_dim] named by `from`, packed one after
/// another.
inline std::vector<std::byte> gather(const std::vector<std::byte>& cache, const Case& c,
                                     std::size_t slots, const std::vector<std::size_t>& from) {
  const std::size_t row = row_bytes(c.dtype, static_cast<std::int64_t>(c.head_dim));
  std::vector<std::byte> kept;
  for (std::size_t head = 0; head < c.kv_heads; ++head)
    for (const std::size_t slot : from) {
      const auto at = cache.begin() + static_cast<std::ptrdiff_t>((head * slots + slot) * row);
      kept.insert(kept.end(), at, at + static_cast<std::ptrdiff_t>(row));
    }
  return kept;
}

class AttentionTest : public OnEachDevice {
 protected:
  std::vector<float> attend(const Case& c, const std::vector<float>& q,
                            const std::vector<std::byte>& k, const std::vector<std::byte>& v,
                            std::size_t slots, const std::vector<std::uint64_t>& ancestors) {
    const auto dim = [](std::size_t value) { return static_cast<std::int64_t>(value); };
    const std::vector<std::int32_t> table = Scattered::table(slots, random_);
    const Scattered keys(k, c.kv_heads, slots, table), values(v, c.kv_heads, slots, table);
    OnDevice qs = send(q), bits = send(ancestors), blocks = send(table);
    OnDevice ks = send(keys.pool()), vs = send(values.pool());
    OnDevice out = send(std::vector<float>(q.size(), -7.0f));
    std::vector<float> slopes;
    for (std::size_t h = 0; h < c.kv_heads * c.group; ++h) slopes.push_back(c.slope_of(h));
    OnDevice leans = send(slopes), sinks = send(c.sinks);
    TreeAttention call;
    call.window = dim(c.window);
    call.cap = c.cap;
    if (!c.sinks.empty()) call.sinks = sinks.view(DType::kF32, {dim(c.sinks.size())});
    if (c.slope != 0) call.slopes = leans.view(DType::kF32, {dim(slopes.size())});
    const auto rows = {dim(c.n), dim(c.kv_heads * c.group), dim(c.head_dim)};
    const auto cache = {dim(c.kv_heads), std::int64_t{kKvBlock}, dim(c.head_dim)};
    call.q = qs.view(DType::kF32, rows);
    call.kv = {ks.view(c.dtype, cache), vs.view(c.dtype, cache),
               blocks.view(DType::kI32, {dim(table.size())}), dim(keys.stride())};
    if (!ancestors.empty())
      call.ancestors = bits.view(DType::kU64, {dim(c.n), dim((c.first_node + c.n + 63) / 64)});
    call.prefix = dim(c.prefix);
    call.first_node = dim(c.first_node);
    call.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    call.out = out.view(DType::kF32, rows);
    ops().attend(stream(), call);
    if (!in_a_graph) return out.read<float>();
    stream().synchronize();
    const auto graph = stream().capture([&] { ops().attend(stream(), call); });
    const std::vector<float> zeros(q.size());
    device().upload(stream(), out.data(), std::as_bytes(std::span(zeros)));
    stream().launch(*graph);
    return out.read<float>();
  }
  bool in_a_graph = false;  // calls are captured and launched

 private:
  // Blocks lie elsewhere at each call: bits do not depend on it.
  std::mt19937 random_{17};
};

/// A row's result by plain loops in f64, and what bounds of its error are made of.
struct PlainRow {
  std::vector<double> out, absolute, values;  // [head_dim]: sum p v / P, sum p |v| / P, sum |v|
  double weight = 0;                          // P = sum p, at least 1
  std::size_t terms = 0;                      // of P
  // The largest of all keys: sum_j |q_j k_tj| scale, slope x distance, and sum_j |k_tj|.
  double dot = 0, lean = 0, key = 0;
  double cap = 0;   // of the scores
  double sink = 0;  // if it is positive: where it is the maximum, all scores are that far from it
};
inline PlainRow plain_row(const Case& c, std::size_t head, const float* q, const float* k,
                          const float* v, const std::vector<std::size_t>& path) {
  const std::size_t hd = c.head_dim;
  PlainRow row{std::vector<double>(hd), std::vector<double>(hd), std::vector<double>(hd)};
  const auto slope = static_cast<double>(c.slope_of(head));
  std::vector<std::size_t> seen;
  for (std::size_t t = 0; t < path.size(); ++t)
    if (const std::size_t apart = path.size() - 1 - t; c.window == 0 || apart < c.window)
      seen.push_back(path[t]);
  std::vector<double> score(seen.size());
  const double scale = 1.0 / std::sqrt(static_cast<double>(hd));
  double largest = -1e300;
  for (std::size_t t = 0; t < seen.size(); ++t) {
    double dot = 0, key = 0;
    for (std::size_t j = 0; j < hd; ++j) {
      const auto of_key = static_cast<double>(k[seen[t] * hd + j]);
      const double term = static_cast<double>(q[j]) * of_key * scale;
      score[t] += term;
      dot += std::abs(term);
      key += std::abs(of_key);
    }
    if (c.cap != 0) {
      const auto cap = static_cast<double>(c.cap);
      score[t] = cap * std::tanh(score[t] / cap);
      row.cap = cap;
    }
    // Slots are seen in the order of the path.
    const double lean = slope * static_cast<double>(seen.size() - 1 - t);
    score[t] -= lean;
    largest = std::max(largest, score[t]);
    row.lean = std::max(row.lean, lean);
    row.dot = std::max(row.dot, dot);
    row.key = std::max(row.key, key);
  }
  row.terms = seen.size();
  if (!c.sinks.empty()) {
    const auto sink = static_cast<double>(c.sinks[head]);
    largest = std::max(largest, sink);
    row.sink = std::max(0.0, sink);
    row.weight = std::exp(sink - largest);
    ++row.terms;
  }
  for (std::size_t t = 0; t < seen.size(); ++t) {
    const double p = std::exp(score[t] - largest);
    row.weight += p;
    for (std::size_t j = 0; j < hd; ++j) {
      const auto value = static_cast<double>(v[seen[t] * hd + j]);
      row.out[j] += p * value;
      row.absolute[j] += p * std::abs(value);
      row.values[j] += std::abs(value);
    }
  }
  for (std::size_t j = 0; j < hd; ++j) row.out[j] /= row.weight, row.absolute[j] /= row.weight;
  return row;
}

enum class By { kLoops, kProducts };  // a device's way to attend: math.md (C3), (C5)
/// A GPU takes products for calls of many nodes over keys in 16 bits.
inline By way_of(const Case& c, const std::string& device) {
  return device != "cpu" && c.n >= 64 && c.dtype != DType::kF32 && c.head_dim % 8 == 0
             ? By::kProducts
             : By::kLoops;
}

/// Returns the largest error that element j may have.
inline double tolerance(By by, const Case& c, const PlainRow& row, std::size_t j) {
  constexpr double kEps = 0x1p-24;
  const auto hd = static_cast<double>(c.head_dim), n = static_cast<double>(row.terms);
  // A quotient, tanh within 8 eps, and a product; the slope of tanh is at most 1.
  const double bounding = 11 * row.cap;
  if (by == By::kLoops)
    return (2 * (hd + 9) * row.dot + 2 * bounding + 2 * row.sink + 2 * n + 6) * kEps *
           row.absolute[j];
  const double u = c.dtype == DType::kF16 ? 0x1p-11 : 0x1p-8;
  const double least = c.dtype == DType::kF16 ? 0x1p-25 : 0;  // half of the smallest number
  const double chunks = std::ceil(static_cast<double>(c.prefix + c.first_node + c.n) / 512);
  const double t = u * row.dot + (hd + 11) * kEps * (row.dot + row.lean + row.sink) +
                   bounding * kEps + least * row.key + u + (n + 6 * chunks + 6) * kEps;
  return std::expm1(2 * t) * row.absolute[j] +
         least * std::exp(2 * t) * (row.values[j] + n * row.absolute[j]) / row.weight;
}

/// Compares all heads of one node, on whose path those slots lie.
inline void compare(const Case& c, const std::vector<float>& q, const std::vector<float>& k,
                    const std::vector<float>& v, std::size_t slots, std::size_t node,
                    const std::vector<std::size_t>& path, const std::vector<float>& out, By by) {
  const std::size_t hd = c.head_dim, heads = c.kv_heads * c.group;
  for (std::size_t h = 0; h < heads; ++h) {
    const std::size_t at = (node * heads + h) * hd, cache = h / c.group * slots * hd;
    const PlainRow row = plain_row(c, h, &q[at], &k[cache], &v[cache], path);
    for (std::size_t j = 0; j < hd; ++j)
      ASSERT_NEAR(out[at + j], row.out[j], tolerance(by, c, row, j))
          << "node " << node << " head " << h << " element " << j;
  }
}

/// The slots on a node's path, and all nodes' bits, of such paths.
inline std::vector<std::size_t> seen_by(const Case& c, std::size_t node,
                                        const std::vector<std::vector<std::size_t>>& paths) {
  std::vector<std::size_t> seen(c.prefix);
  std::iota(seen.begin(), seen.end(), std::size_t{0});
  for (const std::size_t j : paths[c.first_node + node]) seen.push_back(c.prefix + j);
  return seen;
}
inline std::vector<std::uint64_t> ancestors_of(const Case& c,
                                               const std::vector<std::vector<std::size_t>>& paths) {
  const std::size_t words = (c.first_node + c.n + 63) / 64;
  std::vector<std::uint64_t> bits(c.n * words);
  for (std::size_t i = 0; i < c.n; ++i)
    for (const std::size_t j : paths[c.first_node + i])
      bits[i * words + j / 64] |= std::uint64_t{1} << j % 64;
  return bits;
}

}  // namespace canopy
