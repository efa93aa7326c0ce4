#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "offload/io/input_files.h"
#include "offload/io/read_engine.h"
#include "src/base/error.h"

namespace canopy {

namespace {

constexpr std::size_t kMostThreads = 16;

class PreadEngine final : public ReadEngine {
 public:
  PreadEngine(std::span<const std::filesystem::path> files, const ReadEngineOptions& options,
              Notes& notes)
      : files_(files, options.direct, notes), depth_(options.depth) {
    try {
      for (std::size_t i = 0; i < std::min(depth_, kMostThreads); ++i)
        threads_.emplace_back([this] { serve(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~PreadEngine() override { stop(); }

  std::size_t depth() const override { return depth_; }

  void submit(std::span<const ReadRequest> requests) override {
    for (const ReadRequest& request : requests) files_.descriptor(request.file);  // checked
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), requests.begin(), requests.end());
      in_flight_ += requests.size();
    }
    submitted_.notify_all();
  }

  std::size_t wait(std::span<ReadDone> done) override {
    std::unique_lock lock(mutex_);
    if (in_flight_ == 0 || done.empty()) return 0;
    finished_.wait(lock, [&] { return !done_.empty(); });
    const std::size_t count = std::min(done.size(), done_.size());
    std::copy_n(done_.begin(), count, done.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    in_flight_ -= count;
    return count;
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      submitted_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      const ReadRequest request = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const ReadDone done{request.tag, read(request)};
      lock.lock();
      done_.push_back(done);
      finished_.notify_one();
    }
  }

  std::int64_t read(const ReadRequest& request) const {
    ssize_t got = 0;
    do {
      got = pread(files_.descriptor(request.file), request.into.data(), request.into.size(),
                  static_cast<off_t>(request.offset));
    } while (got < 0 && errno == EINTR);
    if (got < 0) return -errno;
    files_.drop_behind(request.file, request.offset, static_cast<std::size_t>(got));
    return got;
  }

  void stop() noexcept {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    submitted_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  InputFiles files_;
  const std::size_t depth_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable submitted_, finished_;
  std::deque<ReadRequest> waiting_;
  std::vector<ReadDone> done_;
  std::size_t in_flight_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<ReadEngine> make_pread_engine(std::span<const std::filesystem::path> files,
                                              const ReadEngineOptions& options, Notes& notes) {
  require(options.depth > 0, "a read engine needs a queue depth of at least 1");
  return std::make_unique<PreadEngine>(files, options, notes);
}

std::unique_ptr<ReadEngine> make_read_engine(std::span<const std::filesystem::path> files,
                                             std::span<const std::span<std::byte>> slabs,
                                             const ReadEngineOptions& options, Notes& notes) {
  const auto refuses_direct = [](const auto& file) { return !why_not_direct(file).empty(); };
  if (!options.io_uring) {
    add_note(notes, "reads use pread on threads instead of io_uring, as asked");
  } else if (!options.direct || std::none_of(files.begin(), files.end(), refuses_direct)) {
    if (auto engine = make_uring_engine(files, slabs, options, notes)) return engine;
  }
  return make_pread_engine(files, options, notes);
}

}  // namespace canopy
