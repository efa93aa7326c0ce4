#include "offload/integrity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <type_traits>

#include "src/base/error.h"

namespace canopy {
namespace {

/// XXH3 over fields; what has no fixed size goes in behind its size, so that no two lists of fields
/// look alike.
class Fingerprint {
 public:
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void add(Number value) { add_bytes(&value, sizeof value); }
  void add(std::string_view text) {
    add(text.size());
    add_bytes(text.data(), text.size());
  }
  template <class Number>
  void add(const std::vector<Number>& list) {
    add(list.size());
    for (const Number value : list) add(value);
  }
  std::string digits() const {
    std::array<char, 17> text{};
    std::snprintf(text.data(), text.size(), "%016llx",
                  static_cast<unsigned long long>(XXH3_64bits(said_.data(), said_.size())));
    return text.data();
  }

 private:
  void add_bytes(const void* data, std::size_t size) {
    said_.append(static_cast<const char*>(data), size);
  }
  std::string said_;
};

}  // namespace

FileWatch::FileWatch(std::span<const std::filesystem::path> files)
    : files_(files.begin(), files.end()) {
  try {
    for (const std::filesystem::path& file : files_) {
      descriptors_.push_back(open(file.c_str(), O_PATH | O_CLOEXEC));
      if (descriptors_.back() < 0)
        throw Error("cannot open " + file.string() + ": " + std::strerror(errno));
      at_start_.push_back(stamp(descriptors_.size() - 1));
    }
  } catch (...) {
    close_all();
    throw;
  }
}

FileWatch::~FileWatch() { close_all(); }

void FileWatch::close_all() noexcept {
  for (const int descriptor : descriptors_)
    if (descriptor >= 0) close(descriptor);
}

FileWatch::Stamp FileWatch::stamp(std::size_t file) const {
  struct stat status {};
  if (fstat(descriptors_[file], &status) != 0)
    throw Error("cannot look at " + files_[file].string() + ": " + std::strerror(errno));
  return {static_cast<std::uint64_t>(status.st_size), status.st_mtim};
}

void FileWatch::check(int file) const {
  const auto i = static_cast<std::size_t>(file);
  const Stamp now = stamp(i), &then = at_start_.at(i);
  if (now.bytes == then.bytes && now.modified.tv_sec == then.modified.tv_sec &&
      now.modified.tv_nsec == then.modified.tv_nsec)
    return;
  throw Error(files_[i].string() + " was written to while it was in use (" +
              std::to_string(then.bytes) + " bytes before, " + std::to_string(now.bytes) +
              " now): its weights may be half old, half new; run again once it is complete");
}

std::uint64_t checksum(const ReadPump::Arrival& piece) {
  // The place as a seed tells equal pieces apart.
  return XXH3_64bits_withSeed(piece.bytes.data(), piece.needed, piece.offset);
}

std::string fingerprint(const Checkpoint& model) {
  Fingerprint all;
  const ModelConfig& c = model.config();
  all.add(c.architecture);
  for (const int extent : {c.layers, c.dim, c.hidden_dim, c.heads, c.kv_heads, c.head_dim, c.vocab})
    all.add(extent);
  for (const bool has : {c.tied_head, c.qkv_bias, c.qk_norm, c.rope_adjacent_pairs}) all.add(has);
  all.add(c.rms_eps);
  all.add(c.rope_inverse_frequency);
  all.add(c.rope_magnitude);

  std::vector<std::ifstream> files;
  for (const auto& file : model.files()) files.emplace_back(file, std::ios::binary);
  for (const TensorEntry& tensor : model.tensors()) {
    all.add(tensor.name);
    all.add(name(tensor.dtype));
    all.add(tensor.shape);
    std::string sample(std::min<std::uint64_t>(tensor.bytes, 64), '\0');
    auto& in = files.at(static_cast<std::size_t>(tensor.file));
    in.seekg(static_cast<std::streamoff>(tensor.offset + (tensor.bytes - sample.size()) / 2));
    if (!in.read(sample.data(), static_cast<std::streamsize>(sample.size())))
      throw Error("cannot read " + tensor.name + " in " +
                  model.files()[static_cast<std::size_t>(tensor.file)].string());
    all.add(sample);
  }
  return all.digits();
}

}  // namespace canopy
