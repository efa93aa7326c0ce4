#include "src/model/transformer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/base/error.h"
#include "src/checkpoint/families.h"
#include "src/checkpoint/families/alibi.h"
#include "tests/model/random_weights.h"

namespace canopy {
namespace {

using Rows = std::vector<std::vector<float>>;

/// A random tree, nodes numbered parents first.
struct Tree {
  std::vector<TokenId> tokens;
  std::vector<int> parent, depth;
  std::vector<std::uint64_t> bits;  // [n, ceil(n / 64)]

  Tree(unsigned seed, int n, int vocab) {
    std::mt19937 random(seed);
    const auto words = static_cast<std::size_t>((n + 63) / 64);
    bits.resize(static_cast<std::size_t>(n) * words);
    for (int i = 0; i < n; ++i) {
      tokens.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(vocab)));
      parent.push_back(i == 0 ? -1 : static_cast<int>(random() % static_cast<unsigned>(i)));
      depth.push_back(i == 0 ? 0 : depth[static_cast<std::size_t>(parent.back())] + 1);
      for (int j = i; j >= 0; j = parent[static_cast<std::size_t>(j)])
        bits[static_cast<std::size_t>(i) * words + static_cast<std::size_t>(j) / 64] |=
            std::uint64_t{1} << (j % 64);
    }
  }
  std::vector<TokenId> path_to(int node) const {
    std::vector<TokenId> path;
    for (; node >= 0; node = parent[static_cast<std::size_t>(node)])
      path.insert(path.begin(), tokens[static_cast<std::size_t>(node)]);
    return path;
  }
};

std::vector<std::int32_t> counting(int first, std::size_t n) {
  std::vector<std::int32_t> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}

class TransformerTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int kContext = 400, kMostNodes = 100;
  void SetUp() override {
    if (std::string(GetParam()) == "qwen2") config.layer_kinds = {{.qkv_bias = true}};
    if (std::string(GetParam()) == "qwen3") config.layer_kinds = {{.qk_norm = true}};
    if (std::string(GetParam()) == "unequal") config = unequal_config();
    if (std::string(GetParam()).starts_with("delta")) config = recurrent_config();
    config.delta.by_turns = std::string(GetParam()) == "delta_by_turns";
    config.delta.joined_inputs = config.delta.joined_steps =
        std::string(GetParam()) == "delta_joined";
    if (std::string(GetParam()).ends_with("mixture")) {
      config.experts = {.count = 7, .active = 3, .hidden_dim = 20};
      const bool whole = std::string(GetParam()) == "shared_mixture";
      const bool weighted = std::string(GetParam()) == "switched_mixture";
      if (whole || weighted) config.experts.shared_dim = 28;
      config.experts.shared_switch = weighted;
      if (whole) {
        config.experts.score = RouterScore::kSigmoid;
        config.experts.choice_bias = true;
        config.experts.scale = 1.5f;
        config.rope_inverse_frequency.resize(config.rope_inverse_frequency.size() / 2);
      }
      config.layer_kinds = {{.experts = true}, {}};
      config.kind_of_layer.assign(static_cast<std::size_t>(config.layers), 0);
      config.kind_of_layer.back() = 1;
    }
    if (std::string(GetParam()) == "gpt_oss") {
      const Family& family = *find_family(known_families(), "gpt_oss");
      config.take_turns(family.layer_kinds);
      config.set_window(5);  // deep trees lie across its edge
      config.experts = {.count = 7, .active = 3, .hidden_dim = 20};
      config.experts.gating = {GatingKind::kClamped, 1.5f, 1.702f};
    }
    for (const std::string name : {"gemma2", "olmo3", "cohere2"}) {
      if (GetParam() != name) continue;
      const Family& family = *find_family(known_families(), name);
      config.form = family.form;
      config.take_turns(family.layer_kinds);
      for (LayerConfig& kind : config.layer_kinds) kind.whole_qk_norm = false;
      config.set_window(5);  // deep trees lie across its edge
      if (name == "gemma2")
        config.factors = {.embedding = 1.5f, .logit_cap = 3, .score = 0.3f, .score_cap = 2};
      if (name == "cohere2") config.factors = {.branch = 1, .logit = 0.5f};
      if (name == "olmo3") {
        config.factors.branch = 0.7f;
        config.rope_of_kind = {config.rope_inverse_frequency, config.rope_inverse_frequency};
        for (float& frequency : config.rope_of_kind.back()) frequency *= 0.5f;
        config.rope_magnitude_of_kind = {1.0f, 1.2f};
      }
    }
    if (std::string(GetParam()) == "gguf") config.rope_adjacent_pairs = true;
    if (std::string(GetParam()) == "ministral3") {
      config.query_beta = 0.5f;
      config.query_period = 3;  // trees lie across its multiples
    }
    for (const std::string name : {"opt", "bloom"}) {
      if (!std::string_view(GetParam()).starts_with(name)) continue;
      const Family& family = *find_family(known_families(), name);
      config.form = family.form;
      config.layer_kinds.assign(family.layer_kinds.begin(), family.layer_kinds.end());
      config.kv_heads = config.heads = 6;  // no power of two
      config.max_positions = kContext;
      config.rope_inverse_frequency.clear();
    }
    if (std::string(GetParam()) == "opt_after") {
      config.form.norm_after = true;
      config.embedding_dim = 40;
    }
    if (config.form.positions == PositionKind::kAlibi) {
      config.head_dim = 9;
      config.alibi_slopes = alibi_slopes(config.heads);
    }
  }
  Transformer make(int chunk = 64) {
    return Transformer(*device, config, weights(),
                       {kContext, kContext, kContext, kContext, chunk, kContext});
  }
  RandomWeights& weights() {
    if (!weights_) weights_ = std::make_unique<RandomWeights>(*device, config, 5);
    return *weights_;
  }
  KvCache cache(DType type = DType::kF32) {
    return KvCache(*device, config, kContext, {type, type}, kMostNodes);
  }

  Rows run(Transformer& model, std::span<const SequenceRows> parts) {
    const ConstTensorView logits = model.forward(parts, *stream);
    stream->synchronize();
    Rows rows;
    for (std::int64_t i = 0; i < logits.dim(0); ++i) {
      const auto* row = reinterpret_cast<const float*>(logits.rows(i, 1).data());
      rows.emplace_back(row, row + config.vocab);
    }
    return rows;
  }
  /// Logits of every position of a plain text, run as one chain.
  Rows run_chain(Transformer& model, KvCache& kv, std::span<const TokenId> tokens) {
    const auto position = counting(kv.length(), tokens.size()), rows = counting(0, tokens.size());
    const SequenceRows part{{tokens, position, {}, 0, rows}, &kv, 0};
    return run(model, {&part, 1});
  }

  ModelConfig config = tiny_config();
  std::unique_ptr<Device> device = make_device({.threads = 2});
  std::unique_ptr<Stream> stream = device->make_stream("compute");
  std::vector<TokenId> text = Tree(11, 150, tiny_config().vocab).tokens;

 private:
  std::unique_ptr<RandomWeights> weights_;
};

TEST_P(TransformerTest, ATokenAtATimeGivesTheBitsOfTheWholeText) {
  Transformer model = make();
  KvCache whole_kv = cache(), kv = cache();
  const Rows whole = run_chain(model, whole_kv, text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Rows one = run_chain(model, kv, std::span(text).subspan(i, 1));
    kv.commit(counting(0, 1), *stream);
    ASSERT_EQ(one[0], whole[i]) << "position " << i;
  }
}

TEST_P(TransformerTest, ChunksInsideALayerDoNotShow) {
  Transformer whole = make(kContext);
  KvCache whole_kv = cache();
  const Rows expected = run_chain(whole, whole_kv, text);
  for (const int chunk : {1, 7, 64, 149}) {
    Transformer model = make(chunk);
    KvCache kv = cache();
    ASSERT_EQ(run_chain(model, kv, text), expected) << "chunk " << chunk;
  }
}

TEST_P(TransformerTest, ATreeNodeHasTheBitsOfItsPathDecodedAlone) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE(seed);
    const Tree tree(seed, 90, config.vocab);
    Transformer model = make(seed == 2 ? 13 : 64);
    KvCache kv = cache(seed == 3 ? DType::kBF16 : DType::kF32);
    run_chain(model, kv, text);
    kv.commit(counting(0, text.size()), *stream);
    std::vector<std::int32_t> position;
    for (const int d : tree.depth) position.push_back(kv.length() + d);
    const auto rows = counting(0, tree.tokens.size());
    const SequenceRows part{{tree.tokens, position, tree.bits, 0, rows}, &kv, 0};
    const Rows all = run(model, {&part, 1});
    for (int node = 0; node < 90; node += 11) {
      const std::vector<TokenId> path = tree.path_to(node);
      ASSERT_EQ(run_chain(model, kv, path).back(), all[static_cast<std::size_t>(node)])
          << "node " << node;
    }
  }
}

TEST_P(TransformerTest, ATreeGrownLevelByLevelHasTheBitsOfTheTreeAtOnce) {
  const Tree tree(4, 70, config.vocab);
  Transformer model = make();
  KvCache kv = cache(), kv_levels = cache();
  std::vector<std::int32_t> position(tree.depth.begin(), tree.depth.end());
  const auto rows = counting(0, 70);
  const SequenceRows part{{tree.tokens, position, tree.bits, 0, rows}, &kv, 0};
  const Rows all = run(model, {&part, 1});
  for (int first = 0; first < 70; first += 10) {  // any cut that keeps parents first is a level
    std::vector<std::uint64_t> bits;
    for (int i = first; i < first + 10; ++i)
      for (int word = 0; word < (first + 10 + 63) / 64; ++word)
        bits.push_back(tree.bits[static_cast<std::size_t>(i * 2 + word)]);
    const auto level_rows = counting(0, 10);
    const SequenceRows level{
        {std::span(tree.tokens).subspan(static_cast<std::size_t>(first), 10),
         std::span(position).subspan(static_cast<std::size_t>(first), 10), bits, first, level_rows},
        &kv_levels,
        0};
    const Rows got = run(model, {&level, 1});
    for (std::size_t i = 0; i < 10; ++i)
      ASSERT_EQ(got[i], all[static_cast<std::size_t>(first) + i]) << "node " << first << " + " << i;
  }
}

TEST_P(TransformerTest, CommittingAPathContinuesAsIfItHadBeenDecoded) {
  const Tree tree(6, 80, config.vocab);
  Transformer model = make();
  KvCache kv = cache(), plain = cache();
  std::vector<std::int32_t> position(tree.depth.begin(), tree.depth.end());
  const SequenceRows part{{tree.tokens, position, tree.bits, 0, {}}, &kv, 0};
  run(model, {&part, 1});
  const int leaf = 79;
  std::vector<NodeId> path;
  for (int node = leaf; node >= 0; node = tree.parent[static_cast<std::size_t>(node)])
    path.insert(path.begin(), node);
  kv.commit(path, *stream);
  run_chain(model, plain, tree.path_to(leaf));
  plain.commit(counting(0, path.size()), *stream);
  EXPECT_EQ(run_chain(model, kv, text), run_chain(model, plain, text));
}

TEST_P(TransformerTest, APromptAndTheTreeBelowItShareASweep) {
  const Tree tree(8, 40, config.vocab);
  Transformer model = make(32);
  KvCache together = cache(), apart = cache();
  run_chain(model, apart, text);
  apart.commit(counting(0, text.size()), *stream);
  std::vector<std::int32_t> position;
  for (const int d : tree.depth) position.push_back(static_cast<int>(text.size()) + d);
  const auto rows = counting(0, 40), prompt_position = counting(0, text.size());
  const TreeBatch batch{tree.tokens, position, tree.bits, 0, rows};
  const SequenceRows alone{batch, &apart, 0};
  const Rows expected = run(model, {&alone, 1});
  const SequenceRows parts[] = {{{text, prompt_position, {}, 0, {}}, &together, 0},
                                {batch, &together, static_cast<int>(text.size())}};
  EXPECT_EQ(run(model, parts), expected);
}

TEST_P(TransformerTest, TwoSequencesShareASweepWithoutSeeingEachOther) {
  Transformer model = make(48);
  KvCache a = cache(), b = cache(), alone = cache();
  const std::vector<TokenId> other = Tree(12, 77, config.vocab).tokens;
  const auto position_a = counting(0, text.size()), position_b = counting(0, other.size());
  const auto last_b = counting(76, 1);
  const SequenceRows parts[] = {{{text, position_a, {}, 0, {}}, &a, 0},
                                {{other, position_b, {}, 0, last_b}, &b, 0}};
  const Rows shared = run(model, parts);
  EXPECT_EQ(shared[0], run_chain(model, alone, other).back());
}

TEST_P(TransformerTest, AStopRequestEndsTheSweepAndLeavesTheModelUsable) {
  Transformer model = make();
  KvCache kv = cache(), fresh = cache();
  std::stop_source stop;
  stop.request_stop();
  const auto position = counting(0, text.size());
  const SequenceRows part{{text, position, {}, 0, {}}, &kv, 0};
  EXPECT_THROW(model.forward({&part, 1}, *stream, stop.get_token()), Stopped);
  EXPECT_EQ(weights().abandoned, 1);
  EXPECT_EQ(run_chain(model, kv, text), run_chain(model, fresh, text));
}

TEST_P(TransformerTest, AfterAStoppedSweepNothingRunsOnTheBuffersItUsed) {
  Transformer model = make();
  KvCache kv = cache();
  std::stop_source stop;
  weights().on_acquire = [&](std::size_t unit) {
    if (unit + 2 == weights().units().size()) stop.request_stop();
  };
  const auto position = counting(0, text.size());
  const SequenceRows part{{text, position, {}, 0, {}}, &kv, 0};
  EXPECT_THROW(model.forward({&part, 1}, *stream, stop.get_token()), Stopped);
  const auto now = device->make_event();
  stream->record(*now);
  EXPECT_TRUE(now->reached());
}

TEST_P(TransformerTest, SaysWhatTheHeadReadForEachRowOfLogits) {
  weights().make_head_one_hot();
  ASSERT_LE(config.embedding_width(), config.vocab);
  Transformer model = make();
  KvCache kv = cache();
  const std::vector<std::int32_t> asked{2, 3, 7};  // rows of a text of nine tokens
  const auto position = counting(0, 9);
  const SequenceRows part{{std::span(text).first(9), position, {}, 0, asked}, &kv, 0};
  const Rows logits = run(model, {&part, 1});
  const ConstTensorView read = model.logit_inputs();
  ASSERT_EQ(read.dim(0), std::ssize(asked));
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto* row =
        reinterpret_cast<const float*>(read.rows(static_cast<std::int64_t>(i), 1).data());
    // Products with ones and zeros are exact; a family may scale and bound them.
    const auto& [factor, cap] = std::pair(config.factors.logit, config.factors.logit_cap);
    for (int k = 0; k < config.embedding_width(); ++k) {
      const double product = static_cast<double>(row[k]) * static_cast<double>(factor);
      const double bounded = cap > 0 ? cap * std::tanh(product / cap) : product;
      const float got = logits[i][static_cast<std::size_t>(k)];
      if (factor == 1 && cap == 0)
        ASSERT_EQ(got, row[k]) << i;
      else
        ASSERT_NEAR(got, bounded, 0x1p-20 * std::abs(bounded)) << i;
    }
  }
  EXPECT_NE(logits[0], logits[1]);
}

TEST_P(TransformerTest, RowsThatAReaderIsHandedHaveTheBitsOfThoseThatAreKept) {
  Transformer whole = make();
  KvCache whole_kv = cache();
  const Rows expected = run_chain(whole, whole_kv, text);
  const std::vector<TokenId> other = Tree(12, 77, config.vocab).tokens;
  KvCache other_kv = cache();
  const Rows others = run_chain(whole, other_kv, other);
  for (const int chunk : {1, 7, 64}) {
    SCOPED_TRACE(chunk);
    Transformer model = make(chunk);
    KvCache a = cache(), b = cache();
    const auto position_a = counting(0, text.size()), position_b = counting(0, other.size());
    const auto read_a = counting(3, text.size() - 3), read_b = counting(0, other.size() - 1);
    const std::vector<std::int32_t> kept{1, 76};
    const SequenceRows parts[] = {{{text, position_a, {}, 0, {}, read_a}, &a, 0},
                                  {{other, position_b, {}, 0, kept, read_b}, &b, 0}};
    Rows read(read_a.size() + read_b.size());
    const auto reader = [&](int first_row, std::int64_t first_token,
                            const ConstTensorView& logits) {
      stream->synchronize();
      for (std::int64_t i = 0; i < logits.dim(0); ++i) {
        std::vector<float>& row = read.at(static_cast<std::size_t>(first_row + i));
        ASSERT_EQ(std::ssize(row), first_token);
        const auto* values = reinterpret_cast<const float*>(logits.rows(i, 1).data());
        row.insert(row.end(), values, values + logits.dim(1));
      }
    };
    const ConstTensorView logits = model.forward(parts, *stream, {}, {}, reader);
    stream->synchronize();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto* row =
          reinterpret_cast<const float*>(logits.rows(static_cast<std::int64_t>(i), 1).data());
      ASSERT_EQ(std::vector(row, row + config.vocab), others[static_cast<std::size_t>(kept[i])]);
    }
    for (std::size_t i = 0; i < read.size(); ++i)
      ASSERT_EQ(read[i], i < read_a.size() ? expected[i + 3] : others[i - read_a.size()]) << i;
    // Without a reader they are as if nobody had asked.
    model.forward(parts, *stream);
    stream->synchronize();
  }
}

TEST_P(TransformerTest, RefusesWhatItWasNotSetUpFor) {
  Transformer model = make();
  KvCache kv = cache();
  const std::vector<TokenId> bad{1, config.vocab};
  EXPECT_THROW(run_chain(model, kv, bad), Error);
  const std::vector<TokenId> longer(kContext + 1, 1);
  EXPECT_THROW(run_chain(model, kv, longer), Error);
}

/// Families with a table of learned positions.
class LearnedPositions : public TransformerTest {};

TEST_P(LearnedPositions, ATextEndsAtTheLastOneAndATreeMayReachBehindIt) {
  config.max_positions = static_cast<int>(text.size());
  Transformer model = make();
  KvCache kv = cache(), plain = cache();
  const std::span<const TokenId> all = text;
  const Rows whole = run_chain(model, plain, all);
  run_chain(model, kv, all.first(all.size() - 2));
  kv.commit(counting(0, all.size() - 2), *stream);
  std::vector<std::uint64_t> bits{1, 3, 7, 15};
  const std::vector<TokenId> tree{all[all.size() - 2], all.back(), 1, 2};
  const auto position = counting(kv.length(), 4), rows = counting(0, 4);
  const SequenceRows part{{tree, position, bits, 0, rows}, &kv, 0};
  const Rows got = run(model, {&part, 1});
  EXPECT_EQ(got[0], whole[all.size() - 2]);
  EXPECT_EQ(got[1], whole.back());
  EXPECT_THROW(run_chain(model, kv, tree), Error) << "a chain of text";
}

INSTANTIATE_TEST_SUITE_P(Families, TransformerTest,
                         ::testing::Values("llama", "qwen2", "qwen3", "gguf", "opt", "opt_after",
                                           "bloom", "unequal", "ministral3", "mixture",
                                           "shared_mixture", "switched_mixture", "gpt_oss",
                                           "gemma2", "olmo3", "cohere2", "delta", "delta_by_turns",
                                           "delta_joined"));
INSTANTIATE_TEST_SUITE_P(Families, LearnedPositions, ::testing::Values("opt", "opt_after"));

}  // namespace
}  // namespace canopy
