#pragma once
#include <cstdint>

namespace canopy::fuzz {

/// Begins to count anew the most heap memory that is held at once, beyond what is held now.
void begin_to_count_heap();
/// Bytes, at the most, since then. All threads'; what C++ allocates, under a sanitizer all of it.
std::int64_t most_heap_bytes();

}  // namespace canopy::fuzz
