// Started by mpirun in tests/cluster/mpi_test.py: gathers over MPI, and what a rank does to the
// others that fails, dies or stops.
//   mpi_program SECONDS gather | fail RANK | kill RANK | stop RANK    SECONDS: the timeout
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/cluster/cluster.h"
#include "src/cluster/mpi_transport.h"

namespace canopy {
namespace {

constexpr std::int64_t kRows = 3, kColumns = 28'672;  // 344 kB: more than is sent at once
constexpr int kTurns = 60;

/// Gathers rows whose values say where they are, and compares what has come.
void gather_once(Cluster& cluster, int turn) {
  const auto value = [&](std::size_t i) {
    return static_cast<float>(i % 65'537) + static_cast<float>(turn);
  };
  std::vector<float> y(static_cast<std::size_t>(kRows * kColumns), -1.0f);
  const RowRange own = cluster.share().own(kColumns);
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t column = own.first; column < own.first + own.count; ++column) {
      const auto i = static_cast<std::size_t>(row * kColumns + column);
      y[i] = value(i);
    }
  const std::vector<TensorView> ys{
      {reinterpret_cast<std::byte*>(y.data()), DType::kF32, {kRows, kColumns}}};
  cluster.gather(Ranks::To::kAll, ys, {});
  for (std::size_t i = 0; i < y.size(); ++i)
    if (y[i] != value(i)) throw Error("value " + std::to_string(i) + " has not come");
}

int run(Seconds timeout, const std::string& mode, int of_rank) {
  auto transport = join_by_mpi();
  const Share share{transport->rank(),
                    std::vector<std::int64_t>(static_cast<std::size_t>(transport->ranks()), 1)};
  Cluster cluster(std::move(transport), share, {timeout, timeout / 6});
  std::string failed;
  try {
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn == kTurns / 2 && share.rank == of_rank) {
        if (mode == "fail") throw Error("the disk is gone");
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        std::cout << "raised " + std::to_string(Seconds(now).count()) + "\n" << std::flush;
        std::raise(mode == "kill" ? SIGKILL : SIGSTOP);
      }
      const std::string command = std::to_string(turn);
      const auto heard = cluster.announce(std::as_bytes(std::span(command)));
      if (std::string(reinterpret_cast<const char*>(heard.data()), heard.size()) != command)
        throw Error("an announcement is another");
      gather_once(cluster, turn);
    }
  } catch (const Error& error) {
    failed = error.what();
    std::cerr << cluster.name(share.rank) + ": " + failed + "\n" << std::flush;
  }
  if (!cluster.leave(failed).empty()) cluster.abort();
  if (failed.empty()) std::cout << "done " + std::to_string(share.rank) + "\n";
  return failed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace canopy

int main(int count, char** arguments) {
  try {
    return canopy::run(canopy::Seconds(count > 1 ? std::atof(arguments[1]) : 60),
                       count > 2 ? arguments[2] : "gather",
                       count > 3 ? std::atoi(arguments[3]) : -1);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
