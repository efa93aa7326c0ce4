#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "src/engine/head_source.h"
#include "tests/checkpoint/heads_file.h"
#include "tests/engine/tiny_engine.h"
#include "tests/speculation/chi_square.h"

namespace canopy {
namespace {

constexpr int kVocab = 6, kTokens = 3, kSamples = 20'000;
using Text = std::array<TokenId, kTokens>;

/// A copy of a checkpoint of one safetensors file that knows only the first `vocab` tokens.
void write_with_vocabulary(const std::filesystem::path& model, const std::filesystem::path& to,
                           int vocab) {
  using nlohmann::json;
  std::filesystem::create_directories(to);
  std::ifstream config_file(model / "config.json");
  json config = json::parse(config_file);
  config["vocab_size"] = vocab;
  std::ofstream(to / "config.json") << config;

  std::ifstream in(model / "model.safetensors", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  json header = json::parse(bytes.substr(8, size));
  std::string data;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = tensor["data_offsets"][0].get<std::size_t>();
    auto length = tensor["data_offsets"][1].get<std::size_t>() - begin;
    if (name == "model.embed_tokens.weight" || name == "lm_head.weight") {
      length = length / tensor["shape"][0].get<std::size_t>() * static_cast<std::size_t>(vocab);
      tensor["shape"][0] = vocab;
    }
    tensor["data_offsets"] = {data.size(), data.size() + length};
    data += bytes.substr(8 + size + begin, length);
  }
  const std::string text = header.dump();
  size = text.size();
  std::ofstream out(to / "model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size);
  out << text << data;
}

struct Sampled {
  SpeculationMethod method;
  double temperature, top_p;
  const char* model_free = "";  // the draft in place of a model: such a draft, or "heads"
  const char* model = "llama2";
};
/// A model of six tokens and a draft that is often wrong about them, so that every text of three
/// tokens comes up often enough to be counted.
class SampledText : public ::testing::TestWithParam<Sampled> {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    for (const char* model : {"llama2", "qwen3_5"}) {
      write_with_vocabulary(test_data() / "model" / model, target(model), kVocab);
      write_noisy_copy(target(model), draft(model), 0.6f);
    }
  }
  static void TearDownTestSuite() { dir_.reset(); }
  static std::filesystem::path target(const std::string& model) {
    return dir_->path() / model / "target";
  }
  static std::filesystem::path draft(const std::string& model) {
    return dir_->path() / model / "draft";
  }

  /// An engine of such a text's model, but by `method`.
  static Engine make(const Sampled& how, SpeculationMethod method, const char* model_free = "") {
    ModelFiles files{Checkpoint::open(target(how.model)), std::nullopt, nullptr};
    EngineOptions options;
    const bool by_heads = std::string_view(model_free) == "heads";
    if (by_heads) {
      const auto file = testing::write_heads_file(dir_->path() / "heads.safetensors",
                                                  {.heads = 2, .vocab = kVocab, .deviation = 0.3f});
      files.heads = open_medusa_heads(file, files.target);
      options.plan.draft = head_source(*files.heads, files.target);
    } else {
      options.plan.draft = draft_source_named(model_free);
    }
    const bool by_source = options.plan.draft != nullptr && !by_heads;
    if (by_source) {
      const auto with =
          options.plan.draft->with_corpus({3, 1, 2, 3, 2, 1, 4, 3, 5, 0, 1, 0, 2, 4, 4, 5});
      if (with) options.plan.draft = with;
    } else if (method != SpeculationMethod::kNone && !by_heads) {
      files.draft = Checkpoint::open(draft(how.model));
    }
    files.tokenizer = std::make_unique<NumberTokenizer>(kVocab, std::vector<TokenId>{});
    options.device.threads = 1;  // many steps of a few microseconds each
    options.plan.method = method;
    options.plan.temperature = how.temperature;
    options.plan.max_prompt = 1 + kTokens;
    options.plan.context = 1 + 2 * kTokens;
    options.plan.max_sequences = 64;
    options.plan.growth.least = 0.05;
    if (method == SpeculationMethod::kGsdSequoia) {  // many merged nodes, and all their children
      options.plan.growth.children = 3;
      options.plan.growth.merge = 1;
      options.plan.growth.least = options.plan.growth.least_of_siblings = 0;
    }
    if (takes_inner_draft(method)) options.plan.inner = draft_source_named("random");
    if (row_of(method).form == TreeForm::kChain)
      options.plan.tree_size = 4;
    else if (row_of(method).form == TreeForm::kGraph)
      options.plan.tree_size = method == SpeculationMethod::kGsdSequoia ? 40 : 12;
    else if (by_source)
      options.plan.shape = TreeShape::from_parents({-1, 0, 0, 0, 1, 1, 1, 2, 2, 2});
    else if (method != SpeculationMethod::kNone)
      options.plan.shape = TreeShape::from_parents({-1, 0, 0, 0, 1, 1});
    return Engine(std::move(files), options);
  }

  static inline std::unique_ptr<TempDir> dir_;
};

/// Warps log probabilities as sampling does: temperature, then the smallest set of at least top_p.
std::vector<double> warped(std::vector<double> p, double temperature, double top_p) {
  double sum = 0;
  for (double& x : p) sum += x = std::exp(x / temperature);
  std::vector<std::size_t> order(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] /= sum, order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
  double mass = 0, kept = 0;
  for (const std::size_t i : order) {
    if (mass >= top_p) p[i] = 0;
    mass += p[i];
    kept += p[i];
  }
  for (double& x : p) x /= kept;
  return p;
}

/// The target's own distribution of the token after `text`, from its logits.
std::vector<double> next_token(Engine& plain, const std::vector<TokenId>& text,
                               const Sampled& how) {
  Request request;
  request.prompt = text;
  request.max_new_tokens = 1;
  request.logprobs = kVocab;
  std::vector<double> logprobs(kVocab);
  const TextReport report = plain.generate(request);
  for (const TokenLogprob& t : report.logprobs.front().top)
    logprobs[static_cast<std::size_t>(t.token)] = t.logprob;
  return warped(logprobs, how.temperature, how.top_p);
}

void enumerate(Engine& plain, const Sampled& how, std::vector<TokenId>& text, double chance,
               std::map<Text, double>& out) {
  if (text.size() == 1 + kTokens) {
    out[{text[1], text[2], text[3]}] = chance;
    return;
  }
  const std::vector<double> p = next_token(plain, text, how);
  for (TokenId t = 0; t < kVocab; ++t) {
    if (!(p[static_cast<std::size_t>(t)] > 0)) continue;
    text.push_back(t);
    enumerate(plain, how, text, chance * p[static_cast<std::size_t>(t)], out);
    text.pop_back();
  }
}

TEST_P(SampledText, OfEveryMethodHasTheTargetsDistribution) {
  const Sampled how = GetParam();
  std::vector<TokenId> prompt{3};
  std::map<Text, double> exact;
  Engine plain = make(how, SpeculationMethod::kNone);
  enumerate(plain, how, prompt, 1.0, exact);

  Engine engine = make(how, how.method, how.model_free);
  Request request;
  request.prompt = prompt;
  request.sampling = {static_cast<float>(how.temperature), 0, static_cast<float>(how.top_p)};
  request.seed = 5;
  request.max_new_tokens = kTokens;
  std::vector<Request> requests(kSamples, request);
  for (std::size_t i = 0; i < requests.size(); ++i)
    requests[i].sequence = static_cast<std::uint32_t>(i);
  const BatchReport report = engine.generate(requests);

  std::map<Text, int> counts;
  const int fewest_steps =
      std::string_view(how.model_free) == "heads" ? 2 : 1;  // the first has no tree
  int in_fewest_steps = 0;
  for (const TextReport& text : report.texts) {
    ASSERT_EQ(text.tokens.size(), static_cast<std::size_t>(kTokens));
    ++counts[{text.tokens[0], text.tokens[1], text.tokens[2]}];
    in_fewest_steps += text.steps == fewest_steps;
  }
  EXPECT_TRUE(canopy::testing::fits(counts, exact));
  // The test would be weak if the target had few texts, or if the draft were always or never right.
  EXPECT_GT(std::count_if(exact.begin(), exact.end(),
                          [](const auto& text) { return text.second * kSamples >= 8; }),
            100);
  if (how.method == SpeculationMethod::kNone) return;
  if (how.method == SpeculationMethod::kGsdSequoia) {
    const auto add = [](int sum, const TextReport& t) { return sum + t.copied_steps; };
    EXPECT_GT(std::accumulate(report.texts.begin(), report.texts.end(), 0, add), kSamples / 50);
  }
  // A chain of the draft's best tokens is one text alone.
  EXPECT_GT(in_fewest_steps, kSamples / (how.method == SpeculationMethod::kSsd ? 50 : 20));
  EXPECT_LT(in_fewest_steps, kSamples - kSamples / 20);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, SampledText,
    ::testing::Values(
        Sampled{SpeculationMethod::kNone, 2.0, 1.0}, Sampled{SpeculationMethod::kSequoia, 2.0, 1.0},
        Sampled{SpeculationMethod::kSequoia, 1.5, 0.9},
        Sampled{SpeculationMethod::kChain, 2.0, 1.0},
        Sampled{SpeculationMethod::kAdaptive, 2.0, 1.0},
        Sampled{SpeculationMethod::kAdaptive, 1.5, 0.9},
        Sampled{SpeculationMethod::kHierarchy, 2.0, 1.0},
        Sampled{SpeculationMethod::kSpecInfer, 2.0, 0.9},
        Sampled{SpeculationMethod::kSpecTr, 2.0, 1.0}, Sampled{SpeculationMethod::kNaive, 1.5, 1.0},
        Sampled{SpeculationMethod::kTopK, 2.0, 0.9}, Sampled{SpeculationMethod::kGsd, 2.0, 1.0},
        Sampled{SpeculationMethod::kGsdSequoia, 2.0, 1.0},
        Sampled{SpeculationMethod::kGsdSequoia, 1.5, 0.9},
        Sampled{SpeculationMethod::kTsd, 1.5, 0.9}, Sampled{SpeculationMethod::kSsd, 1.5, 1.0},
        Sampled{SpeculationMethod::kTopK, 2.0, 1.0, "copy:1"},
        Sampled{SpeculationMethod::kTopK, 1.5, 0.9, "ngram:2"},
        Sampled{SpeculationMethod::kTopK, 2.0, 1.0, "ngram:1"},
        Sampled{SpeculationMethod::kTopK, 2.0, 1.0, "random"},
        Sampled{SpeculationMethod::kTopK, 1.5, 1.0, "heads"},
        Sampled{SpeculationMethod::kNone, 2.0, 1.0, "", "qwen3_5"},
        Sampled{SpeculationMethod::kSequoia, 2.0, 1.0, "", "qwen3_5"},
        Sampled{SpeculationMethod::kChain, 2.0, 0.9, "", "qwen3_5"},
        Sampled{SpeculationMethod::kTopK, 2.0, 1.0, "copy:1", "qwen3_5"}),
    [](const auto& info) {
      std::string test = name(info.param.method);
      std::erase(test, '-');
      return test + std::to_string(info.index);
    });

}  // namespace
}  // namespace canopy
