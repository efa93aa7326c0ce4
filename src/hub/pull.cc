#include "src/hub/pull.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/size_text.h"
#include "src/hub/cache.h"
#include "src/hub/client.h"
#include "src/hub/download.h"
#include "src/hub/pick.h"

namespace canopy::hub {

namespace {

namespace fs = std::filesystem;

constexpr int kConnections = 4, kStarts = 2;

/// The files of a pick, as they are listed.
std::vector<RemoteFile> picked(const Pick& pick, const Listing& listing) {
  std::vector<RemoteFile> files;
  for (const std::string& name : pick.files) files.push_back(*listing.find(name));
  return files;
}

/// Adds the shards that the snapshot's index names; the index must be there.
Pick with_shards_of(Pick pick, const Cache& cache, const Listing& listing) {
  if (!pick.by_index) return pick;
  const fs::path index = cache.snapshot(listing.commit) / pick.files.front();
  return in_context("reading " + index.string(), [&] {
    const std::string text = read_file(index, kMostIndexBytes, FileKind::kOfModel);
    return with_shards(std::move(pick), text, listing.files);
  });
}

Pulled found(const Cache& cache, const Listing& listing, const Pick& pick) {
  Pulled pulled;
  pulled.path = cache.snapshot(listing.commit) / pick.model;
  if (pick.model.empty()) pulled.path = cache.snapshot(listing.commit);
  pulled.commit = listing.commit;
  pulled.files = pick.files;
  for (const std::string& name : pick.files)
    pulled.bytes += fs::file_size(cache.snapshot(listing.commit) / name);
  return pulled;
}

/// The model as the Hub listed it, if all of it is there.
std::optional<Pulled> find_whole(const Repository& repository, const Cache& cache) {
  const auto commit = cache.commit_of(repository.revision);
  const auto listing = commit ? cache.listing_of(*commit) : std::nullopt;
  if (!listing) return std::nullopt;
  Pick pick = pick_files(listing->files, repository.quant);
  const auto is_there = [&](const std::string& name) {
    return cache.has(*commit, *listing->find(name));
  };
  if (!std::all_of(pick.files.begin(), pick.files.end(), is_there)) return std::nullopt;
  pick = with_shards_of(std::move(pick), cache, *listing);
  if (!std::all_of(pick.files.begin(), pick.files.end(), is_there)) return std::nullopt;
  return found(cache, *listing, pick);
}

/// The model as the cache has it, whoever put it there. `why` the Hub is not asked goes into the
/// Error.
Pulled find_offline(const Repository& repository, const Cache& cache, const std::string& why) {
  if (auto whole = find_whole(repository, cache)) return std::move(*whole);
  const auto commit = cache.commit_of(repository.revision);
  if (!commit || !fs::is_directory(cache.snapshot(*commit)))
    throw Error(cache.folder().string() + " has nothing of " + repository.in_words() + ", and " +
                why);
  const Listing there = cache.listing_of(*commit).value_or(cache.files_of(*commit));
  const auto require_all = [&](const Pick& pick) {
    for (const std::string& name : pick.files)
      if (!cache.has(*commit, *there.find(name)))
        throw Error(name + " was not downloaded to its end");
  };
  const std::string folder = cache.snapshot(*commit).string();
  return in_context("looking for " + repository.in_words() + " in " + folder + ", as " + why, [&] {
    Pick pick = pick_files(there.files, repository.quant);
    require_all(pick);
    pick = with_shards_of(std::move(pick), cache, there);
    require_all(pick);
    return found(cache, there, pick);
  });
}

/// One call of pull() that asks the Hub.
class Pull {
 public:
  Pull(const Repository& repository, const Settings& settings, const OnProgress& on_progress,
       const std::stop_token& stop)
      : repository_(repository),
        settings_(settings),
        on_progress_(on_progress),
        stop_(stop),
        cache_(settings.cache, repository.id) {
    for (int i = 0; i < kConnections; ++i) connections_.emplace_back(settings);
  }

  Pulled run() {
    listing_ = fetch_listing(connections_.front(), settings_, repository_, stop_);
    Pick pick = in_context("choosing files of " + repository_.id,
                           [&] { return pick_files(listing_.files, repository_.quant); });
    if (pick.by_index) {
      fetch_missing({*listing_.find(pick.files.front())});
      pick = with_shards_of(std::move(pick), cache_, listing_);
    }
    fetch_missing(picked(pick, listing_));
    cache_.keep(repository_.revision, listing_);
    Pulled pulled = found(cache_, listing_, pick);
    pulled.downloaded = downloaded_;
    return pulled;
  }

 private:
  struct Missing {
    RemoteFile file;
    Address address;
  };

  void fetch_missing(const std::vector<RemoteFile>& files) {
    std::vector<Missing> missing;
    std::uint64_t lacking = 0;
    there_ = all_ = 0;
    for (const RemoteFile& file : files) {
      if (cache_.has(listing_.commit, file)) {
        there_ += file.bytes.value_or(0);
        all_ += file.bytes.value_or(0);
        continue;
      }
      missing.push_back({file, find(connections_.front(), file, stop_)});
      const Address& address = missing.back().address;
      all_ += address.bytes;
      std::error_code none;
      const std::uint64_t begun = fs::file_size(cache_.incomplete(address.etag), none);
      if (!is_blob(address)) lacking += address.bytes - (none ? 0 : std::min(begun, address.bytes));
    }
    if (missing.empty()) return;
    require_room(lacking);
    for (const Missing& one : missing) {
      if (!is_blob(one.address)) in_context("downloading " + one.file.name, [&] { fetch(one); });
      cache_.link(listing_.commit, one.file.name, one.address.etag);
      there_ += one.address.bytes;
    }
  }

  Address find(Connection& connection, const RemoteFile& file, const std::stop_token& stop) const {
    return fetch_address(connection, settings_, repository_, listing_.commit, file, stop);
  }

  bool is_blob(const Address& address) const {
    std::error_code error;
    return fs::file_size(cache_.blob(address.etag), error) == address.bytes && !error;
  }

  void require_room(std::uint64_t bytes) const {
    make_folder(cache_.folder());
    std::error_code error;
    const fs::space_info space = fs::space(cache_.folder(), error);
    if (!error && space.available < bytes)
      throw Error(format_size(bytes) + " are to be downloaded, and " + cache_.folder().string() +
                  " has " + format_size(space.available) +
                  " left: free some, or set HF_HOME to a folder of another disk");
  }

  void fetch(const Missing& missing) {
    Address address = missing.address;
    GrowingFile file(cache_.incomplete(address.etag), cache_.lock(address.etag), stop_);
    if (is_blob(address)) return;  // another process has fetched it while this one waited
    if (file.bytes() > address.bytes)
      file.start_again();
    else
      file.read_beginning(stop_);
    const auto find_again = [&](Connection& connection, const std::stop_token& stop) {
      return find(connection, missing.file, stop);
    };
    for (int start = 1;; ++start) {
      const std::uint64_t before = file.bytes();
      const auto on_bytes = [&](std::uint64_t bytes) { on_progress_(there_ + bytes, all_); };
      try {
        download(connections_, address, find_again, file, on_bytes, stop_);
        downloaded_ += file.bytes() - before;
        require_checksum(missing, file);
        return file.finish(cache_.blob(address.etag));
      } catch (const Changed&) {
        file.start_again();
        if (start == kStarts) throw;
      }
      const Address fresh = find(connections_.front(), missing.file, stop_);
      if (fresh.etag != address.etag || fresh.bytes != address.bytes)
        throw Error(
            "the Hub has another file under this name of one commit than before; try again");
      address = fresh;
    }
  }

  void require_checksum(const Missing& missing, GrowingFile& file) const {
    const std::string& etag = missing.address.etag;
    const std::string wanted = is_sha256(etag) ? etag : missing.file.sha256;
    const std::string is = file.checksum();
    if (!wanted.empty() && is != wanted)
      throw Changed("its SHA-256 is " + is + ", and should be " + wanted);
  }

  const Repository& repository_;
  const Settings& settings_;
  const OnProgress& on_progress_;
  const std::stop_token& stop_;
  Cache cache_;
  std::vector<Connection> connections_;
  Listing listing_;
  std::uint64_t there_ = 0, all_ = 0, downloaded_ = 0;
};

}  // namespace

Pulled pull(const Repository& repository, const Settings& settings, Asking asking,
            const OnProgress& on_progress, const std::stop_token& stop) {
  const Cache cache(settings.cache, repository.id);
  if (settings.offline) return find_offline(repository, cache, "HF_HUB_OFFLINE is set");
  if (asking == Asking::kIfMissing)
    if (auto whole = find_whole(repository, cache)) return std::move(*whole);
  try {
    return Pull(repository, settings, on_progress, stop).run();
  } catch (const Unreachable& e) {
    if (asking == Asking::kAlways) throw;
    Pulled pulled = find_offline(repository, cache, e.what());
    pulled.note =
        std::string("the Hub cannot be asked (") + e.what() + "), and what the cache has is taken";
    return pulled;
  }
}

}  // namespace canopy::hub
