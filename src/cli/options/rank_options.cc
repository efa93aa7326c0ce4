#include "src/cli/options/rank_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

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
constexpr std::array<std::string_view, 8> kOfOne{"model",    "memory",   "resident", "threads",
                                                 "cpu-list", "progress", "quiet",    "api-key"};

}  // namespace

Flags RankOptions::flags() {
  Flags flags("Several processes, by mpirun");
  flags.add_options()  //
      ("shares", into(shares, "A:B:... (=1:1:...)", "--shares", parse_shares),
       "rows of the model's matrices that each rank has, in proportion: to the speeds of their "
       "disks, say")  //
      ("rank-timeout", into(timeout, "SECONDS (=60)", at_least("--rank-timeout", 1.0)),
       "time without a sign of life of another rank, after which all end");
  return flags;
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
