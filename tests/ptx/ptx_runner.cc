#include "tests/ptx/ptx_runner.h"

#include <fstream>
#include <iterator>

#include "src/base/error.h"

namespace canopy::ptx {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

PtxRunner::PtxRunner(std::string text, Order order, Faults& faults)
    : module_(std::move(text)), order_(order), faults_(faults) {
  for (const auto& [name, global] : module_.globals())
    memory_.allocated(global.bytes.data(), global.bytes.size());
  installed = this;
}
PtxRunner::~PtxRunner() { installed = nullptr; }

void PtxRunner::run(const std::type_info& type, std::span<const std::byte> arguments,
                    const cuda::Grid& grid) {
  if (grid.blocks == 0) return;
  const std::lock_guard lock(running_);
  const std::string name = demangled(type.name());
  const Kernel* const kernel = module_.find(name);
  if (kernel == nullptr) return faults_.add("there is no PTX of " + name);
  const Order order{order_.seed == 0 ? 0 : order_.seed + launches_++};
  ptx::run(*kernel, {arguments, grid.blocks, grid.threads, grid.shared_bytes}, order, memory_,
           faults_);
}

}  // namespace canopy::ptx
