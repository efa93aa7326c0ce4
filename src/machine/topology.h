#pragma once
// Room src/machine: the computer: CPUs, caches and NUMA nodes, cgroups, mounts, energy counters,
// memory of the process, pages for large buffers.
// In: what Linux reports. Out: plain data, and advice in words for the user.
// Must not know: models, plans, kernels.
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

struct hwloc_topology;

namespace canopy {

/// The CPUs, physical cores and NUMA nodes that this process may use, named by the kernel's
/// numbers. Read once; any thread.
class Topology {
 public:
  /// This machine, or what the environment gives hwloc in its place (HWLOC_SYNTHETIC,
  /// HWLOC_XMLFILE). Throws Error if hwloc cannot read it.
  Topology();
  /// A machine in hwloc's words, "node:2 core:4 pu:2". Memory cannot be placed on it.
  explicit Topology(const std::string& synthetic);

  std::vector<int> cpus() const;               // ascending
  std::vector<int> nodes() const;              // ascending; at least one
  std::vector<int> cpus_near(int node) const;  // ascending; maybe none
  /// The first of each physical core, in the order given. A CPU that is not there is its own core.
  std::vector<int> one_per_core(std::span<const int> cpus) const;

  /// Bytes of the last level of caches, all of them together; 0 where the machine does not report
  /// them.
  std::size_t last_level_cache() const;

  /// Asks that pages not touched so far come from that node while it has room, and from the others
  /// then. Returns why not if that is refused; nothing where it is granted.
  [[nodiscard]] std::optional<std::string> prefer(int node, std::span<std::byte> pages) const;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const noexcept;
  };
  std::unique_ptr<hwloc_topology, Destroy> topology_;
};

/// A place for memory: a node of a topology, or, without one, the kernel's choice.
struct MemoryNode {
  const Topology* topology = nullptr;
  int node = 0;
};

}  // namespace canopy
