#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "src/cli/output/text_cursor.h"

namespace canopy::cli {

/// One line on stderr that is rewritten in place on a terminal. Elsewhere it is a line per update,
/// or silent. Where text goes to the same terminal, the line stands below it.
class ProgressLine {
 public:
  explicit ProgressLine(bool lines);  // an update is a line where there is no terminal
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const std::string& text);
  /// A line that the next will replace soon: drawn on a terminal only, a few times a second.
  bool wants_glimpse() const;
  void show_loading(std::uint64_t done, std::uint64_t all);  // bytes; thinned out

  /// Lets text go to stdout from now on, through write(): the line is drawn below it if both share
  /// a terminal.
  void make_way_for_text();
  /// UTF-8, whole characters. Throws OutputError. A character that fills the terminal's last column
  /// waits for the next: no cursor that has been moved finds its place after it again.
  void write(const std::string& text);
  /// Text that is written from here on is dim, or no more, where stdout is a terminal that may show
  /// it (NO_COLOR).
  void dim(bool on);
  void end();    // leaves the last line standing, below the text
  void clear();  // takes it away: what it reported is over

 private:
  using Clock = std::chrono::steady_clock;
  void draw();
  void wipe();
  void write_waiting();

  bool terminal_, lines_, below_text_ = false, drawn_ = false;
  TextCursor cursor_;    // of the text
  std::string waiting_;  // its end, not written yet
  std::string last_;
  Clock::time_point shown_{}, loading_{};
};

}  // namespace canopy::cli
