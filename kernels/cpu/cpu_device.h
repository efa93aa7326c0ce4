#pragma once
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/pool.h"
#include "kernels/device.h"

namespace canopy::cpu {

/// The processor this process runs on. Any thread, once made.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceChoice& choice);

  std::string name() const override;
  std::size_t free_bytes() const override;  // of the machine and of this process's cgroups
  bool shares_host_memory() const override { return true; }
  DriverShare driver_share() const override { return {}; }
  Buffer allocate(std::size_t bytes) override;
  Buffer allocate_sparse(std::size_t bytes) override;
  std::size_t page_bytes() const override;
  void discard(std::span<std::byte> pages) noexcept override;
  std::unique_ptr<HostPin> pin(std::span<std::byte> pages) override;
  std::unique_ptr<Stream> make_stream(std::string_view name) override;
  std::unique_ptr<Event> make_event() override;
  std::unique_ptr<Timer> make_timer() override;
  void upload(Stream& stream, std::byte* to, std::span<const std::byte> from) override;
  void download(Stream& stream, std::span<std::byte> to, const std::byte* from) override;
  Ops& ops() override { return ops_; }

 private:
  void release(std::byte* data, std::size_t bytes) noexcept override;

  const std::vector<int> cpus_;
  Pool pool_;
  CpuOps ops_;
};

}  // namespace canopy::cpu
