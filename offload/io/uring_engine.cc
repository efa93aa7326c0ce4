#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "offload/io/input_files.h"
#include "offload/io/read_engine.h"
#include "src/base/error.h"
#include "src/machine/advice.h"

namespace canopy {

namespace {

constexpr std::size_t kMostBufferBytes = 1u << 30;  // the kernel's limit of one registered buffer
constexpr int kMostBusyMilliseconds = 10'000;

struct CloseRing {
  void operator()(io_uring* ring) const noexcept {
    io_uring_queue_exit(ring);
    delete ring;
  }
};
using RingHandle = std::unique_ptr<io_uring, CloseRing>;  // holds a ring that was set up

class UringEngine final : public ReadEngine {
 public:
  UringEngine(RingHandle ring, std::span<const std::filesystem::path> files,
              std::span<const std::span<std::byte>> slabs, const ReadEngineOptions& options,
              Notes& notes)
      : ring_(std::move(ring)), files_(files, options.direct, notes), reads_(options.depth) {
    for (std::size_t i = 0; i < reads_.size(); ++i) free_.push_back(i);
    register_slabs(slabs, notes);
    register_files(files.size(), notes);
  }

  ~UringEngine() override {
    // The kernel still writes into the caller's memory: wait for it. Closing the ring also undoes
    // the registration.
    try {
      ReadDone done[16];
      while (wait(done) > 0) {
      }
    } catch (const Error&) {  // the kernel pins the pages of what it could not finish
    }
  }

  std::size_t depth() const override { return reads_.size(); }

  void submit(std::span<const ReadRequest> requests) override {
    require(requests.size() <= free_.size(), "more reads submitted than the queue is deep");
    for (const ReadRequest& request : requests) {
      const int descriptor = files_.descriptor(request.file);  // checked
      const int file = fixed_files_ ? request.file : descriptor;
      io_uring_sqe* const entry = io_uring_get_sqe(ring_.get());
      require(entry != nullptr, "the submission queue of io_uring is full");
      const auto bytes = static_cast<unsigned>(request.into.size());
      const int buffer = buffer_of(request.into);
      if (buffer >= 0) {
        io_uring_prep_read_fixed(entry, file, request.into.data(), bytes, request.offset, buffer);
      } else {
        io_uring_prep_read(entry, file, request.into.data(), bytes, request.offset);
      }
      if (fixed_files_) entry->flags |= IOSQE_FIXED_FILE;
      const std::size_t slot = free_.back();
      free_.pop_back();
      reads_[slot] = request;
      io_uring_sqe_set_data64(entry, slot);
    }
    // Requests that the kernel cannot take now (EAGAIN, EBUSY, EINTR) stay queued, and wait() hands
    // them in.
    check_submitted(io_uring_submit(ring_.get()));
  }

  std::size_t wait(std::span<ReadDone> done) override {
    if (done.empty()) return 0;
    for (int busy = 0; free_.size() < reads_.size();) {
      const std::size_t count = reap(done);
      if (count > 0) return count;
      const int result = io_uring_submit_and_wait(ring_.get(), 1);
      check_submitted(result);
      if (result != -EAGAIN && result != -EBUSY) continue;
      if (++busy > kMostBusyMilliseconds)
        throw Error("io_uring has been out of resources for " +
                    std::to_string(kMostBusyMilliseconds / 1000) + " s: " + std::strerror(-result) +
                    "; free some memory, or turn io_uring off");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return 0;
  }

 private:
  static void check_submitted(int result) {
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
      throw Error(std::string("io_uring_submit: ") + std::strerror(-result));
  }

  std::size_t reap(std::span<ReadDone> done) {
    std::size_t count = 0;
    unsigned head = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(ring_.get(), head, entry) {
      if (count == done.size()) break;
      const auto slot = static_cast<std::size_t>(io_uring_cqe_get_data64(entry));
      const ReadRequest& read = reads_[slot];
      if (entry->res > 0)
        files_.drop_behind(read.file, read.offset, static_cast<std::size_t>(entry->res));
      done[count++] = {read.tag, entry->res};
      free_.push_back(slot);
    }
    io_uring_cq_advance(ring_.get(), static_cast<unsigned>(count));
    return count;
  }

  void register_slabs(std::span<const std::span<std::byte>> slabs, Notes& notes) {
    for (std::span<std::byte> rest : slabs)
      while (!rest.empty()) {
        const std::size_t bytes = std::min(rest.size(), kMostBufferBytes);
        buffers_.push_back({rest.data(), bytes});
        rest = rest.subspan(bytes);
      }
    if (buffers_.empty()) return;
    const int result = io_uring_register_buffers(ring_.get(), buffers_.data(),
                                                 static_cast<unsigned>(buffers_.size()));
    if (result == 0) return;
    buffers_.clear();
    const bool locked = result == -ENOMEM || result == -EPERM;
    add_note(notes, std::string("registering the memory of reads is refused (") +
                        std::strerror(-result) +
                        "), so reads use unregistered buffers, about a tenth slower on a fast "
                        "disk; " +
                        (locked ? memlock_advice() : "see io_uring_register(2)"));
  }

  void register_files(std::size_t count, Notes& notes) {
    std::vector<int> descriptors;
    for (std::size_t i = 0; i < count; ++i)
      descriptors.push_back(files_.descriptor(static_cast<int>(i)));
    if (descriptors.empty()) return;
    const int result = io_uring_register_files(ring_.get(), descriptors.data(),
                                               static_cast<unsigned>(descriptors.size()));
    fixed_files_ = result == 0;
    if (!fixed_files_)
      notes.push_back(std::string("reads use unregistered files, at a little more CPU time: the "
                                  "kernel refused to register them (") +
                      std::strerror(-result) + "); see io_uring_register(2)");
  }

  /// The registered buffer that holds all of `bytes`, or -1.
  int buffer_of(std::span<const std::byte> bytes) const {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const auto* const begin = static_cast<const std::byte*>(buffers_[i].iov_base);
      if (bytes.data() >= begin && bytes.data() + bytes.size() <= begin + buffers_[i].iov_len)
        return static_cast<int>(i);
    }
    return -1;
  }

  RingHandle ring_;
  InputFiles files_;
  std::vector<ReadRequest> reads_;  // by slot, the ring's user data
  std::vector<std::size_t> free_;   // slots with no read in flight
  std::vector<iovec> buffers_;      // registered; none when refused
  bool fixed_files_ = false;        // the files are registered: they go by index
};

}  // namespace

std::unique_ptr<ReadEngine> make_uring_engine(std::span<const std::filesystem::path> files,
                                              std::span<const std::span<std::byte>> slabs,
                                              const ReadEngineOptions& options, Notes& notes) {
  require(options.depth > 0 && options.depth <= 4096,
          "a read engine needs a queue depth of 1 to 4096");
  auto memory = std::make_unique<io_uring>();
  const int result = io_uring_queue_init(static_cast<unsigned>(options.depth), memory.get(), 0);
  if (result < 0) {
    add_note(notes, std::string("io_uring is refused (") + std::strerror(-result) +
                        "), so reads use pread on threads, at a third more processor time; " +
                        io_uring_advice(-result));
    return nullptr;
  }
  return std::make_unique<UringEngine>(RingHandle(memory.release()), files, slabs, options, notes);
}

}  // namespace canopy
