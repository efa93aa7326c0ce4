#pragma once
// Room src/cluster: processes that share the rows of a model's matrices: messages between them,
// deadlines, and errors that reach every one of them.
// In: a Transport, a Share. Out: gathered columns, announcements of the first rank, agreement.
// Must not know: models, plans, files of weights, flags.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ranks.h"
#include "src/base/types.h"
#include "src/cluster/rank_figures.h"
#include "src/cluster/transport.h"

namespace canopy {

struct ClusterOptions {
  Seconds timeout{60};  // without a sign of life of a rank that is waited for, after which all end
  Seconds beat{10};     // from one such sign to the next, of a rank that has nothing to send
};

/// Counts since the start.
struct ClusterTotals {
  std::uint64_t exchanges = 0;   // calls to gather()
  std::uint64_t bytes_sent = 0;  // of columns, once for each rank they went to
  Seconds waiting{};             // in gather(), for columns of all other ranks
  std::vector<Seconds> waited;   // for each rank's columns, after all others had come
  /// The rank that was waited for longest.
  int slowest() const {
    return static_cast<int>(std::ranges::max_element(waited) - waited.begin());
  }
};

/// Speed of messages between the ranks, as gather() has it.
struct NetworkSpeed {
  Seconds latency{};            // of one round
  double bytes_per_second = 0;  // to a rank
};

/// The end of a run by the error of another rank, which is named in the text.
struct RankFailure {
  std::string text;
  int code = 1;  // of its exit
};

/// One rank's end of a run over several processes. Its functions are called by one thread, and by
/// all ranks in the same order. Where one of them throws an Error, the run is over: the rank
/// leaves, and that error reaches all.
class Cluster final : public Ranks {
 public:
  /// Takes its place among the ranks of the transport, of which the share must be. Throws Error.
  Cluster(std::unique_ptr<Transport> transport, Share share, const ClusterOptions& options = {});
  ~Cluster() override;  // where leave() was not called: other ranks then end with an error

  const Share& share() const override;
  /// Names a rank and its machine: "rank 2 (host b)".
  std::string name(int rank) const;
  std::string host(int rank) const;
  void gather(To to, std::span<const TensorView> ys, const std::stop_token& stop) override;
  /// Has each gather to the first rank bring what `take` returns, from now on; nothing: zeros. What
  /// came before is forgotten.
  void bring_figures(std::function<RankFigures()> take);
  /// Returns what the last gather to this rank has brought, by rank: on the first, its own too.
  const std::vector<RankFigures>& figures() const;
  /// Returns the first rank's bytes, on every rank; those of others are ignored. They are lent
  /// until the next call. Throws Error as gather() does.
  std::span<const std::byte> announce(std::span<const std::byte> of_first);
  /// Returns every rank's bytes, by rank, on every rank. Throws Error as gather() does.
  std::vector<std::vector<std::byte>> collect(std::span<const std::byte> mine);

  /// Measures the network, in a fraction of a second. Throws Error as gather() does.
  void measure();
  const NetworkSpeed& speed() const { return speed_; }  // as it was measured

  /// Ends this rank's part: with its error and exit code, which reach every rank that still waits
  /// for this one, or "" where all is done. Waits until all ranks have left, and returns "" then.
  /// Returns the name of one that is lost or does not leave within the timeout, or what is wrong
  /// with the connections: abort() is what is left then. Afterwards no exchange may be called.
  std::string leave(std::string_view error, int code = 1) noexcept;
  /// Says if a rank did not answer in time.
  bool has_lost() const;
  /// Ends all processes of the run that can be reached, this one too where ranks are processes.
  void abort() noexcept;
  /// The error of another rank, if that is what has ended the run.
  const std::optional<RankFailure>& failure() const;

  const ClusterTotals& totals() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  NetworkSpeed speed_;
};

}  // namespace canopy
