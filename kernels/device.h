#pragma once
// Room kernels: arithmetic on one device, by the CPU (kernels/cpu) or CUDA (kernels/cuda), through
// one interface: memory, streams, events, and Ops.
// In: tensors and weights in any format of src/base/formats. Out: tensors, with bits that
// docs/math.md states.
// Must not know: models, families, files, plans.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/base/types.h"

namespace canopy {

class Device;
class Ops;

/// A point in a stream's work. Reusable: recording again moves the point.
/// Rule of CUDA, kept by every backend: a wait binds to the latest record made before
/// the call. So a thread that waits on another thread's record must first know, by a
/// host-side handshake, that the record has been made.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool reached() const = 0;  // true before the first record
  virtual void wait() const = 0;     // blocks the calling thread
};

/// An event that knows when it was reached. Outlives the work queued before its records.
class Timer : public Event {
 public:
  /// On the device's own clock, from the latest record of `earlier`, a timer of the same device, to
  /// this one's. Both must have been reached, and be recorded anew only afterwards.
  virtual Seconds since(const Timer& earlier) const = 0;
};

/// Destructors call these, and code that has another error on its way: they drop theirs. A
/// device that has failed fails in every call from then on.
void wait_quietly(const Event& event) noexcept;
class Stream;
void finish_quietly(Stream& stream) noexcept;

/// Work that a stream has kept instead of running it, to be launched as one; a CUDA graph on a GPU.
/// Belongs to the device of that stream, and must not outlive it.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// An in-order queue of device work. Calls enqueue and return at once; distinct
/// streams run concurrently unless an Event orders them. Not thread-safe.
class Stream {
 public:
  virtual ~Stream() = default;  // after the queued work is done
  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;  // later work waits; the host does not
  virtual void synchronize() = 0;             // throws Error if queued work failed
  /// Keeps what work() queues on this stream. Nothing of it runs yet, so work() must not wait for
  /// it; on other streams it queues nothing. Memory that the calls name must outlive the graph;
  /// what they read in it (and so DeviceScalar arguments) may differ at each launch. Events are
  /// recorded and waited for at each launch. Throws what work() throws, or Error if the device
  /// cannot make a graph of this; the stream is then as before.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;
  virtual bool capturing() const = 0;  // in the middle of capture()
  virtual void launch(const Graph& graph) = 0;
};

/// Owns one block of device memory. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, std::byte* data, std::size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Keeps host pages locked for DMA while alive. The pages are the caller's and
/// must be anonymous and page-aligned, so that io_uring can register them too.
class HostPin {
 public:
  virtual ~HostPin() = default;
};

/// Memory that the driver of a device with memory of its own takes besides what is allocated.
struct DriverShare {
  std::size_t unit = 1;   // bytes: an allocation takes whole ones
  std::size_t fixed = 0;  // kernels, which are loaded when they first run, libraries, stacks
  std::size_t graph = 0;  // of each graph
  double of_pinned = 0;   // of each byte of host memory that is locked: its page tables

  std::uint64_t whole_units(std::uint64_t bytes) const { return (bytes + unit - 1) / unit * unit; }
};
/// A GPU's. Pages of 2 MiB and 8 bytes of table for each 4 KiB are the driver's; the others are a
/// guess on the safe side that bench/gpu_probe.cu checks.
inline constexpr DriverShare kGpuDriver{.unit = std::size_t{2} << 20,
                                        .fixed = std::size_t{512} << 20,
                                        .graph = std::size_t{1} << 20,
                                        .of_pinned = 0.0025};

/// Thrown where a device has no room for an allocation. Nothing else is wrong: less may fit.
class DeviceFull : public Error {
 public:
  explicit DeviceFull(std::string_view cause, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE())
      : Error(cause, file, line) {}
};

/// One processor with its own memory and queues: the CPU, or one GPU.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual std::size_t free_bytes() const = 0;
  virtual bool shares_host_memory()
      const = 0;  // true on the CPU: a slab is a slot, nothing is copied

  virtual DriverShare driver_share() const = 0;  // nothing on the CPU

  virtual Buffer allocate(std::size_t bytes) = 0;  // 256-byte aligned; throws DeviceFull, or Error
  /// Memory as allocate() gives, whose pages are taken when they are first written, and given back
  /// by discard(). Where page_bytes() is 0, all is taken at once and discard() does nothing.
  virtual Buffer allocate_sparse(std::size_t bytes) { return allocate(bytes); }
  virtual std::size_t page_bytes() const { return 0; }
  /// Whole pages of sparse memory that no work uses: they are zero when they are next read.
  virtual void discard(std::span<std::byte>) noexcept {}
  virtual std::unique_ptr<HostPin> pin(std::span<std::byte> pages) = 0;
  virtual std::unique_ptr<Stream> make_stream(std::string_view name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  virtual std::unique_ptr<Timer> make_timer() = 0;

  virtual void upload(Stream& stream, std::byte* to, std::span<const std::byte> from) = 0;
  virtual void download(Stream& stream, std::span<std::byte> to, const std::byte* from) = 0;

  virtual Ops& ops() = 0;

 private:
  friend class Buffer;
  virtual void release(std::byte* data, std::size_t bytes) noexcept = 0;
};

struct DeviceChoice {
  std::string kind = "cpu";  // "cpu" | "cuda"
  int ordinal = 0;
  int threads = 0;             // CPU: 0 is one per CPU of `cpus`, or that this process may use
  std::vector<int> cpus = {};  // CPU: thread i is bound to cpus[i % size]; empty: unbound
  std::size_t gpu_memory = 0;  // GPU: bytes of it that may be used; 0: all
  std::string note = {};       // for the user: a GPU that is there is not used, and why
};
/// Throws Error naming the built-in kinds when the asked one is missing.
std::unique_ptr<Device> make_device(const DeviceChoice& choice);

struct Gpu {
  std::string name;
  std::uint64_t memory = 0;  // bytes
  std::string pci_address;   // as /sys/bus/pci/devices has it
  int ordinal = 0;           // in DeviceChoice
};
/// The GPUs that make_device() would open, or why there are none.
struct Gpus {
  std::vector<Gpu> all;
  std::string why_none;
  bool refused = false;       // there is a GPU, and why_none says why it cannot be used
  std::string versions = {};  // of CUDA: the program's and the driver's; "" without the backend

  const Gpu* find(int ordinal) const;  // null: it is none of these
};
/// Opens none of them: that would take memory on each.
Gpus find_gpus();

}  // namespace canopy
