#include "src/base/trace.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/base/error.h"

namespace canopy {

namespace {

constexpr std::array kLanes{"link: disk to ring", "target: compute",
                            "draft: compute",     "host: steps and waits",
                            "link: host to GPU",  "target: waits for the link"};

double microseconds(Trace::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

Trace::Trace(const std::filesystem::path& path) : path_(path), file_(path) {
  if (!file_) throw Error("cannot write the trace " + path.string() + ": " + std::strerror(errno));
  file_ << "[";
  for (std::size_t lane = 0; lane < kLanes.size(); ++lane)
    file_ << (lane == 0 ? "\n" : ",\n") << R"({"ph":"M","name":"thread_name","pid":1,"tid":)"
          << lane << R"(,"args":{"name":")" << kLanes[lane] << R"("}})";
}

Trace::~Trace() {
  if (file_.is_open()) file_ << "\n]\n";
}

void Trace::span(Lane lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
                 std::uint64_t bytes) {
  std::array<char, 96> times{};
  std::snprintf(times.data(), times.size(), R"(,"ts":%.3f,"dur":%.3f)",
                microseconds(begin - start_), microseconds(end - begin));
  const std::lock_guard lock(mutex_);
  if (!file_.is_open()) return;
  file_ << R"(,
{"ph":"X","name":")"
        << name << R"(","pid":1,"tid":)" << static_cast<int>(lane) << times.data();
  if (bytes > 0) file_ << R"(,"args":{"bytes":)" << bytes << "}";
  file_ << "}";
}

void Trace::close() {
  const std::lock_guard lock(mutex_);
  file_ << "\n]\n";
  file_.close();
  if (!file_) throw Error("cannot write the trace " + path_.string() + ": is the disk full?");
}

}  // namespace canopy
