#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

namespace canopy::cli {

/// Lines that a user types: with editing and a history on a terminal, as they come from a pipe. One
/// of them at a time.
class LineReader {
 public:
  /// `history`: the file that lines are remembered in; it need not exist.
  explicit LineReader(const std::filesystem::path& history);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool on_terminal() const;
  /// A line without its end, LF or CR LF, and the first without a byte order mark; one that ends
  /// with a backslash goes on in the next. Nothing at the end of the input. Throws Stopped where
  /// `stop` asks for it: what was typed is forgotten.
  std::optional<std::string> read(const std::string& prompt, const std::stop_token& stop);

 private:
  std::optional<std::string> read_line(const std::string& prompt, const std::stop_token& stop);

  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // none: standard input is a pipe
  std::string pending_;                 // of a pipe: read and not returned yet
  bool begun_ = false;                  // its first line is over, or was looked at for a mark
};

}  // namespace canopy::cli
