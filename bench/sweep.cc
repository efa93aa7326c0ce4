// What a sweep costs when nobody computes: the streamer's own share of the link. Compare with
// bench_link on the model's largest file.
#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "offload/checkpoint.h"
#include "offload/streamer.h"

namespace {

using namespace canopy;

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

void sweep(Streamer& streamer, Stream& compute) {
  for (std::size_t i = 0; i < streamer.units().size(); ++i) streamer.acquire(i, compute);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(const std::filesystem::path& model, StreamerOptions options, int sweeps) {
  const auto device = make_device({.kind = "cpu", .threads = 1});
  const auto compute = device->make_stream("compute");
  const Checkpoint checkpoint = Checkpoint::open(model);
  const std::vector<UnitLayout> units = lay_out_units(checkpoint, kReadAlignment);
  const Residency none = none_resident(units);
  if (options.ring_bytes == 0) options.ring_bytes = least_ring(units, none);
  Streamer streamer(*device, checkpoint, none, options);
  sweep(streamer, *compute);  // warm up: the ring is full, as in the middle of a run
  std::vector<double> rates, busy;
  const double cpu_before = cpu_seconds();
  const std::uint64_t bytes_before = streamer.totals().disk_bytes;
  for (int i = 0; i < sweeps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const LinkTotals before = streamer.totals();
    sweep(streamer, *compute);
    const LinkTotals after = streamer.totals();
    const Seconds wall = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(after.disk_bytes - before.disk_bytes) / wall.count());
    busy.push_back((after.busy - before.busy) / wall);
  }
  const double gigabytes = static_cast<double>(streamer.totals().disk_bytes - bytes_before) / 1e9;
  const double cpu = (cpu_seconds() - cpu_before) / gigabytes;
  for (const std::string& note : streamer.notes()) std::cerr << "note: " << note << '\n';
  std::cout << median(rates) / 1e9 << " GB/s, link busy " << median(busy) * 100 << " %, " << cpu
            << " CPU seconds per GB\n"
            << nlohmann::json{{"name", "sweep"},
                              {"sweeps", sweeps},
                              {"bytes_per_second", median(rates)},
                              {"slowest", *std::min_element(rates.begin(), rates.end())},
                              {"fastest", *std::max_element(rates.begin(), rates.end())},
                              {"link_busy", median(busy)},
                              {"cpu_seconds_per_gb", cpu},
                              {"held_bytes", streamer.held_bytes()},
                              {"ring_bytes", options.ring_bytes},
                              {"read_bytes", options.read_bytes},
                              {"queue_depth", options.queue_depth},
                              {"notes", streamer.notes()}}
            << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  std::filesystem::path model;
  StreamerOptions streamer;
  int sweeps = 5;
  po::options_description options("bench_sweep MODEL [options]: sweeps over a model, no compute");
  options.add_options()("help", "show this")("model", po::value(&model)->required(),
                                             "a Hugging Face directory or a GGUF file")(
      "sweeps", po::value(&sweeps)->default_value(sweeps), "how many")(
      "ring-bytes", po::value(&streamer.ring_bytes), "of the ring (default: two units)")(
      "queue-depth", po::value(&streamer.queue_depth)->default_value(streamer.queue_depth),
      "reads in flight")(
      "read-bytes", po::value(&streamer.read_bytes)->default_value(streamer.read_bytes),
      "of one read")("direct", po::value(&streamer.direct)->default_value(true), "O_DIRECT")(
      "io-uring", po::value(&streamer.io_uring)->default_value(true), "else pread on threads");
  try {
    po::positional_options_description positions;
    positions.add("model", 1);
    po::variables_map given;
    po::store(po::command_line_parser(argc, argv).options(options).positional(positions).run(),
              given);
    if (given.count("help") > 0) {
      std::cout << options;
      return 0;
    }
    po::notify(given);
    run(model, streamer, std::max(1, sweeps));
  } catch (const std::exception& e) {
    std::cerr << "bench_sweep: " << e.what() << '\n';
    return 1;
  }
}
