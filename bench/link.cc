// The raw read bandwidth of one file: the ceiling of every sweep.
#include <boost/program_options.hpp>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "offload/link_probe.h"

namespace {

using namespace canopy;

struct Question {
  std::filesystem::path file;
  double seconds = 5.0;
  LinkSample how;
  bool direct = true, io_uring = true;
};

void report(const Question& q) {
  Notes notes;
  std::uint64_t position = 0;
  const LinkSample sample =
      probe_link(q.file, q.how, q.direct, q.io_uring, Seconds(q.seconds), position, notes);
  for (const std::string& note : notes) std::cerr << "note: " << note << '\n';
  std::cout << sample.bytes_per_second() / 1e9 << " GB/s from " << q.file.string() << " ("
            << q.how.read_bytes / 1024 << " KiB reads, " << q.how.queue_depth << " in flight, "
            << sample.time.count() << " s)\n"
            << nlohmann::json{{"name", "link"},
                              {"bytes", sample.bytes},
                              {"seconds", sample.time.count()},
                              {"bytes_per_second", sample.bytes_per_second()},
                              {"read_bytes", q.how.read_bytes},
                              {"queue_depth", q.how.queue_depth},
                              {"direct", q.direct},
                              {"io_uring", q.io_uring},
                              {"notes", notes}}
            << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  Question q;
  po::options_description options("bench_link FILE [options]: the raw read bandwidth of a file");
  options.add_options()("help", "show this")("file", po::value(&q.file)->required(),
                                             "what to read")(
      "seconds", po::value(&q.seconds)->default_value(q.seconds), "how long")(
      "queue-depth", po::value(&q.how.queue_depth)->default_value(q.how.queue_depth),
      "reads in flight")("read-bytes",
                         po::value(&q.how.read_bytes)->default_value(q.how.read_bytes),
                         "of one read, a multiple of 4096")(
      "direct", po::value(&q.direct)->default_value(true), "O_DIRECT")(
      "io-uring", po::value(&q.io_uring)->default_value(true), "else pread on threads");
  try {
    po::positional_options_description positions;
    positions.add("file", 1);
    po::variables_map given;
    po::store(po::command_line_parser(argc, argv).options(options).positional(positions).run(),
              given);
    if (given.count("help") > 0) {
      std::cout << options;
      return 0;
    }
    po::notify(given);
    report(q);
  } catch (const std::exception& e) {
    std::cerr << "bench_link: " << e.what() << '\n';
    return 1;
  }
}
