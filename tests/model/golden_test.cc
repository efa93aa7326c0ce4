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
#include <string>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "offload/streamer.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/rope_scaling.h"
#include "src/model/transformer.h"
#include "tests/kernels/emulated_cuda.h"
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
        kv_(*device_, checkpoint.config(), room(golden), {}),
        transformer_(*device_, checkpoint.config(), *weights_,
                     {.max_nodes = room(golden),
                      .max_logit_rows = static_cast<int>(golden.rows.size()),
                      .max_context = room(golden)}) {}

  /// Appends the tokens to the sequence; returns the logits of `rows` of them, a row after another.
  std::vector<float> feed(const std::vector<TokenId>& tokens,
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

 private:
  static int room(const Golden& g) { return static_cast<int>(g.prompt.size() + g.greedy.size()); }
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> compute_;
  Notes notes_;
  std::unique_ptr<WeightSource> weights_;
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

/// An implementer's mistake: a config that differs from the file's in one point of the equations.
struct Mutant {
  const char* what;
  bool (*applies)(const ModelConfig&);
  void (*apply)(ModelConfig&);
  bool fine = false;  // less than what rounding to 16 bits does
};
bool is_rotary(const ModelConfig& c) { return c.form.positions == PositionKind::kRotary; }
bool has_windows(const ModelConfig& c) { return c.layer(0).window != 0; }
bool is_clamped(const ModelConfig& c) { return c.experts.gating.kind == GatingKind::kClamped; }
const Mutant kMutants[] = {
    {"the default rms_norm_eps instead of the file's",
     // Norms after parts see values of order one, next to which either epsilon is rounding.
     [](const ModelConfig& c) { return c.norm_eps != 1e-6f && !c.form.norm_after; },
     [](ModelConfig& c) { c.norm_eps = 1e-6f; }, true},
    {"a rope theta that is one percent too large", is_rotary,
     [](ModelConfig& c) {
       const auto n = c.rope_inverse_frequency.size();
       for (std::size_t i = 0; i < n; ++i)
         c.rope_inverse_frequency[i] *=
             std::pow(1.01f, -static_cast<float>(i) / static_cast<float>(n));
     },
     true},
    {"rotated pairs of the other kind", is_rotary,
     [](ModelConfig& c) { c.rope_adjacent_pairs = !c.rope_adjacent_pairs; }},
    {"no attention factor", [](const ModelConfig& c) { return c.rope_magnitude != 1.0f; },
     [](ModelConfig& c) { c.rope_magnitude = 1.0f; }},
    {"queries of one size at all positions", [](const ModelConfig& c) { return c.query_beta != 0; },
     [](ModelConfig& c) { c.query_beta = 0; }},
    {"queries that grow from one position on too late",
     [](const ModelConfig& c) { return c.query_beta != 0; },
     [](ModelConfig& c) { ++c.query_period; }, true},
    {"no QKV bias", [](const ModelConfig& c) { return c.layer(0).qkv_bias; },
     [](ModelConfig& c) { c.layer_kinds.front().qkv_bias = false; }},
    {"no norm of queries and keys", [](const ModelConfig& c) { return c.layer(0).qk_norm; },
     [](ModelConfig& c) { c.layer_kinds.front().qk_norm = false; }},
    {"no bias of the output and the MLP",
     [](const ModelConfig& c) { return c.layer(0).other_biases; },
     [](ModelConfig& c) { c.layer_kinds.front().other_biases = false; }},
    {"RMS norms instead of layer norms",
     [](const ModelConfig& c) { return c.form.norm == NormKind::kLayer; },
     [](ModelConfig& c) { c.form.norm = NormKind::kRms; }},
    {"layer norms behind each part instead of before it",
     [](const ModelConfig& c) { return c.form.norm == NormKind::kLayer && !c.form.norm_after; },
     [](ModelConfig& c) { c.form.norm_after = true; }},
    {"the embedding as it is", [](const ModelConfig& c) { return c.form.embedding_norm; },
     [](ModelConfig& c) { c.form.embedding_norm = false; }},
    {"ReLU instead of GELU", [](const ModelConfig& c) { return c.form.mlp == MlpKind::kGeluTanh; },
     [](ModelConfig& c) { c.form.mlp = MlpKind::kRelu; }},
    {"GELU instead of ReLU", [](const ModelConfig& c) { return c.form.mlp == MlpKind::kRelu; },
     [](ModelConfig& c) { c.form.mlp = MlpKind::kGeluTanh; }},
    {"positions from the table's first row on",
     [](const ModelConfig& c) { return c.form.position_offset != 0; },
     [](ModelConfig& c) {
       c.max_positions += std::exchange(c.form.position_offset, 0);  // the table stays as large
     }},
    {"one expert too many", [](const ModelConfig& c) { return c.experts.active < c.experts.count; },
     [](ModelConfig& c) { ++c.experts.active; }},
    {"one expert too few", [](const ModelConfig& c) { return c.experts.active > 1; },
     [](ModelConfig& c) { --c.experts.active; }},
    {"weights of experts over their sum, or not over it",
     [](const ModelConfig& c) { return c.experts.count > 0; },
     [](ModelConfig& c) { c.experts.normalised = !c.experts.normalised; }},
    {"weights of experts as they are", [](const ModelConfig& c) { return c.experts.scale != 1; },
     [](ModelConfig& c) { c.experts.scale = 1; }},
    {"a softmax over experts instead of sigmoids",
     [](const ModelConfig& c) { return c.experts.score == RouterScore::kSigmoid; },
     [](ModelConfig& c) { c.experts.score = RouterScore::kSoftmax; }},
    {"experts chosen without their bias",
     [](const ModelConfig& c) { return c.experts.choice_bias; },
     [](ModelConfig& c) { c.experts.choice_bias = false; }},
    {"no expert that all rows have", [](const ModelConfig& c) { return c.experts.shared_dim > 0; },
     [](ModelConfig& c) { c.experts.shared_dim = 0; }},
    {"the expert that all rows have, without its score",
     [](const ModelConfig& c) { return c.experts.shared_switch; },
     [](ModelConfig& c) { c.experts.shared_switch = false; }},
    {"all of each head rotated",
     [](const ModelConfig& c) {
       return is_rotary(c) && 2 * std::ssize(c.rope_inverse_frequency) < c.head_dim;
     },
     [](ModelConfig& c) {
       const auto rotated = static_cast<float>(2 * c.rope_inverse_frequency.size());
       const float second = c.rope_inverse_frequency.at(1);
       c.rope_inverse_frequency.clear();
       for (int i = 0; i < c.head_dim / 2; ++i)
         c.rope_inverse_frequency.push_back(
             std::pow(second, static_cast<float>(i) * rotated / static_cast<float>(c.head_dim)));
     }},
    {"a window of one key too many", has_windows,
     [](ModelConfig& c) { c.set_window(c.layer(0).window + 1); }},
    {"a window of one key too few", has_windows,
     [](ModelConfig& c) { c.set_window(c.layer(0).window - 1); }},
    {"windows in the other layers", has_windows,
     [](ModelConfig& c) {
       for (std::uint8_t& kind : c.kind_of_layer) kind = kind == 0 ? 1 : 0;
     }},
    {"no windows", has_windows, [](ModelConfig& c) { c.set_window(0); }},
    {"windows in all layers", has_windows,
     [](ModelConfig& c) { c.layer_kinds.back().window = c.layer(0).window; }},
    {"no sinks", [](const ModelConfig& c) { return c.any_layer(&LayerConfig::sinks); },
     [](ModelConfig& c) {
       for (LayerConfig& kind : c.layer_kinds) kind.sinks = false;
     }},
    {"experts that are not clamped", is_clamped,
     [](ModelConfig& c) { c.experts.gating.limit = 1e9f; }},
    {"experts that are clamped a little later", is_clamped,
     [](ModelConfig& c) { c.experts.gating.limit *= 1.1f; }, true},
    {"a gate that is a little less steep", is_clamped,
     [](ModelConfig& c) { c.experts.gating.alpha = 1.6f; }, true},
    {"experts with the usual gate", is_clamped,
     [](ModelConfig& c) { c.experts.gating = Gating(); }},
    {"yarn between whole pairs", [](const ModelConfig& c) { return c.architecture == "gpt_oss"; },
     [](ModelConfig& c) {  // of the files' numbers
       RopeScaling whole;
       whole.type = RopeScaling::Type::kYarn;
       whole.factor = whole.beta_fast = 4;
       whole.original_positions = 64;
       put_rope(whole, c);
     },
     true},
    {"slopes of half the size", [](const ModelConfig& c) { return !c.alibi_slopes.empty(); },
     [](ModelConfig& c) {
       for (float& slope : c.alibi_slopes) slope /= 2;
     }},
};

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
  expect_as_on_a_gpu(checkpoint_, golden_, "emulated");
  expect_mutants_exceed_tolerance(checkpoint_, golden_,
                                  tolerance_on_a_gpu(checkpoint_.config(), golden_), "emulated");
}
TEST_P(TinyCheckpoint, OnCudaDiffersByTheRoundingOfActivationsAlone) {
  if (find_gpus().all.empty()) GTEST_SKIP() << find_gpus().why_none;
  expect_as_on_a_gpu(checkpoint_, golden_, "cuda");
}
TEST_P(TinyCheckpoint, HasTheReferencesRotaryFrequencies) {
  expect_same_rope(checkpoint_.config(), golden_);
}
TEST_P(TinyCheckpoint, WithOneWrongEquationExceedsTheTolerance) {
  expect_mutants_exceed_tolerance(checkpoint_, golden_, golden_.tolerance);
}

TEST_P(TinyCheckpoint, WithGateAndUpTheOtherWayRoundExceedsTheTolerance) {
  if (checkpoint_.config().form.mlp != MlpKind::kSwiglu) GTEST_SKIP() << "there is no gate";
  std::vector<TensorEntry> tensors = checkpoint_.tensors();
  for (TensorEntry& tensor : tensors)
    for (const auto& [from, to] :
         {std::pair{".gate_proj.", ".up_proj."}, {".up_proj.", ".gate_proj."}})
      if (const std::size_t at = tensor.name.find(from); at != std::string::npos) {
        tensor.name.replace(at, std::string(from).size(), to);
        break;
      }
  const Checkpoint swapped(checkpoint_.root(), checkpoint_.files(), std::move(tensors),
                           checkpoint_.config(), checkpoint_.metadata());
  EXPECT_GT(largest_deviation(swapped, golden_), golden_.tolerance);
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
        TinyCase{"mixtral_gguf", "mixtral.gguf"}, TinyCase{"qwen3_moe", "qwen3_moe"},
        TinyCase{"qwen3_moe_fp8", "qwen3_moe_fp8"}, TinyCase{"qwen3_moe_gguf", "qwen3_moe.gguf"},
        TinyCase{"olmoe", "olmoe"}, TinyCase{"minimax_m2", "minimax_m2"},
        TinyCase{"minimax_m2_gguf", "minimax_m2.gguf"}, TinyCase{"dots1", "dots1"},
        TinyCase{"dots1_gguf", "dots1.gguf"}, TinyCase{"qwen2_moe", "qwen2_moe"},
        TinyCase{"qwen2_moe_gguf", "qwen2_moe.gguf"}, TinyCase{"glm4_moe", "glm4_moe"},
        TinyCase{"glm4_moe_gguf", "glm4_moe.gguf"}, TinyCase{"olmoe_gguf", "olmoe.gguf"},
        TinyCase{"gpt_oss_gguf", "gpt_oss.gguf"},
        TinyCase{"gpt_oss_mxfp4_gguf", "gpt_oss_mxfp4.gguf"}, TinyCase{"llama_gguf", "llama.gguf"},
        TinyCase{"llama3_gguf", "llama3.gguf"}, TinyCase{"qwen2_gguf", "qwen2.gguf"},
        TinyCase{"qwen3_gguf", "qwen3.gguf"}),
    [](const auto& info) {
      std::string name = info.param.checkpoint;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

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
