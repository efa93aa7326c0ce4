// A family that Canopy does not know, brought by a row of data and a reader of its config.
#include "tests/checkpoint/toy_family.h"

#include <gtest/gtest.h>

#include "offload/unit_layout.h"
#include "src/checkpoint/checkpoint.h"

namespace canopy::testing {
namespace {

class ToyFamily : public ::testing::Test {
 protected:
  ToyFamily() { write_hugging_face(dir_.path(), stored_toy()); }
  const TempDir dir_;
};

TEST_F(ToyFamily, OpensUnderTheUsualNamesWithTheTensorsOfEachLayersKind) {
  const Checkpoint toy = Checkpoint::open(dir_.path(), kToyFamilies);
  EXPECT_EQ(toy.config().architecture, "toy");
  EXPECT_EQ(toy.config().layers, 4);
  const TinyModel usual = usual_toy();
  EXPECT_EQ(toy.tensors().size(), usual.tensors.size());
  for (const FileTensor& tensor : usual.tensors) {
    const TensorEntry* const entry = toy.find(tensor.name);
    ASSERT_TRUE(entry) << tensor.name;
    const std::string file = read_file(toy.files()[static_cast<std::size_t>(entry->file)]);
    EXPECT_EQ(file.substr(entry->offset, entry->bytes), tensor.bytes) << tensor.name;
  }
  lay_out_sweep(toy);  // throws where a tensor is missing or misshapen
}

TEST_F(ToyFamily, OpensFromGgufAlike) {
  write_toy_gguf(dir_ / "toy.gguf");
  const Checkpoint toy = Checkpoint::open(dir_.path(), kToyFamilies),
                   gguf = Checkpoint::open(dir_ / "toy.gguf", kToyFamilies);
  EXPECT_EQ(gguf.config().architecture, "toy");
  EXPECT_TRUE(gguf.config().layer_kinds == toy.config().layer_kinds);
  ASSERT_EQ(gguf.tensors().size(), toy.tensors().size());
  for (std::size_t i = 0; i < toy.tensors().size(); ++i) {
    EXPECT_EQ(gguf.tensors()[i].name, toy.tensors()[i].name);
    EXPECT_EQ(gguf.tensors()[i].shape, toy.tensors()[i].shape);
  }
}

TEST_F(ToyFamily, IsRefusedByNameWhereNobodyBringsIt) {
  EXPECT_TRUE(mentions(error_of([&] { Checkpoint::open(dir_.path()); }),
                       "model type 'toy' is not supported; Canopy runs llama, mistral, "
                       "ministral3, qwen2, qwen3, qwen3_5_text, qwen3_5_moe_text, qwen3_next, "
                       "seed_oss, phi3, "
                       "gemma2, gemma3_text, "
                       "gemma4_text, gemma4_unified_text, olmo2, olmo3, exaone4, exaone, "
                       "hunyuan_v1_dense, apertus, glm4, granite, granitemoehybrid, smollm3, "
                       "cohere, cohere2, arcee, nemotron, starcoder2, mixtral, qwen3_moe, olmoe, "
                       "qwen2_moe, glm4_moe, dots1, "
                       "minimax_m2, granitemoe, ernie4_5_moe, gpt_oss, opt and bloom"
                       " decoders"));
}

}  // namespace
}  // namespace canopy::testing
