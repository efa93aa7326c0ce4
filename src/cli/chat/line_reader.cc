#include "src/cli/chat/line_reader.h"

#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <span>
#include <system_error>
#include <utility>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/utf8.h"

namespace canopy::cli {

namespace {

constexpr int kHistoryLines = 1000;
constexpr std::string_view kMark = "\xEF\xBB\xBF";  // of U+FEFF, before a text of UTF-8
constexpr int kTick = 50;  // milliseconds between two looks at a stop request

/// Bytes from standard input; 0 at its end. Throws Stopped.
std::size_t read_input(std::span<char> bytes, const std::stop_token& stop) {
  while (true) {
    if (stop.stop_requested()) throw Stopped();
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, kTick) <= 0) continue;
    const ssize_t n = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR)
      throw Error("cannot read standard input: " + std::generic_category().message(errno));
  }
}

}  // namespace

struct LineReader::Terminal {
  explicit Terminal(const std::filesystem::path& file) : history_file(file) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
    edit = el_init("canopy", stdin, stdout, stderr);
    lines = history_init();
    require(edit != nullptr && lines != nullptr, "the line editor cannot be started");
    HistEvent event;
    history(lines, &event, H_SETSIZE, kHistoryLines);
    history(lines, &event, H_SETUNIQUE, 1);
    if (!history_file.empty()) history(lines, &event, H_LOAD, history_file.c_str());
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_HIST, history, lines);
    el_set(edit, EL_CLIENTDATA, this);
    el_set(edit, EL_PROMPT, &Terminal::prompt_of);
    el_set(edit, EL_GETCFN, &Terminal::next_character);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~Terminal() {
    el_end(edit);
    history_end(lines);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void remember(const char* line) {
    HistEvent event;
    history(lines, &event, H_ENTER, line);
    if (history_file.empty()) return;
    const mode_t mask = umask(077);  // what is typed to a model is private
    history(lines, &event, H_SAVE, history_file.c_str());
    umask(mask);
  }

  static Terminal& of(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<Terminal*>(data);
  }
  static char* prompt_of(EditLine* edit) { return of(edit).prompt.data(); }
  /// -1: the line ends here, by the end of the input or a stop request.
  static int next_character(EditLine* edit, wchar_t* character) {
    Terminal& self = of(edit);
    std::string bytes;
    try {
      while (true) {
        char byte = 0;
        if (read_input({&byte, 1}, self.stop) == 0) return 0;
        bytes += byte;
        const Utf8Step step = utf8_step(bytes);
        if (step.kind == Utf8Step::Kind::kIncomplete) continue;
        constexpr wchar_t kReplacement = 0xFFFD;
        *character = step.kind == Utf8Step::Kind::kCharacter ? static_cast<wchar_t>(step.value)
                                                             : kReplacement;
        return 1;
      }
    } catch (const Stopped&) {
      self.stopped = true;
    } catch (const Error&) {  // the editor has no place for it: the input is over
    }
    return -1;
  }

  std::filesystem::path history_file;
  EditLine* edit = nullptr;
  History* lines = nullptr;
  std::string prompt;
  std::stop_token stop;
  bool stopped = false;
};

LineReader::LineReader(const std::filesystem::path& history) {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1)
    terminal_ = std::make_unique<Terminal>(history);
}

LineReader::~LineReader() = default;

bool LineReader::on_terminal() const { return terminal_ != nullptr; }

std::optional<std::string> LineReader::read(const std::string& prompt,
                                            const std::stop_token& stop) {
  std::optional<std::string> whole = read_line(prompt, stop);
  while (whole && whole->ends_with('\\')) {
    whole->back() = '\n';
    const std::optional<std::string> more = read_line("... ", stop);
    if (!more) break;
    *whole += *more;
  }
  return whole;
}

std::optional<std::string> LineReader::read_line(const std::string& prompt,
                                                 const std::stop_token& stop) {
  if (terminal_) {
    terminal_->prompt = prompt;
    terminal_->stop = stop;
    terminal_->stopped = false;
    int count = 0;
    const char* line = el_gets(terminal_->edit, &count);
    if (terminal_->stopped) {
      el_reset(terminal_->edit);
      throw Stopped();
    }
    if (line == nullptr || count <= 0) return std::nullopt;
    std::string text(line);
    if (text.ends_with('\n')) text.pop_back();
    if (!text.empty()) terminal_->remember(line);
    return text;
  }
  std::size_t end = 0;
  while ((end = pending_.find('\n')) == std::string::npos) {
    std::array<char, 4096> bytes{};
    const std::size_t n = read_input(bytes, stop);
    if (n == 0) {
      if (pending_.empty()) return std::nullopt;
      return std::exchange(pending_, {});
    }
    pending_.append(bytes.data(), n);
    if (!begun_ && pending_.size() >= kMark.size()) {
      if (pending_.starts_with(kMark)) pending_.erase(0, kMark.size());
      begun_ = true;
    }
    require(pending_.size() <= kMostTextBytes, "standard input: a line of more than 32 MiB");
  }
  std::string line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  begun_ = true;
  if (line.ends_with('\r')) line.pop_back();  // a line of Windows
  return line;
}

}  // namespace canopy::cli
