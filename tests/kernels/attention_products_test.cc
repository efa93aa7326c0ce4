// Attention of many nodes by matrix products (kernels/cuda/attention_products.h).
#include "kernels/gpu_scratch.h"
#include "tests/kernels/attention_cases.h"

namespace canopy {
namespace {

/// Keys, values and a tree for a case, and the slots that there are.
struct Data {
  std::size_t slots;
  std::vector<std::byte> k, v;
  std::vector<float> q;
  std::vector<std::vector<std::size_t>> paths;
};

class AttentionByProducts : public AttentionTest {
 protected:
  Data data(const Case& c) {
    const std::size_t nodes = c.first_node + c.n, slots = c.prefix + nodes + 5;
    const std::size_t of_cache = c.kv_heads * slots * c.head_dim;
    return {slots, cache_of(random_floats(of_cache, random, 2), c.dtype),
            cache_of(random_floats(of_cache, random), c.dtype),
            random_floats(c.n * c.kv_heads * c.group * c.head_dim, random, 2),
            random_paths(nodes, random)};
  }
  std::vector<float> attend_in(const Case& c, const Data& d) {
    return attend(c, d.q, d.k, d.v, d.slots, ancestors_of(c, d.paths));
  }
  void expect_plain_loops(const Case& c) {
    SCOPED_TRACE(in_words(c));
    ASSERT_EQ(way_of(c, "cuda"), By::kProducts);
    Data d = data(c);
    d.paths.back() = {d.paths.size() - 1};  // after the text it sees itself alone
    const std::vector<float> out = attend_in(c, d);
    const std::vector<float> k = widened(d.k, c.dtype), v = widened(d.v, c.dtype);
    for (std::size_t i = c.n - 1; i < c.n; i -= 1 + c.n / 5) {  // until it runs around
      compare(c, d.q, k, v, d.slots, i, seen_by(c, i, d.paths), out, By::kProducts);
      if (HasFatalFailure()) return;
    }
  }

  std::mt19937 random{7};
};

TEST_P(AttentionByProducts, EqualsPlainLoopsForAllHeadsGroupsAndTrees) {
  struct Shape {
    std::size_t prefix, first_node, n;
  };
  constexpr Shape kShapes[] = {{0, 0, 70}, {1000, 5, 64}, {37, 60, 100}, {513, 0, 66}};
  for (const std::size_t head_dim : {64, 80, 96, 128})
    for (std::size_t group = 1; group <= 8; ++group) {
      const Shape shape = kShapes[(group + head_dim / 16) % 4];
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        expect_plain_loops({head_dim, group < 4 ? std::size_t{2} : std::size_t{1}, group,
                            shape.prefix, shape.first_node, shape.n, dtype,
                            head_dim == 96 ? 0.25f : 0.0f});
        if (HasFatalFailure()) return;
      }
    }
}

TEST_P(AttentionByProducts, EqualsPlainLoopsWhereACallIsCutIntoSlicesAndARowSeesNothingOfAChunk) {
  const Case c{64, 2, 8, 0, 0, 1100, DType::kF16};
  const AttentionSlices slices(1100, 16, 2, 64);
  ASSERT_LT(slices.nodes, 600);  // two slices
  expect_plain_loops(c);         // whose last node sees nothing of the first chunks
}

// Without queries all weights are 1, and sums of small numbers are exact: a key too many, or one
// that is missing or counted twice, cannot pass for rounding.
TEST_P(AttentionByProducts, CountsEachKeyThatANodeSeesOnceAndNoOther) {
  for (const auto& [prefix, first, n] : {std::tuple{0, 0, 70}, {1023, 3, 65}, {512, 64, 64}})
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const Case c{80,
                   2,
                   3,
                   static_cast<std::size_t>(prefix),
                   static_cast<std::size_t>(first),
                   static_cast<std::size_t>(n),
                   dtype};
      Data d = data(c);
      std::vector<float> values(c.kv_heads * d.slots * c.head_dim);
      for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 17) - 8);
      d.v = cache_of(values, dtype);
      std::fill(d.q.begin(), d.q.end(), 0.0f);
      const std::vector<float> out = attend_in(c, d);
      for (std::size_t i = 0; i < c.n; ++i) {
        const std::vector<std::size_t> seen = seen_by(c, i, d.paths);
        for (std::size_t h = 0; h < 6; ++h)
          for (std::size_t j = 0; j < c.head_dim; ++j) {
            float sum = 0;
            for (const std::size_t slot : seen)
              sum += values[(h / c.group * d.slots + slot) * c.head_dim + j];
            ASSERT_EQ(out[(i * 6 + h) * c.head_dim + j], sum / static_cast<float>(seen.size()))
                << "node " << i << " head " << h << " element " << j;
          }
      }
    }
}

TEST_P(AttentionByProducts, WithoutAncestorsIsACausalChain) {
  const Case c{96, 1, 4, 19, 4, 90, DType::kBF16, 0.25f};
  Data d = data(c);
  for (std::size_t i = 0; i < d.paths.size(); ++i) {
    d.paths[i].resize(i + 1);
    std::iota(d.paths[i].begin(), d.paths[i].end(), std::size_t{0});
  }
  EXPECT_EQ(attend(c, d.q, d.k, d.v, d.slots, {}), attend_in(c, d));
}

TEST_P(AttentionByProducts, IsTakenFromSixtyFourNodesOnAndNeitherInAGraphNorIn32Bits) {
  const auto bits_are_of_a_row_alone = [&](std::size_t n, DType dtype) {
    const Case c{64, 1, 2, 100, 0, n, dtype};
    const Data d = data(c);
    const std::vector<float> out = attend_in(c, d);
    Case one = c;
    one.n = 1;
    const std::vector<float> alone =
        attend(one, {d.q.begin(), d.q.begin() + 128}, d.k, d.v, d.slots, {std::uint64_t{1}});
    return std::equal(alone.begin(), alone.end(), out.begin());
  };
  EXPECT_TRUE(bits_are_of_a_row_alone(63, DType::kF16));
  EXPECT_FALSE(bits_are_of_a_row_alone(64, DType::kF16));
  EXPECT_FALSE(bits_are_of_a_row_alone(64, DType::kBF16));
  EXPECT_TRUE(bits_are_of_a_row_alone(64, DType::kF32));
  in_a_graph = true;
  EXPECT_TRUE(bits_are_of_a_row_alone(64, DType::kF16));
}

TEST_P(AttentionByProducts, TakesNoMoreScratchThanWasReserved) {
  for (const auto& [heads, kv_heads, head_dim, rows] :
       {std::tuple{64, 8, 128, 1024}, {32, 32, 128, 300}, {9, 3, 64, 64}, {8, 1, 96, 2000}}) {
    const Workload largest{.rows = rows,
                           .columns = 64,
                           .vocab = 10,
                           .heads = heads,
                           .kv_heads = kv_heads,
                           .head_dim = head_dim,
                           .context = 4000};
    const std::size_t reserved = ops().scratch_bytes(largest);
    EXPECT_LE(reserved,
              kGpuExpandedBytes + (std::size_t{1} << 20));  // what products of weights take
    for (std::int64_t n = AttentionSlices::kLeastNodes; n <= rows; ++n) {
      const AttentionSlices slices(n, heads, kv_heads, head_dim);
      ASSERT_LE(slices.bytes, reserved) << n;
      ASSERT_LE(slices.nodes * heads * (head_dim * 6 + AttentionSlices::kKeys * 6 + 8),
                static_cast<std::int64_t>(kGpuSliceBytes));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionByProducts, testing::Values("emulated", "cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace canopy
