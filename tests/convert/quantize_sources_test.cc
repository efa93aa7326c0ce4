// Models of FP8 and packed ones as sources of `canopy quantize`: the file is that of the same
// weights stored plainly, and what is read back is their function.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "src/convert/enlarge/inflate.h"
#include "src/convert/pack/pack.h"
#include "src/convert/quantize/quantize.h"
#include "tests/checkpoint/fp8_files.h"
#include "tests/convert/tiny_outputs.h"

namespace canopy::testing {
namespace {

const Progress kNoProgress = [](std::uint64_t, std::uint64_t) {};
constexpr DType kTypes[] = {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K};

/// Expects logits that weights rounded with this relative error give. It moves a product's output
/// by its own share, and so the logits; a layer has four products in a row, and the head is one. An
/// estimate, and twice that for its roughness.
void expect_near(const std::vector<float>& logits, const std::vector<float>& expected, int layers,
                 double relative_error) {
  float largest = 0;
  for (const float logit : expected) largest = std::max(largest, std::abs(logit));
  const double bound = 2 * std::sqrt(4 * layers + 1) * relative_error * double{largest};
  ASSERT_EQ(logits.size(), expected.size());
  for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], bound);
}

/// Gives products with BF16 weights the bits of those with FP8 ones, as long as it lives: by
/// vectors, and not by the matrix unit that some CPUs have for BF16 alone (docs/math.md, C4).
struct WithoutMatrixUnit {
  WithoutMatrixUnit() {
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~std::int64_t{HWY_AVX3_DL});
  }
  ~WithoutMatrixUnit() { hwy::SetSupportedTargetsForTest(0); }
};

/// A model whose layers are FP8, and the same with these weights in F32. Both have one name, which
/// files keep, and a head and an embedding of BF16.
class QuantizeFp8 : public ::testing::TestWithParam<Fp8Form> {
 protected:
  void SetUp() override {
    Fp8Models models = fp8_models(GetParam(), {.family = "qwen3"});
    for (TinyModel* const model : {&models.fp8, &models.plain})
      for (const char* const name : {"model.embed_tokens.weight", "lm_head.weight"})
        as_bf16(model->at(name));
    write_hugging_face(dir_ / "fp8/model", models.fp8, 1, 3);
    write_hugging_face(dir_ / "plain/model", models.plain);
  }
  static void as_bf16(FileTensor& tensor) {
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    tensor.bytes.clear(), tensor.dtype = DType::kBF16;
    for (const float value : values) append(tensor.bytes, bf16_from_f32(value));
  }
  Checkpoint source(const char* which) const { return Checkpoint::open(dir_ / which / "model"); }
  const TempDir dir_;
};

TEST_P(QuantizeFp8, WritesTheFileOfTheDequantisedModel) {
  for (const DType type : kTypes) {
    SCOPED_TRACE(name(type));
    const auto of_fp8 = dir_ / "fp8" / name(type), of_plain = dir_ / "plain" / name(type);
    const QuantizeReport ours = quantize(source("fp8"), of_fp8, type, kNoProgress, 2),
                         theirs = quantize(source("plain"), of_plain, type, kNoProgress, 2);
    EXPECT_TRUE(test::contents(of_fp8) == test::contents(of_plain));
    EXPECT_EQ(ours.relative_error, theirs.relative_error);
    EXPECT_EQ(ours.same_function, theirs.same_function);
  }
}

TEST_P(QuantizeFp8, ReadsBackAsTheSameFunctionWithinTheTypesRounding) {
  const WithoutMatrixUnit vectors;
  const Checkpoint fp8 = source("fp8");
  const std::vector<float> expected = test::logits_of(fp8);
  EXPECT_EQ(test::logits_of(source("plain")), expected);
  for (const DType type : kTypes) {
    SCOPED_TRACE(name(type));
    const auto file = dir_ / name(type);
    const QuantizeReport report = quantize(fp8, file, type, kNoProgress);
    const std::vector<float> logits = test::logits_of(Checkpoint::open(file));
    // BF16 holds four bits of mantissa times a power of two, and not their products with any scale.
    const bool exact = type == DType::kBF16 && std::string(GetParam().scale_dtype) == "F8_E8M0";
    EXPECT_EQ(report.same_function, exact);
    EXPECT_EQ(report.relative_error == 0, exact);
    if (exact)
      EXPECT_EQ(logits, expected);
    else
      expect_near(logits, expected, fp8.config().layers, report.relative_error);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, QuantizeFp8,
                         ::testing::Values(kFp8Forms[0], kFp8Forms[2], kFp8Forms[4], kFp8Forms[7]),
                         [](const auto& info) { return std::string(info.param.name); });

/// An enlargement of a tiny model, whose own rows are too short to be packed, and its packed form.
class QuantizePacked : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    inflate(test::tiny_model(GetParam()),
            {.output = dir_ / "model", .small = dir_ / "small", .bytes = 2'000'000, .seed = 3},
            kNoProgress);
    std::filesystem::create_directory(dir_ / "packed");
    EXPECT_GT(pack(plain(), dir_ / "packed/model", 2, kNoProgress).packed, 0);
  }
  Checkpoint plain() const { return Checkpoint::open(dir_ / "model"); }
  Checkpoint packed() const { return Checkpoint::open(dir_ / "packed/model"); }
  const TempDir dir_;
};

TEST_P(QuantizePacked, WritesTheFileOfTheModelThatWasPacked) {
  for (const DType type : kTypes) {
    SCOPED_TRACE(name(type));
    const auto of_packed = dir_ / "packed" / name(type), of_plain = dir_ / name(type);
    const QuantizeReport ours = quantize(packed(), of_packed, type, kNoProgress, 2),
                         theirs = quantize(plain(), of_plain, type, kNoProgress, 2);
    EXPECT_TRUE(test::contents(of_packed) == test::contents(of_plain));
    EXPECT_EQ(ours.relative_error, theirs.relative_error);
    EXPECT_EQ(ours.same_function, type == DType::kBF16);
    EXPECT_EQ(theirs.same_function, type == DType::kBF16);
  }
}

TEST_P(QuantizePacked, ReadsBackBitForBitIn16Bits) {
  quantize(packed(), dir_ / "model.gguf", DType::kBF16, kNoProgress);
  const Checkpoint gguf = Checkpoint::open(dir_ / "model.gguf");
  // A GGUF file of llama adds the products of queries with keys in another order.
  if (!gguf.config().rope_adjacent_pairs) {
    EXPECT_EQ(test::logits_of(gguf), test::logits_of(packed()));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, QuantizePacked,
                         ::testing::Values("llama2", "llama3", "mistral", "ministral3", "qwen2",
                                           "qwen3", "seed_oss", "smollm2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace canopy::testing
