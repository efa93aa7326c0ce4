// An engine whose weights and texts share a pool of memory, and random pressure on it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/convert/enlarge/random_checkpoint.h"
#include "src/machine/process_memory.h"
#include "tests/engine/session_kit.h"
#include "tests/tiny_config.h"

namespace canopy {

class MemoryPoolTest : public TinyEngine {
 protected:
  static constexpr int kContext = 512, kTexts = 2;

  static ModelConfig config(int layers) {
    ModelConfig c = tiny_config();  // whose heads of 16 make blocks of whole pages
    c.layers = layers;
    c.dim = 128;
    c.hidden_dim = 512;
    c.heads = 8;
    c.kv_heads = 4;
    return c;
  }
  /// A model of small random weights, each layer with bytes of its own.
  static Checkpoint write(const ModelConfig& shape, const std::filesystem::path& file) {
    Checkpoint model = lay_out_random_checkpoint({shape}, LayerBytes::kOwn, file);
    if (std::filesystem::exists(file)) return model;
    std::uint64_t end = 0;
    for (const TensorEntry& tensor : model.tensors())
      end = std::max<std::uint64_t>(end, tensor.offset + tensor.bytes);
    std::mt19937 random(5);
    std::vector<std::uint16_t> weights(end / 2 + 1);
    for (std::uint16_t& weight : weights)  // in BF16, from 2^-7 to 2^-4 of either sign
      weight = static_cast<std::uint16_t>(((random() & 1) << 15) | (0x3c00 + random() % 0x180));
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(weights.data()), static_cast<std::streamsize>(end));
    return model;
  }
  /// A shape as wide, with experts in place of each MLP.
  static ModelConfig mixture() {
    ModelConfig c = config(12);
    c.layer_kinds = {{.experts = true}};
    c.experts = {.count = 16, .active = 2, .hidden_dim = 96};
    return c;
  }
  static ModelFiles files(bool with_draft, bool experts = false, int layers = 32,
                          int draft_layers = 2) {
    const auto dense = [](int count) {
      return write(config(count), dir_->path() / ("pool-" + std::to_string(count)));
    };
    ModelFiles files{
        experts ? write(mixture(), dir_->path() / "pool-experts") : dense(layers), {}, nullptr};
    if (with_draft) files.draft = dense(draft_layers);
    files.tokenizer =
        std::make_unique<NumberTokenizer>(files.target.config().vocab, std::vector<TokenId>{});
    return files;
  }
  static EngineOptions asked(SpeculationMethod method, std::uint64_t memory) {
    EngineOptions o;
    o.device.threads = 2;
    o.plan.method = method;
    o.plan.cost = made_up_cost();
    o.plan.tree_size = method == SpeculationMethod::kNone ? 0 : 12;
    o.plan.tree_levels = method == SpeculationMethod::kNone ? 0 : 4;
    o.plan.context = kContext;
    o.plan.max_prompt = kContext - 1;
    o.plan.max_sequences = o.plan.least_sequences = kTexts;
    o.plan.texts = 1;
    o.plan.priced_text = 2 * kKvBlock;  // of which short texts leave a block, more than any unit
    o.plan.memory = memory;
    return o;
  }
  /// Makes an engine with memory for about a quarter of the target's weights, half of a mixture's,
  /// all KV blocks being in use.
  static Engine make(SpeculationMethod method, std::optional<std::uint64_t> resident = std::nullopt,
                     bool experts = false) {
    const bool drafts = method != SpeculationMethod::kNone;
    std::uint64_t besides = 0, whole = 0;
    {
      const Engine all(files(drafts, experts), asked(method, std::uint64_t{1} << 32));
      for (const LedgerEntry& entry : all.plan().ledger)
        (entry.what.starts_with("target weights") ? whole : besides) += entry.bytes;
      besides -= all.plan().ledger.front().bytes;  // the process as it stood: it grows
    }
    EngineOptions options = asked(method, resident_memory() + besides + whole / (experts ? 2 : 4));
    options.plan.resident = resident;
    return Engine(files(drafts, experts), options);
  }
  static std::vector<TokenId> text(unsigned seed, int tokens) {
    std::mt19937 random(seed);
    std::vector<TokenId> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<TokenId>(random() % 61));
    return ids;
  }
  static Request greedy(std::vector<TokenId> prompt, int tokens) {
    Request r;
    r.prompt = std::move(prompt);
    r.max_new_tokens = tokens;
    r.ignore_end = true;
    return r;
  }
  static std::uint64_t largest_unit(const Engine& engine) {
    std::uint64_t largest = 0;
    for (const SweepUnit& unit : engine.plan().weights.units)
      largest = std::max(largest, unit.own_bytes);
    return largest;
  }
  static void expect_in_budget(const Engine& engine) {
    const PoolReport pool = engine.pool();
    EXPECT_LE(pool.weights + pool.texts, pool.bytes);
  }
  /// Lets texts of `tokens` each, `fresh` of them new, fill all places and end: weights give way,
  /// no more than planned but for a unit, and short texts bring them back. Returns the bytes of
  /// weights that rested when they were fewest.
  static std::uint64_t run_full_house(Engine& engine, int tokens, int fresh) {
    const std::uint64_t at_first = engine.pool().resident;
    Session session = engine.open_session();
    std::vector<Received> received(kTexts);
    for (unsigned i = 0; i < kTexts; ++i)
      session.admit(greedy(text(i, tokens - fresh), fresh), received[i].events());
    std::uint64_t least = at_first;
    while (session.step()) {
      expect_in_budget(engine);
      least = std::min(least, engine.pool().resident);
    }
    for (const Received& one : received) {
      EXPECT_EQ(one.error, "");
      EXPECT_EQ(one.finish_reason, "length");
      EXPECT_EQ(one.tokens.size(), static_cast<std::size_t>(fresh));
    }
    EXPECT_LT(least, at_first) << "some weights gave way";
    EXPECT_GE(least + largest_unit(engine), engine.plan().full_resident_bytes)
        << "and no more than planned, but for the last that went";
    // Short texts let remembered ones grow old: what they held is weights' again. One unit travels
    // in any case; it may be another than at first, and larger.
    const auto is_back = [&] { return engine.pool().resident + largest_unit(engine) >= at_first; };
    for (unsigned i = 0; i < 400 && !is_back(); ++i) {
      session.admit(greedy(text(100 + i, 10), 20));
      while (session.step()) expect_in_budget(engine);
    }
    EXPECT_TRUE(is_back()) << engine.pool().resident << " of " << at_first;
    EXPECT_GT(engine.pool().returned, 0u);
    return least;
  }
  static void run_texts(bool experts, std::uint64_t wanted) {
    Engine resident(files(false, experts), asked(SpeculationMethod::kNone, std::uint64_t{1} << 32));
    run_texts(resident, kContext - 40, wanted,
              [&](SpeculationMethod method) { return make(method, std::nullopt, experts); });
  }
  /// Random texts with prompts of up to `longest` tokens come, grow, end and are cancelled, until
  /// units have gone and come back `wanted` times in all, in engines with a pool. `resident` has
  /// all weights at rest.
  static void run_texts(Engine& resident, int longest, std::uint64_t wanted,
                        const std::function<Engine(SpeculationMethod)>& make_engine) {
    const auto length = [&](unsigned seed) {
      return 10 + static_cast<int>(seed * 37) % (longest - 42);
    };
    ASSERT_TRUE(resident.plan().resident);
    std::map<unsigned, std::vector<TokenId>> expected;
    for (unsigned seed = 0; seed < 12; ++seed)
      expected[seed] = resident.generate(greedy(text(seed, length(seed)), 30)).tokens;
    for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia}) {
      SCOPED_TRACE(name(method));
      Engine engine = make_engine(method);
      engine.generate(greedy(text(99, 10), 4));  // a device's weights have come by now
      const PoolReport at_first = engine.pool();
      Session session = engine.open_session();
      std::mt19937 random(7);
      struct Running {
        unsigned seed = 0;
        Ticket ticket = 0;
        Received given;
      };
      std::vector<std::unique_ptr<Running>> texts;
      const auto evicted = [&] { return engine.pool().evicted - at_first.evicted; };
      const auto returned = [&] { return engine.pool().returned - at_first.returned; };
      const std::uint64_t most_sweeps = 100 + 30 * wanted;
      const auto enough = [&] {
        return evicted() + returned() >= wanted && 3 * std::min(evicted(), returned()) > wanted;
      };
      for (std::uint64_t sweep = 0; sweep < most_sweeps && !enough(); ++sweep) {
        if (random() % 2 == 0 && session.running().size() < kTexts) {
          Running& one = *texts.emplace_back(std::make_unique<Running>());
          one.seed = static_cast<unsigned>(random() % 12);
          one.ticket =
              session.admit(greedy(text(one.seed, length(one.seed)), 30), one.given.events());
        }
        if (random() % 12 == 0 && !texts.empty())
          session.cancel(texts[random() % texts.size()]->ticket);
        session.step();
        expect_in_budget(engine);
      }
      while (session.step()) expect_in_budget(engine);
      std::size_t whole = 0;
      for (const auto& one : texts) {
        EXPECT_EQ(one->given.error, "");
        if (one->given.ends == 0) continue;  // cancelled
        EXPECT_EQ(one->given.tokens, expected[one->seed]) << one->seed;
        ++whole;
      }
      EXPECT_GT(4 * whole, texts.size());
      EXPECT_GE(evicted() + returned(), wanted);
      EXPECT_GT(3 * evicted(), wanted);
      EXPECT_GT(3 * returned(), wanted);
    }
  }
};

}  // namespace canopy
