#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/hub/settings.h"

namespace canopy::hub {

/// Bytes of a file, both ends included.
struct ByteRange {
  std::uint64_t first, last;
};

struct Ask {
  std::string url;
  enum class Method : std::uint8_t { kGet, kHead } method = Method::kGet;
  std::optional<ByteRange> range = std::nullopt;
};

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in small letters
  std::string text;                            // of a body that nobody took
  std::string location;                        // the absolute URL that a redirect names

  bool redirects() const { return !location.empty(); }
  std::string header(const std::string& name) const;  // "" where there is none
};

/// A fault of the network, or of a server that has too much to do: another try may go well.
class Trouble : public Error {
 public:
  enum class Server : bool { kReached, kNotReached };
  Trouble(const std::string& what, Server server,
          std::optional<std::chrono::seconds> asked = std::nullopt)
      : Error(what), reached(server == Server::kReached), wait(asked) {}
  bool reached;
  std::optional<std::chrono::seconds> wait;  // the server asks for it
};

/// A connection to the Hub and to the hosts that it leads to, kept open between requests. The
/// token goes to the endpoint's own scheme, host and port, and to nobody else. One thread.
class Connection {
 public:
  explicit Connection(const Settings& settings);  // throws Error
  ~Connection();
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) = delete;

  /// Takes a part of a body with status 200 or 206; may throw, which ends the request.
  using OnBody = std::function<void(const Reply& so_far, std::string_view part)>;
  /// Sends one request and reads the reply, whatever its status. Follows no redirect. Throws
  /// Trouble, Error (a certificate that is not trusted, a body that is too large); Stopped.
  Reply ask(const Ask& ask, const std::stop_token& stop, const OnBody& on_body = {});
  /// The same, where redirects are followed.
  Reply follow(Ask ask, const std::stop_token& stop, const OnBody& on_body = {});
  /// True if a URL is of the endpoint's scheme, host and port.
  bool is_endpoint(const std::string& url) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Throws Trouble for a status that another try may not have: 408, 429 and 500 on.
void require_ready(const Reply& reply);

/// Waits between tries, which end after six without progress.
class Patience {
 public:
  explicit Patience(std::stop_token stop) : stop_(std::move(stop)) {}
  /// Waits as long as the server asks for, else twice as long as the last time, from half a second
  /// on. Throws the trouble where it was the last try, or the wait would be longer than ten
  /// minutes; Stopped.
  void after(const Trouble& trouble);
  void renew() { tries_ = 0; }  // something has arrived

 private:
  std::stop_token stop_;
  int tries_ = 0;
};

}  // namespace canopy::hub
