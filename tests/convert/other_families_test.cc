// Families of layer norms, or with other norms and factors, in the converters: what packs them
// keeps the names of their files, and what cannot be made of them is refused by name before
// anything is written.
#include <gtest/gtest.h>

#include <set>

#include "src/base/error.h"
#include "src/checkpoint/readers.h"
#include "src/convert/enlarge/inflate.h"
#include "src/convert/pack/pack.h"
#include "src/convert/quantize/quantize.h"
#include "tests/convert/tiny_outputs.h"
#include "tests/convert/wide_model.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy::test {
namespace {

class OtherFamilies : public ::testing::TestWithParam<const char*> {
 protected:
  void expect_to_come_back_packed() const;
  Checkpoint wide_model() const { return write_wide_model(GetParam(), dir_ / "wide"); }
  const TempDir dir_;
};

/// Families that may be GGUF files, too.
class NormedFamilies : public OtherFamilies {};

void OtherFamilies::expect_to_come_back_packed() const {
  const Checkpoint model = wide_model();
  const PackReport report = pack(model, dir_ / "packed", 2, kSilent);
  EXPECT_GT(report.packed, 8);
  const std::vector<float> logits = logits_of(model);
  EXPECT_EQ(logits_of(Checkpoint::open(dir_ / "packed")), logits);
  EXPECT_EQ(streamed_logits_of(Checkpoint::open(dir_ / "packed")), logits);
  unpack(Checkpoint::open(dir_ / "packed"), dir_ / "back", 2, kSilent);
  EXPECT_EQ(logits_of(Checkpoint::open(dir_ / "back")), logits);
  const auto names = [](const std::filesystem::path& directory) {
    std::set<std::string> all;
    for (const TensorEntry& tensor : read_safetensors(directory).tensors) all.insert(tensor.name);
    return all;
  };
  EXPECT_EQ(names(dir_ / "back"), names(dir_ / "wide"));
  EXPECT_EQ(names(dir_ / "packed"), names(dir_ / "wide"));
}

TEST_P(OtherFamilies, PackedAndUnpackedTheyComputeTheSameUnderTheNamesOfTheirFiles) {
  expect_to_come_back_packed();
}
TEST_P(NormedFamilies, PackedAndUnpackedTheyComputeTheSameUnderTheNamesOfTheirFiles) {
  expect_to_come_back_packed();
}

TEST_P(NormedFamilies, NoEnlargementIsMadeOfThem) {
  EXPECT_NE(error_of([&] {
              inflate(tiny_model(GetParam()),
                      {.output = dir_ / "big", .small = dir_ / "small", .bytes = 9'000'000},
                      kSilent);
            }).find("is not enlarged"),
            std::string::npos);
  EXPECT_TRUE(entries(dir_.path()).empty());
}

TEST_P(OtherFamilies, NeitherAnEnlargementNorAGgufFileIsMadeOfThem) {
  const Checkpoint model = tiny_model(GetParam());
  EXPECT_NE(error_of([&] {
              inflate(model, {.output = dir_ / "big", .small = dir_ / "small", .bytes = 9'000'000},
                      kSilent);
            }).find("is not enlarged"),
            std::string::npos);
  const std::string error =
      error_of([&] { quantize(model, dir_ / "model.gguf", DType::kQ8_0, kSilent, 1); });
  EXPECT_NE(error.find("architecture '" + model.config().architecture + "' cannot be a GGUF file"),
            std::string::npos)
      << error;
  EXPECT_TRUE(entries(dir_.path()).empty());
}

INSTANTIATE_TEST_SUITE_P(Names, NormedFamilies,
                         ::testing::Values("gemma2", "olmo2", "granite", "cohere2"));
INSTANTIATE_TEST_SUITE_P(Names, OtherFamilies, ::testing::Values("opt", "opt_after", "bloom"));

}  // namespace
}  // namespace canopy::test
