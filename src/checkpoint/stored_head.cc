// A head that is stored although the config ties it to the embedding: transformers (tie_weights(),
// version 5) and llama.cpp's converter take the stored one where the two differ.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "src/base/cache_dir.h"
#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/file_writer.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/model_tensors.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

namespace fs = std::filesystem;

void read_at(int descriptor, const fs::path& file, std::uint64_t at, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = pread(descriptor, into.data(), into.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error("cannot read " + file.string() + " at byte " + std::to_string(at) + ": " +
                  (got == 0 ? "the file ends there" : std::strerror(errno)));
    into = into.subspan(static_cast<std::size_t>(got));
    at += static_cast<std::uint64_t>(got);
  }
}

/// Two tensors of one type and size, where they lie.
class Pair {
 public:
  Pair(const TensorIndex& index, const TensorEntry& one, const TensorEntry& other)
      : tensors_{&one, &other} {
    for (std::size_t i = 0; i < 2; ++i) {
      paths_[i] = index.files[static_cast<std::size_t>(tensors_[i]->file)];
      files_[i] = open_file(paths_[i]);
    }
  }

  /// Compares all bytes, up to the first piece that differs. Throws Error.
  bool is_equal() const {
    constexpr std::uint64_t kPiece = 4u << 20;
    std::array<std::vector<std::byte>, 2> pieces;
    for (std::uint64_t at = 0; at < tensors_[0]->bytes; at += kPiece) {
      for (std::size_t i = 0; i < 2; ++i) {
        pieces[i].resize(std::min(kPiece, tensors_[0]->bytes - at));
        read_at(files_[i].get(), paths_[i], tensors_[i]->offset + at, pieces[i]);
      }
      if (pieces[0] != pieces[1]) return false;
    }
    return true;
  }

  /// Names the verdict's file by what changes whenever the bytes do: the files' inodes, sizes and
  /// times of change, and the places in them.
  std::string verdict_name() const {
    std::string identity;
    const auto add = [&](auto number) {
      const auto wide = static_cast<std::uint64_t>(number);
      identity.append(reinterpret_cast<const char*>(&wide), sizeof wide);
    };
    for (std::size_t i = 0; i < 2; ++i) {
      struct stat status {};
      if (fstat(files_[i].get(), &status) != 0)
        throw Error("cannot read " + paths_[i].string() + ": " + std::strerror(errno));
      add(status.st_dev), add(status.st_ino), add(status.st_size);
      for (const timespec& time : {status.st_mtim, status.st_ctim})
        add(time.tv_sec), add(time.tv_nsec);
      add(tensors_[i]->offset), add(tensors_[i]->bytes);
    }
    return "tied-head-" + digits_of(identity);
  }

 private:
  std::array<const TensorEntry*, 2> tensors_;
  std::array<fs::path, 2> paths_;
  std::array<UniqueFd, 2> files_;
};

/// Compares the two, or takes the verdict of an earlier comparison. Only that they are equal is
/// kept: a difference is found in the first piece that is read.
bool is_equal(const Pair& pair, Notes& notes) {
  std::error_code ignored;
  std::string why_not_kept;
  fs::path kept;
  try {
    kept = cache_dir() / pair.verdict_name();
  } catch (const Error& e) {
    why_not_kept = e.what();
  }
  if (!kept.empty() && fs::exists(kept, ignored)) return true;
  if (!pair.is_equal()) return false;
  if (!kept.empty()) {
    fs::create_directories(kept.parent_path(), ignored);  // the writer says what is wrong
    try {
      write_file(kept, "the stored head equals the embedding\n");
    } catch (const Error& e) {
      why_not_kept = e.what();
    }
  }
  if (!why_not_kept.empty())
    add_note(notes,
             "the stored head is compared with the embedding at each start: " + why_not_kept);
  return true;
}

}  // namespace

void untie_stored_head(const TensorIndex& index, ModelConfig& config) {
  if (!config.tied_head) return;
  const auto find = [&](TensorRole role) {
    return std::find_if(index.tensors.begin(), index.tensors.end(), [&](const TensorEntry& tensor) {
      return tensor.name == tensor_name(role);
    });
  };
  const auto head = find(TensorRole::kHead), embedding = find(TensorRole::kEmbedding);
  if (head == index.tensors.end() || embedding == index.tensors.end()) return;
  const bool alike = head->dtype == embedding->dtype &&
                     head->foreign_dtype == embedding->foreign_dtype &&
                     head->shape == embedding->shape && head->bytes == embedding->bytes;
  if (alike && is_equal(Pair(index, *head, *embedding), config.notes)) return;
  config.tied_head = false;
  add_note(config.notes, "config.json ties the head to the embedding, but " + head->name +
                             " is stored and differs from " + embedding->name +
                             ": it is the head, as transformers takes it");
}

}  // namespace canopy
