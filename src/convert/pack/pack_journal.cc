#include "src/convert/pack/pack_journal.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "src/base/json.h"
#include "src/checkpoint/fingerprint.h"

namespace canopy {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kDigits = 16;
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

std::string sealed(const std::string& text) { return digits_of(text) + " " + text; }

/// The text of a line, if it is whole.
std::optional<std::string> opened(const std::string& line) {
  if (line.size() <= kDigits) return std::nullopt;
  std::string text = line.substr(kDigits + 1);
  if (line != sealed(text)) return std::nullopt;
  return text;
}

std::string to_text(const PackStep& step) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const PackedTensor& tensor : step.tensors) {
    nlohmann::json rows = nlohmann::json::array();  // their lengths, which are shorter to write
    for (std::size_t i = 1; i < tensor.offsets.size(); ++i)
      rows.push_back(tensor.offsets[i] - tensor.offsets[i - 1]);
    tensors.push_back({tensor.checksum, std::move(rows)});
  }
  return nlohmann::json{{"at", step.piece.at},
                        {"bytes", step.piece.bytes},
                        {"checksum", step.piece.checksum},
                        {"tensors", std::move(tensors)}}
      .dump();
}

/// A step of a text that to_text() made.
PackStep step_of(const std::string& text) {
  const nlohmann::json json = parse_json(text);
  PackStep step{{json.at("at"), json.at("bytes"), json.at("checksum")}, {}};
  for (const nlohmann::json& entry : json.at("tensors")) {
    PackedTensor tensor{entry.at(0), {}};
    if (!entry.at(1).empty()) tensor.offsets.push_back(0);
    for (const nlohmann::json& row : entry.at(1))
      tensor.offsets.push_back(tensor.offsets.back() + row.get<RowOffset>());
    step.tensors.push_back(std::move(tensor));
  }
  return step;
}

/// True of a file of its own: a link would lead elsewhere, and a pipe would wait.
bool is_file(const fs::path& path) {
  std::error_code code;
  return fs::is_regular_file(fs::symlink_status(path, code));
}

}  // namespace

PackJournal::PackJournal(const fs::path& directory, std::string identity)
    : path_(directory / kName), identity_(std::move(identity)) {
  if (!is_file(path_)) return;
  std::ifstream in(path_, std::ios::binary);
  std::string line;
  // A line that nothing ends is one that was being written.
  const auto next = [&] { return std::getline(in, line) && !in.eof(); };
  if (!next()) return;
  foreign_ = line != sealed(identity_);
  if (foreign_) return;
  bytes_ = line.size() + 1;
  while (next()) {
    const std::optional<std::string> text = opened(line);
    if (!text) return;
    steps_.push_back(step_of(*text));
    bytes_ += line.size() + 1;
    ++lines_;
  }
}

std::string PackJournal::trouble(const fs::path& weights, std::uint64_t total,
                                 const Progress& progress) const {
  if (foreign_) return "of another source, or by another version of canopy";
  if (steps_.empty()) return "";
  std::ifstream in;
  if (is_file(weights)) in.open(weights, std::ios::binary);
  std::vector<char> bytes(kReadBytes);
  for (const auto& [piece, tensors] : steps_) {
    Checksum checksum;
    in.seekg(static_cast<std::streamoff>(piece.at));
    std::uint64_t left = piece.bytes;
    while (left > 0 && in) {
      in.read(bytes.data(),
              static_cast<std::streamsize>(std::min<std::uint64_t>(left, kReadBytes)));
      checksum.add(std::as_bytes(std::span(bytes)).first(static_cast<std::size_t>(in.gcount())));
      left -= static_cast<std::uint64_t>(in.gcount());
      progress(std::min(piece.at + piece.bytes - left, total), total);
    }
    if (left > 0 || checksum.value() != piece.checksum)
      return "damaged: its " + weights.filename().string() + " has, from byte " +
             std::to_string(piece.at) + " on, not the bytes that were written";
  }
  return "";
}

void PackJournal::forget() {
  steps_.clear();
  lines_ = 0;
}

std::vector<PackStep> PackJournal::begin() {
  const std::uint64_t kept = steps_.empty() ? 0 : bytes_;
  file_.emplace(path_, kept, kept);
  if (kept == 0) file_->write(sealed(identity_) + "\n");
  file_->sync();
  sync_directory(path_.parent_path());
  return std::exchange(steps_, {});
}

void PackJournal::add(const PackStep& step) {
  file_->write(sealed(to_text(step)) + "\n");
  file_->sync();
  ++lines_;
}

bool PackJournal::is_of_use() const { return lines_ > 0 && is_file(path_); }

}  // namespace canopy
