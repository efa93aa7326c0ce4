#include "src/hub/connection.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <mutex>

#include "src/base/file.h"
#include "src/base/utf8.h"

namespace canopy::hub {

namespace {

constexpr long kConnectSeconds = 10;
constexpr int kMostRedirects = 5, kTries = 6;
constexpr std::chrono::milliseconds kFirstWait{500};
constexpr std::chrono::seconds kLongestWait{600};
constexpr std::size_t kMostHeaders = 200, kMostHeaderBytes = 64 << 10;

using HeaderList = std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)>;
using Text = std::unique_ptr<char, decltype(&curl_free)>;

std::string part_of(CURLU* url, CURLUPart part, unsigned int flags) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return "";
  return Text(text, curl_free).get();
}

/// "https://huggingface.co:443"; "" for what is no URL.
std::string origin_of(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return "";
  std::string host = part_of(parsed.get(), CURLUPART_HOST, 0);
  for (char& c : host)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return part_of(parsed.get(), CURLUPART_SCHEME, 0) + "://" + host + ":" +
         part_of(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

/// Names it in messages: addresses that are signed hold a secret in their query.
std::string without_query(const std::string& url) {
  return printable(url.substr(0, url.find('?')), 300);
}

bool may_pass(CURLcode code) {
  static constexpr std::array kPassing{CURLE_COULDNT_RESOLVE_PROXY,
                                       CURLE_COULDNT_RESOLVE_HOST,
                                       CURLE_COULDNT_CONNECT,
                                       CURLE_OPERATION_TIMEDOUT,
                                       CURLE_PARTIAL_FILE,
                                       CURLE_GOT_NOTHING,
                                       CURLE_RECV_ERROR,
                                       CURLE_SEND_ERROR,
                                       CURLE_SSL_CONNECT_ERROR,
                                       CURLE_WEIRD_SERVER_REPLY};
  return std::find(kPassing.begin(), kPassing.end(), code) != kPassing.end();
}

Trouble::Server server_of(CURL* handle) {
  curl_off_t connected = 0;
  curl_easy_getinfo(handle, CURLINFO_CONNECT_TIME_T, &connected);
  return connected > 0 ? Trouble::Server::kReached : Trouble::Server::kNotReached;
}

/// One request under way; curl calls it back.
struct Transfer {
  CURL* handle;
  std::stop_token stop;
  const Connection::OnBody& on_body;
  Reply reply{};
  std::size_t header_bytes = 0;
  std::exception_ptr fault{};

  void take_header(std::string_view line) {
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) reply.headers.clear();
    header_bytes += line.size();
    if (header_bytes > kMostHeaderBytes || reply.headers.size() > kMostHeaders)
      throw Error("the server's reply has too many headers");
    const std::size_t colon = line.find(':');
    if (colon == line.npos) return;
    std::string name(line.substr(0, colon));
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    std::string_view value = line.substr(colon + 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    reply.headers[name] = value;
  }

  void take_body(std::string_view part) {
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    reply.status = static_cast<int>(status);
    if (on_body && (status == 200 || status == 206)) return on_body(reply, part);
    if (reply.text.size() + part.size() > kMostIndexBytes)
      throw Error("the server's reply has more than " + std::to_string(kMostIndexBytes) + " bytes");
    reply.text += part;
  }

  /// No exception may pass through curl: it is kept, and the request ends.
  template <class Body>
  std::size_t guarded(std::size_t bytes, const Body& body) {
    try {
      body();
      return bytes;
    } catch (...) {
      fault = std::current_exception();
      return bytes + 1;  // another number ends the request
    }
  }
};

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* transfer) {
  auto& to = *static_cast<Transfer*>(transfer);
  return to.guarded(size * count, [&] { to.take_header({data, size * count}); });
}

std::size_t on_data(char* data, std::size_t size, std::size_t count, void* transfer) {
  auto& to = *static_cast<Transfer*>(transfer);
  return to.guarded(size * count, [&] { to.take_body({data, size * count}); });
}

int on_tick(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(transfer)->stop.stop_requested() ? 1 : 0;
}

std::optional<std::chrono::seconds> wait_asked_for(const Reply& reply) {
  const std::string text = reply.header("retry-after");
  if (text.empty()) return std::nullopt;
  if (text.size() < 9 && text.find_first_not_of("0123456789") == text.npos)
    return std::chrono::seconds(std::stol(text));
  const std::time_t until = curl_getdate(text.c_str(), nullptr), now = std::time(nullptr);
  if (until < 0) return std::nullopt;
  return std::chrono::seconds(std::max<std::time_t>(until - now, 0));
}

}  // namespace

struct Connection::State {
  CURL* handle;
  std::string origin, token, protocols;
  long most_silence;
  std::array<char, CURL_ERROR_SIZE> message{};

  explicit State(const Settings& settings)
      : handle(nullptr),
        origin(origin_of(settings.endpoint)),
        token(settings.token),
        // A file that was asked for over TLS does not come without it.
        protocols(settings.endpoint.starts_with("https:") ? "https" : "http,https"),
        most_silence(static_cast<long>(settings.most_silence.count())) {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    require(ready == CURLE_OK, "libcurl does not start");
    handle = curl_easy_init();
    require(handle != nullptr, "libcurl has no memory");
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { curl_easy_cleanup(handle); }

  template <class Value>
  void set(CURLoption option, Value value) {
    require(curl_easy_setopt(handle, option, value) == CURLE_OK, "libcurl lacks an option");
  }

  void prepare(const Ask& ask, curl_slist* headers, Transfer& transfer) {
    curl_easy_reset(handle);  // connections stay
    message[0] = '\0';
    set(CURLOPT_ERRORBUFFER, message.data());
    set(CURLOPT_URL, ask.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, protocols.c_str());
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set(CURLOPT_USERAGENT, "canopy");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, most_silence);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, on_tick);
    set(CURLOPT_XFERINFODATA, &transfer);
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, on_data);
    set(CURLOPT_WRITEDATA, &transfer);
    if (ask.method == Ask::Method::kHead) set(CURLOPT_NOBODY, 1L);
    if (ask.range)
      set(CURLOPT_RANGE,
          (std::to_string(ask.range->first) + "-" + std::to_string(ask.range->last)).c_str());
  }

  [[noreturn]] void fail(CURLcode code, const std::string& url) const {
    std::string what = without_query(url) + ": " +
                       (message[0] == '\0' ? curl_easy_strerror(code) : message.data());
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
      what += ": are the certificates of authorities installed (package ca-certificates)?";
    if (may_pass(code)) throw Trouble(what, server_of(handle));
    throw Error(what);
  }
};

std::string Reply::header(const std::string& name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? "" : at->second;
}

Connection::Connection(const Settings& settings) : state_(std::make_unique<State>(settings)) {
  if (state_->origin.empty()) throw Error("HF_ENDPOINT: " + settings.endpoint + " is not a URL");
}
Connection::~Connection() = default;
Connection::Connection(Connection&&) noexcept = default;

bool Connection::is_endpoint(const std::string& url) const {
  return origin_of(url) == state_->origin;
}

Reply Connection::ask(const Ask& ask, const std::stop_token& stop, const OnBody& on_body) {
  HeaderList headers(curl_slist_append(nullptr, "Accept-Encoding: identity"), curl_slist_free_all);
  if (!state_->token.empty() && is_endpoint(ask.url)) {
    const std::string bearer = "Authorization: Bearer " + state_->token;
    headers.reset(curl_slist_append(headers.release(), bearer.c_str()));
  }
  require(headers != nullptr, "libcurl has no memory");
  Transfer transfer{state_->handle, stop, on_body};
  state_->prepare(ask, headers.get(), transfer);
  const CURLcode code = curl_easy_perform(state_->handle);
  if (stop.stop_requested()) throw Stopped();
  if (transfer.fault) std::rethrow_exception(transfer.fault);
  if (code != CURLE_OK) state_->fail(code, ask.url);
  long status = 0;
  char* location = nullptr;
  curl_easy_getinfo(state_->handle, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(state_->handle, CURLINFO_REDIRECT_URL, &location);
  transfer.reply.status = static_cast<int>(status);
  if (location != nullptr) transfer.reply.location = location;
  return std::move(transfer.reply);
}

Reply Connection::follow(Ask to, const std::stop_token& stop, const OnBody& on_body) {
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    Reply reply = ask(to, stop, on_body);
    if (!reply.redirects()) return reply;
    to.url = reply.location;
  }
  throw Error(without_query(to.url) + ": redirects do not end");
}

void require_ready(const Reply& reply) {
  if (reply.status != 408 && reply.status != 429 && reply.status < 500) return;
  const auto wait = wait_asked_for(reply);
  throw Trouble("the server has replied with status " + std::to_string(reply.status) +
                    (reply.status == 429 ? ", too many requests" : "") +
                    (wait ? ", to come again in " + std::to_string(wait->count()) + " s" : ""),
                Trouble::Server::kReached, wait);
}

void Patience::after(const Trouble& trouble) {
  if (++tries_ >= kTries || trouble.wait.value_or(std::chrono::seconds(0)) > kLongestWait)
    throw trouble;
  const std::chrono::milliseconds pause =
      trouble.wait ? std::chrono::milliseconds(*trouble.wait) : kFirstWait * (1 << (tries_ - 1));
  std::mutex mutex;
  std::condition_variable_any over;
  std::unique_lock lock(mutex);
  over.wait_for(lock, stop_, pause, [] { return false; });
  if (stop_.stop_requested()) throw Stopped();
}

}  // namespace canopy::hub
