#include "src/convert/enlarge/random_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>

#include "offload/host_weights.h"
#include "offload/unit_layout.h"
#include "src/base/formats/packed_format.h"
#include "src/checkpoint/model_tensors.h"
#include "tests/temp_dir.h"
#include "tests/tiny_config.h"

namespace canopy {
namespace {

/// Its rows are whole blocks of packed weights.
ModelConfig shape_with(const std::vector<LayerConfig>& kinds, bool tied) {
  ModelConfig shape = tiny_config();
  shape.layers = 5;
  shape.dim = 64;
  shape.hidden_dim = 96;
  shape.head_dim = 32;
  shape.tied_head = tied;
  shape.take_turns(kinds);
  return shape;
}

TEST(RandomCheckpoint, HasTheTensorsThatASweepReads) {
  for (const std::vector<LayerConfig>& kinds : std::vector<std::vector<LayerConfig>>{
           {{}}, {{.qkv_bias = true}}, {{}, {.qkv_bias = true, .qk_norm = true}}})
    for (const bool tied : {false, true})
      for (const DType type : {DType::kBF16, DType::kQ4_0, DType::kPackedBF16, DType::kLevelsBF16})
        for (const LayerBytes layers :
             {LayerBytes::kShared, LayerBytes::kOwn, LayerBytes::kOwnInMemory}) {
          const ModelConfig shape = shape_with(kinds, tied);
          const Checkpoint model = lay_out_random_checkpoint({shape, type}, layers, "unwritten");
          std::size_t tensors = 0;
          for_each_tensor(shape, [&](const ModelTensor&) { ++tensors; });
          EXPECT_EQ(model.tensors().size(), tensors);
          lay_out_sweep(model);  // throws where a tensor is missing or misshapen
        }
}

TEST(RandomCheckpoint, KeepsTheBytesOfALayerOnceWhereLayersShareThem) {
  const ModelConfig shape = shape_with({{}, {.qk_norm = true}}, false);
  const auto offset = [&](LayerBytes layers, TensorRole role, int layer) {
    const Checkpoint model = lay_out_random_checkpoint({shape, DType::kBF16}, layers, "unwritten");
    return model.find(tensor_name(role, layer))->offset;
  };
  for (const auto& [role, layer] : {std::pair{TensorRole::kQuery, 1}, {TensorRole::kKeyNorm, 3}}) {
    const int first = layer == 3 ? 1 : 0;
    EXPECT_EQ(offset(LayerBytes::kShared, role, layer), offset(LayerBytes::kShared, role, first));
    EXPECT_NE(offset(LayerBytes::kOwn, role, layer), offset(LayerBytes::kOwn, role, first));
  }
}

TEST(RandomCheckpoint, LayersThatShareAFileMayHaveBytesOfTheirOwnInMemory) {
  const ModelConfig shape = shape_with({{}}, false);
  const auto bytes_in_memory = [&](LayerBytes layers) {
    const SweepLayout sweep =
        lay_out_sweep(lay_out_random_checkpoint({shape, DType::kBF16}, layers, "unwritten"));
    return HostWeights::bytes_needed(sweep, all_resident(sweep));
  };
  const std::size_t own = bytes_in_memory(LayerBytes::kOwn);
  EXPECT_GT(own, 2 * bytes_in_memory(LayerBytes::kShared));
  // Each layer's bytes begin and end in pages of their own.
  EXPECT_NEAR(static_cast<double>(bytes_in_memory(LayerBytes::kOwnInMemory)),
              static_cast<double>(own), 2 * 4096.0 * shape.layers);
  const Checkpoint model =
      lay_out_random_checkpoint({shape, DType::kBF16}, LayerBytes::kOwnInMemory, "unwritten");
  EXPECT_EQ(std::set(model.files().begin(), model.files().end()).size(), 1u);
}

TEST(RandomCheckpoint, MixturesHaveExpertsOfTheTypeAndRoutersThatQuantisingLeavesAlone) {
  const ModelConfig shape = shape_from_config(R"({"model_type": "qwen3_moe", "hidden_size": 64,
      "num_hidden_layers": 2, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16,
      "num_key_value_heads": 2, "num_experts": 6, "num_experts_per_tok": 2, "vocab_size": 97,
      "moe_intermediate_size": 32, "rms_norm_eps": 1e-6, "max_position_embeddings": 64})");
  const Checkpoint model =
      lay_out_random_checkpoint({shape, DType::kQ4_0}, LayerBytes::kOwn, "unwritten");
  EXPECT_EQ(model.find(tensor_name(TensorRole::kRouter, 1))->dtype, DType::kBF16);
  const SweepLayout apart = lay_out_sweep(model, ExpertsAre::kApart);
  ASSERT_EQ(apart.experts.size(), 12u);
  for (const ExpertLayout& expert : apart.experts)
    for (const UnitTensor& matrix : expert.matrices) EXPECT_EQ(matrix.tensor.dtype, DType::kQ4_0);
}

TEST(RandomCheckpoint, PackedRowsAreSoundAndAsLargeAsTrainedOnes) {
  for (const PackedFormat& format : as_data_of_packed(PackedBf16Formats())) {
    const TempDir dir;
    ModelConfig shape = shape_with({{}}, false);
    shape.dim = 1088;
    const Checkpoint model =
        write_random_checkpoint({shape, format.dtype}, LayerBytes::kShared, dir / "weights");
    EXPECT_TRUE(std::ranges::any_of(
        model.tensors(), [&](const TensorEntry& tensor) { return tensor.dtype == format.dtype; }));
    const std::string file = [&] {
      std::ifstream in(dir / "weights", std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(in), {});
    }();
    for (const TensorEntry& tensor : model.tensors()) {
      if (!is_packed(tensor.dtype)) continue;
      const std::int64_t columns = tensor.shape[1];
      std::vector<float> values(static_cast<std::size_t>(columns));
      for (const std::int64_t row : {std::int64_t{0}, tensor.shape[0] - 1}) {
        const TensorEntry part = rows_of(tensor, row, 1);
        row_as_f32(tensor.dtype,
                   {reinterpret_cast<const std::byte*>(&file[part.offset]), part.bytes, columns},
                   values);
        double squares = 0;
        for (const float value : values)
          squares += static_cast<double>(value) * static_cast<double>(value);
        EXPECT_NEAR(std::sqrt(squares / static_cast<double>(columns)), 0.022, 0.006) << tensor.name;
      }
    }
  }
}

}  // namespace
}  // namespace canopy
