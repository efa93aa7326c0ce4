#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "offload/io/read_engine.h"
#include "offload/io/read_layout.h"

namespace canopy {

/// Turns extents into requests: splits them, keeps the engine's queue full, and asks again for what
/// short reads left out. What is likely to be needed waits until nothing that is needed is on its
/// way, and then has only a few requests in flight, which what is needed next would wait for. One
/// thread at a time. The memory that is read into must live until the
/// read has arrived or drain() has returned.
class ReadPump {
 public:
  /// describe(owner) names the work in errors: "attention of layer 3".
  using Describe = std::function<std::string(std::uint64_t owner)>;
  /// One request's worth of an owner's extent.
  struct Arrival {
    std::uint64_t owner = 0;
    int file = 0;
    std::uint64_t offset = 0;          // in the file
    std::span<const std::byte> bytes;  // over-read included
    std::size_t needed = 0;            // the first of them, which the file does have
  };

  /// `files` are those of the engine. read_bytes: the size of one request.
  ReadPump(ReadEngine& engine, std::vector<std::filesystem::path> files, std::size_t read_bytes,
           Describe describe);

  /// The last place of a slab, at `limit` bytes or before, where requests for these extents are cut
  /// in two anyway: who queues up to there and the rest later asks for the same pieces.
  std::size_t cut_before(std::span<const Extent> extents, std::size_t limit) const;
  enum class Urgency : bool { kNeeded, kLikely };
  /// Queues all extents, to land at slab + slab_offset; nothing is submitted yet.
  void add(std::span<const Extent> extents, std::byte* slab, std::uint64_t owner,
           Urgency urgency = Urgency::kNeeded);
  /// Makes what an owner has queued as likely needed.
  void hurry(std::uint64_t owner);
  /// Forgets what an owner has queued as likely, but for requests in flight. Returns the bytes that
  /// will not come.
  std::size_t forget(std::uint64_t owner);
  /// The engine would idle soon unless something is added.
  bool wants_more() const { return needed_.empty() && !free_.empty(); }
  /// Nothing likely is left to be asked for.
  bool wants_likely() const { return likely_.empty(); }
  bool idle() const { return needed_.empty() && likely_.empty() && free_.size() == pieces_.size(); }
  /// Submits what fits.
  void submit();
  /// submit(), then waits for some reads, returns what is complete (maybe nothing); the span is
  /// valid until the next step. Throws: Error naming owner, file and byte if a read failed or the
  /// file ends too early.
  std::span<const Arrival> step();
  /// Forgets what is queued, waits for what is in flight.
  void drain() noexcept;
  std::uint64_t disk_bytes() const { return disk_bytes_; }  // since construction

 private:
  struct Queued {
    Extent extent;
    std::byte* to;
    std::uint64_t owner;
  };
  struct Piece {  // what a request in flight has still to bring
    ReadRequest request;
    std::size_t needed = 0;
    Arrival whole;  // as first asked for
    int refusals = 0;
    Urgency urgency = Urgency::kNeeded;
  };
  void send(std::deque<Queued>& from, Urgency urgency);
  bool finish(Piece& piece, std::int64_t result);  // false: ask again
  std::string place(const Piece& piece) const;

  ReadEngine& engine_;
  const std::vector<std::filesystem::path> files_;
  const std::size_t read_bytes_;
  const Describe describe_;
  std::deque<Queued> needed_, likely_;
  std::size_t likely_in_flight_ = 0;
  std::vector<Piece> pieces_;                // by tag: one for each place in the engine's queue
  std::vector<std::size_t> free_, retries_;  // tags that are unused; that must be asked again
  std::vector<ReadRequest> requests_;
  std::vector<ReadDone> done_;
  std::vector<Arrival> arrivals_;
  std::uint64_t disk_bytes_ = 0;
};

inline constexpr std::uint64_t kAtRest = UINT64_MAX;  // the owner of what read_all reads

/// Reads a whole layout into `slab`, calling progress(bytes so far) now and then.
/// Throws Error, or what progress throws, with no read in flight any more.
void read_all(ReadPump& pump, const ReadLayout& layout, std::byte* slab,
              const std::function<void(std::size_t)>& progress);

}  // namespace canopy
