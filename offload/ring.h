#pragma once
#include <cstddef>
#include <optional>

namespace canopy {

/// A part of a ring of bytes.
struct Stretch {
  std::size_t begin = 0, bytes = 0;
  std::size_t end() const { return begin + bytes; }
};

/// Stretches are made and freed in one order, so that the live ones are together (around the end of
/// the ring). Where one of `bytes` more can begin, behind the newest; nothing if the oldest is in
/// its way. Without live ones both are null.
inline std::optional<std::size_t> room_in_ring(std::size_t ring, const Stretch* oldest,
                                               const Stretch* newest, std::size_t bytes) {
  if (oldest == nullptr) return bytes <= ring ? std::optional<std::size_t>(0) : std::nullopt;
  const std::size_t end = newest->end();
  if (newest->begin < oldest->begin)  // they run around the end
    return oldest->begin - end >= bytes ? std::optional(end) : std::nullopt;
  if (ring - end >= bytes) return end;
  return oldest->begin >= bytes ? std::optional<std::size_t>(0) : std::nullopt;
}

}  // namespace canopy
