#include <algorithm>
#include <cmath>

#include "src/base/counting.h"
#include "tests/kernels/scattered.h"

namespace canopy {
namespace {

struct Case {
  std::size_t head_dim, kv_heads, group, prefix, first_node, n;
  DType dtype;
  float slope = 0;  // of the first head; 0: distances count for nothing

  float slope_of(std::size_t head) const { return slope / static_cast<float>(head + 1); }
};

/// A random tree over [0, nodes), parents first: for each node its path from the root, itself last.
std::vector<std::vector<std::size_t>> random_paths(std::size_t nodes, std::mt19937& random) {
  std::vector<std::vector<std::size_t>> paths(nodes);
  for (std::size_t i = 0; i < nodes; ++i) {
    if (i > 0 && random() % 8 != 0) paths[i] = paths[random() % i];
    paths[i].push_back(i);
  }
  return paths;
}

std::vector<std::byte> cache_of(const std::vector<float>& values, DType dtype) {
  if (dtype == DType::kF32) return bytes_of(values);
  std::vector<std::uint16_t> bits;
  for (const float value : values)
    bits.push_back(dtype == DType::kBF16 ? bf16_from_f32(value) : f16_from_f32(value));
  return bytes_of(bits);
}

std::vector<float> widened(const std::vector<std::byte>& cache, DType dtype) {
  std::vector<float> values(cache.size() / row_bytes(dtype, 1));
  dequantize_row(dtype, cache.data(), values);
  return values;
}

class Attention : public OnEachDevice {
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
    OnDevice leans = send(slopes);
    TreeAttention call;
    if (c.slope != 0) call.slopes = leans.view(DType::kF32, {dim(slopes.size())});
    const auto rows = {dim(c.n), dim(c.kv_heads * c.group), dim(c.head_dim)};
    const auto cache = {dim(c.kv_heads), dim(keys.pool_slots()), dim(c.head_dim)};
    call.q = qs.view(DType::kF32, rows);
    call.kv = {ks.view(c.dtype, cache), vs.view(c.dtype, cache),
               blocks.view(DType::kI32, {dim(table.size())})};
    if (!ancestors.empty())
      call.ancestors = bits.view(DType::kU64, {dim(c.n), dim((c.first_node + c.n + 63) / 64)});
    call.prefix = dim(c.prefix);
    call.first_node = dim(c.first_node);
    call.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    call.out = out.view(DType::kF32, rows);
    ops().attend(stream(), call);
    return out.read<float>();
  }

 private:
  std::mt19937 random_{
      17};  // where blocks lie, another place at each call: bits do not depend on it
};

/// Rows of a head-major cache [kv_heads, slots, head_dim] named by `from`, packed one after
/// another.
std::vector<std::byte> gather(const std::vector<std::byte>& cache, const Case& c, std::size_t slots,
                              const std::vector<std::size_t>& from) {
  const std::size_t row = row_bytes(c.dtype, static_cast<std::int64_t>(c.head_dim));
  std::vector<std::byte> kept;
  for (std::size_t head = 0; head < c.kv_heads; ++head)
    for (const std::size_t slot : from) {
      const auto at = cache.begin() + static_cast<std::ptrdiff_t>((head * slots + slot) * row);
      kept.insert(kept.end(), at, at + static_cast<std::ptrdiff_t>(row));
    }
  return kept;
}

void compare(const Case& c, const std::vector<float>& q, const std::vector<float>& k,
             const std::vector<float>& v, std::size_t slots, std::size_t row,
             const std::vector<std::size_t>& seen, const std::vector<float>& out) {
  const std::size_t hd = c.head_dim, heads = c.kv_heads * c.group;
  constexpr double kEps = 0x1p-24;
  for (std::size_t h = 0; h < heads; ++h) {
    std::vector<double> score(seen.size()), sum(hd), absolute(hd);
    const float* qs = &q[(row * heads + h) * hd];
    const double scale = 1.0 / std::sqrt(static_cast<double>(hd));
    double largest = -1e300, weight = 0, dot = 0;
    const double slope = static_cast<double>(c.slope_of(h));
    for (std::size_t t = 0; t < seen.size(); ++t) {
      const float* ks = &k[(h / c.group * slots + seen[t]) * hd];
      double absolute_dot = 0;
      for (std::size_t j = 0; j < hd; ++j) {
        const double term = static_cast<double>(qs[j]) * static_cast<double>(ks[j]) * scale;
        score[t] += term;
        absolute_dot += std::abs(term);
      }
      // Slots are seen in the order of the path. Its product and the difference are rounded, too.
      const double lean = slope * static_cast<double>(seen.size() - 1 - t);
      score[t] -= lean;
      largest = std::max(largest, score[t]);
      dot = std::max(dot, absolute_dot + lean);
    }
    for (std::size_t t = 0; t < seen.size(); ++t) {
      const double p = std::exp(score[t] - largest);
      weight += p;
      for (std::size_t j = 0; j < hd; ++j) {
        const double term = p * static_cast<double>(v[(h / c.group * slots + seen[t]) * hd + j]);
        sum[j] += term;
        absolute[j] += std::abs(term);
      }
    }
    // math.md (C3)
    const double roundings =
        2 * (static_cast<double>(hd) + 9) * dot + 4 + 2 * static_cast<double>(seen.size()) + 2;
    for (std::size_t j = 0; j < hd; ++j)
      ASSERT_NEAR(out[(row * heads + h) * hd + j], sum[j] / weight,
                  roundings * kEps * absolute[j] / weight)
          << "row " << row << " head " << h << " element " << j;
  }
}

TEST_P(Attention, EqualsPlainLoopsAndATreeNodeHasTheBitsOfItsPathAlone) {
  std::mt19937 random(3);
  std::vector<Case> cases;
  for (const std::size_t head_dim : {8, 24, 64, 80, 96, 128, 160})
    for (const auto& [kv_heads, group] : {std::pair{1, 1}, {2, 3}, {1, 8}})
      for (const auto& [prefix, first, n] :
           {std::tuple{0, 0, 1}, {1, 0, 7}, {37, 5, 2}, {300, 60, 11}, {0, 0, 70}})
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          if ((dtype == DType::kF16) != (head_dim == 80)) continue;  // f16 only there: time
          cases.push_back({head_dim, static_cast<std::size_t>(kv_heads),
                           static_cast<std::size_t>(group), static_cast<std::size_t>(prefix),
                           static_cast<std::size_t>(first), static_cast<std::size_t>(n), dtype});
          if (head_dim == 24 || head_dim == 128) {
            cases.push_back(cases.back());
            cases.back().slope = 0.5f;
          }
        }
  on_each_instruction_set([&] {
    for (const Case& c : cases) {
      SCOPED_TRACE(testing::Message()
                   << "head_dim " << c.head_dim << " kv_heads " << c.kv_heads << " group "
                   << c.group << " prefix " << c.prefix << " first " << c.first_node << " n " << c.n
                   << " " << name(c.dtype) << " slope " << c.slope);
      const std::size_t nodes = c.first_node + c.n, slots = c.prefix + nodes + 5;
      const std::size_t row = c.kv_heads * c.group * c.head_dim;
      const auto k = cache_of(random_floats(c.kv_heads * slots * c.head_dim, random, 2), c.dtype);
      const auto v = cache_of(random_floats(c.kv_heads * slots * c.head_dim, random), c.dtype);
      const std::vector<float> wide_k = widened(k, c.dtype), wide_v = widened(v, c.dtype);
      const std::vector<float> q = random_floats(c.n * row, random, 2);
      const auto paths = random_paths(nodes, random);
      const std::size_t words = (nodes + 63) / 64;
      std::vector<std::uint64_t> ancestors(c.n * words);
      for (std::size_t i = 0; i < c.n; ++i)
        for (const std::size_t j : paths[c.first_node + i])
          ancestors[i * words + j / 64] |= std::uint64_t{1} << j % 64;
      const std::vector<float> out = attend(c, q, k, v, slots, ancestors);
      for (std::size_t i = 0; i < c.n; i += 1 + c.n / 5) {
        std::vector<std::size_t> seen(c.prefix);
        for (std::size_t t = 0; t < c.prefix; ++t) seen[t] = t;
        for (const std::size_t j : paths[c.first_node + i]) seen.push_back(c.prefix + j);
        compare(c, q, wide_k, wide_v, slots, i, seen, out);
        if (HasFatalFailure()) return;
        if (GetParam() != "cpu") continue;  // equal bits are a property of the CPU backend
        Case alone = c;
        alone.prefix = seen.size() - 1;
        alone.first_node = 0;
        alone.n = 1;
        const auto at = q.begin() + static_cast<std::ptrdiff_t>(i * row);
        const std::vector<float> path =
            attend(alone, {at, at + static_cast<std::ptrdiff_t>(row)}, gather(k, c, slots, seen),
                   gather(v, c, slots, seen), seen.size(), {1});
        ASSERT_EQ(std::memcmp(path.data(), &out[i * row], row * sizeof(float)), 0);
      }
    }
  });
}

TEST_P(Attention, WithoutAncestorsIsACausalChain) {
  std::mt19937 random(5);
  on_each_instruction_set([&] {
    const Case c{32, 2, 2, 19, 4, 90, DType::kF32, 0.25f};
    const std::size_t nodes = c.first_node + c.n, slots = c.prefix + nodes;
    const std::size_t row = c.kv_heads * c.group * c.head_dim, words = (nodes + 63) / 64;
    const auto k = bytes_of(random_floats(c.kv_heads * slots * c.head_dim, random));
    const auto v = bytes_of(random_floats(c.kv_heads * slots * c.head_dim, random));
    const std::vector<float> q = random_floats(c.n * row, random);
    std::vector<std::uint64_t> chain(c.n * words);
    for (std::size_t i = 0; i < c.n; ++i)
      for (std::size_t j = 0; j <= c.first_node + i; ++j)
        chain[i * words + j / 64] |= std::uint64_t{1} << j % 64;
    EXPECT_EQ(attend(c, q, k, v, slots, {}), attend(c, q, k, v, slots, chain));
  });
}

TEST_P(Attention, ALongContextGivesTheSameBitsInFewerRowsAtATime) {
  if (GetParam() != "cpu") GTEST_SKIP() << "a property of the CPU backend";
  std::mt19937 random(9);
  // 48 rows of scores over so many slots exceed the bound of a thread's scratch.
  const Case c{8, 1, 4, 70000, 0, 20, DType::kBF16};
  const std::size_t slots = c.prefix + c.n, row = c.group * c.head_dim;
  const auto k = cache_of(random_floats(slots * c.head_dim, random), c.dtype);
  const auto v = cache_of(random_floats(slots * c.head_dim, random), c.dtype);
  const std::vector<float> q = random_floats(c.n * row, random);
  const std::vector<float> out = attend(c, q, k, v, slots, {});
  Case one = c;
  one.n = 1;
  one.first_node = 13;
  const auto at = q.begin() + static_cast<std::ptrdiff_t>(13 * row);
  const std::vector<float> alone =
      attend(one, {at, at + static_cast<std::ptrdiff_t>(row)}, k, v, slots, {});
  EXPECT_EQ(std::memcmp(alone.data(), &out[13 * row], row * sizeof(float)), 0);
}

/// A row of a case by itself: one node, whose earlier ones already sit in their slots.
Case row_of(const Case& c, std::size_t row) {
  Case one = c;
  one.n = 1;
  one.first_node = c.first_node + row;
  return one;
}

TEST_P(Attention, ARowHasTheSameBitsWhateverSharesTheCallAndHoweverManyKeysThereAre) {
  std::mt19937 random(21);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    for (const std::size_t head_dim : {64, 80, 96, 128, 24})
      for (const auto& [kv_heads, group, prefix, first, n] : {std::tuple{2, 1, 256, 0, 1},
                                                              {1, 8, 255, 1, 40},
                                                              {1, 5, 2047, 3, 64},
                                                              {2, 4, 2500, 70, 9},
                                                              {1, 1, 100, 0, 200}}) {
        const Case c{head_dim,
                     static_cast<std::size_t>(kv_heads),
                     static_cast<std::size_t>(group),
                     static_cast<std::size_t>(prefix),
                     static_cast<std::size_t>(first),
                     static_cast<std::size_t>(n),
                     dtype,
                     head_dim == 80 || head_dim == 24 ? 0.0625f : 0.0f};
        SCOPED_TRACE(testing::Message() << name(dtype) << " head_dim " << head_dim << " group "
                                        << group << " prefix " << prefix << " n " << n);
        const std::size_t nodes = c.first_node + c.n, slots = c.prefix + nodes + 3;
        const std::size_t row = c.kv_heads * c.group * c.head_dim, words = (nodes + 63) / 64;
        const auto k = cache_of(random_floats(c.kv_heads * slots * c.head_dim, random, 2), c.dtype);
        const auto v = cache_of(random_floats(c.kv_heads * slots * c.head_dim, random), c.dtype);
        const std::vector<float> wide_k = widened(k, c.dtype), wide_v = widened(v, c.dtype);
        const std::vector<float> q = random_floats(c.n * row, random, 2);
        const auto paths = random_paths(nodes, random);
        std::vector<std::uint64_t> ancestors(c.n * words);
        for (std::size_t i = 0; i < c.n; ++i)
          for (const std::size_t j : paths[c.first_node + i])
            ancestors[i * words + j / 64] |= std::uint64_t{1} << j % 64;
        const std::vector<float> out = attend(c, q, k, v, slots, ancestors);
        for (const std::size_t i : {std::size_t{0}, c.n / 2, c.n - 1}) {
          std::vector<std::size_t> seen(c.prefix);
          for (std::size_t t = 0; t < c.prefix; ++t) seen[t] = t;
          for (const std::size_t j : paths[c.first_node + i]) seen.push_back(c.prefix + j);
          compare(c, q, wide_k, wide_v, slots, i, seen, out);
          if (HasFatalFailure()) return;
          const Case one = row_of(c, i);
          const auto bits = ancestors.begin() + static_cast<std::ptrdiff_t>(i * words);
          const auto at = q.begin() + static_cast<std::ptrdiff_t>(i * row);
          const std::vector<float> alone =
              attend(one, {at, at + static_cast<std::ptrdiff_t>(row)}, k, v, slots,
                     {bits, bits + static_cast<std::ptrdiff_t>((one.first_node + 64) / 64)});
          ASSERT_EQ(std::memcmp(alone.data(), &out[i * row], row * sizeof(float)), 0)
              << "row " << i;
        }
      }
}

TEST_P(Attention, AGraphReadsTextsThatHaveGrownByManyChunks) {
  std::mt19937 random(4);
  const std::int64_t n = 3, heads = 4, kv_heads = 2, head_dim = 64, slots = 40 * kKvBlock;
  const auto cache = cache_of(
      random_floats(static_cast<std::size_t>(kv_heads * slots * head_dim), random, 2), DType::kF16);
  OnDevice q = send(random_floats(static_cast<std::size_t>(n * heads * head_dim), random));
  OnDevice k = send(cache), v = send(cache);
  OnDevice out = send(std::vector<float>(static_cast<std::size_t>(n * heads * head_dim)));
  OnDevice table = send(counting(0, static_cast<std::size_t>(slots / kKvBlock)));
  OnDevice prefix = send(std::vector<std::int64_t>{100});
  const auto call = [&](std::int64_t length) {
    TreeAttention attention;
    attention.q = q.view(DType::kF32, {n, heads, head_dim});
    attention.kv = {k.view(DType::kF16, {kv_heads, slots, head_dim}),
                    v.view(DType::kF16, {kv_heads, slots, head_dim}),
                    table.view(DType::kI32, {slots / kKvBlock})};
    attention.prefix = {length, reinterpret_cast<const std::int64_t*>(prefix.data())};
    attention.scale = 0.125f;
    attention.out = out.view(DType::kF32, {n, heads, head_dim});
    ops().attend(stream(), attention);
  };
  ops().reserve({.rows = n,
                 .columns = head_dim,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .head_dim = head_dim,
                 .context = slots});
  call(100);
  stream().synchronize();
  const std::unique_ptr<Graph> graph = stream().capture([&] { call(100); });
  for (const std::int64_t length : {std::int64_t{100}, std::int64_t{253}, std::int64_t{2500}}) {
    device().upload(stream(), prefix.data(), std::as_bytes(std::span(&length, 1)));
    stream().synchronize();
    call(length);
    const std::vector<float> expected = out.read<float>();
    const std::vector<float> zeros(expected.size());
    device().upload(stream(), out.data(), std::as_bytes(std::span(zeros)));
    stream().launch(*graph);
    EXPECT_EQ(out.read<float>(), expected) << length;
  }
}

TEST(KeyChunks, FollowOneAnotherAndGrow) {
  using cuda::KeyChunks;
  std::int64_t end = 0;
  for (std::int64_t chunk = 0; chunk < 60; ++chunk) {
    EXPECT_EQ(KeyChunks::begin(chunk), end);
    end = KeyChunks::begin(chunk + 1);
    EXPECT_EQ(end - KeyChunks::begin(chunk), std::int64_t{256} << chunk / 8);
    EXPECT_EQ(KeyChunks::count(end), chunk + 1);
    EXPECT_EQ(KeyChunks::count(end + 1), chunk + 2);
  }
}

CANOPY_ON_EACH_DEVICE(Attention);

}  // namespace
}  // namespace canopy
