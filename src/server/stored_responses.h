#pragma once
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace canopy::server {

/// Responses of OpenAI's API by their ids, for clients that go on from one or ask for it again. Its
/// size is bounded: the oldest ones go, and one that is larger than the bound is not kept. Any
/// thread.
class StoredResponses {
 public:
  static constexpr std::size_t kMost = 1024, kMostBytes = 8u << 20;
  explicit StoredResponses(std::size_t most = kMost, std::size_t most_bytes = kMostBytes)
      : most_(most), most_bytes_(most_bytes) {}

  struct Response {
    std::string reply;  // as the client got it, JSON
    std::string items;  // of the whole conversation, its output too: a list, JSON
  };
  void add(const std::string& id, Response response);
  std::shared_ptr<const Response> find(const std::string& id) const;  // null if there is none
  /// False: there is none.
  bool remove(const std::string& id);
  /// Says in words that there is no response with this id, and what the bounds are.
  std::string why_none(const std::string& id) const;

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Response>>;
  static std::size_t bytes_of(const Entry& entry) {
    return entry.first.size() + entry.second->reply.size() + entry.second->items.size();
  }

  const std::size_t most_, most_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> all_;  // the newest first
  std::size_t bytes_ = 0;
};

}  // namespace canopy::server
