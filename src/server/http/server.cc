#include "src/server/http/server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cctype>
#include <cerrno>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "src/base/error.h"
#include "src/base/types.h"
#include "src/server/http/refused.h"
#include "src/server/http/socket.h"

namespace canopy::http {

namespace {

namespace beast = boost::beast::http;
using boost::system::error_code;

std::string text_of(boost::beast::string_view view) { return {view.data(), view.size()}; }

UniqueFd listen_on(const std::string& host, std::uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const std::string where = host + ":" + std::to_string(port);
  if (const int e = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); e != 0)
    throw Error("cannot listen on " + where + ": " + gai_strerror(e));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  int why = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    UniqueFd fd(socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, 0));
    const int yes = 1;
    if (fd.is_open() && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0 && listen(fd.get(), SOMAXCONN) == 0)
      return fd;
    why = errno;
  }
  throw Error("cannot listen on " + where + ": " + std::generic_category().message(why));
}

std::string_view path_of(std::string_view target) { return target.substr(0, target.find('?')); }

Request parsed(beast::request<beast::string_body>&& from) {
  Request request;
  request.method = text_of(from.method_string());
  const std::string target = text_of(from.target());
  request.path = path_of(target);
  if (request.path.size() < target.size()) request.query = target.substr(request.path.size() + 1);
  for (const auto& field : from) {
    std::string name = text_of(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    request.headers.emplace_back(std::move(name), text_of(field.value()));
  }
  request.body = std::move(from.body());
  return request;
}

class BeastExchange final : public Exchange {
 public:
  BeastExchange(Socket& socket, Request request, unsigned version, bool keep_alive)
      : socket_(socket), version_(version), keep_alive_(keep_alive) {
    request_ = std::move(request);
  }

  void reply(int status, std::string_view content_type, std::string body) override {
    beast::response<beast::string_body> response;
    fill(response, status, content_type);
    response.body() = std::move(body);
    response.prepare_payload();
    if (request_.method == "HEAD") response.body().clear();
    error_code error;
    beast::write(socket_, response, error);
    finish(!error);
  }

  void begin_stream(std::string_view content_type) override {
    chunked_ = version_ >= 11;
    keep_alive_ = keep_alive_ && chunked_;  // the end of the connection is that of the body
    beast::response<beast::empty_body> response;
    fill(response, 200, content_type);
    response.chunked(chunked_);
    beast::response_serializer<beast::empty_body> serializer(response);
    error_code error;
    beast::write_header(socket_, serializer, error);
    begun_ = true;
    gone_ = gone_ || error;
  }

  bool write(std::string_view piece) override {
    if (gone_ || piece.empty()) return !gone_;
    error_code error;
    const boost::asio::const_buffer bytes(piece.data(), piece.size());
    if (chunked_)
      boost::asio::write(socket_, beast::make_chunk(bytes), error);
    else
      boost::asio::write(socket_, bytes, error);
    gone_ = static_cast<bool>(error);
    return !gone_;
  }

  void end_stream() override {
    error_code error;
    if (chunked_ && !gone_) boost::asio::write(socket_, beast::make_chunk_last(), error);
    finish(!gone_ && !error);
  }

  bool begun() const override { return begun_; }
  bool client_gone() const override { return gone_ || socket_.peer_gone(); }
  bool may_go_on() const { return done_ && keep_alive_ && !gone_; }

 private:
  template <class Response>
  void fill(Response& response, int status, std::string_view content_type) {
    status_ = status;
    response.version(version_);
    response.result(static_cast<unsigned>(status));
    response.keep_alive(keep_alive_);
    response.set(beast::field::server, "canopy");
    response.set(beast::field::content_type,
                 boost::beast::string_view(content_type.data(), content_type.size()));
    for (const auto& [name, value] : headers_) response.set(name, value);
  }
  void finish(bool ok) {
    begun_ = done_ = true;
    gone_ = gone_ || !ok;
  }

  Socket& socket_;
  unsigned version_;
  bool keep_alive_, chunked_ = false, begun_ = false, done_ = false, gone_ = false;
};

// Time that a refused client has to go on sending: between two pieces, and in all.
constexpr std::chrono::milliseconds kLingerIdle{2000}, kLinger{10'000};

/// Returns the status for a request that cannot be read, and what is wrong with it; nothing if no
/// reply is due.
std::optional<std::pair<int, std::string>> refusal(const error_code& error, const Limits& limits) {
  if (error == beast::error::end_of_stream || error == boost::asio::error::eof) return std::nullopt;
  if (error == beast::error::body_limit)
    return {{413, "the request's body has more than " + std::to_string(limits.body_bytes) +
                      " bytes, which is the limit: it grows with the context (-c)"}};
  if (error == beast::error::header_limit || error == beast::error::buffer_overflow)
    return {{431, "the request's headers have more than " + std::to_string(limits.header_bytes) +
                      " bytes, which is the limit"}};
  if (error == boost::asio::error::timed_out) return {{408, "the request did not arrive in time"}};
  if (error.category() == beast::make_error_code(beast::error::bad_method).category())
    return {{400, "the request is not HTTP"}};
  return std::nullopt;  // the connection broke
}

}  // namespace

std::string_view Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

struct Server::Impl {
  Impl(const Limits& limits, Handler handler, Refusal refuse)
      : limits(limits), handler(std::move(handler)), refuse(std::move(refuse)) {}

  const Limits limits;
  const Handler handler;
  const Refusal refuse;
  UniqueFd listener, wake;  // wake: an eventfd, readable once the server is closed
  std::atomic<bool> closed = false;
  std::mutex mutex;
  struct Connection {
    explicit Connection(Socket s) : socket(std::move(s)) {}
    Socket socket;
    bool idle = true;   // between two requests, or in the middle of one
    bool over = false;  // the thread is about to end
    std::thread thread;
  };
  std::list<Connection> connections;
  std::condition_variable ended;  // a connection is over
  std::thread acceptor;

  void accept_all();
  void serve(Connection& connection);
  /// A request, whole; none: the connection is over.
  std::optional<BeastExchange> next(Connection& connection, boost::beast::flat_buffer& buffer);
  /// Takes a new client in, after those that have gone; null: there are as many as it takes.
  Connection* add(UniqueFd& fd);
};

Server::Impl::Connection* Server::Impl::add(UniqueFd& fd) {
  std::list<Connection> gone;  // joined without the lock, which their threads need to end
  Connection* added = nullptr;
  {
    const std::lock_guard lock(mutex);
    for (auto one = connections.begin(); one != connections.end();) {
      const auto next = std::next(one);
      if (one->over) gone.splice(gone.end(), connections, one);
      one = next;
    }
    if (std::ssize(connections) < limits.connections)
      added = &connections.emplace_back(Socket(std::move(fd)));
  }
  for (Connection& one : gone) one.thread.join();
  return added;
}

void Server::Impl::accept_all() {
  Refused refused;
  while (!closed) {
    pollfd both[2] = {{listener.get(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
    refused.wait_with(both);
    if (closed) break;
    if (both[0].revents == 0) continue;
    UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.is_open()) {  // the client has gone, or there is no descriptor: others end soon
      if (errno == EMFILE || errno == ENFILE)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      continue;
    }
    const int yes = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    Connection* const one = add(fd);
    if (one == nullptr) {
      const std::string body = refuse(503, "the server has as many connections as it takes", "");
      const std::string text =
          "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n"
          "x-should-retry: true\r\nConnection: close\r\nContent-Length: " +
          std::to_string(body.size()) + "\r\n\r\n" + body;
      refused.add(std::move(fd), text);
      continue;
    }
    try {
      one->thread = std::thread([this, one] {
        serve(*one);
        const std::lock_guard last(mutex);
        one->socket.close();
        one->over = true;
        ended.notify_all();
      });
    } catch (const std::system_error&) {  // no thread to be had: the client may try again
      const std::lock_guard lock(mutex);
      connections.pop_back();
    }
  }
}

std::optional<BeastExchange> Server::Impl::next(Connection& connection,
                                                boost::beast::flat_buffer& buffer) {
  Socket& socket = connection.socket;
  beast::request_parser<beast::string_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
  parser.body_limit(limits.body_bytes);
  error_code error;
  const auto give_up = [&]() -> std::optional<BeastExchange> {
    if (const auto why = refusal(error, limits); why && (buffer.size() > 0 || parser.got_some())) {
      socket.give_up_after(limits.write_idle);
      BeastExchange exchange(socket, {}, 11, false);
      const std::string target = text_of(parser.get().target());
      exchange.reply(why->first, "application/json",
                     refuse(why->first, why->second, path_of(target)));
      socket.linger(kLingerIdle, kLinger);
    }
    return std::nullopt;
  };
  // Each piece must come in time, and the whole of it, too.
  std::optional<Clock::time_point> deadline;
  const auto read_until = [&](auto done) {
    while (!done() && !error) {
      socket.give_up_after(deadline ? limits.read_idle : limits.keep_alive);
      beast::read_some(socket, buffer, parser, error);
      if (!deadline) deadline = Clock::now() + limits.whole_request;
      if (Clock::now() > *deadline) error = boost::asio::error::timed_out;
    }
    return !error;
  };
  if (buffer.size() > 0) deadline = Clock::now() + limits.whole_request;
  if (!read_until([&] { return parser.is_header_done(); })) return give_up();
  const auto& header = parser.get();
  if (!parser.is_done() && header[beast::field::expect] == "100-continue") {
    static constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    boost::asio::write(socket, boost::asio::const_buffer(kGoOn.data(), kGoOn.size()), error);
  }
  if (!read_until([&] { return parser.is_done(); })) return give_up();
  {
    const std::lock_guard lock(mutex);
    connection.idle = false;
  }
  socket.give_up_after(limits.write_idle);
  const bool keep_alive = parser.keep_alive();
  const unsigned version = header.version();
  return BeastExchange(socket, parsed(parser.release()), version, keep_alive);
}

void Server::Impl::serve(Connection& connection) {
  boost::beast::flat_buffer buffer;
  while (!closed) {
    std::optional<BeastExchange> exchange = next(connection, buffer);
    if (!exchange) return;
    handler(*exchange);
    if (!exchange->may_go_on()) return;
    const std::lock_guard lock(mutex);
    connection.idle = true;
  }
}

Server::Server(const std::string& host, std::uint16_t port, const Limits& limits, Handler handler,
               Refusal refuse)
    : impl_(std::make_unique<Impl>(limits, std::move(handler), std::move(refuse))) {
  impl_->listener = listen_on(host, port);
  impl_->wake = UniqueFd(eventfd(0, EFD_CLOEXEC));
  impl_->acceptor = std::thread([this] { impl_->accept_all(); });
}

Server::~Server() { end(std::chrono::milliseconds(0)); }

std::uint16_t Server::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(impl_->listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

int Server::connections() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<int>(std::count_if(impl_->connections.begin(), impl_->connections.end(),
                                        [](const Impl::Connection& one) { return !one.over; }));
}

void Server::close() {
  if (impl_->closed.exchange(true)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(impl_->wake.get(), &one, sizeof one);
  impl_->acceptor.join();
  const std::lock_guard lock(impl_->mutex);
  for (Impl::Connection& connection : impl_->connections)
    if (connection.idle) connection.socket.shut_down();
}

void Server::end(std::chrono::milliseconds patience) {
  close();
  std::list<Impl::Connection>& all = impl_->connections;  // nobody adds to it any more
  {
    std::unique_lock lock(impl_->mutex);
    impl_->ended.wait_for(lock, patience, [&] {
      return std::all_of(all.begin(), all.end(), [](const auto& one) { return one.over; });
    });
    for (const Impl::Connection& one : all)
      if (!one.over) one.socket.shut_down();
  }
  for (Impl::Connection& one : all) one.thread.join();
  all.clear();
}

}  // namespace canopy::http
