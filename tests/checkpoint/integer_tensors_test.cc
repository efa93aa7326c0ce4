// Matrices of whole numbers in directories: what is joined, and what is refused by its name.
#include "src/checkpoint/quantized/integer_tensors.h"

#include <gtest/gtest.h>

#include <functional>

#include "src/base/formats/grouped_format.h"
#include "src/checkpoint/quantized/quantization.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/error_of.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

/// A file with the parts of a matrix 'a.b.weight' of 16 rows and 64 columns, in groups of 32.
struct Parts {
  json scheme;
  std::vector<FileTensor> tensors;

  FileTensor& operator[](const std::string& end) {
    return *std::ranges::find(tensors, "a.b." + end, &FileTensor::name);
  }
  void erase(const std::string& end) {
    std::erase_if(tensors, [&](const FileTensor& t) { return t.name == "a.b." + end; });
  }
  void shape(const std::string& end, std::vector<std::int64_t> shape) {
    FileTensor& tensor = (*this)[end];
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    const std::size_t of_each = tensor.stored_dtype == "I32" ? 4 : 2;
    tensor.shape = std::move(shape);
    tensor.bytes.assign(static_cast<std::size_t>(count) * of_each, '\0');
  }
};

FileTensor words(const std::string& end, std::vector<std::int64_t> shape) {
  std::size_t bytes = 4;
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {"a.b." + end, DType::kI32, std::move(shape), std::string(bytes, '\0'), "I32"};
}
FileTensor scales(const std::string& end, std::vector<std::int64_t> shape) {
  std::size_t bytes = 2;
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {"a.b." + end, DType::kF16, std::move(shape), std::string(bytes, '\0')};
}
FileTensor order(const std::vector<std::int32_t>& groups, const std::string& end) {
  FileTensor tensor = words(end, {std::ssize(groups)});
  std::memcpy(tensor.bytes.data(), groups.data(), tensor.bytes.size());
  return tensor;
}

Parts awq_parts() {
  return {{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}},
          {words("qweight", {64, 2}), words("qzeros", {2, 2}), scales("scales", {2, 16})}};
}
Parts gptq_parts() {
  std::vector<std::int32_t> groups(64);
  for (std::size_t k = 0; k < groups.size(); ++k) groups[k] = static_cast<std::int32_t>(k / 32);
  return {{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}},
          {words("qweight", {8, 16}), words("qzeros", {2, 2}), scales("scales", {2, 16}),
           order(groups, "g_idx")}};
}
Parts packed_parts() {
  FileTensor shape{"a.b.weight_shape", DType::kU64, {2}, {}, "I64"};
  append<std::int64_t>(shape.bytes, 16);
  append<std::int64_t>(shape.bytes, 64);
  return {{{"quant_method", "compressed-tensors"},
           {"format", "pack-quantized"},
           {"config_groups",
            {{"group_0",
              {{"targets", {"Linear"}},
               {"weights",
                {{"num_bits", 4},
                 {"type", "int"},
                 {"strategy", "group"},
                 {"group_size", 32},
                 {"symmetric", false}}}}}}}},
          {words("weight_packed", {16, 8}), words("weight_zero_point", {2, 2}),
           scales("weight_scale", {16, 2}), shape}};
}
FileTensor bytes_part(const std::string& end, std::vector<std::int64_t> shape) {
  FileTensor tensor = words(end, std::move(shape));
  tensor.bytes.resize(tensor.bytes.size() / 4);
  tensor.stored_dtype = "I8";
  return tensor;
}
Parts whole_parts() {
  Parts parts = packed_parts();
  parts.scheme["format"] = "int-quantized";
  parts.scheme["config_groups"]["group_0"]["weights"]["num_bits"] = 8;
  parts.tensors = {bytes_part("weight", {16, 64}), bytes_part("weight_zero_point", {16, 2}),
                   scales("weight_scale", {16, 2}), scales("input_scale", {1}),
                   scales("bias", {16})};
  return parts;
}
json& weights_of(Parts& parts) { return parts.scheme["config_groups"]["group_0"]["weights"]; }

TensorIndex joined(const Parts& parts) {
  const TempDir dir;
  write_file(dir / "model.safetensors", safetensors_bytes(parts.tensors));
  TensorIndex index = read_safetensors(dir.path());
  ModelConfig config;
  join_integer_tensors(index, *quantization_of({{"quantization_config", parts.scheme}}).integers,
                       config);
  return index;
}
using Change = std::function<void(Parts&)>;
std::string error_of_changed(Parts parts, const Change& change) {
  change(parts);
  return error_of([&] { joined(parts); });
}
void expect_mention(const std::string& error, const std::string& what) {
  EXPECT_NE(error.find(what), std::string::npos) << "'" << error << "' lacks '" << what << "'";
}

TEST(IntegerTensors, BecomeOneMatrixWhoseRowsHaveAFormat) {
  for (const Parts& parts : {awq_parts(), gptq_parts(), packed_parts()}) {
    const TensorIndex index = joined(parts);
    ASSERT_EQ(index.tensors.size(), 1u) << parts.scheme;
    const TensorEntry& matrix = index.tensors[0];
    EXPECT_EQ(matrix.name, "a.b.weight");
    EXPECT_EQ(matrix.dtype, DType::kI4_32);
    EXPECT_EQ(matrix.shape, (std::vector<std::int64_t>{16, 64}));
    EXPECT_EQ(matrix.bytes, tensor_bytes(matrix));
    ASSERT_TRUE(matrix.parts);
    EXPECT_EQ(place_in_file(matrix).bytes, 512u);  // of the codes
    const TensorEntry part = rows_of(rows_of(matrix, 3, 10), 4, 2);
    EXPECT_EQ(part.parts->first_row, 7);
    EXPECT_EQ(part.offset, matrix.offset);
  }
}

TEST(IntegerTensors, OfBytesAreThoseOfI8AndScalesOfActivationsAreNotUsed) {
  const TempDir dir;
  Parts parts = whole_parts();
  parts.tensors.push_back(scales("weight", {16, 64}));
  parts.tensors.back().name = "a.c.weight";
  write_file(dir / "model.safetensors", safetensors_bytes(parts.tensors));
  TensorIndex index = read_safetensors(dir.path());
  ModelConfig config;
  join_integer_tensors(index, *quantization_of({{"quantization_config", parts.scheme}}).integers,
                       config);
  std::ranges::sort(index.tensors, {}, &TensorEntry::name);
  ASSERT_EQ(index.tensors.size(), 3u);
  EXPECT_EQ(index.tensors[0].name, "a.b.bias");
  EXPECT_EQ(index.tensors[1].name, "a.b.weight");
  EXPECT_EQ(index.tensors[1].dtype, DType::kI8_32);
  EXPECT_TRUE(index.tensors[1].parts);
  EXPECT_EQ(index.tensors[2].name, "a.c.weight");
  EXPECT_FALSE(index.tensors[2].parts);
  EXPECT_EQ(config.quantization,
            "compressed-tensors (int-quantized): 1 matrix; activations are not quantised, and "
            "their scales are not used");
}

TEST(IntegerTensors, APartThatDoesNotFitIsRefusedByItsName) {
  struct Case {
    Parts parts;
    Change change;
    const char* error;
  };
  for (const Case& c : {
           Case{awq_parts(), [](Parts& p) { p.erase("scales"); },
                "its part 'a.b.scales' is missing"},
           Case{awq_parts(), [](Parts& p) { p.erase("qzeros"); }, "without zero points"},
           Case{awq_parts(),
                [](Parts& p) {
                  p.shape("scales", {3, 16});
                },
                "are those of no form"},
           Case{awq_parts(),
                [](Parts& p) {
                  p.shape("qzeros", {2, 1});
                },
                "are those of no form"},
           Case{awq_parts(), [](Parts& p) { p.shape("qweight", {128}); }, "not a matrix of I32"},
           Case{awq_parts(), [](Parts& p) { p["qweight"].stored_dtype = "F8_X"; }, "'a.b.qweight'"},
           Case{awq_parts(), [](Parts& p) { p["qzeros"].bytes.resize(12); }, "has 12 bytes"},
           Case{awq_parts(), [](Parts& p) { p["scales"].stored_dtype = "I16"; },
                "'a.b.scales' is 'I16' [2, 16] of 64 bytes, not scales in F16, BF16 or F32"},
           Case{awq_parts(),
                [](Parts& p) {
                  p.tensors.push_back(scales("weight", {16, 64}));
                },
                "there is also 'a.b.weight'"},
           Case{awq_parts(),
                [](Parts& p) {
                  p.scheme["group_size"] = -1;
                  p.shape("qweight", {56, 2});
                  p.shape("qzeros", {1, 2});
                  p.shape("scales", {1, 16});
                },
                "its rows have 56 columns"},
           Case{gptq_parts(), [](Parts& p) { p.shape("g_idx", {63}); },
                "not a vector of 64 groups"},
           Case{gptq_parts(),
                [](Parts& p) { p["g_idx"] = order(std::vector<std::int32_t>(64, 2), "g_idx"); },
                "'a.b.g_idx' gives column 0 group 2 of 2"},
           Case{whole_parts(), [](Parts& p) { p.erase("weight_scale"); },
                "its part 'a.b.weight_scale' is missing"},
           Case{whole_parts(), [](Parts& p) { p["weight_zero_point"].stored_dtype = "U8"; },
                "'a.b.weight_zero_point' is 'U8' [16, 2] of 32 bytes, not a matrix of I8"},
           Case{whole_parts(),
                [](Parts& p) {
                  p["weight_zero_point"] = bytes_part("weight_zero_point", {16, 1});
                },
                "of no form"},
           Case{whole_parts(),
                [](Parts& p) {
                  p.shape("weight_scale", {16, 1});
                },
                "of no form"},
           Case{packed_parts(), [](Parts& p) { p.erase("weight_shape"); },
                "'a.b.weight_shape' is missing"},
           Case{packed_parts(), [](Parts& p) { p["weight_shape"].bytes[0] = 17; }, "says [17, 64]"},
           Case{packed_parts(), [](Parts& p) { p["weight_shape"].bytes[8] = 72; }, "of no form"},
           Case{packed_parts(),
                [](Parts& p) {
                  p.shape("weight_scale", {16, 1});
                },
                "of no form"},
           Case{packed_parts(), [](Parts& p) { weights_of(p)["symmetric"] = true; }, "of no form"},
           Case{packed_parts(),
                [](Parts& p) {
                  std::vector<std::int32_t> groups(64, 1);
                  groups[9] = -1;
                  p.tensors.push_back(order(groups, "weight_g_idx"));
                },
                "'a.b.weight_g_idx' gives column 9 group -1 of 2"},
       }) {
    const std::string error = error_of_changed(c.parts, c.change);
    expect_mention(error, c.error);
    expect_mention(error, "tensor 'a.b.");
  }
  EXPECT_EQ(error_of_changed(packed_parts(),
                             [](Parts& p) {
                               std::vector<std::int32_t> none(64, -1);
                               p.tensors.push_back(order(none, "weight_g_idx"));
                             }),
            "");
}

TEST(IntegerTensors, ColumnsWithTheirGroupEachMakeRowsOfAnotherFormat) {
  Parts parts = gptq_parts();
  std::vector<std::int32_t> groups(64);
  for (std::size_t k = 0; k < groups.size(); ++k) groups[k] = static_cast<std::int32_t>(k % 2);
  parts["g_idx"] = order(groups, "g_idx");
  const TensorIndex index = joined(parts);
  ASSERT_EQ(index.tensors.size(), 1u);
  const TensorEntry& matrix = index.tensors[0];
  EXPECT_EQ(matrix.dtype, DType::kI4Grouped);
  EXPECT_EQ(matrix.bytes, 16u * (2 * 4 + 32));
  for (std::int64_t k = 0; k < 64; ++k)
    EXPECT_EQ(format::I4Grouped::group(matrix.companion.bytes().data(), k), k % 2) << k;
}

TEST(IntegerScheme, WhatIsNotReadIsRefusedByItsKey) {
  struct Case {
    Parts parts;
    Change change;
    const char* error;
  };
  for (const Case& c : {
           Case{awq_parts(), [](Parts& p) { p.scheme["version"] = "gemv"; },
                "AWQ weights with the order of the version 'gemv' (key "
                "'quantization_config.version')"},
           Case{awq_parts(), [](Parts& p) { p.scheme["bits"] = 8; }, "AWQ weights with 8 bits"},
           Case{awq_parts(), [](Parts& p) { p.scheme.erase("bits"); },
                "AWQ weights with null bits"},
           Case{awq_parts(), [](Parts& p) { p.scheme["zero_point"] = false; },
                "with no zero points"},
           Case{awq_parts(), [](Parts& p) { p.scheme["group_size"] = 16; },
                "with groups of 16 columns"},
           Case{awq_parts(), [](Parts& p) { p.scheme["group_size"] = "128"; },
                "with groups of \"128\""},
           Case{gptq_parts(), [](Parts& p) { p.scheme["bits"] = 3; }, "GPTQ weights with 3 bits"},
           Case{gptq_parts(), [](Parts& p) { p.scheme["checkpoint_format"] = "marlin"; },
                "'marlin'"},
           Case{gptq_parts(), [](Parts& p) { p.scheme["is_marlin_format"] = true; }, "of Marlin"},
           Case{gptq_parts(),
                [](Parts& p) {
                  p.scheme["dynamic"] = {{"-:.*", json::object()}};
                },
                "other forms of some modules (key 'quantization_config.dynamic')"},
           Case{packed_parts(), [](Parts& p) { weights_of(p)["num_bits"] = 3; },
                "(pack-quantized) weights with 3 bits (key "
                "'quantization_config.config_groups[0].weights.num_bits')"},
           Case{whole_parts(), [](Parts& p) { weights_of(p)["num_bits"] = 4; },
                "(int-quantized) weights with 4 bits in a byte"},
           Case{packed_parts(), [](Parts& p) { weights_of(p)["type"] = "float"; },
                "the type 'float'"},
           Case{packed_parts(), [](Parts& p) { weights_of(p)["strategy"] = "token"; }, "'token'"},
           Case{packed_parts(),
                [](Parts& p) {
                  p.scheme["kv_cache_scheme"] = {{"num_bits", 8}};
                },
                "scales of keys and values"},
           Case{packed_parts(),
                [](Parts& p) {
                  p.scheme["sparsity_config"] = {{"format", "s"}};
                },
                "a sparse form"},
           Case{packed_parts(),
                [](Parts& p) {
                  p.scheme["transform_config"] = {{"R1", 1}};
                },
                "transformed inputs"},
       })
    expect_mention(error_of_changed(c.parts, c.change), c.error);
}

TEST(IntegerScheme, GroupsOfTwoFormsDifferByTheirShapes) {
  Parts parts = packed_parts();
  json other = parts.scheme["config_groups"]["group_0"];
  other["weights"]["group_size"] = 64;
  parts.scheme["config_groups"]["group_1"] = other;
  EXPECT_EQ(joined(parts).tensors.at(0).parts->group, 32);
  parts.shape("weight_scale", {16, 1});
  parts.shape("weight_zero_point", {2, 1});
  EXPECT_EQ(joined(parts).tensors.at(0).parts->group, 64);
}

}  // namespace
}  // namespace canopy::testing
