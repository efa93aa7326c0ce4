#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "src/hub/listing.h"

namespace canopy::hub {

/// A repository's folder in the Hugging Face cache, models--ORG--NAME: blobs/ETAG hold the bytes,
/// snapshots/COMMIT/NAME link to them, refs/REVISION names a commit. Next to these, .canopy/COMMIT
/// keeps what the Hub listed of it, so that a model which is whole is known to be so without it.
/// Source: huggingface_hub, "Understand caching".
class Cache {
 public:
  /// `hub` is the folder of all repositories.
  Cache(const std::filesystem::path& hub, const std::string& id);

  const std::filesystem::path& folder() const { return folder_; }
  /// The commit that a revision was when it was last asked for; a commit is itself.
  std::optional<std::string> commit_of(const std::string& revision) const;
  std::filesystem::path snapshot(const std::string& commit) const;
  /// The listing that was kept of a commit, if there is one that can be read.
  std::optional<Listing> listing_of(const std::string& commit) const;
  /// The files that the snapshot has, whoever put them there.
  Listing files_of(const std::string& commit) const;
  /// True if the snapshot has this file, with as many bytes as the listing says.
  bool has(const std::string& commit, const RemoteFile& file) const;

  /// Places of a blob: once it is whole, while it grows, and of the lock that its writer holds.
  std::filesystem::path blob(const std::string& etag) const;
  std::filesystem::path incomplete(const std::string& etag) const;
  std::filesystem::path lock(const std::string& etag) const;
  /// Gives the blob its name in the snapshot. Throws Error.
  void link(const std::string& commit, const std::string& file, const std::string& etag) const;
  /// Keeps what a revision is, and the commit's files. Throws Error.
  void keep(const std::string& revision, const Listing& listing) const;

 private:
  std::filesystem::path folder_, locks_;
};

/// The repository's name, without its organisation, of a path in the cache: its snapshot; else "".
std::string name_in_cache(const std::filesystem::path& path);

/// Makes a folder and those above it. Throws Error naming it.
void make_folder(const std::filesystem::path& folder);

}  // namespace canopy::hub
