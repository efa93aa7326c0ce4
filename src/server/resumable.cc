#include "src/server/resumable.h"

namespace canopy::server {

void ResumableStream::add(const std::string& events) {
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at < events.size();) {
      const std::size_t end = events.find("\n\n", at) + 2;
      events_.push_back(events.substr(at, end - at));
      at = end;
    }
  }
  changed_.notify_all();
}

void ResumableStream::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

ResumableStream::Events ResumableStream::after(std::size_t seen,
                                               std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return events_.size() > seen || ended_; });
  Events found{{}, seen, ended_};
  for (; found.last < events_.size(); ++found.last)
    found.text += "id: " + std::to_string(found.last + 1) + "\n" + events_[found.last];
  return found;
}

void ResumableStream::attach() {
  const std::lock_guard lock(mutex_);
  ++readers_;
}

void ResumableStream::detach() {
  const std::lock_guard lock(mutex_);
  --readers_;
  left_ = Clock::now();
}

bool ResumableStream::abandoned(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  return readers_ == 0 && now - left_ > kPatience;
}

void ResumableStreams::forget_abandoned() {
  const auto now = ResumableStream::Clock::now();
  all_.remove_if([&](const auto& one) { return one.second->abandoned(now); });
}

std::shared_ptr<ResumableStream> ResumableStreams::add(const std::string& id) {
  const std::lock_guard lock(mutex_);
  forget_abandoned();
  return all_.emplace_back(id, std::make_shared<ResumableStream>()).second;
}

std::shared_ptr<ResumableStream> ResumableStreams::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  forget_abandoned();
  for (const auto& [name, stream] : all_)
    if (name == id) return stream;
  return nullptr;
}

}  // namespace canopy::server
