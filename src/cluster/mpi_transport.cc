#include "src/cluster/mpi_transport.h"

#include <cstdlib>
#include <initializer_list>

#include "src/base/error.h"

#ifdef CANOPY_MPI
#define OMPI_SKIP_MPICXX  // the C++ bindings that MPI has given up
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#endif

namespace canopy {

namespace {

/// A number of the environment, by the first of these names that it has.
int number_of(std::initializer_list<const char*> names, int otherwise) {
  for (const char* const name : names)
    if (const char* const value = std::getenv(name)) return std::atoi(value);
  return otherwise;
}

}  // namespace

// PMI_...: of MPICH's launchers, so that join_by_mpi() can refuse them.
Launched launched_by_mpi() {
  return {number_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0),
          number_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1),
          number_of({"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1),
          number_of({"OMPI_MCA_orte_bound_at_launch"}, 0) != 0};
}

#ifndef CANOPY_MPI

std::unique_ptr<Transport> join_by_mpi(Seconds, OnHang) {
  throw Error(
      "this program was built without MPI and cannot share a model with other processes: install "
      "libopenmpi-dev and openmpi-bin, and build it anew");
}

#else

namespace {

constexpr int kTag = 1;
constexpr Seconds kAbortTakes{5};  // before the process ends by itself

/// Throws Error where a call has failed.
void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(std::string(call) + " failed: " + text);
}

/// Ends the process where what is done during its life takes longer than the timeout. Time in which
/// the process itself was stopped counts as one tick.
class Watchdog {
 public:
  Watchdog(Seconds timeout, const OnHang& on_hang, std::string what)
      : thread_([=, this](const std::stop_token& done) {
          constexpr Seconds kTick{0.1};
          std::unique_lock lock(mutex_);
          for (Seconds left = timeout; left.count() > 0; left -= kTick) {
            waiting_.wait_for(lock, done, std::min(left, kTick), [] { return false; });
            if (done.stop_requested()) return;
          }
          if (on_hang) on_hang(what);
          _exit(1);
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any waiting_;
  std::jthread thread_;  // last: uses all above
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(Seconds timeout, OnHang on_hang) : timeout_(timeout), on_hang_(std::move(on_hang)) {
    const Watchdog watchdog(timeout_, on_hang_, "joining the other ranks");
    int has = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &has), "MPI_Init_thread");
    if (has < MPI_THREAD_SERIALIZED)
      throw Error("this MPI takes calls of one thread alone: build it with MPI_THREAD_SERIALIZED");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &ranks_), "MPI_Comm_size");
    if (ranks_ != launched_by_mpi().ranks)
      throw Error("the launcher has started " + std::to_string(launched_by_mpi().ranks) +
                  " processes, and Open MPI finds " + std::to_string(ranks_) +
                  ": start them with the mpirun of Open MPI");
    arriving_.resize(static_cast<std::size_t>(ranks_));
    std::vector<char> mine(MPI_MAX_PROCESSOR_NAME, 0),
        all(mine.size() * static_cast<std::size_t>(ranks_));
    int length = 0;
    check(MPI_Get_processor_name(mine.data(), &length), "MPI_Get_processor_name");
    check(MPI_Allgather(mine.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, all.data(),
                        MPI_MAX_PROCESSOR_NAME, MPI_CHAR, comm_),
          "MPI_Allgather");
    for (int rank = 0; rank < ranks_; ++rank)
      hosts_.emplace_back(&all[static_cast<std::size_t>(rank) * mine.size()]);
  }
  MpiTransport(const MpiTransport&) = delete;
  ~MpiTransport() override {
    // All ranks have left in order, or this process has ended by abort().
    const Watchdog watchdog(timeout_, on_hang_, "ending with the other ranks");
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::string host(int rank) const override { return hosts_[static_cast<std::size_t>(rank)]; }

  void send(int to, const Message& message) override {
    const std::size_t bytes = message->size();
    if (bytes > INT_MAX)
      throw Error("a message of " + std::to_string(bytes) + " bytes: MPI sends less than 2^31");
    Sent& sent = sent_.emplace_back(Sent{message, to, MPI_REQUEST_NULL});
    check(MPI_Isend(message->data(), static_cast<int>(bytes), MPI_BYTE, to, kTag, comm_,
                    &sent.request),
          "MPI_Isend");
  }

  bool receive(int from, MessageBytes& into) override {
    // A large message arrives in parts, between which its sender may stop for good.
    Arriving& next = arriving_[static_cast<std::size_t>(from)];
    int found = 0, bytes = 0, whole = 0;
    if (!next.begun) {
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      check(MPI_Improbe(from, kTag, comm_, &found, &message, &status), "MPI_Improbe");
      if (!found) return false;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      next.message.resize(static_cast<std::size_t>(bytes));
      check(MPI_Imrecv(next.message.data(), bytes, MPI_BYTE, &message, &next.request),
            "MPI_Imrecv");
      next.begun = true;
    }
    check(MPI_Test(&next.request, &whole, MPI_STATUS_IGNORE), "MPI_Test");
    if (!whole) return false;
    next.begun = false;
    into.swap(next.message);
    return true;
  }

  std::optional<int> unsent() override {
    std::erase_if(sent_, [](Sent& sent) {
      int has_left = 0;
      check(MPI_Test(&sent.request, &has_left, MPI_STATUS_IGNORE), "MPI_Test");
      return has_left != 0;
    });
    if (sent_.empty()) return std::nullopt;
    return sent_.front().to;
  }

  void abort() noexcept override {
    std::thread([] {
      std::this_thread::sleep_for(kAbortTakes);
      _exit(1);
    }).detach();
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
  }

 private:
  struct Sent {
    Message message;
    int to;
    MPI_Request request;
  };

  struct Arriving {
    MessageBytes message;
    MPI_Request request = MPI_REQUEST_NULL;
    bool begun = false;
  };

  const Seconds timeout_;
  const OnHang on_hang_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, ranks_ = 1;
  std::vector<std::string> hosts_;
  std::deque<Sent> sent_;
  std::vector<Arriving> arriving_;  // by rank
};

}  // namespace

std::unique_ptr<Transport> join_by_mpi(Seconds timeout, OnHang on_hang) {
  return in_context("joining the other processes by MPI",
                    [&] { return std::make_unique<MpiTransport>(timeout, std::move(on_hang)); });
}

#endif

}  // namespace canopy
