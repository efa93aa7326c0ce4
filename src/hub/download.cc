#include "src/hub/download.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "src/base/utf8.h"

namespace canopy::hub {

namespace {

constexpr std::uint64_t kPieceBytes = 8u << 20;
constexpr std::size_t kPiecesOfConnection = 2;
constexpr std::chrono::milliseconds kBetweenReports{100};

struct Piece {
  ByteRange range;
  std::string bytes{};    // what has come of it
  bool finished = false;  // its worker is done with it
  std::uint64_t size() const { return range.last - range.first + 1; }
  bool whole() const { return bytes.size() == size(); }
};

class Download {
 public:
  Download(std::vector<Connection>& connections, const Address& from, const FindAddress& find,
           GrowingFile& to)
      : connections_(connections),
        find_(find),
        to_(to),
        size_(from.bytes),
        address_(from),
        next_(to.bytes()) {}

  void run(const OnBytes& on_bytes, const std::stop_token& stop) {
    const std::stop_callback pass_on(stop, [this] { end_.request_stop(); });
    {
      std::vector<std::jthread> workers;
      const std::uint64_t pieces = (size_ - next_ + kPieceBytes - 1) / kPieceBytes;
      const std::size_t count = std::min<std::uint64_t>(pieces, connections_.size());
      working_ = count;  // counted down while later ones are still to be started
      try {
        for (std::size_t i = 0; i < count; ++i)
          workers.emplace_back([this, i] { work(connections_[i]); });
        report(on_bytes);
      } catch (...) {
        fail(std::current_exception());
      }
    }
    keep_beginning();
    if (fault_) std::rethrow_exception(fault_);
    if (stop.stop_requested()) throw Stopped();
  }

 private:
  /// Until all workers have ended.
  void report(const OnBytes& on_bytes) {
    std::unique_lock lock(mutex_);
    while (true) {
      const bool over = changed_.wait_for(lock, kBetweenReports, [this] { return working_ == 0; });
      const std::uint64_t there = to_.bytes() + waiting_;
      lock.unlock();
      on_bytes(there);
      if (over) return;
      lock.lock();
    }
  }

  void work(Connection& connection) {
    try {
      while (Piece* const piece = begin_piece()) fetch(connection, *piece);
    } catch (const Stopped&) {  // run() knows why
    } catch (...) {
      fail(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    --working_;
    changed_.notify_all();
  }

  void fail(const std::exception_ptr& fault) {
    const std::lock_guard lock(mutex_);
    if (!fault_) fault_ = fault;
    end_.request_stop();
    changed_.notify_all();
  }

  /// Waits until there is room for a piece; null where none is left.
  Piece* begin_piece() {
    std::unique_lock lock(mutex_);
    const std::size_t most = connections_.size() * kPiecesOfConnection;
    changed_.wait(lock, end_.get_token(), [&] { return next_ >= size_ || pieces_.size() < most; });
    if (next_ >= size_ || end_.stop_requested()) return nullptr;
    const std::uint64_t first = next_;
    next_ = std::min(size_, first + kPieceBytes);
    return &pieces_.emplace_back(Piece{{first, next_ - 1}});
  }

  void fetch(Connection& connection, Piece& piece) {
    Patience patience(end_.get_token());
    while (!piece.whole()) {
      const std::size_t before = piece.bytes.size();
      try {
        fetch_once(connection, piece);
      } catch (const Trouble& trouble) {
        if (piece.bytes.size() > before) patience.renew();
        patience.after(trouble);
      }
    }
    finish(piece);
  }

  void fetch_once(Connection& connection, Piece& piece) {
    const auto [address, number] = address_now();
    const ByteRange rest{piece.range.first + piece.bytes.size(), piece.range.last};
    bool checked = false;
    const auto on_body = [&](const Reply& reply, std::string_view part) {
      if (!checked) check_beginning(reply, piece);
      checked = true;
      take(piece, part);
    };
    const Reply reply =
        connection.follow({address.url, Ask::Method::kGet, rest}, end_.get_token(), on_body);
    require_ready(reply);
    if (reply.status == 401 || reply.status == 403) return renew_address(connection, number);
    if (reply.status != 206 && reply.status != 200)
      throw Error("the file server has replied with status " + std::to_string(reply.status));
    if (!checked) throw Trouble("the file server has sent nothing", Trouble::Server::kReached);
  }

  void take(Piece& piece, std::string_view part) {
    const std::lock_guard lock(mutex_);
    if (part.size() > piece.size() - piece.bytes.size())
      throw Error("the file server sends more bytes than were asked for");
    if (piece.bytes.empty()) piece.bytes.reserve(piece.size());
    piece.bytes += part;
    waiting_ += part.size();
  }

  /// Throws unless the body that follows is what the piece lacks, of the file that the others are
  /// of. A server without ranges sends all of it: that does for a file of one piece.
  void check_beginning(const Reply& reply, Piece& piece) {
    const std::string all = std::to_string(size_);
    const std::lock_guard lock(mutex_);
    if (reply.status == 200) {
      if (piece.size() != size_)
        throw Changed("the file server sends no ranges, which a large file needs");
      if (const std::string bytes = reply.header("content-length"); !bytes.empty() && bytes != all)
        throw Changed("the file server has " + printable(bytes, 40) + " bytes of a file of " + all);
      waiting_ -= piece.bytes.size();
      piece.bytes.clear();
    } else {
      const std::uint64_t first = piece.range.first + piece.bytes.size();
      const std::string given = reply.header("content-range");
      if (!given.starts_with("bytes " + std::to_string(first) + "-") || !given.ends_with("/" + all))
        throw Changed("the file server sends " + in_quotes(given) + " of a file of " + all +
                      " bytes, from byte " + std::to_string(first) + " on");
    }
    const std::string etag = reply.header("etag");
    if (!served_etag_) served_etag_ = etag;
    if (*served_etag_ != etag) throw Changed("the file has changed while it was fetched");
  }

  struct NumberedAddress {
    Address address;
    int number;  // of the times that it was asked for
  };
  NumberedAddress address_now() {
    const std::lock_guard lock(mutex_);
    return {address_, renewals_};
  }

  /// Signed addresses expire. Asks once, however many connections were refused; counts as a try.
  void renew_address(Connection& connection, int number) {
    const std::lock_guard one_at_a_time(renewal_);
    if (address_now().number == number) {
      Address fresh = find_(connection, end_.get_token());
      const std::lock_guard lock(mutex_);
      if (fresh.etag != address_.etag || fresh.bytes != size_)
        throw Changed("the file has changed while it was fetched");
      address_ = std::move(fresh);
      ++renewals_;
    }
    throw Trouble("the file server refuses an address that the Hub has just given",
                  Trouble::Server::kReached, std::chrono::seconds(0));
  }

  /// Appends the pieces that can be, of which this may be one: then it is gone.
  void finish(Piece& piece) {
    const std::lock_guard lock(mutex_);
    piece.finished = true;
    while (writable_ && !pieces_.empty() && pieces_.front().finished) append_first();
    changed_.notify_all();
  }

  /// Nothing is appended after a write that failed: it would stand after a gap.
  void append_first() {
    writable_ = false;
    const Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    waiting_ -= piece.bytes.size();
    to_.append(piece.bytes);
    writable_ = true;
  }

  /// Appends what follows what is there, after the workers have ended.
  void keep_beginning() {
    try {
      for (bool whole = true; whole && writable_ && !pieces_.empty(); append_first())
        whole = pieces_.front().whole();
    } catch (...) {
      if (!fault_) fault_ = std::current_exception();
    }
  }

  std::vector<Connection>& connections_;
  const FindAddress& find_;
  GrowingFile& to_;
  const std::uint64_t size_;
  std::stop_source end_;

  std::mutex renewal_;
  std::mutex mutex_;  // of all below, and of to_
  std::condition_variable_any changed_;
  Address address_;
  int renewals_ = 0;
  std::optional<std::string> served_etag_;
  std::uint64_t next_;         // first byte that is in no piece
  std::deque<Piece> pieces_;   // in order; references to them stay
  std::uint64_t waiting_ = 0;  // bytes in pieces
  bool writable_ = true;
  std::size_t working_ = 0;
  std::exception_ptr fault_;
};

}  // namespace

void download(std::vector<Connection>& connections, const Address& from, const FindAddress& find,
              GrowingFile& to, const OnBytes& on_bytes, const std::stop_token& stop) {
  if (to.bytes() < from.bytes) Download(connections, from, find, to).run(on_bytes, stop);
}

}  // namespace canopy::hub
