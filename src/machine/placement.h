#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/machine/topology.h"

namespace canopy {

/// The NUMA node nearest to the disk under a file: the node of the first device above it that has
/// one, below a partition, device mapper, RAID or NVMe multipath. Nothing where the kernel does not
/// say, where the disks of an array differ, and on file systems that are no single block device
/// (overlay, btrfs, tmpfs, network). `sys` is where sysfs is mounted.
/// Throws Error if the file cannot be found.
std::optional<int> node_of_disk(const std::filesystem::path& file,
                                const std::filesystem::path& sys = "/sys");

/// The same of a PCI device, a GPU's: "0000:3b:00.0".
std::optional<int> node_of_pci(const std::string& address,
                               const std::filesystem::path& sys = "/sys");

/// The CPUs of an engine's threads and the node of its ring. Plain data: print it, compare it.
struct Placement {
  int threads = 0;               // that compute
  std::vector<int> cpus;         // thread i is bound to cpus[i]; empty: unbound
  std::vector<int> reader_cpus;  // the reader may run on these; empty: on any
  std::optional<int> numa_node;  // of the ring, and on a GPU's host of the weights that stay next
                                 // to it; nothing: the kernel's choice
  std::string note;              // why so, for the user
  bool refused = false;          // the ring belongs on a node, but the kernel will not place it
};

/// `threads` 0: one per physical core, but no more than `quota`, the CPUs' worth of time that the
/// process is granted: what waits in turn for the others would spend it. `cpus`, if any, are all
/// that may be used; they are taken one of each core first. On several nodes the ring goes to
/// `node`, the `device`'s, and so does the reader. Throws Error if there are fewer CPUs than
/// threads in `cpus`.
Placement choose_placement(const Topology& topology, int threads, const std::vector<int>& cpus,
                           std::optional<int> node, std::optional<double> quota = {},
                           const char* device = "disk");

}  // namespace canopy
