// Models of whole numbers that do not lie by rows: what `pack` makes of them has the reference's
// logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/checkpoint/fingerprint.h"
#include "src/convert/pack/pack.h"
#include "tests/convert/expert_places.h"
#include "tests/convert/tiny_outputs.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"
#include "tests/test_data.h"

namespace canopy::test {
namespace {

namespace fs = std::filesystem;
/// A tiny model of make_goldens.py, as its directory has it and as `pack` leaves it.
struct Model {
  const char* name;
  int matrices;      // that become rows
  const char* last;  // one of them
};
void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }
fs::path directory_of(const Model& model) { return test_data() / "model" / model.name; }

class IntegerModel : public ::testing::TestWithParam<Model> {
 protected:
  static Checkpoint source() {
    return Checkpoint::open(directory_of(GetParam()), Holes::kRefused, Rows::kToBeMade);
  }
  PackReport packed() const { return pack(source(), dir_ / "rows", 2, kSilent); }
  const TempDir dir_;
};

TEST_P(IntegerModel, GivesTheReferencesLogitsWithinRounding) {
  EXPECT_EQ(packed().by_rows, GetParam().matrices);
  const Checkpoint model = Checkpoint::open(dir_ / "rows");
  const fs::path file = test_data() / "model" / (std::string(GetParam().name) + ".golden.json");
  const auto golden = nlohmann::json::parse(std::ifstream(file));
  const auto prompt = golden.at("prompt").get<std::vector<TokenId>>();
  const auto rows = golden.at("rows").get<std::vector<std::int32_t>>();
  const auto expected = golden.at("logits").get<std::vector<std::vector<float>>>();
  const std::vector<float> got = logits_of(model, prompt, rows);
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < vocab; ++j)
      ASSERT_NEAR(got[i * vocab + j], expected[i][j], golden.at("tolerance").get<float>())
          << "row " << rows[i] << ", token " << j;
}

TEST_P(IntegerModel, HasTheLogitsOfItsValuesInF32BitForBitResidentAndStreamed) {
  packed();
  const Checkpoint model = Checkpoint::open(dir_ / "rows");
  const UnpackReport report = unpack(model, dir_ / "floats", 2, kSilent);
  EXPECT_EQ(report.checked, report.tensors);
  const Checkpoint floats = Checkpoint::open(dir_ / "floats");
  EXPECT_TRUE(
      std::ranges::none_of(floats.tensors(), [](const auto& t) { return in_blocks(t.dtype); }));
  const std::vector<float> expected = logits_of(floats);
  EXPECT_EQ(logits_of(model), expected);
  EXPECT_EQ(streamed_logits_of(model), expected);
}

TEST_P(IntegerModel, IsTheSameModelForMeasurementsAndIsNotPackedTwice) {
  packed();
  const Checkpoint model = Checkpoint::open(dir_ / "rows", Holes::kRefused, Rows::kToBeMade);
  EXPECT_EQ(source_fingerprint(model), source_fingerprint(source()));
  EXPECT_NE(error_of([&] { pack(model, dir_ / "again", 1, kSilent); }).find("already: tensor '"),
            std::string::npos);
  EXPECT_EQ(entries(dir_.path()), std::vector<std::string>{"rows"});
}

TEST_P(IntegerModel, AsItIsTheErrorSaysWhatToRun) {
  const fs::path directory = directory_of(GetParam());
  const std::string error = error_of([&] { Checkpoint::open(directory); });
  EXPECT_NE(error.find("`canopy pack -m " + directory.string() + " -o DIR`"), std::string::npos)
      << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST_P(IntegerModel, AChangedByteIsFoundByTheChecksumOfTheValues) {
  packed();
  const Checkpoint model = Checkpoint::open(dir_ / "rows");
  const TensorEntry& matrix = *model.find(GetParam().last);
  {
    std::fstream file(model.files()[0], std::ios::binary | std::ios::in | std::ios::out);
    const auto last = static_cast<std::streamoff>(matrix.offset + matrix.bytes - 1);
    file.seekg(last);
    const int byte = file.get();
    file.seekp(last);
    file.put(static_cast<char>(byte ^ 0x10));
  }
  EXPECT_NE(error_of([&] {
              unpack(model, dir_ / "floats", 2, kSilent);
            }).find("tensor '" + std::string(GetParam().last) + "'"),
            std::string::npos);
  EXPECT_EQ(entries(dir_.path()), std::vector<std::string>{"rows"});
}

TEST_P(IntegerModel, HasTheSameLogitsWhereverItsExpertsAre) {
  packed();
  const Checkpoint model = Checkpoint::open(dir_ / "rows");
  if (model.config().experts.count == 0) GTEST_SKIP() << "it has none";
  unpack(model, dir_ / "floats", 2, kSilent);
  expect_logits_of(Checkpoint::open(dir_ / "floats"), model);
}

constexpr const char *kDownOfFirst = "model.layers.0.mlp.down_proj.weight",
                     *kDown = "model.layers.1.mlp.down_proj.weight",
                     *kDownOfExpert = "model.layers.1.mlp.experts.3.down_proj.weight";
INSTANTIATE_TEST_SUITE_P(
    Forms, IntegerModel,
    ::testing::Values(Model{"qwen2_awq", 2 * 7, kDown}, Model{"llama_gptq", 2 * 7, kDown},
                      Model{"mistral_packed", 2 * 7, kDown}, Model{"llama_packed_8", 2 * 7, kDown},
                      Model{"qwen3_whole", 2 * 7, kDown}, Model{"llama_nvfp4", 7, kDownOfFirst},
                      Model{"llama_modelopt", 7, kDownOfFirst}, Model{"llama_nf4", 2 * 7, kDown},
                      Model{"qwen2_fp4", 2 * 7, kDown}, Model{"llama_order", 2 * 7, kDown},
                      Model{"gpt_oss", 3 * 5 * 3, kDownOfExpert}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace canopy::test
