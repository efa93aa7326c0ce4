// Tiny models of each family with the matrices of their layers in FP8, against the same models with
// what these stand for in F32.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "src/checkpoint/families.h"
#include "src/checkpoint/model_tensors.h"
#include "src/convert/weight_rows.h"
#include "tests/checkpoint/fp8_files.h"
#include "tests/convert/tiny_outputs.h"

namespace canopy::testing {
namespace {

/// A tensor of a tiny model in F32, under the name that files of its family have.
FileTensor in_f32(const Checkpoint& model, WeightRows& rows, const TensorEntry& tensor) {
  FileTensor out{std::string(stored_name(family_of(model.config()), tensor.name)),
                 DType::kF32,
                 tensor.shape,
                 {}};
  std::vector<float> row(static_cast<std::size_t>(WeightRows::columns(tensor)));
  for (std::int64_t i = 0; i < WeightRows::rows(tensor); ++i) {
    rows.read(tensor, i, row);
    for (const float value : row) append(out.bytes, value);
  }
  return out;
}

Fp8Models fp8_models_of(const std::string& name, const Fp8Form& form) {
  const Checkpoint model = test::tiny_model(name);
  WeightRows rows(model);
  Fp8Models made;
  made.plain.config = nlohmann::json::parse(std::ifstream(model.root() / "config.json"));
  nlohmann::json scheme = fp8_config(form);
  nlohmann::json& left_out =
      scheme[scheme.contains("ignore") ? "ignore" : "modules_to_not_convert"];
  for (const TensorEntry& tensor : model.tensors()) {
    const auto found = find_tensor(tensor.name);
    FileTensor plain = in_f32(model, rows, tensor);
    const bool of_layer = found && found->layer >= 0 && found->spec->kind == TensorKind::kMatrix;
    if (of_layer && found->spec->role != TensorRole::kRouter) {
      append_fp8(plain, form, made.fp8.tensors);
    } else {
      if (of_layer) left_out.push_back(plain.name.substr(0, plain.name.size() - 7));  // ".weight"
      made.fp8.tensors.push_back(plain);
    }
    made.plain.tensors.push_back(std::move(plain));
  }
  made.fp8.config = made.plain.config;
  made.fp8.config["quantization_config"] = scheme;
  return made;
}

class Fp8Families : public ::testing::TestWithParam<const char*> {};

TEST_P(Fp8Families, HaveTheLogitsOfTheDequantisedModelBitForBitResidentAndStreamed) {
  for (const Fp8Form& form : {kFp8Forms[0], kFp8Forms[4], kFp8Forms[7]}) {
    SCOPED_TRACE(form.name);
    const TempDir dir;
    const Fp8Models models = fp8_models_of(GetParam(), form);
    write_hugging_face(dir / "fp8", models.fp8);
    write_hugging_face(dir / "plain", models.plain);
    const Checkpoint fp8 = Checkpoint::open(dir / "fp8");
    EXPECT_GT(
        std::ranges::count_if(fp8.tensors(), [](const auto& t) { return !t.companion.empty(); }),
        fp8.config().layers);
    const std::vector<float> expected = test::logits_of(Checkpoint::open(dir / "plain"));
    EXPECT_EQ(test::logits_of(fp8), expected);
    EXPECT_EQ(test::streamed_logits_of(fp8), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Names, Fp8Families,
                         ::testing::Values("llama3", "mistral", "ministral3", "qwen2", "qwen3",
                                           "seed_oss", "opt", "opt_after", "bloom", "mixtral",
                                           "qwen3_moe", "olmoe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace canopy::testing
