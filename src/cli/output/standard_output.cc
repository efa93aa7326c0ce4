#include "src/cli/output/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

namespace canopy::cli {

namespace {

bool pipes_kill = true;  // unless whoever started us ignores SIGPIPE

}  // namespace

OutputError::OutputError(int error)
    : std::runtime_error(std::string("cannot write to standard output: ") + std::strerror(error)),
      error_(error) {}

bool OutputError::reader_gone() const { return error_ == EPIPE; }

void prepare_standard_streams() {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a failed write, too
  pipes_kill = std::signal(SIGPIPE, SIG_IGN) == SIG_DFL;
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) < 0)  // the lowest free number is this one
      (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

void write_out(std::string_view text) {
  std::cout << text;
  flush_out();
}

void flush_out() {
  if (std::cout.flush() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw OutputError(errno);  // of the write that failed: nothing is tried after it
}

TextOutput::TextOutput(const std::string& path) {
  if (path != "-") file_.emplace(path);
}

void TextOutput::write(std::string_view text) {
  if (!file_) return write_out(text);
  file_->write(text);
  file_->finish();
}

void die_of_closed_pipe() {
  if (!pipes_kill) return;
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
}

}  // namespace canopy::cli
