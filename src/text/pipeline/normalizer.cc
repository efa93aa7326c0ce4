#include "src/text/pipeline/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "src/base/error.h"
#include "src/base/utf8.h"

namespace canopy::text {

namespace {

std::string apply(const Nfc&, std::string text, const Bounds&) { return to_nfc(text); }
std::string apply(const Prepend& step, std::string text, const Bounds&) {
  return text.empty() ? text : step.text + text;
}
std::string apply(const Replace& step, std::string text, const Bounds& bounds) {
  return step.pattern.replace_all(text, step.with, bounds);
}

}  // namespace

std::string normalize(const Normalizer& normalizer, std::string_view text, const Bounds& bounds) {
  std::string out(text);
  for (const auto& step : normalizer) {
    out = std::visit([&](const auto& s) { return apply(s, std::move(out), bounds); }, step);
    bounds.check(out.size());
  }
  return out;
}

std::string to_nfc(std::string_view text) {
  if (std::all_of(text.begin(), text.end(),
                  [](char c) { return static_cast<signed char>(c) >= 0; }))
    return std::string(text);

  std::vector<std::int32_t> points;
  points.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    text.remove_prefix(step.bytes);
    std::array<std::int32_t, 8> parts{};  // a canonical decomposition has at most four
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<std::int32_t>(step.value), parts.data(),
                                               parts.size(), UTF8PROC_DECOMPOSE, &boundary);
    require(count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()),
            "utf8proc cannot decompose a character");
    points.insert(points.end(), parts.begin(), parts.begin() + count);
  }
  // utf8proc's own ordering of marks swaps neighbours: quadratic in the length of a run.
  const auto rank = [](std::int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto run = points.begin(); run != points.end();) {
    run = std::find_if(run, points.end(), [&](std::int32_t c) { return rank(c) != 0; });
    const auto end = std::find_if(run, points.end(), [&](std::int32_t c) { return rank(c) == 0; });
    std::stable_sort(run, end, [&](std::int32_t a, std::int32_t b) { return rank(a) < rank(b); });
    run = end;
  }
  const auto composed =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  require(composed >= 0, "utf8proc cannot compose a text");
  std::string out;
  out.reserve(static_cast<std::size_t>(composed));
  for (utf8proc_ssize_t i = 0; i < composed; ++i)
    append_utf8(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
  return out;
}

}  // namespace canopy::text
