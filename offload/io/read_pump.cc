#include "offload/io/read_pump.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <atomic>

#include "src/base/error.h"

namespace canopy {

std::atomic<std::size_t> canopy_likely_piece{1 << 20}, canopy_likely_depth{2};

namespace {
constexpr int kMostRefusals = 100;  // of one piece: EAGAIN and EINTR are no reason to hang
/// Requests in flight for what is only likely: a link that is told of the next while it carries one
/// does not rest.
}  // namespace

ReadPump::ReadPump(ReadEngine& engine, std::vector<std::filesystem::path> files,
                   std::size_t read_bytes, Describe describe)
    : engine_(engine),
      files_(std::move(files)),
      read_bytes_((read_bytes + kReadAlignment - 1) / kReadAlignment * kReadAlignment),
      describe_(std::move(describe)),
      pieces_(engine.depth()),
      done_(engine.depth()) {
  require(read_bytes_ > 0 && read_bytes_ <= (1u << 30), "one read must ask for 1 byte to 1 GiB");
  for (std::size_t i = 0; i < pieces_.size(); ++i) free_.push_back(i);
  retries_.reserve(pieces_.size());
  requests_.reserve(pieces_.size());
  arrivals_.reserve(pieces_.size());
}

std::size_t ReadPump::cut_before(std::span<const Extent> extents, std::size_t limit) const {
  std::size_t cut = 0;
  for (const Extent& extent : extents) {
    if (extent.slab_offset >= limit) break;
    const std::size_t bytes = std::min(extent.bytes, limit - extent.slab_offset);
    cut = extent.slab_offset + (bytes == extent.bytes ? bytes : bytes / read_bytes_ * read_bytes_);
  }
  return cut;
}

void ReadPump::add(std::span<const Extent> extents, std::byte* slab, std::uint64_t owner,
                   Urgency urgency) {
  std::deque<Queued>& queue = urgency == Urgency::kNeeded ? needed_ : likely_;
  for (const Extent& extent : extents)
    if (extent.bytes > 0) queue.push_back({extent, slab + extent.slab_offset, owner});
}

void ReadPump::hurry(std::uint64_t owner) {
  std::erase_if(likely_, [&](const Queued& one) {
    if (one.owner == owner) needed_.push_back(one);
    return one.owner == owner;
  });
}

std::size_t ReadPump::forget(std::uint64_t owner) {
  std::size_t bytes = 0;
  std::erase_if(likely_, [&](const Queued& one) {
    if (one.owner == owner) bytes += one.extent.bytes;
    return one.owner == owner;
  });
  return bytes;
}

std::span<const ReadPump::Arrival> ReadPump::step() {
  submit();
  arrivals_.clear();
  const std::size_t count = engine_.wait(done_);
  for (const ReadDone& done : std::span(done_).first(count)) {
    Piece& piece = pieces_[done.tag];
    if (done.result > 0) disk_bytes_ += static_cast<std::uint64_t>(done.result);
    if (finish(piece, done.result)) {
      arrivals_.push_back(piece.whole);
      free_.push_back(done.tag);
      if (piece.urgency == Urgency::kLikely) --likely_in_flight_;
    } else {
      retries_.push_back(done.tag);
    }
  }
  return arrivals_;
}

void ReadPump::drain() noexcept {
  needed_.clear();
  likely_.clear();
  likely_in_flight_ = 0;
  retries_.clear();
  try {
    while (engine_.wait(done_) > 0) {
    }
  } catch (const Error&) {  // a broken engine; its destructor waits for the rest
  }
  free_.clear();
  for (std::size_t i = 0; i < pieces_.size(); ++i) free_.push_back(i);
}

void ReadPump::submit() {
  requests_.clear();
  for (const std::size_t tag : retries_) requests_.push_back(pieces_[tag].request);
  retries_.clear();
  while (!free_.empty() && !needed_.empty()) send(needed_, Urgency::kNeeded);
  const auto none_needed = [&] { return pieces_.size() - free_.size() == likely_in_flight_; };
  while (!free_.empty() && !likely_.empty() && none_needed() && likely_in_flight_ < canopy_likely_depth)
    send(likely_, Urgency::kLikely);
  if (!requests_.empty()) engine_.submit(requests_);
}

/// Cuts the next request off the front of a queue.
void ReadPump::send(std::deque<Queued>& from, Urgency urgency) {
  const std::size_t tag = free_.back();
  free_.pop_back();
  Queued& front = from.front();
  Extent& rest = front.extent;
  const std::size_t bytes = std::min(
      urgency == Urgency::kLikely ? std::min(read_bytes_, canopy_likely_piece.load()) : read_bytes_, rest.bytes);
  const std::size_t needed = std::min(bytes, rest.needed);
  const std::span to(front.to, bytes);
  pieces_[tag] = {{rest.file, rest.offset, to, tag},
                  needed,
                  {front.owner, rest.file, rest.offset, to, needed},
                  0,
                  urgency};
  if (urgency == Urgency::kLikely) ++likely_in_flight_;
  requests_.push_back(pieces_[tag].request);
  front.to += bytes;
  rest.offset += bytes;
  rest.bytes -= bytes;
  rest.needed -= needed;
  if (rest.bytes == 0) from.pop_front();
}

bool ReadPump::finish(Piece& piece, std::int64_t result) {
  if (result < 0) {
    const int error = static_cast<int>(-result);
    if ((error == EAGAIN || error == EINTR) && ++piece.refusals < kMostRefusals) return false;
    throw Error("reading " + place(piece) + " failed: " + std::strerror(error) +
                "; check the disk (dmesg) and the file")
        .with("reading " + describe_(piece.whole.owner));
  }
  const auto got = static_cast<std::size_t>(result);
  if (got >= piece.needed) return true;
  const std::size_t whole = got / kReadAlignment * kReadAlignment;
  if (whole == 0)
    throw Error("the file ends inside the weights: " + std::to_string(got) + " of " +
                std::to_string(piece.needed) + " bytes read of " + place(piece) +
                "; it was truncated or replaced, so fetch it again")
        .with("reading " + describe_(piece.whole.owner));
  ReadRequest& rest = piece.request;
  rest.offset += whole;
  rest.into = rest.into.subspan(whole);
  piece.needed -= whole;
  return false;
}

std::string ReadPump::place(const Piece& piece) const {
  return files_.at(static_cast<std::size_t>(piece.request.file)).string() + " at byte " +
         std::to_string(piece.request.offset);
}

void read_all(ReadPump& pump, const ReadLayout& layout, std::byte* slab,
              const std::function<void(std::size_t)>& progress) {
  try {
    pump.add(layout.extents, slab, kAtRest);
    std::size_t done = 0;
    while (!pump.idle()) {
      for (const ReadPump::Arrival& arrival : pump.step()) done += arrival.bytes.size();
      progress(done);
    }
  } catch (...) {
    pump.drain();
    throw;
  }
}

}  // namespace canopy
