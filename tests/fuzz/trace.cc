// The names of a trace's spans: whatever they are, the file is JSON.
#include "src/base/trace.h"

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  const auto [name, rest] = split(input);
  const std::filesystem::path file = folder() / "trace.json";
  reads([&, &name = name, &rest = rest] {
    const Trace::Clock::time_point now = Trace::Clock::now();
    Trace trace(file);
    trace.span(Trace::Lane::kHost, name, now, now);
    trace.span(Trace::Lane::kLink, rest, now, now, rest.size());
    trace.close();
  });
  const auto events =
      nlohmann::json::parse(read_file(file, 1 << 20, FileKind::kOfUser), nullptr, false);
  expect(events.is_array() && events.size() > 2, "a list of events");
}

}  // namespace canopy::fuzz
