#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>

namespace canopy {

/// Writes what happened when, as Chrome trace-event JSON: open it in Perfetto or chrome://tracing.
/// Events go to the file as they come. Any thread.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  /// One line of the timeline each. Spans of one lane must not overlap, but may nest.
  enum class Lane : std::uint8_t { kLink, kTarget, kDraft, kHost, kUpload, kUploadWait };

  /// Throws Error if the file cannot be made.
  explicit Trace(const std::filesystem::path& path);
  ~Trace();  // completes the file
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// `name` is shown on the span; bytes, where not 0, beside it. Neither may need JSON escapes.
  void span(Lane lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
            std::uint64_t bytes = 0);
  /// Throws Error if anything could not be written.
  void close();

 private:
  std::filesystem::path path_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::ofstream file_;
};

}  // namespace canopy
