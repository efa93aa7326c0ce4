#include "src/machine/energy.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace fs = std::filesystem;

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::chrono::seconds kLongAgo{10};

/// A file's one number; or nothing, and why.
std::optional<std::uint64_t> read_number(const fs::path& file, std::string& why) {
  errno = 0;
  std::ifstream in(file);
  std::uint64_t number = 0;
  if (in >> number) return number;
  why = file.string() + ": " + (errno != 0 ? std::strerror(errno) : "holds no number");
  if (errno == EACCES) why += "; root may read it";
  return std::nullopt;
}

std::string read_word(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

/// The functions of NVML that are called here, by their documented signatures; 0 is success. That
/// one fails is no error of the program's: each call leaves its reason in `why`.
class Nvml {
 public:
  static std::shared_ptr<const Nvml> open(const std::string& name, std::string& why) {
    auto nvml = std::make_shared<Nvml>();
    nvml->library_.reset(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (!nvml->library_) {
      why = dlerror();
      return nullptr;
    }
    const bool whole = nvml->load(nvml->init_, "nvmlInit_v2", why) &&
                       nvml->load(nvml->shutdown_, "nvmlShutdown", why) &&
                       nvml->load(nvml->error_string_, "nvmlErrorString", why) &&
                       nvml->load(nvml->device_count_, "nvmlDeviceGetCount_v2", why) &&
                       nvml->load(nvml->device_, "nvmlDeviceGetHandleByIndex_v2", why) &&
                       nvml->load(nvml->name_, "nvmlDeviceGetName", why) &&
                       nvml->load(nvml->energy_, "nvmlDeviceGetTotalEnergyConsumption", why);
    nvml->running_ = whole && nvml->succeeded(nvml->init_(), why);
    return nvml->running_ ? nvml : nullptr;
  }
  Nvml() = default;
  ~Nvml() {
    if (running_) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  unsigned devices(std::string& why) const {
    unsigned count = 0;
    return succeeded(device_count_(&count), why) ? count : 0;
  }
  /// Its handle and name.
  std::optional<std::pair<void*, std::string>> device(unsigned index, std::string& why) const {
    void* device = nullptr;
    std::array<char, 96> name{};  // NVML_DEVICE_NAME_V2_BUFFER_SIZE
    const bool found =
        succeeded(device_(index, &device), why) && succeeded(name_(device, name.data(), 96), why);
    return found ? std::optional(std::pair(device, std::string(name.data()))) : std::nullopt;
  }
  std::optional<std::uint64_t> millijoules(void* device, std::string& why) const {
    unsigned long long energy = 0;
    return succeeded(energy_(device, &energy), why) ? std::optional<std::uint64_t>(energy)
                                                    : std::nullopt;
  }

 private:
  template <class Function>
  bool load(Function& function, const char* name, std::string& why) const {
    function = reinterpret_cast<Function>(dlsym(library_.get(), name));
    if (function == nullptr) why = std::string("the library has no ") + name;
    return function != nullptr;
  }
  bool succeeded(int result, std::string& why) const {
    if (result != 0) why = error_string_(result);
    return result == 0;
  }

  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  std::unique_ptr<void, Close> library_;
  bool running_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  const char* (*error_string_)(int) = nullptr;
  int (*device_count_)(unsigned*) = nullptr;
  int (*device_)(unsigned, void**) = nullptr;
  int (*name_)(void*, char*, unsigned) = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
};

}  // namespace

Joules operator-(const Joules& later, const Joules& earlier) {
  require(later.size() == earlier.size(), "energy: these are readings of two meters");
  Joules difference;
  for (std::size_t i = 0; i < later.size(); ++i) difference.push_back(later[i] - earlier[i]);
  return difference;
}

Joules& operator+=(Joules& sum, const Joules& more) {
  if (sum.empty()) sum.resize(more.size());
  require(sum.size() == more.size(), "energy: these are readings of two meters");
  for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
  return sum;
}

EnergyMeter::EnergyMeter(const fs::path& root, const std::string& nvml) {
  find_packages(root);
  find_gpus(nvml);
}

/// Powercap lists domains of all levels side by side: intel-rapl:1 is the package 1, intel-rapl:1:0
/// a part of it. AMD's are called the same.
void EnergyMeter::find_packages(const fs::path& root) {
  const fs::path folder = root / "sys/class/powercap";
  std::set<fs::path> domains;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with("intel-rapl:")) domains.insert(entry.path());
  const auto place = [](const fs::path& domain) {
    const std::string name = domain.filename().string();
    return name.substr(name.find(':') + 1);  // "1" or "1:0"
  };
  const auto is_part = [&](const fs::path& domain) {
    return place(domain).find(':') != std::string::npos;
  };
  const bool packages = std::any_of(domains.begin(), domains.end(), [&](const fs::path& domain) {
    return !is_part(domain) && read_word(domain / "name").starts_with("package");
  });
  if (domains.empty())
    missing_.push_back("RAPL: " + folder.string() +
                       " has no intel-rapl domain: a virtual machine, "
                       "or a processor without it");
  for (const fs::path& domain : domains) {
    std::string name = read_word(domain / "name");
    const bool counts = is_part(domain) ? name == "dram" : name != "psys" || !packages;
    if (!counts) continue;
    if (is_part(domain)) name += "-" + place(domain).substr(0, place(domain).find(':'));
    std::string why;
    const auto range = read_number(domain / "max_energy_range_uj", why);
    if (!range) {
      missing_.push_back("RAPL " + name + ": " + why);
      continue;
    }
    add({"RAPL " + name,
         [file = domain / "energy_uj"](std::string& reason) { return read_number(file, reason); },
         1e-6, *range});
  }
}

void EnergyMeter::find_gpus(const std::string& library) {
  std::string why;
  const auto nvml = Nvml::open(library, why);
  const unsigned devices = nvml ? nvml->devices(why) : 0;
  for (unsigned i = 0; i < devices; ++i) {
    const auto device = nvml->device(i, why);
    if (!device) break;
    add({"GPU " + std::to_string(i) + ", " + device->second,
         [nvml, handle = device->first](std::string& reason) {
           return nvml->millijoules(handle, reason);
         },
         1e-3});
  }
  if (!why.empty()) missing_.push_back("NVML: " + why);
}

void EnergyMeter::add(Counter counter) {
  std::string why;
  const auto now = counter.read(why);
  if (!now) {
    missing_.push_back(counter.name + ": " + why);
    return;
  }
  counter.last = *now;
  counters_.push_back(std::move(counter));
}

std::vector<std::string> EnergyMeter::counters() const {
  std::vector<std::string> names;
  for (const Counter& counter : counters_) names.push_back(counter.name);
  return names;
}

Joules EnergyMeter::read() {
  Joules all;
  for (Counter& counter : counters_) {
    std::string why;
    const auto now = counter.read(why);
    if (now) {
      // Unsigned: what is below the last reading has begun again, after `range` at most.
      const std::uint64_t grown = *now - counter.last + (*now < counter.last ? counter.range : 0);
      counter.joules += static_cast<double>(grown) * counter.joules_per_unit;
      counter.last = *now;
    } else if (counter.joules == counter.joules) {
      missing_.push_back(counter.name + ": " + why);
      counter.joules = kUnknown;
    }
    all.push_back(counter.joules);
  }
  last_read_ = std::chrono::steady_clock::now();
  return all;
}

void EnergyMeter::keep_up() {
  if (std::chrono::steady_clock::now() - last_read_ > kLongAgo) read();
}

}  // namespace canopy
