#include "src/convert/pack/checksum.h"

#include <xxhash.h>

#include "src/base/error.h"

namespace canopy {

Checksum::Checksum() : state_(XXH3_createState()) {
  require(state_ && XXH3_64bits_reset(state_.get()) == XXH_OK, "no memory for a checksum");
}

Checksum::Checksum(const Checksum& other) : Checksum() { *this = other; }

Checksum& Checksum::operator=(const Checksum& other) {
  if (this != &other) XXH3_copyState(state_.get(), other.state_.get());
  return *this;
}

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

void Checksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

}  // namespace canopy
