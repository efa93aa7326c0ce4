// Matrices of MXFP4, NVFP4, NF4 and FP4 in directories: what is joined, and what is refused by its
// name.

#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/formats/weight_format.h"
#include "src/checkpoint/quantized/matrix_parts.h"
#include "src/checkpoint/quantized/mxfp4_tensors.h"
#include "src/checkpoint/quantized/nvfp4_tensors.h"
#include "src/checkpoint/quantized/quantization.h"
#include "src/checkpoint/quantized/table_tensors.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/error_of.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

FileTensor bytes_of(const std::string& name, std::vector<std::int64_t> shape,
                    const std::string& type = "U8") {
  std::size_t bytes = 1;
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {name, DType::kU8, std::move(shape), std::string(bytes, '\0'), type};
}
FileTensor one_float(const std::string& name, float value, std::vector<std::int64_t> shape) {
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
  return {bytes_of("a.weight", {6, 128}), bytes_of("a.weight_scale", {6, 16}, "F8_E4M3"),
          one_float("a.weight_scale_2", 0.25f, {}), one_float("a.input_scale", 3, {}),
          one_float("a.k_scale", 3, {1})};
}
std::vector<FileTensor> compressed_parts() {
  return {bytes_of("a.weight_packed", {6, 128}), bytes_of("a.weight_scale", {6, 16}, "F8_E4M3"),
          one_float("a.weight_global_scale", 4, {1})};
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
           Case{bytes_of("a.weight", {6, 120}), "its rows have 240 columns"},
           Case{bytes_of("a.weight_scale", {6, 8}, "F8_E4M3"), "not 'F8_E4M3' [6, 16]"},
           Case{bytes_of("a.weight_scale", {6, 16}), "'a.weight_scale' is 'U8' [6, 16]"},
           Case{one_float("a.weight_scale_2", 0, {}), "is not finite and above zero"},
           Case{one_float("a.weight_scale_2", -1, {}), "is not finite and above zero"},
           Case{one_float("a.weight_scale_2", INFINITY, {}), "is not finite and above zero"},
           Case{bytes_of("a.weight_scale_2", {4}), "not one F32"},
       }) {
    std::vector<FileTensor> parts = modelopt_parts();
    *std::ranges::find(parts, c.instead.name, &FileTensor::name) = c.instead;
    const std::string error = error_of([&] { joined_nvfp4(kModelOpt, parts); });
    EXPECT_NE(error.find(c.error), std::string::npos) << "'" << error << "' lacks " << c.error;
    EXPECT_NE(error.find("tensor 'a.weight' of ModelOpt (NVFP4)"), std::string::npos) << error;
  }
  std::vector<FileTensor> parts = compressed_parts();
  parts.push_back(bytes_of("a.weight", {6, 256}));
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

TensorIndex joined_mxfp4(const std::vector<FileTensor>& tensors) {
  const TempDir dir;
  write_file(dir / "model.safetensors", safetensors_bytes(tensors));
  TensorIndex index = read_safetensors(dir.path());
  ModelConfig config;
  join_mxfp4_tensors(index, config);
  return index;
}

TEST(Mxfp4Tensors, BecomeOneTensorWhoseRowsHaveBlocks) {
  const TensorIndex index =
      joined_mxfp4({bytes_of("a.b_blocks", {3, 6, 2, 16}),
                    bytes_of("a.b_scales", {3, 6, 2}),
                    {"a.b_bias", DType::kBF16, {3, 6}, std::string(36, '\0')}});
  ASSERT_EQ(index.tensors.size(), 2u);
  const TensorEntry& matrix = *std::ranges::find(index.tensors, "a.b", &TensorEntry::name);
  EXPECT_EQ(matrix.dtype, DType::kMXFP4);
  EXPECT_EQ(matrix.shape, (std::vector<std::int64_t>{3, 6, 64}));
  EXPECT_EQ(matrix.bytes, 3u * 6 * 2 * 17);
  ASSERT_TRUE(matrix.parts);
  EXPECT_EQ(matrix.parts->rows, 18);
  EXPECT_EQ(matrix.parts->columns, 64);
}

TEST(Mxfp4Tensors, APartThatDoesNotFitIsRefusedByItsName) {
  const FileTensor codes = bytes_of("a_blocks", {6, 2, 16}), scales = bytes_of("a_scales", {6, 2});
  FileTensor others = codes;
  others.stored_dtype = "I8";
  struct Case {
    std::vector<FileTensor> tensors;
    const char* error;
  };
  for (const Case& c : {
           Case{{codes}, "its part 'a_scales' is missing"},
           Case{{codes, bytes_of("a_scales", {6, 1})}, "'a_scales' is 'U8' [6, 1]"},
           Case{{codes, {"a_scales", DType::kF32, {6, 2}, std::string(48, '\0')}},
                "not 'U8' [6, 2]"},
           Case{{others, scales}, "its part 'a_blocks' is 'I8' [6, 2, 16]"},
           Case{{bytes_of("a_blocks", {6, 4, 8}), scales}, "not [.., rows, blocks, 16]"},
           Case{{bytes_of("a_blocks", {6, 16}), scales}, "not [.., rows, blocks, 16]"},
           Case{{bytes_of("a_blocks", {0, 2, 16}), bytes_of("a_scales", {0, 2})}, "'a_blocks' is"},
           Case{{codes, scales, bytes_of("a", {6, 64})}, "there is also 'a'"},
           Case{{scales}, "the config says MXFP4, but no tensor NAME_blocks has its codes"},
       }) {
    const std::string error = error_of([&] { joined_mxfp4(c.tensors); });
    EXPECT_NE(error.find(c.error), std::string::npos) << "'" << error << "' lacks " << c.error;
  }
}

FileTensor floats_of(const std::string& name, std::span<const float> values) {
  FileTensor tensor{name, DType::kF32, {std::ssize(values)}, {}};
  for (const float value : values) append(tensor.bytes, value);
  return tensor;
}
FileTensor state_of(const std::string& type, const json& state) {
  const std::string text = state.dump();
  return {"a.weight.quant_state.bitsandbytes__" + type, DType::kU8, {std::ssize(text)}, text, "U8"};
}
json plain_state() {
  return {{"quant_type", "nf4"}, {"blocksize", 64}, {"dtype", "bfloat16"}, {"shape", {6, 128}}};
}
json doubled_state() {
  json state = plain_state();
  state.update({{"nested_blocksize", 8}, {"nested_dtype", "float32"}, {"nested_offset", 0.5}});
  return state;
}
std::vector<FileTensor> table_parts(const json& state = plain_state()) {
  return {bytes_of("a.weight", {384, 1}),
          floats_of("a.weight.absmax", std::vector<float>(12, 0.5f)),
          floats_of("a.weight.quant_map", format::kNF4Table.entries), state_of("nf4", state)};
}
std::vector<FileTensor> doubled_parts(const json& state = doubled_state()) {
  std::vector<FileTensor> parts = table_parts(state);
  parts[1] = bytes_of("a.weight.absmax", {12});
  parts.push_back(floats_of("a.weight.nested_absmax", std::vector<float>{2, 3}));
  parts.push_back(floats_of("a.weight.nested_quant_map", std::vector<float>(256, 0.25f)));
  return parts;
}

struct JoinedTables {
  TensorIndex index;
  ModelConfig config;
};
JoinedTables joined_tables(const std::vector<FileTensor>& tensors) {
  const TempDir dir;
  write_file(dir / "model.safetensors", safetensors_bytes(tensors));
  JoinedTables all{read_safetensors(dir.path()), {}};
  join_table_tensors(all.index, all.config);
  return all;
}

TEST(TableTensors, BecomeOneMatrixWithItsFactorsOrWhatTheseAreMadeOf) {
  const JoinedTables plain = joined_tables(table_parts()), doubled = joined_tables(doubled_parts());
  for (const JoinedTables* const all : {&plain, &doubled}) {
    ASSERT_EQ(all->index.tensors.size(), 1u);
    const TensorEntry& matrix = all->index.tensors[0];
    EXPECT_EQ(matrix.name, "a.weight");
    EXPECT_EQ(matrix.dtype, DType::kNF4);
    EXPECT_EQ(matrix.shape, (std::vector<std::int64_t>{6, 128}));
    EXPECT_EQ(matrix.bytes, 6u * 2 * 36);
    EXPECT_EQ(matrix.parts->group, 64);
    EXPECT_EQ(all->config.quantization, "bitsandbytes: 1 matrix");
  }
  EXPECT_EQ(plain.index.tensors[0].parts->doubled, nullptr);
  const MatrixParts::Doubled* const inner = doubled.index.tensors[0].parts->doubled.get();
  ASSERT_NE(inner, nullptr);
  EXPECT_EQ(inner->group, 8);
  EXPECT_EQ(inner->offset, 0.5f);
  EXPECT_EQ(inner->values[255], 0.25f);
}

TEST(TableTensors, APartThatDoesNotFitIsRefusedByItsName) {
  struct Case {
    FileTensor instead;
    const char* error;
  };
  format::CodeTable others = format::kNF4Table;
  others.entries[3] = 0.3f;
  for (const Case& c : {
           Case{bytes_of("a.weight", {380, 1}), "'a.weight' is 'U8' [380, 1]"},
           Case{bytes_of("a.weight", {1, 384}), "not 'U8' [384, 1]"},
           Case{bytes_of("a.weight", {384, 1}, "I8"), "'a.weight' is 'I8' [384, 1]"},
           Case{floats_of("a.weight.absmax", std::vector<float>(11)), "not 'U8' [12]"},
           Case{floats_of("a.weight.quant_map", others.entries), "is not the table of nf4"},
           Case{floats_of("a.weight.quant_map", std::vector<float>(15)), "not 'F32' [16]"},
           Case{floats_of("a.weight.nested_absmax", std::vector<float>(1)), "not 'F32' [2]"},
           Case{bytes_of("a.weight.nested_quant_map", {256}), "not 'F32' [256]"},
       }) {
    std::vector<FileTensor> parts = doubled_parts();
    *std::ranges::find(parts, c.instead.name, &FileTensor::name) = c.instead;
    const std::string error = error_of([&] { joined_tables(parts); });
    EXPECT_NE(error.find(c.error), std::string::npos) << "'" << error << "' lacks " << c.error;
    EXPECT_NE(error.find("tensor 'a.weight' of bitsandbytes"), std::string::npos) << error;
  }
  for (const char* const part :
       {"", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"}) {
    std::vector<FileTensor> parts = doubled_parts();
    std::erase_if(parts,
                  [&](const FileTensor& p) { return p.name == "a.weight" + std::string(part); });
    EXPECT_NE(error_of([&] {
                joined_tables(parts);
              }).find("its part 'a.weight" + std::string(part) + "' is missing"),
              std::string::npos);
  }
}

TEST(TableTensors, AStateThatSaysSomethingElseIsRefusedByItsKey) {
  for (const auto& [key, value, says] :
       std::initializer_list<std::tuple<const char*, json, const char*>>{
           {"quant_type", "fp4", "quant_type' is not 'nf4'"},
           {"blocksize", 32, "blocksize' is 32, not a multiple of 64"},
           {"blocksize", 0, "blocksize' is 0"},
           {"shape", json{768}, "shape' is not [rows, columns]"},
           {"shape", {6, -128}, "shape' is not [rows, columns]"},
           {"shape", {6, 1, 128}, "shape' is not [rows, columns]"},
           {"shape", {8, 96}, "its rows have 96 columns, which are not whole blocks of 64"},
           {"nested_blocksize", nullptr, "nested_blocksize' is missing"},
           {"nested_dtype", "float16", "nested_dtype' is 'float16', not 'float32'"},
           {"nested_offset", "0.5", "nested_offset' is not a number"}}) {
    json state = doubled_state();
    state[key] = value;
    const std::string error = error_of([&] { joined_tables(doubled_parts(state)); });
    EXPECT_NE(error.find(says), std::string::npos) << "'" << error << "' lacks " << says;
  }
  std::vector<FileTensor> parts = table_parts();
  parts.back() = state_of("int4", plain_state());
  EXPECT_NE(error_of([&] { joined_tables(parts); }).find("its codes are 'int4', not nf4 or fp4"),
            std::string::npos);
  parts.back() = state_of("nf4", "text");
  EXPECT_NE(error_of([&] { joined_tables(parts); }).find("is not a JSON object"),
            std::string::npos);
}

TEST(TableScheme, IsBitsandbytesOfFourBits) {
  for (const json& scheme : {json{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}},
                             json{{"load_in_4bit", true}, {"load_in_8bit", false}}})
    EXPECT_TRUE(quantization_of({{"quantization_config", scheme}}).tables) << scheme;
}

}  // namespace
}  // namespace canopy::testing
