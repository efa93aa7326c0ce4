#include "src/hub/client.h"

#include <charconv>

#include "src/base/utf8.h"

namespace canopy::hub {

namespace {

/// Throws Error that says what the endpoint refused, and what to do.
void require_granted(const Reply& reply, const Settings& settings, const Repository& repository,
                     const std::string& file) {
  if (reply.status == 200) return;
  const std::string code = reply.header("x-error-code"),
                    page = settings.endpoint + "/" + repository.id;
  const std::string give_token =
      settings.token.empty()
          ? "set HF_TOKEN to a token of an account that may read it, or log in with: hf auth login"
          : "the token that is set may not read it";
  if (code == "GatedRepo")
    throw Error(
        repository.id + " is gated: accept its terms on " + page + ", and " +
        (settings.token.empty() ? give_token : "see that the token is of the account that did"));
  if (code == "RepoNotFound")
    throw Error("there is no repository " + page +
                ", or it is private: check the name; if it is private, " + give_token);
  if (code == "RevisionNotFound")
    throw Error(repository.id + " has no branch, tag or commit " + in_quotes(repository.revision));
  if (code == "EntryNotFound") throw Error(repository.id + " has no file " + in_quotes(file));
  if (reply.status == 401 || reply.status == 403)
    throw Error(page + " is refused (status " + std::to_string(reply.status) + "): " + give_token);
  const std::string message = reply.header("x-error-message");
  throw Error(page + ": the server has replied with status " + std::to_string(reply.status) +
              (message.empty() ? "" : ", " + in_quotes(message)));
}

/// Sends a request until a server is ready for it. Throws Unreachable at once where the first
/// contact fails: nobody waits for a network that is not there.
enum class Contact : bool { kFirst, kLater };
Reply patiently(Connection& connection, const Ask& ask, Contact contact,
                const std::stop_token& stop) {
  Patience patience(stop);
  while (true) {
    try {
      Reply reply = connection.ask(ask, stop);
      require_ready(reply);
      return reply;
    } catch (const Trouble& trouble) {
      if (contact == Contact::kFirst && !trouble.reached) throw Unreachable(trouble);
      patience.after(trouble);
    }
  }
}

/// An etag is a name of a file in the cache.
std::string checked_etag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  if (!stays_inside(etag) || etag.find('/') != etag.npos || etag.starts_with('.'))
    throw Error("the server gives no usable etag: " + in_quotes(etag));
  return etag;
}

std::uint64_t checked_bytes(const std::string& text) {
  std::uint64_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, bytes);
  if (error != std::errc() || rest != end)
    throw Error("the server gives no usable length: " + in_quotes(text));
  return bytes;
}

}  // namespace

Listing fetch_listing(Connection& connection, const Settings& settings,
                      const Repository& repository, const std::stop_token& stop) {
  Ask ask{settings.endpoint + "/api/models/" + repository.id + "/revision/" +
          url_part(repository.revision, Slashes::kEncoded) + "?blobs=true"};
  constexpr int kMostRedirects = 5;  // of a repository that was renamed
  for (int redirects = 0;; ++redirects) {
    const Reply reply =
        patiently(connection, ask, redirects == 0 ? Contact::kFirst : Contact::kLater, stop);
    if (reply.redirects() && redirects < kMostRedirects) {
      ask.url = reply.location;
      continue;
    }
    require_granted(reply, settings, repository, "");
    return in_context("reading what " + settings.endpoint + " lists of " + repository.id,
                      [&] { return parse_listing(reply.text); });
  }
}

Address fetch_address(Connection& connection, const Settings& settings,
                      const Repository& repository, const std::string& commit,
                      const RemoteFile& file, const std::stop_token& stop) {
  Ask ask{settings.endpoint + "/" + repository.id + "/resolve/" + commit + "/" +
              url_part(file.name, Slashes::kKept),
          Ask::Method::kHead};
  constexpr int kMostRedirects = 5;
  std::string etag, bytes;
  for (int redirects = 0;; ++redirects) {
    const Reply reply = patiently(connection, ask, Contact::kLater, stop);
    // The endpoint knows both of a file that it keeps elsewhere.
    if (etag.empty()) etag = reply.header("x-linked-etag");
    if (bytes.empty()) bytes = reply.header("x-linked-size");
    if (reply.redirects() && redirects < kMostRedirects) {
      ask.url = reply.location;
      if (!etag.empty() && !bytes.empty() && !connection.is_endpoint(ask.url)) break;
      continue;
    }
    require_granted(reply, settings, repository, file.name);
    if (etag.empty()) etag = reply.header("etag");
    if (bytes.empty()) bytes = reply.header("content-length");
    break;
  }
  return in_context("asking for " + file.name + " of " + repository.id, [&] {
    Address address{ask.url, checked_etag(etag), checked_bytes(bytes)};
    if (file.bytes && *file.bytes != address.bytes)
      throw Error("the Hub lists " + std::to_string(*file.bytes) + " bytes, and its file server " +
                  std::to_string(address.bytes));
    if (!file.sha256.empty() && is_sha256(address.etag) && address.etag != file.sha256)
      throw Error("the Hub lists the checksum " + file.sha256 + ", and its file server " +
                  address.etag);
    return address;
  });
}

}  // namespace canopy::hub
