#pragma once
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace canopy::server {

/// The events of a stream whose client may come back to it. Any thread.
class ResumableStream {
 public:
  using Clock = std::chrono::steady_clock;
  /// Time that it waits for a client to come back.
  static constexpr std::chrono::seconds kPatience{60};

  /// `events`: one or more, each with its empty line. They are numbered from 1.
  void add(const std::string& events);
  void end();

  struct Events {
    std::string text;      // with their numbers as ids
    std::size_t last = 0;  // the number of the last
    bool ended = false;    // nothing follows
  };
  /// Returns the events after event `seen`; waits for one as long as `patience`.
  Events after(std::size_t seen, std::chrono::milliseconds patience);

  // Clients that read it.
  void attach();
  void detach();
  /// Nobody reads it, and nobody has for too long.
  bool abandoned(Clock::time_point now) const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
  bool ended_ = false;
  int readers_ = 0;
  Clock::time_point left_ = Clock::now();  // when the last reader went
};

/// Streams by the id of their answer. Any thread.
class ResumableStreams {
 public:
  std::shared_ptr<ResumableStream> add(const std::string& id);
  std::shared_ptr<ResumableStream> find(const std::string& id);  // null if there is none

 private:
  void forget_abandoned();  // with mutex_ held

  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<ResumableStream>>> all_;
};

}  // namespace canopy::server
