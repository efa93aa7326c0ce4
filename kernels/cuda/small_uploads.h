#pragma once
// Small data on its way to a GPU. Copies of one direction share an engine, so one that is small
// waits for a matrix that is not, for milliseconds. This one takes another way: the host writes it
// to locked memory that the GPU reads, and a kernel moves it on.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>

#include "kernels/cuda/block.h"
#include "kernels/device.h"

namespace canopy::cuda {

/// Copies bytes. A thread for each 16 of them.
struct CopySmall {
  static constexpr int kThreads = 256, kPiece = 16;
  const std::byte* from;  // at a multiple of kPiece
  std::byte* to;
  std::int64_t bytes;

  Grid grid() const { return {ceil_div<std::int64_t>(bytes, kPiece * kThreads), kThreads}; }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    struct alignas(kPiece) Piece {
      std::uint32_t part[kPiece / 4];
    };
    block.step([&](int t) {
      const std::int64_t at = (block.index() * kThreads + t) * kPiece;
      const bool aligned = reinterpret_cast<std::uintptr_t>(to) % kPiece == 0;
      if (aligned && at + kPiece <= bytes) return store(to + at, load<Piece>(from + at));
      for (std::int64_t i = at; i < bytes && i < at + kPiece; ++i) to[i] = from[i];
    });
  }
};

/// Launch: as BlockOps has it. Any thread, each stream by one. A stream has slots of its own, so
/// that one which gigabytes are queued on holds no other up.
template <class Launch>
class SmallUploads {
 public:
  static constexpr std::size_t kMost = std::size_t{128}
                                       << 10;  // bytes at once: a large tree's mask
  static constexpr std::size_t kStreams = 4, kSlots = 16, kBytes = kStreams * kSlots * kMost;

  /// `shared`: kBytes that host and device see at the same address, at a multiple of 16.
  SmallUploads(Device& device, Launch launch, std::byte* shared)
      : launch_(launch), shared_(shared) {
    for (Slots& slots : slots_)
      for (auto& free : slots.free) free = device.make_event();
  }
  ~SmallUploads() {
    for (const Slots& slots : slots_)
      for (const auto& free : slots.free) wait_quietly(*free);
  }
  SmallUploads(const SmallUploads&) = delete;
  SmallUploads& operator=(const SmallUploads&) = delete;

  /// Queues the copy, if it is small. `from` may change as soon as this returns. Waits on the host
  /// where all slots of the stream are under way. Does nothing, and returns false, for what is
  /// large, in a graph, which would read its slot long after, and where kStreams others are busy.
  bool upload(Stream& stream, std::byte* to, std::span<const std::byte> from) {
    if (from.empty() || from.size() > kMost || stream.capturing()) return false;
    for (;;) {
      std::unique_lock lock(mutex_);
      Slots* const slots = slots_of(stream);
      if (slots == nullptr) return false;
      const std::size_t slot = slots->next % kSlots;
      const Event& free = *slots->free[slot];
      if (!free.reached()) {
        lock.unlock();
        free.wait();
        continue;
      }
      ++slots->next;
      const auto index = static_cast<std::size_t>(slots - slots_.data());
      std::byte* const at = shared_ + (index * kSlots + slot) * kMost;
      std::memcpy(at, from.data(), from.size());
      const CopySmall copy{at, to, static_cast<std::int64_t>(from.size())};
      launch_(stream, copy, copy.grid());
      stream.record(*slots->free[slot]);
      return true;
    }
  }

 private:
  struct Slots {
    const Stream* stream = nullptr;  // the last that used them
    std::size_t next = 0;
    std::array<std::unique_ptr<Event>, kSlots> free;  // recorded after a slot's last use
    bool idle() const {
      return std::ranges::all_of(free, [](const auto& event) { return event->reached(); });
    }
  };
  /// The stream's, or else those that no stream is using; null if there are none.
  Slots* slots_of(const Stream& stream) {
    const auto own = [&](const Slots& slots) { return slots.stream == &stream; };
    auto found = std::ranges::find_if(slots_, own);
    if (found == slots_.end()) found = std::ranges::find_if(slots_, &Slots::idle);
    if (found == slots_.end()) return nullptr;
    found->stream = &stream;
    return &*found;
  }

  Launch launch_;
  std::byte* const shared_;
  std::mutex mutex_;  // guards what follows
  std::array<Slots, kStreams> slots_;
};

}  // namespace canopy::cuda
