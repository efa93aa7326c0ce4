#include "tests/fuzz/heap.h"

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CANOPY_SANITIZED_HEAP
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CANOPY_SANITIZED_HEAP
#endif

#ifdef CANOPY_SANITIZED_HEAP
// The sanitizers have these; a header for them comes with clang and not with GCC.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*,
                                                                           std::size_t),
                                                         void (*freed)(const volatile void*));
extern "C" std::size_t __sanitizer_get_allocated_size(const volatile void* memory);
#else
#include <malloc.h>
#endif

namespace {

std::atomic<std::int64_t> g_live = 0, g_begun = 0, g_most = 0;

void allocated(std::size_t bytes) {
  const std::int64_t live = g_live += static_cast<std::int64_t>(bytes);
  std::int64_t most = g_most;
  while (live > most && !g_most.compare_exchange_weak(most, live)) continue;
}
void freed(std::size_t bytes) { g_live -= static_cast<std::int64_t>(bytes); }

}  // namespace

#ifdef CANOPY_SANITIZED_HEAP  // which has operators of its own

namespace {
[[maybe_unused]] const int kInstalled = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t bytes) { allocated(bytes); },
    [](const volatile void* memory) {
      if (memory != nullptr) freed(__sanitizer_get_allocated_size(memory));
    });
}

#else

namespace {
void* counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  allocated(malloc_usable_size(memory));
  return memory;
}
void release(void* memory) noexcept {
  if (memory != nullptr) freed(malloc_usable_size(memory));
  std::free(memory);
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(std::malloc(bytes)); }
void* operator new[](std::size_t bytes) { return counted(std::malloc(bytes)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }

#endif

namespace canopy::fuzz {

void begin_to_count_heap() { g_most = g_begun = g_live.load(); }
std::int64_t most_heap_bytes() { return g_most - g_begun; }

}  // namespace canopy::fuzz
