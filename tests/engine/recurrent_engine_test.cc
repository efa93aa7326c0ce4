// Texts of a model with recurrent layers, longer than several of its kept states, through the whole
// engine: those of plain decoding, whatever drafts, stops and other texts there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/recurrent_kit.h"
#include "tests/error_of.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {
namespace {

TEST_P(RecurrentEngine, TreesOfEveryKindAndSizeLeadToPlainDecodingsText) {
  const Request request = asked(1);
  const std::vector<TokenId> expected = plain(request);
  ASSERT_EQ(expected.size(), std::size_t{kContext - kPrompt});
  int fewest = kContext;
  for (const auto& [method, nodes] : {std::pair{SpeculationMethod::kChain, 2},
                                      {SpeculationMethod::kChain, 64},
                                      {SpeculationMethod::kSequoia, 9},
                                      {SpeculationMethod::kSequoia, 64},
                                      {SpeculationMethod::kTopK, 33},
                                      {SpeculationMethod::kCalibrated, 33},
                                      {SpeculationMethod::kCalibrated, 64},
                                      {SpeculationMethod::kGsd, 24}}) {
    Engine engine = make(method, nodes);
    const TextReport report = engine.generate(request);
    EXPECT_EQ(report.tokens, expected) << name(method) << " of " << nodes;
    fewest = std::min(fewest, report.steps);
  }
  EXPECT_LT(fewest, kContext - kPrompt) << "no draft was ever right";
}

TEST_P(RecurrentEngine, StreamedWeightsAndCopiedTreesLeadToItToo) {
  const Request request = asked(2);
  const std::vector<TokenId> expected = plain(request);
  EngineOptions streamed = options_for(SpeculationMethod::kSequoia, 24);
  streamed.plan.resident = 0;
  EXPECT_EQ(Engine(files(true), streamed).generate(request).tokens, expected);
  EngineOptions copied = options_for(SpeculationMethod::kTopK, 48);
  copied.plan.draft = draft_source_named("copy:1");
  EXPECT_EQ(Engine(files(false), copied).generate(request).tokens, expected);
}

TEST_P(RecurrentEngine, OtherTextsCancelsAndStopsChangeNothing) {
  std::vector<std::vector<TokenId>> alone;
  for (int i = 0; i < 3; ++i) alone.push_back(plain(asked(i, kPrompt - 30 * i, 100)));
  Engine engine = make(SpeculationMethod::kSequoia, 24, 4);
  Session session = engine.open_session();
  std::vector<Received> received(4);
  for (int i = 0; i < 3; ++i)
    session.admit(asked(i, kPrompt - 30 * i, 100), received[static_cast<std::size_t>(i)].events());
  const Ticket cancelled = session.admit(asked(9), received[3].events());
  int sweep = 0;
  while (true) {
    ++sweep;
    if (sweep == 5) session.cancel(cancelled);
    if (sweep % 3 == 0) {  // a sweep that somebody stops, and that is then run again
      std::stop_source stop;
      int units = 0;
      try {
        if (!session.step(stop.get_token(), [&](const Unit&) {
              if (++units == sweep % 7 + 2) stop.request_stop();
            }))
          break;
      } catch (const Stopped&) {
      }
      continue;
    }
    if (!session.step()) break;
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(received[i].tokens, alone[i]) << i;
}

TEST_P(RecurrentEngine, TheLedgerHasTheStatesOfAllTexts) {
  const auto line = [](const Engine& engine, const std::string& front) {
    std::uint64_t bytes = 0;
    for (const LedgerEntry& entry : engine.plan().ledger)
      if (entry.what.starts_with(front + " states of recurrent layers")) bytes += entry.bytes;
    return bytes;
  };
  const Engine one = make(SpeculationMethod::kSequoia, 24),
               two = make(SpeculationMethod::kSequoia, 24, 2);
  EXPECT_GT(line(one, "target"), 0U);
  EXPECT_GT(line(one, "draft"), 0U);
  EXPECT_GE(line(two, "target"), 2 * line(one, "target"));
  const ModelConfig config = Checkpoint::open(target()).config();
  const KvRoom room = one.plan().kv_room();
  EXPECT_EQ(line(one, "target"), RecurrentState::bytes_needed(config, room.slots, room.nodes));
}

TEST_P(RecurrentEngine, ADeviceWithMemoryOfItsOwnHoldsWhatThePlanSaysAndLeadsToOneText) {
  std::vector<std::string> kinds{"emulated"};
  if (!find_gpus().all.empty()) kinds.push_back("cuda");
  for (const std::string& kind : kinds) {
    std::map<SpeculationMethod, std::vector<TokenId>> texts;
    for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia})
      for (const bool resident : {true, false}) {
        SCOPED_TRACE(kind + ", " + name(method) + (resident ? ", resident" : ", streamed"));
        EngineOptions options = options_for(method, method == SpeculationMethod::kNone ? 0 : 24);
        HardwareProfile profile = made_up_cost()->profile();
        profile.upload_bytes_per_second = 2e10;
        options.plan.cost = std::make_shared<const CostModel>(std::move(profile));
        if (!resident) options.plan.resident = 0;
        options.plan.reuses_texts = true;
        options.plan.kv = DType::kF32;
        EmulatedCuda* device = nullptr;
        options.make_device = [&]() -> std::unique_ptr<Device> {
          if (kind == "cuda")
            return make_device({.kind = "cuda", .gpu_memory = std::size_t{5} << 30});
          auto made =
              std::make_unique<EmulatedCuda>(EmulatedCuda::Options{.memory = std::size_t{1} << 30});
          device = made.get();
          return made;
        };
        Engine engine(files(method != SpeculationMethod::kNone), options);
        const std::vector<TokenId> text = engine.generate(asked(5, kPrompt, 100)).tokens;
        const TextReport again = engine.generate(asked(5, kPrompt, 100));
        if (kind != "cuda") {  // which rounds by the number of rows
          EXPECT_EQ(again.tokens, text);
        }
        EXPECT_EQ(again.cached_tokens, kKvBlock);
        // A GPU rounds products of other numbers of rows otherwise.
        std::vector<TokenId>& expected = texts[kind == "cuda" ? method : SpeculationMethod::kAuto];
        if (expected.empty()) expected = text;
        EXPECT_EQ(text, expected);
        const Plan& plan = engine.plan();
        ASSERT_TRUE(plan.device);
        EXPECT_TRUE(std::ranges::any_of(plan.device->ledger, [](const LedgerEntry& entry) {
          return entry.what.starts_with("target states of recurrent layers") && entry.bytes > 0;
        }));
        if (device) {
          EXPECT_LE(device->card().most_held(), plan.device->total());
        }
      }
  }
}

TEST_P(RecurrentEngine, WhatItCannotIsRefusedByName) {
  EngineOptions deep = options_for(SpeculationMethod::kChain, 66);
  EXPECT_NE(error_of([&] { Engine(files(true), deep); }).find("a tree of more than 65 levels"),
            std::string::npos);
  Engine engine = make(SpeculationMethod::kNone, 0);
  const TempDir dir;
  EXPECT_NE(error_of([&] { engine.save_prompts(dir / "prompts", "test"); }).find("no snapshots"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, RecurrentEngine,
                         ::testing::Values("qwen3_5", "qwen3_5.gguf", "qwen3_5_moe", "qwen3_next"),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace canopy
