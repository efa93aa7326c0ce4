#include "src/speculation/verifier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "src/base/error.h"
#include "tests/kernels/emulated_cuda.h"
#include "tests/speculation/chi_square.h"
#include "tests/speculation/toy_constraint.h"

namespace canopy::testing {
namespace {

constexpr int kVocab = 7;

/// A CPU device with some rows of logits on it.
class VerifierTest : public ::testing::Test {
 protected:
  VerifierTest() {
    Workload largest;
    largest.rows = 64;
    largest.columns = largest.vocab = kVocab;
    device->ops().reserve(largest);
  }
  /// Rows of f32 on the device; valid until the test ends.
  TensorView upload(const std::vector<float>& values, std::int64_t columns) {
    buffers.push_back(device->allocate(values.size() * sizeof(float)));
    device->upload(*stream, buffers.back().data(), std::as_bytes(std::span(values)));
    stream->synchronize();
    return {buffers.back().data(),
            DType::kF32,
            {static_cast<std::int64_t>(values.size()) / columns, columns}};
  }
  std::vector<float> download(ConstTensorView view) {
    std::vector<float> values(view.bytes() / sizeof(float));
    device->download(*stream, std::as_writable_bytes(std::span(values)), view.data());
    stream->synchronize();
    return values;
  }
  /// Children of a node as the policy proposes them.
  std::vector<TokenId> propose(Drawing drawing, ConstTensorView q, int count, const StepRng& rng) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(count));
    const TensorView to(proposals.data(), DType::kI32, {1, count});
    if (drawing == Drawing::kTopK)
      device->ops().top_tokens(*stream, q, count, to);
    else
      device->ops().draw_tokens(*stream, q, count,
                                drawing == Drawing::kSequoia ? Replacement::kNo : Replacement::kYes,
                                rng, 0, to);
    device->download(*stream, std::as_writable_bytes(std::span(tokens)), proposals.data());
    stream->synchronize();
    return tokens;
  }

  std::unique_ptr<Device> device = make_device({"cpu", 0, 1, {}});
  std::unique_ptr<Stream> stream = device->make_stream("test");
  Buffer proposals = device->allocate(kVocab * sizeof(TokenId));
  std::vector<Buffer> buffers;
};

std::vector<float> random_logits(int rows, int columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<float> logits(static_cast<std::size_t>(rows * columns));
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TEST_F(VerifierTest, FollowsTheBestTokensAtTemperatureZeroTheLowerAmongEqualOnes) {
  Verifier verifier(*device, kVocab);
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Draft draft = root_only(0);
    std::mt19937 random(seed);
    for (NodeId node = 0; draft.tree.size() < 40; ++node) {
      std::vector<TokenId> tokens{0, 1, 2, 3, 4, 5, 6};
      std::shuffle(tokens.begin(), tokens.end(), random);
      tokens.resize(1 + random() % 5);
      draft.tree.add_children(node, tokens);
    }
    std::vector<float> logits = random_logits(draft.tree.size(), kVocab, seed);
    for (float& logit : logits) logit = std::round(logit);  // many ties
    const Verdict verdict =
        verifier.verify(draft, upload(logits, kVocab), {}, {seed, 0, 0}, *stream);

    NodeId node = 0;
    for (std::size_t i = 0;; ++i) {
      ASSERT_LT(i, verdict.path.size());
      ASSERT_EQ(verdict.path[i], node);
      const auto row = logits.begin() + node * kVocab;
      const auto best = static_cast<TokenId>(std::max_element(row, row + kVocab) - row);
      NodeId next = 0;
      const TokenTree::Range children = draft.tree.children(node);
      for (NodeId child = children.first; child < children.first + children.count; ++child)
        if (draft.tree.token(child) == best) next = child;
      if (next == 0) {
        EXPECT_EQ(i + 1, verdict.path.size());
        EXPECT_EQ(verdict.next, best);
        break;
      }
      node = next;
    }
  }
}

/// Runs on the emulated GPU, which counts what it is asked, and on a real one where there is one.
class VerifierOnAGpu : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "cuda") {
      if (find_gpus().all.empty()) GTEST_SKIP() << find_gpus().why_none;
      device = make_device({.kind = "cuda"});
    } else {
      auto made = std::make_unique<EmulatedCuda>();
      card = &made->card();
      device = std::move(made);
    }
    stream = device->make_stream("test");
  }
  /// Rows of f32 on the device.
  Buffer upload(const std::vector<float>& values) {
    Buffer buffer = device->allocate(values.size() * sizeof(float));
    device->upload(*stream, buffer.data(), std::as_bytes(std::span(values)));
    stream->synchronize();
    return buffer;
  }
  std::int64_t calls() const { return card == nullptr ? 0 : card->calls(); }

  EmulatedCard* card = nullptr;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

TEST_P(VerifierOnAGpu, AsksForAllBestTokensOnceHoweverLongThePath) {
  constexpr int kTokens = 48, kNodes = 100;  // more nodes than the buffer has answers
  Verifier verifier(*device, kTokens);
  std::vector<std::int64_t> asked;
  for (const int accepted : {0, 1, 70, kNodes - 1}) {
    SCOPED_TRACE(accepted);
    Draft draft = root_only(0);  // a chain, of which `accepted` nodes are the best tokens
    std::vector<float> logits = random_logits(kNodes, kTokens, 5);
    for (NodeId node = 0; node + 1 < kNodes; ++node) {
      const auto row = logits.begin() + node * kTokens;
      const auto best = static_cast<TokenId>(std::max_element(row, row + kTokens) - row);
      draft.tree.add_children(node,
                              std::vector<TokenId>{node < accepted ? best : (best + 1) % kTokens});
    }
    // Rows that the walk does not visit may hold anything.
    if (accepted + 1 < kNodes) logits.back() = std::numeric_limits<float>::quiet_NaN();
    const Buffer rows = upload(logits);
    const std::int64_t before = calls();
    const TensorView view(rows.data(), DType::kF32, {kNodes, kTokens});
    const Verdict verdict = verifier.verify(draft, view, {}, {1, 0, 0}, *stream);
    asked.push_back(calls() - before);
    EXPECT_EQ(verdict.path.size(), static_cast<std::size_t>(accepted) + 1);
    if (accepted == 70) {
      logits[70 * kTokens] = std::numeric_limits<float>::infinity();
      device->upload(*stream, rows.data(), std::as_bytes(std::span(logits)));
      EXPECT_THROW(verifier.verify(draft, view, {}, {1, 0, 0}, *stream), NotFinite);
    }
  }
  EXPECT_EQ(asked, std::vector<std::int64_t>(asked.size(), asked.front()));
}

TEST_P(VerifierOnAGpu, WaitsOnceForEachVisitedNodeWhoseRowsOfTargetAndDraftItReads) {
  constexpr int kTokens = 40, kNodes = 9;
  Verifier verifier(*device, kTokens);
  const std::vector<float> logits = random_logits(kNodes, kTokens, 3);
  const Buffer target = upload(logits), of_draft = upload(logits);
  const TensorView view(target.data(), DType::kF32, {kNodes, kTokens});
  const TensorView q(of_draft.data(), DType::kF32, {kNodes - 1, kTokens});
  const Sampling sampling{1.0f};  // p is q, so that all children are accepted
  device->ops().probabilities(*stream, view.rows(0, kNodes - 1), sampling, q);
  Draft draft{TokenTree(0), Drawing::kSequoia, {}, q};
  for (NodeId node = 0; node < kNodes; ++node) {
    draft.row.push_back(node + 1 < kNodes ? node : -1);
    if (node + 1 < kNodes) draft.tree.add_children(node, std::vector<TokenId>{node});
  }
  const std::int64_t before = card == nullptr ? 0 : card->waits();
  const Verdict verdict = verifier.verify(draft, view, sampling, {1, 0, 0}, *stream);
  EXPECT_EQ(verdict.path.size(), std::size_t{kNodes});
  if (card != nullptr) {
    EXPECT_EQ(card->waits() - before, kNodes);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, VerifierOnAGpu, ::testing::Values("emulated", "cuda"),
                         [](const auto& param) { return param.param; });

/// Two tokens of text, by steps of a tree with two children that have one child each, over models
/// whose logits depend on the last token alone.
class SampledText : public VerifierTest,
                    public ::testing::WithParamInterface<std::tuple<Drawing, Sampling, int>> {};

TEST_P(SampledText, HasTheTargetsDistribution) {
  const auto [drawing, sampling, draft_vocab] = GetParam();
  constexpr int kSteps = 8000;
  const std::vector<float> target_logits = random_logits(kVocab, kVocab, 1);
  const TensorView target = upload(target_logits, kVocab), p = upload(target_logits, kVocab);
  const TensorView draft_logits = upload(random_logits(kVocab, draft_vocab, 2), draft_vocab);
  const TensorView q_of_token = upload(random_logits(kVocab, draft_vocab, 2), draft_vocab);
  device->ops().probabilities(*stream, target, sampling, p);
  device->ops().probabilities(*stream, draft_logits, sampling, q_of_token);
  const std::vector<float> p_rows = download(p);
  const auto p_row = [&](TokenId token) { return p_rows.data() + token * kVocab; };
  const std::vector<float> q_rows = download(q_of_token);

  const TensorView logits = upload(std::vector<float>(5 * kVocab), kVocab);
  const TensorView q =
      upload(std::vector<float>(static_cast<std::size_t>(3 * draft_vocab)), draft_vocab);
  Verifier verifier(*device, kVocab);
  std::mt19937 alone(3);
  std::map<std::pair<TokenId, TokenId>, int> counts;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const StepRng rng{13, 0, step};
    Draft draft{TokenTree(0), drawing, {0, 1, 2, -1, -1}, q};
    for (const NodeId node : {0, 1, 2}) {
      const TensorView row = q_of_token.rows(draft.tree.token(node), 1);
      StepRng of_node = rng;
      of_node.sequence = static_cast<std::uint32_t>(node);
      draft.tree.add_children(node, propose(drawing, row, node == 0 ? 2 : 1, of_node));
      std::memcpy(q.rows(node, 1).data(), row.data(), row.bytes());  // host memory on this device
    }
    for (NodeId node = 0; node < 5; ++node)
      std::memcpy(logits.rows(node, 1).data(), target.rows(draft.tree.token(node), 1).data(),
                  kVocab * sizeof(float));
    const Verdict verdict = verifier.verify(draft, logits, sampling, rng, *stream);
    const TokenId first =
        verdict.path.size() > 1 ? draft.tree.token(verdict.path[1]) : verdict.next;
    TokenId second = verdict.path.size() > 2 ? draft.tree.token(verdict.path[2]) : verdict.next;
    if (verdict.path.size() == 1)
      second = std::discrete_distribution<TokenId>(p_row(first), p_row(first) + kVocab)(alone);
    ++counts[{first, second}];
  }
  std::map<std::pair<TokenId, TokenId>, double> expected;
  for (TokenId first = 0; first < kVocab; ++first)
    for (TokenId second = 0; second < kVocab; ++second)
      expected[{first, second}] =
          static_cast<double>(p_row(0)[first]) * static_cast<double>(p_row(first)[second]);
  EXPECT_TRUE(fits(counts, expected));
  // The test can fail: the draft's text does not fit.
  expected.clear();
  for (TokenId first = 0; first < kVocab; ++first)
    for (TokenId second = 0; second < kVocab; ++second)
      expected[{first, second}] =
          first < draft_vocab && second < draft_vocab
              ? static_cast<double>(q_rows[static_cast<std::size_t>(first)]) *
                    static_cast<double>(
                        q_rows[static_cast<std::size_t>(first * draft_vocab + second)])
              : 0.0;
  EXPECT_FALSE(fits(counts, expected));
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, SampledText,
    ::testing::Combine(::testing::Values(Drawing::kTopK, Drawing::kNaive, Drawing::kSequoia,
                                         Drawing::kSpecInfer, Drawing::kSpecTr),
                       ::testing::Values(Sampling{1.0f, 0, 1.0f}, Sampling{0.6f, 0, 1.0f},
                                         Sampling{1.0f, 0, 0.9f}, Sampling{0.6f, 4, 0.9f}),
                       ::testing::Values(kVocab, 4)));

TEST_F(VerifierTest, AnswersTheSameForTheSameKeyAndDiffersFromStepToStep) {
  Verifier verifier(*device, kVocab);
  const TensorView logits = upload(std::vector<float>(kVocab, 0.0f), kVocab);
  std::map<TokenId, int> seen;
  for (std::uint64_t step = 0; step < 100; ++step) {
    const StepRng rng{5, 0, step};
    const Sampling sampling{1.0f, 0, 1.0f};
    const TokenId next = verifier.verify(root_only(0), logits, sampling, rng, *stream).next;
    EXPECT_EQ(verifier.verify(root_only(0), logits, sampling, rng, *stream).next, next);
    ++seen[next];
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kVocab));
}

TEST_F(VerifierTest, SamplesFromRowsThatAreEditedAlongTheWayItWalks) {
  // All rows like the same tokens best; penalties for what stands on the way turn to others.
  Verifier verifier(*device, kVocab, 16);
  std::vector<float> row{5, 4, 3, 2, 1, 0, -1}, rows;
  Draft draft = root_only(6);
  draft.tree.add_children(0, std::vector<TokenId>{1, 0});
  draft.tree.add_children(2, std::vector<TokenId>{0, 1});
  draft.tree.add_children(4, std::vector<TokenId>{3, 2});
  for (NodeId node = 0; node < draft.tree.size(); ++node)
    rows.insert(rows.end(), row.begin(), row.end());
  const TensorView logits = upload(rows, kVocab);
  EXPECT_EQ(verifier.verify(draft, logits, {}, {}, *stream).path, (std::vector<NodeId>{0, 2, 3}));
  LogitEditing editing;
  editing.presence = 10;
  LogitEditor editor(editing, std::vector<TokenId>{6}, kVocab);
  for (const bool by_sample : {false, true}) {
    const Verdict verdict =
        by_sample ? verifier.verify_by_sample(draft.tree, logits, {}, {}, *stream, &editor)
                  : verifier.verify(draft, logits, {}, {}, *stream, &editor);
    EXPECT_EQ(verdict.path, (std::vector<NodeId>{0, 2, 4, 6}));
    EXPECT_EQ(verdict.next, 3);
  }
  EXPECT_EQ(download(logits), rows);  // reports are of the model's own
  Verifier without_room(*device, kVocab);
  EXPECT_THROW(without_room.verify(draft, logits, {}, {}, *stream, &editor), Error);
}

TEST_F(VerifierTest, SaysWhereNoTokenMayFollow) {
  Verifier verifier(*device, kVocab, 16);
  Draft draft = root_only(6);
  draft.tree.add_children(0, std::vector<TokenId>{2});
  const TensorView logits = upload(std::vector<float>(2 * kVocab, 0.0f), kVocab);
  LogitEditing editing;
  editing.constraint = std::make_shared<ToyConstraint>(
      kVocab,
      [](std::span<const TokenId> text, TokenId next) { return text.empty() && next == 2; });
  LogitEditor editor(editing, std::vector<TokenId>{6}, kVocab);
  for (const Sampling& sampling : {Sampling{}, Sampling{1.0f}})
    EXPECT_THROW(verifier.verify(draft, logits, sampling, {}, *stream, &editor), NothingAllowed);
}

TEST_F(VerifierTest, RefusesLogitsAndDraftsOfTheWrongShape) {
  Verifier verifier(*device, kVocab);
  const Sampling sampling{1.0f, 0, 1.0f};
  const TensorView two = upload(std::vector<float>(2 * kVocab), kVocab);
  EXPECT_THROW(verifier.verify(root_only(0), two, sampling, {}, *stream), Error);
  const TensorView narrow = upload(std::vector<float>(kVocab - 1), kVocab - 1);
  EXPECT_THROW(verifier.verify(root_only(0), narrow, sampling, {}, *stream), Error);
  Draft draft = root_only(0);
  draft.drawing = Drawing::kSequoia;  // without a q
  EXPECT_THROW(verifier.verify(draft, two.rows(0, 1), sampling, {}, *stream), Error);
}

}  // namespace
}  // namespace canopy::testing
