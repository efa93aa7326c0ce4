// Bytes that nobody wrote: downloads that come in parallel pieces give a file its length first.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/utf8.h"
#include "src/checkpoint/packed_tensors.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

/// The first of `tensors` (by place) with a byte in [begin, end); null if there is none. The
/// padding of packed files has no meaning.
const TensorEntry* first_inside(std::span<const TensorEntry> tensors, std::uint64_t begin,
                                std::uint64_t end) {
  auto at = std::partition_point(tensors.begin(), tensors.end(), [&](const TensorEntry& tensor) {
    return tensor.offset + tensor.bytes <= begin;
  });
  for (; at != tensors.end() && at->offset < end; ++at)
    if (at->bytes > 0 && at->offset + at->bytes > begin && !at->name.starts_with(packed::kPadding))
      return &*at;
  return nullptr;
}

}  // namespace

void refuse_holes(const std::filesystem::path& file, std::span<const TensorEntry> tensors,
                  std::string_view what_follows) {
  const UniqueFd descriptor = open_file(file);
  const auto size = static_cast<off_t>(regular_file_bytes(descriptor.get(), file));
  for (off_t at = 0; at < size;) {
    const off_t hole = lseek(descriptor.get(), at, SEEK_HOLE);
    if (hole < 0 || hole >= size) return;  // none, or the file system does not know
    const off_t data = lseek(descriptor.get(), hole, SEEK_DATA);
    at = data < 0 ? size : data;
    const auto begin = static_cast<std::uint64_t>(hole), end = static_cast<std::uint64_t>(at);
    if (const TensorEntry* const tensor = first_inside(tensors, begin, end))
      throw Error("tensor " + in_quotes(tensor->name) + " lies in a hole: bytes " +
                  std::to_string(begin) + " to " + std::to_string(end) +
                  " of the file were never written, so " + std::string(what_follows));
  }
}

void note_zero_matrices(const std::vector<std::filesystem::path>& files,
                        const std::vector<TensorEntry>& tensors, ModelConfig& config) {
  constexpr std::uint64_t kPieces = 64, kPieceBytes = 64;
  if (!config.inflated_from.empty()) return;  // whose added layers add zero
  std::vector<UniqueFd> open;
  for (const auto& file : files) open.push_back(open_file(file));
  const auto has_zeros = [&](const TensorEntry& tensor, std::uint64_t place) {
    const ByteRange all = place_in_file(tensor);
    std::array<char, kPieceBytes> piece{};
    const ssize_t got =
        pread(open[static_cast<std::size_t>(tensor.file)].get(), piece.data(),
              std::min(kPieceBytes, all.bytes), static_cast<off_t>(all.offset + place));
    return got > 0 && std::all_of(piece.begin(), piece.end(), [](char c) { return c == 0; });
  };
  for (const TensorEntry& tensor : tensors) {
    const bool biases = tensor.name.ends_with(".bias");  // of all experts, and often zero
    if (tensor.shape.size() != 2 || biases || tensor.bytes == 0) continue;
    const std::uint64_t bytes = place_in_file(tensor).bytes;
    const std::uint64_t last = bytes - std::min(kPieceBytes, bytes);
    bool zeros = true;
    // The middle first: almost always one read says that there is something.
    for (std::uint64_t i = 0; zeros && i < kPieces; ++i)
      zeros = has_zeros(tensor, last / kPieces * ((i + kPieces / 2) % kPieces));
    if (zeros)
      add_note(config.notes, tensor.name + " is zeros wherever it was looked at (" +
                                 std::to_string(kPieces) +
                                 " places): is the download of the model complete?");
  }
}

}  // namespace canopy
