// The table of a model's tensors, against itself and against the checkpoints in the repository.
#include "src/checkpoint/model_tensors.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <set>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/families.h"
#include "tests/tiny_config.h"

namespace canopy {
namespace {

namespace fs = std::filesystem;

ModelConfig two_kinds_of_layers() {
  ModelConfig config = tiny_config();
  config.take_turns(std::array{LayerConfig{.qkv_bias = true}, LayerConfig{.qk_norm = true}});
  return config;
}

TEST(ModelTensors, EachHasARoleAndANameOfItsOwnInBothContainers) {
  std::set<TensorRole> roles;
  std::set<std::string_view> names, gguf_names;
  for (const TensorSpec& spec : model_tensors()) {
    SCOPED_TRACE(spec.name);
    EXPECT_EQ(&spec_of(spec.role), &spec);
    EXPECT_EQ(spec.gguf.find('#') != spec.gguf.npos, spec.of_layers());
    if (spec.kind == TensorKind::kMatrix)
      EXPECT_NE(spec.rows, Length::kOne);
    else  // one row, or one of each expert, head or channel
      EXPECT_TRUE(spec.rows == Length::kOne || spec.rows == Length::kExperts ||
                  spec.rows == Length::kQueryNorms || spec.rows == Length::kKeyNorms ||
                  spec.rows == Length::kDeltaChannels);
    roles.insert(spec.role);
    names.insert(spec.name);
    gguf_names.insert(spec.gguf);
  }
  for (const std::size_t distinct : {roles.size(), names.size(), gguf_names.size()})
    EXPECT_EQ(distinct, model_tensors().size());
}

TEST(ModelTensors, AreFoundByEitherName) {
  const Family& llama = *find_family(known_families(), "llama");
  for (const TensorSpec& spec : model_tensors())
    for (const int layer : {0, 7, 79}) {
      const ModelTensor tensor{&spec, spec.of_layers() ? layer : -1,
                               spec.of_experts() ? 2 * layer + 1 : -1};
      SCOPED_TRACE(tensor.name());
      const auto found = find_tensor(tensor.name());
      ASSERT_TRUE(found);
      EXPECT_EQ(found->spec, &spec);
      EXPECT_EQ(found->layer, tensor.layer);
      EXPECT_EQ(found->expert, tensor.expert);
      if (spec.of_experts()) {  // all of a layer in one
        const auto stacked = find_stacked_experts(llama, gguf_name(llama, tensor));
        ASSERT_TRUE(stacked);
        EXPECT_EQ(stacked->spec, &spec);
        EXPECT_EQ(stacked->layer, layer);
        continue;
      }
      EXPECT_EQ(canonical_gguf_name(llama, gguf_name(llama, tensor)), tensor.name());
    }
  for (const char* other :
       {"", "model.layers.#.input_layernorm.weight", "model.norm.weight ",
        "model.layers..input_layernorm.weight", "model.layers.1.1.input_layernorm.weight",
        "model.layers.99999999999.input_layernorm.weight",
        "model.layers.1.mlp.experts.99999999999.up_proj.weight",
        "model.layers.1.mlp.experts..up_proj.weight", "model.layers.1.mlp.experts.up_proj.weight"})
    EXPECT_FALSE(find_tensor(other)) << other;
}

TEST(ModelTensors, AreThoseOfEveryCheckpointInTheRepository) {
  int models = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(CANOPY_TEST_DATA "/model")) {
    if (!fs::is_directory(entry) && entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path());
    const Checkpoint model = Checkpoint::open(entry.path(), Holes::kRefused, Rows::kToBeMade);
    std::set<std::string> named;
    for_each_tensor(model.config(), [&](const ModelTensor& tensor) {
      named.insert(tensor.name());
      const TensorEntry* const stored = model.find(tensor.name());
      ASSERT_TRUE(stored) << tensor.name();
      EXPECT_EQ(stored->shape, tensor.shape(model.config())) << tensor.name();
    });
    for (const TensorEntry& stored : model.tensors())  // Apertus' are numbers of the config, too
      EXPECT_TRUE(named.contains(stored.name) || stored.name.find(".act_fn.") != std::string::npos)
          << stored.name;
    ++models;
  }
  EXPECT_GE(models, 13);
}

TEST(ModelTensors, EachLayerHasThoseOfItsKind) {
  std::vector<std::vector<TensorRole>> extras(3);
  for_each_tensor(two_kinds_of_layers(), [&](const ModelTensor& tensor) {
    if (tensor.layer >= 0 && !ModelTensor{tensor.spec, 0}.is_in(tiny_config()))
      extras.at(static_cast<std::size_t>(tensor.layer)).push_back(tensor.spec->role);
  });
  using enum TensorRole;
  EXPECT_EQ(extras[0], (std::vector{kQueryBias, kKeyBias, kValueBias}));
  EXPECT_EQ(extras[1], (std::vector{kQueryNorm, kKeyNorm}));
  EXPECT_EQ(extras[2], extras[0]);
}

}  // namespace
}  // namespace canopy
