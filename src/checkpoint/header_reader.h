#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <type_traits>

namespace canopy {

/// Reads a regular file from its beginning, up to `most_bytes`; every length is checked against
/// what is left before anything is allocated. Numbers are little-endian, as in both formats. One
/// thread at a time. Throws Error that says at which byte the file ends too early.
class HeaderReader {
 public:
  HeaderReader(const std::filesystem::path& file, std::uint64_t most_bytes);

  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t position() const { return position_; }
  void skip_to(std::uint64_t position);

  void read(void* into, std::uint64_t bytes);
  std::string text(std::uint64_t bytes);
  template <class T>
  requires std::is_arithmetic_v<T> T number() {
    T value;
    read(&value, sizeof(T));
    return value;
  }
  /// Throws unless `count` items of at least `item_bytes` each can still follow.
  void require_left(std::uint64_t count, std::uint64_t item_bytes) const;

 private:
  std::ifstream in_;
  std::uint64_t file_bytes_ = 0, most_bytes_ = 0, position_ = 0;
};

}  // namespace canopy
