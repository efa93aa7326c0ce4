#include "src/cli/output/request_log.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "src/base/error.h"
#include "src/base/json_text.h"
#include "src/base/utf8.h"

namespace canopy::cli {

namespace {

constexpr std::size_t kMostPath = 200, kMostReason = 600;  // bytes; a line has less than 4096

std::string utc(std::chrono::system_clock::time_point now) {
  const auto ms = std::chrono::floor<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm at{};
  gmtime_r(&seconds, &at);
  std::array<char, 64> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &at);
  std::snprintf(text.data() + length, text.size() - length, ".%03dZ", static_cast<int>(ms % 1000));
  return text.data();
}

std::string number(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

/// One word, whatever a client sent.
std::string word(std::string_view text) {
  std::string out = printable(text, kMostPath);
  for (char& c : out)
    if (c == ' ') c = '_';
  return out.empty() ? "-" : out;
}

/// A pipe with so much room takes a line without a wait.
bool has_room(int descriptor) {
  pollfd one{descriptor, POLLOUT, 0};
  return poll(&one, 1, 0) == 1 && (one.revents & POLLOUT) != 0;
}

}  // namespace

std::string request_line(const server::RequestRecord& record,
                         std::chrono::system_clock::time_point now) {
  std::string line = utc(now) + " " + word(record.id) + " " + word(record.method) + " " +
                     word(record.path) + " " +
                     (record.status == 0 ? "gone" : std::to_string(record.status)) + " " +
                     number("%.3fs", record.time.count());
  if (record.texts) {
    line += " in=" + std::to_string(record.prompt_tokens) +
            " out=" + std::to_string(record.completion_tokens) +
            " cached=" + std::to_string(record.cached_tokens);
    if (record.tokens_per_sweep > 0) line += number(" tokens/sweep=%.2f", record.tokens_per_sweep);
    if (record.seconds_per_token > 0) line += number(" s/token=%.4g", record.seconds_per_token);
    if (!record.finish.empty()) line += " finish=" + printable(record.finish, kMostPath);
  }
  if (!record.reason.empty())
    line += " error=" + json_text(nlohmann::json(printable(record.reason, kMostReason)));
  return line;
}

RequestLog::RequestLog(const std::optional<std::string>& file, LogRequests which)
    : descriptor_(STDERR_FILENO), which_(which) {
  if (!file) return;
  file_ = UniqueFd(open(file->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.is_open())
    throw Error("--log-file: " + *file + ": " + std::generic_category().message(errno));
  descriptor_ = file_.get();
}

void RequestLog::write(const server::RequestRecord& record) {
  const bool only_read = (record.method == "GET" || record.method == "HEAD") &&
                         record.status != 0 && record.status < 400;
  if (only_read && which_ != LogRequests::kAll) return;
  std::string line = request_line(record, std::chrono::system_clock::now()) + "\n";
  const std::lock_guard lock(mutex_);
  if (left_out_ > 0)
    line = "note: " + std::to_string(left_out_) +
           " lines of the log of requests were left out: nobody read them\n" + line;
  if (has_room(descriptor_) &&
      ::write(descriptor_, line.data(), line.size()) == static_cast<ssize_t>(line.size()))
    left_out_ = 0;
  else
    ++left_out_;
}

}  // namespace canopy::cli
