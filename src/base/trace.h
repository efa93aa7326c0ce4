#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

#include "src/base/file_writer.h"

namespace canopy {

/// Writes what happened when, as Chrome trace-event JSON: open it in Perfetto or chrome://tracing.
/// The file appears when it is complete. Any thread.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  /// One line of the timeline each. Spans of one lane must not overlap, but may nest.
  enum class Lane : std::uint8_t { kLink, kTarget, kDraft, kHost, kUpload, kUploadWait };

  /// Throws Error if the file cannot be made.
  explicit Trace(const std::filesystem::path& path);
  ~Trace();  // completes the file, if it can
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Writes a span that shows `name` and, where not 0, its bytes.
  void span(Lane lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
            std::uint64_t bytes = 0);
  /// Throws Error if anything could not be written.
  void close();

 private:
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  FileWriter file_;
  bool open_ = true;
};

}  // namespace canopy
