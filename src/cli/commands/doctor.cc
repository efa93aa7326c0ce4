// canopy doctor: what this machine gives to a model that streams, and what stands in its way.
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>

#include "kernels/device.h"
#include "offload/io/input_files.h"
#include "offload/io/link_probe.h"
#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/base/size_text.h"
#include "src/checkpoint/checkpoint.h"
#include "src/cli/commands/commands.h"
#include "src/cli/commands/doctor_ranks.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/model/model_options.h"
#include "src/cli/output/findings.h"
#include "src/cli/output/table.h"
#include "src/cli/ranks.h"
#include "src/machine/advice.h"
#include "src/machine/cpus.h"
#include "src/machine/host_slab.h"
#include "src/machine/mount.h"
#include "src/machine/placement.h"
#include "src/machine/process_memory.h"
#include "src/measure/copies.h"
#include "src/measure/products.h"

namespace canopy::cli {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kUsage =
    "usage: canopy doctor [MODEL] [--json]\n\n"
    "Measures what this machine gives to a model that streams (a few seconds), says what stands "
    "in\n"
    "its way, and how to mend it. With MODEL the disk under it is measured too. Started by mpirun "
    "it\n"
    "does so on every machine, measures the network between them, and says where they differ.";

constexpr std::uint64_t kRegistered = 64u << 20;  // as a small ring

/// Throws Error where a probe would be killed for memory.
void require_free(std::uint64_t bytes) {
  const std::uint64_t free = system_memory().free();
  if (free < bytes)
    throw Error("this probe takes " + format_size(bytes) + " of memory and only " +
                format_size(free) + " is free: free some, or raise the limit of the memory cgroup");
}

/// A probe's findings, or one that says why it was not possible.
template <class Probe>
std::vector<Finding> attempt(const std::string& name, const Probe& probe) {
  try {
    return probe();
  } catch (const std::exception& e) {
    return {{name, "not measured", json(), e.what()}};
  }
}

Finding kernel() {
  utsname system{};
  uname(&system);
  int major = 0, minor = 0;
  std::sscanf(system.release, "%d.%d", &major, &minor);
  const bool old = major < 5 || (major == 5 && minor < 11);
  return {"kernel", system.release, system.release,
          old ? "use Linux 5.11 or later: io_uring is older or missing here" : ""};
}

/// Reports what the read engine says when it is opened for nothing.
std::vector<Finding> io_uring() {
  Notes notes;
  const auto engine = make_uring_engine({}, {}, {}, notes);
  return {{"io_uring", engine ? "works" : "refused", engine != nullptr,
           notes.empty() ? "" : notes.front()}};
}

/// Tries if a ring can be registered: the limit counts only for those without privilege.
std::vector<Finding> locked_memory() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  Finding found{"memlock limit", unlimited ? "unlimited" : format_size(limit.rlim_cur),
                unlimited ? json() : json(limit.rlim_cur), ""};
  require_free(kRegistered);
  const HostSlab slab(kRegistered);
  const std::array slabs{slab.bytes()};
  Notes notes;
  if (!make_uring_engine({}, slabs, {}, notes)) {
    found.text += "; without io_uring it does not matter";
    return {found};
  }
  found.text +=
      "; registering " + format_size(kRegistered) + (notes.empty() ? " works" : " is refused");
  if (!notes.empty()) found.fix = notes.front();
  return {found};
}

/// Strict accounting refuses memory that is free.
std::string overcommit_fix(const SystemMemory& memory) {
  if (memory.promised >= memory.available) return "";
  return "the kernel promises only " + format_size(memory.promised) +
         " more; as root: sysctl vm.overcommit_memory=0";
}

std::uint64_t bytes_of(const Checkpoint& model) {
  std::uint64_t bytes = 0;
  for (const auto& file : model.files()) bytes += fs::file_size(file);
  return bytes;
}

/// A cgroup is in the way of a model that it, and not the machine, keeps out of memory.
std::vector<Finding> memory(const Checkpoint* model) {
  const SystemMemory memory = system_memory();
  std::vector<Finding> findings{
      {"memory",
       format_size(memory.available) + " free of " + format_size(memory.total),
       {{"total", memory.total}, {"available", memory.available}},
       overcommit_fix(memory)}};
  for (const CgroupMemory& group : memory.cgroups) {
    const std::uint64_t left = group.limit - std::min(group.limit, group.used);
    const bool in_the_way = model && left < std::min(bytes_of(*model), memory.available);
    findings.push_back(
        {"memory cgroup",
         format_size(group.used) + " used of " + format_size(group.limit) + ", " + group.path,
         {{"path", group.path}, {"limit", group.limit}, {"used", group.used}},
         in_the_way ? "more of the model could rest in memory without this limit; as root: " +
                          group.lift + "; of a container: docker run --memory=SIZE"
                    : ""});
  }
  return findings;
}

/// Nodes, and whether memory can be placed on one where there are several.
std::vector<Finding> numa() {
  const Topology topology;
  const std::vector<int> nodes = topology.nodes();
  std::string fix;
  if (nodes.size() > 1) {
    const HostSlab probe(1);
    if (const auto refusal = topology.prefer(nodes.front(), probe.bytes()))
      fix = "memory cannot be placed on a node: " + *refusal;
  }
  return {{"NUMA nodes", std::to_string(nodes.size()), nodes.size(), fix}};
}

std::vector<Finding> processor() {
  require_free(kProductBytes);
  const ProductRates rates =
      measure_products(choose_placement(Topology(), 0, {}, {}, cpu_quota()).threads);
  return {{"CPU", rates.device, rates.device, ""},
          {"RAM, read", gigabytes_per_second(rates.bytes_per_second), rates.bytes_per_second, ""},
          {"products", fixed(rates.flops / 1e9, 0) + " GFLOP/s, 64 rows by BF16", rates.flops, ""}};
}

/// Reads what the kernel knows of a GPU's place: "16.0 GT/s PCIe", lanes, NUMA node; "" where it
/// does not.
std::string pci_attribute(const Gpu& gpu, const std::string& name) {
  std::ifstream in("/sys/bus/pci/devices/" + gpu.pci_address + "/" + name);
  std::string value;
  std::getline(in, value);
  return value;
}

std::vector<Finding> copies(const std::string& gpu, int ordinal) {
  const auto device = make_device({.kind = "cuda", .ordinal = ordinal});
  const std::size_t free = device->free_bytes();
  const CopyRates rates = measure_copies(*device);
  return {{gpu + ", free", format_size(free), free, ""},
          {gpu + ", copies",
           gigabytes_per_second(rates.up) + " to it, " + gigabytes_per_second(rates.down) +
               " from it; pageable " + gigabytes_per_second(rates.pageable_up) + " and " +
               gigabytes_per_second(rates.pageable_down),
           {{"to", rates.up},
            {"from", rates.down},
            {"pageable_to", rates.pageable_up},
            {"pageable_from", rates.pageable_down}},
           rates.refused}};
}

std::vector<Finding> gpus() {
  const Gpus found = find_gpus();
  std::vector<Finding> findings;
  if (!found.versions.empty()) findings.push_back({"CUDA", found.versions, found.versions, ""});
  if (found.all.empty())
    findings.push_back({"GPU", "none (" + found.why_none + "); all is computed on the CPU", json(),
                        found.refused ? found.why_none : ""});
  for (const Gpu& gpu : found.all) {
    const std::string name = "GPU " + std::to_string(gpu.ordinal);
    const std::string speed = pci_attribute(gpu, "current_link_speed");
    const std::string lanes = pci_attribute(gpu, "current_link_width");
    const std::string node = pci_attribute(gpu, "numa_node");
    findings.push_back({name,
                        gpu.name + ", " + format_size(gpu.memory),
                        {{"name", gpu.name}, {"memory", gpu.memory}},
                        ""});
    findings.push_back({name + ", PCIe",
                        speed.empty() ? "unknown" : speed + ", " + lanes + " lanes",
                        {{"speed", speed}, {"lanes", lanes}},
                        ""});
    findings.push_back({name + ", NUMA node", node.empty() || node == "-1" ? "unknown" : node,
                        node.empty() || node == "-1" ? json() : json(std::stoi(node)), ""});
    const auto measured = attempt(name + ", copies", [&] { return copies(name, gpu.ordinal); });
    findings.insert(findings.end(), measured.begin(), measured.end());
  }
  return findings;
}

Finding direct_reads(const Checkpoint& model) {
  for (const fs::path& file : model.files())
    if (const std::string why = why_not_direct(file); !why.empty())
      return {"O_DIRECT", "refused: " + why, false, file.string() + ": " + direct_advice(file)};
  return {"O_DIRECT", "works", true, ""};
}

/// Into memory that no cache holds, as a large ring's; and, if that differs, into what stays in the
/// caches. What the notes would say here, io_uring() and direct_reads() have said.
std::vector<Finding> disk(const fs::path& file) {
  constexpr std::size_t kSmall = 16u << 20;
  constexpr double kDiffers = 0.05;
  const std::size_t beyond_caches = 4 * Topology().last_level_cache();
  const HostSlab memory(std::max<std::size_t>(
      kSmall, std::min<std::size_t>(beyond_caches, system_memory().free() / 4) / kReadAlignment *
                  kReadAlignment));
  Notes notes;
  LinkProbe probe(file, memory.bytes(), true, true);
  const LinkSample link = probe.best(5, Seconds(0.8), notes);
  if (link.bytes == 0) return {{"disk, read", "not measured: the model is too small", json(), ""}};
  const LinkSample cached = LinkProbe(file, memory.bytes().first(kSmall), true, true)
                                .run({link.read_bytes, link.queue_depth}, Seconds(0.8), notes);
  const double rate = link.bytes_per_second(), of_caches = cached.bytes_per_second();
  std::string text = gigabytes_per_second(rate) + ", " + std::to_string(link.queue_depth) +
                     " reads of " + format_size(link.read_bytes) + " in flight, into " +
                     format_size(memory.size());
  if (std::abs(of_caches / rate - 1) > kDiffers)
    text += " (" + gigabytes_per_second(of_caches) + " into " + format_size(kSmall) +
            ", which stay in the CPU's caches)";
  if (!notes.empty()) text += ", by the path that is left";
  return {{"disk, read",
           text,
           {{"bytes_per_second", rate},
            {"memory_bytes", memory.size()},
            {"cached_bytes_per_second", of_caches},
            {"read_bytes", link.read_bytes},
            {"queue_depth", link.queue_depth}},
           ""}};
}

std::vector<Finding> link(const Checkpoint& model) {
  const fs::path file = largest_file(model.files());
  const Mount mount = mount_of(file);
  const std::optional<int> node = node_of_disk(file);
  return {{"filesystem",
           mount.type + " on " + mount.device,
           {{"type", mount.type}, {"device", mount.device}},
           ""},
          {"disk, NUMA node", node ? std::to_string(*node) : "unknown", node ? json(*node) : json(),
           ""},
          direct_reads(model),
          model.shard() ? Finding{"disk, read", "not measured: the files have holes", json(), ""}
                        : attempt("disk, read", [&] { return disk(file); }).front()};
}

/// Measures this machine, and the disk under a model. Of several ranks all measure at once.
std::vector<Finding> examine(const Checkpoint* model, Cluster* cluster) {
  std::vector<Finding> findings{kernel()};
  const auto add = [&](std::vector<Finding> more) {
    std::move(more.begin(), more.end(), std::back_inserter(findings));
  };
  add(attempt("io_uring", io_uring));
  add(attempt("memlock limit", locked_memory));
  add(attempt("memory", [&] { return memory(model); }));
  add(attempt("NUMA nodes", numa));
  add(attempt("CPU", processor));
  add(attempt("GPU", gpus));
  if (cluster) cluster->collect({});  // disks that are one disk are read by all of its ranks
  if (model) add(attempt("disk", [&] { return link(*model); }));
  return findings;
}

struct Options {
  std::optional<std::string> path;
  bool as_object = false, allow_holes = false;
};

int examine(const Options& asked, Cluster* cluster, const std::stop_token& stop) {
  std::optional<Checkpoint> model;  // a wrong path is reported before the seconds of measuring
  if (asked.path) {
    const bool shards = cluster && !asked.allow_holes;
    model = Checkpoint::open(cluster ? local_model(*asked.path, stop) : local_model(*asked.path),
                             shards ? Holes::kOfShard : holes_by(asked.allow_holes));
    print_notes(*model);
  }
  if (cluster) cluster->collect({});  // nobody measures if a path is wrong
  const std::vector<Finding> findings = examine(model ? &*model : nullptr, cluster);
  if (cluster)
    compare_ranks(*cluster, model ? &*model : nullptr, findings, asked.as_object);
  else if (asked.as_object)
    std::cout << json_text(json{{"findings", findings_json(findings)}}, 2) << "\n";
  else
    print_findings(findings);
  return 0;
}

}  // namespace

int run_doctor(const std::vector<std::string>& words) {
  Options asked;
  const RankOptions ranks;
  const auto parse_words = [&](GivenFlags& given) {
    Flags flags;
    add_model_flag(flags, asked.path);
    flags.add_options()                                             //
        ("allow-holes", cli::given(asked.allow_holes), kHolesHelp)  //
        ("json", cli::given(asked.as_object),
         "print one JSON object; bytes, bytes or operations per second");
    return parse(words, kUsage, flags, given);
  };
  return run_on_each(
      {"canopy doctor", ranks, parse_words, [&](Cluster* cluster, const std::stop_token& stop) {
         return examine(asked, cluster, stop);
       }});
}

}  // namespace canopy::cli
