#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace canopy::hub {

/// A file of a repository, as the Hub lists it.
struct RemoteFile {
  std::string name;                    // a path from the repository's root
  std::optional<std::uint64_t> bytes;  // where the Hub says so
  std::string sha256;                  // of a large file, 64 hexadecimal digits; else ""
};

/// The files of a commit.
struct Listing {
  std::string commit;
  std::vector<RemoteFile> files;

  const RemoteFile* find(std::string_view name) const;  // null where there is none
};

/// Reads the reply to GET /api/models/ID/revision/REVISION?blobs=true. Throws Error: not of that
/// form, or a name that leads out of its folder.
Listing parse_listing(std::string_view json);
/// Writes what parse_listing() reads.
std::string to_json(const Listing& listing);

/// True for 64 hexadecimal digits.
bool is_sha256(std::string_view text);

}  // namespace canopy::hub
