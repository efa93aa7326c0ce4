#include "src/cli/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include "src/cli/output.h"

namespace canopy::cli {

namespace {

// What every terminal since the VT100 knows. Down and up again first, so that there is a line
// below the text even at the bottom of the screen.
constexpr const char* kClearLine = "\r\033[2K";
constexpr const char* kToLineBelow = "\033D\033[A\0337\033[B\r\033[2K";
constexpr const char* kBackToText = "\0338";

/// What fits a line of this terminal: a longer text would wrap and never be wiped out.
std::string cut_to_width(const std::string& text) {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return text;
  return text.substr(0, size.ws_col - 1u);
}

}  // namespace

ProgressLine::ProgressLine(const boost::program_options::variables_map& values)
    : terminal_(isatty(STDERR_FILENO) == 1), lines_(!terminal_ && values.count("progress") > 0) {}

ProgressLine::~ProgressLine() { end(); }

void ProgressLine::show(const std::string& text) {
  if (lines_) std::cerr << text << "\n";
  if (terminal_) draw(text);
  shown_ = Clock::now();
}

bool ProgressLine::wants_glimpse() const {
  return terminal_ && Clock::now() - shown_ > std::chrono::milliseconds(100);
}

void ProgressLine::show_loading(std::uint64_t done, std::uint64_t all) {
  const auto now = Clock::now();
  if (done < all && now - loading_ < std::chrono::seconds(1)) return;
  loading_ = now;
  show("loading " + format_size(done) + " of " + format_size(all));
}

void ProgressLine::draw(const std::string& text) {
  last_ = cut_to_width(text);
  if (below_text_)
    std::cerr << kToLineBelow << last_ << kBackToText << std::flush;
  else
    std::cerr << kClearLine << last_ << std::flush;
  drawn_ = true;
}

void ProgressLine::make_way_for_text() {
  end();
  below_text_ = terminal_ && isatty(STDOUT_FILENO) == 1;
}

void ProgressLine::wipe() {
  if (below_text_ && drawn_) std::cerr << kToLineBelow << kBackToText << std::flush;
}

void ProgressLine::write(const std::string& text) {
  if (text.empty()) return;
  wipe();
  write_out(text);
  text_line_ended_ = text.back() == '\n';
}

void ProgressLine::end() {
  if (drawn_ && below_text_) {
    wipe();
    std::cerr << (text_line_ended_ ? "" : "\n") << last_;
  }
  if (drawn_) std::cerr << "\n";
  drawn_ = below_text_ = false;
}

}  // namespace canopy::cli
