#pragma once
#include <mutex>
#include <optional>
#include <string>

#include "src/base/file.h"
#include "src/server/request_record.h"

namespace canopy::cli {

enum class LogRequests : std::uint8_t {
  kTextsAndErrors,  // not what was read and went well: /health, /metrics, the page
  kAll
};

/// Writes a line for each request to stderr, or to a file, which is added to. A line for which
/// there is no room, as nobody reads the pipe or the terminal, is left out and counted: no reply
/// waits for a log. Any thread.
class RequestLog {
 public:
  /// Throws Error where the file cannot be opened.
  RequestLog(const std::optional<std::string>& file, LogRequests which);
  void write(const server::RequestRecord& record);

 private:
  UniqueFd file_;
  int descriptor_;
  LogRequests which_;
  std::mutex mutex_;
  int left_out_ = 0;  // lines
};

/// "2026-11-26T03:00:00.123Z req_1a POST /v1/completions 200 1.234s in=5 ...", without an end of
/// line. `now`: when it was written.
std::string request_line(const server::RequestRecord& record,
                         std::chrono::system_clock::time_point now);

}  // namespace canopy::cli
