// Packed mixtures of experts: what was packed comes back, and computes the same whether experts are
// in memory, travel with their layers or come out of a cache.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/formats/packed_format.h"
#include "src/convert/pack/pack.h"
#include "src/convert/quantize/quantize.h"
#include "src/convert/weight_rows.h"
#include "tests/convert/expert_places.h"
#include "tests/convert/wide_model.h"
#include "tests/temp_dir.h"

namespace canopy::test {
namespace {

void no_progress(std::uint64_t, std::uint64_t) {}

class PackedMixture : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    // Rows of 288 columns and more become smaller; those of 24, in a down of Qwen3-MoE, stay.
    write_wide_model(GetParam(), dir_ / "model",
                     {{"hidden_size", 288}, {"intermediate_size", 320}});
    std::filesystem::create_directory(dir_ / "packed");
    pack(plain(), dir_ / "packed/model", 2, no_progress);
  }
  Checkpoint plain() const { return Checkpoint::open(dir_ / "model"); }
  Checkpoint packed() const { return Checkpoint::open(dir_ / "packed/model"); }
  const TempDir dir_;
};

TEST_P(PackedMixture, HasExpertsThatArePacked) {
  const SweepLayout apart = lay_out_sweep(packed(), ExpertsAre::kApart);
  ASSERT_FALSE(apart.experts.empty());
  for (const ExpertLayout& expert : apart.experts) {
    bool any = false;
    for (const UnitTensor& matrix : expert.matrices) any = any || is_packed(matrix.tensor.dtype);
    EXPECT_TRUE(any) << expert.expert << " of layer " << expert.layer;
  }
}

TEST_P(PackedMixture, ComesBackBitForBit) {
  EXPECT_EQ(unpack(packed(), dir_ / "back", 2, no_progress).tensors,
            static_cast<int>(plain().tensors().size()));
  const Checkpoint model = plain(), back = Checkpoint::open(dir_ / "back");
  WeightRows theirs(model), ours(back);
  std::vector<std::byte> of_model;
  for (const TensorEntry& tensor : model.tensors()) {
    const std::int64_t rows = WeightRows::rows(tensor);
    theirs.read_stored(tensor, 0, rows, of_model);
    std::vector<std::byte> of_back;
    ours.read_stored(*back.find(tensor.name), 0, rows, of_back);
    EXPECT_TRUE(of_back == of_model) << tensor.name;
  }
}

TEST_P(PackedMixture, HasTheLogitsOfThePlainOneWhereverItsExpertsAre) {
  expect_logits_of(plain(), packed());
}

TEST_P(PackedMixture, QuantisesToTheFileOfThePlainOne) {
  if (std::string(GetParam()) == "qwen3_moe") GTEST_SKIP() << "GGUF has no dense layers between";
  for (const DType type : {DType::kBF16, DType::kQ8_0}) {
    const auto of_packed = dir_ / "packed" / name(type), of_plain = dir_ / name(type);
    const QuantizeReport report = quantize(packed(), of_packed, type, no_progress, 2);
    quantize(plain(), of_plain, type, no_progress, 2);
    EXPECT_TRUE(contents(of_packed) == contents(of_plain)) << name(type);
    EXPECT_EQ(report.same_function, type == DType::kBF16);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PackedMixture,
                         ::testing::Values("mixtral", "qwen3_moe", "olmoe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace canopy::test
