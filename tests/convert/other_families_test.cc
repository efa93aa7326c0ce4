// Families of layer norms in the converters: what packs them keeps the names of their files, and
// what cannot be made of them is refused by name before anything is written.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "src/base/error.h"
#include "src/checkpoint/families.h"
#include "src/checkpoint/model_tensors.h"
#include "src/checkpoint/readers.h"
#include "src/convert/hf_files.h"
#include "src/convert/inflate.h"
#include "src/convert/pack.h"
#include "src/convert/quantize.h"
#include "src/convert/random_weights.h"
#include "src/convert/safetensors_writer.h"
#include "tests/convert/tiny_outputs.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"
#include "tests/test_data.h"

namespace canopy::test {
namespace {

const Progress kSilent = [](std::uint64_t, std::uint64_t) {};

class OtherFamilies : public ::testing::TestWithParam<const char*> {
 protected:
  /// Rows of 256 columns and more, which become smaller when they are packed.
  Checkpoint wide_model() const {
    const std::filesystem::path directory = dir_ / "wide";
    std::filesystem::create_directories(directory);
    copy_hf_files(tiny_model(GetParam()), directory);
    nlohmann::json config =
        nlohmann::json::parse(contents(test_data() / "model" / GetParam() / "config.json"));
    config["hidden_size"] = 252, config["word_embed_proj_dim"] = 252;
    config["num_attention_heads"] = config["n_head"] = 6;
    if (std::string(GetParam()) == "bloom") config.erase("num_attention_heads");
    dir_.write("wide/config.json", config.dump());
    const ModelConfig shape = shape_from_config(config.dump());
    const Family& family = family_of(shape);
    std::vector<PlannedTensor> planned;
    for_each_tensor(shape, [&](const ModelTensor& tensor) {
      planned.push_back({stored_name(family, tensor.name()), tensor.shape(shape)});
    });
    SafetensorsWriter writer(directory, planned);
    const RandomWeights random(1);
    for (const PlannedTensor& tensor : planned) {
      std::vector<std::uint16_t> row(static_cast<std::size_t>(tensor.shape.back()));
      const std::int64_t rows = tensor.shape.size() == 1 ? 1 : tensor.shape[0];
      for (std::int64_t r = 0; r < rows; ++r) {
        random.fill(RandomWeights::hash(tensor.name), static_cast<std::uint32_t>(r), row);
        writer.write(tensor.name, row);
      }
    }
    writer.finish();
    return Checkpoint::open(directory);
  }
  const TempDir dir_;
};

TEST_P(OtherFamilies, PackedAndUnpackedTheyComputeTheSameUnderTheNamesOfTheirFiles) {
  const Checkpoint model = wide_model();
  const PackReport report = pack(model, dir_ / "packed", 2, kSilent);
  EXPECT_GT(report.packed, 8);
  const std::vector<float> logits = logits_of(model);
  EXPECT_EQ(logits_of(Checkpoint::open(dir_ / "packed")), logits);
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

TEST_P(OtherFamilies, NeitherAnEnlargementNorAGgufFileIsMadeOfThem) {
  const Checkpoint model = tiny_model(GetParam());
  EXPECT_NE(error_of([&] {
              inflate(model, {.output = dir_ / "big", .small = dir_ / "small", .bytes = 9'000'000},
                      kSilent);
            }).find("is not enlarged"),
            std::string::npos);
  const std::string error =
      error_of([&] { quantize(model, dir_ / "model.gguf", DType::kQ8_0, kSilent, 1); });
  EXPECT_NE(error.find(std::string("architecture '") + GetParam() + "' cannot be a GGUF file"),
            std::string::npos)
      << error;
  EXPECT_TRUE(entries(dir_.path()).empty());
}

INSTANTIATE_TEST_SUITE_P(Names, OtherFamilies, ::testing::Values("opt", "bloom"));

}  // namespace
}  // namespace canopy::test
