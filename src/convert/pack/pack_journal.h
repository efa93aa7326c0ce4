#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/formats/packed_format.h"
#include "src/convert/output.h"
#include "src/convert/pack/packed_file.h"

namespace canopy {

/// Facts of a tensor in a packed file that its bytes do not give.
struct PackedTensor {
  std::uint64_t checksum = 0;      // TensorEntry::checksum
  std::vector<RowOffset> offsets;  // of a packed matrix, else empty
};
/// Some units of a packed file: their bytes, and their tensors, in order.
struct PackStep {
  FilePiece piece;
  std::vector<PackedTensor> tensors;
};

/// Record of the units of a packed file that are on the disk, next to it until it is complete: a
/// run that was cut is gone on with by it (docs/formats.md, "What a cut run leaves"). A line is the
/// XXH3 of its text, 16 digits, and the text: first the identity of what is packed, then a step
/// each. One thread.
class PackJournal {
 public:
  static constexpr std::string_view kName = "pack.journal";

  /// Reads the journal of a directory, if there is one, up to the first line that is not whole.
  PackJournal(const std::filesystem::path& directory, std::string identity);

  const std::vector<PackStep>& steps() const { return steps_; }
  /// Says why nothing can be taken over from `weights`, "" if it can or nothing is there. Reads the
  /// bytes that the steps name, and calls `progress` with how many of `total`.
  std::string trouble(const std::filesystem::path& weights, std::uint64_t total,
                      const Progress& progress) const;
  /// Forgets the steps that were read.
  void forget();

  /// Writes the identity, or goes on after the steps that were read, which it returns. Throws
  /// Error.
  std::vector<PackStep> begin();
  /// Adds a step, whose bytes are durable; so is the line then. Throws Error.
  void add(const PackStep& step);
  /// True if it is there and has steps.
  bool is_of_use() const;

 private:
  std::filesystem::path path_;
  std::string identity_;
  bool foreign_ = false;  // what is there is of another identity
  std::vector<PackStep> steps_;
  std::uint64_t bytes_ = 0;  // of lines that are whole
  int lines_ = 0;
  std::optional<OutputFile> file_;
};

}  // namespace canopy
