#include "src/cli/options/model/model_options.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>

#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/cli/options/foreign_flag.h"
#include "src/cli/options/length_options.h"
#include "src/cli/options/model/hub_model.h"
#include "src/cli/options/values.h"
#include "src/cli/output/aside.h"
#include "src/cluster/mpi_transport.h"
#include "src/engine/device_name.h"
#include "src/hub/cache.h"
#include "src/machine/cpus.h"
#include "src/machine/process_memory.h"

namespace canopy::cli {

namespace {

DType parse_kv_type(const std::string& flag, const std::string& text) {
  const std::string name = lower_case(text);
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  throw UsageError(flag + ": '" + text + "' is not a KV cache type; choose f32, f16 or bf16");
}

/// "0-3,8,16-31:2" as taskset takes it: CPUs, ranges, ranges with a stride; each CPU once, in the
/// order given.
std::vector<int> parse_cpu_list(const std::string& flag, const std::string& text) {
  const UsageError malformed(flag + ": '" + text +
                             "' is not a list of CPUs; write e.g. 0-3,8 or 0-31:2");
  const std::vector<int> allowed = allowed_cpus();
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](const char* from) {
    int value = 0;
    const auto [next, error] = std::from_chars(from, end, value);
    if (error != std::errc() || value < 0) throw malformed;
    at = next;
    return value;
  };
  while (true) {
    const int first = number(at);
    const int last = at != end && *at == '-' ? number(at + 1) : first;
    const int stride = at != end && *at == ':' ? number(at + 1) : 1;
    if (last < first || stride == 0) throw malformed;
    for (std::int64_t cpu = first; cpu <= last; cpu += stride) {
      const int here = static_cast<int>(cpu);
      if (!std::binary_search(allowed.begin(), allowed.end(), here))
        throw UsageError(flag + ": this process may not use CPU " + std::to_string(here));
      if (std::find(cpus.begin(), cpus.end(), here) == cpus.end()) cpus.push_back(here);
    }
    if (at == end) return cpus;
    if (*at != ',') throw malformed;
    ++at;
  }
}

int parse_count(const std::string& flag, const std::string& text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || next != end || value < 0)
    throw UsageError(flag + ": '" + text + "' is not a whole number of 0 or more");
  return value;
}

}  // namespace

Flags ModelOptions::flags() {
  const std::string kv_help =
      "memory for keys and values, which texts share by their common beginnings (default: " +
      default_kv_memory + ")";
  const std::string context_help = "context in tokens (default: " + default_context + ")";
  Flags flags("Model and memory");
  add_model_flag(flags, model);
  flags.add_options()                                         //
      ("device", into(device.device, "D"),                    //
       "auto (a GPU, if there is one), cpu, cuda or cuda:N")  //
      ("memory,host-memory", into(memory, "SIZE", "--memory", parse_budget_above_zero),
       "bound on the whole process, e.g. 1G (default: 80% of the free memory); also --host-memory")(
          "gpu-memory", into(device.gpu_memory, "SIZE", "--gpu-memory", parse_budget_above_zero),
          "bound on what is used of the GPU's memory (default: all that is free)")  //
      ("enforce-eager", given(device.enforce_eager),
       "launch the draft's kernels one by one, instead of a CUDA graph for each level of a tree; a "
       "--trace does that, too")                    //
      ("resident", into(resident, "SIZE (=auto)"),  //
       "weights of the model that stay where they are computed with, in memory or on the GPU: "
       "auto, none, or a size; the rest of the budget is the ring that they stream through")  //
      ("n-gpu-layers", into(n_gpu_layers, "N"),                                               //
       "-ngl: the same in layers, on a GPU: auto or a number; without a GPU a note says so")  //
      ("verify-weights", given(verify_weights),                                               //
       "stop if a layer is not, by its checksum, what it was when it was first read")         //
      ("allow-holes", given(allow_holes), kHolesHelp)                                         //
      ("kv-memory", into(kv_memory, "SIZE", "--kv-memory", parse_budget_above_zero),
       kv_help.c_str())                                                    //
      ("ctx-size,c", into(context, "N", tokens_from(1, "--ctx-size")),     //
       context_help.c_str())                                               //
      ("threads,t", into(threads, "N", at_least("--threads", 0)),          //
       "compute threads, at most one per CPU (0: one per physical core)")  //
      ("cpu-list", into(cpus, "LIST", "--cpu-list", parse_cpu_list),       //
       "CPUs to compute and read on, e.g. 0-3,8 or 0-31:2: a thread bound to each, one of each "
       "core first (default: any)")                                                              //
      ("cache-type-k", into(cache_type_k, "T", "--cache-type-k", parse_kv_type),                 //
       "-ctk: type of the KV cache, of V as of K: f32, f16, bf16 (default: f32; f16 on a GPU)")  //
      ("cache-type-v", into(cache_type_v, "T", "--cache-type-v", parse_kv_type),                 //
       "-ctv: the same")                                                                         //
      ("progress", given(progress), kProgressHelp);
  add_foreign_model_flags(flags);
  return flags;
}

Holes ModelOptions::holes() const {
  if (!allow_holes && launched_by_mpi().ranks > 1) return Holes::kOfShard;
  return holes_by(allow_holes);
}

DeviceChoice DeviceOptions::choose(const std::optional<Gpus>& gpus) const {
  std::optional<DeviceChoice> chosen = device_named(device, gpus);
  if (!chosen) throw UsageError("--device: '" + device + "' is none of auto, cpu, cuda, cuda:N");
  if (chosen->kind == "cpu" && (gpu_memory || enforce_eager))
    throw UsageError(std::string(gpu_memory ? "--gpu-memory" : "--enforce-eager") +
                     ": no GPU is used; see canopy doctor");
  if (gpu_memory) chosen->gpu_memory = *gpu_memory;
  return *chosen;
}

int usable_threads(int wanted) {
  const auto cpus = static_cast<int>(allowed_cpus().size());
  if (wanted > cpus)
    aside() << "note: --threads " << wanted << ": this process may use " << cpus
            << (cpus == 1 ? " CPU" : " CPUs") << ", and takes as many threads\n";
  return std::min(wanted, cpus);
}

void note_beyond_machine(std::uint64_t memory) {
  const SystemMemory system = system_memory();
  std::uint64_t least = system.total;
  std::string whose = "this machine";
  for (const CgroupMemory& group : system.cgroups)
    if (group.limit < least) {
      least = group.limit;
      whose = "the memory cgroup " + group.path;
    }
  if (memory > least)
    aside() << "note: --memory " << format_size(memory) << ": " << whose << " has "
            << format_size(least) << "\n";
}

EngineOptions ModelOptions::engine_options(const std::optional<Gpus>& gpus) const {
  EngineOptions options;
  const int usable = usable_threads(threads);
  if (cpus && usable > std::ssize(*cpus))
    throw UsageError("--threads: " + std::to_string(usable) +
                     " are more than the CPUs of --cpu-list, " + std::to_string(cpus->size()));
  options.device = device.choose(gpus);
  options.device.threads = usable;
  if (cpus) options.device.cpus = *cpus;
  if (n_gpu_layers && resident)
    throw UsageError("--n-gpu-layers: says the same as --resident; give one of them");
  PlanRequest& plan = options.plan;
  plan.memory = memory.value_or(0);
  if (!gpus) note_beyond_machine(plan.memory);
  plan.kv_memory = kv_memory;
  if (n_gpu_layers && *n_gpu_layers != "auto") {
    const int layers = parse_count("--n-gpu-layers", *n_gpu_layers);
    if (options.device.kind == "cuda")
      plan.resident_layers = layers;
    else if (layers > 0)
      aside() << "note: --n-gpu-layers " << layers
              << ": no GPU is used (see canopy doctor); --memory and --resident say what stays "
                 "in memory\n";
  }
  if (resident && *resident != "auto")
    plan.resident = *resident == "none" ? 0 : parse_budget("--resident", *resident);
  options.graphs = !device.enforce_eager;
  options.verify_weights = verify_weights;
  plan.context = context.value_or(0);
  if (cache_type_k && cache_type_v && *cache_type_k != *cache_type_v)
    throw UsageError("--cache-type-k, --cache-type-v: both halves of the KV cache have one type");
  plan.kv = cache_type_k ? cache_type_k : cache_type_v;
  return options;
}

void print_notes(const Engine& engine) {
  for (const std::string& note : engine.notes()) aside() << "note: " << note << "\n";
  const ModelConfig& config = engine.models().target.config();
  if (!config.inflated_from.empty())
    aside() << "note: this model is inflated from " << config.inflated_from
            << ": the same function, with more bytes to read\n";
  const int context = engine.plan().context;
  if (config.max_positions > 0 && context > config.max_positions)
    aside() << "note: a context of " << context << " tokens is beyond the " << config.max_positions
            << " that the model was made for\n";
}

void print_notes(const Checkpoint& model) {
  for (const std::string& note : model.config().notes)
    aside() << "note: " << model.root().string() << ": " << note << "\n";
}

void print_notes(const DeviceChoice& device) {
  if (!device.note.empty()) aside() << "note: " << device.note << "\n";
}

void ModelOptions::require_room_to_encode(std::string_view text, const std::string& what) const {
  // While its pieces are cut and merged, prose takes 25 times its size, digits that are pieces each
  // 77 times. Where all of it is one piece, a character has 28 bytes, thrice while lists grow.
  constexpr std::uint64_t kWhileEncoding = 100;
  // A short text fits into what each plan sets aside: the plan says then what else is too much.
  constexpr std::uint64_t kSetAside = 16u << 20;
  const std::uint64_t encoding = kWhileEncoding * text.size();
  if (encoding <= kSetAside) return;
  const std::uint64_t needed = resident_memory() + encoding;
  const std::uint64_t budget = memory.value_or(safe_memory());
  if (needed > budget)
    throw Error(what + " has " + format_size(text.size()) +
                ", and turning it into tokens can take " + format_size(needed) +
                " in all, more than " +
                (memory ? "--memory: give at least that, or a shorter text"
                        : "the " + format_size(budget) +
                              " that may be used here: give a shorter text, or --memory"));
}

std::string model_name(const Checkpoint& model) {
  if (std::filesystem::is_directory(model.root()))
    if (std::string name = hub::name_in_cache(model.root()); !name.empty()) return name;
  const std::filesystem::path path = std::filesystem::absolute(model.root()).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace canopy::cli
