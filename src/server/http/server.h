#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace canopy::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method, path, query;  // "GET", "/v1/models", "a=1"
  Headers headers;                  // names in lower case
  std::string body;

  std::string_view header(std::string_view name) const;  // "" where there is none
};

/// One request and its reply: reply() once, or begin_stream(), write() and end_stream(). One
/// thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  const Request& request() const { return request_; }

  /// Goes with whatever is replied from now on.
  void add_header(std::string name, std::string value) {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  virtual void reply(int status, std::string_view content_type, std::string body) = 0;
  /// Status 200 and the headers are sent now; the body follows in pieces.
  virtual void begin_stream(std::string_view content_type) = 0;
  /// False: the client has gone, or takes nothing for too long.
  virtual bool write(std::string_view piece) = 0;
  virtual void end_stream() = 0;
  virtual bool begun() const = 0;         // something was sent
  int status() const { return status_; }  // that was sent; 0: none yet
  virtual bool client_gone() const = 0;

 protected:
  Request request_;
  Headers headers_;
  int status_ = 0;
};

using Handler = std::function<void(Exchange&)>;
/// Writes the body of what the server itself replies to requests that it refuses: (status, what was
/// wrong, the path, "" where it could not be read).
using Refusal = std::function<std::string(int, const std::string&, std::string_view)>;

struct Limits {
  std::size_t header_bytes = 16u << 10;
  std::size_t body_bytes = 8u << 20;
  int connections = 256;
  std::chrono::milliseconds read_idle{30'000};       // between two pieces of a request
  std::chrono::milliseconds write_idle{30'000};      // a client that reads nothing
  std::chrono::milliseconds keep_alive{15'000};      // between two requests
  std::chrono::milliseconds whole_request{120'000};  // from its first byte to its last
};

/// An HTTP/1.1 server: a thread for each connection. Handlers must not throw.
class Server {
 public:
  /// Listens from now on. `port` 0: any that is free. Throws Error: the address is none, the port
  /// is taken.
  Server(const std::string& host, std::uint16_t port, const Limits& limits, Handler handler,
         Refusal refuse);
  /// Ends everything at once.
  ~Server();

  std::uint16_t port() const;
  int connections() const;
  /// Takes no more connections and requests; replies that are on their way go on.
  void close();
  /// close(). Replies that are on their way have so long to get through; then no handler runs any
  /// more.
  void end(std::chrono::milliseconds patience);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace canopy::http
