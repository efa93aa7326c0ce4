// A model whose layers differ in heads, KV heads, head size, width and kind, through the whole
// engine: it is planned, streams, keeps its budget, and a tree's text is plain decoding's.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/convert/enlarge/random_checkpoint.h"
#include "src/model/kv_pool.h"
#include "tests/engine/tiny_engine.h"
#include "tests/tiny_config.h"

namespace canopy {
namespace {

class UnequalLayers : public TinyEngine {
 protected:
  static constexpr int kPrompt = 24, kContext = 64;

  static Engine make(SpeculationMethod method, int nodes, std::optional<std::uint64_t> resident) {
    const Checkpoint model =
        write_random_checkpoint({unequal_config()}, LayerBytes::kShared, dir_->path() / "unequal");
    ModelFiles files{model, std::nullopt, nullptr};
    if (method != SpeculationMethod::kNone) files.draft = model;
    return open(std::move(files), method, nodes, resident, kPrompt, kContext);
  }
  static TextReport text(Engine& engine) {
    Request request;
    for (int i = 0; i < kPrompt; ++i) request.prompt.push_back(i * i % 59);
    request.max_new_tokens = kContext - kPrompt;
    request.ignore_end = true;
    return engine.generate(request);
  }
};

TEST_F(UnequalLayers, ATreesTextIsPlainDecodingsResidentAndStreamed) {
  Engine plain = make(SpeculationMethod::kNone, 0, {});
  const std::vector<TokenId> expected = text(plain).tokens;
  ASSERT_EQ(expected.size(), std::size_t{kContext - kPrompt});
  for (const auto resident : {std::optional<std::uint64_t>(), std::optional<std::uint64_t>(0),
                              std::optional<std::uint64_t>(60'000)})
    for (const auto& [method, nodes] : {std::pair{SpeculationMethod::kNone, 0},
                                        {SpeculationMethod::kChain, 6},
                                        {SpeculationMethod::kSequoia, 24}}) {
      Engine engine = make(method, nodes, resident);
      EXPECT_EQ(text(engine).tokens, expected) << nodes << " nodes";
      EXPECT_EQ(engine.plan().sweep_bytes > 0, resident.has_value());
    }
}

TEST_F(UnequalLayers, APlanChargesWhatEachLayerHas) {
  const Engine engine = make(SpeculationMethod::kNone, 0, 0);
  const Plan& plan = engine.plan();
  const std::size_t keys_and_values =
      KvPool::bytes_needed(unequal_config(), plan.kv_blocks, plan.kv);
  ASSERT_GT(keys_and_values, 0u);
  const auto line = std::find_if(plan.ledger.begin(), plan.ledger.end(), [](const LedgerEntry& e) {
    return e.what.starts_with("target KV cache");
  });
  ASSERT_NE(line, plan.ledger.end());
  EXPECT_GE(line->bytes, keys_and_values);
  EXPECT_LT(line->bytes, keys_and_values + 64 * 1024) << "tables and pages come on top";
}

}  // namespace
}  // namespace canopy
