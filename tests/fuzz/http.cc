// Requests over HTTP, as bytes of a connection: each is answered, or the connection is closed.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "src/base/file.h"
#include "src/server/http/server.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {
namespace {

using std::chrono::milliseconds;

void answer(http::Exchange& exchange) {
  const http::Request& request = exchange.request();
  expect(!request.method.empty() || request.path.empty(), "a method");
  for (const auto& [name, value] : request.headers)
    expect(value.find('\n') == value.npos && value.find('\r') == value.npos, "headers of one line");
  if (request.path == "/stream") {
    exchange.begin_stream("text/event-stream");
    exchange.write("data: x\n\n");
    exchange.end_stream();
  } else {
    exchange.reply(200, "text/plain", std::to_string(request.body.size()));
  }
}

http::Server& server() {
  static const http::Limits kLimits{.header_bytes = 4 << 10,
                                    .body_bytes = 16 << 10,
                                    .connections = 4096,
                                    .read_idle = milliseconds(200),
                                    .write_idle = milliseconds(200),
                                    .keep_alive = milliseconds(200),
                                    .whole_request = milliseconds(500)};
  static http::Server server("127.0.0.1", 0, kLimits, answer,
                             [](int, const std::string& why, std::string_view) { return why; });
  return server;
}

UniqueFd connected() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(server().port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  expect(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0, "a connection");
  const linger at_once{1, 0};  // a million connections must not wait for their last packets
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  return fd;
}

}  // namespace

void fuzz_one(std::string_view input) {
  const UniqueFd fd = connected();
  while (!input.empty()) {
    const ssize_t sent = send(fd.get(), input.data(), input.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    input.remove_prefix(static_cast<std::size_t>(sent));
  }
  shutdown(fd.get(), SHUT_WR);
  std::string reply;
  std::array<char, 4096> part{};
  while (true) {
    const ssize_t got = recv(fd.get(), part.data(), part.size(), 0);
    if (got <= 0) break;
    reply.append(part.data(), static_cast<std::size_t>(got));
  }
  expect(reply.empty() || reply.starts_with("HTTP/1."), "a reply in HTTP");
}

}  // namespace canopy::fuzz
