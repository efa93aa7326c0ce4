#pragma once
#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <vector>

namespace canopy {

/// Record of the host memory that is locked, lock by lock. A driver copies at once only what lies
/// in one lock, or in none. Any thread.
class PinnedRanges {
 public:
  void add(std::span<const std::byte> range) {
    const std::lock_guard lock(mutex_);
    end_[range.data()] = range.data() + range.size();
  }
  void remove(const std::byte* begin) {
    const std::lock_guard lock(mutex_);
    end_.erase(begin);
  }

  /// Calls body(piece) for the pieces of a copy in their order, each in one lock or in none.
  template <class Body>
  void cut(std::span<const std::byte> copy, const Body& body) const {
    for (const std::span<const std::byte> piece : pieces(copy)) body(piece);
  }

 private:
  std::vector<std::span<const std::byte>> pieces(std::span<const std::byte> copy) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::span<const std::byte>> found;
    const std::byte* const last = copy.data() + copy.size();
    for (const std::byte* at = copy.data(); at < last;) {
      const auto behind = end_.upper_bound(at);  // the first lock that begins after `at`
      const std::byte* end = behind == end_.end() ? last : std::min(last, behind->first);
      if (behind != end_.begin())
        if (const std::byte* const of_lock = std::prev(behind)->second; of_lock > at)
          end = std::min(end, of_lock);
      found.emplace_back(at, end);
      at = end;
    }
    return found;
  }

  mutable std::mutex mutex_;
  std::map<const std::byte*, const std::byte*> end_;  // of each lock, by its begin
};

}  // namespace canopy
