#include "src/model/kv_cache.h"

#include <algorithm>
#include <string>

#include "src/base/error.h"

namespace canopy {

namespace {
std::size_t head_bytes(DType dtype, int capacity, int head_dim) {
  return row_bytes(dtype, head_dim) * static_cast<std::size_t>(capacity);
}
std::size_t layer_bytes(const KvTypes& types, int kv_heads, int capacity, int head_dim) {
  return static_cast<std::size_t>(kv_heads) *
         (head_bytes(types.k, capacity, head_dim) + head_bytes(types.v, capacity, head_dim));
}
}  // namespace

std::size_t KvCache::bytes_needed(const ModelConfig& config, int capacity, KvTypes types) {
  return static_cast<std::size_t>(config.layers) *
             layer_bytes(types, config.kv_heads, capacity, config.head_dim) +
         static_cast<std::size_t>(capacity) * sizeof(std::int32_t);
}

KvCache::KvCache(Device& device, const ModelConfig& config, int capacity, KvTypes types)
    : device_(&device),
      layers_(config.layers),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      capacity_(capacity),
      types_(types) {
  require(capacity > 0, "a KV cache needs at least one slot");
  storage_ = device.allocate(static_cast<std::size_t>(layers_) *
                             layer_bytes(types, kv_heads_, capacity, head_dim_));
  path_ = device.allocate(static_cast<std::size_t>(capacity) * sizeof(std::int32_t));
  host_path_.reserve(static_cast<std::size_t>(capacity));
  path_uploaded_ = device.make_event();
}

KvView KvCache::layer(int index) const {
  require(index >= 0 && index < layers_, "no such layer in the KV cache");
  std::byte* k = storage_.data() + static_cast<std::size_t>(index) *
                                       layer_bytes(types_, kv_heads_, capacity_, head_dim_);
  std::byte* v =
      k + static_cast<std::size_t>(kv_heads_) * head_bytes(types_.k, capacity_, head_dim_);
  return {TensorView(k, types_.k, {kv_heads_, capacity_, head_dim_}),
          TensorView(v, types_.v, {kv_heads_, capacity_, head_dim_})};
}

void KvCache::commit(std::span<const NodeId> path, Stream& stream) {
  const auto count = static_cast<int>(path.size());
  if (count > capacity_ - length_)
    throw Error("cannot commit " + std::to_string(count) + " slots behind " +
                std::to_string(length_) + " in a KV cache of " + std::to_string(capacity_));
  const auto moved = std::find_if(path.begin(), path.end(),
                                  [&](const NodeId& node) { return node != &node - path.data(); });
  if (moved != path.end()) {
    path_uploaded_->wait();
    host_path_.assign(path.begin(), path.end());
    device_->upload(stream, path_.data(), std::as_bytes(std::span(host_path_)));
    stream.record(*path_uploaded_);
    const ConstTensorView rows(path_.data(), DType::kI32, {count});
    for (int i = 0; i < layers_; ++i) device_->ops().keep_kv(stream, rows, length_, layer(i));
  }
  length_ += count;
}

void KvCache::truncate(int length) {
  require(length >= 0 && length <= length_, "a KV cache can only be truncated to what it holds");
  length_ = length;
}

}  // namespace canopy
