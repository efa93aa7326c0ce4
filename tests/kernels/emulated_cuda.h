#pragma once
// A GPU played by the CPU: memory of its own, which a driver takes its share of, streams that keep
// CUDA's rules, and the kernels of kernels/cuda with the threads of a block taking turns. On
// request it is full, makes no graphs, or fails for good.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/small_uploads.h"
#include "kernels/ops.h"
#include "kernels/pinned_ranges.h"
#include "tests/kernels/kernel_runner.h"

namespace canopy {

/// One block, see kernels/cuda/block.h. Threads run one after another within a step.
class SerialBlock {
 public:
  SerialBlock(std::int64_t index, const cuda::Grid& grid)
      : index_(index), threads_(grid.threads), shared_(grid.shared_bytes / sizeof(double) + 1) {}

  template <class T>
  class Each {
   public:
    explicit Each(int threads) : values_(static_cast<std::size_t>(threads)) {}
    T& operator[](int t) { return values_.at(static_cast<std::size_t>(t)); }
    auto begin() { return values_.begin(); }
    auto end() { return values_.end(); }

   private:
    std::vector<T> values_;
  };

  std::int64_t index() const { return index_; }
  int threads() const { return threads_; }
  template <class Body>
  void step(const Body& body) {
    for (int t = 0; t < threads_; ++t) body(t);
  }
  template <class T>
  Each<T> each() const {
    return Each<T>(threads_);
  }
  template <class T>
  T* shared(int count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    used_ = (used_ + alignof(T) - 1) / alignof(T) * alignof(T);
    auto* const at = reinterpret_cast<std::byte*>(shared_.data()) + used_;
    used_ += bytes;
    EXPECT_LE(used_, shared_.size() * sizeof(double)) << "more shared memory than the grid has";
    return reinterpret_cast<T*>(at);
  }
  template <class T>
  T sum(Each<T>& x) const {
    return std::accumulate(x.begin(), x.end(), T{});
  }
  template <class T>
  T most(Each<T>& x) const {
    return *std::max_element(x.begin(), x.end());
  }
  template <int kLanes, class T>
  void lanes_sum(Each<T>& x) const {
    combine_lanes<kLanes>(x, [](T a, T b) { return a + b; });
  }
  template <int kLanes, class T>
  void lanes_most(Each<T>& x) const {
    combine_lanes<kLanes>(x, [](T a, T b) { return a < b ? b : a; });
  }
  template <class T>
  T uniform(T value) const {
    return value;
  }
  std::uint32_t add(std::uint32_t* to, std::uint32_t n) const {
    return std::exchange(*to, *to + n);
  }
  void add(cuda::SharedSum* to, std::uint64_t n) const {
    EXPECT_LT(n, std::uint64_t{1} << 51);
    const std::uint64_t sum = to->value() + n;
    *to = {static_cast<std::uint32_t>(sum), static_cast<std::uint32_t>(sum >> 32)};
  }

 private:
  /// The order is that of the lanes of a warp.
  template <int kLanes, class T, class Two>
  void combine_lanes(Each<T>& x, const Two& two) const {
    static_assert(kLanes > 0 && 32 % kLanes == 0);
    for (int apart = kLanes / 2; apart > 0; apart /= 2)
      for (int t = 0; t < threads_; ++t)
        if ((t & apart) == 0) x[t] = x[t + apart] = two(x[t], x[t + apart]);
  }

  std::int64_t index_;
  int threads_;
  std::vector<double> shared_;  // as it comes, but never a NaN by chance
  std::size_t used_ = 0;
};

/// The card's memory and its health, which streams, events and graphs share.
class EmulatedCard {
 public:
  EmulatedCard(std::size_t memory, const DriverShare& driver) : driver(driver), memory_(memory) {}
  const DriverShare driver;

  std::size_t free_bytes() const { return memory_ - held_; }
  std::size_t most_held() const { return most_held_; }
  /// Throws Failure if there is no room.
  template <class Failure = Error>
  void take(std::size_t bytes, const char* what) {
    const std::lock_guard lock(mutex_);
    if (bytes > memory_ - held_)
      throw Failure(std::string("CUDA: ") + what + ": out of memory (cudaErrorMemoryAllocation)");
    held_ += bytes;
    most_held_ = std::max<std::size_t>(most_held_, held_);
  }
  void give_back(std::size_t bytes) { held_ -= bytes; }

  /// Loads a kernel, unless it is: when it is first launched, which must not be in a capture. Each
  /// takes a part of the driver's share, until that is used up.
  void load(std::type_index kernel, bool capturing) {
    const std::lock_guard lock(loading_);
    if (loaded_.contains(kernel)) return;
    if (capturing)
      throw Error(std::string("CUDA: a kernel is loaded in the middle of a capture: ") +
                  kernel.name());
    constexpr std::size_t kParts = 8;
    if (loaded_.size() < kParts) take(driver.fixed / kParts, "loading a kernel");
    loaded_.insert(kernel);
  }

  /// Counts each call to the driver. From call number `fail_at` on all of them fail.
  void call() {
    if (++calls_ >= fail_at_ && !broken_) {
      const std::unique_lock lock(running_);  // what runs ends first; nothing runs afterwards
      broken_ = true;
    }
    if (broken_) throw Error(kFailure);
  }
  static constexpr const char* kFailure =
      "CUDA: an illegal memory access was encountered (cudaErrorIllegalAddress)";
  void fail_at(std::int64_t number) { fail_at_ = number; }
  /// Counts how often the host has waited for the device.
  void wait() { ++waits_; }
  std::int64_t waits() const { return waits_; }
  /// Counts launches of kernels, and of products; in a capture each once.
  void launched() { ++kernels_; }
  void multiplied() { ++products_; }
  std::int64_t kernels() const { return kernels_; }
  std::int64_t products() const { return products_; }
  std::int64_t calls() const { return calls_; }
  template <class Work>
  void run(const Work& work) {
    const std::shared_lock lock(running_);
    if (!broken_) work();
  }

 private:
  const std::size_t memory_;
  std::mutex mutex_, loading_;
  std::atomic<std::size_t> held_ = 0, most_held_ = 0;
  std::set<std::type_index> loaded_;
  std::shared_mutex running_;
  std::atomic<std::int64_t> waits_ = 0, calls_ = 0, kernels_ = 0, products_ = 0,
                            fail_at_ = std::numeric_limits<std::int64_t>::max();
  std::atomic<bool> broken_ = false;
};

class EmulatedEvent final : public Timer {
 public:
  enum class Timed : bool { kNo, kYes };
  EmulatedEvent(EmulatedCard& card, Timed timed) : card_(card), timed_(timed == Timed::kYes) {}
  bool reached() const override {
    card_.call();
    return event_.reached();
  }
  void wait() const override {
    card_.call();
    card_.wait();
    event_.wait();
    card_.call();
  }
  Seconds since(const Timer& earlier) const override {
    card_.call();
    EXPECT_TRUE(reached()) << "a timer was read before it was reached";
    const auto& from = dynamic_cast<const EmulatedEvent&>(earlier);
    EXPECT_TRUE(timed_ && from.timed_) << "this event keeps no time";
    return when_ - from.when_;
  }

 private:
  friend class EmulatedStream;
  EmulatedCard& card_;
  const bool timed_;
  std::chrono::steady_clock::time_point when_;  // written by the stream, unless the card has failed
  cpu::CpuEvent event_;
};

class EmulatedGraph final : public Graph {
 public:
  EmulatedGraph(EmulatedCard& card, std::unique_ptr<Graph> graph)
      : card_(card), graph_(std::move(graph)) {
    card_.take(card_.driver.graph, "making a CUDA graph");
  }
  ~EmulatedGraph() override { card_.give_back(card_.driver.graph); }
  const Graph& get() const { return *graph_; }

 private:
  EmulatedCard& card_;
  const std::unique_ptr<Graph> graph_;
};

class EmulatedStream final : public Stream {
 public:
  EmulatedStream(EmulatedCard& card, std::string_view name, bool makes_graphs)
      : card_(card), stream_(name, {}), makes_graphs_(makes_graphs) {}
  void record(Event& event) override {
    card_.call();
    auto& ours = dynamic_cast<EmulatedEvent&>(event);
    if (ours.timed_)
      stream_.enqueue([card = &card_, when = &ours.when_] {
        card->run([when] { *when = std::chrono::steady_clock::now(); });
      });
    stream_.record(ours.event_);
  }
  void wait(const Event& event) override {
    card_.call();
    stream_.wait(dynamic_cast<const EmulatedEvent&>(event).event_);
  }
  void synchronize() override {
    card_.call();
    card_.wait();
    stream_.synchronize();
    card_.call();
  }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    card_.call();
    return std::make_unique<EmulatedGraph>(card_, stream_.capture([&] {
      work();
      if (!makes_graphs_)
        throw Error(
            "CUDA: capturing a CUDA graph: operation not permitted when stream is capturing");
    }));
  }
  bool capturing() const override { return stream_.capturing(); }
  void launch(const Graph& graph) override {
    card_.call();
    stream_.launch(dynamic_cast<const EmulatedGraph&>(graph).get());
  }
  template <class Work>
  void enqueue(const Work& work) {
    card_.call();
    stream_.enqueue([card = &card_, work] { card->run(work); });
  }
  void load(std::type_index kernel) { card_.load(kernel, capturing()); }

 private:
  EmulatedCard& card_;
  cpu::CpuStream stream_;
  const bool makes_graphs_;
};

/// Queues a kernel as one piece of a stream's work, which fails if the kernel found a fault.
struct SerialLaunch {
  EmulatedCard* card;
  cuda::Fault* fault;

  template <class Kernel>
  void operator()(Stream& stream, const Kernel& kernel, const cuda::Grid& grid) const {
    auto& ours = dynamic_cast<EmulatedStream&>(stream);
    if (grid.threads > cuda::most_threads<Kernel>())
      throw Error("CUDA: launching a kernel: " + std::to_string(grid.threads) +
                  " threads; its blocks have at most " +
                  std::to_string(cuda::most_threads<Kernel>()));
    ours.load(typeid(Kernel));
    card->launched();
    ours.enqueue([=, fault = fault] {
      if (KernelRunner* const runner = KernelRunner::installed)
        runner->run(typeid(Kernel), std::as_bytes(std::span(&kernel, 1)), grid);
      else
        run_serially(kernel, grid);
      if (fault->kind != cuda::Fault::kNone)
        throw cuda::error_of(std::exchange(*fault, cuda::Fault()));
    });
  }
  template <class Kernel>
  void load() const {
    card->load(typeid(Kernel), false);
  }
  template <class Kernel>
  static void run_serially(const Kernel& kernel, const cuda::Grid& grid) {
    for (std::int64_t index = 0; index < grid.blocks; ++index) {
      SerialBlock block(index, grid);
      kernel(block);
    }
  }
};

/// The kernels of kernels/cuda, each launched by SerialLaunch. They are compiled once, in
/// tests/kernels/emulated_ops.cc, being most of what a test with an emulated GPU would compile.
std::unique_ptr<Ops> make_emulated_ops(Device& device, const SerialLaunch& launch);

class EmulatedCuda final : public Device {
  using SmallUploads = cuda::SmallUploads<SerialLaunch>;

 public:
  struct Options {
    std::size_t memory = std::size_t{4} << 30;
    DriverShare driver = {.unit = 256};
    std::size_t unseen = 0;  // bytes that cannot be had, though they are reported as free
    bool graphs = true;      // else each capture fails
    std::size_t most_pinned = std::numeric_limits<std::size_t>::max();  // bytes; more is refused
  };
  explicit EmulatedCuda(const Options& options)
      : options_(options), card_(options.memory - options.unseen, options.driver) {}
  EmulatedCuda() : EmulatedCuda(Options()) {}

  std::string name() const override { return "an emulated GPU"; }
  std::size_t free_bytes() const override { return card_.free_bytes() + options_.unseen; }
  EmulatedCard& card() { return card_; }
  std::size_t pins() const { return pins_; }                  // that were ever made
  std::size_t largest_copy() const { return largest_copy_; }  // to the device
  bool shares_host_memory() const override { return false; }
  DriverShare driver_share() const override { return options_.driver; }

  Buffer allocate(std::size_t bytes) override {
    card_.call();
    card_.take<DeviceFull>(taken_by(bytes), "allocating GPU memory");
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256));
    std::fill_n(data, bytes, std::byte{0});
    const std::lock_guard lock(mutex_);
    allocated_[data] = data + bytes;
    if (KernelRunner::installed != nullptr) KernelRunner::installed->allocated(data, bytes);
    return Buffer(*this, data, bytes);
  }
  std::unique_ptr<HostPin> pin(std::span<std::byte> pages) override {
    card_.call();
    return std::make_unique<Pin>(*this, pages);
  }
  std::unique_ptr<Stream> make_stream(std::string_view name) override {
    card_.call();
    return std::make_unique<EmulatedStream>(card_, name, options_.graphs);
  }
  std::unique_ptr<Event> make_event() override {
    card_.call();
    return std::make_unique<EmulatedEvent>(card_, EmulatedEvent::Timed::kNo);
  }
  std::unique_ptr<Timer> make_timer() override {
    card_.call();
    return std::make_unique<EmulatedEvent>(card_, EmulatedEvent::Timed::kYes);
  }
  void upload(Stream& stream, std::byte* to, std::span<const std::byte> from) override {
    expect_kinds(from.data(), to, from.size());
    if (small_.upload(stream, to, from)) return;
    largest_copy_ = std::max<std::size_t>(largest_copy_, from.size());
    pinned_.cut(from, [&](std::span<const std::byte> piece) {
      copy(stream, to + (piece.data() - from.data()), piece.data(), piece.size());
    });
  }
  void download(Stream& stream, std::span<std::byte> to, const std::byte* from) override {
    expect_kinds(to.data(), from, to.size());
    pinned_.cut(to, [&](std::span<const std::byte> piece) {
      const std::ptrdiff_t at = piece.data() - to.data();
      copy(stream, to.data() + at, from + at, piece.size());
    });
  }
  Ops& ops() override { return *ops_; }

 private:
  /// Takes memory of the device for its page tables.
  class Pin final : public HostPin {
   public:
    Pin(EmulatedCuda& device, std::span<std::byte> pages) : device_(device), pages_(pages) {
      if (pages.size() > device.options_.most_pinned - device.pinned_bytes_)
        throw Error("cannot lock " + std::to_string(pages.size()) + " bytes");
      device_.card_.take(tables(), "locking host memory");
      device_.pinned_bytes_ += pages.size();
      device_.pinned_.add(pages);
      ++device_.pins_;
    }
    ~Pin() override {
      device_.pinned_.remove(pages_.data());
      device_.pinned_bytes_ -= pages_.size();
      device_.card_.give_back(tables());
    }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    std::size_t tables() const {
      return static_cast<std::size_t>(device_.options_.driver.of_pinned *
                                      static_cast<double>(pages_.size()));
    }
    EmulatedCuda& device_;
    const std::span<std::byte> pages_;
  };

  std::size_t taken_by(std::size_t bytes) const {
    return options_.driver.whole_units(std::max<std::size_t>(bytes, 1));
  }
  static void copy(Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes) {
    dynamic_cast<EmulatedStream&>(stream).enqueue([=] { std::copy_n(from, bytes, to); });
  }
  bool on_device(const std::byte* at, std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto behind = allocated_.upper_bound(at);
    return behind != allocated_.begin() && at + bytes <= std::prev(behind)->second;
  }
  /// CUDA's copies, whose kind is given, fail in the same cases.
  void expect_kinds(const std::byte* host, const std::byte* device, std::size_t bytes) const {
    if (bytes == 0) return;
    if (on_device(host, bytes) || !on_device(device, bytes))
      throw Error("CUDA: copying: invalid argument (cudaErrorInvalidValue)");
  }
  void release(std::byte* data, std::size_t bytes) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      allocated_.erase(data);
      if (KernelRunner::installed != nullptr) KernelRunner::installed->released(data);
    }
    std::free(data);
    card_.give_back(taken_by(bytes));
  }

  const Options options_;
  EmulatedCard card_;
  PinnedRanges pinned_;
  std::atomic<std::size_t> pinned_bytes_ = 0, pins_ = 0, largest_copy_ = 0;
  mutable std::mutex mutex_;  // guards what follows
  std::map<const std::byte*, const std::byte*> allocated_;
  cuda::Fault fault_;
  const KernelRunner::Memory fault_page_{&fault_, sizeof fault_};
  const std::unique_ptr<Ops> ops_ = make_emulated_ops(*this, {&card_, &fault_});
  std::vector<std::byte> shared_ = std::vector<std::byte>(SmallUploads::kBytes);
  const KernelRunner::Memory shared_pages_{shared_.data(), shared_.size()};
  SmallUploads small_{*this, SerialLaunch{&card_, &fault_}, shared_.data()};
};

}  // namespace canopy
