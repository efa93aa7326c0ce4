// Logits and greedy text against the reference implementation, on one tiny checkpoint per family
// and container, and on SmolLM2. tests/data/model/*.py made the goldens and derived each tolerance:
// twice what rounding to float32 may do to any logit, found by disturbing every operation of a
// float64 model (docs/math.md, G1). The mutants show that it is narrow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "offload/streamer.h"
#include "src/checkpoint/checkpoint.h"
#include "src/model/transformer.h"
#include "tests/kernels/emulated_cuda.h"
#include "tests/model/f32_copy.h"
#include "tests/model/mutants.h"
#include "tests/temp_dir.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

const std::filesystem::path kData = test_data() / "model";

/// The reference's values of a checkpoint. columns is empty where logits holds whole rows.
struct Golden {
  std::vector<TokenId> prompt, greedy;
  std::vector<std::int32_t> rows;
  std::vector<std::vector<std::int32_t>> columns;
  std::vector<std::vector<float>> logits;
  std::vector<float> margins, inverse_frequency;
  float tolerance = 0.0f, rope_magnitude = 0.0f;
};

Golden read_golden(const std::string& name) {
  const auto json = nlohmann::json::parse(std::ifstream(kData / (name + ".golden.json")));
  Golden g;
  json.at("prompt").get_to(g.prompt);
  json.at("greedy_tokens").get_to(g.greedy);
  json.at("greedy_margins").get_to(g.margins);
  json.at("rows").get_to(g.rows);
  json.at("logits").get_to(g.logits);
  json.at("inverse_frequency").get_to(g.inverse_frequency);
  json.at("tolerance").get_to(g.tolerance);
  json.at("rope_magnitude").get_to(g.rope_magnitude);
  if (json.contains("columns")) json.at("columns").get_to(g.columns);
  return g;
}

std::unique_ptr<Device> device_of(const std::string& kind) {
  if (kind == "emulated") return std::make_unique<EmulatedCuda>();
  return make_device({.kind = kind});
}

/// A checkpoint, resident on a device, and one sequence.
class Model {
 public:
  Model(const Checkpoint& checkpoint, const Golden& golden, const std::string& device)
      : device_(device_of(device)),
        compute_(device_->make_stream("compute")),
        weights_(load_resident(*device_, lay_out_sweep(checkpoint), {notes_})),
        config_(checkpoint.config()),
        kv_(*device_, config_, room(golden), {}),
        transformer_(*device_, checkpoint.config(), *weights_,
                     {.max_nodes = room(golden),
                      .max_logit_rows = static_cast<int>(golden.rows.size()),
                      .max_context = room(golden)}) {}

  /// Appends the tokens to the sequence; returns the logits of `rows` of them, a row after another.
  std::vector<float> feed(const std::vector<TokenId>& tokens,
                          const std::vector<std::int32_t>& rows) {
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    if (kv_.turn_to(config_.text_length(text_.size()))) {  // all is read again
      const auto before = static_cast<std::int32_t>(text_.size() - tokens.size());
      std::vector<std::int32_t> shifted = rows;
      for (std::int32_t& row : shifted) row += before;
      return run(text_, shifted);
    }
    return run(tokens, rows);
  }

 private:
  std::vector<float> run(const std::vector<TokenId>& tokens,
                         const std::vector<std::int32_t>& rows) {
    std::vector<std::int32_t> position(tokens.size());
    std::iota(position.begin(), position.end(), kv_.length());
    std::vector<NodeId> path(tokens.size());
    std::iota(path.begin(), path.end(), 0);
    const SequenceRows part{{tokens, position, {}, 0, rows}, &kv_};
    const ConstTensorView logits = transformer_.forward({&part, 1}, *compute_);
    std::vector<float> out(logits.bytes() / sizeof(float));
    device_->download(*compute_, std::as_writable_bytes(std::span(out)), logits.data());
    kv_.commit(path, *compute_);
    compute_->synchronize();
    return out;
  }
  static int room(const Golden& g) { return static_cast<int>(g.prompt.size() + g.greedy.size()); }
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> compute_;
  Notes notes_;
  std::unique_ptr<WeightSource> weights_;
  const ModelConfig& config_;
  std::vector<TokenId> text_;
  KvCache kv_;
  Transformer transformer_;
};

/// The largest difference of any checked logit of the prompt. NaN counts as infinite.
float largest_deviation(const Checkpoint& checkpoint, const Golden& golden,
                        const std::string& device = "cpu") {
  Model model(checkpoint, golden, device);
  const std::vector<float> ours = model.feed(golden.prompt, golden.rows);
  const auto vocab = static_cast<std::size_t>(checkpoint.config().vocab);
  float worst = 0.0f;
  for (std::size_t i = 0; i < golden.rows.size(); ++i)
    for (std::size_t j = 0; j < golden.logits[i].size(); ++j) {
      const std::size_t column =
          golden.columns.empty() ? j : static_cast<std::size_t>(golden.columns[i][j]);
      const float difference = std::abs(ours[i * vocab + column] - golden.logits[i][j]);
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
  return worst;
}

/// Counts of choices whose margin is above the tolerance: all, and those that are not the
/// reference's.
struct Choices {
  int compared = 0, other = 0;
};

/// Feeds the reference's text token by token and compares its choices.
Choices compare_greedy_text(const Checkpoint& checkpoint, const Golden& golden, float tolerance,
                            const std::string& device) {
  Model model(checkpoint, golden, device);
  const auto last = static_cast<std::int32_t>(golden.prompt.size()) - 1;
  std::vector<float> logits = model.feed(golden.prompt, {last});
  Choices choices;
  for (std::size_t i = 0; i < golden.greedy.size(); ++i) {
    if (golden.margins[i] > tolerance) {
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      choices.other += best != golden.greedy[i] ? 1 : 0;
      ++choices.compared;
    }
    logits = model.feed({golden.greedy[i]}, {0});
  }
  return choices;
}

void expect_same_greedy_text(const Checkpoint& checkpoint, const Golden& golden) {
  const Choices choices = compare_greedy_text(checkpoint, golden, golden.tolerance, "cpu");
  EXPECT_EQ(choices.other, 0);
  EXPECT_GE(choices.compared, static_cast<int>(golden.greedy.size()) - 2);
}

/// Returns the tolerance of a logit on a GPU. It rounds the activations before each product to 16
/// bits, of BF16 by 2^-8 at most: four times on the way through a layer and once before the head.
/// Each moves the logits by about its share of their size, and they are independent. An estimate,
/// and twice that for its roughness; that a wrong equation does not pass shows that it is narrow
/// enough.
float tolerance_on_a_gpu(const ModelConfig& config, const Golden& golden) {
  float largest = 0;
  for (const std::vector<float>& row : golden.logits)
    for (const float logit : row) largest = std::max(largest, std::abs(logit));
  const auto roundings = static_cast<float>(4 * config.layers + 1);
  return golden.tolerance + 2 * std::sqrt(roundings) * 0x1p-8f * largest;
}

void expect_as_on_a_gpu(const Checkpoint& checkpoint, const Golden& golden,
                        const std::string& device) {
  const float tolerance = tolerance_on_a_gpu(checkpoint.config(), golden);
  EXPECT_LE(largest_deviation(checkpoint, golden, device), tolerance);
  const Choices choices = compare_greedy_text(checkpoint, golden, tolerance, device);
  EXPECT_GT(choices.compared, static_cast<int>(golden.greedy.size()) / 2);
  // A row has another expert if scores of a router are closer than rounding to 16 bits, which no
  // tolerance of logits covers: of a mixture a choice in eight may be such a row's.
  EXPECT_LE(choices.other, checkpoint.config().experts.count > 0 ? choices.compared / 8 : 0);
}

Checkpoint mutated(const Checkpoint& from, const Mutant& mutant) {
  ModelConfig config = from.config();
  mutant.apply(config);
  return Checkpoint(from.root(), from.files(), from.tensors(), std::move(config), from.metadata());
}

void expect_mutants_exceed_tolerance(const Checkpoint& checkpoint, const Golden& golden,
                                     float tolerance, const std::string& device = "cpu") {
  for (const Mutant& mutant : kMutants)
    if (mutant.applies(checkpoint.config()) && !(mutant.fine && device != "cpu")) {
      EXPECT_GT(largest_deviation(mutated(checkpoint, mutant), golden, device), tolerance)
          << mutant.what;
    }
}

/// Expects the reference's logits and text on a GPU, and wrong equations to be seen, of weights in
/// F32: delta nets enlarge roundings (of F32, 25 times as much as attention in these models), and
/// those of activations to 16 bits would hide such equations.
void expect_as_in_f32(const Checkpoint& checkpoint, const Golden& golden,
                      const std::string& device) {
  const TempDir directory;
  const Checkpoint plain = in_f32(checkpoint, directory.path() / "weights");
  EXPECT_LE(largest_deviation(plain, golden, device), golden.tolerance);
  const Choices choices = compare_greedy_text(plain, golden, golden.tolerance, device);
  EXPECT_EQ(choices.other, 0);
  EXPECT_GE(choices.compared, static_cast<int>(golden.greedy.size()) - 2);
  expect_mutants_exceed_tolerance(plain, golden, golden.tolerance, device);
}

void expect_same_rope(const ModelConfig& config, const Golden& golden) {
  // Both sides round powers and quotients to float32 a few times.
  const float few_roundings = 8 * 0x1p-24f;
  ASSERT_EQ(config.rope_inverse_frequency.size(), golden.inverse_frequency.size());
  for (std::size_t i = 0; i < golden.inverse_frequency.size(); ++i)
    EXPECT_NEAR(config.rope_inverse_frequency[i], golden.inverse_frequency[i],
                few_roundings * golden.inverse_frequency[i])
        << "pair " << i;
  EXPECT_NEAR(config.rope_magnitude, golden.rope_magnitude, few_roundings * golden.rope_magnitude);
}

struct TinyCase {
  const char* golden;
  const char* checkpoint;  // inside tests/data/model
};
void PrintTo(const TinyCase& c, std::ostream* out) { *out << c.checkpoint; }

class TinyCheckpoint : public ::testing::TestWithParam<TinyCase> {
 protected:
  Checkpoint with(std::vector<TensorEntry> tensors, ModelConfig config) const {
    return Checkpoint(checkpoint_.root(), checkpoint_.files(), std::move(tensors),
                      std::move(config), checkpoint_.metadata());
  }
  Checkpoint with_names_swapped(const std::string& one, const std::string& other) const {
    std::vector<TensorEntry> tensors = checkpoint_.tensors();
    for (TensorEntry& tensor : tensors)
      for (const auto& [from, to] : {std::pair{one, other}, {other, one}})
        if (const std::size_t at = tensor.name.find(from); at != std::string::npos) {
          tensor.name.replace(at, from.size(), to);
          break;
        }
    return with(std::move(tensors), checkpoint_.config());
  }

  Checkpoint checkpoint_ = Checkpoint::open(kData / GetParam().checkpoint);
  Golden golden_ = read_golden(GetParam().golden);
};

TEST_P(TinyCheckpoint, GivesTheReferencesLogitsWithinRounding) {
  const float deviation = largest_deviation(checkpoint_, golden_);
  EXPECT_LE(deviation, golden_.tolerance);
  RecordProperty("deviation", std::to_string(deviation));
}
TEST_P(TinyCheckpoint, GivesTheReferencesGreedyTextWhereItsMarginsAllow) {
  expect_same_greedy_text(checkpoint_, golden_);
}
TEST_P(TinyCheckpoint, OnEmulatedCudaDiffersByTheRoundingOfActivationsAlone) {
  if (checkpoint_.config().recurrent()) return expect_as_in_f32(checkpoint_, golden_, "emulated");
  expect_as_on_a_gpu(checkpoint_, golden_, "emulated");
  expect_mutants_exceed_tolerance(checkpoint_, golden_,
                                  tolerance_on_a_gpu(checkpoint_.config(), golden_), "emulated");
}
TEST_P(TinyCheckpoint, OnCudaDiffersByTheRoundingOfActivationsAlone) {
  if (find_gpus().all.empty()) GTEST_SKIP() << find_gpus().why_none;
  if (checkpoint_.config().recurrent()) return expect_as_in_f32(checkpoint_, golden_, "cuda");
  expect_as_on_a_gpu(checkpoint_, golden_, "cuda");
}
TEST_P(TinyCheckpoint, HasTheReferencesRotaryFrequencies) {
  expect_same_rope(checkpoint_.config(), golden_);
}
TEST_P(TinyCheckpoint, WithOneWrongEquationExceedsTheTolerance) {
  expect_mutants_exceed_tolerance(checkpoint_, golden_, golden_.tolerance);
}

TEST_P(TinyCheckpoint, WithGateAndUpTheOtherWayRoundExceedsTheTolerance) {
  if (!checkpoint_.config().form.gated()) GTEST_SKIP() << "there is no gate";
  EXPECT_GT(largest_deviation(with_names_swapped(".gate_proj.", ".up_proj."), golden_),
            golden_.tolerance);
}

TEST_P(TinyCheckpoint, WithNormsInEachOthersPlaceExceedsTheTolerance) {
  const DecoderForm& form = checkpoint_.config().form;
  if (!form.norm_results) GTEST_SKIP() << "results have no norms";
  const char* const other =
      form.norm_inputs ? ".post_attention_layernorm." : ".mlp_result_norm.";  // canonical
  EXPECT_GT(largest_deviation(with_names_swapped(".attention_result_norm.", other), golden_),
            golden_.tolerance);
}

TEST_P(TinyCheckpoint, WithNormsThatAreOffByOneExceedsTheTolerance) {
  const auto of_directory = [](const TensorEntry& tensor) { return tensor.plus != 0; };
  const auto& all = checkpoint_.tensors();
  if (std::none_of(all.begin(), all.end(), of_directory)) GTEST_SKIP() << "nothing is added";
  for (const float plus : {0.0f, 2.0f}) {
    std::vector<TensorEntry> tensors = all;
    for (TensorEntry& tensor : tensors)
      if (tensor.plus != 0) tensor.plus = plus;
    EXPECT_GT(largest_deviation(with(std::move(tensors), checkpoint_.config()), golden_),
              golden_.tolerance);
  }
}

class CheckpointWithFactors : public TinyCheckpoint {};

TEST_P(CheckpointWithFactors, WithoutOneOfThemExceedsTheTolerance) {
  int count = 0;
  for (const TensorEntry& one : checkpoint_.tensors()) {
    if (one.factors.empty()) continue;
    std::vector<TensorEntry> tensors = checkpoint_.tensors();
    std::ranges::find(tensors, one.name, &TensorEntry::name)->factors.clear();
    EXPECT_GT(largest_deviation(with(std::move(tensors), checkpoint_.config()), golden_),
              golden_.tolerance)
        << one.name;
    ++count;
  }
  EXPECT_GT(count, 0);
}

INSTANTIATE_TEST_SUITE_P(Nvfp4, CheckpointWithFactors,
                         ::testing::Values(TinyCase{"mixtral_factors_gguf",
                                                    "mixtral_factors.gguf"}),
                         [](const auto& info) { return std::string(info.param.golden); });

class CheckpointWithDeltaNets : public TinyCheckpoint {};

TEST_P(CheckpointWithDeltaNets, WithANormThatIsOffByOneExceedsTheTolerance) {
  std::vector<TensorEntry> tensors = checkpoint_.tensors();
  for (TensorEntry& tensor : tensors)
    if (tensor.name.find("linear_attn.norm") != std::string::npos) tensor.plus = 1;
  EXPECT_GT(largest_deviation(with(std::move(tensors), checkpoint_.config()), golden_),
            golden_.tolerance);
}

TEST_P(CheckpointWithDeltaNets, WithGatesAfterAllQueriesExceedsTheTolerance) {
  ASSERT_EQ(checkpoint_.config().heads, 2);
  ASSERT_EQ(checkpoint_.files().size(), 1U);
  std::stringstream bytes;
  bytes << std::ifstream(checkpoint_.files().front(), std::ios::binary).rdbuf();
  std::string all = bytes.str();
  // The rows of the first head's gate and of the second's queries change places.
  for (const TensorEntry& tensor : checkpoint_.tensors()) {
    if (tensor.name.find("self_attn.q_proj") == std::string::npos) continue;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(tensor.offset);
    const auto quarter = static_cast<std::ptrdiff_t>(tensor.bytes / 4);
    std::swap_ranges(first + quarter, first + 2 * quarter, first + 2 * quarter);
  }
  const TempDir directory;
  const auto file = directory.path() / "weights";
  std::ofstream(file, std::ios::binary) << all;
  EXPECT_GT(largest_deviation(Checkpoint(checkpoint_.root(), {file}, checkpoint_.tensors(),
                                         checkpoint_.config(), checkpoint_.metadata()),
                              golden_),
            golden_.tolerance);
}

INSTANTIATE_TEST_SUITE_P(Families, CheckpointWithDeltaNets,
                         ::testing::Values(TinyCase{"qwen3_5", "qwen3_5"},
                                           TinyCase{"qwen3_5_gguf", "qwen3_5.gguf"},
                                           TinyCase{"qwen3_5_moe", "qwen3_5_moe"},
                                           TinyCase{"qwen3_5_moe_gguf", "qwen3_5_moe.gguf"},
                                           TinyCase{"qwen3_next", "qwen3_next"},
                                           TinyCase{"qwen3_next_gguf", "qwen3_next.gguf"}),
                         [](const auto& info) { return std::string(info.param.golden); });

TEST(LongText, OfDeltaNetsOnEmulatedCudaDoesSoInF32) {
  expect_as_in_f32(Checkpoint::open(kData / "qwen3_5"), read_golden("qwen3_5_long"), "emulated");
}
TEST(LongText, OfDeltaNetsGivesTheReferencesLogitsAndText) {
  for (const std::string name : {"qwen3_5", "qwen3_next"}) {
    SCOPED_TRACE(name);
    const Checkpoint checkpoint = Checkpoint::open(kData / name);
    const Golden golden = read_golden(name + "_long");
    ASSERT_EQ(golden.prompt.size(), 300U);
    EXPECT_LE(largest_deviation(checkpoint, golden), golden.tolerance);
    expect_same_greedy_text(checkpoint, golden);
    expect_mutants_exceed_tolerance(checkpoint, golden, golden.tolerance);
  }
}

TEST_P(TinyCheckpoint, WithTheNextHeadsNormExceedsTheTolerance) {
  if (!checkpoint_.config().layer(0).each_head_norm || !checkpoint_.config().layer(0).qk_norm)
    GTEST_SKIP() << "heads have no norms of their own";
  std::vector<TensorEntry> tensors = checkpoint_.tensors();
  for (TensorEntry& tensor : tensors)
    if (tensor.name.find("self_attn.q_norm") != std::string::npos)
      tensor.offset += tensor.bytes / static_cast<std::uint64_t>(tensor.shape.at(0));
  EXPECT_GT(largest_deviation(with(std::move(tensors), checkpoint_.config()), golden_),
            golden_.tolerance);
}

TEST_P(TinyCheckpoint, WithAnMlpThatReadsWhatTheAttentionLeavesExceedsTheTolerance) {
  if (!is_parallel(checkpoint_.config())) GTEST_SKIP() << "it does so";
  std::vector<TensorEntry> tensors = checkpoint_.tensors();
  for (std::size_t i = 0, n = tensors.size(); i < n; ++i)
    if (const std::size_t at = tensors[i].name.find("input_layernorm"); at != std::string::npos) {
      tensors.push_back(tensors[i]);
      tensors.back().name.replace(at, 15, "post_attention_layernorm");
    }
  ModelConfig config = checkpoint_.config();
  config.form.parallel = false;
  EXPECT_GT(largest_deviation(with(std::move(tensors), std::move(config)), golden_),
            golden_.tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Families, TinyCheckpoint,
    ::testing::Values(
        TinyCase{"llama2", "llama2"}, TinyCase{"llama2", "llama2_shards"},
        TinyCase{"llama2", "llama2_odd"}, TinyCase{"llama3", "llama3"},
        TinyCase{"llama_linear", "llama_linear"}, TinyCase{"llama_yarn", "llama_yarn"},
        TinyCase{"mistral", "mistral"}, TinyCase{"smollm2", "smollm2"}, TinyCase{"qwen2", "qwen2"},
        TinyCase{"qwen3", "qwen3"}, TinyCase{"opt", "opt"}, TinyCase{"opt_after", "opt_after"},
        TinyCase{"bloom", "bloom"}, TinyCase{"ministral3", "ministral3"},
        TinyCase{"ministral3_gguf", "ministral3.gguf"}, TinyCase{"mistral3", "mistral3"},
        TinyCase{"mistral3_tied", "mistral3_tied"}, TinyCase{"seed_oss", "seed_oss"},
        TinyCase{"seed_oss_gguf", "seed_oss.gguf"}, TinyCase{"mixtral", "mixtral"},
        TinyCase{"granitemoe", "granitemoe"}, TinyCase{"granitemoe_gguf", "granitemoe.gguf"},
        TinyCase{"ernie4_5_moe", "ernie4_5_moe"},
        TinyCase{"ernie4_5_moe_gguf", "ernie4_5_moe.gguf"},
        TinyCase{"mixtral_gguf", "mixtral.gguf"}, TinyCase{"qwen3_moe", "qwen3_moe"},
        TinyCase{"qwen3_moe_fp8", "qwen3_moe_fp8"}, TinyCase{"qwen3_5_fp8", "qwen3_5_fp8"},
        TinyCase{"qwen3_next_fp8", "qwen3_next_fp8"}, TinyCase{"qwen3_moe_gguf", "qwen3_moe.gguf"},
        TinyCase{"olmoe", "olmoe"}, TinyCase{"minimax_m2", "minimax_m2"},
        TinyCase{"minimax_m2_gguf", "minimax_m2.gguf"}, TinyCase{"dots1", "dots1"},
        TinyCase{"dots1_gguf", "dots1.gguf"}, TinyCase{"qwen2_moe", "qwen2_moe"},
        TinyCase{"qwen2_moe_gguf", "qwen2_moe.gguf"}, TinyCase{"glm4_moe", "glm4_moe"},
        TinyCase{"glm4_moe_gguf", "glm4_moe.gguf"}, TinyCase{"olmoe_gguf", "olmoe.gguf"},
        TinyCase{"mistral_window", "mistral_window"}, TinyCase{"qwen2_window", "qwen2_window"},
        TinyCase{"phi3", "phi3"}, TinyCase{"phi3_longrope", "phi3_longrope"},
        TinyCase{"phi3_longrope_gguf", "phi3_longrope.gguf"}, TinyCase{"gemma2", "gemma2"},
        TinyCase{"gemma3", "gemma3"}, TinyCase{"gemma3_eyes", "gemma3_eyes"},
        TinyCase{"gemma4", "gemma4"}, TinyCase{"gemma4_eyes", "gemma4_eyes"},
        TinyCase{"gemma4_gguf", "gemma4.gguf"}, TinyCase{"exaone", "exaone"},
        TinyCase{"exaone_gguf", "exaone.gguf"}, TinyCase{"hunyuan", "hunyuan"},
        TinyCase{"hunyuan_gguf", "hunyuan.gguf"}, TinyCase{"apertus", "apertus"},
        TinyCase{"apertus_gguf", "apertus.gguf"}, TinyCase{"cohere_qk", "cohere_qk"},
        TinyCase{"cohere_qk_gguf", "cohere_qk.gguf"}, TinyCase{"granite4", "granite4"},
        TinyCase{"olmo2", "olmo2"}, TinyCase{"olmo3", "olmo3"}, TinyCase{"exaone4", "exaone4"},
        TinyCase{"exaone4_full", "exaone4_full"}, TinyCase{"glm4", "glm4"},
        TinyCase{"granite", "granite"}, TinyCase{"smollm3", "smollm3"},
        TinyCase{"cohere", "cohere"}, TinyCase{"cohere2", "cohere2"}, TinyCase{"arcee", "arcee"},
        TinyCase{"nemotron", "nemotron"}, TinyCase{"starcoder2", "starcoder2"},
        TinyCase{"mistral_window_gguf", "mistral_window.gguf"}, TinyCase{"phi3_gguf", "phi3.gguf"},
        TinyCase{"gemma2_gguf", "gemma2.gguf"}, TinyCase{"gemma3_gguf", "gemma3.gguf"},
        TinyCase{"olmo2_gguf", "olmo2.gguf"}, TinyCase{"olmo3_gguf", "olmo3.gguf"},
        TinyCase{"exaone4_gguf", "exaone4.gguf"}, TinyCase{"glm4_gguf", "glm4.gguf"},
        TinyCase{"granite_gguf", "granite.gguf"}, TinyCase{"smollm3_gguf", "smollm3.gguf"},
        TinyCase{"cohere_gguf", "cohere.gguf"}, TinyCase{"cohere2_gguf", "cohere2.gguf"},
        TinyCase{"arcee_gguf", "arcee.gguf"}, TinyCase{"nemotron_gguf", "nemotron.gguf"},
        TinyCase{"starcoder2_gguf", "starcoder2.gguf"}, TinyCase{"gpt_oss_gguf", "gpt_oss.gguf"},
        TinyCase{"gpt_oss_mxfp4_gguf", "gpt_oss_mxfp4.gguf"}, TinyCase{"llama_gguf", "llama.gguf"},
        TinyCase{"llama3_gguf", "llama3.gguf"}, TinyCase{"qwen2_gguf", "qwen2.gguf"},
        TinyCase{"qwen3_5", "qwen3_5"}, TinyCase{"qwen3_5_gguf", "qwen3_5.gguf"},
        TinyCase{"qwen3_5_moe", "qwen3_5_moe"}, TinyCase{"qwen3_5_moe_gguf", "qwen3_5_moe.gguf"},
        TinyCase{"qwen3_next", "qwen3_next"}, TinyCase{"qwen3_next_gguf", "qwen3_next.gguf"},
        TinyCase{"qwen3_next_ssm_in_gguf", "qwen3_next_ssm_in.gguf"},
        TinyCase{"qwen3_gguf", "qwen3.gguf"}, TinyCase{"llama_iq_gguf", "llama_iq.gguf"},
        TinyCase{"mixtral_factors_gguf", "mixtral_factors.gguf"}),
    [](const auto& info) { return test_name(info.param.checkpoint); });

/// The real model: CANOPY_SMOLLM2, or where scripts/demo puts it.
class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("CANOPY_SMOLLM2");
    path_ = given ? given : kData / "../../../models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path_))
      GTEST_SKIP() << "no " << path_ << "; run scripts/demo, or set CANOPY_SMOLLM2 to the file";
  }
  std::filesystem::path path_;
  Golden golden_ = read_golden("smollm2_135m");
};

TEST_F(SmolLm2, GivesTheReferencesLogitsWithinRounding) {
  EXPECT_LE(largest_deviation(Checkpoint::open(path_), golden_), golden_.tolerance);
}
TEST_F(SmolLm2, GivesTheReferencesGreedyTextWhereItsMarginsAllow) {
  expect_same_greedy_text(Checkpoint::open(path_), golden_);
}
TEST_F(SmolLm2, HasTheReferencesRotaryFrequencies) {
  expect_same_rope(Checkpoint::open(path_).config(), golden_);
}
TEST_F(SmolLm2, WithOneWrongEquationExceedsTheTolerance) {
  expect_mutants_exceed_tolerance(Checkpoint::open(path_), golden_, golden_.tolerance);
}

}  // namespace
}  // namespace canopy
