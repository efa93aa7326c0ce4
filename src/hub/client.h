#pragma once
#include <stop_token>
#include <string>

#include "src/hub/connection.h"
#include "src/hub/listing.h"
#include "src/hub/repository.h"

namespace canopy::hub {

/// The place from which a file's bytes are fetched. It may be signed, and expire.
struct Address {
  std::string url, etag;  // the etag names the file's blob
  std::uint64_t bytes = 0;
};

/// Nobody could be reached: there is no network, or no such endpoint.
class Unreachable : public Error {
 public:
  explicit Unreachable(const Error& why) : Error(why) {}
};

/// Lists a repository's files. Throws Unreachable; Error where it is not there, is private or
/// gated, with what to do; Stopped.
Listing fetch_listing(Connection& connection, const Settings& settings,
                      const Repository& repository, const std::stop_token& stop);

/// Asks where a file of a commit is. Throws the same, and Error where the two sizes or checksums
/// that the Hub gives differ.
Address fetch_address(Connection& connection, const Settings& settings,
                      const Repository& repository, const std::string& commit,
                      const RemoteFile& file, const std::stop_token& stop);

}  // namespace canopy::hub
