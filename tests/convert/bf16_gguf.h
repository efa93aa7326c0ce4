#pragma once
#include <filesystem>
#include <vector>

#include "src/checkpoint/families.h"
#include "src/checkpoint/model_tensors.h"
#include "src/convert/gguf/gguf_metadata.h"
#include "src/convert/weight_rows.h"

namespace canopy::test {

/// Writes a Hugging Face model in BF16 as a GGUF file in BF16, as converters do: vectors in F32,
/// and the rows of a llama's Q and K reordered.
inline Checkpoint write_bf16_gguf(const Checkpoint& model, const std::filesystem::path& file) {
  constexpr std::uint32_t kMostlyBF16 = 32;
  std::vector<GgufTensor> tensors;
  std::vector<const TensorEntry*> sources;
  for_each_tensor(model.config(), [&](const ModelTensor& tensor) {
    const TensorEntry& source = *model.find(tensor.name());
    sources.push_back(&source);
    tensors.push_back({gguf_name(family_of(model.config()), tensor),
                       tensor.spec->kind == TensorKind::kMatrix ? DType::kBF16 : DType::kF32,
                       source.shape});
  });
  GgufMetadata metadata = gguf_model_metadata(model, kMostlyBF16);
  for (auto& entry : gguf_tokenizer_metadata(model)) metadata.push_back(std::move(entry));
  GgufWriter writer(file, metadata, tensors);
  WeightRows rows(model);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& source = *sources[i];
    std::vector<float> values(static_cast<std::size_t>(WeightRows::columns(source)));
    for (std::int64_t row = 0; row < WeightRows::rows(source); ++row) {
      const bool reordered =
          family_of(model.config()).gguf_adjacent_pairs && is_rotated(source.name);
      rows.read(source, reordered ? rotated_halves_row(row, model.config().head_dim) : row, values);
      std::vector<std::byte> bytes(row_bytes(tensors[i].dtype, WeightRows::columns(source)));
      encode_row(tensors[i].dtype, values, bytes.data());
      writer.write(tensors[i].name, bytes);
    }
  }
  writer.finish();
  return Checkpoint::open(file);
}

}  // namespace canopy::test
