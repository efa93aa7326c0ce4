#include "src/server/stored_responses.h"

#include <algorithm>

#include "src/base/utf8.h"

namespace canopy::server {

void StoredResponses::add(const std::string& id, Response response) {
  Entry entry{id, std::make_shared<const Response>(std::move(response))};
  if (bytes_of(entry) > most_bytes_) return;
  const std::lock_guard lock(mutex_);
  bytes_ += bytes_of(entry);
  all_.push_front(std::move(entry));
  while (all_.size() > most_ || bytes_ > most_bytes_) {
    bytes_ -= bytes_of(all_.back());
    all_.pop_back();
  }
}

std::shared_ptr<const StoredResponses::Response> StoredResponses::find(
    const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const Entry& entry) { return entry.first == id; });
  return found == all_.end() ? nullptr : found->second;
}

bool StoredResponses::remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const Entry& entry) { return entry.first == id; });
  if (found == all_.end()) return false;
  bytes_ -= bytes_of(*found);
  all_.erase(found);
  return true;
}

std::string StoredResponses::why_none(const std::string& id) const {
  return "there is no response " + in_quotes(id) +
         " here: it was not stored or is deleted, the server was started anew, or newer ones took "
         "its place (" +
         std::to_string(most_) + " responses of " + std::to_string(most_bytes_) +
         " bytes together are kept): send the whole conversation as 'input'";
}

}  // namespace canopy::server
