// Models of whole numbers that do not lie by rows: what `pack` makes of them has the reference's
// logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/checkpoint/fingerprint.h"
#include "src/convert/pack/pack.h"
#include "tests/convert/tiny_outputs.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"
#include "tests/test_data.h"

namespace canopy::test {
namespace {

namespace fs = std::filesystem;
/// A tiny model of make_goldens.py, as its directory has it and as `pack` leaves it.
class IntegerModel : public ::testing::TestWithParam<const char*> {
 protected:
  static Checkpoint source() {
    return Checkpoint::open(test_data() / "model" / GetParam(), Holes::kRefused, Rows::kToBeMade);
  }
  PackReport packed() const { return pack(source(), dir_ / "rows", 2, kSilent); }
  const TempDir dir_;
};

TEST_P(IntegerModel, GivesTheReferencesLogitsWithinRounding) {
  EXPECT_EQ(packed().by_rows, 2 * 7);
  const Checkpoint model = Checkpoint::open(dir_ / "rows");
  const fs::path file = test_data() / "model" / (std::string(GetParam()) + ".golden.json");
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
  EXPECT_TRUE(std::ranges::none_of(floats.tensors(),
                                   [](const auto& t) { return is_of_integers(t.dtype); }));
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
  const fs::path directory = test_data() / "model" / GetParam();
  const std::string error = error_of([&] { Checkpoint::open(directory); });
  EXPECT_NE(error.find("`canopy pack -m " + directory.string() + " -o DIR`"), std::string::npos)
      << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST_P(IntegerModel, AChangedByteIsFoundByTheChecksumOfTheValues) {
  packed();
  const Checkpoint model = Checkpoint::open(dir_ / "rows");
  const TensorEntry& matrix = *model.find("model.layers.1.mlp.down_proj.weight");
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
            }).find("tensor 'model.layers.1.mlp.down_proj.weight'"),
            std::string::npos);
  EXPECT_EQ(entries(dir_.path()), std::vector<std::string>{"rows"});
}

INSTANTIATE_TEST_SUITE_P(Forms, IntegerModel,
                         ::testing::Values("qwen2_awq", "llama_gptq", "mistral_packed",
                                           "llama_packed_8"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace canopy::test
