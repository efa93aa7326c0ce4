#include "src/server/http/refused.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace canopy::http {

namespace {

constexpr std::size_t kMost = 64;
constexpr std::chrono::seconds kLinger{2};

/// Passes over what has arrived; false: the other end has ended, or the connection is broken.
bool pass_over(int connection) {
  std::array<char, 4096> bytes;
  ssize_t n = 0;
  for (int i = 0; i < 16; ++i) {  // one client does not hold up the others
    n = recv(connection, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n <= 0) break;
  }
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace

void Refused::add(UniqueFd connection, std::string_view reply) {
  send(connection.get(), reply.data(), reply.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(connection.get(), SHUT_WR);
  if (all_.size() == kMost) all_.pop_front();
  all_.push_back({std::move(connection), Clock::now() + kLinger});
}

void Refused::wait_with(pollfd (&first)[2]) {
  std::vector<pollfd> polled(std::begin(first), std::end(first));
  for (const One& one : all_) polled.push_back({one.connection.get(), POLLIN, 0});
  int most = -1;  // milliseconds
  if (!all_.empty()) {
    const auto left = all_.front().until - Clock::now();
    const auto whole = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    most = static_cast<int>(std::max<std::int64_t>(0, whole));
  }
  if (poll(polled.data(), polled.size(), most) < 0)  // interrupted: nothing is known to have come
    for (pollfd& one : polled) one.revents = 0;
  std::copy_n(polled.begin(), 2, first);
  const auto now = Clock::now();
  std::size_t i = 2;
  std::erase_if(all_, [&](const One& one) {
    const bool sent = polled[i++].revents != 0;
    return one.until <= now || (sent && !pass_over(one.connection.get()));
  });
}

}  // namespace canopy::http
