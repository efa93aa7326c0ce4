#pragma once
#include <functional>
#include <stop_token>
#include <vector>

#include "src/hub/client.h"
#include "src/hub/growing_file.h"

namespace canopy::hub {

/// The file is no longer what it was when its first bytes came: all of it must come again.
class Changed : public Error {
 public:
  using Error::Error;
};

/// Asks where the file is now, by the connection of the thread that calls it.
using FindAddress = std::function<Address(Connection&, const std::stop_token&)>;
/// Is given the bytes of this file that are there; may throw, which ends the download.
using OnBytes = std::function<void(std::uint64_t there)>;

/// Fetches the bytes that `to` lacks, in pieces of 8 MiB over all `connections` at once, and
/// appends them in order: at most two pieces for each connection wait in memory. A reply that is
/// cut, or stalls, goes on where it stopped; an address that has expired is asked for again.
/// However it ends, what has come without a gap is kept. Throws Changed; Error; Stopped.
void download(std::vector<Connection>& connections, const Address& from, const FindAddress& find,
              GrowingFile& to, const OnBytes& on_bytes, const std::stop_token& stop);

}  // namespace canopy::hub
