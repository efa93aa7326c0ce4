// Directories of FP8 weights: their values, and those that are refused.
#include <gtest/gtest.h>

#include "src/base/formats/packed_format.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/quantized/fp8_scheme.h"
#include "tests/checkpoint/fp8_files.h"
#include "tests/temp_dir.h"

namespace canopy::testing {
namespace {

using nlohmann::json;

constexpr const char* kUp = "model.layers.1.mlp.up_proj";

/// A matrix of an open model as f32.
std::string values_of(const Checkpoint& model, const std::string& name) {
  const TensorEntry& tensor = *model.find(name);
  const std::string file = read_file(model.files()[static_cast<std::size_t>(tensor.file)]);
  const auto* const data = reinterpret_cast<const std::byte*>(file.data()) + tensor.offset;
  std::vector<float> row(static_cast<std::size_t>(tensor.shape[1]));
  std::string values;
  for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
    row_as_f32(tensor.dtype, row_at(data + place_of_rows(tensor, i, 1).offset, tensor, i), row);
    values.append(reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float));
  }
  return values;
}

class Fp8Directory : public ::testing::TestWithParam<Fp8Form> {};

TEST_P(Fp8Directory, HasTheWeightsThatItsCodesAndScalesStandFor) {
  const Fp8Models models = fp8_models(GetParam());
  const TempDir dir;
  for (const std::size_t shards : {1u, 3u}) {
    write_hugging_face(dir / std::to_string(shards), models.fp8, shards);
    const Checkpoint model = Checkpoint::open(dir / std::to_string(shards));
    int matrices = 0;
    for (const FileTensor& tensor : models.plain.tensors) {
      const TensorEntry* const entry = model.find(tensor.name);
      ASSERT_NE(entry, nullptr) << tensor.name;
      EXPECT_EQ(entry->shape, tensor.shape);
      if (entry->companion.empty()) continue;
      EXPECT_EQ(entry->bytes * sizeof(float), tensor.bytes.size());
      EXPECT_TRUE(values_of(model, tensor.name) == tensor.bytes) << tensor.name;
      ++matrices;
    }
    EXPECT_EQ(matrices, 14);
    EXPECT_EQ(model.tensors().size(), models.plain.tensors.size());
    const std::string& words = model.config().quantization;
    EXPECT_NE(words.find(": 14 matrices with a scale "), words.npos) << words;
    EXPECT_NE(words.find("; activations are not quantised"), words.npos) << words;
    EXPECT_EQ(words.find(", 14 scales of them are not used") != words.npos,
              *GetParam().activation_name != '\0')
        << words;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Fp8Directory, ::testing::ValuesIn(kFp8Forms),
                         [](const auto& info) { return std::string(info.param.name); });

/// The error of opening a model of this form, which `change` has changed.
template <class Change>
std::string error_of_changed(const Fp8Form& form, const Change& change) {
  static const TempDir dir;
  static int number = 0;
  static std::map<std::string, TinyModel> unchanged;
  if (!unchanged.contains(form.name)) unchanged[form.name] = fp8_models(form).fp8;
  TinyModel model = unchanged[form.name];
  change(model);
  const auto path = dir / std::to_string(number++);
  write_hugging_face(path, model);
  return error_of([&] { Checkpoint::open(path); });
}
template <class Change>
std::string error_of_changed(const Change& change) {
  return error_of_changed(kFp8Forms[0], change);
}
void expect_mention(const std::string& error, const std::string& what) {
  EXPECT_NE(error.find(what), error.npos) << "got: " << error << "\nwanted: " << what;
}
FileTensor& scales_of_up(TinyModel& model) {
  return model.at(kUp + std::string(".weight_scale_inv"));
}
FileTensor& codes_of_up(TinyModel& model) { return model.at(kUp + std::string(".weight")); }
void remove(TinyModel& model, const std::string& name) {
  std::erase_if(model.tensors, [&](const FileTensor& tensor) { return tensor.name == name; });
}

TEST(Fp8Tensors, WhoseScalesDoNotFitAreRefusedByName) {
  const std::string tensor = "'" + std::string(kUp) + ".weight'";
  const auto refused = [&](const auto& change, const std::string& what) {
    const std::string error = error_of_changed(change);
    expect_mention(error, what);
    expect_mention(error, tensor);
    expect_mention(error, "FP8");
  };
  refused([](TinyModel& m) { remove(m, kUp + std::string(".weight_scale_inv")); },
          "it has no scales");
  refused([](TinyModel& m) { scales_of_up(m).shape = {4}; },
          "have shape [4], but FP8 asks for [2, 2]");
  refused([](TinyModel& m) { scales_of_up(m).shape = {1, 4}; }, "have shape [1, 4]");
  refused(
      [](TinyModel& m) {  // as if partial blocks had none
        scales_of_up(m).shape = {1, 1};
        scales_of_up(m).bytes.resize(4);
      },
      "have shape [1, 1], but FP8 asks for [2, 2]");
  refused(
      [](TinyModel& m) {
        FileTensor other = scales_of_up(m);
        other.name = kUp + std::string(".weight_scale");
        m.tensors.push_back(other);
      },
      "it has scales by two names");
  refused(
      [](TinyModel& m) {
        scales_of_up(m).dtype = DType::kI32, scales_of_up(m).stored_dtype = "I32";
      },
      "are 'I32'; they may be F32, BF16, F16 or F8_E8M0");
  refused([](TinyModel& m) { codes_of_up(m).shape.push_back(1); }, "no matrix named NAME.weight");
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
    refused([&](TinyModel& m) { std::memcpy(&scales_of_up(m).bytes[4], &bad, 4); },
            "the scale of rows 0 to 127, columns 128 to 159 is ");
  const std::string of_exponents = error_of_changed(kFp8Forms[2], [](TinyModel& m) {
    EXPECT_EQ(m.config["quantization_config"]["quant_method"], "fp8");
    scales_of_up(m).bytes[3] = '\xff';
  });
  expect_mention(of_exponents, "the scale of rows 128 to 199, columns 128 to 159 is nan");
}

TEST(Fp8Tensors, ThatAreCutShortAreRefusedByName) {
  for (const bool codes : {true, false}) {
    const std::string error = error_of_changed([&](TinyModel& m) {
      FileTensor& tensor = codes ? codes_of_up(m) : scales_of_up(m);
      tensor.bytes.pop_back();
    });
    expect_mention(error,
                   codes ? "but 'F8_E4M3' [200, 160] takes 32000" : "but F32 [2, 2] takes 16");
    expect_mention(error, kUp);
  }
}

TEST(Fp8Tensors, MustAgreeWithTheLists) {
  const auto with_list = [](const char* key, const json& list, const auto& change) {
    return error_of_changed([&](TinyModel& m) {
      json& config = m.config["quantization_config"];
      config.erase("modules_to_not_convert");
      config[key] = list;
      change(m);
    });
  };
  const auto nothing = [](TinyModel&) {};
  const auto plain_up = [](TinyModel& m) {
    FileTensor& codes = codes_of_up(m);
    codes.stored_dtype = "BF16";
    codes.bytes.append(codes.bytes);
    remove(m, kUp + std::string(".weight_scale_inv"));
  };
  for (const char* key : {"modules_to_not_convert", "ignored_layers", "ignore"}) {
    SCOPED_TRACE(key);
    for (const json& unused : {json(nullptr), json::array(), json{"lm_head"}, json{"re:.*lm_head$"},
                               json{"model.vision_tower", "up"}, json{"re:(a|b)"}})
      EXPECT_EQ(with_list(key, unused, nothing), "");
    for (const char* name : {kUp, "up_proj", "model.layers.1.mlp", "model.layers.1", "re:.*up_proj",
                             "re:model.layers.1.mlp.u", "re:^model\\.layers.*j$"}) {
      const std::string error = with_list(key, {name}, nothing);
      expect_mention(error, "it is 'F8_E4M3' [");
      expect_mention(error, "but the list '" + std::string(key) + "' of the config leaves '");
      EXPECT_EQ(with_list(key, {name},
                          [&](TinyModel& m) {
                            std::vector<std::string> out;
                            for (FileTensor& t : m.tensors) {
                              // All that the entry may mean becomes plain.
                              if (t.stored_dtype == "F8_E4M3") {
                                t.stored_dtype = "BF16", t.bytes.append(t.bytes);
                                out.push_back(t.name + "_scale_inv");
                              }
                            }
                            for (const std::string& scales : out) remove(m, scales);
                            m.config["quantization_config"][key] = {"model.layers"};
                          }),
                "");
    }
    EXPECT_EQ(with_list(key, {kUp}, plain_up), "");
    EXPECT_EQ(with_list(key, {"re:(a|b)"}, plain_up), "");  // which may mean it
    for (const char* other : {"lm_head", "model.layers.1.mlp.up", "re:.*mlp.up$"}) {
      const std::string error = with_list(key, {other}, plain_up);
      expect_mention(error, "tensor 'model.layers.1.mlp.up_proj.weight' is BF16 [200, 160]");
      expect_mention(error, "should be F8_E4M3");
    }
  }
  expect_mention(with_list("ignore", "lm_head", nothing), "is not a list");
}

TEST(Fp8Tensors, WithoutASchemeAreRefused) {
  const std::string error =
      error_of_changed([](TinyModel& m) { m.config.erase("quantization_config"); });
  expect_mention(error, ", but config.json has no 'quantization_config'");
}

TEST(Fp8Tensors, OfTheOtherFormatAreRefusedByItsName) {
  const std::string error =
      error_of_changed([](TinyModel& m) { codes_of_up(m).stored_dtype = "F8_E5M2"; });
  expect_mention(error, "'F8_E5M2'");
  expect_mention(error, kUp);
}

TEST(Fp8Scheme, ThatIsNotReadIsRefusedByName) {
  const auto error = [](const Fp8Form& form, const auto& change) {
    return error_of_changed(form, [&](TinyModel& m) { change(m.config["quantization_config"]); });
  };
  const Fp8Form &fp8 = kFp8Forms[0], &compressed = kFp8Forms[8];
  ASSERT_STREQ(compressed.name, "compressed_blocks");
  const auto weights = [](json& c) -> json& { return c["config_groups"]["group_0"]["weights"]; };
  expect_mention(error(fp8, [](json& c) { c["fmt"] = "e5m2"; }),
                 "FP8 weights with numbers of the format 'e5m2'");
  expect_mention(error(fp8,
                       [](json& c) {
                         c["weight_block_size"] = {64, 64};
                       }),
                 "FP8 weights with scales of blocks of [64,64]");
  expect_mention(error(fp8, [](json& c) { c["kv_cache_scheme"] = "static"; }),
                 "FP8 weights with scales of keys and values, \"static\" (key 'kv_cache_scheme')");
  const std::string name = "compressed-tensors (float-quantized) weights with ";
  expect_mention(error(compressed,
                       [](json& c) {
                         c["kv_cache_scheme"] = {{"num_bits", 8}};
                       }),
                 name + "scales of keys and values");
  expect_mention(error(compressed, [&](json& c) { weights(c)["strategy"] = "group"; }),
                 name + "scales by the strategy 'group'");
  expect_mention(error(compressed,
                       [&](json& c) {
                         weights(c)["block_structure"] = {1, 128};
                       }),
                 name + "scales of blocks of [1,128]");
  expect_mention(error(compressed, [&](json& c) { weights(c)["type"] = "int"; }),
                 name + "weights of type \"int\"");
  expect_mention(error(compressed, [&](json& c) { weights(c)["num_bits"] = 4; }),
                 name + "weights of type");
  expect_mention(error(compressed, [&](json& c) { weights(c)["symmetric"] = false; }),
                 name + "zero points");
  expect_mention(error(compressed,
                       [](json& c) {
                         c["sparsity_config"] = {{"format", "sparse-24"}};
                       }),
                 name + "a sparse form");
  expect_mention(error(compressed, [](json& c) { c["format"] = "marlin-24"; }),
                 "by compressed-tensors (\"marlin-24\") (key 'quantization_config')");
  EXPECT_EQ(error(compressed, [](json& c) { c["sparsity_config"] = {{"format", "dense"}}; }), "");
  EXPECT_EQ(error(compressed, [&](json& c) { weights(c)["block_structure"] = "128x128"; }), "");
  EXPECT_EQ(error(compressed, [](json& c) { c.erase("quant_method"); }), "");
}

TEST(Fp8Tensors, ScalesAreAPartOfTheFingerprint) {
  const TempDir dir;
  TinyModel model = fp8_models(kFp8Forms[0]).fp8;
  write_hugging_face(dir / "one", model);
  float scale = 0;
  std::memcpy(&scale, scales_of_up(model).bytes.data(), 4);
  scale *= 2;
  std::memcpy(scales_of_up(model).bytes.data(), &scale, 4);
  write_hugging_face(dir / "other", model);
  EXPECT_NE(fingerprint(Checkpoint::open(dir / "one")),
            fingerprint(Checkpoint::open(dir / "other")));
}

}  // namespace
}  // namespace canopy::testing
