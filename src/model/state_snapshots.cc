#include "src/model/state_snapshots.h"

#include <algorithm>
#include <numeric>

#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t to_size(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr std::int64_t kInputs = kDeltaTaps - 1;

/// Floats of a part, in whole lines of a cache.
std::size_t padded(std::int64_t floats) { return (to_size(floats) + 15) / 16 * 16; }

std::size_t floats_of_layer(const DeltaConfig& delta) {
  return padded(delta.state()) +
         padded(std::int64_t{kAnchorStep} * delta.key_heads * delta.key_dim) +
         padded(std::int64_t{kAnchorStep} * delta.values()) +
         padded(std::int64_t{kAnchorStep} * delta.value_heads) + padded(kInputs * delta.channels());
}

std::int64_t rows_of_state(const DeltaConfig& delta) {
  return std::int64_t{delta.value_heads} * delta.key_dim;
}

std::size_t numbers_of(const DeltaConfig& delta) {
  return to_size(std::max<std::int64_t>(rows_of_state(delta), kAnchorStep));
}

}  // namespace

int recurrent_layers(const ModelConfig& config) {
  int count = 0;
  for (int layer = 0; layer < config.layers; ++layer) count += config.layer(layer).recurrent;
  return count;
}

std::size_t StateSnapshots::bytes_needed(const ModelConfig& config, int count) {
  if (count == 0 || !config.recurrent()) return 0;
  return to_size(count) * to_size(recurrent_layers(config)) * floats_of_layer(config.delta) *
             sizeof(float) +
         numbers_of(config.delta) * sizeof(std::int32_t);
}

StateSnapshots::StateSnapshots(Device& device, const ModelConfig& config, int count)
    : device_(&device),
      delta_(config.delta),
      layers_(to_size(recurrent_layers(config))),
      layer_floats_(floats_of_layer(config.delta)),
      places_(to_size(count)) {
  require(count > 0 && layers_ > 0, "snapshots are of models with recurrent layers");
  storage_ = device.allocate_sparse(to_size(count) * bytes_of_one());
  std::vector<std::int32_t> numbers(numbers_of(delta_));
  std::iota(numbers.begin(), numbers.end(), 0);
  counting_ = device.allocate(numbers.size() * sizeof(std::int32_t));
  const auto stream = device.make_stream("setup");
  device.upload(*stream, counting_.data(), std::as_bytes(std::span(numbers)));
  stream->synchronize();
}

std::optional<SnapshotId> StateSnapshots::take() {
  Place* chosen = nullptr;
  for (Place& place : places_) {
    if (place.serial == 0) {
      chosen = &place;
      break;
    }
    if (place.kept && (chosen == nullptr || place.used < chosen->used)) chosen = &place;
  }
  if (chosen == nullptr) return std::nullopt;
  *chosen = {.serial = ++serials_};
  return SnapshotId{static_cast<int>(chosen - places_.data()), chosen->serial};
}

void StateSnapshots::keep(const SnapshotId& id) {
  if (!has(id)) return;
  Place& place = places_[to_size(id.place)];
  place.kept = true;
  place.used = place.kept_at = ++uses_;
}

bool StateSnapshots::has(const SnapshotId& id) const {
  return id.place >= 0 && places_.at(to_size(id.place)).serial == id.serial;
}

void StateSnapshots::use(const SnapshotId& id) {
  if (has(id)) places_[to_size(id.place)].used = ++uses_;
}

void StateSnapshots::drop(const SnapshotId& id) {
  if (has(id)) places_[to_size(id.place)] = {};
}

void StateSnapshots::drop_unused(const SnapshotId& id) {
  if (has(id) && places_[to_size(id.place)].used == places_[to_size(id.place)].kept_at) drop(id);
}

std::byte* StateSnapshots::at(int place, int layer) const {
  require(place >= 0 && place < places() && layer >= 0 && to_size(layer) < layers_,
          "no such snapshot of a layer");
  return storage_.data() +
         (to_size(place) * layers_ + to_size(layer)) * layer_floats_ * sizeof(float);
}

StateSnapshots::Parts StateSnapshots::parts(int place, int layer) const {
  std::byte* next = at(place, layer);
  const auto part = [&](std::int64_t rows, std::int64_t columns) {
    const TensorView view(next, DType::kF32, {rows, columns});
    next += padded(rows * columns) * sizeof(float);
    return view;
  };
  Parts parts;
  parts.state = part(rows_of_state(delta_), delta_.value_dim);
  parts.key = part(kAnchorStep, std::int64_t{delta_.key_heads} * delta_.key_dim);
  parts.update = part(kAnchorStep, delta_.values());
  parts.decay = part(kAnchorStep, delta_.value_heads);
  parts.input = part(kInputs, delta_.channels());
  return parts;
}

ConstTensorView StateSnapshots::counting(std::int64_t count) const {
  return ConstTensorView(counting_.data(), DType::kI32,
                         {static_cast<std::int64_t>(numbers_of(delta_))})
      .rows(0, count);
}

void StateSnapshots::read(const SnapshotId& id, std::span<std::byte> to, Stream& stream) const {
  require(has(id) && to.size() == bytes_of_one(), "a snapshot is read whole");
  device_->download(stream, to, at(id.place, 0));
  stream.synchronize();
}

void StateSnapshots::write(const SnapshotId& id, std::span<const std::byte> from, Stream& stream) {
  require(has(id) && from.size() == bytes_of_one(), "a snapshot is written whole");
  device_->upload(stream, at(id.place, 0), from);
  stream.synchronize();
}

}  // namespace canopy
