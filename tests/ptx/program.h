#pragma once
// Kernels as nvcc wrote them down in PTX, ready to be run by tests/ptx/machine.h.
//
// Registers of a warp are one array of bytes. A register of 16, 32 or 64 bits has 32 values there,
// one for each lane; a predicate has one word, a bit for each lane. Constants of the text are
// registers that nothing writes.
// Source: NVIDIA, "PTX ISA", 9.0.
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace canopy::ptx {

inline constexpr int kWarp = 32;  // lanes
using Lanes = std::uint32_t;      // a bit for each lane of a warp
inline constexpr Lanes kAllLanes = ~Lanes{0};

struct Register {
  std::uint32_t at = 0;    // bytes from the beginning of a warp's registers
  std::uint8_t width = 0;  // bytes of a lane's value; 0: a predicate
};

enum class Op : std::uint8_t {
  kCompute,  // all that touches registers alone
  kBranch,
  kExit,
  kBarrier,
  kLoad,
  kStore,
  kAtomicAdd,
  kActiveMask,
  kShuffle,  // from here on lanes wait for one another
  kReduceAdd,
  kMatchAny,
};
enum class Space : std::uint8_t { kGlobal, kShared, kLocal, kParameter };

struct Insn;
/// Computes an instruction in `lanes` of a warp with these registers.
using Compute = void (*)(std::byte* registers, const Insn&, Lanes lanes);

struct Insn {
  Op op = Op::kCompute;
  Compute compute = nullptr;
  bool guarded = false, guard_negated = false;
  Register guard;
  Register to, to_predicate;       // what it writes
  bool has_predicate = false;      // whether it writes to_predicate, too
  std::array<Register, 4> from{};  // what it reads; of a load, a store: an address and more
  std::uint32_t target = 0;        // of a branch: index of an instruction

  Space space = Space::kGlobal;
  bool is_signed = false, is_volatile = false;
  std::uint8_t bytes = 0, count = 1;  // of one value, and values in one vector
  std::int64_t offset = 0;            // bytes, added to the address from[0]
  std::array<Register, 4> data{};     // of a load, a store, a move of parts

  int line = 0;  // of the file
  std::string text;
};

/// Counts of one instruction over all runs.
struct Traffic {
  std::uint64_t runs = 0;      // by a warp
  std::uint64_t sectors = 0;   // of 32 bytes of global memory that the lanes touched
  std::uint64_t bytes = 0;     // of global memory that the lanes asked for
  std::uint64_t turns = 0;     // that the banks of shared memory took
  std::uint64_t at_least = 0;  // turns, if no two lanes met in a bank
};

struct Kernel {
  std::string name;  // the type of the kernel, without its namespaces
  std::vector<Insn> code;
  std::uint32_t register_bytes = 0;
  /// Registers that are constants, and their values in every warp.
  std::vector<std::pair<Register, std::uint64_t>> constants;
  Register thread, block, threads, blocks, lane;  // special registers
  std::size_t parameter_bytes = 0, local_bytes = 0, shared_bytes = 0;
  int most_threads = 0;
  mutable std::vector<Traffic> traffic;  // of each instruction
  mutable std::uint64_t warp_instructions = 0, lane_instructions = 0;
};

/// Is one file of PTX. A kernel is parsed when it is first asked for.
class Module {
 public:
  /// Throws Error where the text has no kernel.
  explicit Module(std::string text);
  /// The kernel of a type, as the ABI demangles it; null if there is none. Throws Error naming a
  /// line that is not understood.
  const Kernel* find(const std::string& type);
  /// Release of the compiler that wrote it, as 13.0; empty if it does not say.
  const std::string& compiler() const { return compiler_; }
  const std::string& text() const { return text_; }
  std::vector<std::string> types() const;
  /// Kernels that were asked for.
  std::vector<const Kernel*> used() const;
  /// Arrays of the file in global memory.
  struct Global {
    std::vector<std::uint8_t> bytes;
  };
  const std::map<std::string, Global>& globals() const { return globals_; }

 private:
  friend class KernelParser;
  struct SharedArray {
    std::size_t bytes = 0, align = 1;
  };
  struct Entry {
    std::size_t begin, end;  // of its text
    int line;
    std::unique_ptr<Kernel> kernel;
  };
  std::string text_, compiler_;
  std::map<std::string, Global> globals_;
  std::map<std::string, SharedArray> shared_;  // of no bytes: the memory that a launch adds
  std::map<std::string, Entry> entries_;       // by type
};

/// A type's name without the namespaces of kernels and formats.
std::string short_name(std::string type);
/// As the ABI has it; the name itself where that is none.
std::string demangled(const std::string& name);

}  // namespace canopy::ptx
