#pragma once
#include <poll.h>

#include <chrono>
#include <deque>
#include <string_view>
#include <vector>

#include "src/base/file.h"

namespace canopy::http {

/// Connections that were refused, until their clients have read why: where one is closed while its
/// request arrives, it is reset, and the client may lose the reply. Bounded in number and time, by
/// the oldest. One thread, which never waits here.
class Refused {
 public:
  /// Sends the reply, as far as the connection takes it, and that nothing follows.
  void add(UniqueFd connection, std::string_view reply);
  /// Waits for `first` two, and for what these connections send, which is passed over.
  void wait_with(pollfd (&first)[2]);

 private:
  using Clock = std::chrono::steady_clock;
  struct One {
    UniqueFd connection;
    Clock::time_point until;
  };
  std::deque<One> all_;  // the oldest first
};

}  // namespace canopy::http
