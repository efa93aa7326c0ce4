#include "kernels/cuda/attention.h"

#include <set>

#include "src/base/counting.h"
#include "tests/error_of.h"
#include "tests/kernels/attention_cases.h"

namespace canopy {
namespace {

class Attention : public AttentionTest {};

TEST_P(Attention, EqualsPlainLoopsAndATreeNodeHasTheBitsOfItsPathAlone) {
  std::mt19937 random(3);
  std::vector<Case> cases;
  const std::set<std::size_t> in_f16 = {80, 112, 160, 512};  // and not elsewhere: time
  for (const std::size_t head_dim : {8, 24, 64, 80, 96, 112, 128, 160, 512})
    for (const auto& [kv_heads, group] : {std::pair{1, 1}, {2, 3}, {1, 8}})
      for (const auto& [prefix, first, n] :
           {std::tuple{0, 0, 1}, {1, 0, 7}, {37, 5, 2}, {300, 60, 11}, {0, 0, 70}})
        for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          if (dtype == DType::kF16 ? !in_f16.contains(head_dim) : head_dim == 80) continue;
          if (head_dim == 512 && (dtype == DType::kF32 || kv_heads != 2)) continue;
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
      SCOPED_TRACE(in_words(c));
      const std::size_t nodes = c.first_node + c.n, slots = c.prefix + nodes + 5;
      const std::size_t row = c.kv_heads * c.group * c.head_dim;
      const auto k = cache_of(random_floats(c.kv_heads * slots * c.head_dim, random, 2), c.dtype);
      const auto v = cache_of(random_floats(c.kv_heads * slots * c.head_dim, random), c.dtype);
      const std::vector<float> wide_k = widened(k, c.dtype), wide_v = widened(v, c.dtype);
      const std::vector<float> q = random_floats(c.n * row, random, 2);
      const auto paths = random_paths(nodes, random);
      const std::vector<float> out = attend(c, q, k, v, slots, ancestors_of(c, paths));
      for (std::size_t i = 0; i < c.n; i += 1 + c.n / 5) {
        const std::vector<std::size_t> seen = seen_by(c, i, paths);
        compare(c, q, wide_k, wide_v, slots, i, seen, out, way_of(c, GetParam()));
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

TEST_P(Attention, OfMoreThan256ColumnsAGpuReadsCachesIn16BitsAlone) {
  const Case c{320, 1, 2, 3, 0, 2, DType::kF32};
  const std::size_t slots = c.prefix + c.n, row = c.group * c.head_dim;
  const std::vector<float> q(c.n * row), cache(slots * c.head_dim);
  const auto attended = [&] { attend(c, q, bytes_of(cache), bytes_of(cache), slots, {}); };
  if (GetParam() == "cpu") return attended();
  EXPECT_NE(error_of(attended).find("at most 256 are supported, or 512"), std::string::npos);
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
  // 48 rows of scores over these slots exceed the bound of a thread's scratch.
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

TEST_P(Attention, ARowHasTheSameBitsWhateverSharesTheCallAndHoweverManyKeysThereAre) {
  std::mt19937 random(21);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    for (const std::size_t head_dim : {64, 80, 96, 128, 24})
      for (const auto& [kv_heads, group, prefix, first, n] : {std::tuple{2, 1, 256, 0, 1},
                                                              {1, 8, 255, 1, 40},
                                                              {1, 5, 2047, 3, 63},
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
        if (way_of(c, "cuda") == By::kProducts) continue;  // whose bits are others than a row's
        SCOPED_TRACE(testing::Message() << name(dtype) << " head_dim " << head_dim << " group "
                                        << group << " prefix " << prefix << " n " << n);
        const std::size_t nodes = c.first_node + c.n, slots = c.prefix + nodes + 3;
        const std::size_t row = c.kv_heads * c.group * c.head_dim, words = (nodes + 63) / 64;
        const auto k = cache_of(random_floats(c.kv_heads * slots * c.head_dim, random, 2), c.dtype);
        const auto v = cache_of(random_floats(c.kv_heads * slots * c.head_dim, random), c.dtype);
        const std::vector<float> wide_k = widened(k, c.dtype), wide_v = widened(v, c.dtype);
        const std::vector<float> q = random_floats(c.n * row, random, 2);
        const auto paths = random_paths(nodes, random);
        const std::vector<std::uint64_t> ancestors = ancestors_of(c, paths);
        const std::vector<float> out = attend(c, q, k, v, slots, ancestors);
        for (const std::size_t i : {std::size_t{0}, c.n / 2, c.n - 1}) {
          compare(c, q, wide_k, wide_v, slots, i, seen_by(c, i, paths), out, By::kLoops);
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
    attention.kv = {k.view(DType::kF16, {kv_heads, kKvBlock, head_dim}),
                    v.view(DType::kF16, {kv_heads, kKvBlock, head_dim}),
                    table.view(DType::kI32, {slots / kKvBlock}),
                    kv_heads * kKvBlock * head_dim * 2};
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
  const cuda::KeyChunks chunks;
  std::int64_t end = 0;
  for (std::int64_t chunk = 0; chunk < 60; ++chunk) {
    EXPECT_EQ(chunks.begin(chunk), end);
    end = chunks.begin(chunk + 1);
    EXPECT_EQ(end - chunks.begin(chunk), std::int64_t{256} << chunk / 8);
    EXPECT_EQ(chunks.count(end), chunk + 1);
    EXPECT_EQ(chunks.count(end + 1), chunk + 2);
  }
}

CANOPY_ON_EACH_DEVICE(Attention);

}  // namespace
}  // namespace canopy
