// The two ways in which Python fills values into a text.
#include <charconv>
#include <cmath>
#include <optional>

#include "src/base/utf8.h"
#include "src/jinja/functions/filters.h"
#include "src/jinja/operators.h"
#include "src/jinja/to_text.h"

namespace canopy::jinja {

namespace {

/// Writes a number with `decimals` after the point.
std::string fixed_text(Runtime& runtime, const Value& value, int decimals) {
  if (!value.is_number()) runtime.fail("must be real number, not " + std::string(type_name(value)));
  char buffer[512];  // 309 digits before the point and 99 after it
  const double number = value.number();
  if (!std::isfinite(number)) return float_text(number);
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::fixed, decimals);
  return std::string(buffer, end.ptr);
}

/// ".3f" -> 3, "f" -> 6. Takes it off `text`; nothing if it does not begin so.
std::optional<int> take_decimals(std::string_view& text) {
  int decimals = 6;
  std::string_view rest = text;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    const std::size_t digits = std::min<std::size_t>(2, rest.size());
    const auto parsed = std::from_chars(rest.data(), rest.data() + digits, decimals);
    if (parsed.ec != std::errc()) return {};
    rest.remove_prefix(static_cast<std::size_t>(parsed.ptr - rest.data()));
  }
  if (!rest.starts_with('f')) return {};
  text = rest.substr(1);
  return decimals;
}

}  // namespace

Value percent_format(Runtime& runtime, const Value& format, const Value& values) {
  std::vector<Value> items{values};
  if (values.is(Kind::kList) && values.list().kind == ListKind::kTuple) items = values.list().items;
  std::size_t used = 0;
  const auto next = [&]() -> const Value& {
    if (used == items.size()) runtime.fail("not enough arguments for format string");
    return items[used++];
  };
  Output out(runtime);
  std::string_view rest = format.string();
  while (!rest.empty()) {
    const std::size_t plain = std::min(rest.find('%'), rest.size());
    out.append(rest.substr(0, plain));
    rest.remove_prefix(plain);
    if (rest.empty()) break;
    rest.remove_prefix(1);
    if (rest.starts_with('%')) {
      out.append('%');
    } else if (rest.starts_with('s')) {
      append_text(runtime, out, next());
    } else if (rest.starts_with('r')) {
      append_repr(runtime, out, next());
    } else if (rest.starts_with('d') || rest.starts_with('i')) {
      const Value& value = next();
      if (!value.is_number())
        runtime.fail("%d format: a real number is required, not " + std::string(type_name(value)));
      if (value.is(Kind::kFloat))
        out.append(fixed_text(runtime, Value(std::trunc(value.number())), 0));
      else if (value.is(Kind::kLargeInt))
        append_text(runtime, out, value);
      else
        out.append(std::to_string(value.integer()));
    } else if (const std::optional<int> decimals = take_decimals(rest)) {
      out.append(fixed_text(runtime, next(), *decimals));
      continue;
    } else {
      runtime.fail("the format '%" + std::string(rest.substr(0, 1)) +
                   "' is not supported; known: %s, %r, %d, %i, %f, %.2f, %%");
    }
    rest.remove_prefix(1);
  }
  if (used < items.size() && !(items.size() == 1 && values.is(Kind::kDict)))
    runtime.fail("not all arguments converted during string formatting");
  return runtime.string(std::move(out).take());
}

Value brace_format(Runtime& runtime, const Value& format, const Arguments& arguments) {
  Output out(runtime);
  std::size_t used = 0;
  std::string_view rest = format.string();
  const auto field = [&](std::string_view name) -> Value {
    std::size_t index = used;
    if (name.empty()) {
      ++used;
    } else if (std::from_chars(name.data(), name.data() + name.size(), index).ptr !=
               name.data() + name.size()) {
      for (const auto& [key, value] : arguments.named)
        if (key == name) return value;
      runtime.fail("format() has no argument " + in_quotes(name));
    }
    if (index >= arguments.positional.size())
      runtime.fail("format() has no argument " + std::to_string(index));
    return arguments.positional[index];
  };
  while (!rest.empty()) {
    const std::size_t plain = std::min(rest.find_first_of("{}"), rest.size());
    out.append(rest.substr(0, plain));
    rest.remove_prefix(plain);
    if (rest.empty()) break;
    if (rest.starts_with("{{") || rest.starts_with("}}")) {
      out.append(rest[0]);
      rest.remove_prefix(2);
      continue;
    }
    const std::size_t end = rest.find('}');
    if (rest[0] == '}' || end == std::string_view::npos)
      runtime.fail("format(): a single '" + std::string(1, rest[0]) + "'");
    std::string_view inside = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
    const std::size_t colon = std::min(inside.find(':'), inside.size());
    const Value value = field(inside.substr(0, colon));
    inside.remove_prefix(std::min(colon + 1, inside.size()));
    if (inside.empty()) {
      append_text(runtime, out, value);
      continue;
    }
    const std::string spec(inside);
    const std::optional<int> decimals = take_decimals(inside);
    if (!decimals || !inside.empty())
      runtime.fail("the format " + in_quotes(spec) + " is not supported; known: none, f, .2f");
    out.append(fixed_text(runtime, value, *decimals));
  }
  return runtime.string(std::move(out).take());
}

}  // namespace canopy::jinja
