#pragma once
#include <cstddef>
#include <span>
#include <typeinfo>

#include "kernels/cuda/block.h"

namespace canopy {

/// Another way for the emulated card to run kernels than as they were compiled for the CPU
/// (tests/ptx). It knows what memory the card has, at the host's addresses.
class KernelRunner {
 public:
  virtual ~KernelRunner() = default;
  /// Arguments: the bytes of the kernel's struct. Any thread.
  virtual void run(const std::type_info& kernel, std::span<const std::byte> arguments,
                   const cuda::Grid& grid) = 0;
  virtual void allocated(const void* at, std::size_t bytes) = 0;
  virtual void released(const void* at) = 0;

  /// Runner of all emulated cards, set before the first of them is made; null: none.
  static inline KernelRunner* installed = nullptr;

  /// Memory of the host that a card sees, for as long as this lives.
  class Memory {
   public:
    Memory(const void* at, std::size_t bytes) : at_(at) {
      if (installed != nullptr) installed->allocated(at, bytes);
    }
    ~Memory() {
      if (installed != nullptr) installed->released(at_);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

   private:
    const void* const at_;
  };
};

}  // namespace canopy
