#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "src/cli/command.h"

namespace canopy::cli {

/// One line on stderr that is rewritten in place on a terminal, or a line per update with
/// --progress. Silent otherwise. Where text goes to the same terminal, the line stands below it.
class ProgressLine {
 public:
  explicit ProgressLine(const boost::program_options::variables_map& values);
  ~ProgressLine();
  void show(const std::string& text);
  /// A line that the next will replace soon: drawn on a terminal only, a few times a second.
  bool wants_glimpse() const;
  void show_loading(std::uint64_t done, std::uint64_t all);  // bytes; thinned out

  /// From here on text goes to stdout, through write(): the line is drawn below it if both share a
  /// terminal.
  void make_way_for_text();
  void write(const std::string& text);
  void end();  // leaves the last line standing, below the text

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& text);

  void wipe();

  bool terminal_, lines_, below_text_ = false, drawn_ = false;
  bool text_line_ended_ = true;
  std::string last_;
  Clock::time_point shown_{}, loading_{};
};

}  // namespace canopy::cli
