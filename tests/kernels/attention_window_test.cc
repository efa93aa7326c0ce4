// Attention within a window, and with sinks (TreeAttention::window, sinks; docs/math.md (C6)).
#include <limits>

#include "kernels/cuda/key_chunks.h"
#include "kernels/gpu_scratch.h"
#include "src/base/counting.h"
#include "tests/error_of.h"
#include "tests/kernels/attention_cases.h"

namespace canopy {
namespace {

using Paths = std::vector<std::vector<std::size_t>>;

/// A random tree whose nodes mostly follow one of the three before them, so that paths are long.
Paths long_paths(std::size_t nodes, std::mt19937& random) {
  Paths paths(nodes);
  for (std::size_t i = 0; i < nodes; ++i) {
    if (i > 0 && random() % 32 != 0)
      paths[i] = paths[i - 1 - random() % std::min<std::size_t>(i, 3)];
    paths[i].push_back(i);
  }
  return paths;
}
Paths chain_of(std::size_t nodes) {
  Paths paths(nodes);
  for (std::size_t i = 0; i < nodes; ++i) {
    paths[i].resize(i + 1);
    std::iota(paths[i].begin(), paths[i].end(), std::size_t{0});
  }
  return paths;
}

class AttentionWindow : public AttentionTest {
 protected:
  /// Input of a case, and the slots that there are.
  struct Text {
    std::size_t slots;
    std::vector<std::byte> k, v;
    std::vector<float> q;
    Paths paths;
  };
  Text text_of(const Case& c, Paths paths) {
    const std::size_t slots = c.prefix + c.first_node + c.n + 5;
    const std::size_t of_cache = c.kv_heads * slots * c.head_dim;
    return {slots, cache_of(random_floats(of_cache, random, 2), c.dtype),
            cache_of(random_floats(of_cache, random), c.dtype),
            random_floats(c.n * row_of_q(c), random, 2), std::move(paths)};
  }
  Text tree_of(const Case& c) { return text_of(c, long_paths(c.first_node + c.n, random)); }

  static std::size_t row_of_q(const Case& c) { return c.kv_heads * c.group * c.head_dim; }
  static std::vector<float> rows(const Case& c, const std::vector<float>& of, std::size_t first,
                                 std::size_t count) {
    const auto at = [&](std::size_t row) {
      return of.begin() + static_cast<std::ptrdiff_t>(row * row_of_q(c));
    };
    return {at(first), at(first + count)};
  }
  /// Rows [first, first + count) of a case, in a call of their own.
  std::vector<float> attend_rows(const Case& c, const Text& text, std::size_t first,
                                 std::size_t count) {
    Case some = c;
    some.first_node += first;
    some.n = count;
    return attend(some, rows(c, text.q, first, count), text.k, text.v, text.slots,
                  ancestors_of(some, text.paths));
  }
  std::vector<float> attend_all(const Case& c, const Text& text) {
    return attend_rows(c, text, 0, c.n);
  }
  std::vector<float> attend_as_chain(const Case& c, const Text& text) {
    return attend(c, text.q, text.k, text.v, text.slots, {});
  }
  void expect_plain_loops(const Case& c, const Text& text, const std::vector<float>& out,
                          std::size_t step) {
    const std::vector<float> k = widened(text.k, c.dtype), v = widened(text.v, c.dtype);
    for (std::size_t i = c.n - 1; i < c.n; i -= step) {  // until it runs around
      compare(c, text.q, k, v, text.slots, i, seen_by(c, i, text.paths), out,
              way_of(c, GetParam()));
      if (HasFatalFailure()) return;
    }
  }
  std::vector<float> some_sinks(const Case& c) {
    return random_floats(c.kv_heads * c.group, random, 6);
  }

  std::mt19937 random{11};
};

struct Shape {
  std::size_t prefix, first_node, n;
};
struct Heads {
  std::size_t head_dim, kv_heads, group;
  DType dtype;
};

TEST_P(AttentionWindow, EqualsPlainLoopsWithinWindowsOfAllSizesWithAndWithoutSinks) {
  constexpr Heads kHeads[] = {{24, 1, 1, DType::kF32},
                              {64, 2, 3, DType::kBF16},
                              {80, 1, 8, DType::kF16},
                              {128, 2, 2, DType::kF32},
                              {160, 1, 4, DType::kBF16}};
  std::vector<Case> cases;
  std::size_t number = 0;
  for (const auto& [prefix, first, n] :
       {Shape{0, 0, 1}, {37, 5, 2}, {300, 60, 11}, {0, 0, 70}, {700, 3, 40}})
    for (const std::size_t window :
         {std::size_t{1}, std::size_t{2}, std::size_t{17}, std::size_t{63}, std::size_t{64},
          std::size_t{129}, std::size_t{300}, prefix + first + n, prefix + first + n + 1,
          std::size_t{100000}}) {
      const Heads& heads = kHeads[number % 5];
      cases.push_back({heads.head_dim, heads.kv_heads, heads.group, prefix, first, n, heads.dtype,
                       number % 7 == 0 ? 0.25f : 0.0f, window});
      if (number % 3 != 0) cases.back().sinks = some_sinks(cases.back());
      ++number;
    }
  on_each_instruction_set([&] {
    for (const Case& c : cases) {
      SCOPED_TRACE(in_words(c));
      const Text text = tree_of(c);
      expect_plain_loops(c, text, attend_all(c, text), 1 + c.n / 12);
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(AttentionWindow, BoundsScoresBeforeAllElse) {
  std::vector<Case> cases;
  for (const auto& [prefix, first, n] : {Shape{0, 0, 1}, {37, 5, 2}, {300, 60, 11}, {500, 0, 70}})
    for (const float cap : {0.5f, 3.0f, 50.0f})
      for (const DType dtype : {DType::kF32, DType::kF16}) {
        cases.push_back({dtype == DType::kF32 ? std::size_t{24} : std::size_t{64}, 1, 2, prefix,
                         first, n, dtype, cap == 3 ? 0.25f : 0.0f});
        cases.back().cap = cap;
        if (cap != 50) cases.back().window = 40;
        if (cap == 50) cases.back().sinks = some_sinks(cases.back());
      }
  on_each_instruction_set([&] {
    for (const Case& c : cases) {
      SCOPED_TRACE(in_words(c));
      const Text text = tree_of(c);
      const std::vector<float> out = attend_all(c, text);
      expect_plain_loops(c, text, out, 1 + c.n / 12);
      if (HasFatalFailure()) return;
      Case free = c;
      free.cap = 0;
      if (c.cap < 50 && c.prefix + c.n > 1) {  // one key has all the weight, whatever its score
        EXPECT_NE(attend_all(free, text), out);
      }
    }
  });
}

TEST_P(AttentionWindow, BoundedScoresOfATreesNodeHaveTheBitsOfItsPath) {
  if (GetParam() != "cpu") GTEST_SKIP() << "of the CPU";
  on_each_instruction_set([&] {
    Case c{24, 1, 2, 90, 0, 31, DType::kF32};
    c.cap = 2;
    c.window = 33;
    const Text text = tree_of(c);
    const std::vector<float> all = attend_all(c, text);
    for (std::size_t node = 0; node < c.n; ++node)
      ASSERT_EQ(attend_rows(c, text, node, 1), rows(c, all, node, 1)) << node;
  });
}

TEST_P(AttentionWindow, EqualsPlainLoopsByProducts) {
  if (GetParam() == "cpu") GTEST_SKIP() << "a GPU's way";
  for (const auto& [prefix, first, n] : {Shape{0, 0, 70}, {1000, 5, 64}, {1600, 60, 100}})
    for (const std::size_t window : {1, 30, 500, 513, 1100, 9000})
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        Case c{64, 2, 2, prefix, first, n, dtype, window == 500 ? 0.25f : 0.0f, window};
        if (window != 30) c.sinks = some_sinks(c);
        ASSERT_EQ(way_of(c, "cuda"), By::kProducts);
        SCOPED_TRACE(in_words(c));
        const Text text = tree_of(c);
        expect_plain_loops(c, text, attend_all(c, text), 9);
        if (HasFatalFailure()) return;
      }
}

TEST_P(AttentionWindow, EqualsPlainLoopsWhereACallIsCutIntoSlices) {
  Case c{64, 2, 8, 300, 0, 1100, DType::kF16, 0.0f, 150};
  ASSERT_LT(AttentionSlices(1100, 16, 2, 64).nodes, 600);  // two slices
  c.sinks = some_sinks(c);
  const Text text = text_of(c, chain_of(c.n));
  const std::vector<float> out = attend_as_chain(c, text);
  expect_plain_loops(c, text, out, 211);
  EXPECT_EQ(out, attend_all(c, text));
}

// Without queries all weights are 1, the sink's too, and sums of small numbers are exact: a key too
// many, or one that is missing or counted twice, cannot pass for rounding.
TEST_P(AttentionWindow, CountsEachKeyOfTheWindowOnceAndNoOther) {
  for (const auto& [prefix, first, n] :
       {Shape{0, 0, 1}, {70, 3, 30}, {520, 70, 40}, {500, 40, 70}, {2300, 0, 66}})
    for (const std::size_t window : {1, 2, 40, 64, 100, 257, 512, 600, 4000})
      for (const bool with_sinks : {false, true}) {
        Case c{8, 2, 3, prefix, first, n, DType::kF16, 0.0f, window};
        if (with_sinks) c.sinks = {0, 0, -INFINITY, 10000, 0, std::numeric_limits<float>::max()};
        SCOPED_TRACE(in_words(c));
        Text text = tree_of(c);
        std::vector<float> values(c.kv_heads * text.slots * c.head_dim);
        for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 17) - 8);
        text.v = cache_of(values, c.dtype);
        std::fill(text.q.begin(), text.q.end(), 0.0f);
        const std::vector<float> out = attend_all(c, text);
        for (std::size_t i = 0; i < c.n; ++i) {
          const std::vector<std::size_t> path = seen_by(c, i, text.paths);
          const std::size_t count = std::min(window, path.size());
          for (std::size_t h = 0; h < 6; ++h) {
            const float sink = with_sinks ? c.sinks[h] : -INFINITY;
            for (std::size_t j = 0; j < c.head_dim; ++j) {
              float sum = 0;
              for (std::size_t t = path.size() - count; t < path.size(); ++t)
                sum += values[(h / c.group * text.slots + path[t]) * c.head_dim + j];
              const float expected =
                  sink > 0 ? 0.0f : sum / static_cast<float>(count + (sink == 0 ? 1 : 0));
              ASSERT_EQ(out[(i * 6 + h) * c.head_dim + j], expected)
                  << "node " << i << " head " << h << " element " << j;
            }
          }
        }
      }
}

TEST_P(AttentionWindow, ATreeNodeHasTheBitsOfItsPathAloneAndOfTheKeysInItsWindowAlone) {
  if (GetParam() != "cpu") GTEST_SKIP() << "a property of the CPU backend";
  on_each_instruction_set([&] {
    for (const auto& [prefix, first, n] : {Shape{0, 0, 90}, {150, 70, 30}, {5, 0, 9}})
      for (const std::size_t window : {1, 9, 64, 100, 1000})
        for (const float slope : {0.0f, 0.5f}) {
          Case c{40, 2, 3, prefix, first, n, DType::kBF16, slope, window};
          c.sinks = some_sinks(c);
          SCOPED_TRACE(in_words(c));
          const Text text = tree_of(c);
          const std::vector<float> out = attend_all(c, text);
          for (std::size_t i = 0; i < c.n; i += 7) {
            std::vector<std::size_t> path = seen_by(c, i, text.paths);
            const std::vector<float> q = rows(c, text.q, i, 1), expected = rows(c, out, i, 1);
            Case alone = c;
            alone.n = 1;
            const auto of_slots = [&](std::size_t nodes_of_tree) {
              alone.first_node = nodes_of_tree - 1;
              alone.prefix = path.size() - nodes_of_tree;
              return attend(alone, q, gather(text.k, c, text.slots, path),
                            gather(text.v, c, text.slots, path), path.size(), {});
            };
            ASSERT_EQ(of_slots(1), expected) << "node " << i;
            ASSERT_EQ(of_slots((path.size() + 1) / 2), expected) << "node " << i;
            path.erase(path.begin(),
                       path.end() - static_cast<std::ptrdiff_t>(std::min(window, path.size())));
            alone.window = 0;
            ASSERT_EQ(of_slots(1), expected) << "node " << i;
          }
        }
  });
}

TEST_P(AttentionWindow, ARowHasTheSameBitsWhateverSharesTheCall) {
  for (const DType dtype : {DType::kF16, DType::kF32})
    for (const auto& [prefix, first, n] : {Shape{255, 1, 40}, {2500, 70, 9}, {100, 0, 200}})
      for (const std::size_t window : {1, 60, 257, 700, 2500, 6000}) {
        Case c{64, 2, 4, prefix, first, n, dtype, window == 60 ? 0.0625f : 0.0f, window};
        if (way_of(c, "cuda") == By::kProducts) continue;  // whose bits are others than a row's
        c.sinks = some_sinks(c);
        SCOPED_TRACE(in_words(c));
        const Text text = tree_of(c);
        const std::vector<float> out = attend_all(c, text);
        for (const std::size_t i : {std::size_t{0}, c.n / 2, c.n - 1})
          ASSERT_EQ(attend_rows(c, text, i, 1), rows(c, out, i, 1)) << "row " << i;
        const std::size_t half = c.n / 2;
        ASSERT_EQ(attend_rows(c, text, 0, half), rows(c, out, 0, half));
        ASSERT_EQ(attend_rows(c, text, half, c.n - half), rows(c, out, half, c.n - half));
      }
}

TEST_P(AttentionWindow, ANodeInTheSlotOfPlainDecodingHasItsBits) {
  for (const std::size_t window : {1, 20, 64, 300, 520, 700}) {
    Case c{64, 1, 4, 600, 0, 50, DType::kBF16, 0.0f, window};
    c.sinks = some_sinks(c);
    SCOPED_TRACE(in_words(c));
    Paths paths = chain_of(c.n);  // and from node 40 on, leaves of any of these
    for (std::size_t i = 40; i < c.n; ++i) paths[i] = paths[random() % 40], paths[i].push_back(i);
    const Text text = text_of(c, paths);
    const std::vector<float> out = attend_all(c, text);
    for (const std::size_t i : {0, 19, 39}) {
      Case plain = c;
      plain.prefix += i;
      plain.n = 1;
      ASSERT_EQ(attend(plain, rows(c, text.q, i, 1), text.k, text.v, text.slots, {}),
                rows(c, out, i, 1))
          << "node " << i;
    }
  }
}

TEST_P(AttentionWindow, WithoutAncestorsIsACausalChain) {
  on_each_instruction_set([&] {
    for (const std::size_t n : {30, 90})  // a GPU's two ways
      for (const std::size_t window : {1, 50, 64, 300, 1000}) {
        Case c{32, 2, 2, 619, 4, n, DType::kF16, 0.25f, window};
        c.sinks = some_sinks(c);
        SCOPED_TRACE(in_words(c));
        const Text text = text_of(c, chain_of(c.first_node + c.n));
        ASSERT_EQ(attend_as_chain(c, text), attend_all(c, text));
      }
  });
}

TEST_P(AttentionWindow, ASinkOfMinusInfinityHasTheBitsOfNoneAndOnTheCpuAWindowOfAllKeysToo) {
  on_each_instruction_set([&] {
    for (const std::size_t n : {30, 90}) {
      Case c{48, 2, 2, 900, 4, n, DType::kBF16};
      const Text text = tree_of(c);
      const std::vector<float> plain = attend_all(c, text);
      c.sinks.assign(4, -INFINITY);
      EXPECT_EQ(attend_all(c, text), plain);
      c.window = c.prefix + c.first_node + c.n;
      if (GetParam() == "cpu") {
        EXPECT_EQ(attend_all(c, text), plain);
      }
    }
  });
}

// Blocks of keys that no row sees hold what is not a number: it would come through.
TEST_P(AttentionWindow, BlocksOfKeysBeforeAllWindowsAreNotRead) {
  on_each_instruction_set([&] {
    for (const bool chain : {false, true})
      for (const std::size_t n : {1, 40, 100})
        for (const std::size_t window : {1, 60, 300, 700}) {
          Case c{64, 2, 2, 1800, 30, n, DType::kF16, 0.0f, window};
          c.sinks = some_sinks(c);
          SCOPED_TRACE(testing::Message() << in_words(c) << (chain ? " chain" : ""));
          Text text = chain ? text_of(c, chain_of(c.first_node + c.n)) : tree_of(c);
          text.paths[c.first_node] = {c.first_node};  // a root, whose window reaches farthest back
          if (chain) text.paths = chain_of(c.first_node + c.n);
          const auto run = [&] { return chain ? attend_as_chain(c, text) : attend_all(c, text); };
          const std::vector<float> expected = run();
          const std::size_t first = c.prefix + (chain ? c.first_node : 0) + 1 - window;
          const std::size_t block = way_of(c, GetParam()) == By::kProducts ? 512 : 64;
          const std::size_t row = c.head_dim * 2;
          for (std::size_t h = 0; h < c.kv_heads; ++h)
            for (std::vector<std::byte>* cache : {&text.k, &text.v})
              std::fill_n(cache->begin() + static_cast<std::ptrdiff_t>(h * text.slots * row),
                          first / block * block * row, std::byte{0xff});
          ASSERT_EQ(run(), expected);
        }
  });
}

TEST_P(AttentionWindow, AGraphFollowsTheWindowOfATextThatGrows) {
  const std::int64_t n = 3, heads = 4, kv_heads = 2, head_dim = 64, slots = 40 * kKvBlock;
  const auto cache = cache_of(
      random_floats(static_cast<std::size_t>(kv_heads * slots * head_dim), random, 2), DType::kF16);
  OnDevice q = send(random_floats(static_cast<std::size_t>(n * heads * head_dim), random));
  OnDevice k = send(cache), v = send(cache), sinks = send(random_floats(4, random, 3));
  OnDevice out = send(std::vector<float>(static_cast<std::size_t>(n * heads * head_dim)));
  OnDevice table = send(counting(0, static_cast<std::size_t>(slots / kKvBlock)));
  OnDevice prefix = send(std::vector<std::int64_t>{100});
  OnDevice bits = send(std::vector<std::uint64_t>{1, 3, 5});
  ops().reserve({.rows = n,
                 .columns = head_dim,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .head_dim = head_dim,
                 .context = slots});
  for (const std::int64_t window : {1, 100, 600, 3000})
    for (const bool tree : {false, true}) {
      const auto call = [&](std::int64_t length) {
        TreeAttention attention;
        attention.q = q.view(DType::kF32, {n, heads, head_dim});
        attention.kv = {k.view(DType::kF16, {kv_heads, kKvBlock, head_dim}),
                        v.view(DType::kF16, {kv_heads, kKvBlock, head_dim}),
                        table.view(DType::kI32, {slots / kKvBlock}),
                        kv_heads * kKvBlock * head_dim * 2};
        if (tree) attention.ancestors = bits.view(DType::kU64, {n, 1});
        attention.prefix = {length, reinterpret_cast<const std::int64_t*>(prefix.data())};
        attention.scale = 0.125f;
        attention.out = out.view(DType::kF32, {n, heads, head_dim});
        attention.window = window;
        attention.sinks = sinks.view(DType::kF32, {heads});
        ops().attend(stream(), attention);
      };
      const auto set_prefix = [&](std::int64_t length) {
        device().upload(stream(), prefix.data(), std::as_bytes(std::span(&length, 1)));
        stream().synchronize();
      };
      set_prefix(100);
      call(100);
      stream().synchronize();
      const std::unique_ptr<Graph> graph = stream().capture([&] { call(100); });
      for (const std::int64_t length : {100, 253, 511, 2500}) {
        SCOPED_TRACE(testing::Message() << "window " << window << " prefix " << length);
        set_prefix(length);
        call(length);
        const std::vector<float> expected = out.read<float>(), zeros(expected.size());
        device().upload(stream(), out.data(), std::as_bytes(std::span(zeros)));
        stream().launch(*graph);
        EXPECT_EQ(out.read<float>(), expected);
      }
    }
}

TEST_P(AttentionWindow, WhatDoesNotFitIsRefusedByName) {
  OnDevice data = send(std::vector<float>(4096)), block = send(std::vector<std::int32_t>{0});
  OnDevice out = send(std::vector<float>(32));
  const auto why = [&](std::int64_t window, const ConstTensorView& sinks) {
    TreeAttention call;
    const TensorView cache = data.view(DType::kF32, {2, 64, 8});
    call.kv = {cache, cache, block.view(DType::kI32, {1}), 4096};
    call.q = data.view(DType::kF32, {1, 4, 8});
    call.out = out.view(DType::kF32, {1, 4, 8});
    call.window = window;
    call.sinks = sinks;
    return error_of([&] { ops().attend(stream(), call); });
  };
  const std::pair<std::string, std::string> cases[] = {
      {why(-1, {}), "attend: window is -1, not a number of keys below 2^31, or 0 for all"},
      {why(std::int64_t{1} << 31, {}), "attend: window is 2147483648, not"},
      {why(0, data.view(DType::kF32, {2})), "attend: sinks has shape [2], not [4]"},
      {why(0, data.view(DType::kF32, {4, 1})), "attend: sinks has shape [4, 1], not [4]"},
      {why(0, data.view(DType::kBF16, {4})), "attend: sinks is BF16, not F32"}};
  for (const auto& [got, want] : cases) EXPECT_EQ(got.substr(0, want.size()), want);
  EXPECT_EQ(why((std::int64_t{1} << 31) - 1, data.view(DType::kF32, {4})), "");
  stream().synchronize();  // it has been queued, over memory that goes
}

TEST(KeyChunks, OfAWindowAreFewWhereverItIs) {
  constexpr std::int64_t kSlots = std::int64_t{1} << 40;
  for (std::int64_t window = 1; window < std::int64_t{1} << 31; window += 1 + window / 3) {
    const auto chunks = cuda::KeyChunks::of_window(window);
    EXPECT_EQ(chunks.begin(3), 3 * chunks.begin(1));
    EXPECT_EQ(chunks.count(chunks.begin(3)), 3);
    TreeMask mask{nullptr, 0, 0, 0, window};
    EXPECT_LE(chunks.most(mask, 1, kSlots), 17) << window;
    for (const std::int64_t prefix : {std::int64_t{0}, window / 2, 5 * window, kSlots / 2})
      for (const std::int64_t more : {0, 1, 255, 256})
        for (const std::int64_t n : {1, 60}) {
          mask.prefix = prefix + more;
          EXPECT_LE(chunks.needed(mask, n), chunks.most(mask, n, kSlots)) << window;
        }
  }
}

CANOPY_ON_EACH_DEVICE(AttentionWindow);

}  // namespace
}  // namespace canopy
