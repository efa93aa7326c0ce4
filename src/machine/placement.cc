#include "src/machine/placement.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "src/base/error.h"
#include "src/machine/host_slab.h"

namespace canopy {

namespace {

namespace fs = std::filesystem;

/// The devices that a device of sysfs is put together from: an array's or a mapping's are in its
/// folder `slaves`; a multipath NVMe disk lies under a subsystem that links to its controllers.
std::vector<fs::path> parts_of(const fs::path& device) {
  const bool subsystem = device.filename().string().starts_with("nvme-subsys");
  std::vector<fs::path> parts;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(subsystem ? device : device / "slaves", none))
    if (entry.is_symlink() && (!subsystem || entry.path().filename().string().starts_with("nvme")))
      parts.push_back(fs::canonical(entry.path()));
  return parts;
}

/// Upwards from a device to the first that has a node, or to one put together from others.
std::optional<int> node_of_device(fs::path device, const fs::path& sys) {
  for (; device != sys && device.has_relative_path(); device = device.parent_path()) {
    if (int node = -1; std::ifstream(device / "numa_node") >> node)
      return node >= 0 ? std::optional(node) : std::nullopt;
    const std::vector<fs::path> parts = parts_of(device);
    if (parts.empty()) continue;
    const std::optional<int> node = node_of_device(parts.front(), sys);
    const bool alike = std::all_of(parts.begin() + 1, parts.end(), [&](const fs::path& part) {
      return node_of_device(part, sys) == node;
    });
    return alike ? node : std::nullopt;
  }
  return std::nullopt;
}

std::string text(const std::vector<int>& numbers) {
  std::string out;
  for (const int n : numbers) out += (out.empty() ? "" : ", ") + std::to_string(n);
  return out;
}

/// Puts ring and reader on the device's node where there is a choice and the kernel lets us.
void choose_node(Placement& p, const Topology& topology, std::optional<int> device_node,
                 const std::string& device) {
  const std::vector<int> nodes = topology.nodes();
  if (nodes.size() < 2) {
    p.note = "one NUMA node: memory is not bound";
    return;
  }
  p.note = "NUMA nodes " + text(nodes) + ", ";
  if (!device_node) {
    p.note += "but which is nearest to the " + device + " is unknown: memory is not bound";
    return;
  }
  const std::string node = std::to_string(*device_node);
  if (std::find(nodes.begin(), nodes.end(), *device_node) == nodes.end()) {
    p.note +=
        "but this process may not use the " + device + "'s, " + node + ": memory is not bound";
    return;
  }
  const HostSlab probe(1);
  if (const auto refusal = topology.prefer(*device_node, probe.bytes())) {
    p.refused = true;
    p.note += "but the ring cannot be placed on the " + device + "'s, " + node + ": " + *refusal;
    return;
  }
  p.numa_node = device_node;
  std::vector<int> near = topology.cpus_near(*device_node);
  if (!p.reader_cpus.empty())
    std::erase_if(near, [&](int cpu) {
      return std::find(p.reader_cpus.begin(), p.reader_cpus.end(), cpu) == p.reader_cpus.end();
    });
  if (!near.empty()) p.reader_cpus = near;
  p.note +=
      "the ring is on the " + device + "'s, " + node +
      (near.empty() ? "; none of its CPUs may be used by the reader" : ", and so is the reader");
}

}  // namespace

std::optional<int> node_of_disk(const fs::path& file, const fs::path& sys) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0)
    throw Error("cannot find " + file.string() + ": " + std::strerror(errno));
  std::error_code none;
  const fs::path device = fs::canonical(
      sys / "dev" / "block" /
          (std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev))),
      none);
  if (none) return std::nullopt;
  return node_of_device(device, fs::canonical(sys));
}

std::optional<int> node_of_pci(const std::string& address, const fs::path& sys) {
  int node = -1;
  std::ifstream(sys / "bus" / "pci" / "devices" / address / "numa_node") >> node;
  return node >= 0 ? std::optional(node) : std::nullopt;
}

Placement choose_placement(const Topology& topology, int threads, const std::vector<int>& cpus,
                           std::optional<int> node, std::optional<double> quota,
                           const char* device) {
  Placement p;
  const std::vector<int> cores = topology.one_per_core(cpus.empty() ? topology.cpus() : cpus);
  const auto most = static_cast<double>(cores.size());
  const int granted = std::max(1, static_cast<int>(std::min(quota.value_or(most), most)));
  p.threads = threads > 0 ? threads : granted;
  if (!cpus.empty()) {
    p.cpus = cores;
    for (const int cpu : cpus)
      if (std::find(p.cpus.begin(), p.cpus.end(), cpu) == p.cpus.end()) p.cpus.push_back(cpu);
    if (static_cast<std::size_t>(p.threads) > p.cpus.size())
      throw Error(std::to_string(threads) + " threads cannot be bound one to each of " +
                  std::to_string(p.cpus.size()) + " CPUs");
    p.cpus.resize(static_cast<std::size_t>(p.threads));
    p.reader_cpus = cpus;
  }
  choose_node(p, topology, node, device);
  if (threads == 0 && granted < std::ssize(cores))
    p.note += "; a cgroup grants less time than " + std::to_string(cores.size()) +
              " cores have: threads as it grants";
  return p;
}

}  // namespace canopy
