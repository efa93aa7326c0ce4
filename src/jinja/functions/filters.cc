// Filters of numbers, and the way to all filters.
#include "src/jinja/functions/filters.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "src/base/utf8.h"
#include "src/jinja/characters.h"
#include "src/jinja/functions/arguments.h"
#include "src/jinja/operators.h"

namespace canopy::jinja {

namespace {

/// int(text, base), nothing if Python would not take it or 63 bits do not hold it.
std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  text = strip_left(strip_right(text));
  const bool plus = text.starts_with('+');
  if (plus) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return whole && !(plus && text.starts_with('-')) ? std::optional(value) : std::nullopt;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip_left(strip_right(text));
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

std::optional<double> to_float(const Value& value) {
  if (value.is_number()) return value.number();
  return value.is(Kind::kString) ? parse_float(value.string()) : std::nullopt;
}

Value int_(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "int", arguments, {"default", "base"});
  require_defined(runtime, subject);
  const std::int64_t base = given.integer(1, 10);
  if (base < 2 || base > 36) runtime.fail("int(): 'base' must be between 2 and 36");
  if (subject.is_integer()) return Value(subject.integer());
  if (subject.is(Kind::kLargeInt)) return subject;
  if (subject.is(Kind::kString))
    if (const auto value = parse_integer(subject.string(), static_cast<int>(base)))
      return Value(*value);
  const std::optional<double> value = to_float(subject);
  if (value && std::abs(*value) < 0x1p63) return Value(static_cast<std::int64_t>(*value));
  return given.get(0) ? *given.get(0) : Value(std::int64_t{0});
}

Value float_(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "float", arguments, {"default"});
  require_defined(runtime, subject);
  if (const std::optional<double> value = to_float(subject)) return Value(*value);
  return given.get(0) ? *given.get(0) : Value(0.0);
}

Value abs_(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  Parameters(runtime, "abs", arguments, {});
  const Value plus = sign(runtime, Operator::kPlus, subject);
  return plus.number() < 0 ? sign(runtime, Operator::kNegate, plus) : plus;
}

Value round(Runtime& runtime, const Value& subject, const Arguments& arguments) {
  const Parameters given(runtime, "round", arguments, {"precision", "method"});
  const std::string_view method = given.string(1, "common");
  const std::int64_t precision = given.integer(0, 0);
  if (method != "common" && method != "ceil" && method != "floor")
    runtime.fail("method must be common, ceil or floor");
  if (precision < 0 || precision > 15) runtime.fail("round(): 'precision' must be 0 to 15");
  const Value plus = sign(runtime, Operator::kPlus, subject);
  if (method == "common" && (plus.is(Kind::kInt) || plus.is(Kind::kLargeInt))) return plus;
  if (method == "common") {  // the nearest decimal text, as Python rounds
    char buffer[512];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, plus.number(),
                                   std::chars_format::fixed, static_cast<int>(precision));
    return Value(
        *parse_float(std::string_view(buffer, static_cast<std::size_t>(end.ptr - buffer))));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = plus.number() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

const Filter* find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), sequence_filters(), number_filters()})
    for (const Filter& filter : table)
      if (filter.name == name) return &filter;
  return nullptr;
}

}  // namespace

std::span<const Filter> number_filters() {
  static constexpr std::array kFilters{Filter{"int", int_}, Filter{"float", float_},
                                       Filter{"abs", abs_}, Filter{"round", round}};
  return kFilters;
}

bool has_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(Runtime& runtime, std::string_view name, const Value& subject,
                   const Arguments& arguments) {
  const Filter* filter = find_filter(name);
  if (!filter) runtime.fail("No filter named " + in_quotes(name) + ".");
  return filter->apply(runtime, subject, arguments);
}

}  // namespace canopy::jinja
