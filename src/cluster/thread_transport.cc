#include "src/cluster/thread_transport.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

/// Messages on their way, of all pairs of ranks.
struct Hub {
  explicit Hub(int count)
      : ranks(count), queues(static_cast<std::size_t>(count) * static_cast<std::size_t>(count)) {}
  std::deque<MessageBytes>& queue(int from, int to) {
    return queues[static_cast<std::size_t>(from * ranks + to)];
  }

  const int ranks;
  std::mutex mutex;  // guards what follows
  std::vector<std::deque<MessageBytes>> queues;
  std::vector<MessageBytes> spare;
  bool aborted = false;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return hub_->ranks; }
  std::string host(int) const override { return "this process"; }

  void send(int to, const Message& message) override {
    const std::lock_guard lock(hub_->mutex);
    require_connected();
    MessageBytes copy;
    if (!hub_->spare.empty()) {
      copy = std::move(hub_->spare.back());
      hub_->spare.pop_back();
    }
    copy.resize(message->size());
    std::ranges::copy(message->bytes(), copy.data());
    hub_->queue(rank_, to).push_back(std::move(copy));
  }

  bool receive(int from, MessageBytes& into) override {
    const std::lock_guard lock(hub_->mutex);
    require_connected();
    auto& queue = hub_->queue(from, rank_);
    if (queue.empty()) return false;
    std::swap(into, queue.front());
    hub_->spare.push_back(std::move(queue.front()));
    queue.pop_front();
    return true;
  }

  std::optional<int> unsent() override { return std::nullopt; }

  void abort() noexcept override {
    const std::lock_guard lock(hub_->mutex);
    hub_->aborted = true;
  }

 private:
  void require_connected() const {
    if (hub_->aborted) throw Error("another rank has aborted the run");
  }

  const std::shared_ptr<Hub> hub_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_thread_transports(int ranks) {
  const auto hub = std::make_shared<Hub>(ranks);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < ranks; ++rank)
    transports.push_back(std::make_unique<ThreadTransport>(hub, rank));
  return transports;
}

}  // namespace canopy
