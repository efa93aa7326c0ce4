#include "src/machine/topology.h"

#include <hwloc.h>

#include <cerrno>
#include <cstring>

#include "src/base/error.h"

namespace canopy {

namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t set) const noexcept { hwloc_bitmap_free(set); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

Bitmap make_bitmap() {
  Bitmap set(hwloc_bitmap_alloc());
  if (!set) throw Error("no memory for a set of CPUs");
  return set;
}

std::vector<int> indices(hwloc_const_bitmap_t set) {
  std::vector<int> all;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) all.push_back(i);
  return all;
}

/// Returns the CPUs that the cgroup, which hwloc heeds itself, and the calling thread's own
/// affinity allow.
Bitmap usable_cpus(hwloc_topology_t topology) {
  Bitmap set = make_bitmap();
  if (hwloc_get_cpubind(topology, set.get(), HWLOC_CPUBIND_THREAD) != 0)
    hwloc_bitmap_fill(set.get());
  hwloc_bitmap_and(set.get(), set.get(), hwloc_topology_get_topology_cpuset(topology));
  return set;
}

hwloc_topology_t load(const char* synthetic) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) throw Error("hwloc cannot be initialised");
  const bool loaded =
      (synthetic == nullptr || hwloc_topology_set_synthetic(topology, synthetic) == 0) &&
      hwloc_topology_load(topology) == 0;
  if (loaded) return topology;
  hwloc_topology_destroy(topology);
  throw Error(std::string("hwloc cannot read the topology of ") +
              (synthetic ? synthetic : "this machine"));
}

}  // namespace

void Topology::Destroy::operator()(hwloc_topology* topology) const noexcept {
  hwloc_topology_destroy(topology);
}

std::size_t Topology::last_level_cache() const {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    std::size_t bytes = 0;
    for (hwloc_obj_t cache = nullptr;
         (cache = hwloc_get_next_obj_by_type(topology_.get(), type, cache)) != nullptr;)
      bytes += cache->attr->cache.size;
    if (bytes > 0) return bytes;
  }
  return 0;
}

Topology::Topology() : topology_(load(nullptr)) {}
Topology::Topology(const std::string& synthetic) : topology_(load(synthetic.c_str())) {}

std::vector<int> Topology::cpus() const { return indices(usable_cpus(topology_.get()).get()); }

std::vector<int> Topology::nodes() const {
  return indices(hwloc_topology_get_topology_nodeset(topology_.get()));
}

std::vector<int> Topology::cpus_near(int node) const {
  const hwloc_obj_t object =
      hwloc_get_numanode_obj_by_os_index(topology_.get(), static_cast<unsigned>(node));
  if (object == nullptr) return {};
  const Bitmap set = usable_cpus(topology_.get());
  hwloc_bitmap_and(set.get(), set.get(), object->cpuset);
  return indices(set.get());
}

std::vector<int> Topology::one_per_core(std::span<const int> cpus) const {
  std::vector<int> first;
  const Bitmap seen = make_bitmap();
  for (const int cpu : cpus) {
    const auto index = static_cast<unsigned>(cpu);
    if (hwloc_bitmap_isset(seen.get(), index)) continue;
    first.push_back(cpu);
    hwloc_bitmap_set(seen.get(), index);
    const hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology_.get(), index);
    const hwloc_obj_t core =
        pu ? hwloc_get_ancestor_obj_by_type(topology_.get(), HWLOC_OBJ_CORE, pu) : nullptr;
    if (core) hwloc_bitmap_or(seen.get(), seen.get(), core->cpuset);
  }
  return first;
}

std::optional<std::string> Topology::prefer(int node, std::span<std::byte> pages) const {
  // hwloc only pretends to bind what is not this machine.
  if (!hwloc_topology_is_thissystem(topology_.get())) return "the topology is not this machine's";
  const Bitmap set = make_bitmap();
  hwloc_bitmap_only(set.get(), static_cast<unsigned>(node));
  // Without HWLOC_MEMBIND_STRICT a binding is a preference.
  if (hwloc_set_area_membind(topology_.get(), pages.data(), pages.size(), set.get(),
                             HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0)
    return std::nullopt;
  std::string why = std::strerror(errno);
  if (errno == EPERM)
    why += ": a container's seccomp filter stops mbind; docker run --cap-add SYS_NICE lets it pass";
  return why;
}

}  // namespace canopy
