#include "src/checkpoint/header_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "src/base/error.h"
#include "src/base/file.h"

namespace canopy {

static_assert(std::endian::native == std::endian::little,
              "headers and weights are little-endian on disk");

HeaderReader::HeaderReader(const std::filesystem::path& file, std::uint64_t most_bytes)
    : file_bytes_(regular_file_bytes(open_file(file).get(), file)), most_bytes_(most_bytes) {
  in_.open(file, std::ios::binary);
  if (!in_) throw Error("cannot open " + file.string() + ": " + std::strerror(errno));
  std::array<char, kLfsPointer.size()> first{};
  in_.read(first.data(), first.size());
  refuse_lfs_pointer({first.data(), static_cast<std::size_t>(in_.gcount())});
  in_.clear();
  in_.seekg(0);
}

void HeaderReader::require_left(std::uint64_t count, std::uint64_t item_bytes) const {
  const std::uint64_t end = std::min(file_bytes_, most_bytes_);
  if (count <= (end - std::min(end, position_)) / item_bytes) return;
  const std::string wanted =
      std::to_string(count) +
      (item_bytes == 1 ? std::string(" bytes")
                       : " items of " + std::to_string(item_bytes) + " bytes or more") +
      " at byte " + std::to_string(position_);
  if (file_bytes_ <= most_bytes_)
    throw Error("the header asks for " + wanted + ", past the end of the file at byte " +
                std::to_string(file_bytes_));
  throw Error("the header asks for " + wanted + ", past its limit of " +
              std::to_string(most_bytes_) + " bytes");
}

void HeaderReader::read(void* into, std::uint64_t bytes) {
  require_left(bytes, 1);
  in_.read(static_cast<char*>(into), static_cast<std::streamsize>(bytes));
  if (!in_)
    throw Error("cannot read " + std::to_string(bytes) + " bytes at byte " +
                std::to_string(position_) + ": " + std::strerror(errno));
  position_ += bytes;
}

std::string HeaderReader::text(std::uint64_t bytes) {
  require_left(bytes, 1);
  std::string text(bytes, '\0');
  read(text.data(), bytes);
  return text;
}

void HeaderReader::skip_to(std::uint64_t position) {
  if (position > file_bytes_)
    throw Error("byte " + std::to_string(position) + " is past the end of the file at byte " +
                std::to_string(file_bytes_));
  in_.seekg(static_cast<std::streamoff>(position));
  position_ = position;
}

}  // namespace canopy
