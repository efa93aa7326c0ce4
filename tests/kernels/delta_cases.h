#pragma once
// A recurrent layer's random inputs, the rows that a text keeps of it, and runs of nodes.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/delta.h"
#include "tests/kernels/on_device.h"

namespace canopy {

using Floats = std::vector<float>;
using Paths = std::vector<std::vector<std::size_t>>;  // of each node, itself last

inline std::size_t whole(std::int64_t value) { return static_cast<std::size_t>(value); }

struct DeltaSizes {
  std::size_t key_heads, value_heads, key_dim, value_dim;
  bool by_turns = false;
  std::size_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  std::size_t key_head(std::size_t head) const {
    return by_turns ? head % key_heads : head / (value_heads / key_heads);
  }
  std::size_t state() const { return value_heads * key_dim * value_dim; }
};

inline std::vector<std::uint64_t> bits_of(const Paths& paths, std::size_t first) {
  const std::size_t words = (paths.size() + 63) / 64;
  std::vector<std::uint64_t> bits((paths.size() - first) * words);
  for (std::size_t i = first; i < paths.size(); ++i)
    for (const std::size_t j : paths[i])
      bits[(i - first) * words + j / 64] |= std::uint64_t{1} << (j % 64);
  return bits;
}

/// Random inputs of a layer, for a text of `slots`, the rows that it keeps, and states.
class DeltaLayer {
 public:
  DeltaLayer(DeltaSizes s, std::size_t slots, unsigned seed) : size(s) {
    std::mt19937 random(seed);
    mixed = random_floats(slots * s.channels(), random);
    b = random_floats(slots * s.value_heads, random, 2);
    a = random_floats(slots * s.value_heads, random, 2);
    taps = random_floats(s.channels() * whole(kDeltaTaps), random);
    rate = random_floats(s.value_heads, random, 3);
    for (float& one : rate) one -= 3;  // slow and fast decays
    dt = random_floats(s.value_heads, random);
  }
  DeltaSizes size;
  Floats mixed, b, a, taps, rate, dt;
};

/// The rows that a text keeps of a layer, each slot in one of its own, scattered.
class KeptRows {
 public:
  KeptRows(Device& device, Stream& stream, const DeltaSizes& size, std::size_t slots, unsigned seed)
      : size_(size), slots_(slots) {
    for (std::vector<std::int32_t>* table : {&input_row_, &row_}) {
      table->resize(slots);
      std::iota(table->begin(), table->end(), 0);
      std::shuffle(table->begin(), table->end(), std::mt19937(seed++));
    }
    const auto make = [&](std::size_t width) {
      return std::make_unique<OnDevice>(device, stream, bytes_of(Floats(slots * width)));
    };
    input_ = make(size.channels());
    key_ = make(size.key_heads * size.key_dim);
    update_ = make(size.value_heads * size.value_dim);
    decay_ = make(size.value_heads);
    input_table_ = std::make_unique<OnDevice>(device, stream, bytes_of(input_row_));
    table_ = std::make_unique<OnDevice>(device, stream, bytes_of(row_));
  }
  DeltaRows view() {
    const std::int64_t n = dim(slots_), keys = dim(size_.key_heads),
                       values = dim(size_.value_heads);
    return {input_->view(DType::kF32, {n, dim(size_.channels())}),
            key_->view(DType::kF32, {n, keys, dim(size_.key_dim)}),
            update_->view(DType::kF32, {n, values, dim(size_.value_dim)}),
            decay_->view(DType::kF32, {n, values}),
            input_table_->view(DType::kI32, {n}),
            table_->view(DType::kI32, {n})};
  }
  /// Rows by slot.
  Floats keys() { return by_slot(key_->read<float>(), size_.key_heads * size_.key_dim); }
  Floats updates() { return by_slot(update_->read<float>(), size_.value_heads * size_.value_dim); }
  Floats decays() { return by_slot(decay_->read<float>(), size_.value_heads); }

 private:
  Floats by_slot(const Floats& rows, std::size_t width) const {
    Floats all;
    for (const std::int32_t row : row_)
      all.insert(all.end(), rows.begin() + static_cast<std::ptrdiff_t>(whole(row) * width),
                 rows.begin() + static_cast<std::ptrdiff_t>((whole(row) + 1) * width));
    return all;
  }
  DeltaSizes size_;
  std::size_t slots_;
  std::vector<std::int32_t> input_row_, row_;
  std::unique_ptr<OnDevice> input_, key_, update_, decay_, input_table_, table_;
};

/// Runs of nodes below a prefix of a text, and what they gave.
class TextRun {
 public:
  TextRun(Device& device, Stream& stream, const DeltaSizes& size, const DeltaLayer& layer,
          KeptRows& kept)
      : device_(device), stream_(stream), size_(size), layer_(layer), kept_(kept) {}

  /// Runs nodes [first, paths.size()) whose inputs are the layer's rows `rows`; no paths: a chain.
  void nodes(std::size_t prefix, std::size_t first, const std::vector<std::size_t>& rows,
             const Paths& paths, std::array<DeltaState, 2> states) {
    const auto pick = [&](const Floats& all, std::size_t width) {
      Floats own;
      for (const std::size_t row : rows)
        own.insert(own.end(), all.begin() + static_cast<std::ptrdiff_t>(row * width),
                   all.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
      return OnDevice(device_, stream_, bytes_of(own));
    };
    const std::int64_t n = dim(rows.size()), heads = dim(size_.value_heads);
    OnDevice mixed = pick(layer_.mixed, size_.channels()), beta = pick(layer_.b, size_.value_heads),
             a = pick(layer_.a, size_.value_heads);
    OnDevice taps(device_, stream_, bytes_of(layer_.taps)),
        rate(device_, stream_, bytes_of(layer_.rate)), dt(device_, stream_, bytes_of(layer_.dt));
    OnDevice bits(device_, stream_,
                  bytes_of(paths.empty() ? std::vector<std::uint64_t>(1) : bits_of(paths, first)));
    OnDevice result(device_, stream_,
                    bytes_of(Floats(rows.size() * size_.value_heads * size_.value_dim)));
    const DeltaNodes of{kept_.view(),
                        paths.empty() ? ConstTensorView()
                                      : bits.view(DType::kU64, {n, dim((paths.size() + 63) / 64)}),
                        dim(prefix), dim(first)};
    const TensorView mixed_view = mixed.view(DType::kF32, {n, dim(size_.channels())}),
                     beta_view = beta.view(DType::kF32, {n, heads});
    device_.ops().delta_enter(stream_,
                              {of, mixed_view, beta_view, a.view(DType::kF32, {n, heads}),
                               taps.view(DType::kF32, {dim(size_.channels()), kDeltaTaps}),
                               rate.view(DType::kF32, {heads}), dt.view(DType::kF32, {heads})});
    device_.ops().delta_rule(stream_, {of, mixed_view, beta_view, states,
                                       size_.by_turns ? KeyHeads::kByTurns : KeyHeads::kInGroups,
                                       result.view(DType::kF32, {n, heads, dim(size_.value_dim)})});
    entered = mixed.read<float>();
    betas = beta.read<float>();
    out = result.read<float>();
  }
  Floats entered, betas, out;

 private:
  Device& device_;
  Stream& stream_;
  DeltaSizes size_;
  const DeltaLayer& layer_;
  KeptRows& kept_;
};

}  // namespace canopy
