#include "src/engine/prompt_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "src/convert/enlarge/inflate.h"
#include "src/convert/pack/pack.h"
#include "tests/convert/bf16_gguf.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy {
namespace {

class PromptCache : public TinyEngine {
 protected:
  static constexpr int kPrompt = 200, kContext = 240;
  static Engine make(std::optional<DType> kv = {}, int texts = 2) {
    return make_of(models(true), kv, texts);
  }
  static Engine make_of(ModelFiles files, std::optional<DType> kv = {}, int texts = 2) {
    EngineOptions o = options(SpeculationMethod::kSequoia, 8);
    o.plan.max_prompt = kPrompt;
    o.plan.context = kContext;
    o.plan.max_sequences = texts;
    o.plan.kv = kv;
    return Engine(std::move(files), o);
  }
  static Request asked(unsigned number) {
    Request r = request(prompt(number, kPrompt));
    r.max_new_tokens = 20;
    return r;
  }
  std::string content() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << bytes;
  }

  TempDir dir_;
  std::filesystem::path file_ = dir_ / "texts.kv";
};

TEST_F(PromptCache, GivesALaterRunTheKeysAndValuesOfItsTextsBitForBit) {
  Engine first = make();
  std::vector<TextReport> texts;
  for (unsigned i = 0; i < 2; ++i) texts.push_back(first.generate(asked(i)));
  first.save_prompts(file_, "code");

  Engine second = make();
  const LoadedPrompts loaded = second.load_prompts(file_, "code");
  EXPECT_EQ(loaded.refused, "");
  EXPECT_EQ(loaded.tokens, 2 * (kPrompt / kKvBlock) * kKvBlock);
  for (unsigned i = 0; i < 2; ++i) {
    const TextReport again = second.generate(asked(i));
    EXPECT_EQ(again.tokens, texts[i].tokens);
    EXPECT_EQ(again.cached_tokens, (kPrompt - 1) / kKvBlock * kKvBlock);
  }
  const std::string before = content();
  second.save_prompts(file_, "code");
  EXPECT_TRUE(content() == before);  // the same texts: the same bytes
}

TEST_F(PromptCache, TakesWhatThereIsRoomFor) {
  Engine first = make();
  for (unsigned i = 0; i < 2; ++i) first.generate(asked(i));
  first.save_prompts(file_, "code");
  Engine small = make({}, 1);
  const int blocks = small.plan().kv_blocks;
  EXPECT_LE(small.load_prompts(file_, "code").tokens, blocks * kKvBlock);
  EXPECT_EQ(small.generate(asked(1)).tokens, make().generate(asked(1)).tokens);
}

TEST_F(PromptCache, IsNotUsedWhereOtherCodeWroteIt) {
  Engine engine = make();
  engine.generate(asked(0));
  engine.save_prompts(file_, "old code");
  Engine other = make();
  const LoadedPrompts loaded = other.load_prompts(file_, "new code");
  EXPECT_EQ(loaded.tokens, 0);
  EXPECT_NE(loaded.refused, "");
  EXPECT_EQ(other.generate(asked(0)).cached_tokens, 0);
}

TEST_F(PromptCache, RefusesWhatIsOfAnotherModelOrNone) {
  Engine engine = make();
  engine.generate(asked(0));
  engine.save_prompts(file_, "code");
  Engine rounded = make(DType::kF16);
  EXPECT_NE(error_of([&] { rounded.load_prompts(file_, "code"); }).find("type of KV cache"),
            std::string::npos);
  for (const std::string bytes : {"", "CANOPYKV", "GGUF of something else"}) {
    write(bytes);
    EXPECT_NE(error_of([&] { engine.load_prompts(file_, "code"); }).find("no prompt cache"),
              std::string::npos);
  }
}

TEST_F(PromptCache, RefusesHeadersOverItsLimitWithoutReadingThem) {
  Engine engine = make();
  std::string front = "CANOPYKV";
  constexpr std::uint64_t kLength = (256u << 20) + 1;
  for (int byte = 0; byte < 8; ++byte) front += static_cast<char>(kLength >> (8 * byte));
  write(front.append(8, '\0'));
  std::filesystem::resize_file(file_, 2 * kLength);  // a hole: takes no disk
  const std::string error = error_of([&] { engine.load_prompts(file_, "code"); });
  EXPECT_NE(error.find("its header ends too late"), std::string::npos) << error;
}

/// Weights are the same, and so is the fingerprint; what queries are multiplied by changes all that
/// is written after the first layer.
TEST_F(PromptCache, OfAConfigWhoseQueriesGrowOtherwiseIsRefused) {
  const auto with = [&](float beta) {
    ModelFiles files = models(true);
    ModelConfig config = files.target.config();
    config.query_beta = beta;
    config.query_period = 8;
    const Checkpoint& t = files.target;
    files.target = Checkpoint(t.root(), t.files(), {t.tensors().begin(), t.tensors().end()}, config,
                              t.metadata());
    return make_of(std::move(files));
  };
  Engine wrote = with(0.5f), same = with(0.5f), other = with(0.25f), none = with(0);
  wrote.generate(asked(0));
  wrote.save_prompts(file_, "code");
  EXPECT_GT(same.load_prompts(file_, "code").tokens, 0);
  for (Engine* engine : {&other, &none})
    EXPECT_NE(error_of([&] { engine->load_prompts(file_, "code"); }).find("another model"),
              std::string::npos);
}

// A packed copy goes by its source's fingerprint, but its keys have another order.
TEST_F(PromptCache, OfALlamaInGgufIsNotTakenByItsPackedCopyNorTheOtherWayRound) {
  const auto silent = [](auto&&...) {};
  inflate(Checkpoint::open(kTarget),  // whose own rows are too short to be packed
          {.output = dir_ / "large", .small = dir_ / "small", .bytes = 2'000'000}, silent);
  pack(test::write_bf16_gguf(Checkpoint::open(dir_ / "large"), dir_ / "model.gguf"),
       dir_ / "packed", 2, silent);
  const std::filesystem::path forms[] = {dir_ / "model.gguf", dir_ / "packed"};
  for (int writer = 0; writer < 2; ++writer) {
    const auto of = [&](int form) {
      ModelFiles files = models(true);
      files.target = Checkpoint::open(forms[form]);
      return make_of(std::move(files));
    };
    Engine wrote = of(writer), other = of(1 - writer), same = of(writer);
    const std::vector<TokenId> text = wrote.generate(asked(0)).tokens;
    wrote.save_prompts(file_, "code");
    EXPECT_NE(error_of([&] { other.load_prompts(file_, "code"); }).find("order keys otherwise"),
              std::string::npos);
    EXPECT_EQ(other.generate(asked(0)).cached_tokens, 0);
    EXPECT_GT(same.load_prompts(file_, "code").tokens, 0);
    EXPECT_EQ(same.generate(asked(0)).tokens, text);
  }
}

TEST_F(PromptCache, NeverTakesDamagedBytes) {
  Engine engine = make();
  const std::vector<TokenId> tokens = engine.generate(asked(0)).tokens;
  engine.save_prompts(file_, "code");
  const std::string whole = content();
  std::uint32_t seed = 1;
  for (int trial = 0; trial < 60; ++trial) {
    seed = seed * 1664525 + 1013904223;
    std::string damaged = whole;
    if (trial % 3 == 0)
      damaged.resize(seed % whole.size());
    else
      damaged[seed % whole.size()] ^= static_cast<char>(1 + seed / 65536 % 255);
    write(damaged);
    Engine other = make();
    const std::string error = error_of([&] { other.load_prompts(file_, "code"); });
    EXPECT_NE(error.find("texts.kv"), std::string::npos) << trial;
    EXPECT_EQ(other.generate(asked(0)).tokens, tokens) << trial;
  }
}

}  // namespace
}  // namespace canopy
