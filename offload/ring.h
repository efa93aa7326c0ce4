#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>

namespace canopy {

/// A part of a ring of bytes.
struct Range {
  std::size_t begin = 0, bytes = 0;
  std::size_t end() const { return begin + bytes; }
};

/// Ranges are made and freed in one order, so that the live ones are together (around the end of
/// the ring). Returns where one of `bytes` more can begin, after the newest; nothing if the oldest
/// is in its way. Without live ones both are null.
inline std::optional<std::size_t> room_in_ring(std::size_t ring, const Range* oldest,
                                               const Range* newest, std::size_t bytes) {
  if (oldest == nullptr) return bytes <= ring ? std::optional<std::size_t>(0) : std::nullopt;
  const std::size_t end = newest->end();
  if (newest->begin < oldest->begin)  // they run around the end
    return oldest->begin - end >= bytes ? std::optional(end) : std::nullopt;
  if (ring - end >= bytes) return end;
  return oldest->begin >= bytes ? std::optional<std::size_t>(0) : std::nullopt;
}

/// Finds a place for the next range, which older ones may still hold: after the newest, or at the
/// ring's start where it would run over the end. Nothing where live ranges already run around
/// the end and it would have to as well.
inline std::optional<std::size_t> place_in_ring(std::size_t ring, const Range* oldest,
                                                const Range* newest, std::size_t bytes) {
  if (oldest == nullptr) return bytes <= ring ? std::optional<std::size_t>(0) : std::nullopt;
  if (ring - newest->end() >= bytes) return newest->end();
  const bool around = newest->begin < oldest->begin;
  return !around && bytes <= ring ? std::optional<std::size_t>(0) : std::nullopt;
}

/// The first bytes of a range so placed that no older one has any more. `oldest`: of those before
/// it; null: there are none.
inline std::size_t free_of(const Range& placed, const Range* oldest) {
  if (oldest == nullptr || oldest->begin < placed.begin) return placed.bytes;
  return std::min(placed.bytes, oldest->begin - placed.begin);
}

}  // namespace canopy
