#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace canopy {

/// XXH3 (64 bits, seed 0) of bytes that come a piece at a time, as TensorEntry::checksum has it. A
/// copy goes on by itself. One thread.
class Checksum {
 public:
  Checksum();
  Checksum(const Checksum& other);
  Checksum& operator=(const Checksum& other);
  ~Checksum() = default;

  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace canopy
