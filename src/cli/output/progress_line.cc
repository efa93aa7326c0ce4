#include "src/cli/output/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <utility>

#include "src/base/size_text.h"
#include "src/base/utf8.h"
#include "src/cli/output/aside.h"
#include "src/cli/output/standard_output.h"
#include "src/text/display_width.h"

namespace canopy::cli {

namespace {

// Escapes that every terminal since the VT100 knows. The cursor rests in front of the line, or
// after the text: a terminal that wraps its lines anew when it is resized moves it with them, and
// all that is below it is the line. Its own row first: some terminals keep a screen that is cleared
// from its first row on in their history.
constexpr const char* kWipeLine = "\r\033[2K\033[J";
// Down and up again first, so that there is a line below the text even at the bottom of the screen.
constexpr const char* kToLineBelow = "\033D\033[A\0337\033[B\r\033[J";
constexpr const char* kBackToText = "\0338";

/// True if lines can be rewritten on stderr: an editor's or a log's terminal, "dumb", knows no
/// escapes.
bool draws_on_terminal() {
  const char* const kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::string_view(kind) == "dumb";
  return isatty(STDERR_FILENO) == 1 && !dumb && !is_quiet();
}

winsize terminal_size() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return {24, 80, 0, 0};
  return size;
}

/// Cuts a text to one line of this terminal: a longer text would wrap.
std::string cut_to(int columns, std::string_view text) {
  std::string out;
  int at = 0;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    at += text::display_width(step.value);
    if (at >= columns) break;
    out += text.substr(0, step.bytes);
    text.remove_prefix(step.bytes);
  }
  return out;
}

}  // namespace

ProgressLine::ProgressLine(bool lines)
    : terminal_(draws_on_terminal()), lines_(lines && !terminal_ && !is_quiet()) {}

ProgressLine::~ProgressLine() {
  try {
    clear();
  } catch (const OutputError&) {  // whatever ends the run has been reported
  }
}

void ProgressLine::show(const std::string& text) {
  if (lines_) std::cerr << text << "\n";
  last_ = text;
  if (terminal_) draw();
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

void ProgressLine::draw() {
  const winsize size = terminal_size();
  const std::string line = cut_to(size.ws_col, last_);
  if (!below_text_) {
    std::cerr << kWipeLine << line << "\r" << std::flush;
  } else {
    cursor_.resize(size.ws_col);
    if (cursor_.may_wrap() || size.ws_row == 1) return;
    std::cerr << kToLineBelow << line << kBackToText << std::flush;
  }
  drawn_ = true;
}

void ProgressLine::make_way_for_text() {
  clear();
  below_text_ = terminal_ && isatty(STDOUT_FILENO) == 1;
}

void ProgressLine::wipe() {
  if (!drawn_) return;
  if (!below_text_) {
    std::cerr << kWipeLine << std::flush;
  } else if (!cursor_.may_wrap()) {
    std::cerr << kToLineBelow << kBackToText << std::flush;
  } else {  // the terminal was resized, and the text may end in its last column now
    std::cerr << "\n" << kWipeLine << std::flush;
    cursor_.advance('\n');
  }
  drawn_ = false;
}

void ProgressLine::write(const std::string& text) {
  if (text.empty()) return;
  if (!below_text_) return write_out(text);
  constexpr int kMostWaiting = 4;  // characters
  cursor_.resize(terminal_size().ws_col);
  wipe();
  waiting_ += text;
  TextCursor behind = cursor_;
  std::size_t end = 0, bytes = 0;
  for (int characters = 1; end < waiting_.size(); ++characters) {
    const Utf8Step step = utf8_step(std::string_view(waiting_).substr(end));
    end += step.bytes;
    behind.advance(step.value);
    if (behind.may_wrap() && characters <= kMostWaiting) continue;
    cursor_ = behind;
    bytes = end;
    characters = 0;
  }
  write_out(std::string_view(waiting_).substr(0, bytes));
  waiting_.erase(0, bytes);
}

void ProgressLine::dim(bool on) {
  const char* const none = std::getenv("NO_COLOR");
  if (isatty(STDOUT_FILENO) != 1 || (none != nullptr && *none != '\0')) return;
  if (below_text_) {
    wipe();
    write_waiting();
  }
  write_out(on ? "\x1b[2m" : "\x1b[22m");
}

void ProgressLine::write_waiting() {
  if (!waiting_.empty()) write_out(std::exchange(waiting_, {}));
}

void ProgressLine::end() {
  const bool shown = terminal_ && !last_.empty();
  if (below_text_) {
    const bool new_line = waiting_.empty() && cursor_.at_line_start();
    wipe();
    write_waiting();
    if (!new_line) std::cerr << "\n";
    if (shown) std::cerr << cut_to(terminal_size().ws_col, last_);
  }
  if (shown) std::cerr << "\n";
  drawn_ = below_text_ = false;
  last_.clear();
}

void ProgressLine::clear() {
  wipe();
  last_.clear();
  if (below_text_) end();
}

}  // namespace canopy::cli
