// GGUF files of models with delta nets: value heads, rates of decay and joined inputs lie otherwise
// there than in a directory.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/formats/half.h"
#include "src/convert/pack/pack.h"
#include "src/convert/quantize/quantize.h"
#include "src/convert/weight_rows.h"
#include "tests/convert/tiny_outputs.h"
#include "tests/error_of.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

class QuantizeDelta : public ::testing::TestWithParam<const char*> {
 protected:
  const TempDir dir_;
  const Checkpoint source_ = test::tiny_model(GetParam());
};

TEST_P(QuantizeDelta, WritesTheSameModelInTheOrderOfGguf) {
  const QuantizeReport report =
      quantize(source_, dir_.path() / "q.gguf", DType::kBF16, test::kSilent);
  EXPECT_TRUE(report.same_function);  // a source of BF16
  const Checkpoint out = Checkpoint::open(dir_.path() / "q.gguf");
  DeltaConfig expected = source_.config().delta;
  expected.by_turns = true;
  expected.rate_is_log = false;
  EXPECT_TRUE(out.config().delta == expected);
  EXPECT_EQ(out.config().kind_of_layer, source_.config().kind_of_layer);
  const std::vector<float> theirs = test::logits_of(source_), ours = test::logits_of(out);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)  // sums of another order
    ASSERT_NEAR(ours[i], theirs[i], 1e-4f) << i;
}

INSTANTIATE_TEST_SUITE_P(Directories, QuantizeDelta, ::testing::Values("qwen3_5", "qwen3_5_moe"),
                         [](const auto& info) { return test_name(info.param); });

using Rows = std::vector<std::vector<float>>;

Rows rows_of(const Checkpoint& model, const std::string& name) {
  WeightRows reader(model);
  const TensorEntry* const tensor = model.find("model.layers.0.linear_attn." + name);
  require(tensor != nullptr, "the layer has that tensor");
  Rows rows(static_cast<std::size_t>(WeightRows::rows(*tensor)),
            std::vector<float>(static_cast<std::size_t>(WeightRows::columns(*tensor))));
  for (std::size_t i = 0; i < rows.size(); ++i)
    reader.read(*tensor, static_cast<std::int64_t>(i), rows[i]);
  return rows;
}

/// Rounded as a file of BF16 has them.
Rows in_bf16(Rows rows) {
  for (std::vector<float>& row : rows)
    for (float& value : row) value = f32_from_bf16(bf16_from_f32(value));
  return rows;
}

TEST(QuantizeDeltaParts, OfInputsByKeyHeadsAreThoseOfQueriesKeysAndValuesAndThoseOfGates) {
  const TempDir dir;
  const Checkpoint source = test::tiny_model("qwen3_next_fp8");
  quantize(source, dir.path() / "q.gguf", DType::kBF16, test::kSilent);
  const Checkpoint out = Checkpoint::open(dir.path() / "q.gguf");
  EXPECT_FALSE(out.config().delta.joined_inputs || out.config().delta.by_turns);
  const DeltaConfig& delta = source.config().delta;
  const Rows joined = in_bf16(rows_of(source, "in_proj_qkvz.weight"));
  Rows q, k, v, z;
  auto next = joined.begin();
  const auto take = [&](int count, Rows& to) {
    to.insert(to.end(), next, next + count);
    next += count;
  };
  for (int head = 0; head < delta.key_heads; ++head) {
    take(delta.key_dim, q), take(delta.key_dim, k);
    take(delta.values() / delta.key_heads, v), take(delta.values() / delta.key_heads, z);
  }
  ASSERT_EQ(next, joined.end());
  q.insert(q.end(), k.begin(), k.end());
  q.insert(q.end(), v.begin(), v.end());
  EXPECT_EQ(rows_of(out, "in_proj_qkv.weight"), q);
  EXPECT_EQ(rows_of(out, "in_proj_z.weight"), z);
  Rows rates = rows_of(source, "A_log");
  for (float& rate : rates.front()) rate = -std::exp(rate);
  EXPECT_EQ(rows_of(out, "A_log"), rates);
  for (const char* name : {"dt_bias", "in_proj_ba.weight", "conv1d.weight"})
    EXPECT_EQ(rows_of(out, name), rows_of(source, name)) << name;
}

TEST(QuantizeDeltaParts, InputsOfOneMatrixAreTakenApart) {
  const TempDir dir;
  // The same weights in both layouts; queries, keys and values are Q8_0 in both.
  for (const char* name : {"qwen3_next", "qwen3_next_ssm_in"})
    quantize(test::tiny_model(std::string(name) + ".gguf"), dir.path() / name, DType::kQ8_0,
             test::kSilent);
  const Checkpoint apart = Checkpoint::open(dir.path() / "qwen3_next"),
                   joined = Checkpoint::open(dir.path() / "qwen3_next_ssm_in");
  EXPECT_EQ(rows_of(joined, "in_proj_qkv.weight"), rows_of(apart, "in_proj_qkv.weight"));
}

TEST(QuantizeDeltaParts, AFileInTheOrderOfGgufIsNotPacked) {
  const TempDir dir;
  quantize(test::tiny_model("qwen3_5"), dir.path() / "q.gguf", DType::kBF16, test::kSilent);
  const Checkpoint model = Checkpoint::open(dir.path() / "q.gguf");
  const std::string error = error_of([&] { pack(model, dir.path() / "packed", 1, test::kSilent); });
  EXPECT_NE(error.find("a model with delta nets is packed from its Hugging Face directory"),
            error.npos)
      << error;
}

TEST(QuantizeDeltaParts, LayersThatAreDenseInPartAreRefused) {
  const TempDir dir;
  const std::string error = error_of([&] {
    quantize(test::tiny_model("qwen3_next"), dir.path() / "q.gguf", DType::kQ8_0, test::kSilent);
  });
  EXPECT_NE(error.find("its layers differ in size"), error.npos) << error;
}

}  // namespace
}  // namespace canopy
