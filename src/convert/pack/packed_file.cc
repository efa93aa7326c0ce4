#include "src/convert/pack/packed_file.h"

#include <algorithm>
#include <cstring>

#include "src/base/error.h"
#include "src/checkpoint/fingerprint.h"

namespace canopy {

namespace {

/// Room for the header: of each tensor two parts, the padding before it and its description, each
/// with its name or one as short, some words of JSON and two or three numbers of up to 19 digits.
std::uint64_t header_room(std::span<const std::string> names) {
  std::uint64_t bytes = 1024;
  for (const std::string& name : names) bytes += 4 * name.size() + 768;
  return (bytes + PackedFile::kUnitAlignment - 1) / PackedFile::kUnitAlignment *
         PackedFile::kUnitAlignment;
}

}  // namespace

PackedFile::PackedFile(const std::filesystem::path& path, std::span<const std::string> names,
                       std::uint64_t about_bytes, std::uint64_t taken)
    : file_(path, about_bytes, taken),
      header_bytes_(header_room(names)),
      taken_(taken),
      at_(header_bytes_),
      committed_(std::max(header_bytes_, taken)) {
  if (taken == 0) file_.write(std::string(header_bytes_, ' '));
  header_["__metadata__"] = nullptr;  // comes first
}

void PackedFile::align() {
  const std::uint64_t beyond = at_ % kUnitAlignment;
  if (beyond == 0) return;
  begin();
  const std::vector<std::byte> zeros(kUnitAlignment - beyond);
  if (at_ < taken_)
    pass(zeros.size());
  else
    write(zeros);
  end(std::string(packed::kPadding) + std::to_string(pads_++), name(DType::kU8),
      {std::ssize(zeros)});
}

void PackedFile::begin() {
  begun_at_ = at_;
  begun_checksum_ = checksum_;
}

void PackedFile::write(std::span<const std::byte> bytes) {
  require(at_ >= taken_, "what was taken over of a packed file is its beginning");
  file_.write(bytes);
  checksum_.add(bytes);
  at_ += bytes.size();
}

void PackedFile::pass(std::uint64_t bytes) {
  at_ += bytes;
  require(at_ <= taken_, "what was taken over of a packed file has all of its tensors");
}

FilePiece PackedFile::commit() {
  file_.sync();
  const FilePiece piece{committed_, uncommitted(), checksum_.value()};
  committed_ = at_;
  checksum_ = Checksum();
  return piece;
}

void PackedFile::end(const std::string& tensor, std::string_view type,
                     const std::vector<std::int64_t>& shape) {
  header_[tensor] = {{"dtype", type},
                     {"shape", shape},
                     {"data_offsets", {begun_at_ - header_bytes_, at_ - header_bytes_}}};
}

void PackedFile::forget() {
  at_ = begun_at_;
  checksum_ = begun_checksum_;
  file_.cut(at_);
}

void PackedFile::finish(const std::vector<std::pair<std::string, packed::Description>>& tensors,
                        const std::string& source) {
  header_["__metadata__"] = {{"format", "pt"},
                             {std::string(kSourceFingerprint), source},
                             {std::string(packed::kDescriptions), packed::to_text(tensors)}};
  std::string text = header_.dump();
  std::uint64_t length = header_bytes_ - sizeof length;
  require(text.size() <= length, "the header of a packed file has room");
  text.resize(length, ' ');
  std::string header(sizeof length, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  file_.finish_with(header + text, at_);
}

}  // namespace canopy
