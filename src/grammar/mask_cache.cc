#include "src/grammar/mask_cache.h"

namespace canopy::grammar {

const MaskCache::Mask* MaskCache::find(std::string_view key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &found->second->mask;
}

const MaskCache::Mask& MaskCache::insert(std::string key, Mask mask) {
  entries_.push_front({.key = std::move(key), .mask = std::move(mask)});
  by_key_.emplace(entries_.front().key, entries_.begin());
  bytes_ += entries_.front().bytes();
  while (bytes_ > most_bytes_ && entries_.size() > 1) {
    bytes_ -= entries_.back().bytes();
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return entries_.front().mask;
}

}  // namespace canopy::grammar
