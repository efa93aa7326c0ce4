#pragma once
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "src/base/file_writer.h"

namespace canopy::cli {

/// Standard output takes no more: its reader has gone, its disk is full. Ends whatever runs; not an
/// Error, so nobody adds context to it.
class OutputError : public std::runtime_error {
 public:
  explicit OutputError(int error);  // an errno
  bool reader_gone() const;

 private:
  int error_;
};

/// Once, before anything is opened: a standard stream that the caller closed becomes one that
/// fails, so that no file takes its number; a closed pipe is a failed write, so that what was begun
/// is cleaned up.
void prepare_standard_streams();

/// Writes and flushes. Throws OutputError.
void write_out(std::string_view text);
/// Flushes what std::cout and printf hold. Throws OutputError, also for a write that failed before.
void flush_out();

/// The file of a flag, where "-" is standard output. Opened at once, so that what cannot be written
/// is known before the work. Throws Error.
class TextOutput {
 public:
  explicit TextOutput(const std::string& path);
  void write(std::string_view text);  // all there is

 private:
  std::optional<FileWriter> file_;
};

/// Dies of SIGPIPE, as programs do whose reader has gone; returns if the caller ignores the signal.
void die_of_closed_pipe();

}  // namespace canopy::cli
