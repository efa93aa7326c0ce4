#include "src/convert/enlarge/random_checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/checkpoint/model_tensors.h"
#include "src/convert/enlarge/random_weights.h"
#include "src/convert/pack/pack_row.h"

namespace canopy {

namespace {

bool is_norm(const TensorEntry& tensor) {
  const auto found = find_tensor(tensor.name);
  return found && found->spec->kind == TensorKind::kNorm;
}

bool is_fp8(DType dtype) {
  const PackedFormat* const packed = find_packed_format(dtype);
  return find_fp8_format(packed ? packed->plain : dtype) != nullptr;
}

DType type_of(const TensorSpec& spec, const RandomModel& model) {
  const DType matrices = model.type;
  if (spec.kind != TensorKind::kMatrix || spec.role == TensorRole::kRouter) return DType::kBF16;
  if (matrices == DType::kBF16) return DType::kBF16;
  if (is_fp8(matrices)) return spec.rows == Length::kVocab ? model.vocab : matrices;
  if (is_packed(matrices)) return matrices;
  // As files of GPT-OSS have it: experts alone.
  if (matrices == DType::kMXFP4 && !spec.of_experts()) return DType::kQ8_0;
  return spec.rows == Length::kVocab ? DType::kQ8_0 : matrices;
}

/// A packed row of `columns` columns whose exponents have the distribution of trained ones. All
/// rows of a random matrix have its codes, so that all are as long; signs and mantissas are their
/// own.
std::vector<std::byte> packed_pattern(DType dtype, std::int64_t columns) {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(columns));
  RandomWeights(1).fill(0, 0, values);
  std::vector<std::byte> row;
  visit_format(PackedFormats(), dtype, [&]<class Format>(Format format) {
    std::vector<typename Format::Plain::Element> elements(values.begin(), values.end());
    if constexpr (kPacksFp8<Format>) {  // with a scale by which the largest is the largest number
      float most = 0;
      for (const std::uint16_t bits : values) most = std::max(most, std::abs(f32_from_bf16(bits)));
      std::ranges::transform(values, elements.begin(), [&](std::uint16_t bits) {
        return format::e4m3_from_f32(f32_from_bf16(bits) / most * format::kLargestE4M3);
      });
    }
    require(pack_row(format, elements, row), "random weights can be packed");
  });
  return row;
}

void fill_packed_row(const RandomWeights& random, std::uint64_t seed, std::uint32_t row,
                     const TensorEntry& tensor, std::vector<std::byte>& out) {
  static thread_local std::map<std::pair<DType, std::int64_t>, std::vector<std::byte>> patterns;
  const std::int64_t columns = tensor.shape[1];
  std::vector<std::byte>& pattern = patterns[{tensor.dtype, columns}];
  if (pattern.empty()) pattern = packed_pattern(tensor.dtype, columns);
  out = pattern;
  visit_format(PackedBf16Formats(), tensor.dtype, [&]<class Format>(Format) {
    std::vector<std::byte> rest(
        static_cast<std::size_t>(Format::groups(columns) * Format::kGroupColumns));
    random.fill_bytes(seed, row, rest);
    for (std::int64_t group = 0; group < Format::groups(columns); ++group)
      std::copy_n(rest.begin() + group * Format::kGroupColumns, Format::kGroupColumns,
                  out.begin() + Format::kHeaderBytes * Format::blocks(columns) +
                      group * Format::kGroupBytes + Format::kCodeBytes);
  });
}

/// Norms are ones: the values of a real model's layers stay finite on their way.
void fill_row(const RandomWeights& random, const TensorEntry& tensor, std::int64_t row,
              std::vector<std::byte>& out) {
  const std::uint64_t seed = RandomWeights::hash(tensor.name);
  const auto at = static_cast<std::uint32_t>(row);
  if (is_packed(tensor.dtype)) return fill_packed_row(random, seed, at, tensor, out);
  if (tensor.dtype != DType::kBF16) {
    random.fill_blocks(seed, at, tensor.dtype, out);
    return;
  }
  std::vector<std::uint16_t> values(out.size() / 2, 0x3f80);
  if (!is_norm(tensor)) random.fill(seed, at, values);
  std::memcpy(out.data(), values.data(), out.size());
}

/// A matrix of a format with a companion at `offset`. All packed rows are as long as the pattern,
/// and scales are ones.
TensorEntry entry_with_companion(std::string name, DType dtype,
                                 const std::vector<std::int64_t>& shape, std::uint64_t offset) {
  const PackedFormat* const packed = find_packed_format(dtype);
  const CompanionFormat* const fp8 = find_fp8_format(packed ? packed->plain : dtype);
  const std::vector<float> scales(fp8 ? fp8->bytes(shape[0], shape[1]) / sizeof(float) : 0, 1.0f);
  Companion companion;
  if (packed) {
    const std::vector<std::size_t> rows(static_cast<std::size_t>(shape[0]),
                                        packed_pattern(dtype, shape[1]).size());
    companion = companion_of_rows(*packed, rows, shape[1], scales);
  } else {
    const auto bytes = std::as_bytes(std::span(scales));
    companion = {
        *fp8, {bytes.begin(), bytes.end()}, shape[0], shape[1], tensor_bytes(dtype, shape)};
  }
  const std::uint64_t bytes = companion.place_of_rows(0, shape[0]).bytes;
  return {std::move(name), dtype, shape, 0, offset, bytes, std::move(companion)};
}

}  // namespace

Checkpoint lay_out_random_checkpoint(const RandomModel& model, LayerBytes layers,
                                     const std::filesystem::path& file) {
  const ModelConfig& shape = model.shape;
  require(shape.layers > 0 && shape.dim > 0 && shape.hidden_dim > 0 && shape.vocab > 0 &&
              shape.kv_heads > 0 && shape.head_dim > 0 && shape.heads % shape.kv_heads == 0,
          "a shape needs layers, dimensions, heads and a vocabulary");
  std::vector<TensorEntry> tensors;
  // Places of the first that have a role and shape.
  std::map<std::pair<TensorRole, std::vector<std::int64_t>>, std::uint64_t> shared;
  std::uint64_t end = 0;
  std::vector<std::filesystem::path> files{file};
  for_each_tensor(shape, [&](const ModelTensor& tensor) {
    const DType dtype = type_of(*tensor.spec, model);
    const std::vector<std::int64_t> extents = tensor.shape(shape);
    const auto [at, is_first] = shared.emplace(std::pair{tensor.spec->role, extents}, end);
    const bool own = is_first || layers == LayerBytes::kOwn;
    const std::uint64_t offset = own ? end : at->second;
    tensors.push_back(
        is_packed(dtype) || is_fp8(dtype)
            ? entry_with_companion(tensor.name(), dtype, extents, offset)
            : TensorEntry{tensor.name(), dtype, extents, 0, offset, tensor_bytes(dtype, extents)});
    if (layers == LayerBytes::kOwnInMemory && tensor.layer > 0) {
      tensors.back().file = tensor.layer;
      files.resize(std::max(files.size(), static_cast<std::size_t>(tensor.layer) + 1), file);
    }
    if (own) end += tensors.back().bytes;
  });
  return {file, std::move(files), std::move(tensors), shape, Metadata()};
}

Checkpoint write_random_checkpoint(
    const RandomModel& model, LayerBytes layers, const std::filesystem::path& file,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress,
    const std::stop_token& stop) {
  require(!is_fp8(model.type), "random weights of FP8 are laid out, not written");
  Checkpoint made = lay_out_random_checkpoint(model, layers, file);
  std::map<std::uint64_t, const TensorEntry*> once;  // by offset: each layer's are the same
  std::uint64_t all = 0;
  for (const TensorEntry& tensor : made.tensors())
    if (once.emplace(tensor.offset, &tensor).second) all += tensor.bytes;
  std::ofstream out(file, std::ios::binary);
  const RandomWeights random(1);
  std::vector<std::byte> row;
  std::uint64_t done = 0;
  try {
    for (const auto& [offset, entry] : once) {
      const TensorEntry& tensor = *entry;
      const std::int64_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
      row.resize(tensor.bytes / static_cast<std::uint64_t>(rows));
      for (std::int64_t r = 0; r < rows; ++r) {
        fill_row(random, tensor, r, row);
        out.write(reinterpret_cast<const char*>(row.data()), std::ssize(row));
        done += row.size();
        if (stop.stop_requested()) throw Stopped();
        if (progress) progress(done, all);
      }
    }
    if (!out.flush()) throw Error("cannot write " + file.string() + ": " + std::strerror(errno));
  } catch (...) {
    out.close();
    std::filesystem::remove(file);
    throw;
  }
  return made;
}

}  // namespace canopy
