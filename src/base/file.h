#pragma once
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace canopy {

/// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int descriptor) : descriptor_(descriptor) {}
  UniqueFd(UniqueFd&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~UniqueFd();

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// A file of a model must be a regular file. What a user names on the command line may be a pipe,
/// as in -f <(command), a device or a terminal, too.
enum class FileKind : std::uint8_t { kOfModel, kOfUser };

/// Bounds of what is read at once, for each kind of content.
///
/// Far more than any config in use.
inline constexpr std::uint64_t kMostConfigBytes = 4u << 20;
/// Three times the largest index of shards in use (some 9 MB, of 90,000 tensors).
inline constexpr std::uint64_t kMostIndexBytes = 32u << 20;
/// Twice the largest tokenizer.json in wide use (34 MB for 262,144 tokens).
inline constexpr std::uint64_t kMostTokenizerBytes = 64u << 20;
/// Eight million tokens: no context is as long, and to score them takes weeks.
inline constexpr std::uint64_t kMostTextBytes = 32u << 20;
/// A tree of 1024 nodes or a measured profile takes some kilobytes.
inline constexpr std::uint64_t kMostSettingsBytes = 1u << 20;

/// All of a file of at most `most_bytes`; a user's text, and that of standard input, without a byte
/// order mark of UTF-8 at its beginning. Nothing blocks: a pipe that nobody writes to fails after
/// a second, and a stop request ends the wait for a slow writer. Throws Error naming the file;
/// Stopped.
std::string read_file(const std::filesystem::path& file, std::uint64_t most_bytes, FileKind kind,
                      const std::stop_token& stop = {});
std::string read_standard_input(std::uint64_t most_bytes, const std::stop_token& stop = {});

/// Opens a file for reading, without waiting for a pipe's writer. Throws Error naming it.
UniqueFd open_file(const std::filesystem::path& file);
/// Throws Error unless the open `descriptor` is a regular file; returns its bytes.
std::uint64_t regular_file_bytes(int descriptor, const std::filesystem::path& file);

/// Throws Error if these first bytes are of a Git LFS pointer: what a clone without Git LFS has in
/// a large file's place.
inline constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/";
void refuse_lfs_pointer(std::string_view first_bytes);

}  // namespace canopy
