#include "src/hub/cache.h"

#include <unistd.h>

#include <system_error>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/file_writer.h"
#include "src/hub/repository.h"

namespace canopy::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "models--", kBetween = "--";
constexpr std::uint64_t kMostRefBytes = 256;

/// "models--ORG--NAME". No name of a repository has two dashes in a row.
std::string folder_name(std::string id) {
  if (const std::size_t slash = id.find('/'); slash != id.npos) id.replace(slash, 1, kBetween);
  return std::string(kPrefix) + id;
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

}  // namespace

Cache::Cache(const fs::path& hub, const std::string& id)
    : folder_(hub / folder_name(id)), locks_(hub / ".locks" / folder_name(id)) {}

std::optional<std::string> Cache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const fs::path ref = folder_ / "refs" / revision;
  if (!is_file(ref)) return std::nullopt;
  std::string commit = read_file(ref, kMostRefBytes, FileKind::kOfModel);
  commit.resize(std::min(commit.find_last_not_of(" \r\n") + 1, commit.size()));
  if (!is_commit(commit)) throw Error(ref.string() + " names no commit: remove it");
  return commit;
}

fs::path Cache::snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }

std::optional<Listing> Cache::listing_of(const std::string& commit) const {
  const fs::path kept = folder_ / ".canopy" / commit;
  if (!is_file(kept)) return std::nullopt;
  try {
    Listing listing = parse_listing(read_file(kept, kMostIndexBytes, FileKind::kOfModel));
    if (listing.commit == commit) return listing;
  } catch (const Error&) {  // the Hub is asked again
  }
  return std::nullopt;
}

Listing Cache::files_of(const std::string& commit) const {
  Listing listing{commit, {}};
  const fs::path root = snapshot(commit);
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(root, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string name = at->path().lexically_relative(root).string();
    if (is_file(at->path()) && stays_inside(name))
      listing.files.push_back({name, fs::file_size(at->path()), ""});
  }
  return listing;
}

bool Cache::has(const std::string& commit, const RemoteFile& file) const {
  std::error_code error;
  const fs::path path = snapshot(commit) / file.name;
  if (!is_file(path)) return false;
  const std::uint64_t bytes = fs::file_size(path, error);
  return !error && (!file.bytes || bytes == *file.bytes);
}

fs::path Cache::blob(const std::string& etag) const { return folder_ / "blobs" / etag; }

fs::path Cache::incomplete(const std::string& etag) const {
  return folder_ / "blobs" / (etag + ".incomplete");
}

fs::path Cache::lock(const std::string& etag) const { return locks_ / (etag + ".lock"); }

void Cache::link(const std::string& commit, const std::string& file,
                 const std::string& etag) const {
  const fs::path place = snapshot(commit) / file;
  make_folder(place.parent_path());
  const fs::path target = blob(etag).lexically_relative(place.parent_path());
  const fs::path fresh = place.string() + ".canopy-" + std::to_string(getpid());
  std::error_code error;
  fs::remove(fresh, error);
  fs::create_symlink(target, fresh, error);
  if (!error) fs::rename(fresh, place, error);
  if (error) throw Error("cannot make the link " + place.string() + ": " + error.message());
}

void Cache::keep(const std::string& revision, const Listing& listing) const {
  const fs::path kept = folder_ / ".canopy" / listing.commit;
  make_folder(kept.parent_path());
  write_file(kept, to_json(listing));
  if (is_commit(revision)) return;
  const fs::path ref = folder_ / "refs" / revision;
  make_folder(ref.parent_path());
  write_file(ref, listing.commit);
}

std::string name_in_cache(const fs::path& path) {
  fs::path at = fs::absolute(path).lexically_normal();
  for (; at.has_relative_path(); at = at.parent_path()) {
    if (at.parent_path().filename() != "snapshots" || !is_commit(at.filename().string())) continue;
    const std::string folder = at.parent_path().parent_path().filename().string();
    if (!folder.starts_with(kPrefix)) return "";
    const std::string id = folder.substr(kPrefix.size());
    const std::size_t between = id.find(kBetween);
    return between == id.npos ? id : id.substr(between + kBetween.size());
  }
  return "";
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error("cannot make the folder " + folder.string() + ": " + error.message());
}

}  // namespace canopy::hub
