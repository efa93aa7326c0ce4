// What the link gives to nobody's work: sequential reads of one file through the read engine, as
// the streamer makes them, into a slab that nobody looks at. The ceiling of every sweep.
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "offload/host_memory.h"
#include "offload/read_engine.h"
#include "src/base/error.h"
#include "src/base/types.h"

namespace {

using namespace canopy;
using Clock = std::chrono::steady_clock;

struct Question {
  std::filesystem::path file;
  double seconds = 5.0;
  ReadEngineOptions engine;
  std::size_t read_bytes = 1u << 20;
};

struct Answer {
  std::uint64_t bytes = 0;
  Seconds wall{};
  Notes notes;
};

/// Reads whole requests from the start of the file to its end, again and again.
Answer read_for(const Question& q) {
  const std::uint64_t chunks = std::filesystem::file_size(q.file) / q.read_bytes;
  if (chunks == 0) throw Error(q.file.string() + " is smaller than one read");
  const HostSlab slab(q.engine.depth * q.read_bytes);
  const std::vector files{q.file};
  const std::vector slabs{slab.bytes()};
  Answer answer;
  const auto engine = make_read_engine(files, slabs, q.engine, answer.notes);

  std::uint64_t next = 0;
  std::vector<ReadDone> done(q.engine.depth);
  const auto submit = [&](std::uint64_t place) {
    const ReadRequest request{0, next++ % chunks * q.read_bytes,
                              slab.bytes().subspan(place * q.read_bytes, q.read_bytes), place};
    engine->submit({&request, 1});
  };
  const auto start = Clock::now();
  for (std::uint64_t place = 0; place < q.engine.depth; ++place) submit(place);
  while (const std::size_t count = engine->wait(done)) {
    const bool more = Clock::now() - start < Seconds(q.seconds);
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i].result < 0)
        throw Error("reading " + q.file.string() + " failed: errno " +
                    std::to_string(-done[i].result));
      answer.bytes += static_cast<std::uint64_t>(done[i].result);
      if (more) submit(done[i].tag);
    }
  }
  answer.wall = Clock::now() - start;
  return answer;
}

void report(const Question& q, const Answer& answer) {
  for (const std::string& note : answer.notes) std::cerr << "note: " << note << '\n';
  const double rate = static_cast<double>(answer.bytes) / answer.wall.count();
  std::cout << rate / 1e9 << " GB/s from " << q.file.string() << " (" << q.read_bytes / 1024
            << " KiB reads, " << q.engine.depth << " in flight, " << answer.wall.count() << " s)\n"
            << nlohmann::json{{"name", "link"},
                              {"bytes", answer.bytes},
                              {"seconds", answer.wall.count()},
                              {"bytes_per_second", rate},
                              {"read_bytes", q.read_bytes},
                              {"queue_depth", q.engine.depth},
                              {"direct", q.engine.direct},
                              {"io_uring", q.engine.io_uring},
                              {"notes", answer.notes}}
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
      "queue-depth", po::value(&q.engine.depth)->default_value(q.engine.depth), "reads in flight")(
      "read-bytes", po::value(&q.read_bytes)->default_value(q.read_bytes),
      "of one read, a multiple of 4096")("direct", po::value(&q.engine.direct)->default_value(true),
                                         "O_DIRECT")(
      "io-uring", po::value(&q.engine.io_uring)->default_value(true), "else pread on threads");
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
    require(q.read_bytes > 0 && q.read_bytes % kReadAlignment == 0,
            "--read-bytes must be a multiple of 4096");
    report(q, read_for(q));
  } catch (const std::exception& e) {
    std::cerr << "bench_link: " << e.what() << '\n';
    return 1;
  }
}
