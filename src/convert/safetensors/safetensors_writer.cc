#include "src/convert/safetensors/safetensors_writer.h"

#include <array>
#include <bit>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/error.h"

namespace canopy {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

namespace {

constexpr std::size_t kAlignment = 4096;

std::uint64_t tensor_bytes(const PlannedTensor& tensor) {
  std::uint64_t bytes = row_bytes(tensor.dtype, 1);
  for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

/// Length, JSON and padding, so that the data that follow are aligned.
std::string header_of(std::span<const PlannedTensor> tensors) {
  nlohmann::ordered_json json;
  json["__metadata__"] = {{"format", "pt"}};
  std::uint64_t at = 0;
  for (const PlannedTensor& tensor : tensors) {
    const std::uint64_t end = at + tensor_bytes(tensor);
    json[tensor.name] = {{"dtype", tensor.type.empty() ? name(tensor.dtype) : tensor.type},
                         {"shape", tensor.shape},
                         {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = json.dump();
  text.resize((text.size() + 8 + kAlignment - 1) / kAlignment * kAlignment - 8, ' ');
  std::array<char, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i)
    length[i] = static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xffu);
  return std::string(length.data(), length.size()) + text;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name.data();
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path directory,
                                     std::vector<PlannedTensor> tensors, std::uint64_t shard_bytes)
    : directory_(std::move(directory)), tensors_(std::move(tensors)) {
  require(!tensors_.empty(), "no tensors to write");
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::uint64_t bytes = tensor_bytes(tensors_[i]);
    if (shards_.empty() || shards_.back().bytes + bytes > shard_bytes)
      shards_.push_back({.name = {}, .header = {}, .first = i, .last = i, .bytes = 0});
    shards_.back().last = i + 1;
    shards_.back().bytes += bytes;
    total_bytes_ += bytes;
  }
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[i];
    shard.name = shard_name(i, shards_.size());
    shard.header = header_of(std::span(tensors_).subspan(shard.first, shard.last - shard.first));
  }
  open_shard();
  complete_tensors();
}

void SafetensorsWriter::open_shard() {
  const Shard& shard = shards_[shard_];
  file_ = std::make_unique<OutputFile>(directory_ / shard.name, shard.header.size() + shard.bytes);
  file_->write(shard.header);
  tensor_left_ = tensor_bytes(tensors_[tensor_]);
}

/// Steps over tensors that have all their bytes (empty ones too), and to the next shard.
void SafetensorsWriter::complete_tensors() {
  while (tensor_left_ == 0 && tensor_ < tensors_.size()) {
    ++tensor_;
    if (tensor_ == shards_[shard_].last) {
      file_->finish();
      file_.reset();
      if (++shard_ == shards_.size()) return;
      open_shard();
    } else {
      tensor_left_ = tensor_bytes(tensors_[tensor_]);
    }
  }
}

void SafetensorsWriter::write(std::string_view tensor, std::span<const std::byte> bytes) {
  if (tensor_ == tensors_.size() || tensors_[tensor_].name != tensor || bytes.size() > tensor_left_)
    throw Error("values for " + std::string(tensor) + " come out of order");
  file_->write(bytes);
  tensor_left_ -= bytes.size();
  written_bytes_ += bytes.size();
  complete_tensors();
}

void SafetensorsWriter::finish() {
  if (tensor_ != tensors_.size())
    throw Error("tensor " + tensors_[tensor_].name + " lacks " + std::to_string(tensor_left_) +
                " bytes");
  if (shards_.size() == 1) return;
  nlohmann::ordered_json index;
  index["metadata"] = {{"total_size", total_bytes_}};
  for (const Shard& shard : shards_)
    for (std::size_t i = shard.first; i < shard.last; ++i)
      index["weight_map"][tensors_[i].name] = shard.name;
  write_text_file(directory_ / "model.safetensors.index.json", index.dump(1) + "\n");
}

}  // namespace canopy
