#include "src/base/trace.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/error.h"
#include "src/base/json_text.h"

namespace canopy {

namespace {

constexpr std::array kLanes{"link: disk to ring", "target: compute",
                            "draft: compute",     "host: steps and waits",
                            "link: host to GPU",  "target: waits for the link"};

double microseconds(Trace::Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

Trace::Trace(const std::filesystem::path& path) : file_(path) {
  std::string text = "[";
  for (std::size_t lane = 0; lane < kLanes.size(); ++lane)
    text += (lane == 0 ? "\n" : ",\n") +
            (R"({"ph":"M","name":"thread_name","pid":1,"tid":)" + std::to_string(lane)) +
            R"(,"args":{"name":")" + kLanes[lane] + R"("}})";
  file_.write(text);
}

Trace::~Trace() {
  try {
    close();
  } catch (const Error&) {  // whoever wants to know calls close()
  }
}

void Trace::span(Lane lane, std::string_view name, Clock::time_point begin, Clock::time_point end,
                 std::uint64_t bytes) {
  std::array<char, 128> rest{};
  std::snprintf(rest.data(), rest.size(), R"(,"pid":1,"tid":%d,"ts":%.3f,"dur":%.3f)",
                static_cast<int>(lane), microseconds(begin - start_), microseconds(end - begin));
  std::string event =
      R"({"ph":"X","name":)" + json_text(nlohmann::json(std::string(name))) + rest.data();
  if (bytes > 0) event += R"(,"args":{"bytes":)" + std::to_string(bytes) + "}";
  const std::lock_guard lock(mutex_);
  if (open_) file_.write(",\n" + event + "}");
}

void Trace::close() {
  const std::lock_guard lock(mutex_);
  if (!open_) return;
  open_ = false;
  file_.write("\n]\n");
  file_.finish();
}

}  // namespace canopy
