#pragma once
// Texts of models with recurrent layers, on the CPU and on the emulated GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "src/model/kv_caches.h"
#include "src/model/transformer.h"
#include "tests/kernels/emulated_cuda.h"
#include "tests/model/random_weights.h"

namespace canopy {

using LogitRows = std::vector<std::vector<float>>;

inline std::size_t index_of(int i) { return static_cast<std::size_t>(i); }

inline std::vector<std::int32_t> up_from(int first, std::size_t count) {
  std::vector<std::int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

/// A tree whose nodes (i + 1 of them in all) have these parents.
struct GivenTree {
  std::vector<TokenId> tokens;
  std::vector<int> parent, depth;
  std::vector<std::uint64_t> bits() const {
    const std::size_t words = (tokens.size() + 63) / 64;
    std::vector<std::uint64_t> all(tokens.size() * words);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      for (int j = static_cast<int>(i); j >= 0; j = parent[index_of(j)])
        all[i * words + index_of(j) / 64] |= std::uint64_t{1} << (j % 64);
    return all;
  }
  void add(TokenId token, int below) {
    tokens.push_back(token);
    parent.push_back(below);
    depth.push_back(below < 0 ? 0 : depth[index_of(below)] + 1);
  }
};

/// Runs on the CPU, and on the emulated GPU, whose products of a row do not depend on the others
/// either. There attention sums by slots, so that bits are those of plain decoding where slots are.
class RecurrentTexts : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int kText = 420, kNodes = 65, kContext = kText + kNodes;
  Transformer make(int chunk = 64) {
    return Transformer(*device_, config_, weights_,
                       {kContext, kNodes, kContext, kContext, chunk, 0});
  }
  KvCache cache() { return KvCache(*device_, config_, kContext, {}, kNodes); }
  LogitRows run(Transformer &model, std::span<const SequenceRows> parts) {
    const ConstTensorView logits = model.forward(parts, *stream_);
    LogitRows rows(static_cast<std::size_t>(logits.dim(0)));
    for (std::int64_t i = 0; i < logits.dim(0); ++i) {
      std::vector<float> &row = rows[static_cast<std::size_t>(i)];
      row.resize(static_cast<std::size_t>(config_.vocab));
      device_->download(*stream_, std::as_writable_bytes(std::span(row)), logits.rows(i, 1).data());
    }
    stream_->synchronize();
    return rows;
  }
  LogitRows run_chain(Transformer &model, KvCache &kv, std::span<const TokenId> tokens) {
    const auto position = up_from(kv.length(), tokens.size()), rows = up_from(0, tokens.size());
    const SequenceRows part{{tokens, position, {}, 0, rows}, &kv, 0};
    return run(model, {&part, 1});
  }
  /// Logits of each position, a token at a time.
  LogitRows decoded(std::span<const TokenId> text) {
    Transformer model = make();
    KvCache kv = cache();
    LogitRows all;
    for (std::size_t i = 0; i < text.size(); ++i) {
      all.push_back(run_chain(model, kv, text.subspan(i, 1)).front());
      kv.commit(up_from(0, 1), *stream_);
    }
    return all;
  }
  /// A tree of `nodes` nodes that has as much of `text` from `first` on as
  /// `right` says, first.
  GivenTree tree_on(std::span<const TokenId> text, int first, int nodes, int right) {
    GivenTree tree;
    for (int i = 0; i < right; ++i) tree.add(text[index_of(first + i)], i - 1);
    while (std::ssize(tree.tokens) < nodes) {
      const auto below = static_cast<int>(random_() % tree.tokens.size());
      tree.add(static_cast<TokenId>(random_() % static_cast<unsigned>(config_.vocab)), below);
    }
    return tree;
  }
  /// Expects the logits of a node whose path is not in the slots of plain decoding.
  void expect_same(const std::vector<float> &got, const std::vector<float> &expected) const {
    if (device_->shares_host_memory()) {
      EXPECT_EQ(got, expected);
      return;
    }
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4f) << i;
  }
  SequenceRows part_of(const GivenTree &tree, KvCache &kv, int chain = 0) {
    positions_.clear();
    for (const int depth : tree.depth) positions_.push_back(kv.length() + chain + depth);
    bits_ = tree.bits();
    logit_rows_ = up_from(0, tree.tokens.size());
    return {{tree.tokens, positions_, bits_, 0, logit_rows_}, &kv, chain};
  }
  std::vector<TokenId> text_of(int tokens) {
    std::vector<TokenId> text;
    for (int i = 0; i < tokens; ++i)
      text.push_back(static_cast<TokenId>(random_() % static_cast<unsigned>(config_.vocab)));
    return text;
  }

  ModelConfig config_ = recurrent_config();
  std::unique_ptr<Device> device_ =
      GetParam() == "emulated" ? std::make_unique<EmulatedCuda>() : make_device({.threads = 2});
  std::unique_ptr<Stream> stream_ = device_->make_stream("compute");
  RandomWeights weights_{*device_, config_, 5};
  std::mt19937 random_{3};
  std::vector<std::int32_t> positions_, logit_rows_;
  std::vector<std::uint64_t> bits_;
};

}  // namespace canopy
