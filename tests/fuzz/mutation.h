#pragma once
// Functions that the mutators of whole structures share.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

/// libFuzzer's own mutation of bytes; tests/fuzz/replay.cc has a plain one.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace canopy::fuzz {

using Random = std::minstd_rand;

inline std::size_t below(std::size_t count, Random& random) { return random() % count; }

/// Some bytes, changed by libFuzzer; at most `more` bytes longer.
inline std::string mutated(std::string_view bytes, std::size_t more = 16) {
  std::string out(bytes);
  out.resize(bytes.size() + more);
  out.resize(
      LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(out.data()), bytes.size(), out.size()));
  return out;
}

/// A number near one of those at which arithmetic goes wrong, or near `value`.
inline std::uint64_t odd_number(std::uint64_t value, Random& random) {
  static constexpr std::uint64_t kEdges[] = {
      0,           1,          32,         255,        65535,      1u << 20,   1u << 31,
      0xffffffffu, 1ull << 32, 1ull << 53, 1ull << 61, 1ull << 62, 1ull << 63, ~0ull};
  const std::uint64_t base = random() % 3 == 0 ? value : kEdges[below(std::size(kEdges), random)];
  return base + random() % 5 - 2;
}

/// Writes `bytes` to `data` as far as there is room, and returns how many: a mutator's result.
inline std::size_t give(std::string_view bytes, std::uint8_t* data, std::size_t most) {
  const std::size_t size = bytes.size() < most ? bytes.size() : most;
  std::memcpy(data, bytes.data(), size);
  return size;
}

}  // namespace canopy::fuzz
