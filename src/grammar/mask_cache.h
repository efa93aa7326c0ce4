#pragma once
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace canopy::grammar {

/// Masks by what they depend on; the one that was not used for longest goes first.
/// One thread at a time.
class MaskCache {
 public:
  using Mask = std::vector<std::uint32_t>;
  explicit MaskCache(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  /// nullptr if it is not kept. Valid until the next insert().
  const Mask* find(std::string_view key);
  const Mask& insert(std::string key, Mask mask);
  std::size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string key;
    Mask mask;
    std::size_t bytes() const { return key.size() + mask.size() * sizeof(mask[0]); }
  };

  std::size_t most_bytes_, bytes_ = 0;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_key_;
};

}  // namespace canopy::grammar
