#include "src/cli/options/model_options.h"

#include <algorithm>
#include <charconv>
#include <iostream>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/engine/device_name.h"
#include "src/machine/cpus.h"

namespace canopy::cli {

namespace po = boost::program_options;

namespace {

DType parse_kv_type(const std::string& flag, const std::string& text) {
  const std::string name = lower_case(text);
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  throw UsageError(flag + ": '" + text + "' is not a KV cache type; choose f32, f16 or bf16");
}

/// Nothing: what the plan has for the device.
std::optional<DType> kv_type(const po::variables_map& values) {
  std::optional<DType> k, v;
  for (auto& [flag, type] : {std::pair("cache-type-k", &k), std::pair("cache-type-v", &v)})
    if (values.count(flag))
      *type = parse_kv_type("--" + std::string(flag), values[flag].as<std::string>());
  if (k && v && *k != *v)
    throw UsageError("--cache-type-k, --cache-type-v: both halves of the KV cache have one type");
  return k ? k : v;
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

std::uint64_t size_above_zero(const po::variables_map& values, const std::string& flag) {
  const std::uint64_t size = parse_size("--" + flag, values[flag].as<std::string>());
  if (size == 0) throw UsageError("--" + flag + ": must be more than 0");
  return size;
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

po::options_description model_flags() {
  po::options_description flags("Model and memory");
  flags.add_options()                                                               //
      ("model,m", po::value<std::string>()->value_name("PATH")->required(),         //
       kModelHelp)                                                                  //
      ("device", po::value<std::string>()->value_name("D")->default_value("auto"),  //
       "auto (a GPU, if there is one), cpu, cuda or cuda:N")                        //
      ("memory,host-memory", po::value<std::string>()->value_name("SIZE"),          //
       "bound on the whole process, e.g. 1G (default: 80% of the free memory); also --host-memory")(
          "gpu-memory", po::value<std::string>()->value_name("SIZE"),               //
          "bound on what is used of the GPU's memory (default: all that is free)")  //
      ("enforce-eager",                                                             //
       "launch the draft's kernels one by one, instead of a CUDA graph for each level of a tree; a "
       "--trace does that, too")                                                         //
      ("resident", po::value<std::string>()->value_name("SIZE")->default_value("auto"),  //
       "weights of the model that stay where they are computed with, in memory or on the GPU: "
       "auto, none, or a size; the rest of the budget is the ring that they stream through")  //
      ("n-gpu-layers", po::value<std::string>()->value_name("N"),                             //
       "-ngl: the same in layers: auto or a number")                                          //
      ("verify-weights",                                                                      //
       "stop if a layer is not, by its checksum, what it was when it was first read")         //
      ("kv-memory", po::value<std::string>()->value_name("SIZE"),
       "memory for keys and values, which texts share by their common beginnings (default: every "
       "text that shares a sweep can be as long as --ctx-size)")           //
      ("ctx-size,c", po::value<int>()->value_name("N"),                    //
       "context in tokens (default: as much as the request needs)")        //
      ("threads,t", po::value<int>()->value_name("N")->default_value(0),   //
       "compute threads, at most one per CPU (0: one per physical core)")  //
      ("cpu-list", po::value<std::string>()->value_name("LIST"),           //
       "CPUs to compute and read on, e.g. 0-3,8 or 0-31:2: a thread bound to each, one of each "
       "core first (default: any)")                                                              //
      ("cache-type-k", po::value<std::string>()->value_name("T"),                                //
       "-ctk: type of the KV cache, of V as of K: f32, f16, bf16 (default: f32; f16 on a GPU)")  //
      ("cache-type-v", po::value<std::string>()->value_name("T"),                                //
       "-ctv: the same")                                                                         //
      ("progress", "report progress on stderr even when it is not a terminal");
  return flags;
}

void choose_device(const po::variables_map& values, DeviceChoice& device,
                   const std::optional<Gpus>& gpus) {
  const std::string name = values["device"].as<std::string>();
  const auto chosen = device_named(name, gpus);
  if (!chosen) throw UsageError("--device: '" + name + "' is none of auto, cpu, cuda, cuda:N");
  device.kind = chosen->kind;
  device.ordinal = chosen->ordinal;
  for (const char* flag : {"gpu-memory", "enforce-eager"})
    if (values.count(flag) && device.kind == "cpu")
      throw UsageError("--" + std::string(flag) + ": no GPU is used; see canopy doctor");
  if (values.count("gpu-memory")) device.gpu_memory = size_above_zero(values, "gpu-memory");
}

int threads_of(const po::variables_map& values) {
  const int wanted = at_least(values, "threads", 0, 0);
  const auto cpus = static_cast<int>(allowed_cpus().size());
  if (wanted > cpus)
    std::cerr << "note: --threads " << wanted << ": this process may use " << cpus
              << (cpus == 1 ? " CPU" : " CPUs") << ", and takes as many threads\n";
  return std::min(wanted, cpus);
}

EngineOptions engine_options(const po::variables_map& values, const std::optional<Gpus>& gpus) {
  EngineOptions options;
  options.device.threads = threads_of(values);
  if (values.count("cpu-list")) {
    auto& cpus = options.device.cpus;
    cpus = parse_cpu_list("--cpu-list", values["cpu-list"].as<std::string>());
    if (options.device.threads > std::ssize(cpus))
      throw UsageError("--threads: " + std::to_string(options.device.threads) +
                       " are more than the CPUs of --cpu-list, " + std::to_string(cpus.size()));
  }
  choose_device(values, options.device, gpus);
  if (values.count("memory")) options.plan.memory = size_above_zero(values, "memory");
  if (values.count("kv-memory")) options.plan.kv_memory = size_above_zero(values, "kv-memory");
  if (values.count("n-gpu-layers")) {
    const std::string layers = values["n-gpu-layers"].as<std::string>();
    if (!values["resident"].defaulted())
      throw UsageError("--n-gpu-layers: says the same as --resident; give one of them");
    if (layers != "auto") options.plan.resident_layers = parse_count("--n-gpu-layers", layers);
  }
  if (const std::string resident = values["resident"].as<std::string>(); resident == "none")
    options.plan.resident = 0;
  else if (resident != "auto")
    options.plan.resident = parse_size("--resident", resident);
  options.graphs = values.count("enforce-eager") == 0;
  options.verify_weights = values.count("verify-weights") > 0;
  options.plan.context = at_least(values, "ctx-size", 1, 0);
  if (options.plan.context > kMostTokens)
    throw UsageError("--ctx-size: must be at most " + std::to_string(kMostTokens));
  options.plan.kv = kv_type(values);
  return options;
}

void print_notes(const Engine& engine) {
  for (const std::string& note : engine.notes()) std::cerr << "note: " << note << "\n";
  const ModelConfig& config = engine.models().target.config();
  if (!config.inflated_from.empty())
    std::cerr << "note: this model is inflated from " << config.inflated_from
              << ": the same function, with more bytes to read\n";
  const int context = engine.plan().slots - engine.plan().policy.shape.size();
  if (config.max_positions > 0 && context > config.max_positions)
    std::cerr << "note: a context of " << context << " tokens is beyond the "
              << config.max_positions << " that the model was made for\n";
}

}  // namespace canopy::cli
