#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/file.h"
#include "src/base/partial.h"

namespace canopy {

/// Writes a file that a user names, front to back. It appears whole or not at all: it is written
/// next to its place (Partial), where links lead, and takes its name in finish(). Only what is no
/// regular file (a device, a pipe, /dev/stdout) is written in place. One thread.
class FileWriter {
 public:
  /// Throws Error naming the file: no such folder, a directory, no permission, a pipe without a
  /// reader.
  explicit FileWriter(std::filesystem::path file);
  ~FileWriter();  // leaves what was there, unless it was finished
  FileWriter(FileWriter&&) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;

  void write(std::string_view text);  // throws Error
  void finish();                      // throws Error

 private:
  void flush();
  int descriptor() const { return partial_ ? partial_->descriptor() : in_place_.get(); }
  [[noreturn]] void fail(int error) const;

  std::filesystem::path file_;
  std::unique_ptr<Partial> partial_;
  UniqueFd in_place_;
  std::string buffer_;
};

/// All of a file at once. Throws Error.
void write_file(const std::filesystem::path& file, std::string_view text);

}  // namespace canopy
