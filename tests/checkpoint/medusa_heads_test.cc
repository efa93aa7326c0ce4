#include "src/checkpoint/medusa_heads.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/heads_file.h"
#include "tests/test_data.h"

namespace canopy::testing {
namespace {

class Heads : public ::testing::Test {
 protected:
  MedusaHeads open(const HeadsOptions& options) const {
    return open_medusa_heads(write_heads_file(dir_ / "heads.safetensors", options), model_);
  }
  std::string error_of_tensors(const std::vector<FileTensor>& tensors) const {
    write_heads_file(dir_ / "heads.safetensors", tensors);
    return error_of([&] { open_medusa_heads(dir_ / "heads.safetensors", model_); });
  }
  void expect_refused(const std::vector<FileTensor>& tensors, const char* why) const {
    const std::string error = error_of_tensors(tensors);
    EXPECT_NE(error.find(why), std::string::npos) << error;
  }
  const TempDir dir_;
  const Checkpoint model_ = Checkpoint::open(test_data() / "model" / "llama2");  // 97 x 32
};

TEST_F(Heads, AreFoundUnderTheNamesOfPublishedCheckpoints) {
  for (const char* prefix : {"", "medusa_head.", "medusa_heads.", "medusa."})
    for (const int vocab : {0, 97}) {
      const MedusaHeads heads = open({.heads = 4, .vocab = vocab, .blocks = 2, .prefix = prefix});
      ASSERT_EQ(heads.heads.size(), 4u);
      EXPECT_FALSE(heads.names_its_model);
      EXPECT_TRUE(heads.acceptance.empty());
      for (std::size_t i = 0; i < 4; ++i) {
        ASSERT_EQ(heads.heads[i].blocks.size(), 2u);
        EXPECT_EQ(heads.heads[i].blocks[1].weight.name,
                  prefix + std::to_string(i) + ".1.linear.weight");
        EXPECT_EQ(heads.heads[i].matrix.has_value(), vocab > 0);
      }
    }
  const MedusaHeads plain = open({.bias = false});
  EXPECT_FALSE(plain.heads[0].blocks[0].bias);
}

TEST_F(Heads, AreFoundInADirectory) {
  std::filesystem::create_directory(dir_ / "heads");
  EXPECT_NE(error_of([&] { open_medusa_heads(dir_ / "heads", model_); }).find("has neither"),
            std::string::npos);
  write_heads_file(dir_ / "heads" / "medusa_lm_head.safetensors", HeadsOptions{});
  EXPECT_EQ(open_medusa_heads(dir_ / "heads", model_).heads.size(), 3u);
  EXPECT_NE(error_of([&] {
              open_medusa_heads(dir_ / "medusa_lm_head.pt", model_);
            }).find("must be in safetensors"),
            std::string::npos);
}

TEST_F(Heads, OfAnotherModelAreRefusedByItsFingerprint) {
  EXPECT_TRUE(open({.source = fingerprint(model_)}).names_its_model);
  const Checkpoint other = Checkpoint::open(test_data() / "model" / "qwen2");  // of the same shape
  write_heads_file(dir_ / "heads.safetensors", HeadsOptions{.source = fingerprint(other)});
  const std::string error =
      error_of([&] { open_medusa_heads(dir_ / "heads.safetensors", model_); });
  EXPECT_NE(error.find("trained for the model of fingerprint " + fingerprint(other)),
            std::string::npos)
      << error;
}

TEST_F(Heads, CarryTheAcceptanceThatWasMeasured) {
  const MedusaHeads heads = open({.heads = 2, .acceptance = {{0.5f, 0.25f}, {0.25f, 0.125f}}});
  EXPECT_EQ(heads.acceptance, (std::vector<std::vector<double>>{{0.5, 0.25}, {0.25, 0.125}}));
  for (const auto& [acceptance, why] : {std::pair<std::vector<std::vector<float>>, const char*>{
                                            {{0.9f, 0.2f}, {0, 0}}, "more than"},
                                        {{{-0.1f}, {0}}, "no shares"},
                                        {{{NAN}, {0}}, "no shares"},
                                        {{{0.5f}}, "not F32 [2, ranks]"},
                                        {{2, std::vector<float>(1025)}, "not F32 [2, ranks]"}})
    expect_refused(heads_tensors({.heads = 2, .acceptance = acceptance}), why);
}

TEST_F(Heads, ThatDoNotFitAreRefusedByTheirTensors) {
  expect_refused({}, "it has no heads");
  expect_refused(heads_tensors({.dim = 48}), "'0.0.linear.weight' has shape [48, 48]");
  expect_refused(heads_tensors({.vocab = 96}), "'0.1.weight' has shape [96, 32]");
  const auto changed = [](const std::string& from, const std::string& to) {
    std::vector<FileTensor> tensors = heads_tensors({.vocab = 97});
    for (FileTensor& tensor : tensors)
      if (tensor.name == from) tensor.name = to;
    return tensors;
  };
  expect_refused(changed("1.0.linear.weight", "x.0.linear.weight"), "is not part of Medusa heads");
  expect_refused(changed("1.0.linear.weight", "99.0.linear.weight"), "is not part of Medusa heads");
  expect_refused(changed("1.0.linear.weight", "16.0.linear.weight"), "is not part of Medusa heads");
  expect_refused(changed("2.1.weight", "2.9.weight"), "is not part of Medusa heads");
  expect_refused(changed("1.0.linear.weight", "15.0.linear.weight"),
                 "head 1 lacks the weight of block 0");
  expect_refused(changed("2.1.weight", "2.8.weight"), "is not behind the last block");
  expect_refused(changed("1.0.linear.weight", "1.0.linear.scale"), "is not part of Medusa heads");
  expect_refused(changed("2.1.weight", "2.3.weight"), "is not behind the last block");
  std::vector<FileTensor> tensors = heads_tensors({.vocab = 97});
  std::erase_if(tensors, [](const FileTensor& t) { return t.name == "1.0.linear.weight"; });
  expect_refused(tensors, "head 1 lacks the weight of block 0");
  tensors = heads_tensors({.vocab = 97});
  std::erase_if(tensors, [](const FileTensor& t) { return t.name.starts_with("1."); });
  expect_refused(tensors, "head 1 is missing");
  tensors = heads_tensors({.vocab = 97});
  std::erase_if(tensors, [](const FileTensor& t) { return t.name == "1.1.weight"; });
  expect_refused(tensors, "head 1 has other parts than head 0");
}

}  // namespace
}  // namespace canopy::testing
