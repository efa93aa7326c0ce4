#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/delta.h"
#include "kernels/device.h"
#include "src/checkpoint/model_config.h"

namespace canopy {

int recurrent_layers(const ModelConfig& config);

/// A snapshot that was taken; it may be gone since.
struct SnapshotId {
  int place = -1;
  std::uint64_t serial = 0;
};

/// Room for what texts need of recurrent layers to go on after their first tokens, a multiple of
/// kAnchorStep of them: the state that the next token starts from, kAnchorStep tokens earlier, the
/// rows of the tokens since, and the last inputs of the convolution (math.md "Recurrent layers").
/// Whoever takes a place writes it, and keeps it once its tokens are a text's; a snapshot that is
/// kept stays until its place is wanted, the one used least recently goes first. One thread at a
/// time.
class StateSnapshots {
 public:
  /// `count` places, of a model with recurrent layers. Throws Error if the device is full.
  StateSnapshots(Device& device, const ModelConfig& config, int count);
  /// Predicts what the constructor will hold; 0 without recurrent layers, or for no places. Pure.
  static std::size_t bytes_needed(const ModelConfig& config, int count);
  static constexpr int kAllocations = 2;  // that hold it

  int places() const { return static_cast<int>(places_.size()); }
  std::size_t bytes_of_one() const { return layer_floats_ * layers_ * sizeof(float); }

  /// A place to write to: a free one, or that of the kept snapshot used least recently; nothing
  /// where all are being written.
  std::optional<SnapshotId> take();
  void keep(const SnapshotId& id);
  bool has(const SnapshotId& id) const;
  /// Somebody goes on from it.
  void use(const SnapshotId& id);
  /// Its place is free, where it is still there.
  void drop(const SnapshotId& id);
  /// The same, where nobody has gone on from it since it was kept.
  void drop_unused(const SnapshotId& id);

  /// One layer's parts. Shapes: state [value_heads key_dim, value_dim]; key, update and decay
  /// [kAnchorStep, columns of DeltaRows]; input [kDeltaTaps - 1, channels], all f32.
  struct Parts {
    TensorView state, key, update, decay, input;
  };
  /// `layer`: among the recurrent ones.
  Parts parts(int place, int layer) const;
  /// Numbers 0, 1, ..., count - 1 in the device's memory, at most as many as a state has rows or
  /// kAnchorStep. Shape: [count] i32.
  ConstTensorView counting(std::int64_t count) const;

  /// Copies a snapshot from the device and waits, or to it. Shape: bytes_of_one().
  void read(const SnapshotId& id, std::span<std::byte> to, Stream& stream) const;
  void write(const SnapshotId& id, std::span<const std::byte> from, Stream& stream);

 private:
  struct Place {
    std::uint64_t serial = 0;  // 0: free
    bool kept = false;
    std::uint64_t used = 0, kept_at = 0;
  };
  std::byte* at(int place, int layer) const;

  Device* device_;
  DeltaConfig delta_;
  std::size_t layers_, layer_floats_;
  std::vector<Place> places_;
  std::uint64_t serials_ = 0, uses_ = 0;
  Buffer storage_, counting_;
};

}  // namespace canopy
