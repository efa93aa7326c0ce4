#include "src/server/http/socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/error.hpp>
#include <cerrno>

namespace canopy::http {

namespace {

boost::system::error_code last_error() { return {errno, boost::system::system_category()}; }

}  // namespace

bool Socket::wait_for(short events, boost::system::error_code& error) const {
  pollfd one{descriptor_.get(), events, 0};
  while (true) {
    const int ready = poll(&one, 1, static_cast<int>(idle_.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno == EINTR) continue;
    error = ready == 0 ? boost::asio::error::timed_out : last_error();
    return false;
  }
}

std::size_t Socket::read(void* to, std::size_t bytes, boost::system::error_code& error) const {
  error = {};
  if (bytes == 0) return 0;
  while (wait_for(POLLIN, error)) {
    const ssize_t n = recv(descriptor_.get(), to, bytes, MSG_DONTWAIT);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) {
      error = boost::asio::error::eof;
      return 0;
    }
    if (errno == EAGAIN || errno == EINTR) continue;
    error = last_error();
    return 0;
  }
  return 0;
}

std::size_t Socket::write(const void* from, std::size_t bytes,
                          boost::system::error_code& error) const {
  error = {};
  while (wait_for(POLLOUT, error)) {
    const ssize_t n = send(descriptor_.get(), from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    error = last_error();
    return 0;
  }
  return 0;
}

bool Socket::peer_gone() const {
  pollfd one{descriptor_.get(), POLLRDHUP, 0};
  return poll(&one, 1, 0) > 0 && (one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Socket::linger(std::chrono::milliseconds idle, std::chrono::milliseconds longest) {
  const auto end = std::chrono::steady_clock::now() + longest;
  shutdown(descriptor_.get(), SHUT_WR);
  idle_ = idle;
  std::array<char, 16384> passed_over;
  boost::system::error_code error;
  while (read(passed_over.data(), passed_over.size(), error) > 0 &&
         std::chrono::steady_clock::now() < end) {
  }
}

void Socket::shut_down() const { shutdown(descriptor_.get(), SHUT_RDWR); }

}  // namespace canopy::http
