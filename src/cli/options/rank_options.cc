#include "src/cli/options/rank_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "src/cli/options/values.h"
#include "src/engine/ranks/plan_together.h"

namespace canopy::cli {

namespace {

/// "2:1:1".
std::vector<std::int64_t> parse_shares(const std::string& flag, const std::string& text) {
  constexpr int kMost = 1'000'000;
  std::vector<std::int64_t> shares;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int share = 0;
    const auto [next, error] = std::from_chars(at, end, share);
    if (error != std::errc() || share < 1 || share > kMost || (next != end && *next != ':'))
      throw UsageError(flag + ": '" + text +
                       "' is no proportion: write a number above 0 for each rank, e.g. 2:1:1");
    shares.push_back(share);
    if (next == end) return shares;
    at = next + 1;
  }
}

/// "10G": bits per second, by powers of 1000, as networks are named.
double parse_rate(const std::string& flag, const std::string& text) {
  constexpr std::string_view kUnits = "MG";
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, number);
  const std::size_t unit = next + 1 == end ? kUnits.find(*next) : std::string_view::npos;
  if (error != std::errc() || !(number > 0) || unit == std::string_view::npos)
    throw UsageError(flag + ": '" + text + "' is no speed of a network; write e.g. 10G or 100M");
  return number * (unit == 0 ? 1e6 : 1e9);
}

/// "400M": bytes per second. A run ends once what it has asked for has been read, so there is a
/// least rate.
std::uint64_t parse_disk_limit(std::string_view flag, std::string_view text) {
  constexpr std::uint64_t kLeast = 1u << 20;
  const std::uint64_t rate = parse_size(flag, text);
  if (rate < kLeast)
    throw UsageError(std::string(flag) + ": must be at least 1M, in bytes per second");
  return rate;
}

struct Refusal {
  std::string_view flag, why;
};
constexpr std::string_view kGpu = "the ranks of a run compute on CPUs only";
constexpr std::array kAlone{
    Refusal{"num-beams", "a beam search is not shared between processes"},
    Refusal{"prompt-cache", "keys and values are not read or written by several processes"},
    Refusal{"repack", "several processes do not write a model"},
    Refusal{"gpu-memory", kGpu},
    Refusal{"enforce-eager", kGpu},
    Refusal{"n-gpu-layers", kGpu},
};

// Flags that may differ by machine, or that the first rank alone uses.
constexpr std::array<std::string_view, 9> kOfOne{"model",   "memory",   "resident",
                                                 "threads", "cpu-list", "progress",
                                                 "quiet",   "api-key",  "disk-limit"};

}  // namespace

Flags RankOptions::flags() {
  Flags flags("Several processes, by mpirun");
  flags.add_options()  //
      ("shares", shares_flag(),
       "rows of the model's matrices that each rank has, in proportion: to the speeds of their "
       "disks, say")  //
      ("rank-timeout", into(timeout, "SECONDS (=60)", at_least("--rank-timeout", 1.0)),
       "time without a sign of life of another rank, after which all end")  //
      ("disk-limit", disk_limit_flag(),
       "bytes per second, e.g. 400M, at which a process reads weights that stream: to measure what "
       "a slower disk would give (default: all that the disk gives)");
  return flags;
}

FlagValue<std::string> RankOptions::shares_flag() {
  return into(shares, "A:B:... (=1:1:...)", "--shares", parse_shares);
}

FlagValue<std::string> RankOptions::disk_limit_flag() {
  return into(disk_limit, "RATE", "--disk-limit", parse_disk_limit);
}

void RankOptions::put_into(EngineOptions& engine, Cluster* cluster) const {
  engine.cluster = cluster;
  if (disk_limit) engine.disk_limit = static_cast<double>(*disk_limit);
}

ClusterOptions RankOptions::options() const {
  constexpr double kBeats = 6;  // signs of life in a timeout
  ClusterOptions options;
  if (timeout) options = {Seconds(*timeout), Seconds(*timeout / kBeats)};
  return options;
}

Share RankOptions::share_of(int rank, int ranks) const {
  Share share{rank, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), 1)};
  if (shares) share.parts = *shares;
  if (share.ranks() != ranks)
    throw UsageError("--shares: names " + std::to_string(share.ranks()) + " ranks, and there are " +
                     std::to_string(ranks));
  return share;
}

Flags PlannedRanks::flags() {
  Flags flags("Several machines");
  flags.add_options()  //
      ("ranks", into(ranks, "N", at_least("--ranks", 1)),
       "plan for N machines like this one that share the rows of the model")  //
      ("network", into(bits_per_second, "RATE", "--network", parse_rate),
       "speed of the network between them, in bits per second: 1G, 10G, 25G")  //
      ("latency", into(latency, "MICROSECONDS (=50)", at_least("--latency", 0.0)),
       "time of a message on it")  //
      ("shares", own.shares_flag(),
       "rows of each, in proportion; this machine has the first")  //
      ("disk-limit", own.disk_limit_flag(),
       "plan for disks that give so many bytes per second at most, e.g. 3.5G");
  return flags;
}

void PlannedRanks::check() const {
  if (ranks > 1 && !bits_per_second)
    throw UsageError("--ranks: needs the network between the machines, e.g. --network 10G");
  if (ranks == 1 && (bits_per_second || latency))
    throw UsageError("--network, --latency: need --ranks N");
  own.share_of(0, ranks);
}

Network PlannedRanks::network(const Checkpoint& target) const {
  if (ranks == 1) return {};
  // TCP's stream has 1448 of the 1538 bytes that a frame takes on the wire.
  constexpr double kPayload = 1448.0 / 1538, kBitsPerByte = 8, kMicrosecond = 1e-6;
  constexpr double kLatency = 50;  // microseconds: about that of 1 GbE
  return network_of(target, share(),
                    {Seconds(latency.value_or(kLatency) * kMicrosecond),
                     *bits_per_second / kBitsPerByte * kPayload});
}

void check_shared(const GivenFlags& given, int ranks) {
  for (const GivenFlag& flag : given) {
    if (ranks == 1 && (flag.name == "shares" || flag.name == "rank-timeout"))
      throw UsageError("--" + flag.name +
                       ": this is one process; mpirun -n N canopy ... starts several that share a "
                       "model (docs/cluster.md)");
    const auto refusal = std::ranges::find(kAlone, flag.name, &Refusal::flag);
    if (ranks > 1 && refusal != kAlone.end())
      throw UsageError("--" + flag.name + ": " + std::string(refusal->why) + " yet; use one");
  }
}

std::vector<SharedFact> flags_of_all(const GivenFlags& given) {
  std::vector<SharedFact> facts;
  for (const GivenFlag& flag : given)
    if (std::ranges::find(kOfOne, flag.name) == kOfOne.end())
      facts.push_back({"--" + flag.name, flag.value.empty() ? "given" : flag.value});
  return facts;
}

}  // namespace canopy::cli
