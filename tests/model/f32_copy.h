#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "src/base/formats/fp8_format.h"
#include "src/base/formats/packed_format.h"
#include "src/base/formats/weight_format.h"
#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// The same model with its tensors in F32, in a file of its own: a GPU then rounds no activations.
inline Checkpoint in_f32(const Checkpoint& from, const std::filesystem::path& file) {
  std::ofstream out(file, std::ios::binary);
  std::vector<TensorEntry> tensors = from.tensors();
  std::uint64_t end = 0;
  for (TensorEntry& tensor : tensors) {
    std::vector<char> bytes(tensor.bytes);
    std::ifstream in(from.files().at(static_cast<std::size_t>(tensor.file)), std::ios::binary);
    in.seekg(static_cast<std::streamoff>(tensor.offset)).read(bytes.data(), std::ssize(bytes));
    const auto* const stored = reinterpret_cast<const std::byte*>(bytes.data());
    std::vector<float> values;
    if (find_fp8_format(tensor.dtype) != nullptr) {
      const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
      values.resize(static_cast<std::size_t>(rows * columns));
      for (std::int64_t row = 0; row < rows; ++row)
        row_as_f32(tensor.dtype, row_at(stored + row * columns, tensor, row),
                   std::span(values).subspan(static_cast<std::size_t>(row * columns),
                                             static_cast<std::size_t>(columns)));
      tensor.companion = {};
      tensor.scales.clear();
    } else {
      visit_format(GgufFormats(), tensor.dtype, [&]<class Format>(Format) {
        for (std::size_t i = 0; i < bytes.size() / Format::kBlockBytes * Format::kBlockElements;
             ++i)
          values.push_back(weight_at<Format>(stored, static_cast<std::int64_t>(i)));
      });
    }
    tensor.dtype = DType::kF32;
    tensor.file = 0;
    tensor.offset = end;
    tensor.bytes = values.size() * sizeof(float);
    end += tensor.bytes;
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(tensor.bytes));
  }
  return Checkpoint(from.root(), {file}, std::move(tensors), from.config(), from.metadata());
}

}  // namespace canopy
