#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "src/base/formats/half.h"
#include "src/engine/engine.h"
#include "tests/planner/made_up.h"
#include "tests/temp_dir.h"
#include "tests/test_data.h"

namespace canopy {

/// Token 17 is "t17": enough for an engine that is given ids.
class NumberTokenizer final : public Tokenizer {
 public:
  NumberTokenizer(int vocab, std::vector<TokenId> ends) : ends_(std::move(ends)) {
    for (int i = 0; i < vocab; ++i) pieces_.push_back(std::string("t").append(std::to_string(i)));
  }
  std::vector<TokenId> encode(std::string_view, AddSpecial, const std::stop_token&) const override {
    return {};
  }
  std::vector<TokenId> encode_marked(std::string_view, std::string_view,
                                     const std::stop_token&) const override {
    return {};
  }
  std::string quote_specials(std::string_view, std::string_view) const override { return {}; }
  std::string_view piece(TokenId token) const override {
    return pieces_[static_cast<std::size_t>(token)];
  }
  std::string decode(std::span<const TokenId>, AddSpecial) const override { return {}; }
  std::string_view token_string(TokenId token) const override { return piece(token); }
  bool is_special(TokenId) const override { return false; }
  bool ends_text(TokenId token) const override {
    return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
  }
  int vocab() const override { return static_cast<int>(pieces_.size()); }

 private:
  std::vector<std::string> pieces_;
  std::vector<TokenId> ends_;
};

/// A copy of a GGUF file whose F32 and BF16 weights are off by about `noise` each.
inline void write_noisy_gguf(const std::filesystem::path& model, const std::filesystem::path& to,
                             float noise) {
  std::ifstream in(model, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::mt19937 random(3);
  std::normal_distribution<float> normal(1.0f, noise);
  const Checkpoint source = Checkpoint::open(model);
  for (const TensorEntry& tensor : source.tensors()) {
    const std::size_t size = tensor.dtype == DType::kF32    ? 4
                             : tensor.dtype == DType::kBF16 ? 2
                                                            : tensor.bytes + 1;
    for (std::size_t at = 0; at + size <= tensor.bytes; at += size) {
      char* const place = bytes.data() + tensor.offset + at;
      std::array<char, 4> number{};  // a BF16 is the upper half of a float
      std::memcpy(number.data() + 4 - size, place, size);
      const float noisy = std::bit_cast<float>(number) * normal(random);
      std::memcpy(place, std::bit_cast<std::array<char, 4>>(noisy).data() + 4 - size, size);
    }
  }
  std::ofstream(to, std::ios::binary) << bytes;
}

/// A copy of a checkpoint of one BF16 safetensors file or one GGUF file whose weights are off by
/// about `noise` each: a draft that agrees with its target now and then.
inline std::filesystem::path write_noisy_copy(const std::filesystem::path& model,
                                              const std::filesystem::path& to, float noise) {
  if (!std::filesystem::is_directory(model)) return write_noisy_gguf(model, to, noise), to;
  std::filesystem::create_directories(to);
  std::filesystem::copy(model / "config.json", to / "config.json");
  std::ifstream in(model / "model.safetensors", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(1.0f, noise);
  for (std::size_t at = 8 + header; at + 2 <= bytes.size(); at += 2) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + at, 2);
    half = bf16_from_f32(f32_from_bf16(half) * normal(random));
    std::memcpy(bytes.data() + at, &half, 2);
  }
  std::ofstream(to / "model.safetensors", std::ios::binary) << bytes;
  return to;
}

/// A tiny model, alone or with a noisy copy of itself as the draft.
class TinyEngine : public ::testing::Test {
 protected:
  static inline const std::filesystem::path kTarget = test_data() / "model" / "llama2";
  static constexpr int kNew = 40;

  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    draft_ = write_noisy_copy(kTarget, dir_->path() / "draft", 0.08f);
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static ModelFiles models(bool with_draft) {
    ModelFiles files{Checkpoint::open(kTarget), std::nullopt, nullptr};
    if (with_draft) files.draft = Checkpoint::open(draft_);
    files.tokenizer = std::make_unique<NumberTokenizer>(files.target.config().vocab,
                                                        files.target.config().end_tokens);
    return files;
  }
  static ModelFiles models_for(SpeculationMethod method) {
    return models(method != SpeculationMethod::kNone && !drafts_with_itself(method));
  }
  /// The costs of a machine that never was, on which trees of some 50 nodes pay for this small
  /// model.
  static std::shared_ptr<const CostModel> made_up_cost() {
    static const auto cost = std::make_shared<const CostModel>([] {
      HardwareProfile p = testing::made_up_profile();
      p.link_bytes_per_second = 1e9;
      p.layers[0].attention = p.layers[0].mlp = testing::line(1e-3, 3e-6);
      p.layers.resize(5, p.layers[0]);  // of unequal_config() there are as many kinds
      p.head = testing::line(3e-3, 1e-5);
      p.drafting = {testing::line(1e-4, 1e-6), testing::line(1e-4, 1e-6), Seconds(0)};
      return p;
    }());
    return cost;
  }
  /// A machine on which drafting is dear, so that the bound of an adaptive chain is above 0.
  static std::shared_ptr<const CostModel> dear_drafts() {
    HardwareProfile p = testing::made_up_profile();
    p.link_bytes_per_second = 1e9;
    p.layers[0].attention = p.layers[0].mlp = testing::line(1e-3, 3e-6);
    p.head = testing::line(3e-3, 1e-5);
    p.drafting = {testing::line(5e-3, 1e-6), testing::line(5e-3, 1e-6), Seconds(0)};
    return std::make_shared<const CostModel>(p);
  }
  static EngineOptions options(SpeculationMethod method, int tree = 0, int levels = 0,
                               double temperature = 0) {
    EngineOptions o;
    o.device.threads = 2;
    o.plan.method = method;
    if (takes_inner_draft(method)) o.plan.inner = draft_source_named("ngram:2");
    if (drafts_with_itself(method)) o.plan.resident_layers = 1;  // the other travels
    o.plan.tree_size = tree;
    o.plan.tree_levels = levels;
    o.plan.temperature = temperature;
    o.plan.cost = made_up_cost();
    o.plan.max_prompt = 32;
    o.plan.context = 32 + kNew;
    return o;
  }
  static Engine make(SpeculationMethod method, int tree = 0, int levels = 0,
                     double temperature = 0) {
    return Engine(models_for(method), options(method, tree, levels, temperature));
  }
  /// An engine of these files, whose texts end where `context` does.
  static Engine open(ModelFiles files, SpeculationMethod method, int nodes,
                     std::optional<std::uint64_t> resident, int prompt, int context) {
    files.tokenizer =
        std::make_unique<NumberTokenizer>(files.target.config().vocab, std::vector<TokenId>{});
    EngineOptions options = options_until(method, nodes, prompt, context);
    options.plan.resident = resident;
    return Engine(std::move(files), options);
  }
  /// Options of texts that end where `context` does.
  static EngineOptions options_until(SpeculationMethod method, int nodes, int prompt, int context) {
    EngineOptions options;
    options.device.threads = 2;
    options.plan.method = method;
    options.plan.cost = made_up_cost();
    options.plan.tree_size = nodes;
    options.plan.max_prompt = prompt;
    options.plan.context = context;
    return options;
  }
  static std::vector<TokenId> prompt(unsigned seed, int tokens = 20) {
    std::mt19937 random(seed);
    const auto vocab = static_cast<unsigned>(Checkpoint::open(kTarget).config().vocab);
    std::vector<TokenId> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<TokenId>(random() % vocab));
    return ids;
  }
  static Request request(std::span<const TokenId> prompt) {
    Request r;
    r.prompt = {prompt.begin(), prompt.end()};
    r.max_new_tokens = kNew;
    r.ignore_end = true;
    return r;
  }

  /// Five texts at once, in the sweeps of `engine`, are what each is alone by plain decoding.
  static void expect_shared_sweeps_to_keep_texts(Engine& engine) {
    Engine plain = make(SpeculationMethod::kNone);
    std::vector<Request> requests;
    for (unsigned p = 0; p < 5; ++p) requests.push_back(request(prompt(p)));
    const BatchReport report = engine.generate(requests);
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(report.texts[i].tokens, plain.generate(requests[i]).tokens) << i;
  }

  static inline std::unique_ptr<TempDir> dir_;
  static inline std::filesystem::path draft_;
};

}  // namespace canopy
