// canopy bench link: sweeps in which nobody computes, in turns with raw reads from the same disk.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/device.h"
#include "offload/io/link_probe.h"
#include "offload/streamer.h"
#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/cli/commands.h"
#include "src/cli/interrupt.h"
#include "src/cli/options/model_options.h"
#include "src/cli/options/values.h"
#include "src/cli/output/progress_line.h"
#include "src/cli/output/table.h"
#include "src/machine/host_slab.h"
#include "src/machine/process_memory.h"
#include "src/machine/topology.h"

namespace canopy::cli {

using nlohmann::json;

namespace {

constexpr const char* kUsage =
    "usage: canopy bench link MODEL [FLAG ...]\n\n"
    "Sweeps over a model without computing, in turns with raw reads of its largest file: how much "
    "of the\n"
    "disk a run can use at best. Both read as generate would, unless flags say otherwise.";
constexpr Seconds kRawTurn{1.0};
constexpr Seconds kTrial{0.8};  // of the ways to read, in each of
constexpr int kTrials = 3;      // rounds
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
    flags.add_options()                                   //
        ("model,m", required(model, "PATH"), kModelHelp)  //
        ("repetitions,r", into(repetitions, "N", at_least("--repetitions", 1)),
         "turns: a second of raw reads, then a sweep")  //
        ("ring", into(ring, "SIZE", "--ring", parse_size),
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

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/// What figures are shown in.
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

class Bench {
 public:
  Bench(const Options& options, const Interrupt& interrupt)
      : stop_(interrupt.token()),
        progress_(options.progress),
        model_(Checkpoint::open(options.model)),
        file_(largest_file(model_.files())),
        layout_(lay_out_sweep(model_)),
        nothing_(none_resident(layout_)),
        device_(make_device({.kind = "cpu", .threads = 1})),
        compute_(device_->make_stream("compute")) {
    options_.direct = !options.no_direct_io;
    options_.io_uring = !options.no_io_uring;
    options_.ring_bytes = least_ring(layout_, nothing_);
    if (options.ring) {
      if (*options.ring < options_.ring_bytes)
        throw UsageError("--ring: this model needs " + format_size(options_.ring_bytes) + " (" +
                         std::to_string(options_.ring_bytes) + " bytes), two of its units");
      options_.ring_bytes = *options.ring;
    }
    choose_reads(options);
  }

  void turn(const std::string& name) {
    if (stop_.stop_requested()) throw Stopped();
    progress_.show(name + ": raw reads");
    raw_.values.push_back(raw_reads(options_.ring_bytes));
    if (beyond_caches_ > options_.ring_bytes) beyond_.values.push_back(raw_reads(beyond_caches_));
    sweep(name);
    share_.values.push_back(rate_.values.back() / raw_.values.back());
  }

  void end() { progress_.clear(); }

  void print() const {
    for (const std::string& note : notes_) std::cerr << "note: " << note << "\n";
    std::cout << raw_.line("raw reads", kGigabytes,
                           std::to_string(options_.queue_depth) + " reads of " +
                               format_size(options_.read_bytes) + " in flight, into " +
                               format_size(options_.ring_bytes) + ", " + file_.string());
    if (!beyond_.values.empty() && std::abs(beyond_.at(0.5) / raw_.at(0.5) - 1) > kDiffers)
      std::cout << beyond_.line(
          "", kGigabytes,
          "into " + format_size(beyond_caches_) + ", more than the CPU's caches hold");
    std::cout << rate_.line("sweeps", kGigabytes,
                            "through a ring of " + format_size(options_.ring_bytes))
              << share_.line("share", kPercent, "of the raw reads before the sweep")
              << busy_.line("link busy", kPercent, "of a sweep")
              << cpu_.line("processor", kPerGigabyte, "in a sweep");
  }

  json as_json() const {
    return {
        {"file", file_.string()},
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
        {"notes", notes_}};
  }

 private:
  /// Bytes per second into so much memory.
  double raw_reads(std::size_t bytes) {
    const HostSlab memory(bytes);
    Notes same;  // as the streamer's
    return LinkProbe(file_, memory.bytes(), options_.direct, options_.io_uring)
        .run({options_.read_bytes, options_.queue_depth}, kRawTurn, same)
        .bytes_per_second();
  }

  void choose_reads(const Options& options) {
    if (!options.read_size || !options.queue_depth) {
      progress_.show("trying sizes and depths of reads");
      const HostSlab memory(options_.ring_bytes);
      Notes same;
      const LinkSample best = LinkProbe(file_, memory.bytes(), options_.direct, options_.io_uring)
                                  .best(kTrials, kTrial, same);
      options_.read_bytes = best.read_bytes;
      options_.queue_depth = best.queue_depth;
    }
    if (options.read_size) options_.read_bytes = *options.read_size;
    if (options.queue_depth) options_.queue_depth = static_cast<std::size_t>(*options.queue_depth);
  }

  void sweep(const std::string& name) {
    progress_.show(name + ": a sweep");
    Streamer streamer(*device_, layout_, nothing_, options_, {}, stop_);
    const double cpu_before = cpu_seconds();
    const LinkTotals before = streamer.totals();
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < layout_.units.size(); ++i) {
      if (stop_.stop_requested()) throw Stopped();
      streamer.acquire(i, *compute_);
      if (progress_.wants_glimpse())
        progress_.show(name + ": a sweep, " + std::to_string(i + 1) + " of " +
                       std::to_string(layout_.units.size()) + " units");
    }
    const LinkTotals done = streamer.totals() - before;
    const Seconds took = std::chrono::steady_clock::now() - start;
    const auto bytes = static_cast<double>(done.disk_bytes);
    rate_.values.push_back(bytes / took.count());
    busy_.values.push_back(done.busy / took);
    cpu_.values.push_back((cpu_seconds() - cpu_before) / (bytes / 1e9));
    notes_ = streamer.notes();
  }

  std::stop_token stop_;
  ProgressLine progress_;
  Checkpoint model_;
  std::filesystem::path file_;
  SweepLayout layout_;
  Residency nothing_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> compute_;
  StreamerOptions options_;
  const std::size_t beyond_caches_ =
      std::min<std::size_t>(4 * Topology().last_level_cache(), system_memory().free() / 4);
  Notes notes_;
  Figures raw_, beyond_, rate_, share_, busy_, cpu_;
};

}  // namespace

int run_bench_link(const std::vector<std::string>& words) {
  Options options;
  if (!parse(words, kUsage, options.flags())) return 0;

  const Interrupt interrupt;
  Bench bench(options, interrupt);
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
