// canopy bench link: sweeps in which nobody computes, in turns with raw reads from the same disk.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/cli/commands/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/options/values.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/progress_line.h"
#include "src/cli/output/table.h"
#include "src/measure/link.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

constexpr const char* kUsage =
    "usage: canopy bench link MODEL [FLAG ...]\n\n"
    "Sweeps over a model without computing, in turns with raw reads of its largest file, which "
    "are\n"
    "the probe: how much of the disk a run can use at best. Both read as generate would, unless\n"
    "flags say otherwise.";
constexpr double kDiffers = 0.05;

std::uint64_t parse_read_size(const std::string& flag, const std::string& text) {
  const std::uint64_t size = parse_size(flag, text);
  if (size == 0 || size % kReadAlignment != 0)
    throw UsageError(flag + ": must be a multiple of 4K");
  return size;
}

struct Options {
  std::string model;
  int repetitions = 5;
  std::optional<std::uint64_t> ring, read_size;
  std::optional<int> queue_depth;
  bool no_direct_io = false, no_io_uring = false, json = false, progress = false;

  Flags flags() {
    Flags flags("Flags");
    add_model_flag(flags, model);
    flags.add_options()  //
        ("repetitions,r", into(repetitions, "N", at_least("--repetitions", 1)),
         "turns: a second of raw reads, then a sweep")  //
        ("ring", into(ring, "SIZE", "--ring", parse_budget),
         "memory that the sweep streams through (default: the least, two units)")  //
        ("read-size", into(read_size, "SIZE", "--read-size", parse_read_size),
         "of one read, a multiple of 4K (default: the fastest of some)")  //
        ("queue-depth", into(queue_depth, "N", at_least("--queue-depth", 1)),
         "reads in flight (default: the fastest of some)")                       //
        ("no-direct-io", given(no_direct_io), "read through the page cache")     //
        ("no-io-uring", given(no_io_uring), "read by pread on several threads")  //
        ("json", given(json), "print a JSON object")                             //
        ("progress", given(progress), kProgressHelp);
    return flags;
  }
};

/// Unit that figures are shown in.
struct Scale {
  const char* name;
  double size;
  int places;
};
constexpr Scale kGigabytes{" GB/s", 1e9, 2}, kPercent{" %", 0.01, 0},
    kPerGigabyte{" s per GB", 1, 3};

/// The median of a turn's figures, and their range.
struct Figures {
  std::vector<double> values;

  double at(double share) const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
  json as_json() const { return {{"median", at(0.5)}, {"least", at(0)}, {"most", at(1)}}; }
  /// A line for people: the median and the range.
  std::string line(const std::string& name, Scale scale, const std::string& remark) const {
    static const Table table({{.head = "", .width = 10, .align = Align::kLeft, .before = ""},
                              {.head = "", .align = Align::kLeft},
                              {.head = "", .align = Align::kLeft, .before = "  "}});
    const auto shown = [&](double share) { return fixed(at(share) / scale.size, scale.places); };
    return table.row(
        {name, shown(0.5) + scale.name + " (" + shown(0) + " to " + shown(1) + ")", remark});
  }
};

class LinkBench {
 public:
  LinkBench(const Options& asked, const Interrupt& interrupt)
      : stop_(interrupt.token()),
        progress_(asked.progress),
        link_(Checkpoint::open(local_model(asked.model, stop_))) {
    options_.direct = !asked.no_direct_io;
    options_.io_uring = !asked.no_io_uring;
    const std::uint64_t least = link_.least_ring();
    options_.ring_bytes = asked.ring.value_or(least);
    if (options_.ring_bytes < least)
      throw UsageError("--ring: this model needs " + format_size(least) + " (" +
                       std::to_string(least) + " bytes), two of its units");
    if (!asked.read_size || !asked.queue_depth) {
      progress_.show("trying sizes and depths of reads");
      const LinkSample best = link_.best_reads(options_, stop_);
      options_.read_bytes = best.read_bytes;
      options_.queue_depth = best.queue_depth;
    }
    if (asked.read_size) options_.read_bytes = *asked.read_size;
    if (asked.queue_depth) options_.queue_depth = static_cast<std::size_t>(*asked.queue_depth);
  }

  void turn(const std::string& name) {
    progress_.show(name + ": raw reads and a sweep");
    const auto on_unit = [&](std::size_t unit) {
      if (progress_.wants_glimpse())
        progress_.show(name + ": a sweep, " + std::to_string(unit) + " of " +
                       std::to_string(link_.units()) + " units");
    };
    const LinkTurn turn = link_.turn(options_, on_unit, stop_);
    raw_.values.push_back(turn.raw);
    if (turn.raw_beyond_caches) beyond_.values.push_back(*turn.raw_beyond_caches);
    rate_.values.push_back(turn.sweep);
    share_.values.push_back(turn.sweep / turn.raw);
    busy_.values.push_back(turn.busy);
    cpu_.values.push_back(turn.cpu_seconds_per_gb);
  }

  void end() { progress_.clear(); }

  void print() const {
    for (const std::string& note : link_.notes()) aside() << "note: " << note << "\n";
    std::cout << raw_.line("raw reads", kGigabytes,
                           std::to_string(options_.queue_depth) + " reads of " +
                               format_size(options_.read_bytes) + " in flight, into " +
                               format_size(options_.ring_bytes) + ", " + link_.file().string());
    if (!beyond_.values.empty() && std::abs(beyond_.at(0.5) / raw_.at(0.5) - 1) > kDiffers)
      std::cout << beyond_.line(
          "", kGigabytes,
          "into " + format_size(link_.bytes_beyond_caches()) + ", more than the CPU's caches hold");
    std::cout << rate_.line("sweeps", kGigabytes,
                            "through a ring of " + format_size(options_.ring_bytes))
              << share_.line("share", kPercent, "of the probe, the raw reads before the sweep")
              << busy_.line("link busy", kPercent, "of a sweep")
              << cpu_.line("processor", kPerGigabyte, "in a sweep");
  }

  json as_json() const {
    return {
        {"file", link_.file().string()},
        {"read_bytes", options_.read_bytes},
        {"queue_depth", options_.queue_depth},
        {"direct", options_.direct},
        {"io_uring", options_.io_uring},
        {"ring_bytes", options_.ring_bytes},
        {"repetitions", raw_.values.size()},
        {"raw_bytes_per_second", raw_.as_json()},
        {"raw_bytes_per_second_beyond_caches", beyond_.values.empty() ? json() : beyond_.as_json()},
        {"sweep_bytes_per_second", rate_.as_json()},
        {"share", share_.as_json()},
        {"link_busy", busy_.as_json()},
        {"cpu_seconds_per_gb", cpu_.as_json()},
        {"notes", link_.notes()}};
  }

 private:
  std::stop_token stop_;
  ProgressLine progress_;
  LinkMeasurement link_;
  StreamerOptions options_;
  Figures raw_, beyond_, rate_, share_, busy_, cpu_;
};

}  // namespace

int run_bench_link(const std::vector<std::string>& words) {
  Options options;
  if (!parse(words, kUsage, options.flags())) return 0;

  const Interrupt interrupt;
  LinkBench bench(options, interrupt);
  for (int i = 0; i < options.repetitions; ++i)
    bench.turn(std::to_string(i + 1) + " of " + std::to_string(options.repetitions));
  bench.end();
  if (options.json)
    std::cout << json_text(bench.as_json(), 2) << "\n";
  else
    bench.print();
  return 0;
}

}  // namespace canopy::cli
