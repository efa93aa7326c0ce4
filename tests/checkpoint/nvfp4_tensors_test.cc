// Matrices of NVFP4 in directories: what is joined, and what is refused by its name.
#include "src/checkpoint/quantized/nvfp4_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/checkpoint/quantized/matrix_parts.h"
#include "src/checkpoint/quantized/quantization.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/error_of.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

FileTensor nvfp4_part(const std::string& name, std::vector<std::int64_t> shape,
                      const std::string& type = "U8") {
  std::size_t bytes = 1;
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {name, DType::kU8, std::move(shape), std::string(bytes, '\0'), type};
}
FileTensor nvfp4_factor(const std::string& name, float value, std::vector<std::int64_t> shape) {
  FileTensor tensor{name, DType::kF32, std::move(shape), {}};
  append(tensor.bytes, value);
  return tensor;
}

const json kModelOpt{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
json compressed_nvfp4() {
  return {{"format", "nvfp4-pack-quantized"},
          {"config_groups",
           {{"group_0",
             {{"weights",
               {{"num_bits", 4},
                {"type", "float"},
                {"strategy", "tensor_group"},
                {"group_size", 16}}}}}}}};
}
std::vector<FileTensor> modelopt_parts() {
  return {nvfp4_part("a.weight", {6, 128}), nvfp4_part("a.weight_scale", {6, 16}, "F8_E4M3"),
          nvfp4_factor("a.weight_scale_2", 0.25f, {}), nvfp4_factor("a.input_scale", 3, {}),
          nvfp4_factor("a.k_scale", 3, {1})};
}
std::vector<FileTensor> compressed_parts() {
  return {nvfp4_part("a.weight_packed", {6, 128}), nvfp4_part("a.weight_scale", {6, 16}, "F8_E4M3"),
          nvfp4_factor("a.weight_global_scale", 4, {1})};
}

struct JoinedNvfp4 {
  TensorIndex index;
  ModelConfig config;
};
JoinedNvfp4 joined_nvfp4(const json& scheme, const std::vector<FileTensor>& tensors) {
  const TempDir dir;
  write_file(dir / "model.safetensors", safetensors_bytes(tensors));
  JoinedNvfp4 all{read_safetensors(dir.path()), {}};
  join_nvfp4_tensors(all.index, *quantization_of({{"quantization_config", scheme}}).nvfp4,
                     all.config);
  return all;
}

TEST(Nvfp4Tensors, BecomeOneMatrixWithTheFactorThatItsWriterMeans) {
  const JoinedNvfp4 modelopt = joined_nvfp4(kModelOpt, modelopt_parts()),
                    other = joined_nvfp4(compressed_nvfp4(), compressed_parts());
  for (const JoinedNvfp4* const all : {&modelopt, &other}) {
    ASSERT_EQ(all->index.tensors.size(), 1u);
    const TensorEntry& matrix = all->index.tensors[0];
    EXPECT_EQ(matrix.name, "a.weight");
    EXPECT_EQ(matrix.dtype, DType::kF4_256);
    EXPECT_EQ(matrix.shape, (std::vector<std::int64_t>{6, 256}));
    EXPECT_EQ(matrix.bytes, 6u * 148);
  }
  EXPECT_EQ(modelopt.index.tensors[0].parts->factor, 0.25f);
  EXPECT_EQ(other.index.tensors[0].parts->factor, -4.0f);  // which divides
  EXPECT_EQ(modelopt.config.quantization,
            "ModelOpt (NVFP4): 1 matrix; activations, keys and values are not quantised, and "
            "their scales are not used");
}

TEST(Nvfp4Tensors, APartThatDoesNotFitIsRefusedByItsName) {
  struct Case {
    FileTensor instead;
    const char* error;
  };
  for (const Case& c : {
           Case{nvfp4_part("a.weight", {6, 120}), "its rows have 240 columns"},
           Case{nvfp4_part("a.weight_scale", {6, 8}, "F8_E4M3"), "not 'F8_E4M3' [6, 16]"},
           Case{nvfp4_part("a.weight_scale", {6, 16}), "'a.weight_scale' is 'U8' [6, 16]"},
           Case{nvfp4_factor("a.weight_scale_2", 0, {}), "is not finite and above zero"},
           Case{nvfp4_factor("a.weight_scale_2", -1, {}), "is not finite and above zero"},
           Case{nvfp4_factor("a.weight_scale_2", INFINITY, {}), "is not finite and above zero"},
           Case{nvfp4_part("a.weight_scale_2", {4}), "not one F32"},
       }) {
    std::vector<FileTensor> parts = modelopt_parts();
    *std::ranges::find(parts, c.instead.name, &FileTensor::name) = c.instead;
    const std::string error = error_of([&] { joined_nvfp4(kModelOpt, parts); });
    EXPECT_NE(error.find(c.error), std::string::npos) << "'" << error << "' lacks " << c.error;
    EXPECT_NE(error.find("tensor 'a.weight' of ModelOpt (NVFP4)"), std::string::npos) << error;
  }
  std::vector<FileTensor> parts = compressed_parts();
  parts.push_back(nvfp4_part("a.weight", {6, 256}));
  EXPECT_NE(
      error_of([&] { joined_nvfp4(compressed_nvfp4(), parts); }).find("there is also 'a.weight'"),
      std::string::npos);
  parts.resize(2);
  EXPECT_NE(error_of([&] {
              joined_nvfp4(compressed_nvfp4(), parts);
            }).find("its part 'a.weight_global_scale' is missing"),
            std::string::npos);
}

TEST(Nvfp4Scheme, OtherFormsAreRefusedByTheirKey) {
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, json>>{
           {"num_bits", 8}, {"strategy", "group"}, {"group_size", 32}, {"symmetric", false}}) {
    json scheme = compressed_nvfp4();
    scheme["config_groups"]["group_0"]["weights"][key] = value;
    EXPECT_NE(error_of([&] {
                quantization_of({{"quantization_config", scheme}});
              }).find("'quantization_config.config_groups[0].weights." + std::string(key) + "'"),
              std::string::npos)
        << key;
  }
}

TEST(Nvfp4Scheme, StandsInAFileOfItsOwnToo) {
  Quantization scheme;
  add_quantization_file({{"quantization", {{"quant_algo", "NVFP4"}, {"group_size", 16}}}}, scheme);
  ASSERT_TRUE(scheme.nvfp4);
  EXPECT_FALSE(scheme.nvfp4->divides);
  EXPECT_NE(error_of([&] {
              add_quantization_file(
                  {{"quantization", {{"quant_algo", "NVFP4"}, {"group_size", 32}}}}, scheme);
            }).find("group_size"),
            std::string::npos);
}

}  // namespace
}  // namespace canopy::testing
