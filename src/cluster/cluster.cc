#include "src/cluster/cluster.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

enum class Kind : std::uint32_t { kBeat, kGather, kAnnounce, kCollect, kFailed, kEnded };

/// The beginning of each message: a rank that is out of step is recognised by it.
struct Header {
  Kind kind = Kind::kBeat;
  std::uint32_t asked_to_stop = 0;
  std::uint64_t number = 0;  // of the exchange
  std::uint64_t shape = 0;   // a mixture of the shapes that are gathered; the code of an error
  std::uint64_t bytes = 0;   // after the header
};
static_assert(sizeof(Header) == 32);

const char* name_of(Kind kind) {
  constexpr std::array kNames{"a sign of life", "columns",  "an announcement",
                              "an answer",      "an error", "its end"};
  const auto index = static_cast<std::size_t>(kind);
  return index < kNames.size() ? kNames[index] : "what no rank sends";
}

std::string text_of(Seconds seconds) {
  std::ostringstream text;
  text << seconds.count() << " s";
  return text.str();
}

std::uint64_t mixture_of(std::span<const TensorView> ys) {
  std::uint64_t shape = 1469598103934665603u;  // FNV-1a
  for (const TensorView& y : ys)
    for (const std::int64_t extent : {y.dim(0), y.dim(1)})
      shape = (shape ^ static_cast<std::uint64_t>(extent)) * 1099511628211u;
  return shape;
}

/// Copies a rank's columns of y to a message, or from one.
enum class Way : bool { kOut, kIn };
std::byte* copy_columns(Way way, const TensorView& y, RowRange columns, std::byte* at) {
  const auto width = static_cast<std::size_t>(columns.count) * sizeof(float),
             row = static_cast<std::size_t>(y.dim(1)) * sizeof(float);
  std::byte* place = y.data() + static_cast<std::size_t>(columns.first) * sizeof(float);
  for (std::int64_t i = 0; i < y.dim(0) && width > 0; ++i, place += row, at += width) {
    if (way == Way::kOut)
      std::memcpy(at, place, width);
    else
      std::memcpy(place, at, width);
  }
  return at;
}

}  // namespace

struct Cluster::Impl {
  /// One of the other ranks, as it is seen from here.
  struct Peer {
    Clock::time_point heard;
    bool left = false, lost = false;
    MessageBytes arrived;
    std::deque<MessageBytes> early;  // came while it was only asked for signs of life
  };

  Impl(std::unique_ptr<Transport> over, Share of, const ClusterOptions& given)
      : transport(std::move(over)),
        share(std::move(of)),
        options(given),
        peers(static_cast<std::size_t>(transport->ranks())) {
    require_valid(share);
    totals.waited.resize(peers.size());
    figures.resize(peers.size());
    require(share.rank == transport->rank() && share.ranks() == transport->ranks(),
            "a share has the rank and the ranks of its transport");
    require(options.beat < options.timeout, "signs of life come more often than the timeout ends");
    beats = std::jthread([this](const std::stop_token& stop) { beat(stop); });
  }

  Peer& peer(int rank) { return peers[static_cast<std::size_t>(rank)]; }
  std::string name(int rank) const {
    return "rank " + std::to_string(rank) + " (" + transport->host(rank) + ")";
  }
  std::vector<int> others() const {
    std::vector<int> all;
    for (int rank = 0; rank < share.ranks(); ++rank)
      if (rank != share.rank) all.push_back(rank);
    return all;
  }

  /// A message that has left, or a new one, with its header; the caller fills what follows.
  std::shared_ptr<MessageBytes> start_message(Header header, std::size_t bytes) {
    const auto left = std::ranges::find_if(
        messages, [](const std::shared_ptr<MessageBytes>& m) { return m.use_count() == 1; });
    const auto message =
        left != messages.end() ? *left : messages.emplace_back(std::make_shared<MessageBytes>());
    header.bytes = bytes;
    message->resize(sizeof header + bytes);
    std::memcpy(message->data(), &header, sizeof header);
    return message;
  }
  std::shared_ptr<MessageBytes> start_message(Header header, std::span<const std::byte> bytes) {
    auto message = start_message(header, bytes.size());
    std::ranges::copy(bytes, message->data() + sizeof header);
    return message;
  }
  void send(std::span<const int> to, const Message& message) {
    const std::lock_guard lock(mutex);
    for (const int rank : to) transport->send(rank, message);
    sent_at = Clock::now();
  }

  /// Sends a sign of life to all wherever nothing else was sent for a while. Messages also make
  /// their way while it asks.
  void beat(const std::stop_token& stop) {
    const auto alive = std::make_shared<MessageBytes>();
    const Header header;
    alive->resize(sizeof header);
    std::memcpy(alive->data(), &header, sizeof header);
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      waiting.wait_for(lock, stop, options.beat / 2, [] { return false; });
      if (stop.stop_requested()) return;
      try {
        transport->unsent();
        if (since(sent_at) < options.beat / 2) continue;
        for (const int rank : others()) transport->send(rank, alive);
        sent_at = Clock::now();
      } catch (const Error&) {
        return;  // the thread that waits for other ranks meets the same error
      }
    }
  }

  /// Takes the next message of a rank that is more than a sign of life; nothing if there is none.
  /// Throws the rank's own error.
  std::optional<Header> receive(int rank) {
    Peer& from = peer(rank);
    if (!from.early.empty()) {
      from.arrived = std::move(from.early.front());
      from.early.pop_front();
      return header_of(from.arrived);
    }
    while (true) {
      {
        const std::lock_guard lock(mutex);
        if (!transport->receive(rank, from.arrived)) return std::nullopt;
      }
      from.heard = Clock::now();
      const Header header = header_of(from.arrived);
      if (header.kind != Kind::kBeat) return header;
    }
  }
  static Header header_of(const MessageBytes& message) {
    Header header;
    require(message.size() >= sizeof header, "a rank has sent less than a header");
    std::memcpy(&header, message.data(), sizeof header);
    return header;
  }
  /// Takes signs of life of a rank that is not waited for; what else it has sent is kept.
  void hear(int rank) {
    MessageBytes message;
    while (true) {
      {
        const std::lock_guard lock(mutex);
        if (!transport->receive(rank, message)) return;
      }
      peer(rank).heard = Clock::now();
      if (header_of(message).kind != Kind::kBeat) peer(rank).early.push_back(std::move(message));
    }
  }
  std::span<const std::byte> arrived_from(int rank) {
    return peer(rank).arrived.bytes().subspan(sizeof(Header));
  }

  /// Throws unless the message is the one that is due.
  void expect(int rank, const Header& header, const Header& due) {
    const auto text = arrived_from(rank);
    if (header.kind == Kind::kFailed) {
      peer(rank).left = true;
      of_another = {{reinterpret_cast<const char*>(text.data()), text.size()},
                    static_cast<int>(header.shape)};
      throw Error(of_another->text);
    }
    if (header.kind == Kind::kEnded) {
      peer(rank).left = true;
      throw Error(name(rank) + " has ended while others wait for it");
    }
    if (header.kind != due.kind || header.number != due.number || header.shape != due.shape ||
        header.bytes != text.size())
      throw Error(name(rank) + " is out of step: it has sent " + name_of(header.kind) +
                  " as exchange " + std::to_string(header.number) + " where " + name_of(due.kind) +
                  " as exchange " + std::to_string(due.number) +
                  " was due; all ranks need the same program, model and flags");
  }

  /// Waits for the message that is due from each of these ranks, and until what was sent has left.
  /// take(rank, header): gets each as it comes.
  template <class Take>
  void wait_for(std::vector<int> missing, const Header& due, const Take& take) {
    const auto begun = Clock::now();
    for (Peer& one : peers) one.heard = begun;
    while (true) {
      const std::size_t before = missing.size();
      std::erase_if(missing, [&](int rank) {
        const std::optional<Header> header = receive(rank);
        if (!header) return false;
        expect(rank, *header, due);
        take(rank, *header);
        return true;
      });
      std::optional<int> unsent;
      {
        const std::lock_guard lock(mutex);
        unsent = transport->unsent();
      }
      if (missing.empty() && !unsent) return;
      if (unsent && std::ranges::find(missing, *unsent) == missing.end()) hear(*unsent);
      const auto is_lost = [&](int rank) { return since(peer(rank).heard) > options.timeout; };
      const auto lost = std::ranges::find_if(missing, is_lost);
      if (lost != missing.end() || (unsent && is_lost(*unsent))) {
        const int rank = lost != missing.end() ? *lost : *unsent;
        peer(rank).lost = true;
        throw Error(name(rank) + " did not answer for " + text_of(options.timeout) +
                    " at exchange " + std::to_string(due.number));
      }
      if (missing.size() == before) pause(begun);
    }
  }
  /// Lets others compute on this core: for the first 1 ms by a moment, then by longer ones.
  static void pause(Clock::time_point begun) {
    if (since(begun) < Seconds(1e-3))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  void gather(To to, std::span<const TensorView> ys, bool asked_to_stop);
  std::string leave(std::string_view error, int code);

  const std::unique_ptr<Transport> transport;
  const Share share;
  const ClusterOptions options;
  std::vector<Peer> peers;
  std::vector<std::shared_ptr<MessageBytes>> messages;
  std::uint64_t number = 0;
  ClusterTotals totals;
  std::function<RankFigures()> take_figures;
  std::vector<RankFigures> figures;
  std::vector<std::byte> announced;
  std::optional<RankFailure> of_another;
  bool has_left = false;
  std::string kept_from_leaving;

  std::mutex mutex;  // guards the transport, and:
  std::condition_variable_any waiting;
  Clock::time_point sent_at = Clock::now();
  std::jthread beats;  // last: uses all above
};

void Cluster::Impl::gather(To to, std::span<const TensorView> ys, bool asked_to_stop) {
  Header due{Kind::kGather, asked_to_stop ? 1u : 0u, number++, mixture_of(ys), 0};
  const auto bytes_of = [&](int rank) {
    std::size_t bytes = 0;
    for (const TensorView& y : ys)
      bytes +=
          static_cast<std::size_t>(y.dim(0) * share.rows_of(rank, y.dim(1)).count) * sizeof(float);
    return bytes;
  };
  std::vector<int> targets = others(), sources = targets;
  if (to == To::kFirst && share.rank == 0) targets.clear();
  if (to == To::kFirst && share.rank != 0) targets = {0}, sources.clear();
  // To the first alone, figures come before the columns.
  const std::size_t before = to == To::kFirst ? sizeof(RankFigures) : 0;
  RankFigures& own = figures[static_cast<std::size_t>(share.rank)];
  if (before > 0 && take_figures) own = take_figures();
  if (!targets.empty()) {
    const auto message = start_message(due, before + bytes_of(share.rank));
    std::byte* at = message->data() + sizeof due;
    std::memcpy(at, &own, before);
    at += before;
    for (const TensorView& y : ys) at = copy_columns(Way::kOut, y, share.own(y.dim(1)), at);
    send(targets, message);
    totals.bytes_sent += targets.size() * bytes_of(share.rank);
  }
  ++totals.exchanges;
  bool stop = to == To::kAll && asked_to_stop;
  const auto begun = Clock::now();
  auto come = begun;  // what has, so far
  std::size_t missing = sources.size();
  wait_for(std::move(sources), due, [&](int rank, const Header& header) {
    if (--missing == 0) totals.waited[static_cast<std::size_t>(rank)] += since(come);
    come = Clock::now();
    const auto arrived = arrived_from(rank);
    if (arrived.size() != before + bytes_of(rank))
      throw Error(name(rank) + " has sent " + std::to_string(arrived.size()) + " bytes of " +
                  std::to_string(before + bytes_of(rank)) + ": its share of the rows is another");
    stop |= header.asked_to_stop != 0;
    if (before > 0) std::memcpy(&figures[static_cast<std::size_t>(rank)], arrived.data(), before);
    // Written to the tensors, though the function that copies both ways takes no constant memory.
    std::byte* at = peer(rank).arrived.data() + sizeof header + before;
    for (const TensorView& y : ys)
      at = copy_columns(Way::kIn, y, share.rows_of(rank, y.dim(1)), at);
  });
  totals.waiting += come - begun;
  if (stop) throw Stopped();
}

std::string Cluster::Impl::leave(std::string_view error, int code) {
  beats.request_stop();
  beats.join();
  const auto lost = [&]() -> std::string {
    for (const int rank : others())
      if (peer(rank).lost) return name(rank);
    return "";
  };
  if (std::string whom = lost(); !whom.empty()) return whom;
  const RankFailure own{name(share.rank) + ": " + std::string(error), code};
  const RankFailure& failure = of_another ? *of_another : own;
  const Header header{error.empty() ? Kind::kEnded : Kind::kFailed, 0, number,
                      static_cast<std::uint64_t>(failure.code), 0};
  const std::string_view text = error.empty() ? std::string_view() : failure.text;
  send(others(), start_message(header, std::as_bytes(std::span(text))));
  // Takes whatever ranks have sent that do not know yet, until each has left.
  const auto begun = Clock::now();
  for (const int rank : others()) peer(rank).heard = begun;
  while (true) {
    std::optional<int> missing;
    for (const int rank : others()) {
      while (!peer(rank).left) {
        const std::optional<Header> got = receive(rank);
        if (!got) break;
        peer(rank).left = got->kind == Kind::kFailed || got->kind == Kind::kEnded;
      }
      if (peer(rank).left) continue;
      missing = rank;
      if (since(peer(rank).heard) > options.timeout) peer(rank).lost = true;
    }
    if (std::string whom = lost(); !whom.empty()) return whom;
    {
      const std::lock_guard lock(mutex);
      const std::optional<int> unsent = transport->unsent();
      if (!unsent && !missing) return "";
      if (!missing && since(begun) > options.timeout) return name(*unsent);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

Cluster::Cluster(std::unique_ptr<Transport> transport, Share share, const ClusterOptions& options)
    : impl_(std::make_unique<Impl>(std::move(transport), std::move(share), options)) {}

Cluster::~Cluster() {
  if (!leave("it has ended early").empty()) abort();
}

const Share& Cluster::share() const { return impl_->share; }
std::string Cluster::name(int rank) const { return impl_->name(rank); }
std::string Cluster::host(int rank) const { return impl_->transport->host(rank); }
const ClusterTotals& Cluster::totals() const { return impl_->totals; }

void Cluster::bring_figures(std::function<RankFigures()> take) {
  impl_->take_figures = std::move(take);
  impl_->figures.assign(impl_->figures.size(), {});
}
const std::vector<RankFigures>& Cluster::figures() const { return impl_->figures; }

void Cluster::gather(To to, std::span<const TensorView> ys, const std::stop_token& stop) {
  for (const TensorView& y : ys)
    require(y.rank() == 2 && y.dtype() == DType::kF32, "columns of rows of f32 are gathered");
  impl_->gather(to, ys, stop.stop_requested());
}

std::span<const std::byte> Cluster::announce(std::span<const std::byte> of_first) {
  Impl& m = *impl_;
  const Header due{Kind::kAnnounce, 0, m.number++, 0, 0};
  if (m.share.rank == 0) {
    m.send(m.others(), m.start_message(due, of_first));
    m.wait_for({}, due, [](int, const Header&) {});
    m.announced.assign(of_first.begin(), of_first.end());
  } else {
    m.wait_for({0}, due, [&](int rank, const Header&) {
      const auto bytes = m.arrived_from(rank);
      m.announced.assign(bytes.begin(), bytes.end());
    });
  }
  return m.announced;
}

std::vector<std::vector<std::byte>> Cluster::collect(std::span<const std::byte> mine) {
  Impl& m = *impl_;
  const Header due{Kind::kCollect, 0, m.number++, 0, 0};
  std::vector<std::vector<std::byte>> all(m.peers.size());
  all[static_cast<std::size_t>(m.share.rank)].assign(mine.begin(), mine.end());
  m.send(m.others(), m.start_message(due, mine));
  m.wait_for(m.others(), due, [&](int rank, const Header&) {
    const auto bytes = m.arrived_from(rank);
    all[static_cast<std::size_t>(rank)].assign(bytes.begin(), bytes.end());
  });
  return all;
}

std::string Cluster::leave(std::string_view error, int code) noexcept {
  Impl& m = *impl_;
  if (std::exchange(m.has_left, true)) return m.kept_from_leaving;
  try {
    m.kept_from_leaving = m.leave(error, code);
  } catch (const std::exception& broken) {
    m.kept_from_leaving = broken.what();
  }
  return m.kept_from_leaving;
}

bool Cluster::has_lost() const { return std::ranges::any_of(impl_->peers, &Impl::Peer::lost); }

void Cluster::abort() noexcept { impl_->transport->abort(); }

const std::optional<RankFailure>& Cluster::failure() const { return impl_->of_another; }

}  // namespace canopy
